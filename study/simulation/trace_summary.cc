#include "study/simulation/trace_summary.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/progress_bar.h"
#include "core/text.h"
#include "core/units.h"

namespace gavel::study {
namespace {

constexpr char kDash[] = "-";

// "3 with 1, 4 with 8": how many jobs have which value of a field.
template <class T>
std::string Tally(const Trace& trace, T TraceJob::*field) {
  std::map<T, size_t> counts;
  for (const TraceJob& job : trace.jobs) ++counts[job.*field];
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& one) {
    StrAppend(out, one.second, " with ", one.first);
  });
}

std::string RenderTotals(const Trace& trace) {
  std::string text =
      StrCat(RenderTraceLine(trace), "\n",
             "scale factors: ", Tally(trace, &TraceJob::scale_factor), "\n",
             "weights:       ", Tally(trace, &TraceJob::weight), "\n");
  const auto with_slo = std::ranges::count_if(
      trace.jobs, [](const TraceJob& job) { return job.slo > 0; });
  if (with_slo > 0) StrAppend(&text, "deadlines:     ", with_slo, " jobs\n");
  for (size_t i = 0; i < trace.entities.size(); ++i) {
    const TraceEntity& entity = trace.entities[i];
    StrAppend(&text, "entity ", entity.name, ": weight ", entity.weight, ", ",
              entity.policy, ", ",
              std::ranges::count(trace.jobs, i, &TraceJob::entity), " jobs\n");
  }
  return text;
}

std::string StepsCell(double steps) {
  return steps > 0 ? FormatCount(static_cast<uint64_t>(steps)) : kDash;
}

// Jobs of one type.
struct TypeGroup {
  std::set<int> scale_factors;
  std::vector<double> steps;  // of each job
};

// Of at least one: a number of steps that a job has.
double UpperMedian(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string RenderTypes(const Trace& trace, size_t width) {
  std::map<std::string, TypeGroup> groups;
  for (const TraceJob& job : trace.jobs) {
    TypeGroup& group = groups[trace.templates[job.job_template].type];
    group.scale_factors.insert(job.scale_factor);
    group.steps.push_back(job.steps_total);
  }
  TableRows cells;
  for (const auto& [type, group] : groups) {
    cells.push_back({StrCat(group.steps.size()), type,
                     absl::StrJoin(group.scale_factors, ","),
                     StepsCell(UpperMedian(group.steps))});
  }
  return RenderTable({Right("JOBS"), Left("TYPE", 40),
                      Left("SCALE_FACTORS", 20), Right("MEDIAN_STEPS")},
                     cells, width);
}

std::string RenderJobs(const Trace& trace, size_t rows, size_t width) {
  TableRows cells;
  for (size_t i = 0; i < std::min(rows, trace.jobs.size()); ++i) {
    const TraceJob& job = trace.jobs[i];
    cells.push_back(
        {StrCat(i), absl::StrFormat("%.0f", job.arrival_s),
         trace.templates[job.job_template].type, StrCat(job.scale_factor),
         StrCat(job.weight), StepsCell(job.steps_total),
         job.duration_s > 0 ? FormatDuration(job.duration_s) : kDash,
         job.slo > 0 ? absl::StrFormat("%gx", job.slo) : kDash});
  }
  return RenderTable(
      {Right("JOB"), Right("ARRIVAL_S"), Left("TYPE", 40), Right("SCALE"),
       Right("WEIGHT"), Right("STEPS"), Right("DURATION"), Right("DEADLINE")},
      cells, width);
}

}  // namespace

std::string RenderTraceLine(const Trace& trace) {
  const size_t count = trace.jobs.size();
  std::string text = StrCat(count, count == 1 ? " job" : " jobs");
  if (trace.jobs.empty()) return text;
  const double first_s = trace.jobs.front().arrival_s;
  const double span_s = trace.jobs.back().arrival_s - first_s;
  if (span_s <= 0) return StrCat(text, ", all there at once");
  const double per_hour = static_cast<double>(count - 1) / span_s * kHour_s;
  StrAppend(&text, ", arriving over ", FormatDuration(span_s),
            absl::StrFormat(" (%.3g jobs/h)", per_hour));
  return text;
}

std::string RenderTrace(const Trace& trace, size_t rows, size_t width) {
  std::string text =
      StrCat(RenderTotals(trace), "\n", RenderTypes(trace, width));
  if (rows > 0) StrAppend(&text, "\n", RenderJobs(trace, rows, width));
  if (rows > 0 && rows < trace.jobs.size()) {
    StrAppend(&text, "... and ", trace.jobs.size() - rows, " more jobs\n");
  }
  return text;
}

}  // namespace gavel::study
