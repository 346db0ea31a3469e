// Solves policies on a thread of its own, so that the event loop never waits
// for a solver. Of the problems that wait only the newest is
// kept: older epochs would be dropped by the engine anyway. The coordinator's
// event loop owns one.
//
// Thread-safe, but for Stop. `notify` is called on the solver thread when an
// answer is there; it must not block, nor call back.
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
  // Waits for the problem being solved, unless stopped before.
  ~SolverThread();
  SolverThread(const SolverThread&) = delete;
  SolverThread& operator=(const SolverThread&) = delete;

  // How long Stop waits for the problem that is being solved.
  static constexpr double kFarewell_s = 0.2;
  // Solves nothing more; to be called once. False: a problem is still being
  // solved, which may take minutes, and its thread is detached. It uses only
  // its own data from then on, but the process must end by std::_Exit.
  bool Stop();

  // Takes the place of a problem that still waits. Where it names another
  // policy, that one solves from then on.
  void Solve(action::SolvePolicy problem);

  // The newest answer, once. An error of the policy, or an exception of its
  // solver, is an answer too: outcome kFailed with the detail.
  std::optional<event::AllocationReady> TakeAnswer();

 private:
  // What the thread needs: its own when it is left alone.
  struct Shared {
    std::unique_ptr<Policy> policy;  // the thread's
    // As in CommitThread, of the standard library.
    std::mutex mutex;  // guards all below
    std::condition_variable changed;
    std::function<void()> notify;
    std::optional<action::SolvePolicy> waiting;
    std::optional<event::AllocationReady> answer;
    bool stopping = false;
    bool ended = false;
  };
  static void Work(Shared& shared);
  void SolveNoMore();
  // Waits for a problem. Nothing: the end.
  static std::optional<action::SolvePolicy> TakeProblem(Shared& shared);

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_SOLVER_THREAD_H_
