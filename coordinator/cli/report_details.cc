#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "coordinator/cli/plot.h"
#include "coordinator/cli/report_sections.h"
#include "coordinator/cli/usage_samples.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"

namespace gavel {
namespace {

constexpr size_t kDistributionsMax = 6;
constexpr size_t kDetailGroupsMax = 3;
constexpr size_t kFiguresMax = 9;
constexpr size_t kRoundFiguresMax = 4;
constexpr size_t kBarsMax = 700;
constexpr size_t kPointsMax = 1000;
// A line of more is a smear where jobs change places each round.
constexpr size_t kUsageDrawn = 160;
// Points of a distribution's line, and rows of its CSV.
constexpr size_t kQuantiles = 200;

// The quantiles (i + 0.5) / n of `values`, at most kQuantiles of them.
std::vector<PlotPoint> Distribution(std::vector<double> values) {
  std::ranges::sort(values);
  std::vector<PlotPoint> points;
  const size_t count = std::min(values.size(), kQuantiles);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (2 * i + 1) * values.size() / (2 * count);
    points.push_back(
        {values[at],
         (static_cast<double>(at) + 1) / static_cast<double>(values.size()),
         ""});
  }
  return points;
}

absl::StatusOr<std::vector<double>> JctHours(const ReportContext& context,
                                             const StoredRun& run) {
  GAVEL_ASSIGN_OR_RETURN(const auto jobs, context.store().Jobs(run.id));
  std::vector<double> hours;
  for (const SimulatedJob& job : jobs) {
    if (job.completion_s < kNever) hours.push_back(job.jct_s / kHour_s);
  }
  return hours;
}

// One run for each scheduler of the group: that of the least seed.
std::vector<const StoredRun*> OneEach(const ReportContext& context,
                                      const RunGroup& group) {
  std::vector<const StoredRun*> chosen;
  std::set<std::string> seen;
  for (const StoredRun* run : group.runs) {
    if (seen.insert(context.labels().Scheduler(run->spec)).second) {
      chosen.push_back(run);
    }
  }
  return chosen;
}

// Runs worth a look into: of few groups one for each scheduler.
struct Detail {
  const StoredRun* run;
  std::string scheduler;
  std::string group;
  std::string title() const { return StrCat(scheduler, ", ", group); }
};
std::vector<Detail> Details(const ReportContext& context) {
  std::vector<Detail> details;
  for (const RunGroup& group : Spread(context.Groups(), kDetailGroupsMax)) {
    for (const StoredRun* run : OneEach(context, group)) {
      details.push_back(
          {run, context.labels().Scheduler(run->spec), group.title});
    }
  }
  return details;
}

// Runs whose rounds were recorded, one for each scheduler and load.
absl::StatusOr<std::vector<Detail>> RecordedDetails(
    const ReportContext& context) {
  GAVEL_ASSIGN_OR_RETURN(const std::set<uint64_t> recorded,
                         context.store().RunsWithLeases());
  std::vector<Detail> details;
  for (RunGroup& group : context.Groups()) {
    std::erase_if(group.runs, [&](const StoredRun* run) {
      return recorded.count(run->id) == 0;
    });
    for (const StoredRun* run : OneEach(context, group)) {
      details.push_back(
          {run, context.labels().Scheduler(run->spec), group.title});
    }
  }
  return Spread(details, kRoundFiguresMax);
}

Plot UsagePlot(const Detail& detail, const std::vector<UsageSample>& usage) {
  Plot plot;
  plot.title = detail.title();
  plot.x.label = "time (h)";
  plot.y.label = "accelerators in use (%)";
  plot.y.min = 0;
  plot.y.max = 100;
  const std::vector<std::string>& types = detail.run->run.result.types;
  for (size_t j = 0; j < types.size(); ++j) {
    PlotSeries line{types[j], j, PlotMark::kSteps, {}};
    for (const UsageSample& sample : usage) {
      if (j >= sample.busy.size()) continue;
      line.points.push_back(
          {sample.time_s / kHour_s, 100 * sample.busy[j], ""});
    }
    plot.series.push_back(std::move(line));
  }
  return plot;
}

void AddUsageRows(const Detail& detail, const std::vector<UsageSample>& usage,
                  Csv* csv) {
  const std::vector<std::string>& types = detail.run->run.result.types;
  for (const UsageSample& sample : usage) {
    for (size_t j = 0; j < std::min(types.size(), sample.busy.size()); ++j) {
      csv->Add({StrCat(detail.run->id), detail.scheduler, detail.group,
                FieldText(sample.time_s / kHour_s), types[j],
                FieldText(sample.busy[j]), FieldText(sample.waiting_jobs)});
    }
  }
}

PlotSeries WaitingLine(const ReportContext& context, const Detail& detail,
                       const std::vector<UsageSample>& usage) {
  PlotSeries line{detail.scheduler,
                  context.ColorOf(detail.scheduler),
                  PlotMark::kSteps,
                  {}};
  for (const UsageSample& sample : usage) {
    line.points.push_back({sample.time_s / kHour_s, sample.waiting_jobs, ""});
  }
  return line;
}

Plot SharePlot(const ReportContext& context, const Detail& detail,
               const std::vector<SimulatedJob>& jobs) {
  Plot plot;
  plot.title = detail.title();
  plot.x = {"share of time that the policy meant (%)", false, true, 0, 100};
  plot.y = {"share of time received (%)", false, true, 0, 100};
  plot.diagonal = true;
  PlotSeries dots{"", context.ColorOf(detail.scheduler), PlotMark::kDots, {}};
  for (const SimulatedJob& job : Spread(jobs, kPointsMax)) {
    dots.points.push_back(
        {100 * job.share_target, 100 * job.share_received,
         absl::StrFormat("job %d: %.1f %% of %.1f %%", job.job,
                         100 * job.share_received, 100 * job.share_target)});
  }
  plot.series.push_back(std::move(dots));
  return plot;
}

// Rows by accelerator, in the order of the cluster's parts.
std::vector<std::pair<std::string, size_t>> RowGroups(const StoredRun& run,
                                                      size_t rows) {
  std::vector<std::pair<std::string, size_t>> groups;
  size_t named = 0;
  if (const auto parts = ParseCluster(run.spec.cluster); parts.ok()) {
    for (const ClusterPart& part : *parts) {
      groups.emplace_back(part.type, static_cast<size_t>(part.count));
      named += static_cast<size_t>(part.count);
    }
  }
  if (named < rows) groups.emplace_back("", rows - named);
  return groups;
}

BarChart RoundChart(const Detail& detail, std::vector<RecordedLease> leases) {
  std::ranges::sort(leases, {}, &RecordedLease::from_s);
  const bool cut = leases.size() > kBarsMax;
  BarChart chart;
  chart.x_label = "time (h)";
  Time last_s = 0;
  size_t rows = 0;
  for (const RecordedLease& lease : leases) {
    if (lease.to_s < kNever) last_s = std::max(last_s, lease.to_s);
    rows = std::max<size_t>(rows, lease.accelerator);
  }
  if (cut) last_s = leases[kBarsMax].from_s;
  leases.resize(std::min(leases.size(), kBarsMax));
  chart.x_max = last_s / kHour_s;
  chart.groups = RowGroups(*detail.run, rows);
  chart.title = detail.title();
  if (cut)
    StrAppend(&chart.title, absl::StrFormat(", the first %.0f h", chart.x_max));
  for (const RecordedLease& lease : leases) {
    const double to = std::min(lease.to_s, last_s) / kHour_s;
    chart.bars.push_back(
        {static_cast<size_t>(lease.accelerator - 1), lease.from_s / kHour_s, to,
         static_cast<size_t>(lease.job),
         absl::StrFormat("job %d on accelerator %d, %.2f to %.2f h", lease.job,
                         lease.accelerator, lease.from_s / kHour_s, to)});
  }
  return chart;
}

}  // namespace

