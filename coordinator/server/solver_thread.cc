#include "coordinator/server/solver_thread.h"

#include <chrono>
#include <string>
#include <utility>

#include "coordinator/policy/share/guarded_solve.h"

namespace gavel {
namespace {

// `policy` becomes the one that the task names.
PolicyResult Answer(const action::SolvePolicy& task,
                    std::unique_ptr<Policy>& policy) {
  if (!task.policy.empty() && task.policy != policy->name()) {
    absl::StatusOr<std::unique_ptr<Policy>> named = MakePolicy(task.policy);
    if (!named.ok()) {
      PolicyResult failed;
      failed.outcome = SolveOutcome::kFailed;
      failed.detail = std::string(named.status().message());
      return failed;
    }
    policy = *std::move(named);
  }
  return policy::GuardedSolve(*policy, *task.problem);
}

}  // namespace

SolverThread::SolverThread(std::unique_ptr<Policy> policy,
                           std::function<void()> notify) {
  shared_->policy = std::move(policy);
  shared_->notify = std::move(notify);
  thread_ = std::thread([shared = shared_] { Work(*shared); });
}

SolverThread::~SolverThread() {
  if (!thread_.joinable()) return;
  SolveNoMore();
  thread_.join();
}

void SolverThread::SolveNoMore() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stopping = true;
  shared_->waiting.reset();
  shared_->changed.notify_all();
}

bool SolverThread::Stop() {
  SolveNoMore();
  std::unique_lock lock(shared_->mutex);
  const bool ended = shared_->changed.wait_for(
      lock, std::chrono::duration<double>(kFarewell_s),
      [this] { return shared_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
  return ended;
}

void SolverThread::Solve(action::SolvePolicy problem) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting = std::move(problem);
  shared_->changed.notify_all();
}

std::optional<event::AllocationReady> SolverThread::TakeAnswer() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->answer, std::nullopt);
}

void SolverThread::Work(Shared& shared) {
  while (const std::optional<action::SolvePolicy> task = TakeProblem(shared)) {
    event::AllocationReady answer{task->epoch, Answer(*task, shared.policy)};
    const std::lock_guard lock(shared.mutex);
    shared.answer = std::move(answer);
    // What it tells may be gone after a stop.
    if (!shared.stopping) shared.notify();
  }
  const std::lock_guard lock(shared.mutex);
  shared.ended = true;
  shared.changed.notify_all();
}

std::optional<action::SolvePolicy> SolverThread::TakeProblem(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&shared] {
    return shared.waiting.has_value() || shared.stopping;
  });
  return std::exchange(shared.waiting, std::nullopt);
}

}  // namespace gavel
