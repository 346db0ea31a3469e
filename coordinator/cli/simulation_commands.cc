// The commands of simulations: `gavel trace` makes and shows traces of jobs,
// `gavel simulate` replays one, `gavel sweep` simulates many into a database,
// and `gavel report` draws the results of one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/command_options.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/past_jobs.h"
#include "coordinator/cli/processes.h"
#include "coordinator/cli/terminal.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/json_fields.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "coordinator/workload/trace_generator.h"
#include "core/status.h"
#include "core/text.h"
#include "core/units.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "study/policy_case.h"
#include "study/report.h"
#include "study/report_page.h"
#include "study/simulation_run.h"
#include "study/simulation_spec.h"
#include "study/simulation_store.h"
#include "study/simulation_summary.h"
#include "study/sweep.h"

namespace gavel {
namespace {

// ---- the options that `gavel simulate` and `gavel trace` share: which jobs to
// draw, and which of a trace's columns to leave out

// `Drawn` is GeneratorOptions, or SimulationSpec, which has fields of the same
// names. The pointed-to objects must outlive the command.
template <class Drawn>
void AddDrawFlags(CLI::App& command, Drawn* drawn,
                  std::optional<double>* rate_per_h, bool* all_at_zero) {
  command.add_option("--rate", *rate_per_h, "mean arrivals")
      ->type_name("JOBS/H");
  command.add_flag("--static", *all_at_zero, "all jobs arrive at time 0");
  command.add_flag("--multi-gpu", drawn->multi_gpu,
                   "30 % of the jobs need 2, 4 or 8 accelerators");
  command.add_flag("--multi-priority", drawn->multi_priority,
                   "a fifth of the jobs has weight 5");
  command.add_flag("--slos", drawn->slos,
                   "deadlines of 1.2, 2 or 10 times the duration");
  AddOption(command, "--app-jobs-max", drawn->app_jobs_max, "JOBS",
            "jobs come in apps of 1 to so many, and --rate counts apps; 0: "
            "jobs without apps")
      ->check(CLI::Range(0, 10'000));
  AddOption(command, "--interactive", drawn->interactive, "SHARE",
            "of the arrivals that are interactive jobs: one accelerator for a "
            "drawn time, at once and without a pause")
      ->check(CLI::Range(0.0, 1.0));
  AddOption(command, "--interactive-shortest", drawn->interactive_shortest_s,
            "SECONDS", "of their durations");
  AddOption(command, "--interactive-longest", drawn->interactive_longest_s,
            "SECONDS", "the same");
  command
      .add_option("--fixed-duration", drawn->fixed_duration_s,
                  "of every job on a v100, in place of a drawn one")
      ->type_name("SECONDS");
  AddOption(command, "--scale-factor-max", drawn->scale_factor_max, "",
            "larger jobs are dropped");
}

// `columns`: as ParseTrace takes them; outlives the command.
void AddIgnoreColumns(CLI::App& command, std::string* columns) {
  command
      .add_option_function<std::string>(
          "--ignore-columns",
          [columns](const std::string& names) {
            *columns = names.empty() ? kAllOtherColumns : names;
          },
          "leaves out these columns of a CSV, or without NAMES all that are "
          "not known")
      ->type_name("NAMES")
      ->expected(0, 1);
}

// ---- trace

struct GenerateOptions {
  GeneratorOptions generator;
  uint64_t jobs = 0;
  std::optional<double> rate_per_h;
  bool all_at_zero = false;
  std::string throughputs;
  std::string output;
};

struct ShowOptions {
  std::string trace;
  std::string ignore_columns;
  uint64_t rows = 10;
};

// The mean time between arrivals; 0: all jobs are there at time 0.
absl::StatusOr<double> InterarrivalOf(const GenerateOptions& options) {
  if (options.all_at_zero && options.rate_per_h) {
    return absl::InvalidArgumentError(
        "--static and --rate exclude each other; give one");
  }
  if (options.all_at_zero) return 0.0;
  if (!options.rate_per_h) {
    return absl::InvalidArgumentError(
        "no arrivals; give --rate JOBS/H, or --static");
  }
  if (!(*options.rate_per_h > 0)) {
    return absl::InvalidArgumentError(
        StrCat("--rate is ", *options.rate_per_h,
               "; give jobs per hour above 0, or --static"));
  }
  return kHour_s / *options.rate_per_h;
}

absl::Status Generate(GenerateOptions options) {
  GAVEL_ASSIGN_OR_RETURN(options.generator.interarrival_s,
                         InterarrivalOf(options));
  GAVEL_ASSIGN_OR_RETURN(const std::string json,
                         ReadFile(options.throughputs, kThroughputBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const ThroughputTable throughputs,
                         ThroughputTable::Parse(json, options.throughputs));
  GAVEL_ASSIGN_OR_RETURN(
      TraceGenerator generator,
      TraceGenerator::Create(options.generator, throughputs));
  const Trace trace = generator.Take(options.jobs);
  const std::string text = FormatTrace(trace);
  if (options.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return absl::OkStatus();
  }
  GAVEL_RETURN_IF_ERROR(WriteFile(options.output, text));
  std::printf("%s: %s\n", options.output.c_str(),
              study::RenderTraceLine(trace).c_str());
  return absl::OkStatus();
}

absl::Status ShowTrace(const ShowOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(options.trace, kTraceBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const Trace trace, ParseTrace(text, options.trace,
                                                       options.ignore_columns));
  PrintNotices(trace.notices);
  const std::string shown =
      study::RenderTrace(trace, options.rows, Terminal().width());
  std::fputs(shown.c_str(), stdout);
  return absl::OkStatus();
}

void AddGenerate(CLI::App& parent, int* exit_code) {
  constexpr uint64_t kJobsMax = 10'000'000;
  auto [command, options] = AddCommand<GenerateOptions>(
      parent, exit_code, "generate",
      "Draws jobs as the original Gavel does for the seed, and writes them in "
      "its format (steps and weights as whole numbers)",
      Generate);
  command.add_option("--jobs", options.jobs, "how many")
      ->required()
      ->check(CLI::Range(uint64_t{1}, kJobsMax));
  GeneratorOptions& generator = options.generator;
  AddDrawFlags(command, &generator, &options.rate_per_h, &options.all_at_zero);
  AddOption(command, "--seed", generator.seed, "", "");
  AddOption(command, "--throughputs", options.throughputs, "FILE",
            "steps/s of job types on accelerator types: Gavel's JSON")
      ->required();
  AddOption(command, "--output", options.output, "FILE",
            "default: standard output");
}

void AddShow(CLI::App& parent, int* exit_code) {
  auto [command, options] = AddCommand<ShowOptions>(
      parent, exit_code, "show",
      "Says what is in a trace, and lists its first jobs", ShowTrace);
  AddOption(command, "trace", options.trace, "FILE",
            "jobs: Gavel's format, a CSV with duration_s and num_gpus, or TOML")
      ->required();
  AddIgnoreColumns(command, &options.ignore_columns);
  AddOption(command, "--rows", options.rows, "", "of the first jobs");
}

// ---- simulate

struct SimulateOptions {
  study::SimulationSpec spec;
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

void AddTraceFlags(CLI::App& command, SimulateOptions* options) {
  study::SimulationSpec& spec = options->spec;
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

void AddClusterFlags(CLI::App& command, study::SimulationSpec& spec) {
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

void AddEstimatorFlags(CLI::App& command, study::SimulationSpec& spec) {
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

void AddSchedulerFlags(CLI::App& command, study::SimulationSpec& spec) {
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
  command.add_flag("--introspection", spec.introspection,
                   "jobs are tried beside others and elsewhere, and what does "
                   "not help is undone");
  command.add_flag("--ideal", spec.ideal,
                   "each job always has its allocated share; no rounds, so no "
                   "overheads, failures, mechanism or queue");
  AddEstimatorFlags(command, spec);
  AddOption(command, "--overheads", spec.overheads, "",
            "none, start=S,pause=S,resume=S,move=S or a TOML file by job type");
}

void AddRunFlags(CLI::App& command, SimulateOptions* options) {
  study::SimulationSpec& spec = options->spec;
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
  AddOption(command, "--lying-apps", spec.lying_apps, "PART",
            "of the apps that overstate their rho");
  AddOption(command, "--lie", spec.lie, "", "times their rho");
  AddOption(command, "--sensitive-apps", spec.sensitive_apps, "PART",
            "of the apps whose gangs lose speed on several servers");
  AddOption(command, "--spread-speed", spec.spread_speed, "PART",
            "of it that these gangs keep there");
}

absl::Status CheckSource(const SimulateOptions& options) {
  const bool has_trace = !options.spec.trace.empty();
  if (has_trace && options.generate) {
    return Refuse("--trace and --generate exclude each other; give one");
  }
  if (!has_trace && !options.generate) {
    return Refuse("no jobs; give --trace FILE, or --generate with --rate");
  }
  const bool drawn =
      options.rate_per_h || options.all_at_zero || options.spec.jobs > 0 ||
      options.spec.multi_gpu || options.spec.multi_priority ||
      options.spec.slos || options.spec.app_jobs_max > 0 ||
      options.spec.interactive > 0 || options.spec.fixed_duration_s > 0;
  if (has_trace && drawn) {
    return Refuse(
        "--jobs, --rate, --static, --multi-gpu, --multi-priority, --slos, "
        "--app-jobs-max, --interactive and --fixed-duration are for "
        "--generate; a trace has its own jobs");
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
absl::StatusOr<study::SimulationSpec> SpecOf(const SimulateOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckSource(options));
  study::SimulationSpec spec = options.spec;
  spec.rate_per_h = options.rate_per_h.value_or(0);
  if (!options.window.empty()) {
    GAVEL_RETURN_IF_ERROR(study::ParseWindow(options.window, &spec));
  }
  GAVEL_RETURN_IF_ERROR(study::CheckSpec(spec));
  return spec;
}

// Shows the bar on a terminal, and stops at a signal. Made before other
// threads.
class Watcher {
 public:
  study::RunControl Control() {
    clock_ = Stopwatch();
    study::RunControl control;
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
absl::Status AddSaving(const std::string& path, study::RunControl* control) {
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

absl::StatusOr<study::Watched> Simulate(const SimulateOptions& options,
                                        const study::SimulationSpec& spec) {
  Watcher watcher;
  study::SimulationInputCache cache;
  GAVEL_ASSIGN_OR_RETURN(study::SimulationInputs inputs, cache.Load(spec));
  GAVEL_ASSIGN_OR_RETURN(const auto notices, cache.CheckRuns({&spec, 1}));
  PrintNotices(notices);
  inputs.options.record_rounds = options.record_rounds;
  study::RunControl control = watcher.Control();
  GAVEL_RETURN_IF_ERROR(AddSaving(options.saved, &control));
  study::Watched watched =
      study::RunSimulation(inputs, TraceSimulation::Create, control);
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

absl::Status RunSimulate(const SimulateOptions& options) {
  if (options.record_rounds && options.output.empty()) {
    return absl::InvalidArgumentError(
        "--record-rounds writes into the results; give --output OUT.json");
  }
  if (!options.replay.empty()) return RunReplay(options);
  GAVEL_ASSIGN_OR_RETURN(const study::SimulationSpec spec, SpecOf(options));
  if (!options.output.empty()) {
    GAVEL_RETURN_IF_ERROR(CheckWritable(options.output));
  }
  GAVEL_ASSIGN_OR_RETURN(const study::Watched watched, Simulate(options, spec));
  std::fputs(study::RenderSummary(spec, watched.run).c_str(), stdout);
  if (!options.output.empty()) {
    GAVEL_RETURN_IF_ERROR(WriteFile(
        options.output, study::SummaryJson(spec, watched.run).dump(1) + "\n"));
  }
  if (watched.stopped) {
    return absl::CancelledError(
        options.saved.empty()
            ? "stopped before all jobs ended"
            : "stopped before all jobs ended; the same command goes on");
  }
  if (watched.run.status == study::RunStatus::kError) {
    return absl::InternalError(watched.run.detail);
  }
  const SimulationResult& result = watched.run.result;
  if (!result.complete && !(result.cluster_utilization > 0)) {
    return absl::FailedPreconditionError(
        StrCat("no job ran: ", watched.run.detail));
  }
  return absl::OkStatus();
}

// ---- sweep

namespace fs = std::filesystem;

struct SweepCommandOptions {
  std::string sweep;
  std::string database;
  study::SweepOptions run;
};

absl::StatusOr<study::SweepSpec> ReadSweep(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const auto text,
                         ReadFile(path, study::kSweepBytesMax + 1));
  return study::ParseSweep(text, path, fs::path(path).parent_path().string());
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

bool IsError(const study::StoredRun& run) {
  return run.run.status == study::RunStatus::kError;
}

absl::Status StatusOf(const std::vector<study::StoredRun>& runs) {
  return ErrorsStatus(static_cast<size_t>(std::ranges::count_if(runs, IsError)),
                      runs.size());
}

// The outcome of a search has no runs: those that end are counted.
class SearchTally {
 public:
  void Add(const study::SweepProgress& progress) {
    runs_ += progress.ended.size();
    for (const study::EndedRun& ended : progress.ended)
      errors_ += IsError(ended.run);
  }
  absl::Status Status() const { return ErrorsStatus(errors_, runs_); }

 private:
  size_t runs_ = 0;
  size_t errors_ = 0;
};

absl::Status RunSweep(const SweepCommandOptions& options) {
  StopSignals signals;
  GAVEL_ASSIGN_OR_RETURN(const study::SweepSpec spec, ReadSweep(options.sweep));
  GAVEL_ASSIGN_OR_RETURN(const std::string path, DatabaseOf(options));
  GAVEL_ASSIGN_OR_RETURN(study::SimulationStore store,
                         study::SimulationStore::Open(path));
  study::SimulationInputCache inputs;
  const absl::StatusOr<std::vector<std::string>> notices =
      inputs.CheckRuns(spec.runs);
  GAVEL_RETURN_IF_ERROR(Annotate(notices.status(), options.sweep));
  PrintNotices(*notices);
  study::Sweep sweep(spec, options.run, store, inputs, TraceSimulation::Create);
  SweepScreen screen("sweep");
  signals.Attach([&sweep] { sweep.Stop(); });
  SearchTally tally;
  const absl::StatusOr<study::SweepOutcome> outcome =
      sweep.Run([&](const study::SweepProgress& progress) {
        tally.Add(progress);
        screen.Show(progress);
      });
  signals.Attach(nullptr);
  screen.Clear();
  GAVEL_RETURN_IF_ERROR(outcome.status());
  std::fputs(study::RenderOutcome(*outcome, screen.width()).c_str(), stdout);
  if (outcome->stopped) {
    return absl::CancelledError(
        StrCat("stopped; what has ended is in ", path,
               ", and the same command goes on from there"));
  }
  std::printf("results in %s; `gavel report %s` draws them\n", path.c_str(),
              path.c_str());
  return spec.search ? tally.Status() : StatusOf(outcome->runs);
}

// ---- report

struct ReportFlags {
  std::string database;
  std::string output = "report.html";
  std::string csv_directory;
  std::string title;
  bool each_run = false;
};

absl::Status WriteCsvs(const study::ReportPage& page,
                       const std::string& directory) {
  GAVEL_RETURN_IF_ERROR(MakeDirectory(directory));
  for (const study::ReportSection& section : page.sections) {
    const fs::path path = fs::path(directory) / (section.id + ".csv");
    GAVEL_RETURN_IF_ERROR(WriteFile(path.string(), section.csv.text()));
  }
  return absl::OkStatus();
}

absl::Status RunReport(const ReportFlags& options) {
  GAVEL_ASSIGN_OR_RETURN(
      study::SimulationStore store,
      study::SimulationStore::OpenExisting(options.database));
  const std::string title =
      options.title.empty()
          ? StrCat("Gavel: ", fs::path(options.database).stem().string())
          : options.title;
  const absl::StatusOr<study::ReportPage> made =
      study::MakeReport(store, {title, options.each_run});
  if (!made.ok()) return Annotate(made.status(), options.database);
  const study::ReportPage& page = *made;
  GAVEL_RETURN_IF_ERROR(WriteFile(options.output, study::RenderPage(page)));
  if (!options.csv_directory.empty()) {
    GAVEL_RETURN_IF_ERROR(WriteCsvs(page, options.csv_directory));
  }
  std::printf("%s: %s\n", options.output.c_str(), page.summary.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddTraceCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("trace", "Makes and shows traces of jobs");
  command->require_subcommand(1);
  AddGenerate(*command, exit_code);
  AddShow(*command, exit_code);
}

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
    *exit_code = ExitCodeOf(RunSimulate(*options));
  });
}

void AddSweepCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<SweepCommandOptions>(
      app, exit_code, "sweep",
      "Simulates all combinations of policies, seeds, rates and clusters, or "
      "searches the highest rate; goes on where it was stopped",
      RunSweep);
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

void AddReportCommand(CLI::App& app, int* exit_code) {
  auto [command, options] = AddCommand<ReportFlags>(
      app, exit_code, "report",
      "Draws the results of a sweep: one HTML page, and CSV", RunReport);
  AddOption(command, "database", options.database, "RESULTS.db",
            "of `gavel sweep`")
      ->required();
  AddOption(command, "--output", options.output, "REPORT.html", "");
  AddOption(command, "--csv", options.csv_directory, "DIRECTORY",
            "writes the data of each plot there, too");
  command.add_flag("--each-run", options.each_run,
                   "also charts of single runs: accelerators in use by type, "
                   "the share of each job, rounds where they were recorded");
  AddOption(command, "--title", options.title, "", "of the page");
}

// ---- `gavel solve`.

namespace {

// Pairs of a thousand jobs take about 100 MB.
constexpr size_t kInputBytesMax = size_t{1} << 30;

struct SolveOptions {
  std::string policy;
  std::string input;
  std::string output;
  std::string solver = "auto";
};

SolverChoice SolverOf(const std::string& name) {
  if (name == "highs") return SolverChoice::kHighs;
  return name == "prices" ? SolverChoice::kPrices : SolverChoice::kAuto;
}

// Tells the user if HiGHS answered although the price solver was requested.
void TellOtherSolver(const PolicyProblem& problem, PolicyResult* result) {
  if (problem.solver != SolverChoice::kPrices ||
      !result->solver.starts_with("highs")) {
    return;
  }
  StrAppend(&result->detail, result->detail.empty() ? "" : "; ",
            "solved by HiGHS: prices don't serve packed pairs, or deadlines "
            "that can't all be met");
}

absl::StatusOr<study::PolicyAnswer> Answer(const Policy& policy,
                                           study::PolicyCase of) {
  const Stopwatch clock;
  absl::StatusOr<PolicyResult> result = policy.Solve(of.problem);
  const double time_s = clock.elapsed_s();
  if (!result.ok()) {
    return absl::Status(
        result.status().code(),
        StrCat("case ", of.number, ": ",
               study::WithIdsOfCase(ToStd(result.status().message()))));
  }
  TellOtherSolver(of.problem, &*result);
  return study::PolicyAnswer{std::move(of), *std::move(result), time_s};
}

absl::StatusOr<std::vector<study::PolicyAnswer>> AnswerAll(
    const Policy& policy, const SolveOptions& options,
    const std::string& text) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson json, ParseJson(text));
  GAVEL_ASSIGN_OR_RETURN(auto cases,
                         study::ParsePolicyCases(json, options.policy));
  std::vector<study::PolicyAnswer> answers;
  for (study::PolicyCase& one : cases) {
    one.problem.solver = SolverOf(options.solver);
    GAVEL_ASSIGN_OR_RETURN(study::PolicyAnswer answer,
                           Answer(policy, std::move(one)));
    answers.push_back(std::move(answer));
  }
  return answers;
}

absl::Status Solve(const SolveOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const auto policy, MakePolicy(options.policy));
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(options.input, kInputBytesMax));
  const absl::StatusOr<std::vector<study::PolicyAnswer>> answers =
      AnswerAll(*policy, options, text);
  GAVEL_RETURN_IF_ERROR(Annotate(answers.status(), options.input));
  if (!options.output.empty()) {
    return WriteFile(
        options.output,
        study::AnswersJson(options.policy, *answers).dump(2) + "\n");
  }
  const std::string shown =
      study::RenderAnswers(options.policy, *answers, Terminal().width());
  std::fputs(shown.c_str(), stdout);
  return absl::OkStatus();
}

absl::Status PrintExample(const std::string& policy) {
  GAVEL_RETURN_IF_ERROR(MakePolicy(policy).status());
  std::printf("%s\n", study::PolicyExample(policy).dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddSolveCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<SolveOptions>();
  CLI::App* command = app.add_subcommand(
      "solve",
      "Asks a policy for its allocation of given jobs, without any cluster; "
      "tells the objective and how far it can be from the best one");
  AddOption(*command, "--policy", options->policy, "NAME",
            "see --list-policies");
  AddOption(*command, "--input", options->input, "CASE.json",
            "jobs, throughputs and cluster_spec as JSON, one case or several "
            "in \"cases\"");
  AddOption(*command, "--output", options->output, "OUT.json",
            "writes JSON there instead of a table to the terminal");
  AddOption(*command, "--solver", options->solver, "auto|highs|prices",
            "auto: prices where they serve and prove their answer, else HiGHS; "
            "prices: their answer even without its proof, HiGHS only where "
            "they don't serve, which REASON tells (packed pairs, deadlines "
            "that can't all be met)")
      ->check(CLI::IsMember({"auto", "highs", "prices"}).description(""));
  const auto example = std::make_shared<std::string>();
  AddOption(
      *command, "--example", *example, "POLICY",
      "prints a small input for this policy; docs/solve.md has every field");
  const auto list = std::make_shared<bool>(false);
  command->add_flag("--list-policies", *list, "names all policies");
  command->callback([options, example, list, exit_code] {
    if (*list) {
      for (const std::string& name : PolicyNames()) std::puts(name.c_str());
      return;
    }
    if (!example->empty()) {
      *exit_code = ExitCodeOf(PrintExample(*example));
      return;
    }
    if (options->policy.empty()) throw CLI::RequiredError("--policy");
    if (options->input.empty()) throw CLI::RequiredError("--input");
    *exit_code = ExitCodeOf(Solve(*options));
  });
}

}  // namespace gavel
