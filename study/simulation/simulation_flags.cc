#include "study/simulation/simulation_flags.h"

#include "CLI/CLI.hpp"
#include "core/status.h"
#include "study/simulation/draw_flags.h"

namespace gavel {
namespace {

absl::Status Refuse(const char* what) {
  return absl::InvalidArgumentError(what);
}

void AddTraceFlags(CLI::App& command, SimulationFlags* flags) {
  SimulationSpec& spec = flags->spec;
  command
      .add_option("--trace", spec.trace,
                  "jobs: Gavel's format, a CSV with duration_s and num_gpus, "
                  "or TOML")
      ->type_name("FILE");
  command.add_flag("--generate", flags->generate,
                   "draws the jobs as the original Gavel does for the seed");
  command.add_option("--jobs", spec.jobs,
                     "how many; default: enough for --window");
  AddDrawFlags(command, &spec, &flags->rate_per_h, &flags->all_at_zero);
  command.add_option("--seed", spec.seed, "of jobs, arrivals and failures")
      ->capture_default_str();
}

void AddClusterFlags(CLI::App& command, SimulationSpec& spec) {
  command
      .add_option("--cluster", spec.cluster,
                  "TYPE:COUNT,...; TYPE:36x4 is 36 on servers of 4")
      ->capture_default_str();
  command
      .add_option("--throughputs", spec.throughputs,
                  "steps/s of job types on accelerator types: Gavel's JSON")
      ->type_name("FILE");
  command
      .add_option("--unknown-types", spec.unknown_types,
                  "jobs of a trace without a row in the throughputs: error, or "
                  "equal: equally fast on all accelerator types")
      ->type_name("error|equal")
      ->capture_default_str();
  command
      .add_option("--prices", spec.prices,
                  "per accelerator and hour: none, gcp, TYPE=PRICE,... or a "
                  "CSV of time_s,type,price")
      ->capture_default_str();
}

void AddEstimatorFlags(CLI::App& command, SimulationSpec& spec) {
  CLI::Option* const estimator = command.add_flag(
      "--estimator", spec.estimator,
      "what pairs of jobs do is estimated from a few profiled cells, not read "
      "from the throughputs");
  command
      .add_option("--profiling-percentage", spec.profiling_percentage,
                  "of the cells (type, reference job) that are profiled")
      ->needs(estimator)
      ->capture_default_str();
  command
      .add_option("--reference-models", spec.reference_models,
                  "jobs profiled in full, of each scale factor")
      ->needs(estimator)
      ->capture_default_str();
  command
      .add_option("--profiling-cell", spec.profiling_cell_s,
                  "that a job takes for each cell when it first runs")
      ->type_name("SECONDS")
      ->needs(estimator)
      ->capture_default_str();
}

void AddSchedulerFlags(CLI::App& command, SimulationSpec& spec) {
  command
      .add_option("--policy", spec.policy,
                  "`gavel solve --list-policies` names them")
      ->capture_default_str();
  command.add_option("--mechanism", spec.mechanism, "gavel or move_aware")
      ->capture_default_str();
  command.add_option("--queue", spec.queue, "global or per_type")
      ->capture_default_str();
  command.add_option("--round-duration", spec.round_duration_s, "from 0.1 on")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      .add_option("--reset-interval", spec.reset_interval_s,
                  "least time between two allocations; 0: at every arrival "
                  "and completion")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      .add_option("--memory-rounds", spec.memory_rounds,
                  "time received that counts on at a new allocation; 0: none, "
                  "as in the original")
      ->capture_default_str();
  command.add_flag("--placement-sensitive", spec.placement_sensitive,
                   "the policy knows what gangs spread over servers lose");
  command.add_flag("--ideal", spec.ideal,
                   "each job always has its allocated share; no rounds");
  AddEstimatorFlags(command, spec);
  command
      .add_option("--overheads", spec.overheads,
                  "none, start=S,pause=S,resume=S,move=S or a TOML file by job "
                  "type")
      ->capture_default_str();
}

void AddRunFlags(CLI::App& command, SimulationFlags* flags) {
  SimulationSpec& spec = flags->spec;
  command
      .add_option("--window", flags->window,
                  "only these jobs count, and the run ends with them")
      ->type_name("BEGIN:END");
  command.add_flag("--steady-state", spec.steady_state,
                   "begins with a full cluster, jobs partly done");
  command.add_option("--time-limit", spec.time_limit_s, "simulated; 0: none")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      .add_option("--failures-per-hour", spec.failures_per_hour,
                  "of each accelerator; its worker starts again")
      ->capture_default_str();
  command
      .add_option("--checkpoint-interval", spec.checkpoint_interval_s,
                  "at most so much is lost by a failure")
      ->type_name("SECONDS")
      ->capture_default_str();
}

absl::Status CheckSource(const SimulationFlags& flags) {
  const bool has_trace = !flags.spec.trace.empty();
  if (has_trace && flags.generate) {
    return Refuse("--trace and --generate exclude each other; give one");
  }
  if (!has_trace && !flags.generate) {
    return Refuse("no jobs; give --trace FILE, or --generate with --rate");
  }
  const bool drawn = flags.rate_per_h || flags.all_at_zero ||
                     flags.spec.jobs > 0 || flags.spec.multi_gpu ||
                     flags.spec.multi_priority || flags.spec.slos ||
                     flags.spec.fixed_duration_s > 0;
  if (has_trace && drawn) {
    return Refuse(
        "--jobs, --rate, --static, --multi-gpu, --multi-priority, --slos and "
        "--fixed-duration are for --generate; a trace has its own jobs");
  }
  if (flags.generate && !flags.rate_per_h && !flags.all_at_zero) {
    return Refuse("with --generate give --rate JOBS/H, or --static");
  }
  if (flags.generate && !flags.all_at_zero && *flags.rate_per_h == 0) {
    return Refuse(
        "--rate 0: give jobs per hour above 0, or --static for all at time 0");
  }
  if (flags.all_at_zero && flags.rate_per_h.value_or(0) != 0) {
    return Refuse("--static and --rate exclude each other; give one");
  }
  return absl::OkStatus();
}

}  // namespace

void AddSimulationFlags(CLI::App& command, SimulationFlags* flags) {
  AddTraceFlags(command, flags);
  AddClusterFlags(command, flags->spec);
  AddSchedulerFlags(command, flags->spec);
  AddRunFlags(command, flags);
}

absl::StatusOr<SimulationSpec> SpecOf(const SimulationFlags& flags) {
  GAVEL_RETURN_IF_ERROR(CheckSource(flags));
  SimulationSpec spec = flags.spec;
  spec.rate_per_h = flags.rate_per_h.value_or(0);
  if (!flags.window.empty()) {
    GAVEL_RETURN_IF_ERROR(ParseWindow(flags.window, &spec));
  }
  GAVEL_RETURN_IF_ERROR(CheckSpec(spec));
  return spec;
}

}  // namespace gavel
