#include "study/simulation/simulation_summary.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/cli/progress_bar.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kUnfitShown = 10;

Json Number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string Ratio(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.3f", value) : "-";
}

size_t EndedJobs(const SimulationResult& result) {
  size_t ended = 0;
  for (const SimulatedJob& job : result.jobs)
    ended += job.completion_s < kNever;
  return ended;
}

// All JSON and text keep the names of types in the cluster's order.
std::string UtilizationLine(const SimulationResult& result) {
  std::string by_type;
  for (const auto& [type, value] : result.utilization) {
    StrAppend(&by_type, by_type.empty() ? "" : ", ", type, " ",
              FormatPercent(value));
  }
  return StrCat(FormatPercent(result.cluster_utilization), "  (", by_type, ")");
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
  std::string lines =
      StrCat(EndedJobs(result), " of ", run.jobs_in_window, " jobs ended\n");
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

Json JobJson(const SimulatedJob& job) {
  return {{"id", job.job},
          {"type", job.type},
          {"scale_factor", job.scale_factor},
          {"weight", job.weight},
          {"arrival", job.arrival_s},
          {"completion", Number(job.completion_s)},
          {"jct", job.completion_s < kNever ? Json(job.jct_s) : Json(nullptr)},
          {"rho", job.completion_s < kNever ? Json(job.rho) : Json(nullptr)},
          {"cost", job.cost},
          {"preemptions", job.preemptions},
          {"moves", job.moves},
          {"run_s", job.run_s},
          {"lost_s", job.lost_s},
          {"deadline", Number(job.deadline_s)},
          {"share_target", job.share_target},
          {"share_received", job.share_received}};
}

Json ScalarsJson(const SimulationRun& run) {
  const SimulationResult& result = run.result;
  return {{"status", RunStatusName(run.status)},
          {"detail", run.detail},
          {"complete", result.complete},
          {"avg_jct_s", Number(result.avg_jct_s)},
          {"p50_jct_s", Number(result.p50_jct_s)},
          {"p99_jct_s", Number(result.p99_jct_s)},
          {"makespan_s", Number(result.makespan_s)},
          {"cluster_utilization", Number(result.cluster_utilization)},
          {"utilization", result.utilization},
          {"total_cost", result.total_cost},
          {"slo_jobs", result.slo_jobs},
          {"slo_violations", result.slo_violations},
          {"avg_rho", Number(result.avg_rho)},
          {"max_rho", Number(result.max_rho)},
          {"worst_share", Number(result.worst_share)},
          {"preemptions", result.preemptions},
          {"moves", result.moves},
          {"failures", result.failures},
          {"rounds", result.rounds},
          {"solves", result.solves},
          {"lost_s", result.lost_s},
          {"profiling_s", result.profiling_s},
          {"jobs_in_window", run.jobs_in_window},
          {"jobs_simulated", run.jobs_arrived},
          {"wall_s", run.wall_s},
          {"cpu_s", run.cpu_s}};
}

Json LeasesJson(const SimulationResult& result) {
  Json leases = Json::array();
  for (const RecordedLease& lease : result.leases) {
    leases.push_back({{"job", lease.job},
                      {"accelerator", lease.accelerator},
                      {"from", lease.from_s},
                      {"to", Number(lease.to_s)}});
  }
  return leases;
}

Json UsageJson(const SimulationResult& result) {
  Json usage = Json::array();
  for (const UsageSample& sample : result.usage) {
    usage.push_back({{"time", sample.time_s},
                     {"busy", sample.busy},
                     {"waiting_jobs", sample.waiting_jobs}});
  }
  return usage;
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
          StrCat("average ", Ratio(result.avg_rho), ", worst ",
                 Ratio(result.max_rho)));
  AddLine(&text, "worst share",
          StrCat(Ratio(result.worst_share), " of its target"));
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
  VisitFields(spec,
              [&](const char* name, const auto& value) { json[name] = value; });
  json.update(ScalarsJson(run));
  json["jobs_asked"] = spec.jobs;
  Json jobs = Json::array();
  for (const SimulatedJob& job : run.result.jobs) jobs.push_back(JobJson(job));
  json["jobs"] = std::move(jobs);
  Json unfit = Json::array();
  for (const UnfitJob& job : run.result.unfit) {
    unfit.push_back({{"id", job.job}, {"reason", job.reason}});
  }
  json["unfit"] = std::move(unfit);
  if (!run.result.usage.empty()) json["usage"] = UsageJson(run.result);
  if (!run.result.leases.empty()) json["leases"] = LeasesJson(run.result);
  return json;
}

}  // namespace gavel
