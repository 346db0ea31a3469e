#include "study/reproduce/preemption_report.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/table.h"
#include "coordinator/throughput/median.h"
#include "core/text.h"
#include "study/report/plot.h"

namespace gavel::study {
namespace {

// Gavel's rounds.
constexpr double kLongRound_s = 360;
constexpr double kMs = 1e3;
constexpr size_t kTimeLineWidth = 60;
constexpr char kPageText[] =
    "Not training is the time outside of steps, from a round's first step to "
    "the next one's. Extended: the lease goes on. Paused: the accelerator is "
    "given up and taken again at once. Relaunched: the state is saved, the "
    "process ends, another one loads it.";

double MedianOf(double MeasuredRound::*figure,
                const std::vector<MeasuredRound>& rounds) {
  std::vector<double> values;
  for (const MeasuredRound& round : rounds) values.push_back(round.*figure);
  return values.empty() ? 0 : Median(std::move(values));
}

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.1f", seconds * kMs);
}

// Medians over the rounds of one way; and the part of all rounds that was not
// training.
std::vector<std::string> RowOf(const std::string& type, RoundEnd end,
                               const std::vector<MeasuredRound>& rounds) {
  double lost_s = 0;
  double all_s = 0;
  for (const MeasuredRound& round : rounds) {
    lost_s += round.lost_s;
    all_s += round.end_s - round.begin_s;
  }
  const double median_s = MedianOf(&MeasuredRound::lost_s, rounds);
  return {type,
          std::string(RoundEndName(end)),
          Milliseconds(median_s),
          Milliseconds(MedianOf(&MeasuredRound::leaving_s, rounds)),
          Milliseconds(MedianOf(&MeasuredRound::away_s, rounds)),
          Milliseconds(MedianOf(&MeasuredRound::resuming_s, rounds)),
          absl::StrFormat("%.1f %%", all_s > 0 ? 100 * lost_s / all_s : 0),
          absl::StrFormat("%.4f %%", 100 * median_s / kLongRound_s)};
}

ReportTable TableOf(const PreemptionOptions& options,
                    const PreemptionRounds& all) {
  ReportTable table;
  table.titles = {"WORKLOAD", "ROUND'S END", "LOST (ms)",    "LEAVING",
                  "AWAY",     "RESUMING",    "NOT TRAINING", "OF 360 s"};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      table.rows.push_back(
          RowOf(options.workloads[i].type, kRoundEnds[end], all[i][end]));
    }
  }
  return table;
}

// All columns but the first two are numbers.
std::vector<bool> Aligned(const ReportTable& table) {
  std::vector<bool> right(table.titles.size(), true);
  right[0] = right[1] = false;
  return right;
}

// '#' where most of the time is training.
std::string TimeLine(const std::vector<MeasuredRound>& rounds) {
  std::string line;
  const Time begin = rounds.front().begin_s;
  const double cell_s =
      (rounds.back().end_s - begin) / static_cast<double>(kTimeLineWidth);
  for (size_t i = 0; i < kTimeLineWidth; ++i) {
    const Time at = begin + (static_cast<double>(i) + 0.5) * cell_s;
    const auto round = std::ranges::find_if(
        rounds, [at](const MeasuredRound& one) { return at < one.end_s; });
    const bool gap =
        round != rounds.end() && at >= round->end_s - round->leaving_s -
                                           round->away_s - round->resuming_s;
    line += gap ? '.' : '#';
  }
  return line;
}

std::string Setting(const PreemptionOptions& options) {
  return absl::StrFormat(
      "%d rounds of %g s of each workload on %s; medians of what a round's end "
      "costs; the last column: of a round of %g s.",
      options.rounds, options.round_s, options.accelerator.type, kLongRound_s);
}

// How much more one end of a round costs than another, in the median workload.
std::string Verdict(const PreemptionRounds& all) {
  std::vector<double> ratios;
  for (const auto& ends : all) {
    const double paused = MedianOf(&MeasuredRound::lost_s, ends[1]);
    const double relaunched = MedianOf(&MeasuredRound::lost_s, ends[2]);
    if (paused > 0) ratios.push_back(relaunched / paused);
  }
  if (ratios.empty()) return "";
  return absl::StrFormat(
      "Relaunching costs %.0f times as much as pausing in the median workload "
      "(%.0f to %.0f).",
      Median(ratios), *std::ranges::min_element(ratios),
      *std::ranges::max_element(ratios));
}

// Colours of the page: 0 training, then as below.
constexpr const char* kParts[] = {"training", "leaving", "away", "resuming"};

std::string TimeLineChart(const PreemptionOptions& options,
                          const PreemptionRounds& all) {
  BarChart chart;
  chart.title = StrCat("Rounds: ", absl::StrJoin(kParts, ", "),
                       "; rows: extended, paused, relaunched");
  chart.x_label = "s";
  for (size_t i = 0; i < all.size(); ++i) {
    chart.groups.emplace_back(options.workloads[i].type, kRoundEnds.size());
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      const std::vector<MeasuredRound>& rounds = all[i][end];
      const Time begin = rounds.front().begin_s;
      chart.x_max = std::max(chart.x_max, rounds.back().end_s - begin);
      for (const MeasuredRound& round : rounds) {
        Time to = round.end_s - begin;
        const double parts[] = {0, round.leaving_s, round.away_s,
                                round.resuming_s};
        for (size_t part = 3; part > 0; --part) {
          chart.bars.push_back(
              {i * kRoundEnds.size() + end, to - parts[part], to, part,
               StrCat(kParts[part], " ", Milliseconds(parts[part]), " ms")});
          to -= parts[part];
        }
        chart.bars.push_back({i * kRoundEnds.size() + end,
                              round.begin_s - begin, to, 0, kParts[0]});
      }
    }
  }
  return RenderBars(chart);
}

}  // namespace

std::string RenderPreemption(const PreemptionOptions& options,
                             const PreemptionRounds& all, size_t width) {
  const ReportTable table = TableOf(options, all);
  std::vector<std::vector<std::string>> lines;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      lines.push_back({options.workloads[i].type,
                       std::string(RoundEndName(kRoundEnds[end])),
                       TimeLine(all[i][end])});
    }
  }
  return StrCat(
      "Preemption: ", Setting(options), "\n\n",
      RenderText(table, Aligned(table), width), "\n",
      RenderTable(
          {{"WORKLOAD"}, {"ROUND'S END"}, {"ROUNDS (# training, . not)"}},
          lines, width),
      "\n", Verdict(all), "\n");
}

std::string RenderPreemptionMarkdown(const PreemptionOptions& options,
                                     const PreemptionRounds& all) {
  const ReportTable table = TableOf(options, all);
  return StrCat("### What a preemption costs (`preemption`)\n\n",
                Setting(options), "\n\n", RenderMarkdown(table, Aligned(table)),
                "\n", Verdict(all), "\n");
}

ReportPage PreemptionPage(const PreemptionOptions& options,
                          const PreemptionRounds& all) {
  ReportPage page;
  page.title = "What a preemption costs";
  page.summary = Setting(options);
  ReportSection& section = page.sections.emplace_back();
  section.id = "preemption";
  section.title = "Rounds";
  section.text = StrCat(kPageText, " ", Verdict(all));
  section.figures = {TimeLineChart(options, all)};
  section.table = TableOf(options, all);
  section.csv = Csv(section.table);
  return page;
}

}  // namespace gavel::study
