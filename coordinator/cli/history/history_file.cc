#include "coordinator/cli/history/history_file.h"

#include "absl/strings/numbers.h"
#include "coordinator/server/journal/journal.h"
#include "coordinator/server/journal/journal_chain.h"
#include "coordinator/server/journal/sqlite.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

absl::StatusOr<Json> ReadHistoryFile(const std::string& path,
                                     const HistoryFilter& filter) {
  GAVEL_ASSIGN_OR_RETURN(auto database, SqliteDatabase::OpenReadOnly(path));
  GAVEL_RETURN_IF_ERROR(CheckJournalFormat(database, Journal::kFormatVersion));
  return ReadAllHistory(database, filter);
}

absl::StatusOr<JobId> FindJobInFile(const std::string& path,
                                    const std::string& job) {
  uint64_t id = 0;
  if (absl::SimpleAtoi(job, &id) && id > 0) return JobId(id);
  const absl::StatusOr<Json> rows = ReadHistoryFile(path, HistoryFilter());
  GAVEL_RETURN_IF_ERROR(Annotate(rows.status(), path));
  uint64_t found = 0;
  for (const Json& row : *rows) {
    if (row.value("name", "") == job) found = row.value("job", found);
  }
  if (found != 0) return JobId(found);
  return absl::NotFoundError(
      StrCat(path, ": there is no job named \"", job, "\" in it"));
}

}  // namespace gavel
