// The history of jobs: its rows as tables of text in the look of sacct; from
// the rows, how much of the accelerators each user used, against what the
// policy entitled them to; and rows read from a journal's file, without a
// coordinator. The tables are pure: they take JSON rows as ReadHistory writes
// them. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_HISTORY_TABLE_H_
#define GAVEL_COORDINATOR_CLI_HISTORY_TABLE_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/server/history.h"
#include "coordinator/workload/json_fields.h"

namespace gavel {

// `table` is "jobs", "leases", "rounds" or "steps". The waiting and elapsed
// times of jobs that have not ended count up to `now_s`.
std::string RenderHistory(std::string_view table, const Json& rows,
                          double now_s, size_t width);

// "1-02:03:04", as sacct's elapsed time.
std::string FormatElapsed(double seconds);

// Rows of the tables "jobs", "leases" and "shares".
struct UsageHistory {
  Json jobs;
  Json leases;
  Json shares;
};

struct UserUsage {
  double used_h = 0;  // accelerator hours: one of two in a pair has half
  // The part of `used_h` that opaque jobs used. The policy gives such jobs no
  // share, so a comparison with `entitled_h` leaves these hours out.
  double opaque_h = 0;
  double entitled_h = 0;  // share of time by the policy, times scale factors
  std::map<std::string, double> used_h_by_type;
};

// By user ("": connections had no keys), within [since_s, until_s]. Leases that
// still run count up to `until_s`.
std::map<std::string, UserUsage> UsageOf(const UsageHistory& history,
                                         double since_s, double until_s);

std::string RenderUsage(const std::map<std::string, UserUsage>& usage,
                        size_t width);
Json UsageJson(const std::map<std::string, UserUsage>& usage, double since_s,
               double until_s);

// All rows of STATE/journal.db, or a copy of it, that pass the filter. Errors
// do not name `path`.
absl::StatusOr<Json> ReadHistoryFile(const std::string& path,
                                     const HistoryFilter& filter);

// A number is an id; a name, the latest job of that name. NOT_FOUND: none. The
// error names the file.
absl::StatusOr<JobId> FindJobInFile(const std::string& path,
                                    const std::string& job);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_HISTORY_TABLE_H_
