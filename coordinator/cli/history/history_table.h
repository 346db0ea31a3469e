// Rows of history as tables of text, the look of sacct. Pure: JSON rows in (as
// ReadHistory writes them), text out. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_TABLE_H_
#define GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_TABLE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace gavel {

// `table`: "jobs", "leases", "rounds" or "steps". Of jobs that have not ended,
// waiting and elapsed time count up to `now_s`.
std::string RenderHistory(std::string_view table,
                          const nlohmann::ordered_json& rows, double now_s,
                          size_t width);

// "1-02:03:04", as sacct's elapsed time.
std::string FormatElapsed(double seconds);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_TABLE_H_
