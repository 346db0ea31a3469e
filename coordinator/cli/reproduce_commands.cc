// `gavel reproduce`: the paper's results by simulation, and below it `reality`
// and `preemption`, which measure with real processes.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/live_workloads.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/reality.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/engine/throughput_matrix.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "runtime/files/files.h"
#include "study/report_page.h"
#include "study/reproduce_run.h"
#include "study/sweep.h"

namespace gavel {
namespace {

// ---- the paper's results

struct ReproduceOptions {
  std::string name;
  bool list = false;
  bool quick = false;
  bool markdown = false;
  std::string throughputs;
  std::string database;  // empty: in the folder of results
  std::string page;
  study::SweepOptions run;
};

void PrintList(const std::vector<study::Experiment>& experiments) {
  for (const study::Experiment& experiment : experiments) {
    std::printf("%-22s %s (%s)\n", experiment.name.c_str(),
                experiment.title.c_str(), experiment.source.c_str());
  }
  std::printf(
      "Live, with options of their own (`gavel reproduce NAME --help`):\n"
      "%-22s A trace of small jobs on this machine and in the simulator\n"
      "%-22s What the end of a round costs training programs\n",
      "reality", "preemption");
}

// Fills in the files that the runs read. Traces of experiments are written
// beside the database.
absl::Status AddFiles(const ReproduceOptions& options,
                      std::vector<study::Experiment>* experiments) {
  for (study::Experiment& experiment : *experiments) {
    const std::string trace = StrCat(options.database, ".", experiment.name,
                                     options.quick ? "-quick" : "", ".toml");
    if (!experiment.trace.empty()) {
      GAVEL_RETURN_IF_ERROR(WriteFile(trace, experiment.trace));
    }
    for (study::PaperCase& one : experiment.cases) {
      one.spec.throughputs = options.throughputs;
      if (!experiment.trace.empty()) one.spec.trace = trace;
    }
  }
  return absl::OkStatus();
}

// Makes the runs that the database lacks.
absl::StatusOr<study::SweepOutcome> MakeRuns(
    const ReproduceOptions& options, const std::vector<study::Experiment>& all,
    study::SimulationStore& store, study::SimulationInputCache& inputs) {
  StopSignals signals;
  study::Sweep sweep(study::SweepOf(all), options.run, store, inputs,
                     TraceSimulation::Create);
  SweepScreen screen("reproduce", options.markdown);
  signals.Attach([&sweep] { sweep.Stop(); });
  absl::StatusOr<study::SweepOutcome> outcome = sweep.Run(
      [&](const study::SweepProgress& progress) { screen.Show(progress); });
  signals.Attach(nullptr);
  screen.Clear();
  if (outcome.ok() && outcome->stopped) {
    return absl::CancelledError(
        StrCat("stopped; the same command goes on with ", options.database));
  }
  return outcome;
}

// Makes the missing runs, and the tables of our figures and the published ones.
absl::StatusOr<std::vector<study::Reproduction>> Reproduce(
    const ReproduceOptions& options,
    std::vector<study::Experiment> experiments) {
  study::SimulationInputCache inputs;
  GAVEL_ASSIGN_OR_RETURN(const auto throughputs,
                         inputs.LoadThroughputs(options.throughputs));
  GAVEL_RETURN_IF_ERROR(AddFiles(options, &experiments));
  GAVEL_ASSIGN_OR_RETURN(auto store,
                         study::SimulationStore::Open(options.database));
  GAVEL_ASSIGN_OR_RETURN(const study::SweepOutcome outcome,
                         MakeRuns(options, experiments, store, inputs));
  std::map<std::string, study::StoredRun> run_of;
  GAVEL_ASSIGN_OR_RETURN(std::vector<study::StoredRun> runs, store.Runs());
  for (study::StoredRun& run : runs) run_of[run.key] = std::move(run);
  const study::FindRun find = [&](const study::SimulationSpec& spec)
      -> std::optional<study::StoredRun> {
    const absl::StatusOr<std::string> key = inputs.KeyOf(spec);
    const auto it = key.ok() ? run_of.find(*key) : run_of.end();
    if (it == run_of.end()) return std::nullopt;
    return it->second;
  };
  std::vector<study::Reproduction> all;
  for (study::Experiment& experiment : experiments) {
    absl::StatusOr<study::ExperimentTable> table =
        experiment.analyze ? experiment.analyze(*throughputs)
                           : study::Compare(experiment, find, store,
                                            /*comparable=*/!options.quick);
    if (!table.ok()) return Annotate(table.status(), experiment.name);
    all.push_back({std::move(experiment), *std::move(table)});
  }
  return all;
}

absl::Status RunReproduce(ReproduceOptions options) {
  if (options.list) {
    PrintList(study::Experiments(options.quick));
    return absl::OkStatus();
  }
  GAVEL_ASSIGN_OR_RETURN(std::vector<study::Experiment> experiments,
                         study::ChooseExperiments(options.name, options.quick));
  if (options.throughputs.empty()) {
    return absl::InvalidArgumentError(
        "no throughputs; give --throughputs FILE.json, the table that Gavel "
        "published (simulation_throughputs.json)");
  }
  if (options.database.empty()) {
    GAVEL_ASSIGN_OR_RETURN(options.database,
                           MakeResultsPath("reproduction.db"));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::vector<study::Reproduction> all,
                         Reproduce(options, std::move(experiments)));
  if (options.markdown) {
    std::fputs(study::RenderMarkdown(all, options.quick).c_str(), stdout);
  } else {
    const size_t width = SweepScreen("").width();
    for (const study::Reproduction& one : all) {
      std::fputs(study::RenderReproduction(one, width).c_str(), stdout);
    }
    const bool simulated = std::ranges::any_of(
        all, [](const auto& one) { return !one.experiment.cases.empty(); });
    if (simulated) {
      std::printf("the runs are kept in %s; `gavel report %s` draws them\n",
                  options.database.c_str(), options.database.c_str());
    }
  }
  if (options.page.empty()) return absl::OkStatus();
  return WriteFile(options.page, study::RenderPage(study::PageOf(all)));
}

// ---- reality

struct RealityFlags {
  std::string workloads;
  std::vector<std::string> only;
  std::vector<double> durations = {10, 40};
  double limit_percent = 10;
  bool markdown = false;
  RealityOptions run;
};
// The examples with short steps.
constexpr const char* kShortSteps[] = {"ResNet-18", "LM", "Recommendation",
                                       "GPT"};

absl::Status RunRealityCommand(RealityFlags flags) {
  RealityOptions& options = flags.run;
  if (flags.workloads.empty() && flags.only.empty()) {
    flags.only.assign(std::begin(kShortSteps), std::end(kShortSteps));
  }
  GAVEL_ASSIGN_OR_RETURN(options.workloads,
                         FindWorkloads(flags.workloads, flags.only));
  options.trace.duration_min_s = flags.durations.front();
  options.trace.duration_max_s = flags.durations.back();
  if (options.trace.duration_min_s > options.trace.duration_max_s) {
    return absl::InvalidArgumentError(
        "--durations: the first is the shorter one, e.g. 10 40");
  }
  options.folder = std::filesystem::absolute(options.folder).string();
  const Terminal terminal;
  options.quiet = flags.markdown || !terminal.is_terminal();
  options.show = [](const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
  };
  GAVEL_ASSIGN_OR_RETURN(const Reality reality, RunReality(options));
  std::fputs(
      (flags.markdown ? RenderRealityMarkdown(options, reality)
                      : RenderReality(options, reality, terminal.width()))
          .c_str(),
      stdout);
  if (!flags.markdown) {
    std::printf(
        "Trace, throughputs and overheads are in %s, for `gavel simulate`.\n",
        options.folder.c_str());
  }
  return CheckReality(reality, flags.limit_percent / 100);
}

// ---- preemption

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

std::string InMilliseconds(double seconds) {
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
          InMilliseconds(median_s),
          InMilliseconds(MedianOf(&MeasuredRound::leaving_s, rounds)),
          InMilliseconds(MedianOf(&MeasuredRound::away_s, rounds)),
          InMilliseconds(MedianOf(&MeasuredRound::resuming_s, rounds)),
          absl::StrFormat("%.1f %%", all_s > 0 ? 100 * lost_s / all_s : 0),
          absl::StrFormat("%.4f %%", 100 * median_s / kLongRound_s)};
}

study::ReportTable TableOf(const PreemptionOptions& options,
                           const PreemptionRounds& all) {
  study::ReportTable table;
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
std::vector<bool> AlignedNumbers(const study::ReportTable& table) {
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

// The colours of the chart.
constexpr const char* kParts[] = {"training", "leaving", "away", "resuming"};

study::BarChart TimeLineChart(const PreemptionOptions& options,
                              const PreemptionRounds& all) {
  study::BarChart chart;
  chart.title = "What each round was spent on";
  chart.unit = "s";
  chart.names = {std::begin(kParts), std::end(kParts)};
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      chart.rows.push_back(StrCat(options.workloads[i].type, ", ",
                                  RoundEndName(kRoundEnds[end])));
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
               StrCat(kParts[part], " ", InMilliseconds(parts[part]), " ms")});
          to -= parts[part];
        }
        chart.bars.push_back({i * kRoundEnds.size() + end,
                              round.begin_s - begin, to, 0, kParts[0]});
      }
    }
  }
  return chart;
}

