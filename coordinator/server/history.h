// The history of jobs, leases, rounds and step reports in the journal's file:
// the rows, the tables that hold them, and what makes the rows from the
// engine's events (HistoryProjector).
#ifndef GAVEL_COORDINATOR_SERVER_HISTORY_H_
#define GAVEL_COORDINATOR_SERVER_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/event.h"
#include "coordinator/server/principals.h"
#include "coordinator/server/rows.h"
#include "core/messages.h"
#include "nlohmann/json.hpp"
#include "runtime/database/sqlite.h"

namespace gavel {

// Rows of the tables of history: what became of jobs, leases, rounds and step
// reports, for people (`gavel history`). GAVEL_ROW names the columns of the
// tables; the first one is the key. Values, thread-safe.
//
// Times "_s" are seconds since 1970 by the wall clock that the coordinator had
// at its start; a clock that jumps afterwards moves nothing. 0: not yet.

// Replaces what the table says of the job.
struct HistoryJob {
  static constexpr std::string_view kTable = "jobs";
  uint64_t job = 0;
  uint64_t last_seq = 0;  // row of the journal that it is as of
  bool over = false;      // ended, and no process is left
  std::string name;
  std::string user;
  std::string entity;
  std::string app;
  std::string state;  // StateLetters
  std::string reason;
  int scale_factor = 1;
  double weight = 1;
  double submitted_s = 0;
  double started_s = 0;  // its first lease
  double ended_s = 0;
  double run_s = 0;      // that rank 0 held a lease
  double pausing_s = 0;  // lost to saving, releasing, restoring
  uint64_t steps_done = 0;
  uint64_t steps_total = 0;
  uint64_t pauses = 0;
  uint64_t moves = 0;
  uint64_t evictions = 0;  // its processes had to go for others
  uint64_t failures = 0;   // processes that ended with an error
  int exit_code = 0;       // of the last process that ended
  int signal = 0;
  std::map<std::string, double> accelerator_s;      // leased, by type
  std::map<std::string, double> steps_per_s;        // measured alone, by type
  std::map<std::string, double> given_steps_per_s;  // by the user
};
GAVEL_ROW(HistoryJob, job, last_seq, over, name, user, entity, app, state,
          reason, scale_factor, weight, submitted_s, started_s, ended_s, run_s,
          pausing_s, steps_done, steps_total, pauses, moves, evictions,
          failures, exit_code, signal, accelerator_s, steps_per_s,
          given_steps_per_s)

// A worker's stay on an accelerator.
struct HistoryLease {
  static constexpr std::string_view kTable = "leases";
  uint64_t seq = 0;  // of its LeaseStarted
  uint64_t job = 0;
  int rank = 0;
  uint64_t epoch = 0;
  std::string server;
  std::string type;
  std::string uuid;
  double from_s = 0;
  double to_s = 0;
  uint64_t steps_from = 0;
  uint64_t steps_to = 0;
  std::string ended;  // "paused", "finished", "process gone", ...
};
GAVEL_ROW(HistoryLease, seq, job, rank, epoch, server, type, uuid, from_s, to_s,
          steps_from, steps_to, ended)

// Why a lease ended in a pause, or began on another accelerator than the
// worker's last one. Anybody may read it.
struct HistoryReason {
  static constexpr std::string_view kTable = "reasons";
  uint64_t seq = 0;    // of the row of the journal with the pause or the move
  uint64_t lease = 0;  // HistoryLease::seq; that of a move is `seq` itself
  uint64_t job = 0;
  int rank = 0;
  double at_s = 0;
  std::string text;  // a sentence: "paused: preempted by job 12, ..."
};
GAVEL_ROW(HistoryReason, seq, lease, job, rank, at_s, text)

struct HistoryRound {
  static constexpr std::string_view kTable = "rounds";
  uint64_t seq = 0;  // of its RoundStarted
  uint64_t round = 0;
  double from_s = 0;
  uint64_t running = 0;  // jobs that have accelerators in it
  uint64_t waiting = 0;
  std::map<std::string, double> busy;  // accelerators given out, by type
};
GAVEL_ROW(HistoryRound, seq, round, from_s, running, waiting, busy)

// The shares that the policy intended for users when a round began, without
// those of opaque jobs, which it gives none once they run. They hold until the
// next round begins or the round is over.
struct HistoryShares {
  static constexpr std::string_view kTable = "shares";
  uint64_t seq = 0;  // of its RoundStarted
  double from_s = 0;
  double to_s = 0;
  std::map<std::string, double> entitled;  // accelerators, by user
};
GAVEL_ROW(HistoryShares, seq, from_s, to_s, entitled)

// One report of rank 0, thinned: a job keeps at most kHistoryStepsMax.
struct HistorySteps {
  static constexpr std::string_view kTable = "steps";
  uint64_t seq = 0;
  uint64_t job = 0;
  uint64_t number = 0;  // of the job's reports, from 0
  double at_s = 0;
  uint64_t steps_done = 0;
  double steps_per_s = 0;
  std::string type;
};
GAVEL_ROW(HistorySteps, seq, job, number, at_s, steps_done, steps_per_s, type)
inline constexpr uint64_t kHistoryStepsMax = 512;

// A generation of the job that a worker reported as committed. A job keeps the
// last kHistoryCheckpointsMax; its directory may have fewer.
struct HistoryCheckpoint {
  static constexpr std::string_view kTable = "checkpoints";
  uint64_t seq = 0;  // of the row of the journal that first has it
  uint64_t job = 0;
  uint64_t number = 0;  // of the job's checkpoints, from 1
  uint64_t epoch = 0;   // of the Generation
  uint64_t step = 0;
  double at_s = 0;
  uint64_t state_bytes = 0;  // of the tensors of that worker; 0: not known
  std::string server;        // where that worker ran
};
GAVEL_ROW(HistoryCheckpoint, seq, job, number, epoch, step, at_s, state_bytes,
          server)
inline constexpr uint64_t kHistoryCheckpointsMax = 64;

// A job that keeps its accelerators until its end, so that it has no share.
// Read as the key "opaque" of the table "jobs".
struct HistoryOpaque {
  static constexpr std::string_view kTable = "opaque";
  uint64_t job = 0;
};
GAVEL_ROW(HistoryOpaque, job)

// Keeps only those of the job's reports whose number is divisible by `stride`.
struct HistoryThinned {
  uint64_t job = 0;
  uint64_t stride = 1;
};

// Something that people may be told of (notifier.h). Readers of the history are
// not shown these: reasons may quote a job's output.
struct HistoryNotice {
  static constexpr std::string_view kTable = "notices";
  static constexpr uint64_t kPerRowMax = 65536;
  // The row of the journal times kPerRowMax, and which of that row's: it rises.
  uint64_t id = 0;
  bool chosen = false;  // the job's own list has it
  std::string event;    // of kNoticeEvents
  uint64_t job = 0;     // 0: it is of none, and the next three are empty
  std::string name;
  std::string user;
  std::string app;
  double at_s = 0;
  std::string text;  // a sentence
  std::string reason;
};
GAVEL_ROW(HistoryNotice, id, chosen, event, job, name, user, app, at_s, text,
          reason)

using HistoryRow =
    std::variant<HistoryJob, HistoryLease, HistoryRound, HistorySteps,
                 HistoryThinned, HistoryShares, HistoryNotice, HistoryReason,
                 HistoryCheckpoint, HistoryOpaque>;

// The tables of history in the journal's file: written by the journal in the
// transaction of the rows that they follow from, read by the coordinator for
// `gavel history`, and by that command itself from a file. Not thread-safe.

// Creates the tables that are not there. Their keys are those of the journal's
// rows, or the job's: what is pruned there is found here.
absl::Status CreateHistory(SqliteDatabase& database);
absl::Status WriteHistory(SqliteDatabase& database,
                          std::span<const HistoryRow> rows);
// Removes the history of everything that was over before row `seq` of the
// journal.
absl::Status PruneHistory(SqliteDatabase& database, uint64_t seq);

// The notices behind the id `behind` that wait to be delivered.
struct WaitingNotices {
  std::optional<HistoryNotice> first;  // of the newest `waiting_max`
  uint64_t dropped = 0;                // older ones than those
  uint64_t last = 0;  // the highest id, also of those that nobody wants
};
// `events`: as JobSpec::notify has them, for jobs without a list of their own.
absl::StatusOr<WaitingNotices> ReadNotices(
    SqliteDatabase& database, const std::vector<std::string>& events,
    uint64_t behind, uint64_t waiting_max);

// A query of the history. Over the wire it is JSON with these keys.
struct HistoryFilter {
  // "jobs", "leases", "reasons", "checkpoints", "rounds", "steps" or "shares"
  std::string table = "jobs";
  uint64_t job = 0;    // 0: all
  std::string user;    // of jobs; empty: all
  std::string state;   // of jobs, letters of `gavel queue`: "R,PD"
  double since_s = 0;  // what ended before is left out
  double until_s = 0;  // what began later is left out; 0: nothing
};
GAVEL_ROW(HistoryFilter, table, job, user, state, since_s, until_s)
std::string FormatHistoryFilter(const HistoryFilter& filter);
// INVALID_ARGUMENT: no JSON of a filter, or a table that there is not.
absl::StatusOr<HistoryFilter> ParseHistoryFilter(std::string_view json);

struct HistoryPage {
  std::string json;          // an array of rows, at most kPageBytesMax
  uint64_t next_cursor = 0;  // 0: that was all
};
// Looks at a bounded number of rows: a page may be empty and not the last.
// `now_s` > 0, since 1970: jobs that are not over are as of then, with the
// leases that run and the steps last reported. 0: as they were written.
// `reader` is not told why jobs of others are held, which may quote their
// output; null: it reads the file itself, and all of it.
absl::StatusOr<HistoryPage> ReadHistory(SqliteDatabase& database,
                                        const HistoryFilter& filter,
                                        uint64_t cursor, double now_s = 0,
                                        const Identity* reader = nullptr);
// Reads all pages as they were written. The coordinator that wrote the file may
// have stopped.
absl::StatusOr<nlohmann::ordered_json> ReadAllHistory(
    SqliteDatabase& database, const HistoryFilter& filter);

// The coordinator's answer to `reader`, from the journal at `path`.
QueryReply AnswerHistory(const QueryRequest& request, const Identity& reader,
                         const std::string& path);

// Events in, rows of history out: what the coordinator writes beside each
// journal row, and what a replay of the rows gives again. Reads the engine
// after the event; decides nothing.
//
// Not thread-safe. A function of the journal: the same rows give the same
// history.
class HistoryProjector {
 public:
  // The rows that the durable `event`, row `seq` of the journal, changes.
  // `engine` has already taken the event.
  std::vector<HistoryRow> Observe(uint64_t seq, Time now, const Event& event,
                                  const Engine& engine);

