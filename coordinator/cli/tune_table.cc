#include "coordinator/cli/tune_table.h"

#include <algorithm>
#include <map>

#include "core/text.h"
#include "core/text_table.h"
#include "study/report_page.h"

namespace gavel {

using tune::Method;
using tune::Outcome;
using tune::TrialSegment;

namespace {

std::string ValuesText(const tune::SearchSpec& spec,
                       const std::vector<std::string>& values) {
  std::string text;
  for (size_t i = 0; i < spec.space.size(); ++i) {
    StrAppend(&text, i == 0 ? "" : " ", spec.space[i].name, "=", values[i]);
  }
  return text;
}

// The best first; then those without a metric.
void SortByMetric(bool maximise, std::vector<TrialRow>& rows) {
  std::ranges::stable_sort(rows, [&](const TrialRow& a, const TrialRow& b) {
    if (a.value.has_value() != b.value.has_value()) return a.value.has_value();
    if (a.value_steps != b.value_steps) return a.value_steps > b.value_steps;
    if (!a.value || *a.value == *b.value) return false;
    return (*a.value > *b.value) == maximise;
  });
}

std::string FirstText(const TrialRow& row) {
  return row.first_s ? FormatDuration(*row.first_s) : "-";
}

study::ReportTable TableOf(const TuneRun& run) {
  std::vector<TrialRow> rows = TrialRows(run);
  SortByMetric(run.spec().maximise, rows);
  study::ReportTable table;
  table.titles = {
      "Trial",      "State", "Steps", run.spec().metric, "First rung after",
      "Parameters", "Why"};
  for (const TrialRow& row : rows) {
    table.rows.push_back({StrCat(row.trial), row.state, StrCat(row.steps),
                          row.value ? study::PlotNumber(*row.value) : "-",
                          FirstText(row), row.values, row.why});
  }
  return table;
}

}  // namespace

std::vector<TrialRow> TrialRows(const TuneRun& run) {
  std::map<int, TrialRow> by_trial;
  std::map<int, double> begun_s;
  for (const TrialSegment& one : run.state().segments) {
    TrialRow& row = by_trial[one.segment.trial];
    row.trial = one.segment.trial;
    row.values = ValuesText(run.spec(), one.segment.values);
    switch (one.outcome) {
      case Outcome::kRunning:
        row.state = "running";
        row.steps = std::max(one.segment.from_steps, run.StepsNow(row.trial));
        break;
      case Outcome::kFailed:
        row.state = "failed";
        row.why = one.why;
        break;
      case Outcome::kDone:
        row.steps = row.value_steps = one.segment.to_steps;
        row.state = row.steps == run.spec().steps ? "done"
                    : run.over()                  ? "stopped"
                                                  : "paused";
        row.value = one.value;
        row.curve.emplace_back(row.steps, one.value);
        row.directory = run.DirectoryOf(row.trial, row.steps);
    }
    begun_s.emplace(row.trial, one.begun_s);
    if (one.segment.from_steps == 0 && one.outcome == Outcome::kDone) {
      row.first_s = one.ended_s - begun_s[row.trial];
    }
  }
  std::vector<TrialRow> rows;
  for (auto& [trial, row] : by_trial) rows.push_back(std::move(row));
  return rows;
}

uint64_t StepsPlanned(const tune::SearchSpec& spec) {
  if (spec.method != Method::kHyperBand &&
      spec.method != Method::kSuccessiveHalving) {
    return static_cast<uint64_t>(spec.trials) * spec.steps;
  }
  uint64_t steps = 0;
  for (const tune::Bracket& bracket : tune::BracketsOf(spec)) {
    auto trials = static_cast<uint64_t>(bracket.trials);
    uint64_t from = 0;
    for (const uint64_t rung : bracket.rungs) {
      steps += trials * (rung - from);
      trials /= static_cast<uint64_t>(spec.eta);
      from = rung;
    }
  }
  return steps;
}

uint64_t StepsTaken(const TuneRun& run) {
  uint64_t steps = 0;
  for (const TrialSegment& one : run.state().segments) {
    const tune::Segment& segment = one.segment;
    uint64_t until = segment.to_steps;
    if (one.outcome == Outcome::kRunning) {
      until = std::max(segment.from_steps, run.StepsNow(segment.trial));
    }
    if (one.outcome == Outcome::kFailed) until = segment.from_steps;
    steps += until - segment.from_steps;
  }
  return steps;
}

std::string RenderTrials(const TuneRun& run, size_t width) {
  std::vector<TrialRow> rows = TrialRows(run);
  SortByMetric(run.spec().maximise, rows);
  TableRows cells;
  for (const TrialRow& row : rows) {
    cells.push_back(
        {StrCat(row.trial), row.state, FormatSteps(row.steps, run.spec().steps),
         row.value ? FormatScalar(*row.value) : "-", FirstText(row),
         row.why.empty() ? row.values : StrCat(row.values, ": ", row.why)});
  }
  return RenderTable({Right("TRIAL"), Left("STATE"), Right("STEPS"),
                      Right("METRIC"), Right("FIRST"), Left("PARAMETERS")},
                     cells, width);
}

std::string RenderBest(const TuneRun& run) {
  const auto best = tune::BestOf(run.spec(), run.state().begun());
  if (!best) return "";
  std::string values;
  for (const TrialSegment& one : run.state().segments) {
    if (one.segment.trial != best->trial) continue;
    if (one.segment.to_steps != best->steps) continue;
    values = ValuesText(run.spec(), one.segment.values);
  }
  return StrCat("Best: trial ", best->trial, ", ", run.spec().metric, " ",
                study::PlotNumber(best->value), " at step ", best->steps, " (",
                values, "), checkpoints in ",
                run.DirectoryOf(best->trial, best->steps), "\n");
}

Json TrialsJson(const TuneRun& run) {
  Json trials = Json::array();
  for (const TrialRow& row : TrialRows(run)) {
    trials.push_back({{"trial", row.trial},
                      {"values", row.values},
                      {"state", row.state},
                      {"steps", row.steps},
                      {"value", row.value ? Json(*row.value) : Json()},
                      {"first_s", row.first_s ? Json(*row.first_s) : Json()},
                      {"why", row.why},
                      {"checkpoint_directory", row.directory},
                      {"curve", row.curve}});
  }
  Json json = {{"name", run.spec().name},
               {"method", tune::NameOf(run.spec().method)},
               {"metric", run.spec().metric},
               {"over", run.over()},
               {"best", nullptr},
               {"trials", std::move(trials)}};
  if (const auto best = tune::BestOf(run.spec(), run.state().begun())) {
    json["best"] = {
        {"trial", best->trial},
        {"steps", best->steps},
        {"value", best->value},
        {"checkpoint_directory", run.DirectoryOf(best->trial, best->steps)}};
  }
  return json;
}

std::string TrialsPage(const TuneRun& run) {
  const tune::SearchSpec& spec = run.spec();
  study::Plot plot;
  plot.title = StrCat(spec.metric, " by steps");
  plot.x.label = "steps";
  plot.y.label = spec.metric;
  plot.y.from_zero = false;
  // The page has ten colours.
  constexpr size_t kSeriesMax = 10;
  std::vector<TrialRow> rows = TrialRows(run);
  SortByMetric(spec.maximise, rows);
  for (const TrialRow& row : rows) {
    if (row.curve.empty() || plot.series.size() == kSeriesMax) break;
    study::PlotSeries series;
    series.name = StrCat("trial ", row.trial);
    series.color = plot.series.size();
    for (const auto& [steps, value] : row.curve) {
      series.points.push_back({static_cast<double>(steps), value, row.values});
    }
    plot.series.push_back(std::move(series));
  }
  study::ReportSection section;
  section.id = "trials";
  section.title = "Trials";
  section.text = StrCat(
      "The trials of the search, the best first; the plot "
      "has the best ",
      kSeriesMax, " of them.");
  if (!plot.series.empty()) section.figures = {study::RenderPlot(plot)};
  section.table = TableOf(run);
  section.csv = study::Csv(section.table);
  study::ReportPage page;
  page.title = StrCat("Search ", spec.name);
  page.summary =
      StrCat(tune::NameOf(spec.method), ", ", run.over() ? "over" : "under way",
             ". ", RenderBest(run));
  page.sections = {std::move(section)};
  return study::RenderPage(page);
}

}  // namespace gavel