// `all` holds the results of the first workloads of `options`. `width` is that
// of the terminal.
std::string RenderPreemption(const PreemptionOptions& options,
                             const PreemptionRounds& all, size_t width) {
  const study::ReportTable table = TableOf(options, all);
  TableRows lines;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t end = 0; end < kRoundEnds.size(); ++end) {
      lines.push_back({options.workloads[i].type,
                       std::string(RoundEndName(kRoundEnds[end])),
                       TimeLine(all[i][end])});
    }
  }
  return StrCat("Preemption: ", Setting(options), "\n\n",
                study::RenderText(table, AlignedNumbers(table), width), "\n",
                RenderTable({Left("WORKLOAD"), Left("ROUND'S END"),
                             Left("ROUNDS (# training, . not)")},
                            lines, width),
                "\n", Verdict(all), "\n");
}

std::string RenderPreemptionMarkdown(const PreemptionOptions& options,
                                     const PreemptionRounds& all) {
  const study::ReportTable table = TableOf(options, all);
  return StrCat("### What a preemption costs (`preemption`)\n\n",
                Setting(options), "\n\n",
                study::RenderMarkdown(table, AlignedNumbers(table)), "\n",
                Verdict(all), "\n");
}

study::ReportPage PreemptionPage(const PreemptionOptions& options,
                                 const PreemptionRounds& all) {
  study::ReportPage page;
  page.title = "What a preemption costs";
  page.summary = Setting(options);
  study::ReportSection& section = page.sections.emplace_back();
  section.id = "preemption";
  section.title = "Rounds";
  section.text = StrCat(kPageText, " ", Verdict(all));
  section.figures = {TimeLineChart(options, all)};
  section.table = TableOf(options, all);
  section.csv = study::Csv(section.table);
  return page;
}

