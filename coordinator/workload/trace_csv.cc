// A trace as a CSV: duration and accelerators of each job, as of Philly.
#include <map>
#include <string>

#include "absl/status/status.h"
#include "coordinator/workload/csv_reader.h"
#include "coordinator/workload/trace_forms.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

struct Columns {
  size_t duration;
  size_t accelerators;
  size_t arrival;  // may be CsvReader::kNoColumn, as the ones below
  size_t type;
  size_t weight;
};

Columns FindColumns(CsvReader& csv) {
  const Columns columns = {
      .duration = csv.RequireColumn("duration_s"),
      .accelerators = csv.RequireColumn("num_gpus"),
      .arrival = csv.FindColumn({"arrival_s", "submit_time"}),
      .type = csv.FindColumn({"type"}),
      .weight = csv.FindColumn({"weight"})};
  csv.RefuseOtherColumns(
      {"duration_s", "num_gpus", "arrival_s", "submit_time", "type", "weight"});
  return columns;
}

// The job type of the row; empty: it says none.
std::string_view TypeOf(const CsvReader& csv, const Columns& columns) {
  return columns.type == CsvReader::kNoColumn ? std::string_view()
                                              : csv.Text(columns.type);
}

TraceJob ReadJob(CsvReader& csv, const Columns& columns, const Trace& trace) {
  TraceJob job;
  job.duration_s = csv.Number(columns.duration, kTraceDuration);
  job.scale_factor = csv.Integer(columns.accelerators, 1, kTraceScaleFactorMax);
  if (columns.weight != CsvReader::kNoColumn) {
    job.weight = csv.Number(columns.weight, kTraceWeight);
  }
  if (columns.arrival != CsvReader::kNoColumn) {
    job.arrival_s = csv.Number(columns.arrival, kTraceArrival);
    if (IsBeforeLastArrival(trace, job.arrival_s)) {
      csv.Fail(columns.arrival,
               StrCat("arrival ", csv.Text(columns.arrival),
                      " is before that of the job ahead; sort the jobs by "
                      "arrival"));
    }
  }
  // Without a type nothing tells a throughput: 1 step/s, by definition.
  if (TypeOf(csv, columns).empty()) job.steps_total = job.duration_s;
  return job;
}

}  // namespace

absl::StatusOr<Trace> ParseCsvTrace(std::string_view text,
                                    std::string_view source) {
  absl::Status status;
  CsvReader csv(text, source, status);
  const Columns columns = FindColumns(csv);
  Trace trace;
  std::map<std::string, size_t, std::less<>> template_of;  // by type
  while (csv.NextRow()) {
    trace.jobs.push_back(ReadJob(csv, columns, trace));
    std::string_view type = TypeOf(csv, columns);
    if (type.empty()) type = kNoJobType;
    const auto [found, added] =
        template_of.try_emplace(std::string(type), trace.templates.size());
    if (added) trace.templates.emplace_back().type = type;
    trace.jobs.back().job_template = found->second;
  }
  GAVEL_RETURN_IF_ERROR(status);
  return trace;
}

}  // namespace gavel
