#include "coordinator/server/journal/journal.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "coordinator/server/journal/history_tables.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/text_file.h"

namespace gavel {
namespace {

// The WAL is copied into the main file when it has grown this long (4 MiB).
constexpr int kWalPagesMax = 1000;
// And the last transaction before that, with what SQLite puts before each page.
constexpr int64_t kWalBytesMax = 1100 * (4096 + 24);

constexpr char kPragmas[] =
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=FULL;"
    "PRAGMA cell_size_check=ON;"
    "PRAGMA trusted_schema=OFF;"
    "PRAGMA cache_size=-512;";

// Version 1 had `metadata` and `journal` only.
constexpr char kJournalTables[] =
    "CREATE TABLE IF NOT EXISTS metadata("
    " key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS journal("
    " seq INTEGER PRIMARY KEY, term INTEGER NOT NULL, time REAL NOT NULL,"
    " event BLOB NOT NULL, hash BLOB NOT NULL) STRICT;"
    // The last row that was pruned; empty: none was.
    "CREATE TABLE IF NOT EXISTS journal_base("
    " seq INTEGER PRIMARY KEY, term INTEGER NOT NULL, time REAL NOT NULL,"
    " hash BLOB NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS snapshot("
    " seq INTEGER PRIMARY KEY, term INTEGER NOT NULL, time REAL NOT NULL,"
    " head BLOB NOT NULL, hash BLOB NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS snapshot_part("
    " seq INTEGER NOT NULL, part INTEGER NOT NULL, bytes BLOB NOT NULL,"
    " PRIMARY KEY(seq, part)) STRICT;"
    "INSERT OR IGNORE INTO metadata VALUES"
    " ('format_version', '3'),"
    " ('created', strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),"
    " ('last_seq', '0'),"
    // Files of before get theirs when they are opened.
    " ('cluster_id', lower(hex(randomblob(8))));"
    "UPDATE metadata SET value = '3'"
    " WHERE key = 'format_version' AND value IN ('1', '2');";
static_assert(Journal::kFormatVersion == 3);

std::string_view View(const JournalHash& hash) {
  return {hash.data(), hash.size()};
}

}  // namespace

Journal::Journal(std::string path, JournalOptions options, FileLock lock,
                 SqliteDatabase database)
    : path_(std::move(path)),
      options_(options),
      lock_(std::move(lock)),
      database_(std::move(database)) {}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const std::string& path,
                                                       JournalOptions options) {
  absl::StatusOr<FileLock> lock = FileLock::Take(path + ".lock");
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::AlreadyExistsError(
        StrCat("journal ", path, ": another coordinator runs on it (",
               lock.status().message(),
               "); stop that one, or give this one a state directory of its "
               "own"));
  }
  GAVEL_RETURN_IF_ERROR(
      Annotate(lock.status(), StrCat("journal ", path, ": cannot be locked")));
  absl::StatusOr<SqliteDatabase> database = SqliteDatabase::Open(path);
  GAVEL_RETURN_IF_ERROR(Annotate(database.status(), StrCat("journal ", path)));
  // Not make_unique: the constructor is private.
  std::unique_ptr<Journal> journal(
      new Journal(path, options, *std::move(lock), *std::move(database)));
  GAVEL_RETURN_IF_ERROR(journal->Error(journal->Prepare()));
  return journal;
}

absl::Status Journal::Prepare() {
  GAVEL_RETURN_IF_ERROR(database_.Execute(kPragmas));
  const absl::Status made = InTransaction([this] {
    GAVEL_RETURN_IF_ERROR(database_.Execute(kJournalTables));
    return CreateHistory(database_);
  });
  GAVEL_RETURN_IF_ERROR(made);
  GAVEL_RETURN_IF_ERROR(CheckJournalFormat(database_, kFormatVersion));
  GAVEL_ASSIGN_OR_RETURN(cluster_id_, ReadMetadata(database_, "cluster_id"));
  return absl::OkStatus();
}

absl::Status Journal::CheckLock() const {
  if (lock_.IsLast()) return absl::OkStatus();
  return absl::AbortedError(
      StrCat("journal ", path_, ": its lock file ", path_,
             ".lock was removed, or written by another coordinator, which has "
             "taken over then: nothing more is granted from here. If none "
             "runs, start the coordinator again"));
}

