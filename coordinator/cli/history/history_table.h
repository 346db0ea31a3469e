// Rows of history as tables of text, the look of sacct; and from them who used
// how much of the accelerators, against what the policy meant them to have.
// Pure: JSON rows in (as ReadHistory writes them), values and text out.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_TABLE_H_
#define GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_TABLE_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "coordinator/cli/json.h"

namespace gavel {

// `table`: "jobs", "leases", "rounds" or "steps". Of jobs that have not ended,
// waiting and elapsed time count up to `now_s`.
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
  double used_h = 0;      // accelerator hours: one of two in a pair has half
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_TABLE_H_
