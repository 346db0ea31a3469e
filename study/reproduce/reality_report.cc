#include "study/reproduce/reality_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/table.h"
#include "coordinator/throughput/median.h"
#include "core/text.h"
#include "study/report/report_page.h"

namespace gavel::study {
namespace {

constexpr char kInputs[] =
    "What was measured: steps/s, and the seconds that a job lost once at its "
    "start and end, and at each pause, resume and move.";

using Figure = double LiveFigures::*;

double DifferenceOf(const RealityRun& run, Figure figure) {
  return run.simulated.*figure / run.live.*figure - 1;
}

std::string Percent(double part) {
  return absl::StrFormat("%+.1f %%", 100 * part);
}

std::string Verdict(const Reality& reality) {
  const auto text = [&](const char* what, Figure figure) {
    const Difference difference = DifferenceIn(figure, reality.runs);
    return StrCat(what, " ", Percent(difference.median),
                  " off the live one in the median (from ",
                  Percent(difference.least), " to ", Percent(difference.most),
                  ")");
  };
  return StrCat(text("Simulated makespan", &LiveFigures::makespan_s), ", ",
                text("simulated average JCT", &LiveFigures::avg_jct_s), ".");
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

// What the jobs of a type lost, in the mean of the runs.
Overhead MeanOverhead(const Reality& reality, const std::string& type) {
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
  return mean;
}

ReportTable InputsTable(const RealityOptions& options, const Reality& reality) {
  ReportTable table;
  table.titles = {"WORKLOAD"};
  for (const std::string& type : reality.throughputs.types) {
    table.titles.push_back(StrCat("STEPS/S, ", type));
  }
  table.titles.insert(table.titles.end(), {"START", "PAUSE", "RESUME", "MOVE"});
  for (size_t i = 0; i < options.workloads.size(); ++i) {
    const std::string& type = options.workloads[i].type;
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(type);
    for (const double rate : reality.throughputs.steps_per_s[i]) {
      row.push_back(FormatRate(rate));
    }
    const Overhead mean = MeanOverhead(reality, type);
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
      row.push_back(absl::StrFormat("%.1f", run.live.*figure));
      row.push_back(absl::StrFormat("%.1f", run.simulated.*figure));
      row.push_back(Percent(DifferenceOf(run, figure)));
    }
    row.push_back(StrCat(run.live.pauses));
    row.push_back(StrCat(run.simulated.pauses));
  }
  return table;
}

// All columns but the first are numbers.
std::vector<bool> Aligned(const ReportTable& table) {
  std::vector<bool> right(table.titles.size(), true);
  right.front() = false;
  return right;
}

}  // namespace

Difference DifferenceIn(Figure figure, const std::vector<RealityRun>& runs) {
  std::vector<double> all;
  for (const RealityRun& run : runs) all.push_back(DifferenceOf(run, figure));
  return {Median(all), std::ranges::min(all), std::ranges::max(all)};
}

std::string RenderReality(const RealityOptions& options, const Reality& reality,
                          size_t width) {
  const ReportTable inputs = InputsTable(options, reality);
  const ReportTable runs = RunsTable(reality);
  return StrCat(
      "Simulation against reality: ", Setting(options, reality), "\n\n",
      kInputs, "\n\n", RenderText(inputs, Aligned(inputs), width), "\n",
      RenderText(runs, Aligned(runs), width), "\n", Verdict(reality), "\n");
}

std::string RenderRealityMarkdown(const RealityOptions& options,
                                  const Reality& reality) {
  const ReportTable inputs = InputsTable(options, reality);
  const ReportTable runs = RunsTable(reality);
  return StrCat("### Simulation against reality (`reality`)\n\n",
                Setting(options, reality), "\n\n",
                RenderMarkdown(runs, Aligned(runs)), "\n", Verdict(reality),
                "\n\n", kInputs, "\n\n",
                RenderMarkdown(inputs, Aligned(inputs)));
}

absl::Status CheckReality(const Reality& reality, double limit) {
  const double makespan =
      DifferenceIn(&LiveFigures::makespan_s, reality.runs).median;
  const double jct = DifferenceIn(&LiveFigures::avg_jct_s, reality.runs).median;
  if (std::abs(makespan) <= limit && std::abs(jct) <= limit) {
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrFormat(
      "the simulation is off by %s (makespan) and %s (average JCT), more than "
      "%g %%; was the machine busy with something else? Run it again, or raise "
      "--limit",
      Percent(makespan), Percent(jct), 100 * limit));
}

}  // namespace gavel::study
