// The plan of a round: the rows that the mechanism chooses from, and the jobs
// that get accelerators. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_PLANNER_H_
#define GAVEL_COORDINATOR_ENGINE_PLANNER_H_

#include <optional>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/allocation.h"
#include "coordinator/engine/checkpoints.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/ledger.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/engine/trial_book.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/share_unit.h"
#include "core/units.h"

namespace gavel::engine {

// Makes the rows of a round for the mechanism (Gavel section 5). There is one
// for each unit that may run, with the accelerators that it holds, its share,
// the time that it has received and the cost of moving it. Stateless; not
// thread-safe.

class RoundRows {
 public:
  // Borrowed, and outlive this.
  RoundRows(const Terms& terms, const JobTable& jobs, const Cluster& cluster,
            const ThroughputMatrix& throughputs, const EngineOptions& options,
            const AllocationTable& allocation, const Candidates& candidates,
            const Figures& figures, const Ledger& ledger,
            const TrialBook& trials)
      : terms_(terms),
        jobs_(jobs),
        cluster_(cluster),
        throughputs_(throughputs),
        options_(options),
        allocation_(allocation),
        candidates_(candidates),
        figures_(figures),
        ledger_(ledger),
        trials_(trials) {}

  // The units that may run, as of `at`.
  RoundTable RoundUnits(Time at, bool with_trials) const;
  // Adds the row of the job alone, and that of the pair that it runs in if the
  // pair has no share. Without `at`, the rows have only the fields that decide
  // where a unit goes.
  void AddUnits(const Job& job, std::optional<Time> at, bool with_trials,
                RoundUnit& row, RoundTable& units) const;
  // Fills all of `row`, with the fields that decide whose turn it is.
  void MakeUnit(const ShareUnit& unit, const Job& job, Time at,
                RoundUnit& row) const;

 private:
  void WeighEntities(RoundTable& units) const;
  void AddPairTrials(RoundTable& units, Time at,
                     const std::vector<int>& left) const;
  void MakePlace(const ShareUnit& unit, const Job& job, RoundUnit& row) const;

  const Terms& terms_;
  const JobTable& jobs_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  const AllocationTable& allocation_;
  const Candidates& candidates_;
  const Figures& figures_;
  const Ledger& ledger_;
  const TrialBook& trials_;
};

// Plans a round: which jobs would run where.
//
// A policy may answer with an assignment, which says which jobs run. Then most
// jobs stay where they are, and only those are planned anew that may get
// another place. If it answers with shares, every job is planned in every
// round. The planner only proposes; Rounds (rounds.h) decides.
//
// Not thread-safe. No snapshot fields: after a restart all jobs are planned.

class Planner {
 public:
  // Borrowed, and outlive this.
  Planner(const Terms& terms, const JobTable& jobs, Changes& changes,
          const Cluster& cluster, AssignedAccelerators& assigned,
          const Agents& agents, const EngineOptions& options,
          const AllocationTable& allocation, const Checkpoints& checkpoints,
          const Candidates& candidates, const TrialBook& trials,
          const RoundRows& rows, const Figures& figures,
          const AcceleratorSpeeds& speeds, const Avoidance& avoidance)
      : terms_(terms),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        assigned_(assigned),
        agents_(agents),
        options_(options),
        allocation_(allocation),
        checkpoints_(checkpoints),
        candidates_(candidates),
        trials_(trials),
        rows_(rows),
        figures_(figures),
        speeds_(speeds),
        avoidance_(avoidance) {}

  // Whether all jobs have to be planned together: the place of a job depends on
  // the other jobs, or on more than the changes that touch the job.
  bool PlansWhole() const;
  // Unless `types` is empty, jobs are to be placed only on the types that it
  // marks. An assignment places each type by itself, so its plan may leave out
  // the other types.
  RoundPlan PlanAll(Time at, bool keep_running,
                    const std::vector<bool>& types = {});
  // An assignment may give a job a type that other jobs still hold in this
  // round. Until they are free, such jobs among `jobs` (nullopt: among all) run
  // on idle accelerators of the usable type where they are fastest. Adds those
  // to `places`.
  void PlaceElsewhere(Time at, const std::optional<std::vector<JobId>>& jobs,
                      std::vector<RoundAssignment::Entry>& places);

 private:
  bool IsSettled(const Job& job) const;
  std::optional<std::vector<JobId>> Unsettled();
  RoundAssignment PlaceJobs(Time at, const std::vector<JobId>& jobs,
                            bool keep_running, const std::vector<bool>& types);

  const Terms& terms_;
  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  AssignedAccelerators& assigned_;
  const Agents& agents_;
  const EngineOptions& options_;
  const AllocationTable& allocation_;
  const Checkpoints& checkpoints_;
  const Candidates& candidates_;
  const TrialBook& trials_;
  const RoundRows& rows_;
  const Figures& figures_;
  const AcceleratorSpeeds& speeds_;
  const Avoidance& avoidance_;
  std::vector<JobId> unsettled_;  // as of the last plan, if not all are
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_PLANNER_H_
