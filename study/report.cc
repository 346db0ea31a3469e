#include "study/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "core/units.h"
#include "study/report_page.h"
#include "study/simulation_store.h"

namespace gavel::study {
namespace {

std::string SummaryOf(const ReportContext& context) {
  std::map<RunStatus, size_t> counts;
  for (const StoredRun& run : context.runs()) ++counts[run.run.status];
  std::string text = StrCat(context.runs().size(), " runs");
  for (const auto& [status, count] : counts) {
    StrAppend(&text, ", ", count, " ", RunStatusName(status));
  }
  return text + ". JCT: job completion time, from arrival to completion.";
}

}  // namespace

absl::StatusOr<ReportContext> ReportContext::Create(SimulationStore& store) {
  GAVEL_ASSIGN_OR_RETURN(std::vector<StoredRun> runs, store.Runs());
  if (runs.empty()) {
    return absl::NotFoundError(
        "no runs in it yet; `gavel sweep` and `gavel reproduce` make them");
  }
  return ReportContext(store, std::move(runs));
}

ReportContext::ReportContext(SimulationStore& store,
                             std::vector<StoredRun> runs)
    : store_(&store), runs_(std::move(runs)), labels_(SpecsOf(runs_)) {
  for (const StoredRun& run : runs_) colors_[labels_.Scheduler(run.spec)];
  size_t color = 0;
  for (auto& [scheduler, its_color] : colors_) its_color = color++;
}

size_t ReportContext::ColorOf(const std::string& scheduler) const {
  return colors_.at(scheduler);
}

std::vector<RunGroup> ReportContext::Groups() const {
  using Key = std::tuple<std::string, std::string, double, uint64_t>;
  std::map<Key, RunGroup> group_of;
  for (const StoredRun& run : runs_) {
    const SimulationSpec& spec = run.spec;
    RunGroup& group = group_of[{labels_.Workload(spec), spec.trace,
                                spec.rate_per_h, GeneratedJobs(spec)}];
    if (group.title.empty()) {
      const std::string workload = labels_.Workload(spec);
      group.title =
          StrCat(LoadLabel(spec), workload.empty() ? "" : ", ", workload);
    }
    (run.run.status == RunStatus::kOk ? group.runs : group.unfinished)
        .push_back(&run);
  }
  std::vector<RunGroup> groups;
  for (auto& [key, group] : group_of) {
    std::ranges::stable_sort(group.runs, {}, [this](const StoredRun* run) {
      return std::pair(labels_.Scheduler(run->spec), run->spec.seed);
    });
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string ReportContext::WhyNotDrawn(const std::string& scheduler,
                                       const RunGroup& runs,
                                       std::string_view no_data) const {
  const auto is_of = [&](const StoredRun* run) {
    return labels_.Scheduler(run->spec) == scheduler;
  };
  if (std::ranges::any_of(runs.runs, is_of)) return std::string(no_data);
  std::map<std::string_view, size_t> ends;
  for (const StoredRun* run : runs.unfinished) {
    if (is_of(run)) ++ends[RunStatusName(run->run.status)];
  }
  const auto why = [](std::string* out, const auto& one) {
    StrAppend(out, one.second, " ", one.first);
  };
  return ends.empty()
             ? "not run"
             : StrCat("no run of it ended: ", absl::StrJoin(ends, ", ", why));
}

void ReportContext::NoteMissing(const std::string& chart, const RunGroup& runs,
                                const std::set<std::string>& drawn,
                                std::string_view no_data,
                                ReportSection* section) const {
  const StoredRun& any =
      *(runs.runs.empty() ? runs.unfinished : runs.runs).front();
  std::set<std::string> compared;
  for (const StoredRun& run : runs_) {
    if (run.spec.trace == any.spec.trace &&
        labels_.Workload(run.spec) == labels_.Workload(any.spec)) {
      compared.insert(labels_.Scheduler(run.spec));
    }
  }
  std::string missing;
  for (const std::string& scheduler : compared) {
    if (drawn.contains(scheduler)) continue;
    StrAppend(&missing, missing.empty() ? "" : "; ", scheduler, " (",
              WhyNotDrawn(scheduler, runs, no_data), ")");
  }
  if (missing.empty()) return;
  section->notes.push_back(
      StrCat(drawn.empty() ? "Nothing to draw of " : "Not in the chart of ",
             chart, ": ", missing, "."));
}

absl::StatusOr<ReportPage> MakeReport(SimulationStore& store,
                                      const ReportOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto context, ReportContext::Create(store));
  ReportPage page{options.title, SummaryOf(context), {}};
  const auto add = [&page](ReportSection section) {
    if (section.csv.empty() && section.notes.empty()) return;
    page.sections.push_back(std::move(section));
  };
  add(JctAgainstRate(context));
  using Maker = absl::StatusOr<ReportSection> (*)(const ReportContext& context,
                                                  bool each_run);
  GAVEL_ASSIGN_OR_RETURN(ReportSection jcts, JctDistributions(context));
  add(std::move(jcts));
  add(MakespanAgainstJobs(context));
  for (const auto fairness :
       {RhoDistributions, AppRhoDistributions, FairnessOverTime}) {
    GAVEL_ASSIGN_OR_RETURN(auto section, fairness(context));
    add(std::move(section));
  }
  for (const Maker make : {UsageOverTime, SharesReceived, RoundsOverTime}) {
    GAVEL_ASSIGN_OR_RETURN(auto section, make(context, options.each_run));
    add(std::move(section));
  }
  page.sections.push_back(AllRuns(context));
  return page;
}

// ---- figures of runs as a whole

namespace {

// Beyond that an axis is logarithmic.
constexpr double kLinearRatioMax = 15;

// A value of several runs that differ by seed.
struct Cell {
  double sum = 0;
  double min = 0;
  double max = 0;
  size_t count = 0;
  size_t not_drained = 0;
  void Add(double value) {
    min = count == 0 ? value : std::min(min, value);
    max = count == 0 ? value : std::max(max, value);
    sum += value;
    ++count;
  }
  double mean() const { return sum / static_cast<double>(count); }
};

using Curve = std::map<double, Cell>;               // by x
using Curves = std::map<std::string, Curve>;        // by scheduler
using CurveGroups = std::map<std::string, Curves>;  // by workload

std::string NoteOf(const Cell& cell) {
  std::string note = absl::StrFormat("%.2f h", cell.mean());
  if (cell.count > 1) {
    StrAppend(&note, absl::StrFormat(" (%d seeds: %.2f to %.2f h)", cell.count,
                                     cell.min, cell.max));
  }
  return note;
}

// The mean line of a scheduler.
PlotSeries LineOf(const std::string& name, const Curve& curve, size_t color) {
  PlotSeries line{name, color, PlotMark::kLine, {}};
  for (const auto& [x, cell] : curve) {
    if (cell.count == 0) continue;
    line.points.push_back(
        {x, cell.mean(),
         StrCat(name, " at ", FieldText(x), ": ", NoteOf(cell))});
    if (cell.count < 2) continue;
    line.points.back().low = cell.min;
    line.points.back().high = cell.max;
  }
  return line;
}

// Where a scheduler did not drain, at the upper edge.
PlotSeries CrossesOf(const std::string& name, const Curve& curve, size_t color,
                     double y) {
  PlotSeries crosses{"", color, PlotMark::kCrosses, {}};
  for (const auto& [x, cell] : curve) {
    if (cell.not_drained == 0) continue;
    crosses.points.push_back(
        {x, y, StrCat(name, " at ", FieldText(x), ": does not drain")});
  }
  return crosses;
}

Plot PlotOf(const ReportContext& context, const std::string& title,
            const Curves& curves, const char* x_label, const char* y_label) {
  Plot plot;
  plot.title = title;
  plot.x.label = x_label;
  plot.y.label = y_label;
  double least = 0;
  double most = 0;
  for (const auto& [name, curve] : curves) {
    PlotSeries line = LineOf(name, curve, context.ColorOf(name));
    for (const PlotPoint& point : line.points) {
      const double low = std::fmin(point.y, point.low);
      least = least == 0 ? low : std::min(least, low);
      most = std::max(most, std::fmax(point.y, point.high));
    }
    plot.series.push_back(std::move(line));
  }
  plot.y.log = least > 0 && most / least > kLinearRatioMax;
  for (const auto& [name, curve] : curves) {
    PlotSeries crosses =
        CrossesOf(name, curve, context.ColorOf(name), most * 1.02);
    if (!crosses.points.empty()) plot.series.push_back(std::move(crosses));
  }
  return plot;
}

// The x axis of a comparison: the rate, or the number of jobs.
struct Compared {
  std::string title;
  const char* x_label;
  const char* y_label;
  std::map<std::string, RunGroup> runs_of = {};  // by workload
  CurveGroups groups = {};
};

void AddRun(const ReportContext& context, const StoredRun& run, double x,
            double value_s, Compared* compared) {
  const std::string workload = context.labels().Workload(run.spec);
  const std::string scheduler = context.labels().Scheduler(run.spec);
  Cell& cell = compared->groups[workload][scheduler][x];
  if (run.run.status == RunStatus::kOk && std::isfinite(value_s)) {
    cell.Add(value_s / kHour_s);
  } else if (run.run.status == RunStatus::kCannotDrain) {
    ++cell.not_drained;
  }
  RunGroup& group = compared->runs_of[workload];
  (run.run.status == RunStatus::kOk ? group.runs : group.unfinished)
      .push_back(&run);
}

// A chart of one rate would be a column of dots.
bool IsLine(const Curves& curves) {
  std::set<double> xs;
  for (const auto& [name, curve] : curves) {
    for (const auto& [x, cell] : curve) {
      if (cell.count + cell.not_drained > 0) xs.insert(x);
    }
  }
  return xs.size() > 1;
}

void DrawCurves(const ReportContext& context, const Compared& compared,
                const std::string& workload, const Curves& curves,
                ReportSection* section) {
  const std::string title = workload.empty() ? compared.title : workload;
  if (!IsLine(curves)) {
    section->notes.push_back(StrCat("No chart of ", title, ": there is one ",
                                    "value of ", compared.x_label,
                                    " only. The table of all runs has it."));
    return;
  }
  section->figures.push_back(
      PlotOf(context, title, curves, compared.x_label, compared.y_label));
  std::set<std::string> drawn;
  for (const auto& [name, curve] : curves) {
    for (const auto& [x, cell] : curve) {
      if (cell.count > 0) drawn.insert(name);
    }
  }
  context.NoteMissing(title, compared.runs_of.at(workload), drawn,
                      "its figures are not finite", section);
}

void AddCurves(const ReportContext& context, const Compared& compared,
               ReportSection* section) {
  for (const auto& [workload, curves] : compared.groups) {
    DrawCurves(context, compared, workload, curves, section);
    for (const auto& [scheduler, curve] : curves) {
      for (const auto& [x, cell] : curve) {
        const bool any = cell.count > 0;
        section->csv.Add(
            {workload, scheduler, FieldText(x), StrCat(cell.count),
             any ? FieldText(cell.mean()) : "", any ? FieldText(cell.min) : "",
             any ? FieldText(cell.max) : "", StrCat(cell.not_drained)});
      }
    }
  }
}

std::vector<std::string> TableTitles(const RunLabels& labels, bool with_apps) {
  std::vector<std::string> titles = {"run", "status"};
  titles.insert(titles.end(), labels.varying().begin(), labels.varying().end());
  for (const char* title :
       {"avg JCT h", "p50 h", "p99 h", "makespan h", "busy %", "cost",
        "worst rho", "worst share", "preemptions", "moves", "lost h", "rounds",
        "CPU s"}) {
    titles.emplace_back(title);
  }
  if (with_apps) {
    for (const char* title : {"median app rho", "worst app rho", "Jain"}) {
      titles.emplace_back(title);
    }
  }
  return titles;
}

std::vector<std::string> TableCells(const RunLabels& labels,
                                    const StoredRun& run, bool with_apps) {
  const SimulationResult& result = run.run.result;
  std::vector<std::string> cells = {StrCat(run.id),
                                    std::string(RunStatusName(run.run.status))};
  for (std::string& text : labels.Texts(run.spec)) {
    cells.push_back(std::move(text));
  }
  for (std::string& cell : std::vector<std::string>{
           FormatNumber(result.avg_jct_s / kHour_s, 2),
           FormatNumber(result.p50_jct_s / kHour_s, 2),
           FormatNumber(result.p99_jct_s / kHour_s, 1),
           FormatNumber(result.makespan_s / kHour_s, 1),
           FormatNumber(result.cluster_utilization / 0.01, 1),
           FormatNumber(result.total_cost, 2), FormatNumber(result.max_rho, 2),
           FormatNumber(result.worst_share, 3), StrCat(result.preemptions),
           StrCat(result.moves), FormatNumber(result.lost_s / kHour_s, 1),
           StrCat(result.rounds), FormatNumber(run.run.cpu_s, 2)}) {
    cells.push_back(std::move(cell));
  }
  if (with_apps) {
    for (const double figure :
         {result.median_app_rho, result.max_app_rho, result.app_jain_index}) {
      cells.push_back(FormatNumber(figure, 3));
    }
  }
  return cells;
}

std::vector<std::string> CsvTitles() {
  std::vector<std::string> titles = {"run", "status", "detail"};
  const StoredRun any;
  const auto add = [&](const char* name, const auto&) {
    titles.emplace_back(name);
  };
  VisitFields(any.spec, add);
  VisitFigures(any.run, add);
  return titles;
}

std::vector<std::string> CsvCells(const StoredRun& run) {
  std::vector<std::string> cells = {StrCat(run.id),
                                    std::string(RunStatusName(run.run.status)),
                                    run.run.detail};
  const auto add = [&](const char*, const auto& field) {
    cells.push_back(FieldText(field));
  };
  VisitFields(run.spec, add);
  VisitFigures(run.run, add);
  return cells;
}

}  // namespace

// For each scheduler and workload the highest rate at which all seeds are
// sustained, as are those of all lower rates.
ReportTable HighestRates(const ReportContext& context) {
  using Key = std::pair<std::string, std::string>;
  std::map<Key, std::map<double, bool>> sustained_of;
  std::map<Key, double> capacity_of;  // the least of the seeds
  for (const StoredRun& run : context.runs()) {
    if (!run.spec.trace.empty() || run.spec.rate_per_h <= 0) continue;
    const Key key = {context.labels().Workload(run.spec),
                     context.labels().Scheduler(run.spec)};
    auto& rates = sustained_of[key];
    if (run.run.offered_load > 0) {
      const double capacity = run.spec.rate_per_h / run.run.offered_load;
      const auto known = capacity_of.emplace(key, capacity).first;
      known->second = std::min(known->second, capacity);
    }
    const auto [it, is_new] =
        rates.emplace(run.spec.rate_per_h, IsSustainable(run.run));
    if (!is_new) it->second = it->second && IsSustainable(run.run);
  }
  ReportTable table{{"workload", "scheduler", "highest rate sustained (jobs/h)",
                     "next rate tried", "capacity (jobs/h)"},
                    {}};
  for (const auto& [key, rates] : sustained_of) {
    const auto first_not = std::ranges::find_if(
        rates, [](const auto& rate) { return !rate.second; });
    table.rows.push_back(
        {key.first.empty() ? "all" : key.first, key.second,
         first_not == rates.begin() ? "-"
                                    : FieldText(std::prev(first_not)->first),
         first_not == rates.end() ? "-" : FieldText(first_not->first),
         capacity_of.contains(key) ? FormatNumber(capacity_of[key], 2) : "-"});
  }
  return table;
}

ReportSection JctAgainstRate(const ReportContext& context) {
  ReportSection section{
      "jct-rate", "JCT against rate",
      "Mean over seeds of the average JCT; the bars reach from the least to "
      "the greatest. A cross: jobs come faster than they are done. A rate is "
      "sustained when it is within the capacity (of a linear program over the "
      "jobs), the runs end, and jobs of the window's second half take at most "
      "twice as long as alone, or at most 1.2 times as long, for their size, "
      "as those of its first while the number of waiting jobs does not grow.",
      Csv({"workload", "scheduler", "rate_per_h", "seeds", "avg_jct_h",
           "least_h", "most_h", "not_drained"})};
  Compared compared{"Average JCT", "jobs per hour", "average JCT (h)"};
  for (const StoredRun& run : context.runs()) {
    if (!run.spec.trace.empty() || run.spec.rate_per_h <= 0) continue;
    AddRun(context, run, run.spec.rate_per_h, run.run.result.avg_jct_s,
           &compared);
  }
  AddCurves(context, compared, &section);
  section.table = HighestRates(context);
  return section;
}

ReportSection MakespanAgainstJobs(const ReportContext& context) {
  ReportSection section{
      "makespan-jobs", "Makespan against jobs",
      "All jobs arrive at time 0. Mean over seeds; the bars reach from the "
      "least to the greatest.",
      Csv({"workload", "scheduler", "jobs", "seeds", "makespan_h", "least_h",
           "most_h", "not_drained"})};
  Compared compared{"Makespan", "jobs", "makespan (h)"};
  for (const StoredRun& run : context.runs()) {
    if (!run.spec.trace.empty() || run.spec.rate_per_h > 0) continue;
    AddRun(context, run, static_cast<double>(GeneratedJobs(run.spec)),
           run.run.result.makespan_s, &compared);
  }
  AddCurves(context, compared, &section);
  return section;
}

ReportSection AllRuns(const ReportContext& context) {
  ReportSection section{"runs", "All runs",
                        "Fields that are the same in all runs are left out. A "
                        "click on a title sorts.",
                        Csv(CsvTitles())};
  const bool with_apps = HaveApps(context.runs());
  section.table.titles = TableTitles(context.labels(), with_apps);
  for (const StoredRun& run : context.runs()) {
    section.table.rows.push_back(TableCells(context.labels(), run, with_apps));
    section.csv.Add(CsvCells(run));
  }
  return section;
}

}  // namespace gavel::study
