// The rows of a round for the mechanism: the units that may run, what each
// holds, its share, what it has received and what it costs to move (Gavel
// section 5). Stateless; not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_ROUND_ROWS_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_ROUND_ROWS_H_

#include <optional>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds/allocation_table.h"
#include "coordinator/engine/rounds/candidates.h"
#include "coordinator/engine/rounds/figures.h"
#include "coordinator/engine/rounds/ledger.h"
#include "coordinator/engine/rounds/trial_book.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/terms.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/share_unit.h"
#include "core/units.h"

namespace gavel::engine {

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
  // The job alone, and the pair that it runs in where that has no share. No
  // `at`: only what tells where they go.
  void AddUnits(const Job& job, std::optional<Time> at, bool with_trials,
                RoundUnit& row, RoundTable& units) const;
  // And what tells whose turn it is.
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

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_ROUND_ROWS_H_
