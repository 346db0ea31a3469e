#include "coordinator/agent_host/health_watch.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/agent_host/nvml.h"

namespace gavel {

struct HealthWatch::Shared {
  std::vector<std::string> uuids;
  std::function<void()> notify;
  std::chrono::duration<double> interval;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool stopped = false;
  bool ended = false;  // the thread is done with the driver
  std::vector<AcceleratorHealth> read;
};

HealthWatch::HealthWatch(const std::vector<AcceleratorInfo>& accelerators,
                         std::function<void()> notify, double interval_s)
    : shared_(std::make_shared<Shared>()) {
  shared_->notify = std::move(notify);
  shared_->interval = std::chrono::duration<double>(interval_s);
  for (const AcceleratorInfo& info : accelerators) {
    if (info.device.starts_with("cuda:")) shared_->uuids.push_back(info.uuid);
  }
  if (shared_->uuids.empty()) return;
  thread_ = std::thread([shared = shared_] {
    Watch(*shared);
    const std::lock_guard lock(shared->mutex);
    shared->ended = true;
    shared->changed.notify_all();
  });
}

// A thread that the driver keeps is left to the end of the process.
HealthWatch::~HealthWatch() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
  const bool ended =
      shared_->changed.wait_for(lock, std::chrono::duration<double>(kEnd_s),
                                [&] { return shared_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

std::vector<AcceleratorHealth> HealthWatch::Take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->read, {});
}

// A driver that can't be asked now may be asked later.
void HealthWatch::Watch(Shared& shared) {
  std::optional<Nvml> nvml;
  for (;;) {
    if (!nvml) {
      absl::StatusOr<Nvml> opened = Nvml::Open();
      if (opened.ok()) nvml.emplace(*std::move(opened));
    }
    std::vector<AcceleratorHealth> health;
    if (nvml) health = nvml->ReadHealth(shared.uuids);
    std::unique_lock lock(shared.mutex);
    if (nvml && !shared.stopped) {
      shared.read = std::move(health);
      shared.notify();
    }
    if (shared.changed.wait_for(lock, shared.interval,
                                [&] { return shared.stopped; })) {
      return;
    }
  }
}

}  // namespace gavel