  // Save and restore the state about jobs that are not over. DATA_LOSS:
  // damaged.
  std::string Save() const;
  absl::Status Load(std::string_view saved);

  // Seconds since 1970 of the engine's `now`.
  double WallTime(Time now) const { return now + wall_offset_s_; }
  // As the present term was begun; empty and 0: not told.
  const std::string& policy() const { return policy_; }
  double round_duration_s() const { return round_duration_s_; }

  // ---- Save writes these

  struct OpenLease {
    HistoryLease row;
    Time since = 0;
    uint64_t incarnation = 0;
  };
  struct Rate {
    double steps = 0;
    double seconds = 0;
  };
  struct OpenJob {
    HistoryJob row;                   // as it was last written
    std::map<int, OpenLease> leases;  // by rank
    std::map<std::string, Rate> rates;
    uint64_t reports = 0;
    uint64_t reports_kept = 0;
    uint64_t stride = 1;
    // The state that the last notice about it reported, and whether there was
    // one about its deadline.
    JobState told = JobState::kActive;
    bool at_risk = false;
    std::map<int, AcceleratorId> left;  // of the last lease that ended, by rank
    bool requeued = false;              // since its last lease began
    Generation newest;                  // (0, 0): none yet
    uint64_t checkpoints = 0;
  };

 private:
  struct Observation;  // of one event

  double wall_offset_s_ = 0;
  std::string policy_;
  double round_duration_s_ = 0;
  std::map<JobId, OpenJob> jobs_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_HISTORY_H_
