#include "iterator/step_profile.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/step_profile_memory.h"
#include "iterator/trace_file.h"

namespace gavel::internal {
namespace {

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
  // What the process has without an accelerator is no part of what it needs
  // there.
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