absl::Status RunPreemptionCommand(PreemptionFlags flags) {
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
  // Partial results are shown even if the rest failed.
  if (rounds.empty()) return status;
  const std::string text =
      flags.markdown ? RenderPreemptionMarkdown(options, rounds)
                     : RenderPreemption(options, rounds, Terminal().width());
  std::fputs(text.c_str(), stdout);
  if (flags.page.empty()) return status;
  const absl::Status written =
      WriteFile(flags.page, study::RenderPage(PreemptionPage(options, rounds)));
  return status.ok() ? written : status;
}

}  // namespace

void AddReproduceCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<ReproduceOptions>();
  options->run.threads =
      static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  CLI::App* command = app.add_subcommand(
      "reproduce",
      "Runs what a result of Gavel's paper was made from, and puts our figures "
      "beside the published ones");
  AddOption(*command, "name", options->name, "NAME",
            "a result, gandiva or themis for all of that paper, or all");
  command->add_flag("--list", options->list, "names all results");
  AddOption(*command, "--throughputs", options->throughputs, "FILE",
            "simulation_throughputs.json, as Gavel published it");
  command->add_flag("--quick", options->quick,
                    "a quarter of the cluster, a tenth of the jobs: minutes");
  command->add_flag("--markdown", options->markdown,
                    "prints a document in place of tables");
  AddOption(*command, "--html", options->page, "FILE",
            "writes a page with the tables and drawings");
  AddOption(*command, "--results", options->database, "FILE.db",
            "keeps the runs: the next call makes only what is missing; "
            "default: gavel-results/reproduction.db");
  command->add_option("-j,--threads", options->run.threads, "runs at a time")
      ->check(CLI::Range(1, 1024))
      ->default_str("all cores");
  command->add_flag("--retry", options->run.retry,
                    "runs again what ended in an error or timeout");
  AddRealityCommand(*command, exit_code);
  AddPreemptionCommand(*command, exit_code);
  command->callback([command, options, exit_code] {
    if (!command->get_subcommands().empty()) return;
    if (options->name.empty() && !options->list) {
      throw CLI::RequiredError("NAME, all or --list");
    }
    *exit_code = ExitCodeOf(RunReproduce(*options));
  });
}

