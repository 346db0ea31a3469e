// History as a journal's file holds it, without a coordinator. Thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_FILE_H_
#define GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/json.h"
#include "coordinator/server/journal/history_tables.h"

namespace gavel {

// All rows of STATE/journal.db, or a copy of it, that pass the filter. Errors
// do not name `path`.
absl::StatusOr<Json> ReadHistoryFile(const std::string& path,
                                     const HistoryFilter& filter);

// A number is an id; a name, the latest job of that name. NOT_FOUND: none. The
// error names the file.
absl::StatusOr<JobId> FindJobInFile(const std::string& path,
                                    const std::string& job);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_HISTORY_HISTORY_FILE_H_
