#include "study/simulation_summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/text.h"
#include "core/text_table.h"
#include "core/units.h"
#include "study/simulation_store.h"

namespace gavel::study {
namespace {

constexpr size_t kUnfitShown = 10;

// All JSON and text keep the names of types in the cluster's order.
std::string UtilizationLine(const SimulationResult& result) {
  const auto of_type = [](std::string* out, const auto& one) {
    StrAppend(out, one.first, " ", FormatPercent(one.second));
  };
  return StrCat(FormatPercent(result.cluster_utilization), "  (",
                absl::StrJoin(result.utilization, ", ", of_type), ")");
}

std::string SimulatedPerSecond(const SimulationRun& run) {
  const auto jobs = static_cast<double>(run.jobs_arrived);
  const std::string rate =
      run.wall_s > 0 ? absl::StrFormat("%.4g jobs/s, ", jobs / run.wall_s) : "";
  return StrCat(rate, FormatDuration(run.wall_s), " wall, ",
                FormatDuration(run.cpu_s), " CPU");
}

std::string TitleOf(const SimulationSpec& spec) {
  std::string title =
      StrCat(spec.policy, " on ", spec.cluster, ", ",
             spec.ideal ? "ideal (no rounds)"
                        : StrCat("rounds of ", spec.round_duration_s, " s"));
  if (spec.mechanism != "gavel") StrAppend(&title, ", ", spec.mechanism);
  StrAppend(&title, ", overheads ", spec.overheads, "\n");
  return title;
}

std::string StatusLines(const SimulationRun& run) {
  const SimulationResult& result = run.result;
  const auto ended = std::ranges::count_if(
      result.jobs,
      [](const SimulatedJob& job) { return job.completion_s < kNever; });
  std::string lines =
      StrCat(ended, " of ", run.jobs_in_window, " jobs ended\n");
  if (run.status != RunStatus::kOk) {
    StrAppend(&lines, "incomplete: ", run.detail, "\n");
  }
  return lines;
}

std::string UnfitLines(const SimulationResult& result) {
  std::string lines;
  for (size_t i = 0; i < result.unfit.size(); ++i) {
    if (i == kUnfitShown) {
      StrAppend(&lines, "... and ", result.unfit.size() - i,
                " more jobs that fit nowhere\n");
      break;
    }
    StrAppend(&lines, "job ", result.unfit[i].job,
              " fits nowhere: ", result.unfit[i].reason, "\n");
  }
  return lines;
}

void AddLine(std::string* text, std::string_view name,
             const std::string& value) {
  StrAppend(text, absl::StrFormat("  %-22s", ToAbsl(name)), value, "\n");
}

std::string FairnessText(const Fairness& rho) {
  return StrCat("average ", FormatNumber(rho.avg, 3), ", worst ",
                FormatNumber(rho.max, 3),
                ", above 1: ", FormatPercent(rho.above_1), " of the jobs");
}

Json JobJson(const SimulatedJob& job) {
  const bool ended = job.completion_s < kNever;
  return {
      {"id", job.job},
      {"type", job.type},
      {"scale_factor", job.scale_factor},
      {"weight", job.weight},
      {"arrival", job.arrival_s},
      {"completion", job.completion_s},
      {"jct", ended ? Json(job.jct_s) : Json()},
      {"rho", ended ? Json(job.rho) : Json()},
      {"rho_static", ended ? Json(job.rho_static) : Json()},
      {"rho_mean", ended ? Json(job.rho_mean) : Json()},
      {"cost", job.cost},
      {"preemptions", job.preemptions},
      {"moves", job.moves},
      {"run_s", job.run_s},
      {"lost_s", job.lost_s},
      {"class", job.interactive ? "interactive" : "training"},
      {"start_delay_s",
       job.started_s < kNever ? Json(job.started_s - job.arrival_s) : Json()},
      {"deadline", job.deadline_s},
      {"share_target", job.share_target},
      {"share_received", job.share_received}};
}

// An array of `json_of` of each item.
template <class Rows, class JsonOf>
Json ArrayOf(const Rows& rows, const JsonOf& json_of) {
  Json array = Json::array();
  for (const auto& row : rows) array.push_back(json_of(row));
  return array;
}

}  // namespace

std::string RenderSummary(const SimulationSpec& spec,
                          const SimulationRun& run) {
  const SimulationResult& result = run.result;
  std::string text = TitleOf(spec) + StatusLines(run) + UnfitLines(result);
  AddLine(&text, "average JCT", FormatHours(result.avg_jct_s));
  AddLine(&text, "p50, p99 JCT",
          StrCat(FormatHours(result.p50_jct_s), ", ",
                 FormatHours(result.p99_jct_s)));
  AddLine(&text, "makespan", FormatHours(result.makespan_s));
  AddLine(&text, "utilisation", UtilizationLine(result));
  if (spec.prices != "none") {
    AddLine(&text, "cost", absl::StrFormat("%.2f", result.total_cost));
  }
  if (result.slo_jobs > 0) {
    AddLine(&text, "SLO violations",
            StrCat(result.slo_violations, " of ", result.slo_jobs));
  }
  AddLine(&text, "finish-time fairness",
          FairnessText({result.avg_rho, result.max_rho, result.rho_above_1}));
  AddLine(&text, "- static contention", FairnessText(result.rho_static));
  AddLine(&text, "- mean contention", FairnessText(result.rho_mean));
  if (!result.apps.empty()) {
    AddLine(&text, "- of apps",
            StrCat("median ", FormatNumber(result.median_app_rho, 3),
                   ", worst ", FormatNumber(result.max_app_rho, 3),
                   ", at most 1: ", FormatPercent(result.app_rho_at_most_1),
                   " of ", result.apps.size(), " apps, Jain's index ",
                   FormatNumber(result.app_jain_index, 3)));
  }
  if (spec.lying_apps > 0) {
    AddLine(
        &text, "- honest, lying",
        StrCat("median ", FormatNumber(result.median_honest_app_rho, 3), ", ",
               FormatNumber(result.median_lying_app_rho, 3), ", worst honest ",
               FormatNumber(result.max_honest_app_rho, 3)));
  }
  AddLine(&text, "worst share",
          StrCat(FormatNumber(result.worst_share, 3), " of its target"));
  if (result.interactive.jobs > 0) {
    const InteractiveFigures& of = result.interactive;
    AddLine(
        &text, "interactive jobs",
        StrCat(of.jobs, ", start after p50 ", FormatNumber(of.p50_start_s, 3),
               " s, p99 ", FormatNumber(of.p99_start_s, 3), " s, at most ",
               FormatNumber(of.max_start_s, 3), " s, paused: ", of.paused));
  }
  if (!std::isnan(result.placement_score)) {
    AddLine(&text, "placement score",
            StrCat(FormatNumber(result.placement_score, 3),
                   " of the speed of gangs where they are closest"));
  }
  AddLine(&text, "preemptions, moves",
          StrCat(result.preemptions, ", ", result.moves));
  if (spec.failures_per_hour > 0) {
    AddLine(&text, "failures", StrCat(result.failures));
  }
  AddLine(&text, "rounds, solves", StrCat(result.rounds, ", ", result.solves));
  AddLine(&text, "lost time",
          StrCat(FormatHours(result.lost_s), " of accelerators"));
  if (spec.estimator) {
    AddLine(&text, "profiling",
            StrCat(FormatHours(result.profiling_s),
                   " of these: ", spec.profiling_percentage,
                   " % of the cells beside ", spec.reference_models,
                   " reference models, ", spec.profiling_cell_s, " s each"));
  }
  AddLine(&text, "simulated", SimulatedPerSecond(run));
  return text;
}

Json SummaryJson(const SimulationSpec& spec, const SimulationRun& run) {
  Json json;
  const auto add = [&json](const char* name, const auto& value) {
    json[name] = value;
  };
  const SimulationResult& result = run.result;
  VisitFields(spec, add);
  add("status", RunStatusName(run.status));
  add("detail", run.detail);
  add("complete", result.complete);
  VisitResult(result, add);
  add("offered_load", run.offered_load);
  add("utilization", result.utilization);
  add("jobs_in_window", run.jobs_in_window);
  add("jobs_simulated", run.jobs_arrived);
  add("wall_s", run.wall_s);
  add("cpu_s", run.cpu_s);
  add("jobs_asked", spec.jobs);
  json["jobs"] = ArrayOf(result.jobs, [](const SimulatedJob& job) {
    Json row = JobJson(job);
    if (!job.name.empty()) row["name"] = job.name;
    return row;
  });
  if (!result.apps.empty()) {
    json["apps"] = ArrayOf(result.apps, [](const SimulatedApp& app) -> Json {
      return {{"app", app.name.empty() ? Json() : Json(app.name)},
              {"jobs", app.jobs},
              {"arrival", app.arrival_s},
              {"completion", app.completion_s},
              {"rho", app.rho},
              {"lies", app.lies}};
    });
  }
  json["unfit"] = ArrayOf(result.unfit, [](const UnfitJob& job) -> Json {
    return {{"id", job.job}, {"reason", job.reason}};
  });
  if (!result.usage.empty()) {
    json["usage"] = ArrayOf(result.usage, [](const UsageSample& one) -> Json {
      return {{"time_s", one.time_s},
              {"busy", one.busy},
              {"waiting_jobs", one.waiting_jobs}};
    });
  }
  if (!result.leases.empty()) {
    json["leases"] =
        ArrayOf(result.leases, [](const RecordedLease& lease) -> Json {
          return {{"job", lease.job},
                  {"accelerator", lease.accelerator},
                  {"from_s", lease.from_s},
                  {"to_s", lease.to_s}};
        });
  }
  return json;
}

// ---- traces

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
  if (!trace.apps.empty()) {
    StrAppend(&text, "apps:          ", trace.apps.size(), "\n");
  }
  const auto interactive =
      std::ranges::count(trace.jobs, true, &TraceJob::interactive);
  if (interactive > 0) {
    StrAppend(&text, "interactive:   ", interactive, " jobs\n");
  }
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

// The upper of the two middle values, so that the result is the number of steps
// of a job. `values` is not empty.
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
