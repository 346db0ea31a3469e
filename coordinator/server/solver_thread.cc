#include "coordinator/server/solver_thread.h"

#include <exception>
#include <string>
#include <utility>

#include "core/text.h"

namespace gavel {
namespace {

PolicyResult Failed(std::string detail) {
  PolicyResult result;
  result.outcome = SolveOutcome::kFailed;
  result.detail = std::move(detail);
  return result;
}

}  // namespace

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
    event::AllocationReady answer{task->epoch, SolveGuarded(*task->problem)};
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

// The one wrapper around a solver's exceptions.
PolicyResult SolverThread::SolveGuarded(const PolicyProblem& problem) const {
  try {
    absl::StatusOr<PolicyResult> result = policy_->Solve(problem);
    if (result.ok()) return *std::move(result);
    return Failed(result.status().ToString());
  } catch (const std::exception& error) {
    return Failed(StrCat("the solver threw: ", error.what()));
  }
}

}  // namespace gavel
