// What simulations read: traces, made or from files, throughput tables,
// overheads and prices. Each file is read once; traces are shared by the
// simulations that run at a time, and forgotten when the last one has ended.
// Thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_SIMULATION_INPUTS_H_
#define GAVEL_STUDY_SIMULATION_SIMULATION_INPUTS_H_

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/trace_simulation.h"
#include "study/simulation/simulation_spec.h"

namespace gavel::study {

struct SimulationInputs {
  SimulationOptions options;  // all of the spec that is not the trace
  std::shared_ptr<const Trace> trace;
  std::shared_ptr<const ThroughputTable> throughputs;
  // Jobs an hour up to the end of the window: as they arrive (0: all at once),
  // and the most that the cluster can do of them (CapacityPerHour).
  double rate_per_h = 0;
  double capacity_per_h = 0;
};

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

  // Two specs with one key describe the same simulation: its fields, with what
  // is in the files in place of their paths. 32 hex digits.
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

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SIMULATION_INPUTS_H_