absl::Status Journal::Recover(const RecoverInto& into) {
  assert(!was_read_);
  was_read_ = true;
  RecoverInto noted = into;
  if (into.begin) {
    noted.begin = [&](const JournalSnapshot* snapshot) {
      snapshot_seq_ = snapshot == nullptr ? 0 : snapshot->at.position.seq;
      return into.begin(snapshot);
    };
  }
  absl::StatusOr<ChainEnd> end = RecoverChain(database_, noted);
  GAVEL_RETURN_IF_ERROR(Error(end.status()));
  end_ = *end;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Journal::BeginTerm(uint64_t term_min) const {
  assert(was_read_);
  const std::string path = path_ + ".term";
  uint64_t begun = 0;
  std::error_code missing;
  if (std::filesystem::exists(path, missing) &&
      !absl::SimpleAtoi(ReadAll(path), &begun)) {
    return absl::DataLossError(
        StrCat("journal ", path_, ": ", path,
               " is damaged: it says no term. If the journal is whole, remove "
               "that file"));
  }
  const uint64_t term =
      std::max(std::max(begun, end_.position.term) + 1, term_min);
  const absl::Status written = ReplaceFile(path, StrCat(term, "\n"));
  GAVEL_RETURN_IF_ERROR(Annotate(
      written,
      StrCat("journal ", path_, ": the term of this start can't be kept")));
  return term;
}

absl::Status Journal::ReserveWal() {
  assert(was_read_);
  const absl::Status status = InTransaction([this]() -> absl::Status {
    const absl::Status reserved = database_.ReserveWal(kWalBytesMax);
    return absl::IsResourceExhausted(reserved) ? absl::OkStatus() : reserved;
  });
  return status.ok() ? status : Broke(status);
}

absl::Status Journal::Append(std::span<const JournalRow> rows,
                             std::span<const HistoryRow> history) {
  assert(was_read_);
  if (!broken_.ok()) return broken_;
  absl::Status status = InTransaction([&] {
    GAVEL_RETURN_IF_ERROR(InsertRows(rows));
    return WriteHistory(database_, history);
  });
  if (status.ok() && database_.wal_pages() >= kWalPagesMax) {
    status = database_.Checkpoint();
  }
  return status.ok() ? status : Broke(status);
}

absl::Status Journal::Broke(const absl::Status& status) {
  broken_ = Error(status);
  database_.LeaveFilesOnClose();
  return broken_;
}

// Not rolled back when it fails: nothing is ever written again then, and what
// is not committed is forgotten.
template <class Body>
absl::Status Journal::InTransaction(const Body& body) {
  GAVEL_RETURN_IF_ERROR(database_.Run("BEGIN IMMEDIATE"));
  if (was_read_) {
    const absl::Status last = CheckLastRow();
    if (absl::IsAborted(last)) {
      // At once: the other one waits for the end of this transaction.
      GAVEL_RETURN_IF_ERROR(database_.Execute("ROLLBACK"));
    }
    GAVEL_RETURN_IF_ERROR(last);
  }
  GAVEL_RETURN_IF_ERROR(body());
  return database_.Run("COMMIT");
}

// Within a transaction, so that nobody can write between this and its commit.
// The last row is never pruned.
absl::Status Journal::CheckLastRow() {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement* const select,
      database_.PrepareOnce(
          "SELECT seq, term, hash FROM journal ORDER BY seq DESC LIMIT 1"));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select->Step());
  JournalPosition last;
  bool same = !found && end_.position.seq == 0;
  if (found) {
    last = {select->Integer(1), select->Integer(0)};
    same = last == end_.position && select->Blob(2) == View(end_.head);
    GAVEL_RETURN_IF_ERROR(select->Step().status());  // its end resets it
  }
  if (same) return absl::OkStatus();
  return absl::AbortedError(
      StrCat("its last row is term ", last.term, " seq ", last.seq,
             ", this coordinator's is term ", end_.position.term, " seq ",
             end_.position.seq,
             ": another coordinator has taken over, and nothing more is "
             "written from here"));
}

absl::Status Journal::InsertRows(std::span<const JournalRow> rows) {
  for (const JournalRow& row : rows) {
    assert(row.seq == end_.position.seq + 1);
    assert(std::isfinite(row.time));
    const JournalHash hash = ChainHash(end_.head, row);
    GAVEL_RETURN_IF_ERROR(
        database_.Run("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", row.seq,
                      row.term, row.time, row.row, View(hash)));
    end_ = {{row.term, row.seq}, row.time, hash};
  }
  return database_.Run("UPDATE metadata SET value = ? WHERE key = 'last_seq'",
                       end_.position.seq);
}

void Journal::StartSnapshot(JournalSnapshot snapshot) {
  snapshot_ = Snapshot{std::move(snapshot), 0};
  maintained_ = false;
}

absl::StatusOr<bool> Journal::Maintain() {
  assert(was_read_);
  if (!broken_.ok()) return broken_;
  if (maintained_ && !snapshot_) return false;
  absl::StatusOr<bool> more = MaintainOnce();
  if (more.ok()) return more;
  if (absl::IsResourceExhausted(more.status())) {
    // Rows may still fit. What was written of it goes with the next one.
    // An error if SQLite has rolled back by itself.
    database_.Execute("ROLLBACK").IgnoreError();
    snapshot_.reset();
    maintained_ = true;
    return Error(more.status());
  }
  return Broke(more.status());
}

