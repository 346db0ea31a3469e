// The tables of history in the journal's file: written by the journal in the
// transaction of the rows that they follow from, read by the coordinator for
// `gavel history`, and by that command itself from a file. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_TABLES_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_TABLES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/server/access/roles.h"
#include "coordinator/server/journal/history_rows.h"
#include "coordinator/server/journal/sqlite.h"
#include "core/messages.h"
#include "nlohmann/json.hpp"

namespace gavel {

// Creates the tables that are not there. Their keys are those of the journal's
// rows, or the job's: what is pruned there is found here.
absl::Status CreateHistory(SqliteDatabase& database);
absl::Status WriteHistory(SqliteDatabase& database,
                          std::span<const HistoryRow> rows);
// Forgets what was over before row `seq` of the journal.
absl::Status PruneHistory(SqliteDatabase& database, uint64_t seq);

// What is asked for. Over the wire it is JSON with these keys.
struct HistoryFilter {
  std::string table = "jobs";  // or "leases", "rounds", "steps"
  uint64_t job = 0;            // 0: all
  std::string user;            // of jobs; empty: all
  std::string state;           // of jobs, letters as of `gavel queue`
  double since_s = 0;          // what ended before is left out
  double until_s = 0;          // what began later is left out; 0: nothing
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
// All of its pages, as written: whoever wrote the file may have stopped.
absl::StatusOr<nlohmann::ordered_json> ReadAllHistory(
    SqliteDatabase& database, const HistoryFilter& filter);

// The coordinator's answer to `reader`, from the journal at `path`.
QueryReply AnswerHistory(const QueryRequest& request, const Identity& reader,
                         const std::string& path);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_HISTORY_TABLES_H_
