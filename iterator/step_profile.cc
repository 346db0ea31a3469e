#include "iterator/step_profile.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "iterator/profile_files.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

// The bytes of calls, and of pages that came from a disk. Writes through the
// page cache are among the calls' already.
constexpr std::string_view kByteCounters[] = {
    "rchar: ", "wchar: ", "read_bytes: "};

MemoryUse ReadDevice(c10::Device device) {
  MemoryUse use;
  CatchAsStatus("reading memory statistics", [&] {
    const auto stats =
        c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    use = {stats.allocated_bytes[0].current, stats.allocated_bytes[0].peak,
           stats.reserved_bytes[0].current, stats.reserved_bytes[0].peak};
    return absl::OkStatus();
  }).IgnoreError();
  return use;
}

MemoryUse ReadProcess() {
  MemoryUse use;
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  long long size = 0;
  long long resident = 0;
  if (file != nullptr) {
    if (std::fscanf(file, "%lld %lld", &size, &resident) == 2) {
      use.now_bytes = resident * sysconf(_SC_PAGESIZE);
    }
    std::fclose(file);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    use.high_bytes = int64_t{usage.ru_maxrss} * 1024;
  }
  use.high_bytes = std::max(use.high_bytes, use.now_bytes);
  return use;
}

constexpr int64_t kTick_ns = 100'000'000;
constexpr int64_t kScalars_ns = 1'000'000'000;

double Mean_s(int64_t total_ns, uint64_t count) {
  return count == 0 ? 0 : ToSeconds(total_ns) / static_cast<double>(count);
}

std::string Row(std::string_view name, uint64_t count, double mean_s,
                double max_s, const std::string& share) {
  return absl::StrFormat("  %-16s %10d x %12.3f ms, at most %12.3f ms %8s",
                         ToAbsl(name), count, mean_s * 1e3, max_s * 1e3, share);
}

}  // namespace

