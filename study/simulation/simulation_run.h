// Runs one whole simulation: reports its progress, stops it on request, and
// gives it up when it cannot end. As thread-safe as its arguments.
#ifndef GAVEL_STUDY_SIMULATION_SIMULATION_RUN_H_
#define GAVEL_STUDY_SIMULATION_SIMULATION_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "simulator/trace_simulation.h"
#include "study/simulation/simulation_inputs.h"

namespace gavel::study {

// kCannotDrain: jobs come faster than they are done, or the simulated time
// limit was reached. kTimeout: it took too long on this machine.
enum class RunStatus : uint8_t { kOk, kCannotDrain, kError, kTimeout };
std::string_view RunStatusName(RunStatus status);  // "ok", "cannot_drain", ...
// kError for an unknown name.
RunStatus FindRunStatus(std::string_view name);

struct SimulationRun {
  RunStatus status = RunStatus::kError;
  std::string detail;  // why it is not kOk
  SimulationResult result;
  double wall_s = 0;
  double cpu_s = 0;           // of the simulation, without reading files
  uint64_t jobs_arrived = 0;  // of the whole trace, by the end of the run
  uint64_t jobs_in_window = 0;
  // Of the two halves of the window's jobs, by arrival: sum of the JCTs over
  // the sum of what each would take alone on its fastest accelerators. NaN:
  // some have not ended.
  double stretch_first = 0;
  double stretch_second = 0;
  // Mean number of waiting jobs in the two halves of the time from the first
  // arrival to that of the window's last job. NaN: not recorded.
  double waiting_first = 0;
  double waiting_second = 0;
  // The rate of arrivals over the most that the cluster can do (capacity.h).
  double offered_load = 0;
};

// How much longer jobs may take in the window's second half than in its first,
// all being well; and what counts as well, whatever it was in the first.
inline constexpr double kGrowthMax = 1.2;
inline constexpr double kStretchWell = 2;
// The linear program of the capacity may be off by so much, by rounding.
inline constexpr double kOfferedLoadMax = 1 + 1e-6;
// Waiting jobs that grow in proportion to time are three times as many in the
// second half; at the edge of stability, by its square root, 1.8 times.
inline constexpr double kWaitingGrowthMax = 2.2;
// Jobs are done as fast as they come: the run ended, the offered load is at
// most 1, and stretch_second is at most kStretchWell, or at most `growth_max`
// times stretch_first while waiting_second is at most kWaitingGrowthMax times
// waiting_first. The last is for windows that begin late: growth that began
// with the trace looks small within them.
bool IsSustainable(const SimulationRun& run, double growth_max = kGrowthMax);

// TraceSimulation::Create, or what a test puts in its place.
using MakeSimulation =
    std::function<absl::StatusOr<std::unique_ptr<TraceSimulation>>(
        SimulationOptions, const Trace&, const ThroughputTable&)>;

struct RunControl {
  // Called about 20 times a second with the part that is done, in [0, 1], and
  // the simulated time. False: stop here; the result is of what has ended.
  std::function<bool(double fraction, Time now)> goes_on;
  // A run is given up as kCannotDrain when the average JCT of its window is
  // certain to exceed this while its queue grows. 0: never.
  double jct_limit_s = 0;
  double wall_limit_s = 0;  // 0: none
  // TraceSimulation::Checkpoint() of an earlier run, which this one resumes.
  std::string resumed;
  // Takes checkpoints, each `save_every_s` on this machine and when stopped.
  // Its error becomes the run's. Null: none are taken.
  std::function<absl::Status(const std::string& checkpoint)> save;
  double save_every_s = 60;
};

struct Watched {
  SimulationRun run;
  bool started = false;  // false: `make` failed; run.detail says why
  bool stopped = false;  // by `goes_on`
};
Watched RunSimulation(const SimulationInputs& inputs,
                      const MakeSimulation& make, const RunControl& control);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SIMULATION_RUN_H_
