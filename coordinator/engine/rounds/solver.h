// When the policy is asked, and what comes back. Solving is asynchronous, and
// an answer to an older question is dropped.
//
// Not thread-safe. Snapshot fields: all but the row that the problem was made
// behind.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_SOLVER_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_SOLVER_H_

#include <cstdint>
#include <string>
#include <tuple>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/rounds/allocation_table.h"
#include "coordinator/engine/rounds/isolated_time.h"
#include "coordinator/engine/rounds/ledger.h"
#include "coordinator/engine/rounds/problems.h"
#include "coordinator/engine/rounds/round_clock.h"
#include "coordinator/engine/state/agenda.h"
#include "coordinator/engine/state/changes.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/outbox.h"
#include "coordinator/engine/state/recorder.h"
#include "coordinator/policy/policy.h"
#include "core/share_unit.h"
#include "core/units.h"

namespace gavel::engine {

class Solver {
 public:
  // Borrowed, and outlive this.
  Solver(Outbox& outbox, Agenda& agenda, JobTable& jobs, Changes& changes,
         const EngineOptions& options, Recorder& recorder,
         AllocationTable& allocation, Ledger& ledger, IsolatedTime& isolated,
         RoundClock& round, Problems& problems)
      : outbox_(outbox),
        agenda_(agenda),
        jobs_(jobs),
        changes_(changes),
        options_(options),
        recorder_(recorder),
        allocation_(allocation),
        ledger_(ledger),
        isolated_(isolated),
        round_(round),
        problems_(problems) {}

  // Asks for a new allocation when jobs or the cluster changed and that is on
  // disk: jobs that come together are solved for together. One problem is out
  // at a time; what changes meanwhile makes the next one.
  void MaybeSolve(Time now, const std::string& policy);
  void Admit(Time now, event::AllocationReady e);
  void On(Time now, const event::AllocationReady& e);

  bool solving() const { return solving_; }
  // A new allocation is being made, or is as soon as what changed is on disk.
  bool IsAnswerNear(Time now) const {
    return solving_ || (agenda_.unsolved() && SolveDue() <= now);
  }
  // The next call of MaybeSolve that may find something to do; kNever: none.
  Time NextDeadline() const;
  // A solve that failed is due again.
  void Retry(Time now);
  // What is being solved is of no use any more. `answer`: it may still come.
  void Abandon(bool answer);

  static auto State(auto& part) {
    return std::tie(part.solve_epoch_, part.solving_, part.solved_placement_,
                    part.solved_at_, part.solve_retry_at_);
  }

 private:
  Time SolveDue() const;
  void TakeAllocation(Time now, const PolicyResult& result);
  void AddTarget(const ShareUnit& unit, double share);
  void TakeAssignment(Time now, const PolicyResult& result);

  Outbox& outbox_;
  Agenda& agenda_;
  JobTable& jobs_;
  Changes& changes_;
  const EngineOptions& options_;
  Recorder& recorder_;
  AllocationTable& allocation_;
  Ledger& ledger_;
  IsolatedTime& isolated_;
  RoundClock& round_;
  Problems& problems_;
  uint64_t solve_epoch_ = 0;
  uint64_t problem_seq_ = 0;  // the row that its problem was made behind
  bool solving_ = false;
  bool solved_placement_ = false;  // it had consolidated columns
  Time solved_at_ = -kNever;       // when the last problem went out
  Time solve_retry_at_ = kNever;   // after a solve that failed
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_SOLVER_H_
