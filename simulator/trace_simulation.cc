#include "simulator/trace_simulation.h"

#include <cmath>
#include <utility>

#include "coordinator/workload/file_keys.h"
#include "core/status.h"
#include "core/text.h"
#include "simulator/fluid_simulation.h"
#include "simulator/round_simulation.h"
#include "simulator/simulated_work.h"

namespace gavel {
namespace {

absl::Status CheckFigure(std::string_view name, double value, double min,
                         bool above_min) {
  const bool fine =
      !std::isnan(value) && (above_min ? value > min : value >= min);
  if (fine) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(name, " is ", value, "; give one ",
             above_min ? "above " : "of at least ", min));
}

absl::Status CheckProfiling(const SimulationOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckFigure("the part of the cells that is profiled",
                                    options.profiling.part, 0, true));
  GAVEL_RETURN_IF_ERROR(CheckFigure("the time to profile a cell",
                                    options.profiling.cell_s, 0, false));
  if (options.profiling.part > 1) {
    return absl::InvalidArgumentError(
        StrCat("the part of the cells that is profiled is ",
               options.profiling.part, "; give one of at most 1"));
  }
  if (options.ideal) {
    return absl::InvalidArgumentError(
        "the ideal simulation knows all throughputs; leave out the estimator");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const SimulationOptions& options) {
  GAVEL_RETURN_IF_ERROR(CheckFigure("the round duration",
                                    options.engine.round_duration_s,
                                    kRoundDurationMin_s, false));
  GAVEL_RETURN_IF_ERROR(CheckFigure("the reset interval",
                                    options.engine.reset_interval_s, 0, false));
  GAVEL_RETURN_IF_ERROR(
      CheckFigure("the time limit", options.time_limit_s, 0, true));
  GAVEL_RETURN_IF_ERROR(
      CheckFigure("the rate of failures", options.failures_per_hour, 0, false));
  GAVEL_RETURN_IF_ERROR(CheckFigure("the checkpoint interval",
                                    options.checkpoint_interval_s, 0, true));
  if (options.engine.reference_models > 0) {
    GAVEL_RETURN_IF_ERROR(CheckProfiling(options));
  }
  if (options.window_begin >= options.window_end) {
    return absl::InvalidArgumentError(
        StrCat("the window ", options.window_begin, ":", options.window_end,
               " holds no jobs; write BEGIN:END with BEGIN below END"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceSimulation>> TraceSimulation::Create(
    SimulationOptions options, const Trace& trace,
    const ThroughputTable& throughputs) {
  GAVEL_RETURN_IF_ERROR(CheckOptions(options));
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy,
                         MakePolicy(options.policy));
  options.engine.packing = policy->packs();
  options.engine.progress = policy->reads_progress();
  // Borrowed, as the caller was told.
  options.engine.throughputs = std::shared_ptr<const ThroughputTable>(
      std::shared_ptr<void>(), &throughputs);
  for (const TraceEntity& entity : trace.entities) {
    options.engine.entities.push_back(
        {entity.name, entity.weight, entity.policy});
  }
  GAVEL_ASSIGN_OR_RETURN(SimulatedWork work,
                         SimulatedWork::Create(options, trace, throughputs));
  if (options.window_begin >= work.size()) {
    return absl::InvalidArgumentError(
        StrCat("the window begins at job ", options.window_begin,
               ", and the trace ends at job ", work.size() - 1));
  }
  if (options.ideal) {
    return std::make_unique<FluidSimulation>(
        std::move(options), std::move(work), std::move(policy));
  }
  return std::make_unique<RoundSimulation>(std::move(options), std::move(work),
                                           std::move(policy));
}

}  // namespace gavel
