#include "coordinator/workload/trace_steps.h"

#include <optional>

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

}  // namespace

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
