#include "coordinator/cli/history/history_file.h"

#include "coordinator/server/journal/journal.h"
#include "coordinator/server/journal/journal_chain.h"
#include "coordinator/server/journal/sqlite.h"
#include "core/status.h"

namespace gavel {

absl::StatusOr<Json> ReadHistoryFile(const std::string& path,
                                     const HistoryFilter& filter) {
  GAVEL_ASSIGN_OR_RETURN(SqliteDatabase database,
                         SqliteDatabase::OpenReadOnly(path));
  GAVEL_RETURN_IF_ERROR(CheckJournalFormat(database, Journal::kFormatVersion));
  return ReadAllHistory(database, filter);
}

}  // namespace gavel
