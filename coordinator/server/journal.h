// The journal: the engine's durable events in one SQLite file (WAL, synchronous
// FULL), each row chained to the one before by a hash. Replaying it gives the
// engine again (design section 4). The coordinator reads it at its start; from
// then on its commit thread alone owns it.
//
// The hash is XXH3-128 over (previous hash, seq, term, time, bytes). It finds
// damage; it is not cryptographic and keeps nobody from rewriting the file.
// SQLite takes damage in the WAL for the WAL's end: rows that were committed
// are then missing without a trace here, which is what the journal positions in
// every message are for.
//
// Not thread-safe, but may be handed from thread to thread. Every error names
// the file and what to do.
#ifndef GAVEL_COORDINATOR_SERVER_JOURNAL_H_
#define GAVEL_COORDINATOR_SERVER_JOURNAL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/action.h"
#include "coordinator/server/file_lock.h"
#include "coordinator/server/sqlite.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

// A row is what the engine asks to persist: seq, term, time [s of the engine,
// finite], bytes.
using JournalRow = action::Persist;
using JournalHash = std::array<char, 16>;

// Of the row that follows the one with the hash `previous`; the first row's
// previous hash is all zeros.
JournalHash ChainHash(const JournalHash& previous, const JournalRow& row);

class Journal {
 public:
  // Version of the tables, kept in the file.
  static constexpr int kFormatVersion = 1;

  // Creates the file when there is none (its directory must exist), mode 0600,
  // and takes the lock PATH.lock for as long as the Journal lives.
  // ALREADY_EXISTS: another coordinator has it, named by its pid.
  // FAILED_PRECONDITION: written by a newer version. DATA_LOSS: not a journal,
  // or damaged.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const std::string& path);

  // Verifies every row and hands it to `on_row`, in order; once, before the
  // first Append. DATA_LOSS names the row that is missing or damaged; an error
  // of `on_row` is returned as it is, with the row's number.
  absl::Status ReadAll(
      const std::function<absl::Status(const JournalRow&)>& on_row);

  // Commits all of `rows` or none: on disk when it returns OK. They follow on
  // each other and on what is there. After a failure nothing is ever written
  // again, since a failed fsync must not be retried: every later call returns
  // the same error.
  absl::Status Append(std::span<const JournalRow> rows);

  const std::string& path() const { return path_; }
  // Of the last row; zeros when there is none.
  JournalPosition position() const { return position_; }
  Time last_time() const { return last_time_; }

 private:
  Journal(std::string path, FileLock lock, SqliteDatabase database);
  absl::Status Prepare();
  absl::StatusOr<std::string> Metadata(std::string_view key);
  absl::Status CheckVersion();
  absl::Status CheckEnd();
  absl::Status CheckRow(const JournalRow& row, std::string_view hash) const;
  absl::Status AppendInTransaction(std::span<const JournalRow> rows);
  absl::Status InsertRow(SqliteStatement& insert, const JournalRow& row);
  void Follow(const JournalRow& row, const JournalHash& hash);
  absl::Status Error(const absl::Status& status) const;

  std::string path_;
  FileLock lock_;
  SqliteDatabase database_;
  absl::Status broken_;  // what the first failure said
  bool was_read_ = false;
  JournalPosition position_;
  Time last_time_ = 0;
  JournalHash head_{};
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_JOURNAL_H_
