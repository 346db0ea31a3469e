// Turns on trial: a job that has never run on a type, or a pair that has never
// run together, gets a round there first, so that its throughput is measured
// (Gavel sections 3.1 and 6). Says who is offered a turn, counts what turns
// cost, and remembers what has been tried.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_TRIAL_BOOK_H_
#define GAVEL_COORDINATOR_ENGINE_TRIAL_BOOK_H_

#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/terms.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/policy/policy.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/ids.h"
#include "core/share_unit.h"
#include "core/units.h"

namespace gavel::engine {

class TrialBook {
 public:
  // A job runs beside so many others on trial; what it is like beside the rest
  // stays unknown, and the policy is not offered it.
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

  // Each must be known alone there first: what they lose is seen against that.
  bool IsPairTrial(const Job& a, const Job& b, size_t type) const;
  // Of a policy that says who runs: pairs that it may try, and on which type.
  // Each is of a job that waits and one that runs alone; as many as may be on
  // trial at once, and each job in one.
  std::map<ShareUnit, size_t> PairsToTry(const PolicyProblem& problem) const;
  // Of each type; at least one, unless there are to be none.
  std::vector<int> TrialBudgets(double percentage) const;
  // A job that has never run on a type, and whose throughput there nobody gave,
  // gets a turn there first: on at most a part of the type's accelerators in
  // one round (section 6 of the paper measures jobs in the same way, as part of
  // running them). Returns how many of each type are left for trials of pairs.
  std::vector<int> AddTrials(RoundTable& units) const;
  // Which of them are placed where they are on trial: by what they are owed
  // there.
  std::vector<ShareUnit> TrialsOf(const RoundTable& units,
                                  const RoundAssignment& places) const;
  // A trial is one round at most, also of a job that used it up to start.
  void StartTrials(Time now);
  // Called when `worker` gets its lease. Whoever comes to an unknown type
  // without a turn on trial costs nobody anything. Of a pair the first one
  // counts.
  void NoteTried(Job& job, Worker& worker);
  // Called when its lease, or its round, is over.
  void CountTrial(Time now, Worker& worker);
  // What trials cost, up to now.
  TrialCost ProfilingAt(Time now) const;

  // Those of the round that is planned, ascending.
  void Plan(const std::vector<ShareUnit>& trials) { planned_trials_ = trials; }
  void ForgetPlan() { planned_trials_.clear(); }
  // It has ended.
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
  // Durable: the same after a replay.
  std::set<std::pair<JobId, size_t>> tried_;  // types that it was unknown on
  std::set<std::pair<ShareUnit, size_t>> tried_pairs_;
  std::vector<ShareUnit> trials_;          // of this round, ascending
  std::vector<ShareUnit> planned_trials_;  // of the one that is planned
  double profiling_s_ = 0;                 // of trials that are over
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_TRIAL_BOOK_H_