absl::StatusOr<ReportSection> JctDistributions(const ReportContext& context) {
  ReportSection section;
  section.id = "jct-cdf";
  section.title = "Distribution of JCT";
  section.text = "The part of jobs that took at most so long, all seeds.";
  section.csv = Csv({"load", "scheduler", "jct_h", "fraction"});
  for (const RunGroup& group : Spread(context.Groups(), kDistributionsMax)) {
    std::map<std::string, std::vector<double>> hours_of;
    for (const StoredRun* run : group.runs) {
      GAVEL_ASSIGN_OR_RETURN(const std::vector<double> hours,
                             JctHours(context, *run));
      auto& all = hours_of[context.labels().Scheduler(run->spec)];
      all.insert(all.end(), hours.begin(), hours.end());
    }
    Plot plot;
    plot.title = group.title;
    plot.x = {"JCT (h)", true, false, {}, {}};
    plot.y = {"jobs (fraction)", false, true, 0, 1};
    for (auto& [scheduler, hours] : hours_of) {
      PlotSeries line{scheduler, context.ColorOf(scheduler), PlotMark::kLine,
                      Distribution(std::move(hours))};
      for (const PlotPoint& point : line.points) {
        section.csv.Add(
            {group.title, scheduler, FieldText(point.x), FieldText(point.y)});
      }
      if (!line.points.empty()) plot.series.push_back(std::move(line));
    }
    if (!plot.series.empty()) section.figures.push_back(RenderPlot(plot));
  }
  return section;
}