uint64_t ParseProcessBytes(std::string_view text) {
  uint64_t bytes = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    for (const std::string_view counter : kByteCounters) {
      if (line.substr(0, counter.size()) != counter) continue;
      uint64_t count = 0;
      std::from_chars(line.data() + counter.size(), line.data() + line.size(),
                      count);
      bytes += count;
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return bytes;
}

uint64_t ProcessBytes() {
  const int fd = ::open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[512];
  const ssize_t size = ::read(fd, text, sizeof text);
  ::close(fd);
  if (size <= 0) return 0;
  return ParseProcessBytes(std::string_view(text, static_cast<size_t>(size)));
}

MemoryUse ReadMemory(c10::Device device) noexcept {
  return device.is_cpu() ? ReadProcess() : ReadDevice(device);
}

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

absl::Status StepProfile::Open(const SessionOptions& options,
                               uint64_t first_step) {
  origin_ns_ = Now_ns();
  rank_ = options.rank;
  if (!options.trace_file.empty()) {
    ring_ = std::make_unique<TraceRing>();
    trace_path_ =
        TracePath(options.trace_file, options.rank, options.world_size);
    // Told now, not after hours of training.
    GAVEL_RETURN_IF_ERROR(
        WriteTrace(*ring_, {rank_, origin_ns_, origin_ns_}, trace_path_));
  }
  if (!options.tensorboard_directory.empty()) {
    const std::string directory =
        options.rank == 0
            ? options.tensorboard_directory
            : StrCat(options.tensorboard_directory, "/rank-", options.rank);
    GAVEL_ASSIGN_OR_RETURN(events_, EventFile::Open(directory, first_step));
  }
  if (ring_ || events_) next_tick_ns_ = origin_ns_;
  next_scalars_ns_ = origin_ns_ + kScalars_ns;
  return absl::OkStatus();
}

void StepProfile::EndSpan(const char* name, int64_t begin_ns, int64_t end_ns) {
  const size_t phase = FindPhase(name);
  if (phase < kPhasesMax) Count(phase, end_ns - begin_ns);
  Trace(name, begin_ns, end_ns);
}

size_t StepProfile::FindPhase(const char* name) {
  // A literal has one address, most of the time.
  for (size_t i = 0; i < phase_count_; ++i) {
    if (phases_[i].name == name) return i;
  }
  for (size_t i = 0; i < phase_count_; ++i) {
    if (std::strcmp(phases_[i].name, name) == 0) return i;
  }
  if (phase_count_ == kPhasesMax) return kPhasesMax;
  phases_[phase_count_].name = name;
  return phase_count_++;
}

void StepProfile::MeasureBoundary(int64_t now_ns) {
  Count(kWrapper,
        std::max<int64_t>(0, now_ns - boundary_begin_ns_ - excluded_ns_));
  Trace("boundary", boundary_begin_ns_, now_ns);
  step_begin_ns_ = now_ns;
  waits_for_data_ = true;
}

void StepProfile::MarkMemory(int64_t now_ns, c10::Device device) {
  // The memory of the process while it has no accelerator is no part of its
  // need there.
  if (device.is_cpu() && on_accelerator_) return;
  if (!device.is_cpu() && !std::exchange(on_accelerator_, true)) {
    memory_low_bytes_ = memory_high_bytes_ = 0;
  }
  const MemoryUse use = ReadMemory(device);
  if (use.now_bytes > 0) {
    memory_low_bytes_ = memory_low_bytes_ == 0
                            ? use.now_bytes
                            : std::min(memory_low_bytes_, use.now_bytes);
  }
  memory_high_bytes_ = std::max(memory_high_bytes_, use.high_bytes);
  if (!ring_) return;
  const auto add = [&](const char* name, int64_t bytes) {
    ring_->Add({name, now_ns, now_ns, static_cast<uint64_t>(bytes),
                TraceEvent::Kind::kMemory});
  };
  add("memory between steps", use.now_bytes);
  add("memory high mark", use.high_bytes);
}

absl::Status StepProfile::Tick(int64_t now_ns, c10::Device device,
                               const StepStats& stats) {
  if (now_ns < next_tick_ns_) return absl::OkStatus();
  next_tick_ns_ = now_ns + kTick_ns;
  MarkMemory(now_ns, device);
  if (!events_ || now_ns < next_scalars_ns_) return absl::OkStatus();
  next_scalars_ns_ = now_ns + kScalars_ns;
  AddScalars(stats);
  return Keep(events_->Flush());
}

void StepProfile::AddScalars(const StepStats& stats) {
  const uint64_t step = stats.steps_done();
  const Progress progress = stats.Read();
  const auto add = [&](std::string_view tag, double value) {
    events_->AddScalar(tag, step, value).IgnoreError();  // Flush says it again
  };
  if (steps_ > scalars_steps_) {
    add("gavel/step_time_s",
        Mean_s(steps_ns_ - scalars_steps_ns_, steps_ - scalars_steps_));
    scalars_steps_ = steps_;
    scalars_steps_ns_ = steps_ns_;
  }
  add("gavel/pauses", static_cast<double>(progress.pauses));
  add("gavel/pausing_s", progress.pausing_s);
  add("gavel/memory_between_steps_bytes",
      static_cast<double>(memory_low_bytes_));
}

absl::Status StepProfile::Report(std::string_view name, uint64_t step,
                                 double value) {
  if (!events_) return absl::OkStatus();
  return Keep(events_->AddScalar(name, step, value));
}

// Said once: training goes on without the file.
absl::Status StepProfile::Keep(absl::Status status) {
  if (status.ok() || trouble_told_) return absl::OkStatus();
  trouble_told_ = true;
  return status;
}

absl::Status StepProfile::Write(const StepStats& stats) {
  absl::Status status = absl::OkStatus();
  if (events_) {
    AddScalars(stats);
    status = Keep(events_->Flush());
  }
  if (ring_) {
    status.Update(
        Keep(WriteTrace(*ring_, {rank_, origin_ns_, Now_ns()}, trace_path_)));
  }
  return status;
}

Profile StepProfile::Read(const StepStats& stats) const {
  Profile profile;
  const Progress progress = stats.Read();
  profile.steps = steps_;
  profile.step_mean_s = Mean_s(steps_ns_, steps_);
  profile.step_max_s = ToSeconds(step_max_ns_);
  for (size_t i = 0; i < phase_count_; ++i) {
    const Phase& phase = phases_[i];
    profile.phases.push_back({phase.name, phase.count,
                              Mean_s(phase.total_ns, phase.count),
                              ToSeconds(phase.max_ns)});
  }
  profile.pauses = progress.pauses;
  profile.checkpoints = checkpoints_;
  profile.pausing_s = progress.pausing_s;
  profile.memory_low_bytes = memory_low_bytes_;
  profile.memory_high_bytes = memory_high_bytes_;
  return profile;
}

std::vector<std::string> StepProfile::Table(const StepStats& stats) const {
  const Profile profile = Read(stats);
  if (profile.steps == 0) return {};
  std::vector<std::string> lines = {absl::StrFormat(
      "profile of this process: %d pauses and %d checkpoints took %.3f s; "
      "memory %.1f MB between steps, %.1f MB at most",
      profile.pauses, profile.checkpoints, profile.pausing_s,
      static_cast<double>(profile.memory_low_bytes) * 1e-6,
      static_cast<double>(profile.memory_high_bytes) * 1e-6)};
  lines.push_back(Row("step", profile.steps, profile.step_mean_s,
                      profile.step_max_s, "of steps"));
  const double steps_s = ToSeconds(steps_ns_);
  for (size_t i = 0; i < profile.phases.size(); ++i) {
    const PhaseProfile& phase = profile.phases[i];
    if (phase.count == 0 || steps_s == 0) continue;
    const bool is_sample = i <= kWrapper && phase.count < profile.steps;
    const std::string share =
        is_sample
            ? "sampled"
            : absl::StrFormat("%.1f %%",
                              100 * ToSeconds(phases_[i].total_ns) / steps_s);
    lines.push_back(
        Row(phase.name, phase.count, phase.mean_s, phase.max_s, share));
  }
  return lines;
}

}  // namespace gavel::internal
