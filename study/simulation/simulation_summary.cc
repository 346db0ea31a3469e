#include "study/simulation/simulation_summary.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/progress_bar.h"
#include "core/text.h"
#include "study/simulation/simulation_store.h"

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
  return {{"id", job.job},
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
          {"deadline", job.deadline_s},
          {"share_target", job.share_target},
          {"share_received", job.share_received}};
}

// An array of what `json_of` makes of each.
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
  AddLine(&text, "worst share",
          StrCat(FormatNumber(result.worst_share, 3), " of its target"));
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

}  // namespace gavel::study
