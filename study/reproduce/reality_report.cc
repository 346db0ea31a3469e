#include "study/reproduce/reality_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/table.h"
#include "core/text.h"

namespace gavel {
namespace {

using Figure = double LiveFigures::*;

double DifferenceOf(const RealityRun& run, Figure figure) {
  return run.simulated.*figure / run.live.*figure - 1;
}

Difference DifferencesOf(const std::vector<RealityRun>& runs, Figure figure) {
  std::vector<double> all;
  for (const RealityRun& run : runs) all.push_back(DifferenceOf(run, figure));
  std::ranges::sort(all);
  const size_t half = all.size() / 2;
  const double median =
      all.size() % 2 == 1 ? all[half] : (all[half - 1] + all[half]) / 2;
  return {median, all.front(), all.back()};
}

std::string Percent(double part) {
  return absl::StrFormat("%+.1f %%", 100 * part);
}

std::string Seconds(double seconds) { return absl::StrFormat("%.1f", seconds); }

std::string Text(std::string_view what, const Difference& difference) {
  return StrCat("simulated ", what, " ", Percent(difference.median),
                " off the live one in the median (from ",
                Percent(difference.least), " to ", Percent(difference.most),
                ")");
}

std::string Setting(const RealityOptions& options, const Reality& reality) {
  std::vector<std::string> accelerators;
  const RealityThroughputs& throughputs = reality.throughputs;
  for (size_t i = 0; i < throughputs.types.size(); ++i) {
    accelerators.push_back(
        StrCat(throughputs.counts[i], " ", throughputs.types[i]));
  }
  return absl::StrFormat(
      "%d jobs of %g to %g s (alone, on their fastest type), seed %d; %s; "
      "accelerators: %s; rounds of %g s.",
      options.trace.jobs, options.trace.duration_min_s,
      options.trace.duration_max_s, options.trace.seed, options.policy,
      absl::StrJoin(accelerators, ", "), options.round_duration_s);
}

std::string Rendered(const ReportTable& table, size_t width) {
  std::vector<Column> columns;
  for (const std::string& title : table.titles) {
    columns.push_back({title, !columns.empty()});
  }
  return RenderTable(columns, table.rows, width);
}

std::string Markdown(const ReportTable& table) {
  std::string text = StrCat("| ", absl::StrJoin(table.titles, " | "), " |\n|");
  for (size_t i = 0; i < table.titles.size(); ++i) {
    text += i == 0 ? "---|" : "---:|";
  }
  for (const auto& row : table.rows) {
    StrAppend(&text, "\n| ", absl::StrJoin(row, " | "), " |");
  }
  return text + "\n";
}

constexpr char kInputs[] =
    "What was measured: steps/s, and the seconds that a job lost once at its "
    "start and end, and at each pause, resume and move.";

}  // namespace

Difference MakespanDifference(const std::vector<RealityRun>& runs) {
  return DifferencesOf(runs, &LiveFigures::makespan_s);
}

Difference JctDifference(const std::vector<RealityRun>& runs) {
  return DifferencesOf(runs, &LiveFigures::avg_jct_s);
}

ReportTable InputsTable(const RealityOptions& options, const Reality& reality) {
  ReportTable table;
  table.titles = {"WORKLOAD"};
  for (const std::string& type : reality.throughputs.types) {
    table.titles.push_back(StrCat("STEPS/S, ", type));
  }
  for (const char* title : {"START", "PAUSE", "RESUME", "MOVE"}) {
    table.titles.emplace_back(title);
  }
  for (size_t i = 0; i < options.workloads.size(); ++i) {
    const std::string& type = options.workloads[i].type;
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(type);
    for (const double rate : reality.throughputs.steps_per_s[i]) {
      row.push_back(FormatRate(rate));
    }
    Overhead mean;
    const double runs = static_cast<double>(reality.runs.size());
    for (const RealityRun& run : reality.runs) {
      const auto found = run.overheads.by_type.find(type);
      const Overhead& one = found == run.overheads.by_type.end()
                                ? run.overheads.all
                                : found->second;
      mean.start_s += one.start_s / runs;
      mean.pause_s += one.pause_s / runs;
      mean.resume_s += one.resume_s / runs;
      mean.move_s += one.move_s / runs;
    }
    for (const double seconds :
         {mean.start_s, mean.pause_s, mean.resume_s, mean.move_s}) {
      row.push_back(absl::StrFormat("%.3f", seconds));
    }
  }
  return table;
}

ReportTable RunsTable(const Reality& reality) {
  ReportTable table;
  table.titles = {"RUN",        "MAKESPAN (s)", "SIMULATED",
                  "DIFFERENCE", "AVG JCT (s)",  "SIMULATED",
                  "DIFFERENCE", "PAUSES",       "SIMULATED"};
  for (const RealityRun& run : reality.runs) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(StrCat(table.rows.size()));
    for (const Figure figure :
         {&LiveFigures::makespan_s, &LiveFigures::avg_jct_s}) {
      row.push_back(Seconds(run.live.*figure));
      row.push_back(Seconds(run.simulated.*figure));
      row.push_back(Percent(DifferenceOf(run, figure)));
    }
    row.push_back(StrCat(run.live.pauses));
    row.push_back(StrCat(run.simulated.pauses));
  }
  return table;
}

std::string Verdict(const Reality& reality) {
  std::string text =
      StrCat(Text("makespan", MakespanDifference(reality.runs)), ", ",
             Text("average JCT", JctDifference(reality.runs)), ".");
  text.front() = 'S';
  return text;
}

std::string RenderReality(const RealityOptions& options, const Reality& reality,
                          size_t width) {
  return StrCat(
      "Simulation against reality: ", Setting(options, reality), "\n\n",
      kInputs, "\n\n", Rendered(InputsTable(options, reality), width), "\n",
      Rendered(RunsTable(reality), width), "\n", Verdict(reality), "\n");
}

std::string RenderRealityMarkdown(const RealityOptions& options,
                                  const Reality& reality) {
  return StrCat("### Simulation against reality (`reality`)\n\n",
                Setting(options, reality), "\n\n", Markdown(RunsTable(reality)),
                "\n", Verdict(reality), "\n\n", kInputs, "\n\n",
                Markdown(InputsTable(options, reality)));
}

absl::Status CheckReality(const Reality& reality, double limit) {
  const double makespan = MakespanDifference(reality.runs).median;
  const double jct = JctDifference(reality.runs).median;
  if (std::abs(makespan) <= limit && std::abs(jct) <= limit) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrFormat(
      "the simulation is off by %s (makespan) and %s (average JCT), more than "
      "%g %%; was the machine busy with something else? Run it again, or raise "
      "--limit",
      Percent(makespan), Percent(jct), 100 * limit));
}

}  // namespace gavel
