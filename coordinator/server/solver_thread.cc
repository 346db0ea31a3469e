#include "coordinator/server/solver_thread.h"

#include <utility>

#include "coordinator/policy/guarded_solve.h"

namespace gavel {
SolverThread::SolverThread(std::unique_ptr<Policy> policy,
                           std::function<void()> notify)
    : policy_(std::move(policy)),
      notify_(std::move(notify)),
      thread_([this] { Work(); }) {}

SolverThread::~SolverThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.reset();
  }
  changed_.notify_all();
  thread_.join();
}

void SolverThread::Solve(action::SolvePolicy problem) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = std::move(problem);
  }
  changed_.notify_all();
}

std::optional<event::AllocationReady> SolverThread::TakeAnswer() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answer_, std::nullopt);
}

void SolverThread::Work() {
  while (const std::optional<action::SolvePolicy> task = TakeProblem()) {
    event::AllocationReady answer{task->epoch,
                                  GuardedSolve(*policy_, *task->problem)};
    {
      const std::lock_guard lock(mutex_);
      answer_ = std::move(answer);
    }
    notify_();
  }
}

std::optional<action::SolvePolicy> SolverThread::TakeProblem() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.has_value() || stopping_; });
  return std::exchange(waiting_, std::nullopt);
}

}  // namespace gavel
