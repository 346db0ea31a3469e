#include "coordinator/workload/trace_generator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/workload/trace_steps.h"
#include "core/reference_type.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::array<int, 4> kScaleFactors = {1, 2, 4, 8};

absl::Status CheckOptions(const GeneratorOptions& options) {
  constexpr double kDurationMax_s = 1e9;  // so that steps can be counted
  const auto is_duration = [](double value) {
    return value >= 0 && value <= kDurationMax_s;
  };
  if (!is_duration(options.interarrival_s)) {
    return absl::InvalidArgumentError(
        StrCat("the mean time between arrivals is ", options.interarrival_s,
               " s; give a number from 0 to ", kDurationMax_s));
  }
  if (!is_duration(options.fixed_duration_s)) {
    return absl::InvalidArgumentError(
        StrCat("the fixed duration is ", options.fixed_duration_s,
               " s; give a number above 0 to ", kDurationMax_s,
               ", or 0 for drawn durations"));
  }
  if (options.scale_factor_max < 1) {
    return absl::InvalidArgumentError(StrCat("the largest scale factor is ",
                                             options.scale_factor_max,
                                             "; give 1 or more"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> StepsPerSecondOf(const JobTemplate& job_template,
                                        int scale_factor, size_t type,
                                        const ThroughputTable& throughputs) {
  const std::optional<ThroughputTable::Row> row =
      throughputs.FindRow(job_template.type, scale_factor);
  const double steps_per_s =
      row.has_value() ? throughputs.Alone(*row, type).value_or(0) : 0;
  if (steps_per_s > 0) return steps_per_s;
  return absl::InvalidArgumentError(
      StrCat("the throughputs have none of \"", job_template.type,
             "\" at scale factor ", scale_factor, " on the ", kReferenceType,
             ", which jobs are drawn by; add it"));
}

}  // namespace

absl::StatusOr<TraceGenerator> TraceGenerator::Create(
    const GeneratorOptions& options, const ThroughputTable& throughputs) {
  GAVEL_RETURN_IF_ERROR(CheckOptions(options));
  const std::optional<size_t> type = throughputs.FindType(kReferenceType);
  if (!type.has_value()) {
    return absl::InvalidArgumentError(
        StrCat("the throughputs have no accelerator type ", kReferenceType,
               ", which jobs are drawn by; add it"));
  }
  std::vector<StepsPerSecond> steps_per_s;
  for (const JobTemplate& job_template : GavelJobTable()) {
    steps_per_s.emplace_back();
    for (const int scale_factor : kScaleFactors) {
      if (scale_factor > 1 && !(options.multi_gpu && job_template.distributed &&
                                scale_factor <= options.scale_factor_max)) {
        continue;
      }
      GAVEL_ASSIGN_OR_RETURN(
          steps_per_s.back()[scale_factor],
          StepsPerSecondOf(job_template, scale_factor, *type, throughputs));
    }
  }
  return TraceGenerator(options, std::move(steps_per_s));
}

TraceGenerator::TraceGenerator(const GeneratorOptions& options,
                               std::vector<StepsPerSecond> steps_per_s)
    : options_(options),
      steps_per_s_(std::move(steps_per_s)),
      jobs_(options.seed + 2),
      arrivals_(options.seed + 3),
      slos_(options.seed + 6) {}

int TraceGenerator::DrawScaleFactor() {
  // Drawn even when it is not used, so that durations are the same either way.
  const double drawn = jobs_.Uniform(0, 1);
  if (!options_.multi_gpu || drawn < 0.7) return 1;
  if (drawn < 0.8) return 2;
  return drawn < 0.95 ? 4 : 8;
}

double TraceGenerator::DrawDuration() {
  if (options_.fixed_duration_s > 0) return options_.fixed_duration_s;
  const bool is_long = jobs_.Random() >= 0.8;
  const double exponent = is_long ? jobs_.Uniform(3, 4) : jobs_.Uniform(1.5, 3);
  return 60 * std::pow(10.0, exponent);
}

size_t TraceGenerator::DrawTemplate(int scale_factor) {
  const std::span<const JobTemplate> table = GavelJobTable();
  size_t drawn = jobs_.Below(table.size());
  while (scale_factor > 1 && !table[drawn].distributed) {
    drawn = jobs_.Below(table.size());
  }
  return drawn;
}

double TraceGenerator::DrawSlo() {
  const double drawn = slos_.Uniform(0, 1);
  if (drawn < 0.33) return 1.2;
  return drawn < 0.67 ? 2.0 : 10.0;
}

double TraceGenerator::DrawInterarrival() {
  if (options_.interarrival_s == 0) return 0;
  // Poisson arrivals: the times between are exponential. Divided by the rate,
  // not multiplied by the mean, which rounds differently.
  const double rate = 1 / options_.interarrival_s;
  return -std::log(1 - arrivals_.Random()) / rate;
}

TraceJob TraceGenerator::Draw() {
  TraceJob job;
  job.scale_factor = DrawScaleFactor();
  job.duration_s = DrawDuration();
  job.job_template = DrawTemplate(job.scale_factor);
  if (options_.multi_priority) {
    job.weight = jobs_.Uniform(0, 1) <= 0.2 ? 5 : 1;
  }
  if (options_.slos) job.slo = DrawSlo();
  if (!std::exchange(first_, false)) arrival_s_ += DrawInterarrival();
  job.arrival_s = arrival_s_;
  return job;
}

TraceJob TraceGenerator::Next() {
  TraceJob job = Draw();
  while (job.scale_factor > options_.scale_factor_max) job = Draw();
  job.steps_total =
      job.duration_s * steps_per_s_[job.job_template].at(job.scale_factor);
  return job;
}

Trace TraceGenerator::Take(size_t count) {
  Trace trace;
  const std::span<const JobTemplate> table = GavelJobTable();
  trace.templates.assign(table.begin(), table.end());
  trace.jobs.reserve(count);
  for (size_t i = 0; i < count; ++i) trace.jobs.push_back(Next());
  return trace;
}

}  // namespace gavel
