// The coordinator's JSON as rows (server/query/rows.h), for tables and
// summaries. What is missing or of another type is left at its default, so that
// an older or newer coordinator can be asked. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_ROWS_H_
#define GAVEL_COORDINATOR_CLI_ROWS_H_

#include <string>
#include <string_view>
#include <vector>

#include "coordinator/cli/json.h"
#include "coordinator/server/query/rows.h"

namespace gavel {

std::vector<QueueRow> ParseQueue(const Json& json);
std::vector<NodeRow> ParseNodes(const Json& json);
StatusRow ParseStatus(const Json& json);
WhyRow ParseWhy(const Json& json);
std::vector<ForecastRow> ParseForecast(const Json& json);

// "R" is "running".
std::string_view StateWord(std::string_view letters);

// The letters that `state` means: "R" and "running" are {"R"}. Empty: none.
std::vector<std::string> StateLettersOf(std::string_view state);

// Those that run come first, then those that wait, held ones, and those that
// have ended; each in the order that they had.
void SortLiveFirst(std::vector<QueueRow>& rows);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_ROWS_H_
