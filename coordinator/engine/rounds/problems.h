// Problems for the policy. The last one is kept from one solve to the next:
// only the rows of jobs that have changed are made anew, and checked, where the
// others can't have become different.
//
// Not thread-safe. No snapshot fields: it is made anew after a restart.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_PROBLEMS_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_PROBLEMS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds/allocation_table.h"
#include "coordinator/engine/rounds/figures.h"
#include "coordinator/engine/rounds/isolated_time.h"
#include "coordinator/engine/rounds/ledger.h"
#include "coordinator/engine/rounds/trial_book.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/terms.h"
#include "coordinator/engine/user_shares.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/policy/policy.h"
#include "coordinator/throughput/throughput_matrix.h"
#include "core/units.h"

namespace gavel::engine {

class Problems {
 public:
  // Borrowed, and outlive this.
  Problems(const Terms& terms, const JobTable& jobs, Changes& changes,
           const Cluster& cluster, const ThroughputMatrix& throughputs,
           const EngineOptions& options, const AllocationTable& allocation,
           const Figures& figures, const Ledger& ledger,
           const IsolatedTime& isolated, const TrialBook& trials)
      : terms_(terms),
        jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        throughputs_(throughputs),
        options_(options),
        allocation_(allocation),
        figures_(figures),
        ledger_(ledger),
        isolated_(isolated),
        trials_(trials) {}

  // Makes problem() that of now.
  void BuildProblem(Time now);

  // The last one; null: none was made, or it was dropped.
  const std::shared_ptr<PolicyProblem>& problem() const { return problem_; }
  void Drop() { problem_ = nullptr; }

 private:
  bool KeepsProblem() const;
  void UpdateProblem(Time now);
  PolicyJob ProblemJob(const Job& job, Time now) const;
  void AddPlacement(PolicyProblem& problem) const;
  void AddThroughputs(PolicyProblem& problem);
  void AddThroughputs(const PolicyJob& row, PolicyProblem& problem,
                      std::vector<double>& out);
  void AddPairs(PolicyProblem& problem) const;

  const Terms& terms_;
  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  const AllocationTable& allocation_;
  const Figures& figures_;
  const Ledger& ledger_;
  const IsolatedTime& isolated_;
  const TrialBook& trials_;
  std::shared_ptr<PolicyProblem> problem_;  // the last one, kept by change
  uint64_t problem_version_ = 0;            // of throughputs_
  bool problem_guesses_ = false;  // it has throughputs that nobody knows
  UserShares users_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_PROBLEMS_H_
