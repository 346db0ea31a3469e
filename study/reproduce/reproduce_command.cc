#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/cli/command_options.h"
#include "coordinator/cli/daemon/stop_signals.h"
#include "coordinator/cli/files.h"
#include "coordinator/workload/toml_reader.h"
#include "core/status.h"
#include "core/text.h"
#include "study/commands.h"
#include "study/reproduce/reproduce_run.h"
#include "study/simulation/sweep_run.h"
#include "study/simulation/sweep_screen.h"

namespace gavel::study {
namespace {

struct ReproduceOptions {
  std::string name;
  bool list = false;
  bool quick = false;
  bool markdown = false;
  std::string throughputs;
  std::string database;  // empty: in the folder of results
  std::string page;
  SweepOptions run;
};

void PrintList(const std::vector<Experiment>& experiments) {
  for (const Experiment& experiment : experiments) {
    std::printf("%-22s %s (%s)\n", experiment.name.c_str(),
                experiment.title.c_str(), experiment.source.c_str());
  }
  std::printf(
      "Live, with options of their own (`gavel reproduce NAME --help`):\n"
      "%-22s A trace of small jobs on this machine and in the simulator\n"
      "%-22s What the end of a round costs training programs\n",
      "reality", "preemption");
}

// Those that the user asks for.
absl::StatusOr<std::vector<Experiment>> Choose(
    const ReproduceOptions& options) {
  std::vector<Experiment> all = Experiments(options.quick);
  if (options.name == "all") return all;
  std::vector<std::string_view> names;
  for (Experiment& experiment : all) {
    if (experiment.name == options.name) {
      return std::vector<Experiment>{std::move(experiment)};
    }
    names.push_back(experiment.name);
  }
  const std::string_view closest = ClosestWord(options.name, names);
  return absl::NotFoundError(
      StrCat("there is no result \"", options.name, "\"; ",
             closest.empty() ? "`gavel reproduce --list` lists them"
                             : StrCat("did you mean \"", closest, "\"?")));
}

// Fills in the files that the runs read. The trace of the cost experiment is
// written beside the database.
absl::Status AddFiles(const ReproduceOptions& options,
                      std::vector<Experiment>* experiments) {
  const std::string trace = StrCat(
      options.database, options.quick ? ".cost-quick" : ".cost", ".toml");
  for (Experiment& experiment : *experiments) {
    if (experiment.cost_trace) {
      GAVEL_RETURN_IF_ERROR(WriteFile(trace, CostTrace(options.quick)));
    }
    for (PaperCase& one : experiment.cases) {
      one.spec.throughputs = options.throughputs;
      if (experiment.cost_trace) one.spec.trace = trace;
    }
  }
  return absl::OkStatus();
}

// Makes the runs that the database lacks.
absl::StatusOr<SweepOutcome> MakeRuns(const ReproduceOptions& options,
                                      const std::vector<Experiment>& all,
                                      SimulationStore& store,
                                      SimulationInputCache& inputs) {
  StopSignals signals;
  Sweep sweep(SweepOf(all), options.run, store, inputs,
              TraceSimulation::Create);
  SweepScreen screen("reproduce", options.markdown);
  signals.Attach([&sweep] { sweep.Stop(); });
  absl::StatusOr<SweepOutcome> outcome =
      sweep.Run([&](const SweepProgress& progress) { screen.Show(progress); });
  signals.Attach(nullptr);
  screen.Clear();
  if (outcome.ok() && outcome->stopped) {
    return absl::CancelledError(
        StrCat("stopped; the same command goes on with ", options.database));
  }
  return outcome;
}

// Makes the missing runs, and the tables of our figures and the published ones.
absl::StatusOr<std::vector<Reproduction>> Reproduce(
    const ReproduceOptions& options, std::vector<Experiment> experiments) {
  SimulationInputCache inputs;
  GAVEL_ASSIGN_OR_RETURN(const auto throughputs,
                         inputs.LoadThroughputs(options.throughputs));
  GAVEL_RETURN_IF_ERROR(AddFiles(options, &experiments));
  GAVEL_ASSIGN_OR_RETURN(auto store, SimulationStore::Open(options.database));
  GAVEL_ASSIGN_OR_RETURN(const SweepOutcome outcome,
                         MakeRuns(options, experiments, store, inputs));
  std::map<std::string, StoredRun> run_of;
  GAVEL_ASSIGN_OR_RETURN(std::vector<StoredRun> runs, store.Runs());
  for (StoredRun& run : runs) run_of[run.key] = std::move(run);
  const FindRun find =
      [&](const SimulationSpec& spec) -> std::optional<StoredRun> {
    const absl::StatusOr<std::string> key = inputs.KeyOf(spec);
    const auto it = key.ok() ? run_of.find(*key) : run_of.end();
    if (it == run_of.end()) return std::nullopt;
    return it->second;
  };
  std::vector<Reproduction> all;
  for (Experiment& experiment : experiments) {
    absl::StatusOr<ExperimentTable> table =
        experiment.analyze
            ? experiment.analyze(*throughputs)
            : Compare(experiment, find, store, /*comparable=*/!options.quick);
    if (!table.ok()) return Annotate(table.status(), experiment.name);
    all.push_back({std::move(experiment), *std::move(table)});
  }
  return all;
}

absl::Status Run(ReproduceOptions options) {
  if (options.list) {
    PrintList(Experiments(options.quick));
    return absl::OkStatus();
  }
  GAVEL_ASSIGN_OR_RETURN(std::vector<Experiment> experiments, Choose(options));
  if (options.throughputs.empty()) {
    return absl::InvalidArgumentError(
        "no throughputs; give --throughputs FILE.json, the table that Gavel "
        "published (simulation_throughputs.json)");
  }
  if (options.database.empty()) {
    GAVEL_ASSIGN_OR_RETURN(options.database,
                           MakeResultsPath("reproduction.db"));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::vector<Reproduction> all,
                         Reproduce(options, std::move(experiments)));
  if (options.markdown) {
    std::fputs(RenderMarkdown(all, options.quick).c_str(), stdout);
  } else {
    const size_t width = SweepScreen("").width();
    for (const Reproduction& one : all) {
      std::fputs(RenderReproduction(one, width).c_str(), stdout);
    }
    const bool simulated = std::ranges::any_of(
        all, [](const auto& one) { return !one.experiment.cases.empty(); });
    if (simulated) {
      std::printf("the runs are kept in %s; `gavel report %s` draws them\n",
                  options.database.c_str(), options.database.c_str());
    }
  }
  if (options.page.empty()) return absl::OkStatus();
  return WriteFile(options.page, RenderPage(PageOf(all)));
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
  AddOption(*command, "name", options->name, "NAME", "a result, or all");
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
    *exit_code = ExitCodeOf(Run(*options));
  });
}

}  // namespace gavel::study
