#include "coordinator/workload/trace_steps.h"

#include <optional>
#include <string>
#include <vector>

#include "coordinator/workload/toml_reader.h"
#include "coordinator/workload/trace_forms.h"
#include "core/reference_type.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// steps/s alone on the reference type; 0: it cannot run there, or the table
// does not tell.
double ReferenceStepsPerSecond(const ThroughputTable& throughputs,
                               ThroughputTable::Row row) {
  const std::optional<size_t> type = throughputs.FindType(kReferenceType);
  if (!type.has_value()) return 0;
  return throughputs.Alone(row, *type).value_or(0);
}

absl::Status FillSteps(double steps_per_s, TraceJob& job) {
  if (steps_per_s <= 0) {
    return absl::InvalidArgumentError(
        StrCat("only its duration is known, and the throughputs have none of "
               "it on the ",
               kReferenceType, "; add it, or write steps_total"));
  }
  job.steps_total = job.duration_s * steps_per_s;
  if (IsWithin(job.steps_total, kTraceSteps)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("its duration of ", job.duration_s, " s makes ", job.steps_total,
             " steps; write a duration that makes ", Describe(kTraceSteps)));
}

absl::Status Complete(const ThroughputTable& throughputs,
                      std::string_view job_type, TraceJob& job) {
  const std::optional<ThroughputTable::Row> row =
      throughputs.FindRow(job_type, job.scale_factor);
  const double steps_per_s =
      row.has_value() ? ReferenceStepsPerSecond(throughputs, *row) : 1;
  if (job.steps_total == 0) return FillSteps(steps_per_s, job);
  if (row.has_value() && steps_per_s > 0) {
    job.duration_s = job.steps_total / steps_per_s;
  }
  return absl::OkStatus();
}

// "did you mean "A3C"?", or the scale factors of a type that is there.
std::string ClosestRow(const ThroughputTable& throughputs,
                       std::string_view job_type) {
  std::vector<std::string_view> types;
  std::string scale_factors;
  for (ThroughputTable::Row row = 0; row < throughputs.rows(); ++row) {
    const auto& [type, scale_factor] = throughputs.NameOf(row);
    types.push_back(type);
    if (type != job_type) continue;
    StrAppend(&scale_factors, scale_factors.empty() ? "" : ", ", scale_factor);
  }
  if (!scale_factors.empty()) {
    return StrCat("it has the type at scale factors ", scale_factors);
  }
  const std::string_view closest = ClosestWord(job_type, types);
  if (!closest.empty()) return StrCat("did you mean \"", closest, "\"?");
  return types.empty() ? std::string("it has no rows")
                       : StrCat("its types are such as \"", types[0], "\"");
}

}  // namespace

absl::Status RequireKnownTypes(const ThroughputTable& throughputs,
                               const Trace& trace) {
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    const TraceJob& job = trace.jobs[number];
    const std::string& type = trace.templates[job.job_template].type;
    if (type == kNoJobType) continue;
    if (throughputs.FindRow(type, job.scale_factor).has_value()) continue;
    return absl::InvalidArgumentError(
        StrCat("job ", number, ": the throughput file has no row of type \"",
               type, "\" at scale factor ", job.scale_factor, " (",
               ClosestRow(throughputs, type),
               "); correct the type, add the row, or let jobs without one be "
               "equally fast on all accelerators: --unknown-types equal"));
  }
  return absl::OkStatus();
}

absl::Status CompleteTrace(const ThroughputTable& throughputs, Trace& trace) {
  for (size_t number = 0; number < trace.jobs.size(); ++number) {
    TraceJob& job = trace.jobs[number];
    if (job.steps_total > 0 && job.duration_s > 0) continue;
    const std::string& type = trace.templates[job.job_template].type;
    GAVEL_RETURN_IF_ERROR(
        Annotate(Complete(throughputs, type, job),
                 StrCat("job ", number, " (", type, ", scale factor ",
                        job.scale_factor, ")")));
  }
  return absl::OkStatus();
}

}  // namespace gavel
