// Rows of the tables of history: what became of jobs, leases, rounds and step
// reports, for people (`gavel history`). GAVEL_ROW names the columns of their
// tables (history_tables.h); the first one is the key. Values, thread-safe.
//
// Times "_s" are seconds since 1970 by the wall clock that the coordinator had
// at its start; a clock that jumps afterwards moves nothing. 0: not yet.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_ROWS_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_ROWS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "coordinator/server/row_fields.h"

namespace gavel {

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

// What the policy meant users to have when a round began, until the next one
// does, or the round is over.
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

// Of the job's reports only those whose number `stride` divides are kept.
struct HistoryThinned {
  uint64_t job = 0;
  uint64_t stride = 1;
};

using HistoryRow = std::variant<HistoryJob, HistoryLease, HistoryRound,
                                HistorySteps, HistoryThinned, HistoryShares>;

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_ROWS_H_