void AddRealityCommand(CLI::App& reproduce, int* exit_code) {
  auto [command, flags] = AddCommand<RealityFlags>(
      reproduce, exit_code, "reality",
      "Runs a trace of small jobs live on this machine, and the same in the "
      "simulator with the throughputs and overheads that were measured: how "
      "far are makespan and average JCT apart?",
      RunRealityCommand);
  RealityOptions& options = flags.run;
  options.folder = "gavel-reality";
  command.footer(
      "gavel reproduce reality                      # 20 jobs, three times\n"
      "gavel reproduce reality --jobs 6 --runs 1    # a few minutes\n"
      "gavel reproduce reality --workloads my.toml --cluster cluster.toml");
  AddOption(
      command, "--workloads", flags.workloads, "FILE.toml",
      "programs, as for `gavel profile`; without it examples of this project");
  command.add_option("--only", flags.only, "of these types of workloads")
      ->type_name("TYPE");
  AddOption(command, "--cluster", options.cluster_path, "FILE.toml",
            "accelerators of this machine; without it two slots of its CPU, of "
            "which one is made slower");
  AddOption(
      command, "--throughputs", options.throughputs, "FILE.json",
      "of `gavel profile --busy --output`; without it they are measured first");
  AddOption(command, "--state", options.folder, "", "directory of all files");
  AddOption(command, "--policy", options.policy, "", "of both");
  AddOption(command, "--round", options.round_duration_s, "SECONDS", "of both")
      ->check(CLI::Range(0.5, 1e5));
  AddOption(command, "--jobs", options.trace.jobs, "", "of the trace")
      ->check(CLI::Range(1, 10'000));
  AddOption(
      command, "--durations", flags.durations, "SECONDS",
      "of the shortest and the longest job, alone on its fastest accelerator")
      ->expected(2)
      ->check(CLI::Range(0.1, 1e6));
  AddOption(command, "--runs", options.runs, "", "live runs of the trace")
      ->check(CLI::Range(1, 100));
  AddOption(command, "--seed", options.trace.seed, "", "of the trace");
  AddOption(command, "--measure", options.measure_s, "SECONDS",
            "that each workload is measured for on each type")
      ->check(CLI::Range(0.1, 1e5));
  AddOption(command, "--limit", flags.limit_percent, "PERCENT",
            "difference in the median that is a failure")
      ->check(CLI::Range(0.0, 1e4));
  command.add_flag("--markdown", flags.markdown,
                   "prints a document in place of tables");
}

void AddPreemptionCommand(CLI::App& reproduce, int* exit_code) {
  auto [command, flags] = AddCommand<PreemptionFlags>(
      reproduce, exit_code, "preemption",
      "What the end of a round costs real training programs on this machine: "
      "with the lease extended, paused and resumed, and ended and started "
      "again as the original Gavel's",
      RunPreemptionCommand);
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

}  // namespace gavel
