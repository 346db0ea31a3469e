// Four jobs that take turns on two simulated accelerators by a random schedule:
// parked, kept there, evicted, moved, killed, out of memory. Each comes to the
// bits of a training that nobody disturbed, and nothing stays behind.
//
// GAVEL_SCHEDULES schedules, from seed GAVEL_SCHEDULE on.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "runtime/device/accelerator_lock.h"
#include "tests/iterator/training.h"
#include "tests/iterator/worker_process.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/files.h"
#include "tests/support/simulated_device/settings.h"
#include "tests/support/simulated_device/shared_memory.h"
#include "tests/support/test.h"
#include "tests/support/test_device.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kJobs = 4;
constexpr int kDevices = 2;
constexpr uint64_t kMemoryMib = 24;
constexpr std::chrono::seconds kScheduleMax(300);
constexpr std::chrono::milliseconds kTick(10);

uint64_t Number(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string NameOf(int device) { return device == 0 ? "slot-a" : "slot-b"; }

bool IsLocked(const std::string& run_directory, int device) {
  return !AcceleratorLock::Acquire(run_directory, NameOf(device),
                                   LockSlots::kBoth, 0)
              .ok();
}

// One job: its processes, one after the other, under a coordinator of its own.
class ScheduledJob {
 public:
  enum class State { kWaiting, kGranted, kRunning, kReleasing, kDone };

  ScheduledJob(const std::string& folder, int number, uint64_t seed)
      : folder_(folder + "/job" + std::to_string(number)),
        run_directory_(folder + "/run"),
        devices_file_(folder + "/devices"),
        random_(seed * kJobs + static_cast<uint64_t>(number)) {
    Launch();
  }

  State state() const { return state_; }
  int device() const { return device_; }
  // Whether `device` may go to another job.
  bool IsOff(int device) const { return device_ != device; }

  void Grant(int device) {
    device_ = device;
    seen_released_ = Released();
    coordinator_.Grant(TestSlot(NameOf(device)));
    state_ = State::kGranted;
  }

  void Tick() {
    if (state_ == State::kDone) return;
    if (const std::optional<int> code = process_->Poll()) return Ended(*code);
    if (device_ >= 0 && Released() > seen_released_) return GaveBack();
    if (state_ == State::kGranted && IsLocked(run_directory_, device_)) {
      state_ = State::kRunning;
      // How long it may run, in ticks.
      left_ = 1 + static_cast<int>(random_() % 20);
    }
    if (state_ == State::kRunning && --left_ == 0) Disturb();
  }

  void ExpectDone() {
    EXPECT_EQ(state_, State::kDone) << Outputs();
    EXPECT_EQ(process_->Weights(), Uninterrupted().weights) << Outputs();
    for (const LeaseReleased& released : coordinator_.Heard<LeaseReleased>()) {
      EXPECT_NE(released.cause, ReleaseCause::kOutOfMemory)
          << "it fits an empty device" << Outputs();
      EXPECT_NE(released.cause, ReleaseCause::kDeviceFailed) << Outputs();
    }
  }
  std::string Outputs() const {
    std::string all;
    for (int i = 1; i <= incarnation_; ++i) {
      const std::string own = folder_ + "/" + std::to_string(i);
      all += "\n---- " + own + "\n" + ReadText(own + "/output");
    }
    return all;
  }

 private:
  size_t Released() const { return coordinator_.Heard<LeaseReleased>().size(); }

  void Launch() {
    ++incarnation_;
    const std::string own = folder_ + "/" + std::to_string(incarnation_);
    fs::create_directories(own);
    WorkerProcess::Variables variables = {
        {"STEP_MS", "4"},
        {"GAVEL_WORKER_COORDINATOR", coordinator_.endpoint()},
        {"GAVEL_JOB", "1"},
        {"GAVEL_INCARNATION", std::to_string(incarnation_)},
        {"GAVEL_RUN_DIRECTORY", run_directory_},
        {"GAVEL_CHECKPOINT_DIRECTORY", folder_ + "/checkpoints"},
        {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "3"},
        {simulated::kVariable,
         "devices=2,memory_mib=" + std::to_string(kMemoryMib) + ",seed=" +
             std::to_string(random_()) + ",shared=" + devices_file_}};
    if (incarnation_ == 1 && random_() % 4 == 0) {
      variables.emplace_back("OUT_OF_MEMORY_IN",
                             std::to_string(1 + random_() % 20));
    }
    process_.emplace(own, variables);
  }

  void Ended(int code) {
    device_ = -1;
    if (code == 0) {
      state_ = State::kDone;
      return;
    }
    // 75: evicted; 1: out of memory; or killed.
    EXPECT_THAT(code, AnyOf(75, 1, 128 + SIGKILL)) << Outputs();
    state_ = State::kWaiting;
    is_evicted_ = false;
    coordinator_
        .Pause();  // or the next process would get the lease of this one
    Launch();
  }

  void GaveBack() {
    device_ = -1;
    if (!is_evicted_) state_ = State::kWaiting;  // else its process ends
  }

  void Disturb() {
    const uint64_t what = random_() % 8;
    if (what == 0) return process_->Signal(SIGKILL);
    is_evicted_ = what == 7;
    coordinator_.Pause(is_evicted_ ? PauseTier::kEvict
                       : what < 3  ? PauseTier::kKeep
                                   : PauseTier::kPark);
    state_ = State::kReleasing;
  }

  const std::string folder_;
  const std::string run_directory_;
  const std::string devices_file_;
  std::mt19937_64 random_;
  CoordinatorThread coordinator_;
  std::optional<WorkerProcess> process_;
  State state_ = State::kWaiting;
  int incarnation_ = 0;
  int device_ = -1;
  int left_ = 0;
  bool is_evicted_ = false;
  size_t seen_released_ = 0;
};

void RunSchedule(uint64_t seed) {
  const TemporaryFolder folder;
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<ScheduledJob>> jobs;
  for (int i = 0; i < kJobs; ++i) {
    jobs.push_back(std::make_unique<ScheduledJob>(folder.path(), i, seed));
  }
  const auto end = std::chrono::steady_clock::now() + kScheduleMax;
  const auto is_done = [](const auto& job) {
    return job->state() == ScheduledJob::State::kDone;
  };
  while (!std::ranges::all_of(jobs, is_done) &&
         std::chrono::steady_clock::now() < end) {
    for (const auto& job : jobs) job->Tick();
    for (int device = 0; device < kDevices; ++device) {
      ScheduledJob& next = *jobs[random() % kJobs];
      const bool is_free = std::ranges::all_of(
          jobs, [&](const auto& job) { return job->IsOff(device); });
      if (is_free && next.state() == ScheduledJob::State::kWaiting) {
        next.Grant(device);
      }
    }
    std::this_thread::sleep_for(kTick);
  }
  for (const auto& job : jobs) job->ExpectDone();
  const simulated::SharedMemory memory(folder.path() + "/devices",
                                       kMemoryMib << 20);
  for (int device = 0; device < kDevices; ++device) {
    EXPECT_THAT(memory.Holders(device), IsEmpty());
    EXPECT_FALSE(IsLocked(folder.path() + "/run", device));
  }
}

TEST(RandomSchedule, EveryJobComesToTheBitsOfAnUndisturbedOne) {
  if (!OnAccelerator()) GTEST_SKIP() << "of the simulated accelerator";
  const uint64_t first = Number("GAVEL_SCHEDULE", 1);
  const uint64_t count = Number("GAVEL_SCHEDULES", 4);
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RunSchedule(seed);
  }
}

}  // namespace
}  // namespace gavel::testing
