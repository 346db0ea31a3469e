#include "coordinator/agent_host/health_watch.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/agent_host/nvml.h"

namespace gavel {

HealthWatch::HealthWatch(const std::vector<AcceleratorInfo>& accelerators,
                         std::function<void()> notify, double interval_s)
    : notify_(std::move(notify)), interval_s_(interval_s) {
  for (const AcceleratorInfo& info : accelerators) {
    if (info.device.starts_with("cuda:")) uuids_.push_back(info.uuid);
  }
  if (uuids_.empty()) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
}

std::vector<AcceleratorHealth> HealthWatch::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(read_, {});
}

// A driver that can't be asked now may be asked later.
void HealthWatch::Watch(const std::stop_token& stop) {
  std::optional<Nvml> nvml;
  const std::chrono::duration<double> interval(interval_s_);
  while (!stop.stop_requested()) {
    if (!nvml) {
      absl::StatusOr<Nvml> opened = Nvml::Open();
      if (opened.ok()) nvml.emplace(*std::move(opened));
    }
    if (nvml) {
      std::vector<AcceleratorHealth> health = nvml->ReadHealth(uuids_);
      {
        const std::lock_guard lock(mutex_);
        read_ = std::move(health);
      }
      notify_();
    }
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, stop, interval, [] { return false; });
  }
}

}  // namespace gavel
