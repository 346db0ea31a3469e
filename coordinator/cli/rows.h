// The coordinator's JSON (server/query.h) as structs, for tables and summaries.
// Pure. What is missing or of another type is left at its default, so that an
// older or newer coordinator can be asked. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_ROWS_H_
#define GAVEL_COORDINATOR_CLI_ROWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/cli/json.h"

namespace gavel {

struct AcceleratorRow {
  std::string server;
  std::string type;
  std::string uuid;
  // Of `nodes` only.
  std::string state;
  std::string device;
  double slow_down_factor = 1;
  double speed = 1;  // below 1: a straggler, that part of its type's speed
  std::vector<uint64_t> jobs;           // two: a packed pair
  std::vector<uint64_t> kept_jobs;      // paused, still in its memory
  std::vector<uint64_t> starting_jobs;  // their processes have no lease
  bool drained = false;                 // by an operator
  std::optional<double> drain_in_s;     // jobs may stay until then
};

struct QueueRow {
  uint64_t id = 0;
  std::string name;
  std::string owner;                         // empty: connections have no keys
  std::string state;                         // PD R S CG CD F CA
  std::vector<AcceleratorRow> accelerators;  // held now
  uint64_t scale_factor = 1;
  uint64_t steps_done = 0;
  uint64_t steps_total = 0;  // 0: until the program ends
  double steps_per_s = 0;    // 0: not known
  std::map<std::string, double> scalars;
  double share_target = 0;
  double share_got = 0;
  uint64_t pauses = 0;
  uint64_t moves = 0;
  double pausing_s = 0;
  uint64_t generation_epoch = 0;  // (0, 0): none yet
  uint64_t generation_step = 0;
  std::string reason;
  std::string checkpoint_directory;

  // Finished, cancelled, or held until it is released.
  bool Ended() const;
};

struct NodeRow {
  std::string server;
  // idle, mixed, allocated, draining, drained, down
  std::string state;
  uint64_t parked_bytes = 0;  // of paused jobs in host memory
  std::vector<AcceleratorRow> accelerators;
};

// What `gavel status` and the table of `gavel local` show.
struct StatusRow {
  uint64_t term = 0;
  uint64_t seq = 0;
  std::string policy;
  uint64_t rounds = 0;
  double round_duration_s = 0;
  double lease_duration_s = 0;
  std::optional<double> round_ends_in_s;
  std::string outcome;  // of the last solve; empty: none yet
  std::string solver;
  std::optional<double> objective;
  double profiling_percentage_max = 0;
  uint64_t profiling_accelerators = 0;
  double profiling_s = 0;  // accelerator-seconds
  uint64_t workers_lost = 0;
  double busy_s = 0;                     // of all workers
  double failure_interval_s = 0;         // mean, of one worker; 0: not told
  std::map<std::string, uint64_t> jobs;  // by state letters
  std::vector<std::string> troubles;     // that a person has to see to
};

std::vector<QueueRow> ParseQueue(const Json& json);
std::vector<NodeRow> ParseNodes(const Json& json);
StatusRow ParseStatus(const Json& json);

// "R" is "running".
std::string_view StateWord(std::string_view letters);

// The letters that `state` means: "R" and "running" are {"R"}. Empty: none.
std::vector<std::string> StateLettersOf(std::string_view state);

// Those that run come first, then those that wait, held ones, and those that
// have ended; each in the order that they had.
void SortLiveFirst(std::vector<QueueRow>& rows);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_ROWS_H_