absl::StatusOr<ReportSection> UsageOverTime(const ReportContext& context) {
  ReportSection section;
  section.id = "usage";
  section.title = "Use of accelerators over time";
  section.text = "Of each type the part that runs a job, and jobs that wait.";
  section.csv = Csv(
      {"run", "scheduler", "load", "time_h", "type", "busy", "waiting_jobs"});
  std::map<std::string, Plot> waiting;
  for (const Detail& detail : Details(context)) {
    GAVEL_ASSIGN_OR_RETURN(const auto usage,
                           context.store().Usage(detail.run->id));
    if (usage.empty()) continue;
    AddUsageRows(detail, usage, &section.csv);
    if (section.figures.size() < kFiguresMax) {
      section.figures.push_back(
          RenderPlot(UsagePlot(detail, ThinUsage(usage, kUsageDrawn))));
    }
    const bool any = std::ranges::any_of(
        usage, [](const UsageSample& one) { return one.waiting_jobs > 0; });
    if (!any) continue;
    Plot& plot = waiting[detail.group];
    plot.title = StrCat("Jobs waiting, ", detail.group);
    plot.x.label = "time (h)";
    plot.y.label = "jobs waiting";
    plot.series.push_back(
        WaitingLine(context, detail, ThinUsage(usage, kUsageDrawn)));
  }
  for (const auto& [group, plot] : waiting) {
    section.figures.push_back(RenderPlot(plot));
  }
  return section;
}

absl::StatusOr<ReportSection> SharesReceived(const ReportContext& context) {
  ReportSection section;
  section.id = "shares";
  section.title = "Share received against target";
  section.text =
      "Each dot is a job: the part of its life that the policy meant it to "
      "run, and the part that it ran. Below the line it got less.";
  section.csv = Csv({"run", "scheduler", "load", "job", "target", "received"});
  for (const Detail& detail : Details(context)) {
    GAVEL_ASSIGN_OR_RETURN(const auto jobs,
                           context.store().Jobs(detail.run->id));
    const bool any = std::ranges::any_of(
        jobs, [](const SimulatedJob& job) { return job.share_target > 0; });
    if (!any) continue;
    if (section.figures.size() < kFiguresMax) {
      section.figures.push_back(RenderPlot(SharePlot(context, detail, jobs)));
    }
    for (const SimulatedJob& job : jobs) {
      section.csv.Add({StrCat(detail.run->id), detail.scheduler, detail.group,
                       StrCat(job.job), FieldText(job.share_target),
                       FieldText(job.share_received)});
    }
  }
  return section;
}

absl::StatusOr<ReportSection> RoundsOverTime(const ReportContext& context) {
  ReportSection section;
  section.id = "rounds";
  section.title = "Rounds";
  section.text =
      "Who had which accelerator when. Each row is an accelerator, each colour "
      "a job (point at a bar to see which).";
  section.csv =
      Csv({"run", "scheduler", "load", "job", "accelerator", "from_h", "to_h"});
  GAVEL_ASSIGN_OR_RETURN(const auto details, RecordedDetails(context));
  for (const Detail& detail : details) {
    GAVEL_ASSIGN_OR_RETURN(auto leases, context.store().Leases(detail.run->id));
    for (const RecordedLease& lease : leases) {
      section.csv.Add({StrCat(detail.run->id), detail.scheduler, detail.group,
                       StrCat(lease.job), StrCat(lease.accelerator),
                       FieldText(lease.from_s / kHour_s),
                       FieldText(lease.to_s / kHour_s)});
    }
    section.figures.push_back(
        RenderBars(RoundChart(detail, std::move(leases))));
  }
  return section;
}

}  // namespace gavel
