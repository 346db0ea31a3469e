// How the speeds of jobs become known: by trials (TrialBook), and from job
// files, the throughput table and the reports of workers. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_
#define GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

// Trials: a job that has never run on a type, or a pair that has never run
// together, gets a round there first, so that its throughput is measured (Gavel
// sections 3.1 and 6). TrialBook decides which jobs and pairs get a trial,
// counts the cost of trials, and remembers which were made.
//
// Not thread-safe. Snapshot fields: all.
class TrialBook {
 public:
  // A job gets at most this many trials beside other jobs. Its throughputs
  // beside the rest stay unknown, and the policy is not offered those pairs.
  static constexpr int kPairTrialsMax = 4;

  // Borrowed, and outlive this.
  TrialBook(const Terms& terms, const JobTable& jobs, const Cluster& cluster,
            const ThroughputMatrix& throughputs, const EngineOptions& options,
            const AllocationTable& allocation, const Candidates& candidates,
            const Figures& figures)
      : terms_(terms),
        jobs_(jobs),
        cluster_(cluster),
        throughputs_(throughputs),
        options_(options),
        allocation_(allocation),
        candidates_(candidates),
        figures_(figures) {}

  // Whether the pair may be tried on the type. Both jobs must be known alone
  // there, because a pair is judged by what its jobs lose against that.
  bool IsPairTrial(const Job& a, const Job& b, size_t type) const;
  // For a policy whose result is an assignment: the pairs that it may try, and
  // the type for each. A pair consists of a waiting job and one that runs
  // alone. No job is in two pairs, and all pairs together stay within the trial
  // budgets.
  std::map<ShareUnit, size_t> PairsToTry(const PolicyProblem& problem) const;
  // How many accelerators of each type trials may take: this percentage,
  // rounded up.
  std::vector<int> TrialBudgets(double percentage) const;
  // Gives a job a turn on a type on which it has never run and nobody gave its
  // throughput. Trials take at most profiling_percentage of a type's
  // accelerators in one round. Section 6 of the paper likewise measures jobs
  // while it runs them. Returns how many accelerators of each type are left for
  // trials of pairs.
  std::vector<int> AddTrials(RoundTable& units) const;
  // The units that `places` puts on a type where they were offered a trial. An
  // offer shows in the deficit, which is at least kTrialDebt_s.
  std::vector<ShareUnit> TrialsOf(const RoundTable& units,
                                  const RoundAssignment& places) const;
  // Whether the job alone is on trial in this round or the one that is planned.
  bool IsTried(JobId job) const;
  // Ends the trials of the last round and begins the planned ones. A trial
  // lasts at most one round, even if the job needed all of it to start.
  void StartTrials(Time now);
  // Call when `worker` gets its lease. Notes that the job or pair was tried on
  // this type. The cost is counted only for units whose turn was planned as a
  // trial, and for a pair only once, with its first job.
  void NoteTried(Job& job, Worker& worker);
  // Adds the cost of the worker's trial, if it has one, and ends it. Call when
  // its lease or its round is over.
  void CountTrial(Time now, Worker& worker);
  // The cost of all trials up to `now`.
  TrialCost ProfilingAt(Time now) const;

  // Sets the trials of the planned round, in ascending order.
  void Plan(const std::vector<ShareUnit>& trials) { planned_trials_ = trials; }
  void ForgetPlan() { planned_trials_.clear(); }
  // Forgets the trials of a job that has ended.
  void ForgetJob(JobId job);

  static auto State(auto& part) {
    return std::tie(part.tried_, part.tried_pairs_, part.trials_,
                    part.planned_trials_, part.profiling_s_);
  }

 private:
  const Terms& terms_;
  const JobTable& jobs_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  const AllocationTable& allocation_;
  const Candidates& candidates_;
  const Figures& figures_;
  // Durable: a replay reproduces these.
  std::set<std::pair<JobId, size_t>> tried_;  // types that it was unknown on
  std::set<std::pair<ShareUnit, size_t>> tried_pairs_;
  std::vector<ShareUnit> trials_;          // of this round, ascending
  std::vector<ShareUnit> planned_trials_;  // of the one that is planned
  double profiling_s_ = 0;                 // of trials that are over
};

struct State;

// Learns the speed of jobs from the job file, from the throughput table, and
// from the reports of workers, alone and in pairs. Finds the row of the table
// that a job is most like.
//
// Not thread-safe. No snapshot fields: ThroughputMatrix and Job hold the
// figures, and rows of the table are found again.

// Fills in from the table the throughputs that the job file leaves open, and
// replaces short names of types by full ones. The result is journaled with
// the job, so that a replay needs no table.
void FillThroughputs(const State& s, JobSpec& spec);
// Takes the speed that rank 0 reports for its lease, alone or in a pair.
void Measure(State& s, Time now, Job& job, const Progress& progress);
// Finds the rows of all jobs again, as the throughput file may have changed.
void FindTableRows(State& s);
// Bars the job from types that its job file does not allow. Covers the types
// that are there; call this again when another one joins.
void BarTypes(State& s, const Job& job);
// The cluster may have types that it did not have when the job was submitted,
// or held.
void LearnTypes(State& s, Job& job);
// The same for its servers, of which all accelerators are known.
void BarServers(State& s, const Job& job);
// Notes in the profile of `job`, which is not in the table, the part of its
// speed that it keeps beside `other`, which is, so that the figure outlives
// `other`. False: there is no such figure.
bool KeepPairCell(State& s, Job& job, const Job& other,
                  const std::string& type);
// Finds the job's own row of the table, else the reference that it is most
// like by all of its measurements. That reference then gives the estimates
// for types where the job's speed is not known. Without references, the other
// jobs of its app give them.
void FindTableRow(State& s, Job& job);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_MEASUREMENTS_H_
