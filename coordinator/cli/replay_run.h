// Replays an incident: follows a journal row by row, gives each event to the
// engine of this build as it came, and compares the decisions of the engine
// with the journaled ones. Only reads the file.
//
// The rows of one step of the engine have one time, which no other step of the
// term has: the first row is the event (or a deadline), the others are the
// decisions. Messages that the engine gets without journaling them (requests
// for leases, heartbeats, most step reports) are not in the file. If a decision
// followed from such a message, the message is made up where that is possible
// (a request before a grant); otherwise the decision is only shown.
//
// Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_REPLAY_RUN_H_
#define GAVEL_COORDINATOR_CLI_REPLAY_RUN_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "core/ids.h"

namespace gavel {

struct ReplayOptions {
  std::string path;
  uint64_t from = 1;  // rows, from 1
  uint64_t to = std::numeric_limits<uint64_t>::max();
  JobId job;           // invalid: all
  std::string policy;  // empty: the journaled one
  bool solve = true;   // asks the policy again, too
};

// kSame: this build decides the same. kOther: it does not. kNotTold: what it
// followed from was not journaled.
enum class ReplayVerdict : uint8_t { kNothing, kSame, kOther, kNotTold };

// One step of the engine.
struct ReplayStep {
  uint64_t first_row = 0;
  uint64_t last_row = 0;
  uint64_t term = 0;
  Time time = 0;
  double wall_s = 0;                 // 0: not known
  std::set<JobId> jobs;              // that its rows are about
  std::vector<std::string> events;   // the first, and what was decided
  std::vector<std::string> actions;  // of this build's engine
  std::vector<std::string> reasons;  // of the jobs that it names
  ReplayVerdict verdict = ReplayVerdict::kNothing;
  std::vector<std::string> differences;  // this build instead
};

struct ReplaySummary {
  uint64_t rows = 0;   // of the journal that was read
  uint64_t steps = 0;  // shown or not
  uint64_t decided = 0;
  uint64_t same = 0;
  uint64_t other = 0;
  uint64_t not_told = 0;
  uint64_t solves = 0;
};

// Calls `show` for each step in [from, to] that names the job; false ends it.
// DATA_LOSS: damaged, naming the row. NOT_FOUND: no such file or policy, or
// no step names the job. OUT_OF_RANGE: `from` is behind the last row.
absl::StatusOr<ReplaySummary> ReplayJournal(
    const ReplayOptions& options,
    const std::function<bool(const ReplayStep&)>& show);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_REPLAY_RUN_H_
