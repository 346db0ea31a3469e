#include "iterator/step_stats.h"

#include <cstring>

#include "iterator/clock.h"

namespace gavel::internal {

bool ScalarSlots::Set(std::string_view name, double value) {
  const size_t count = count_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    Slot& slot = slots_[i];
    if (std::string_view(slot.name.data(), slot.length) != name) continue;
    slot.value.store(value, std::memory_order_relaxed);
    return true;
  }
  if (count == kCountMax || name.empty() || name.size() > kNameLengthMax) {
    return false;
  }
  Slot& slot = slots_[count];
  std::memcpy(slot.name.data(), name.data(), name.size());
  slot.length = name.size();
  slot.value.store(value, std::memory_order_relaxed);
  count_.store(count + 1, std::memory_order_release);
  return true;
}

std::vector<std::pair<std::string, double>> ScalarSlots::Read() const {
  std::vector<std::pair<std::string, double>> scalars;
  const size_t count = count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    scalars.emplace_back(std::string(slots_[i].name.data(), slots_[i].length),
                         slots_[i].value.load(std::memory_order_relaxed));
  }
  return scalars;
}

void StepStats::CountPause() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++pauses_;
}

void StepStats::CountMove() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++moves_;
}

void StepStats::AddPausing(int64_t time_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  pausing_ns_ += time_ns;
}

void StepStats::SetLastGeneration(Generation generation) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_generation_ = generation;
}

void StepStats::SetMemory(uint64_t state_bytes, uint64_t device_bytes,
                          uint64_t host_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_bytes_ = state_bytes;
  device_bytes_ = device_bytes;
  host_bytes_ = host_bytes;
}

Progress StepStats::Read() const {
  Progress progress;
  progress.steps_done = steps_done();
  progress.boundaries = boundaries_.load(std::memory_order_relaxed);
  progress.scalars = scalars_.Read();
  std::lock_guard<std::mutex> lock(mutex_);
  progress.pauses = pauses_;
  progress.moves = moves_;
  progress.pausing_s = ToSeconds(pausing_ns_);
  progress.last_generation = last_generation_;
  progress.state_bytes = state_bytes_;
  progress.device_bytes = device_bytes_;
  progress.host_bytes = host_bytes_;
  return progress;
}

void ThroughputWindow::Measure(const StepStats& stats, Progress* progress) {
  const uint64_t steps = stats.steps_done();
  const int64_t running_ns = stats.running_ns();
  if (begun_ && steps > steps_ && running_ns > running_ns_) {
    progress->window_s = ToSeconds(running_ns - running_ns_);
    progress->throughput_steps_per_s =
        static_cast<double>(steps - steps_) / progress->window_s;
  }
  if (!begun_ || steps != steps_) {
    steps_ = steps;
    running_ns_ = running_ns;
    begun_ = true;
  }
}

}  // namespace gavel::internal
