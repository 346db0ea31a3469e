// Steps, times and scalars of the running loop: written by the training thread
// at each boundary without locks or allocations, read by the lease thread for
// its reports.
#ifndef GAVEL_ITERATOR_STEP_STATS_H_
#define GAVEL_ITERATOR_STEP_STATS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/messages.h"

namespace gavel::internal {

// Names of Report() and their last values. One writer.
class ScalarSlots {
 public:
  static constexpr size_t kCountMax = 16;
  static constexpr size_t kNameLengthMax = 64;

  // False when there is no slot left or the name is empty or too long.
  bool Set(std::string_view name, double value);
  std::vector<std::pair<std::string, double>> Read() const;

 private:
  struct Slot {
    std::array<char, kNameLengthMax> name{};
    size_t length = 0;
    std::atomic<double> value{0};
  };
  std::array<Slot, kCountMax> slots_;
  std::atomic<size_t> count_{0};  // published after the slot's name
};

class StepStats {
 public:
  // Training thread. The hot one: two relaxed stores.
  void CountStep(int64_t now_ns) {
    const int64_t running_ns = running_ns_.load(std::memory_order_relaxed);
    running_ns_.store(running_ns + (now_ns - last_boundary_ns_),
                      std::memory_order_relaxed);
    steps_done_.store(steps_done() + 1, std::memory_order_relaxed);
    last_step_ns_ = now_ns - last_boundary_ns_;
    last_boundary_ns_ = now_ns;
  }
  // Time runs from here: after a pause, a checkpoint, a first boundary.
  void MarkBoundary(int64_t now_ns) { last_boundary_ns_ = now_ns; }
  // One that ends no step.
  void CountBoundary() {
    boundaries_.store(boundaries_.load(std::memory_order_relaxed) + 1,
                      std::memory_order_relaxed);
  }
  // In the midst of a step, of whose time this is no part.
  void Skip(int64_t time_ns) { last_boundary_ns_ += time_ns; }
  void AddRunning(int64_t time_ns) {
    running_ns_.fetch_add(time_ns, std::memory_order_relaxed);
  }
  int64_t last_step_ns() const { return last_step_ns_; }
  void SetStepsDone(uint64_t steps) {
    steps_done_.store(steps, std::memory_order_relaxed);
  }
  void CountPause();
  void CountMove();
  void AddPausing(int64_t time_ns);
  void SetLastGeneration(Generation generation);
  // As in Progress.
  void SetMemory(uint64_t state_bytes, uint64_t device_bytes,
                 uint64_t host_bytes);
  ScalarSlots& scalars() { return scalars_; }

  // Any thread.
  uint64_t steps_done() const {
    return steps_done_.load(std::memory_order_relaxed);
  }
  int64_t running_ns() const {
    return running_ns_.load(std::memory_order_relaxed);
  }
  // All but the throughput.
  Progress Read() const;

 private:
  std::atomic<uint64_t> steps_done_{0};
  std::atomic<int64_t> running_ns_{0};
  std::atomic<uint64_t> boundaries_{0};
  int64_t last_boundary_ns_ = 0;
  int64_t last_step_ns_ = 0;
  ScalarSlots scalars_;

  mutable std::mutex mutex_;  // what changes at pauses and checkpoints only
  uint64_t pauses_ = 0;
  uint64_t moves_ = 0;
  int64_t pausing_ns_ = 0;
  Generation last_generation_;
  uint64_t state_bytes_ = 0;
  uint64_t device_bytes_ = 0;
  uint64_t host_bytes_ = 0;
};

// Steps per second between two looks, pauses excluded. Lease thread.
class ThroughputWindow {
 public:
  // Fills the throughput and its window. Without a finished step since the
  // last look both are 0, and the window goes on.
  void Measure(const StepStats& stats, Progress* progress);

 private:
  uint64_t steps_ = 0;
  int64_t running_ns_ = 0;
  bool begun_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_STEP_STATS_H_