absl::StatusOr<bool> Journal::MaintainOnce() {
  bool more = true;
  const absl::Status done = InTransaction([&]() -> absl::Status {
    if (snapshot_) return WritePart();
    GAVEL_ASSIGN_OR_RETURN(more, RemoveOldPart());
    if (more) return absl::OkStatus();
    GAVEL_ASSIGN_OR_RETURN(more, PruneSome());
    return absl::OkStatus();
  });
  GAVEL_RETURN_IF_ERROR(done);
  if (snapshot_ && snapshot_->parts_written * kSnapshotPartBytes >=
                       snapshot_->content.bytes.size()) {
    snapshot_.reset();
  }
  if (database_.wal_pages() >= kWalPagesMax) {
    GAVEL_RETURN_IF_ERROR(database_.Checkpoint());
  }
  maintained_ = !more;
  return more;
}

// The head of the snapshot goes in with its last part, and makes it count.
absl::Status Journal::WritePart() {
  const ChainEnd& at = snapshot_->content.at;
  const std::string_view bytes = snapshot_->content.bytes;
  const size_t part = snapshot_->parts_written++;
  GAVEL_RETURN_IF_ERROR(database_.Run(
      "INSERT OR REPLACE INTO snapshot_part VALUES(?,?,?)", at.position.seq,
      part, bytes.substr(part * kSnapshotPartBytes, kSnapshotPartBytes)));
  if ((part + 1) * kSnapshotPartBytes < bytes.size()) return absl::OkStatus();
  const JournalHash hash = SnapshotHash(at, bytes);
  return database_.Run("INSERT OR REPLACE INTO snapshot VALUES(?,?,?,?,?)",
                       at.position.seq, at.position.term, at.time,
                       View(at.head), View(hash));
}

// Of snapshots beyond the newest kSnapshotsKept, and of those that never came
// to their end.
absl::StatusOr<bool> Journal::RemoveOldPart() {
  GAVEL_ASSIGN_OR_RETURN(std::vector<uint64_t> kept, ListSnapshots(database_));
  if (kept.size() > kSnapshotsKept) {
    kept.resize(kSnapshotsKept);
    GAVEL_RETURN_IF_ERROR(
        database_.Run("DELETE FROM snapshot WHERE seq < ?", kept.back()));
  }
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement find,
      database_.Prepare("SELECT rowid FROM snapshot_part WHERE seq NOT IN "
                        "(SELECT seq FROM snapshot) LIMIT 1"));
  GAVEL_ASSIGN_OR_RETURN(const bool found, find.Step());
  if (!found) return false;
  GAVEL_RETURN_IF_ERROR(database_.Run(
      "DELETE FROM snapshot_part WHERE rowid = ?", find.Integer(0)));
  return true;
}

// The oldest kPrunedAtOnce rows, if all of them are old enough and the oldest
// snapshot is newer. The last of them stays as the hash that the rest follows.
absl::StatusOr<bool> Journal::PruneSome() {
  if (!(options_.keep_s < kNever)) return false;
  GAVEL_ASSIGN_OR_RETURN(const std::vector<uint64_t> snapshots,
                         ListSnapshots(database_));
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd base, ReadChainBase(database_));
  const uint64_t last = base.position.seq + kPrunedAtOnce;
  if (snapshots.size() < kSnapshotsKept || last > snapshots.back()) {
    return false;
  }
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database_.Prepare("SELECT time FROM journal WHERE seq = ?", last));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found || !(select.Real(0) < end_.time - options_.keep_s)) return false;
  GAVEL_RETURN_IF_ERROR(database_.Run("DELETE FROM journal_base"));
  GAVEL_RETURN_IF_ERROR(
      database_.Run("INSERT INTO journal_base SELECT seq, term, time, hash "
                    "FROM journal WHERE seq = ?",
                    last));
  GAVEL_RETURN_IF_ERROR(
      database_.Run("DELETE FROM journal WHERE seq <= ?", last));
  GAVEL_RETURN_IF_ERROR(PruneHistory(database_, last));
  return true;
}

absl::StatusOr<bool> Journal::VerifySome() {
  if (!broken_.ok() || verified_.position.seq >= snapshot_seq_) return false;
  const absl::Status status = VerifyOnce();
  if (!status.ok()) snapshot_seq_ = 0;
  GAVEL_RETURN_IF_ERROR(Error(status));
  return verified_.position.seq < snapshot_seq_;
}

// The first of them may have been pruned since the last time.
absl::Status Journal::VerifyOnce() {
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd base, ReadChainBase(database_));
  if (base.position > verified_.position) verified_ = base;
  return VerifyRows(database_, snapshot_seq_, kVerifiedAtOnce, &verified_);
}

absl::Status Journal::Error(const absl::Status& status) const {
  return Annotate(status, StrCat("journal ", path_));
}

}  // namespace gavel
