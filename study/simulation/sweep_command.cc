#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/stop_signals.h"
#include "coordinator/cli/files.h"
#include "core/status.h"
#include "core/text.h"
#include "study/commands.h"
#include "study/simulation/sweep_run.h"
#include "study/simulation/sweep_screen.h"
#include "study/simulation/sweep_spec.h"

namespace gavel::study {
namespace {

namespace fs = std::filesystem;

struct SweepCommandOptions {
  std::string sweep;
  std::string database;
  SweepOptions run;
};

absl::StatusOr<SweepSpec> ReadSweep(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const auto text, ReadFile(path, kSweepBytesMax + 1));
  return ParseSweep(text, path, fs::path(path).parent_path().string());
}

// "las.toml" keeps its results in "gavel-results/las.db".
absl::StatusOr<std::string> DatabaseOf(const SweepCommandOptions& options) {
  if (!options.database.empty()) return options.database;
  return MakeResultsPath(fs::path(options.sweep).stem().string() + ".db");
}

absl::Status ErrorsStatus(size_t errors, size_t runs) {
  if (errors == 0) return absl::OkStatus();
  return absl::InternalError(StrCat(errors, " of ", runs,
                                    " runs ended in an error; --retry runs "
                                    "them again"));
}

bool IsError(const StoredRun& run) {
  return run.run.status == RunStatus::kError;
}

absl::Status StatusOf(const std::vector<StoredRun>& runs) {
  return ErrorsStatus(static_cast<size_t>(std::ranges::count_if(runs, IsError)),
                      runs.size());
}

// The outcome of a search has no runs: those that end are counted.
class SearchTally {
 public:
  void Add(const SweepProgress& progress) {
    runs_ += progress.ended.size();
    for (const EndedRun& ended : progress.ended) errors_ += IsError(ended.run);
  }
  absl::Status Status() const { return ErrorsStatus(errors_, runs_); }

 private:
  size_t runs_ = 0;
  size_t errors_ = 0;
};

absl::Status Run(const SweepCommandOptions& options) {
  StopSignals signals;
  GAVEL_ASSIGN_OR_RETURN(const SweepSpec spec, ReadSweep(options.sweep));
  GAVEL_ASSIGN_OR_RETURN(const std::string path, DatabaseOf(options));
  GAVEL_ASSIGN_OR_RETURN(SimulationStore store, SimulationStore::Open(path));
  SimulationInputCache inputs;
  const absl::StatusOr<std::vector<std::string>> notices =
      inputs.CheckRuns(spec.runs);
  GAVEL_RETURN_IF_ERROR(Annotate(notices.status(), options.sweep));
  PrintNotices(*notices);
  Sweep sweep(spec, options.run, store, inputs, TraceSimulation::Create);
  SweepScreen screen("sweep");
  signals.Attach([&sweep] { sweep.Stop(); });
  SearchTally tally;
  const absl::StatusOr<SweepOutcome> outcome =
      sweep.Run([&](const SweepProgress& progress) {
        tally.Add(progress);
        screen.Show(progress);
      });
  signals.Attach(nullptr);
  screen.Clear();
  GAVEL_RETURN_IF_ERROR(outcome.status());
  std::fputs(RenderOutcome(*outcome, screen.width()).c_str(), stdout);
  if (outcome->stopped) {
    return absl::CancelledError(
        StrCat("stopped; what has ended is in ", path,
               ", and the same command goes on from there"));
  }
  std::printf("results in %s; `gavel report %s` draws them\n", path.c_str(),
              path.c_str());
  return spec.search ? tally.Status() : StatusOf(outcome->runs);
}

}  // namespace

void AddSweepCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<SweepCommandOptions>(
      app, exit_code, "sweep",
      "Simulates all combinations of policies, seeds, rates and clusters, or "
      "searches the highest rate; goes on where it was stopped",
      Run);
  options.run.threads =
      static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  AddOption(command, "sweep", options.sweep, "SWEEP.toml", "what to run")
      ->required();
  command.add_option("-j,--threads", options.run.threads, "runs at a time")
      ->check(CLI::Range(1, 1024))
      ->default_str("all cores");
  AddOption(command, "--output", options.database, "RESULTS.db",
            "results; default: gavel-results/SWEEP.db");
  command.add_flag("--retry", options.run.retry,
                   "runs again what ended in an error or timeout");
}

}  // namespace gavel::study
