#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "study/report.h"
#include "study/report_page.h"

namespace gavel::study {
namespace {

constexpr size_t kDistributionsMax = 6;
constexpr size_t kDetailGroupsMax = 3;
constexpr size_t kBarsMax = 700;
constexpr size_t kPointsMax = 1000;
// A line of more is a smear where jobs change places each round.
constexpr size_t kUsageDrawn = 160;
// Points of a distribution's line, and rows of its CSV.
constexpr size_t kQuantiles = 200;
// Points of a line over time that are means of jobs.
constexpr size_t kTimeParts = 40;

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

// Training jobs of all seeds that ended, by scheduler.
using JobsOf = std::map<std::string, std::vector<SimulatedJob>>;
absl::StatusOr<JobsOf> EndedJobs(const ReportContext& context,
                                 const RunGroup& group) {
  JobsOf jobs_of;
  for (const StoredRun* run : group.runs) {
    GAVEL_ASSIGN_OR_RETURN(auto jobs, context.store().Jobs(run->id));
    std::vector<SimulatedJob>& all =
        jobs_of[context.labels().Scheduler(run->spec)];
    for (SimulatedJob& job : jobs) {
      if (job.interactive || job.completion_s == kNever) continue;
      all.push_back(std::move(job));
    }
  }
  return jobs_of;
}

// A run that is drawn in detail.
struct Detail {
  const StoredRun* run;
  std::string scheduler;
  std::string group;
  std::string title() const { return StrCat(scheduler, ", ", group); }
};

// The run with the smallest seed of each scheduler of the group.
std::vector<Detail> DetailsOf(const ReportContext& context,
                              const RunGroup& group) {
  std::vector<Detail> details;
  for (const StoredRun* run : group.runs) {
    std::string scheduler = context.labels().Scheduler(run->spec);
    if (!details.empty() && details.back().scheduler == scheduler) continue;
    details.push_back({run, std::move(scheduler), group.title});
  }
  return details;
}

// The groups that are drawn; says so when those are not all.
std::vector<RunGroup> DrawnGroups(const ReportContext& context, size_t count,
                                  ReportSection* section) {
  const std::vector<RunGroup> all = context.Groups();
  if (all.size() > count) {
    section->notes.push_back(
        StrCat(count, " of ", all.size(),
               " loads are drawn, from the least to the greatest."));
  }
  return Spread(all, count);
}

// Draws the plot, unless it has no line. A line of one point is none.
void AddPlot(Plot plot, ReportSection* section) {
  std::erase_if(plot.series,
                [](const PlotSeries& line) { return line.points.size() < 2; });
  if (!plot.series.empty()) section->figures.push_back(std::move(plot));
}

// The same, and notes the schedulers that it lacks.
void AddPlot(const ReportContext& context, const RunGroup& group, Plot plot,
             std::string_view no_data, ReportSection* section) {
  std::set<std::string> drawn;
  for (const PlotSeries& line : plot.series) {
    if (line.points.size() > 1) drawn.insert(line.name);
  }
  context.NoteMissing(group.title, group, drawn, no_data, section);
  AddPlot(std::move(plot), section);
}

// Runs whose rounds were recorded, one for each scheduler and load.
absl::StatusOr<std::vector<Detail>> RecordedDetails(
    const ReportContext& context) {
  GAVEL_ASSIGN_OR_RETURN(const auto recorded, context.store().RunsWithLeases());
  std::vector<Detail> details;
  for (RunGroup& group : context.Groups()) {
    std::erase_if(group.runs, [&](const StoredRun* run) {
      return recorded.count(run->id) == 0;
    });
    for (Detail& detail : DetailsOf(context, group)) {
      details.push_back(std::move(detail));
    }
  }
  return details;
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

PlotSeries LineOver(const ReportContext& context, const Detail& detail,
                    const std::vector<UsageSample>& usage,
                    const std::function<double(const UsageSample&)>& value) {
  PlotSeries line{detail.scheduler,
                  context.ColorOf(detail.scheduler),
                  PlotMark::kSteps,
                  {}};
  for (const UsageSample& sample : usage) {
    line.points.push_back({sample.time_s / kHour_s, value(sample), ""});
  }
  return line;
}

// How many accelerators of each of the run's types there are; all 1 when its
// cluster does not say.
std::vector<double> CountsOf(const StoredRun& run) {
  std::vector<double> counts(run.run.result.types.size(), 0);
  if (const auto parts = ParseCluster(run.spec.cluster); parts.ok()) {
    for (const ClusterPart& part : *parts) {
      for (size_t j = 0; j < counts.size(); ++j) {
        if (run.run.result.types[j] == part.type) counts[j] += part.count;
      }
    }
  }
  std::ranges::replace(counts, 0, 1);
  return counts;
}

// The part of all accelerators that runs jobs, in percent.
double BusyPercent(const UsageSample& sample,
                   const std::vector<double>& counts) {
  double busy = 0;
  double all = 0;
  for (size_t j = 0; j < std::min(counts.size(), sample.busy.size()); ++j) {
    busy += counts[j] * sample.busy[j];
    all += counts[j];
  }
  return all > 0 ? 100 * busy / all : 0;
}

Plot PercentOverTime(std::string title) {
  Plot plot;
  plot.title = std::move(title);
  plot.x.label = "time (h)";
  plot.y.label = "accelerators in use (%)";
  plot.y.min = 0;
  plot.y.max = 100;
  return plot;
}

Plot UsagePlot(const Detail& detail, const std::vector<UsageSample>& usage) {
  Plot plot = PercentOverTime(detail.title());
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

// "v100 1", "v100 2": the accelerators, in the order of the cluster's parts.
std::vector<std::string> RowNames(const StoredRun& run, size_t rows) {
  std::vector<std::string> names;
  if (const auto parts = ParseCluster(run.spec.cluster); parts.ok()) {
    for (const ClusterPart& part : *parts) {
      for (int i = 1; i <= part.count; ++i) {
        names.push_back(StrCat(part.type, " ", i));
      }
    }
  }
  while (names.size() < rows) names.push_back(StrCat(names.size() + 1));
  return names;
}

BarChart RoundChart(const Detail& detail, std::vector<RecordedLease> leases) {
  std::ranges::sort(leases, {}, &RecordedLease::from_s);
  const bool cut = leases.size() > kBarsMax;
  BarChart chart;
  chart.unit = "h";
  Time last_s = 0;
  size_t rows = 0;
  for (const RecordedLease& lease : leases) {
    if (lease.to_s < kNever) last_s = std::max(last_s, lease.to_s);
    rows = std::max<size_t>(rows, lease.accelerator);
  }
  if (cut) last_s = leases[kBarsMax].from_s;
  leases.resize(std::min(leases.size(), kBarsMax));
  chart.x_max = last_s / kHour_s;
  chart.rows = RowNames(*detail.run, rows);
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

namespace {

// Values of all seeds, by scheduler.
using ValuesOf = std::map<std::string, std::vector<double>>;
using ReadValues =
    std::function<absl::StatusOr<ValuesOf>(const RunGroup& group)>;

struct Distributions {
  PlotAxis axis;
  std::string of;       // what has the values: "jobs"
  std::string no_data;  // why a scheduler has no line
  ReadValues read;
};

Distributions OfJobs(const ReportContext& context, std::string label,
                     const std::function<double(const SimulatedJob&)>& value) {
  const auto read = [&context,
                     value](const RunGroup& group) -> absl::StatusOr<ValuesOf> {
    GAVEL_ASSIGN_OR_RETURN(const JobsOf jobs_of, EndedJobs(context, group));
    ValuesOf values_of;
    for (const auto& [scheduler, jobs] : jobs_of) {
      std::vector<double>& values = values_of[scheduler];
      for (const SimulatedJob& job : jobs) values.push_back(value(job));
    }
    return values_of;
  };
  return {{std::move(label), true, false, {}, {}},
          "jobs",
          "fewer than two jobs ended",
          read};
}

Distributions OfApps(const ReportContext& context) {
  const auto read =
      [&context](const RunGroup& group) -> absl::StatusOr<ValuesOf> {
    ValuesOf values_of;
    for (const StoredRun* run : group.runs) {
      GAVEL_ASSIGN_OR_RETURN(const auto apps, context.store().Apps(run->id));
      std::vector<double>& values =
          values_of[context.labels().Scheduler(run->spec)];
      for (const SimulatedApp& app : apps) values.push_back(app.rho);
    }
    return values_of;
  };
  return {{"finish-time fairness of apps (rho)", true, false, {}, {}},
          "apps",
          "fewer than two of its apps are in the database",
          read};
}

// Draws for each load which part of the values is at most x.
absl::Status AddDistributions(const ReportContext& context,
                              const Distributions& drawn,
                              ReportSection* section) {
  for (const RunGroup& group :
       DrawnGroups(context, kDistributionsMax, section)) {
    GAVEL_ASSIGN_OR_RETURN(ValuesOf values_of, drawn.read(group));
    Plot plot;
    plot.title = group.title;
    plot.x = drawn.axis;
    plot.y = {StrCat(drawn.of, " (fraction)"), false, true, 0, 1};
    for (auto& [scheduler, values] : values_of) {
      plot.series.push_back({scheduler, context.ColorOf(scheduler),
                             PlotMark::kLine, Distribution(std::move(values))});
      for (const PlotPoint& point : plot.series.back().points) {
        section->csv.Add(
            {group.title, scheduler, FieldText(point.x), FieldText(point.y)});
      }
    }
    AddPlot(context, group, std::move(plot), drawn.no_data, section);
  }
  return absl::OkStatus();
}

// The mean of the jobs that ended in each of kTimeParts parts of the time.
PlotSeries RhoOverTime(const ReportContext& context, const RunGroup& group,
                       const std::string& scheduler,
                       const std::vector<SimulatedJob>& jobs, Csv* csv) {
  Time last_s = 0;
  for (const SimulatedJob& job : jobs) {
    last_s = std::max(last_s, job.completion_s);
  }
  if (!(last_s > 0)) return {};
  std::vector<double> sum(kTimeParts);
  std::vector<double> worst(kTimeParts);
  std::vector<size_t> count(kTimeParts);
  for (const SimulatedJob& job : jobs) {
    const size_t part =
        std::min(kTimeParts - 1,
                 static_cast<size_t>(job.completion_s / last_s * kTimeParts));
    sum[part] += job.rho;
    worst[part] = std::max(worst[part], job.rho);
    ++count[part];
  }
  PlotSeries line{scheduler, context.ColorOf(scheduler), PlotMark::kLine, {}};
  for (size_t part = 0; part < kTimeParts; ++part) {
    if (count[part] == 0) continue;
    const double time_h =
        (static_cast<double>(part) + 0.5) * last_s / kTimeParts / kHour_s;
    const double mean = sum[part] / static_cast<double>(count[part]);
    line.points.push_back(
        {time_h, mean,
         absl::StrFormat("%s at %.1f h: %.2f, worst %.2f of %d jobs", scheduler,
                         time_h, mean, worst[part], count[part])});
    csv->Add({group.title, scheduler, FieldText(time_h), StrCat(count[part]),
              FieldText(mean), FieldText(worst[part])});
  }
  return line;
}

}  // namespace

absl::StatusOr<ReportSection> JctDistributions(const ReportContext& context) {
  ReportSection section{
      "jct-cdf", "Distribution of JCT",
      "The part of jobs that took at most so long, all seeds.",
      Csv({"load", "scheduler", "jct_h", "fraction"})};
  GAVEL_RETURN_IF_ERROR(AddDistributions(
      context,
      OfJobs(context, "JCT (h)",
             [](const SimulatedJob& job) { return job.jct_s / kHour_s; }),
      &section));
  return section;
}

absl::StatusOr<ReportSection> RhoDistributions(const ReportContext& context) {
  ReportSection section{
      "rho-cdf", "Distribution of finish-time fairness",
      "The part of jobs whose rho is at most so much, all seeds. rho is the "
      "JCT "
      "over what it would have been with an equal part of the cluster: jobs "
      "right of 1 would have been better off with that.",
      Csv({"load", "scheduler", "rho", "fraction"})};
  GAVEL_RETURN_IF_ERROR(
      AddDistributions(context,
                       OfJobs(context, "finish-time fairness (rho)",
                              [](const SimulatedJob& job) { return job.rho; }),
                       &section));
  return section;
}

absl::StatusOr<ReportSection> AppRhoDistributions(
    const ReportContext& context) {
  ReportSection section{
      "app-rho-cdf", "Distribution of the finish-time fairness of apps",
      "The part of apps whose rho is at most so much, all seeds. The rho of an "
      "app is its time, over its time alone on the whole cluster times the "
      "mean number of apps present.",
      Csv({"load", "scheduler", "rho", "fraction"})};
  if (!HaveApps(context.runs())) return section;
  GAVEL_RETURN_IF_ERROR(AddDistributions(context, OfApps(context), &section));
  return section;
}

absl::StatusOr<ReportSection> FairnessOverTime(const ReportContext& context) {
  ReportSection section{
      "rho-time", "Finish-time fairness over time",
      "Mean rho of the jobs that ended at the time, all seeds; point at a dot "
      "for the worst. Where a line climbs, later jobs are worse off.",
      Csv({"load", "scheduler", "time_h", "jobs", "mean_rho", "worst_rho"})};
  for (const RunGroup& group :
       DrawnGroups(context, kDetailGroupsMax, &section)) {
    GAVEL_ASSIGN_OR_RETURN(const JobsOf jobs_of, EndedJobs(context, group));
    Plot plot;
    plot.title = group.title;
    plot.x.label = "time (h)";
    plot.y = {"mean finish-time fairness (rho)", true, false, {}, {}};
    for (const auto& [scheduler, jobs] : jobs_of) {
      plot.series.push_back(
          RhoOverTime(context, group, scheduler, jobs, &section.csv));
    }
    AddPlot(context, group, std::move(plot), "its jobs ended at one time",
            &section);
  }
  return section;
}

absl::StatusOr<ReportSection> UsageOverTime(const ReportContext& context,
                                            bool each_run) {
  ReportSection section{
      "usage", "Use of accelerators over time",
      "The part of all accelerators that runs a job, and jobs that wait; of "
      "each scheduler the run of the least seed.",
      Csv({"run", "scheduler", "load", "time_h", "type", "busy",
           "waiting_jobs"})};
  std::vector<Figure> of_runs;
  for (const RunGroup& group :
       DrawnGroups(context, kDetailGroupsMax, &section)) {
    Plot busy = PercentOverTime(group.title);
    Plot waiting;
    waiting.title = StrCat("Jobs waiting, ", group.title);
    waiting.x.label = "time (h)";
    waiting.y.label = "jobs waiting";
    for (const Detail& detail : DetailsOf(context, group)) {
      GAVEL_ASSIGN_OR_RETURN(const auto usage,
                             context.store().Usage(detail.run->id));
      AddUsageRows(detail, usage, &section.csv);
      const auto drawn = ThinUsage(usage, kUsageDrawn);
      const std::vector<double> counts = CountsOf(*detail.run);
      busy.series.push_back(
          LineOver(context, detail, drawn, [&](const UsageSample& sample) {
            return BusyPercent(sample, counts);
          }));
      waiting.series.push_back(LineOver(
          context, detail, drawn,
          [](const UsageSample& sample) { return sample.waiting_jobs; }));
      if (each_run && usage.size() > 1) {
        of_runs.push_back(UsagePlot(detail, drawn));
      }
    }
    AddPlot(context, group, std::move(busy),
            "its use over time was not recorded", &section);
    AddPlot(std::move(waiting), &section);
  }
  section.figures.insert(section.figures.end(), of_runs.begin(), of_runs.end());
  return section;
}

absl::StatusOr<ReportSection> SharesReceived(const ReportContext& context,
                                             bool each_run) {
  ReportSection section{
      "shares", "Share received against target",
      "Of each job the part of its life that it ran, relative to the part that "
      "the policy meant it to run: the part of jobs that got at most so much. "
      "Left of 1 they got less.",
      Csv({"run", "scheduler", "load", "job", "target", "received"})};
  if (each_run) {
    section.text +=
        " Then a dot for each job of each run; below the line it got less.";
  }
  std::vector<Figure> of_runs;
  for (const RunGroup& group :
       DrawnGroups(context, kDetailGroupsMax, &section)) {
    Plot plot;
    plot.title = group.title;
    plot.x = {"share received / share meant", false, true, {}, {}};
    plot.y = {"jobs (fraction)", false, true, 0, 1};
    for (const Detail& detail : DetailsOf(context, group)) {
      GAVEL_ASSIGN_OR_RETURN(auto jobs, context.store().Jobs(detail.run->id));
      std::erase_if(jobs,
                    [](const SimulatedJob& job) { return job.interactive; });
      std::vector<double> ratios;
      for (const SimulatedJob& job : jobs) {
        if (job.share_target <= 0) continue;
        ratios.push_back(job.share_received / job.share_target);
        section.csv.Add({StrCat(detail.run->id), detail.scheduler, detail.group,
                         StrCat(job.job), FieldText(job.share_target),
                         FieldText(job.share_received)});
      }
      if (each_run && ratios.size() > 1) {
        of_runs.push_back(SharePlot(context, detail, jobs));
      }
      plot.series.push_back({detail.scheduler,
                             context.ColorOf(detail.scheduler), PlotMark::kLine,
                             Distribution(std::move(ratios))});
    }
    AddPlot(context, group, std::move(plot),
            "it means no share for two jobs or more", &section);
  }
  section.figures.insert(section.figures.end(), of_runs.begin(), of_runs.end());
  return section;
}

absl::StatusOr<ReportSection> RoundsOverTime(const ReportContext& context,
                                             bool each_run) {
  ReportSection section{
      "rounds", "Rounds",
      "Who had which accelerator when. Each row is an accelerator; a bar has "
      "the number of its job (point at it for more).",
      Csv({"run", "scheduler", "load", "job", "accelerator", "from_h",
           "to_h"})};
  GAVEL_ASSIGN_OR_RETURN(const auto details, RecordedDetails(context));
  if (!each_run) {
    if (details.empty()) return section;
    section.notes.push_back(StrCat(
        "Rounds of ", details.size(), details.size() == 1 ? " run" : " runs",
        " are recorded; `gavel report --each-run` draws them."));
    return section;
  }
  for (const Detail& detail : details) {
    GAVEL_ASSIGN_OR_RETURN(auto leases, context.store().Leases(detail.run->id));
    for (const RecordedLease& lease : leases) {
      section.csv.Add({StrCat(detail.run->id), detail.scheduler, detail.group,
                       StrCat(lease.job), StrCat(lease.accelerator),
                       FieldText(lease.from_s / kHour_s),
                       FieldText(lease.to_s / kHour_s)});
    }
    section.figures.push_back(RoundChart(detail, std::move(leases)));
  }
  return section;
}

}  // namespace gavel::study
