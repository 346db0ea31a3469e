#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/stop_signals.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/progress_bar.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/text_file.h"
#include "runtime/stopwatch.h"
#include "study/simulation/simulate_replay.h"
#include "study/simulation/simulation_flags.h"
#include "study/simulation/simulation_run.h"
#include "study/simulation/simulation_summary.h"

namespace gavel {
namespace {

struct SimulateOptions {
  SimulationFlags flags;
  bool record_rounds = false;
  std::string output;
  std::string saved;
  std::string replay;
  bool cluster_given = false;
  bool round_duration_given = false;
};

constexpr size_t kSavedBytesMax = size_t{4} << 30;

// Shows the bar on a terminal, and stops when asked to.
class Watcher {
 public:
  RunControl Control() {
    RunControl control;
    control.goes_on = [this](double fraction, Time now) {
      if (terminal_.is_terminal()) Show(fraction, now);
      return !stop_;
    };
    return control;
  }
  void Stop() { stop_ = true; }
  void Clear() {
    if (terminal_.is_terminal()) terminal_.Show("");
  }

 private:
  void Show(double fraction, Time now) {
    terminal_.Show(RenderBar("simulating", fraction, clock_.elapsed_s(),
                             absl::StrFormat("day %.1f", now / 86400),
                             terminal_.width()));
  }

  Terminal terminal_;
  Stopwatch clock_;
  std::atomic<bool> stop_ = false;
};

// The run goes on from the file at `path`, if it is there, and is saved to it.
absl::Status AddSaving(const std::string& path, RunControl* control) {
  if (path.empty()) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(CheckWritable(path));
  control->save = [path](const std::string& bytes) {
    return ReplaceFile(path, bytes, kSharedMode);
  };
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(control->resumed, ReadFile(path, kSavedBytesMax));
  return absl::OkStatus();
}

absl::StatusOr<Watched> Simulate(const SimulateOptions& options,
                                 const SimulationSpec& spec) {
  StopSignals signals;
  SimulationInputCache cache;
  GAVEL_ASSIGN_OR_RETURN(SimulationInputs inputs, cache.Load(spec));
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> notices,
                         cache.CheckRuns({&spec, 1}));
  PrintNotices(notices);
  inputs.options.record_rounds = options.record_rounds;
  Watcher watcher;
  RunControl control = watcher.Control();
  GAVEL_RETURN_IF_ERROR(AddSaving(options.saved, &control));
  signals.Attach([&watcher] { watcher.Stop(); });
  Watched watched = RunSimulation(inputs, TraceSimulation::Create, control);
  signals.Attach(nullptr);
  watcher.Clear();
  if (!watched.started) {
    return absl::InvalidArgumentError(
        control.resumed.empty()
            ? watched.run.detail
            : StrCat(options.saved, ": ", watched.run.detail,
                     "; remove it to begin anew"));
  }
  std::error_code error;
  if (watched.run.result.complete && !options.saved.empty()) {
    std::filesystem::remove(options.saved, error);
  }
  return watched;
}

// A coordinator's past in place of a trace.
absl::Status RunReplay(const SimulateOptions& options) {
  const SimulationFlags& flags = options.flags;
  if (!flags.spec.trace.empty() || flags.generate ||
      !flags.spec.throughputs.empty() || !flags.window.empty() ||
      !options.saved.empty()) {
    return absl::InvalidArgumentError(
        "--replay has its own jobs and throughputs, and is simulated whole; "
        "leave out --trace, --generate, --throughputs, --window and --save");
  }
  if (!options.output.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(options.output));
  }
  StopSignals signals;
  Watcher watcher;
  signals.Attach([&watcher] { watcher.Stop(); });
  const absl::StatusOr<std::string> text = SimulateReplay(
      {JournalIn(options.replay), flags.spec, options.cluster_given,
       options.round_duration_given, options.record_rounds, options.output},
      watcher.Control());
  signals.Attach(nullptr);
  watcher.Clear();
  GAVEL_RETURN_IF_ERROR(text.status());
  std::fputs(text->c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Run(const SimulateOptions& options) {
  if (options.record_rounds && options.output.empty()) {
    return absl::InvalidArgumentError(
        "--record-rounds writes into the results; give --output OUT.json");
  }
  if (!options.replay.empty()) return RunReplay(options);
  GAVEL_ASSIGN_OR_RETURN(const SimulationSpec spec, SpecOf(options.flags));
  if (!options.output.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(options.output));
  }
  GAVEL_ASSIGN_OR_RETURN(const Watched watched, Simulate(options, spec));
  std::fputs(RenderSummary(spec, watched.run).c_str(), stdout);
  if (!options.output.empty()) {
    GAVEL_RETURN_IF_ERROR(WriteFile(
        options.output, SummaryJson(spec, watched.run).dump(1) + "\n"));
  }
  if (watched.stopped) {
    return absl::CancelledError(
        options.saved.empty()
            ? "stopped before all jobs ended"
            : "stopped before all jobs ended; the same command goes on");
  }
  if (watched.run.status == RunStatus::kError) {
    return absl::InternalError(watched.run.detail);
  }
  const SimulationResult& result = watched.run.result;
  if (!result.complete && !(result.cluster_utilization > 0)) {
    return absl::FailedPreconditionError(
        StrCat("no job ran: ", watched.run.detail));
  }
  return absl::OkStatus();
}

}  // namespace

void AddSimulateCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand(
      "simulate",
      "Replays a trace of jobs through the scheduler in virtual time");
  AddSimulationFlags(*command, &options->flags);
  command->add_flag("--record-rounds", options->record_rounds,
                    "puts every lease, and the use of accelerators over time, "
                    "into --output");
  command
      ->add_option("--output", options->output,
                   "writes all results to this file, as JSON")
      ->type_name("OUT.json");
  command
      ->add_option("--save", options->saved,
                   "keeps the state of the simulation there, each minute and "
                   "on Ctrl-C; the same command goes on from it")
      ->type_name("FILE");
  command
      ->add_option("--replay", options->replay,
                   "the jobs of a coordinator's journal, compared with what "
                   "really became of them (STATE/journal.db, or a copy)")
      ->type_name("HISTORY.db");
  command->callback([options, command, exit_code] {
    options->cluster_given = command->count("--cluster") > 0;
    options->round_duration_given = command->count("--round-duration") > 0;
    *exit_code = ExitCodeOf(Run(*options));
  });
}

}  // namespace gavel
