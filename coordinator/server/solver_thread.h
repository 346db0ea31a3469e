// Solves policies on a thread of its own, so that the event loop never waits
// for a solver (design section 4). Of the problems that wait only the newest is
// kept: older epochs would be dropped by the engine anyway. The coordinator's
// event loop owns one.
//
// Thread-safe. `notify` is called on the solver thread when an answer is there;
// it must not block, nor call back.
#ifndef GAVEL_COORDINATOR_SERVER_SOLVER_THREAD_H_
#define GAVEL_COORDINATOR_SERVER_SOLVER_THREAD_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "coordinator/engine/action.h"
#include "coordinator/engine/event.h"
#include "coordinator/policy/policy.h"

namespace gavel {

class SolverThread {
 public:
  SolverThread(std::unique_ptr<Policy> policy, std::function<void()> notify);
  // Waits for the problem being solved: solvers have iteration limits.
  ~SolverThread();
  SolverThread(const SolverThread&) = delete;
  SolverThread& operator=(const SolverThread&) = delete;

  // Takes the place of a problem that still waits.
  void Solve(action::SolvePolicy problem);

  // The newest answer, once. An error of the policy, or an exception of its
  // solver, is an answer too: outcome kFailed with the detail.
  std::optional<event::AllocationReady> TakeAnswer();

 private:
  void Work();
  // Waits for a problem. Nothing: the end.
  std::optional<action::SolvePolicy> TakeProblem();

  const std::unique_ptr<Policy> policy_;
  const std::function<void()> notify_;
  // As in CommitThread, of the standard library.
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::optional<action::SolvePolicy> waiting_;
  std::optional<event::AllocationReady> answer_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_SOLVER_THREAD_H_
