#include "iterator/session_context.h"

#include <string>
#include <utility>

#include "iterator/clock.h"

namespace gavel::internal {

BoundaryGate::Calls BoundaryGate::Take(bool wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (wait) {
    changed_.wait(lock, [this] { return pause_ || resume_ || stop_; });
  }
  Calls calls;
  calls.stop = stop_;
  calls.pause.swap(pause_);
  calls.resume.swap(resume_);
  calls.threads.swap(threads_);
  std::swap(calls.checkpoint, checkpoint_);
  calls.checkpoint |= checkpoint_requested_.exchange(false);
  called_.store(calls.stop, std::memory_order_release);
  // A handler may have come in between the lines above.
  if (stop_ || checkpoint_requested_) {
    called_.store(true, std::memory_order_release);
  }
  return calls;
}

void BoundaryGate::ForgetLease() {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = false;
  deadline_ns_.store(0, std::memory_order_release);
}

void BoundaryGate::HoldLease() {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
  deadline_ns_.store(ToNanoseconds(deadline_), std::memory_order_release);
}

void BoundaryGate::Grant(const lease_action::Resume& resume) {
  std::lock_guard<std::mutex> lock(mutex_);
  resume_ = resume;
  // A pause of an earlier lease has no meaning for this one; an end has.
  if (pause_ && !StrongerThan(pause_->tier, PauseTier::kPark)) pause_.reset();
  epoch_ = resume.epoch;
  deadline_ = resume.deadline;
  extension_lead_s_.store(resume.extension_lead_s, std::memory_order_relaxed);
  lease_threads_ = resume.accelerator.threads;
  threads_.reset();
  called_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void BoundaryGate::Extend(const lease_action::Extend& extend) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (extend.epoch != epoch_) return;
  deadline_ = extend.deadline;
  extension_lead_s_.store(extend.extension_lead_s, std::memory_order_relaxed);
  if (extend.threads != lease_threads_) {
    lease_threads_ = extend.threads;
    threads_ = extend.threads;
    called_.store(true, std::memory_order_release);
  }
  if (held_) {
    deadline_ns_.store(ToNanoseconds(deadline_), std::memory_order_release);
  }
}

void BoundaryGate::Pause(const lease_action::Pause& pause) {
  std::lock_guard<std::mutex> lock(mutex_);
  pause_ = pause;
  called_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void BoundaryGate::WantCheckpoint() {
  std::lock_guard<std::mutex> lock(mutex_);
  checkpoint_ = true;
  called_.store(true, std::memory_order_release);
}

void BoundaryGate::NotifyStop() {
  std::lock_guard<std::mutex> lock(mutex_);
  changed_.notify_all();
}

SessionContext::SessionContext(SessionOptions given)
    : options(std::move(given)),
      log(options.log),
      arena(options.pinned_memory_bytes) {}

void SessionContext::Fail(absl::Status status) {
  if (board.SetFatal(status)) log.Error(std::string(status.message()));
}

void SessionContext::Warn(const absl::Status& status) {
  if (!status.ok()) log.Warning(std::string(status.message()));
}

void SessionContext::WriteProfile(at::Device device) {
  profile.MarkMemory(Now_ns(), device);
  Warn(profile.Write(stats));
}

void SessionContext::FinishProfile(at::Device device) {
  WriteProfile(device);
  for (const std::string& line : profile.Table(stats)) log.Info(line);
}

}  // namespace gavel::internal
