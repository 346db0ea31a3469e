#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon/stop_flag.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/table.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/throughput/median.h"
#include "core/status.h"
#include "core/text.h"
#include "study/commands.h"
#include "study/profile/live_workloads.h"
#include "study/report/plot.h"
#include "study/report/report_page.h"
#include "study/reproduce/preemption_run.h"

namespace gavel::study {
namespace {

struct PreemptionFlags {
  std::string workloads;
  std::vector<std::string> only;
  std::string cluster;  // file; empty: a slot of the CPU
  std::string page;
  bool markdown = false;
  PreemptionOptions run;
};

absl::StatusOr<AcceleratorInfo> FindAccelerator(const PreemptionFlags& flags) {
  std::vector<AcceleratorInfo> all;
  if (!flags.cluster.empty()) {
    GAVEL_ASSIGN_OR_RETURN(const auto cluster, ReadClusterFile(flags.cluster));
    for (const ServerSpec& server : cluster.servers) {
      all.insert(all.end(), server.accelerators.begin(),
                 server.accelerators.end());
    }
    if (all.empty()) {
      return absl::InvalidArgumentError(
          StrCat(flags.cluster,
                 ": there is no accelerator; declare one with "
                 "[[server]] and its [[server.accelerator]]"));
    }
  } else {
    AcceleratorInfo& slot = all.emplace_back();
    slot.type = "cpu";
    slot.uuid = "preemption-cpu-0";
  }
  GAVEL_RETURN_IF_ERROR(FillFromGpus(&all));
  return all.front();
}

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

// Of as many workloads of `options`, from the first on, as `all` has. `width`:
// of the terminal.
std::string RenderPreemption(const PreemptionOptions& options,
                             const PreemptionRounds& all, size_t width) {
  const ReportTable table = TableOf(options, all);
  TableRows lines;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      lines.push_back({options.workloads[i].type,
                       std::string(RoundEndName(kRoundEnds[end])),
                       TimeLine(all[i][end])});
    }
  }
  return StrCat("Preemption: ", Setting(options), "\n\n",
                RenderText(table, Aligned(table), width), "\n",
                RenderTable({Left("WORKLOAD"), Left("ROUND'S END"),
                             Left("ROUNDS (# training, . not)")},
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

absl::Status Run(PreemptionFlags flags) {
  PreemptionOptions& options = flags.run;
  GAVEL_ASSIGN_OR_RETURN(options.workloads,
                         FindWorkloads(flags.workloads, flags.only));
  GAVEL_ASSIGN_OR_RETURN(options.accelerator, FindAccelerator(flags));
  if (!flags.page.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(flags.page));
  }
  options.folder = std::filesystem::absolute(options.folder).string();
  const StopFlag stop;
  options.stop = stop.get();
  options.show = [](size_t done, size_t all, const std::string& what) {
    std::fprintf(stderr, "%zu of %zu: %s\n", done + 1, all, what.c_str());
  };
  PreemptionRounds rounds;
  const absl::Status status = RunPreemption(options, &rounds);
  // Shows what was measured, even if the rest failed.
  if (rounds.empty()) return status;
  const std::string text =
      flags.markdown ? RenderPreemptionMarkdown(options, rounds)
                     : RenderPreemption(options, rounds, Terminal().width());
  std::fputs(text.c_str(), stdout);
  if (flags.page.empty()) return status;
  const absl::Status written =
      WriteFile(flags.page, RenderPage(PreemptionPage(options, rounds)));
  return status.ok() ? written : status;
}

}  // namespace

void AddPreemptionCommand(CLI::App& reproduce, int* exit_code) {
  auto [command, flags] = AddCommand<PreemptionFlags>(
      reproduce, exit_code, "preemption",
      "What the end of a round costs real training programs on this machine: "
      "with the lease extended, paused and resumed, and ended and started "
      "again as the original Gavel's",
      Run);
  PreemptionOptions& options = flags.run;
  options.folder = "gavel-preemption";
  command.footer(
      "gavel reproduce preemption                  # eight examples: minutes\n"
      "gavel reproduce preemption --only LM --rounds 3\n"
      "gavel reproduce preemption --html preemption.html   # the time line");
  AddOption(command, "--workloads", flags.workloads, "FILE.toml",
            "programs, as for `gavel profile`; without it the examples "
            "of this project");
  command.add_option("--only", flags.only, "of these types of workloads")
      ->type_name("TYPE");
  AddOption(command, "--cluster", flags.cluster, "FILE.toml",
            "its first accelerator is used; without it a slot of the CPU, of "
            "one thread");
  AddOption(command, "--state", options.folder, "", "directory of all files");
  AddOption(command, "--rounds", options.rounds, "", "of each workload and way")
      ->check(CLI::Range(1, 10'000));
  AddOption(command, "--round", options.round_s, "SECONDS", "that a lease runs")
      ->check(CLI::Range(0.1, 1e5));
  AddOption(command, "--timeout", options.timeout_s, "SECONDS",
            "for a program's next step, or its end")
      ->check(CLI::Range(1.0, 1e5));
  command.add_flag("--markdown", flags.markdown,
                   "prints a document in place of tables");
  AddOption(command, "--html", flags.page, "FILE",
            "writes a page with the table and the time line");
}

}  // namespace gavel::study
