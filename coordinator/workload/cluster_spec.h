// The servers and scheduling options of `gavel local` and `gavel agent`, as
// parsed from TOML. Given text, not files. Values, thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_CLUSTER_SPEC_H_
#define GAVEL_COORDINATOR_WORKLOAD_CLUSTER_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/trace.h"
#include "core/messages.h"

namespace gavel {

struct ServerSpec {
  std::string name;  // [A-Za-z0-9_-]{1,64}, unique
  std::vector<AcceleratorInfo> accelerators;
  std::string rack = {};           // that it is in; empty: not known
  uint64_t host_memory_bytes = 0;  // for parked jobs; 0: no budget
  // Variables of the agent that its workers keep: "NAME", or "PREFIX*".
  std::vector<std::string> keep_environment = {};
  bool leased_visibility = false;  // as JobSpec has it, of its GPUs
  friend bool operator==(const ServerSpec&, const ServerSpec&) = default;
};

// How the coordinator schedules.
struct SchedulingSpec {
  std::string policy = "max_min_fairness_perf";
  double round_duration_s = 360;
  double lease_duration_s = 60;
  std::string mechanism = "gavel";  // or "move_aware"
  std::string queue = "global";     // or "per_type"
  double reset_interval_s = 0;      // a new allocation at most this often
  bool placement_sensitive = false;
  bool introspection = false;  // trials are made, and undone
  // Gavel's throughput file; relative to the cluster file. Empty: none.
  std::string throughputs;
  // Per accelerator and hour, by type.
  std::map<std::string, double> prices;
  std::vector<TraceEntity> entities;
  friend bool operator==(const SchedulingSpec&,
                         const SchedulingSpec&) = default;
};

// The program or the address that gets the notices of the coordinator. Neither:
// it sends none.
struct NotifySpec {
  std::vector<std::string> command;  // an absolute path and its arguments
  std::string webhook;               // http:// or https://
  // As JobSpec::notify has them; a job's own list counts instead.
  std::vector<std::string> events = {"ended", "at_risk", "node_lost"};
  bool empty() const { return command.empty() && webhook.empty(); }
  friend bool operator==(const NotifySpec&, const NotifySpec&) = default;
};

struct ClusterSpec {
  SchedulingSpec scheduling;        // [scheduling], [prices], [[entity]]
  std::vector<ServerSpec> servers;  // [[server]] with [[server.accelerator]]
  NotifySpec notify = {};           // [notify]
};

inline constexpr size_t kClusterSpecBytesMax = 4 * 1024 * 1024;
// So that an agent's declaration of them fits a frame of the protocol.
inline constexpr int kAcceleratorsPerServerMax = 256;

// Parses a cluster file; cluster_spec.cc has all keys, with ranges, defaults
// and examples.
//
// Without lease_duration_s it is 60 or the round, whichever is shorter; a lease
// longer than the round is refused. Without servers the list is empty: the
// caller says whether it needs some.
//
// INVALID_ARGUMENT as "SOURCE:LINE:COLUMN: what; remedy". uuids are made as
// "SERVER-INDEX" for CPU slots; the agent puts a GPU's own in their place.
absl::StatusOr<ClusterSpec> ParseClusterSpec(std::string_view toml,
                                             std::string_view source);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_CLUSTER_SPEC_H_
