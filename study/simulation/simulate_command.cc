#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/daemon/stop_flag.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/progress_bar.h"
#include "coordinator/cli/terminal.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/text_file.h"
#include "runtime/stopwatch.h"
#include "study/commands.h"
#include "study/simulation/draw_flags.h"
#include "study/simulation/past_jobs.h"
#include "study/simulation/simulation_run.h"
#include "study/simulation/simulation_summary.h"

namespace gavel::study {
namespace {

struct SimulateOptions {
  SimulationSpec spec;
  bool generate = false;
  bool all_at_zero = false;  // --static
  std::optional<double> rate_per_h;
  std::string window;
  bool record_rounds = false;
  std::string output;
  std::string saved;
  std::string replay;
  bool cluster_given = false;
  bool round_duration_given = false;
};

constexpr size_t kSavedBytesMax = size_t{4} << 30;

absl::Status Refuse(const char* what) {
  return absl::InvalidArgumentError(what);
}

void AddTraceFlags(CLI::App& command, SimulateOptions* options) {
  SimulationSpec& spec = options->spec;
  AddOption(
      command, "--trace", spec.trace, "FILE",
      "jobs: Gavel's format, a CSV with duration_s and num_gpus, or TOML");
  AddIgnoreColumns(command, &spec.ignore_columns);
  command.add_flag("--generate", options->generate,
                   "draws the jobs as the original Gavel does for the seed");
  command.add_option("--jobs", spec.jobs,
                     "how many; default: enough for --window");
  AddDrawFlags(command, &spec, &options->rate_per_h, &options->all_at_zero);
  AddOption(command, "--seed", spec.seed, "", "of jobs, arrivals and failures");
}

void AddClusterFlags(CLI::App& command, SimulationSpec& spec) {
  AddOption(command, "--cluster", spec.cluster, "",
            "TYPE:COUNT,...; TYPE:36x4 is 36 on servers of 4");
  AddOption(command, "--throughputs", spec.throughputs, "FILE",
            "steps/s of job types on accelerator types: Gavel's JSON");
  AddOption(command, "--unknown-types", spec.unknown_types, "error|equal",
            "jobs of a trace without a row in the throughputs: error, or "
            "equal: equally fast on all accelerator types");
  AddOption(command, "--prices", spec.prices, "",
            "per accelerator and hour: none, gcp, TYPE=PRICE,... or a CSV of "
            "time_s,type,price");
}

void AddEstimatorFlags(CLI::App& command, SimulationSpec& spec) {
  CLI::Option* const estimator =
      command.add_flag("--estimator", spec.estimator,
                       "what pairs of jobs do is estimated from a few profiled "
                       "cells, not read from the throughputs");
  AddOption(command, "--profiling-percentage", spec.profiling_percentage, "",
            "of the cells (type, reference job) that are profiled")
      ->needs(estimator);
  AddOption(command, "--reference-models", spec.reference_models, "",
            "jobs profiled in full, of each scale factor")
      ->needs(estimator);
  AddOption(command, "--profiling-cell", spec.profiling_cell_s, "SECONDS",
            "that a job takes for each cell when it first runs")
      ->needs(estimator);
}

void AddSchedulerFlags(CLI::App& command, SimulationSpec& spec) {
  AddOption(command, "--policy", spec.policy, "",
            "`gavel solve --list-policies` names them");
  AddOption(command, "--mechanism", spec.mechanism, "", "gavel or move_aware");
  AddOption(command, "--queue", spec.queue, "", "global or per_type");
  AddOption(command, "--round-duration", spec.round_duration_s, "SECONDS",
            "from 0.1 on");
  AddOption(
      command, "--reset-interval", spec.reset_interval_s, "SECONDS",
      "least time between two allocations; 0: at every arrival and completion");
  AddOption(command, "--memory-rounds", spec.memory_rounds, "",
            "time received that counts on at a new allocation; 0: none, as in "
            "the original");
  command.add_flag("--placement-sensitive", spec.placement_sensitive,
                   "the policy knows what gangs spread over servers lose");
  command.add_flag("--ideal", spec.ideal,
                   "each job always has its allocated share; no rounds, so no "
                   "overheads, failures, mechanism or queue");
  AddEstimatorFlags(command, spec);
  AddOption(command, "--overheads", spec.overheads, "",
            "none, start=S,pause=S,resume=S,move=S or a TOML file by job type");
}

void AddRunFlags(CLI::App& command, SimulateOptions* options) {
  SimulationSpec& spec = options->spec;
  AddOption(command, "--window", options->window, "BEGIN:END",
            "only these jobs count, and the run ends with them");
  command.add_flag("--steady-state", spec.steady_state,
                   "begins with a full cluster, jobs partly done");
  AddOption(command, "--time-limit", spec.time_limit_s, "SECONDS",
            "simulated; 0: none");
  AddOption(command, "--failures-per-hour", spec.failures_per_hour, "",
            "of each accelerator; its worker starts again");
  AddOption(command, "--checkpoint-interval", spec.checkpoint_interval_s,
            "SECONDS", "at most so much is lost by a failure");
}

absl::Status CheckSource(const SimulateOptions& options) {
  const bool has_trace = !options.spec.trace.empty();
  if (has_trace && options.generate) {
    return Refuse("--trace and --generate exclude each other; give one");
  }
  if (!has_trace && !options.generate) {
    return Refuse("no jobs; give --trace FILE, or --generate with --rate");
  }
  const bool drawn = options.rate_per_h || options.all_at_zero ||
                     options.spec.jobs > 0 || options.spec.multi_gpu ||
                     options.spec.multi_priority || options.spec.slos ||
                     options.spec.fixed_duration_s > 0;
  if (has_trace && drawn) {
    return Refuse(
        "--jobs, --rate, --static, --multi-gpu, --multi-priority, --slos and "
        "--fixed-duration are for --generate; a trace has its own jobs");
  }
  if (options.generate && !options.rate_per_h && !options.all_at_zero) {
    return Refuse("with --generate give --rate JOBS/H, or --static");
  }
  if (options.generate && !options.all_at_zero && *options.rate_per_h == 0) {
    return Refuse(
        "--rate 0: give jobs per hour above 0, or --static for all at time 0");
  }
  if (options.all_at_zero && options.rate_per_h.value_or(0) != 0) {
    return Refuse("--static and --rate exclude each other; give one");
  }
  return absl::OkStatus();
}

void AddSimulationFlags(CLI::App& command, SimulateOptions* options) {
  AddTraceFlags(command, options);
  AddClusterFlags(command, options->spec);
  AddSchedulerFlags(command, options->spec);
  AddRunFlags(command, options);
}

// INVALID_ARGUMENT: flags that contradict each other or are missing, or a spec
// that CheckSpec refuses.
absl::StatusOr<SimulationSpec> SpecOf(const SimulateOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckSource(options));
  SimulationSpec spec = options.spec;
  spec.rate_per_h = options.rate_per_h.value_or(0);
  if (!options.window.empty()) {
    GAVEL_RETURN_IF_ERROR(ParseWindow(options.window, &spec));
  }
  GAVEL_RETURN_IF_ERROR(CheckSpec(spec));
  return spec;
}

// Shows the bar on a terminal, and stops at a signal. Made before other
// threads.
class Watcher {
 public:
  RunControl Control() {
    clock_ = Stopwatch();
    RunControl control;
    control.goes_on = [this](double fraction, Time now) {
      if (terminal_.is_terminal()) Show(fraction, now);
      return !*stop_.get();
    };
    return control;
  }
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
  const StopFlag stop_;
};

// Resumes the run from the file at `path`, if there is one, and saves it there.
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
  Watcher watcher;
  SimulationInputCache cache;
  GAVEL_ASSIGN_OR_RETURN(SimulationInputs inputs, cache.Load(spec));
  GAVEL_ASSIGN_OR_RETURN(const auto notices, cache.CheckRuns({&spec, 1}));
  PrintNotices(notices);
  inputs.options.record_rounds = options.record_rounds;
  RunControl control = watcher.Control();
  GAVEL_RETURN_IF_ERROR(AddSaving(options.saved, &control));
  Watched watched = RunSimulation(inputs, TraceSimulation::Create, control);
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
  if (!options.spec.trace.empty() || options.generate ||
      !options.spec.throughputs.empty() || !options.window.empty() ||
      !options.saved.empty()) {
    return absl::InvalidArgumentError(
        "--replay has its own jobs and throughputs, and is simulated whole; "
        "leave out --trace, --generate, --throughputs, --window and --save");
  }
  if (!options.output.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(options.output));
  }
  Watcher watcher;
  const absl::StatusOr<std::string> text = SimulateReplay(
      {JournalIn(options.replay), options.spec, options.cluster_given,
       options.round_duration_given, options.record_rounds, options.output},
      watcher.Control());
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
  GAVEL_ASSIGN_OR_RETURN(const SimulationSpec spec, SpecOf(options));
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
  AddSimulationFlags(*command, options.get());
  command->add_flag(
      "--record-rounds", options->record_rounds,
      "puts every lease, and the use of accelerators over time, into --output");
  AddOption(*command, "--output", options->output, "OUT.json",
            "writes all results to this file, as JSON");
  AddOption(*command, "--save", options->saved, "FILE",
            "keeps the state of the simulation there, each minute and on "
            "Ctrl-C; the same command goes on from it");
  AddOption(*command, "--replay", options->replay, "HISTORY.db",
            "the jobs of a coordinator's journal, compared with what really "
            "became of them (STATE/journal.db, or a copy)");
  command->callback([options, command, exit_code] {
    options->cluster_given = command->count("--cluster") > 0;
    options->round_duration_given = command->count("--round-duration") > 0;
    *exit_code = ExitCodeOf(Run(*options));
  });
}

}  // namespace gavel::study
