// Options that `gavel coordinator`, `agent` and `local` share, and what they
// mean together with a cluster file.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_OPTIONS_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_OPTIONS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/workload/cluster_spec.h"

namespace CLI {
class App;
}

namespace gavel {

inline constexpr char kDefaultState[] = "./gavel-state";

// How to schedule: what is given here counts more than the cluster file.
struct SchedulingFlags {
  std::optional<std::string> policy;
  std::optional<std::string> mechanism;
  std::optional<std::string> queue;
  std::optional<std::string> throughputs;
  std::optional<double> round_duration_s;
  std::optional<double> lease_duration_s;
  std::optional<double> start_timeout_s;
  std::optional<double> pause_grace_s;
  std::optional<double> stop_grace_s;
  std::optional<double> agent_timeout_s;
  std::optional<double> hang_timeout_s;
  std::optional<double> profiling_percentage;
  std::optional<int> reference_models;
};
void AddSchedulingFlags(CLI::App& command, SchedulingFlags* flags);

struct Scheduling {
  std::string policy;
  std::map<std::string, double> prices;
  EngineOptions engine;
};
// INVALID_ARGUMENT: a lease longer than the round, a name that means nothing,
// a throughput file that is none. NOT_FOUND: no such file.
absl::StatusOr<Scheduling> MergeScheduling(const SchedulingSpec& spec,
                                           const SchedulingFlags& flags);

// Where the lock files of `accelerators` lie. GPUs belong to the machine: a
// folder that all of this user's agents share. CPU slots are made up by a
// cluster file: the state directory (empty).
std::string DefaultRunDirectory(
    const std::vector<AcceleratorInfo>& accelerators);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_DAEMON_OPTIONS_H_
