// One whole simulation: the files that it reads, the most jobs that its cluster
// can do, and the run itself, which reports its progress, stops on request, and
// gives up when it cannot end.
#ifndef GAVEL_STUDY_SIMULATION_RUN_H_
#define GAVEL_STUDY_SIMULATION_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "simulator/trace_simulation.h"
#include "study/simulation_spec.h"

namespace gavel::study {

// ---- how many jobs an hour a cluster can do at most, whatever the policy

// The capacity for the mix of the first `jobs` of the trace: the optimum of
// the linear program
//
//   max rate,  sum_j T_cj y_cj >= rate work_c   for each class c of jobs,
//              sum_c s_c y_cj <= accelerators_j for each type j,  y >= 0,
//
// where y_cj jobs of class c (type and scale factor) run on type j at a time,
// and work_c is in steps for each job that arrives. `pairs`: two jobs may share
// accelerators. Jobs that fit nowhere need nothing. Infinity: none needs
// anything, or the solver fails. Pure, thread-safe.
double CapacityPerHour(const Trace& trace, size_t jobs,
                       const ThroughputTable& throughputs,
                       const std::vector<ClusterPart>& cluster, bool pairs);

// ---- inputs

struct SimulationInputs {
  SimulationOptions options;  // all of the spec that is not the trace
  std::shared_ptr<const Trace> trace;
  std::shared_ptr<const ThroughputTable> throughputs;
  // Jobs an hour up to the end of the window: as they arrive (0: all at once),
  // and the most that the cluster can do of them (CapacityPerHour).
  double rate_per_h = 0;
  double capacity_per_h = 0;
};

// Traces, made or from files, throughput tables, overheads and prices. Each
// file is read once; traces are shared by the simulations that run at a time,
// and forgotten when the last one has ended. Thread-safe.
class SimulationInputCache {
 public:
  // Errors name the file or the option.
  absl::StatusOr<SimulationInputs> Load(const SimulationSpec& spec);

  // All of the spec that is neither trace nor throughputs.
  absl::StatusOr<SimulationOptions> LoadOptions(const SimulationSpec& spec);

  // Before the first of `runs`. INVALID_ARGUMENT: a cluster has a type that its
  // jobs' throughputs lack; --prices has one that no cluster has. The notices:
  // those of the traces, types without a price, policies that want prices and
  // have none.
  absl::StatusOr<std::vector<std::string>> CheckRuns(
      std::span<const SimulationSpec> runs);

  absl::StatusOr<std::shared_ptr<const ThroughputTable>> LoadThroughputs(
      const std::string& path);

  // Two specs with one key describe the same simulation. The key is a digest of
  // the fields, with the contents of files in place of their paths: 32 hex
  // digits.
  absl::StatusOr<std::string> KeyOf(const SimulationSpec& spec);

 private:
  struct File {
    std::string text;
    std::string digest;
  };
  // A trace, and the throughputs with the rows that it needs besides.
  struct Workload {
    Trace trace;
    std::shared_ptr<const ThroughputTable> throughputs;
  };
  absl::StatusOr<std::shared_ptr<const File>> Read(const std::string& path);
  absl::StatusOr<std::shared_ptr<const Workload>> LoadWorkload(
      const SimulationSpec& spec);
  static absl::Status ReadTrace(const SimulationSpec& spec,
                                std::string_view text, Workload* workload);
  static absl::Status CheckTypes(const SimulationSpec& run,
                                 const ThroughputTable& table,
                                 const Trace* trace,
                                 const std::vector<ClusterPart>& cluster);
  absl::StatusOr<Overheads> LoadOverheads(const std::string& overheads);
  absl::StatusOr<PriceSeries> LoadPrices(const std::string& prices);

  std::mutex mutex_;  // guards all below
  std::map<std::string, std::shared_ptr<const File>> files_;
  std::map<std::string, std::shared_ptr<const ThroughputTable>> throughputs_;
  std::map<std::string, std::weak_ptr<const Workload>> workloads_;
};

// ---- the run

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
  // The stretch of the first and second half of the window's jobs, by arrival,
  // interactive ones left out:
  // the sum of their JCTs over the sum of their times alone on their fastest
  // accelerators. NaN: some have not ended.
  double stretch_first = 0;
  double stretch_second = 0;
  // Mean number of waiting jobs in the two halves of the time from the first
  // arrival to that of the window's last job. NaN: not recorded.
  double waiting_first = 0;
  double waiting_second = 0;
  // The rate of arrivals over the most that the cluster can do
  // (CapacityPerHour).
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
  // the simulated time. Return false to stop; the result then covers the jobs
  // that have ended.
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
// As thread-safe as its arguments.
Watched RunSimulation(const SimulationInputs& inputs,
                      const MakeSimulation& make, const RunControl& control);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_RUN_H_
