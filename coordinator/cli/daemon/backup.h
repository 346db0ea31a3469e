// Copies of a coordinator's journal, and back: all that it remembers of jobs,
// shares and history. Keys, principals, checkpoints and output of jobs are
// files of their own, and not in it.
#ifndef GAVEL_COORDINATOR_CLI_DAEMON_BACKUP_H_
#define GAVEL_COORDINATOR_CLI_DAEMON_BACKUP_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/ids.h"

namespace gavel {

// Writes the journal in `state_directory` into `file`, mode 0600: one moment of
// it, verified, while the coordinator may run. The last row that is in it.
// ALREADY_EXISTS: the file is there. NOT_FOUND: there is no journal. DATA_LOSS:
// it is damaged.
absl::StatusOr<JournalPosition> BackUpJournal(
    const std::string& state_directory, const std::string& file);

// Makes it the journal of `state_directory`, which is made when it is not
// there. ALREADY_EXISTS: there is one. NOT_FOUND, DATA_LOSS,
// FAILED_PRECONDITION: there is no such file, it is no whole journal, or of a
// newer version; then nothing is changed.
absl::StatusOr<JournalPosition> RestoreJournal(
    const std::string& file, const std::string& state_directory);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DAEMON_BACKUP_H_
