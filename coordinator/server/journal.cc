#include "coordinator/server/journal.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "coordinator/server/history.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "xxhash.h"

namespace gavel {
namespace {

constexpr char kRemedy[] =
    "; restore the file from a backup, or end all agents and jobs of this "
    "cluster, start with an empty state directory, and then start the agents";

constexpr char kRemedyBehindSnapshot[] =
    "; a later snapshot stands for it, so the coordinator goes on, but its "
    "disk may be failing: stop it, copy its state directory to another disk "
    "and start it there. Replays of that row will end with this";

// VerifyRows reads no more than this and one row.
constexpr size_t kVerifiedBytesMax = 1024 * 1024;

void AppendBits(std::string* bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) {
    bytes->push_back(static_cast<char>(value >> shift & 0xff));
  }
}

// The row that `select` has found, if it follows on `end`, which it becomes.
absl::StatusOr<JournalRow> NextRow(SqliteStatement& select,
                                   std::string_view remedy, ChainEnd* end) {
  JournalRow row{select.Integer(0), select.Integer(1), select.Real(2),
                 std::string(select.Blob(3))};
  const uint64_t last = end->position.seq;
  if (row.seq != last + 1) {
    return absl::DataLossError(StrCat("row ", last + 1, " is missing, row ",
                                      row.seq, " follows row ", last, remedy));
  }
  const JournalHash hash = ChainHash(end->head, row);
  if (!std::ranges::equal(select.Blob(4), hash)) {
    return absl::DataLossError(
        StrCat("row ", row.seq,
               " is damaged: its hash does not follow from it and row ", last,
               remedy));
  }
  *end = {{row.term, row.seq}, row.time, hash};
  return row;
}

// The chain alone would not miss rows at its end.
absl::Status CheckEnd(SqliteDatabase& database, uint64_t last) {
  GAVEL_ASSIGN_OR_RETURN(const std::string expected,
                         ReadMetadata(database, "last_seq"));
  if (expected == StrCat(last)) return absl::OkStatus();
  return absl::DataLossError(StrCat("row ", last + 1,
                                    " is missing: the last row should be ",
                                    expected, kRemedy));
}

bool SetHash(std::string_view bytes, JournalHash* hash) {
  if (bytes.size() != hash->size()) return false;
  std::ranges::copy(bytes, hash->begin());
  return true;
}

absl::Status Damaged(uint64_t seq, std::string_view what) {
  return absl::DataLossError(
      StrCat("the snapshot after row ", seq, " is damaged: ", what));
}

// Where both are there, the row and the snapshot must agree.
absl::Status CheckAgainstRow(SqliteDatabase& database, const ChainEnd& at) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT hash FROM journal WHERE seq = ?",
                       at.position.seq));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found || std::ranges::equal(select.Blob(0), at.head)) {
    return absl::OkStatus();
  }
  return Damaged(at.position.seq, "it is not of this chain");
}

absl::StatusOr<ChainEnd> FromNothing(SqliteDatabase& database,
                                     const RecoverInto& into) {
  GAVEL_ASSIGN_OR_RETURN(const ChainEnd base, ReadChainBase(database));
  if (base.position.seq > 0 && into.begin) {
    return absl::DataLossError(
        StrCat("no snapshot can be read, and the rows up to ",
               base.position.seq, " have been pruned", kRemedy));
  }
  if (into.begin) {
    GAVEL_RETURN_IF_ERROR(into.begin(nullptr));
  }
  return base;
}

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

JournalHash ChainHash(const JournalHash& previous, const JournalRow& row) {
  std::string bytes(previous.begin(), previous.end());
  bytes.reserve(bytes.size() + 3 * sizeof(uint64_t) + row.row.size());
  AppendBits(&bytes, row.seq);
  AppendBits(&bytes, row.term);
  AppendBits(&bytes, std::bit_cast<uint64_t>(row.time));
  bytes += row.row;
  XXH128_canonical_t canonical;  // the same bytes on every CPU
  XXH128_canonicalFromHash(&canonical,
                           XXH3_128bits(bytes.data(), bytes.size()));
  JournalHash hash;
  static_assert(sizeof(canonical.digest) == sizeof(JournalHash));
  std::memcpy(hash.data(), canonical.digest, hash.size());
  return hash;
}

JournalHash SnapshotHash(const ChainEnd& at, std::string_view bytes) {
  return ChainHash(at.head, {at.position.seq, at.position.term, at.time,
                             std::string(bytes)});
}

absl::StatusOr<std::string> ReadMetadata(SqliteDatabase& database,
                                         std::string_view key) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare(
          StrCat("SELECT value FROM metadata WHERE key = '", key, "'")));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  return std::string(found ? select.Blob(0) : "");
}

absl::Status CheckJournalFormat(SqliteDatabase& database, int format_version) {
  const absl::StatusOr<std::string> version =
      ReadMetadata(database, "format_version");
  if (!version.ok()) {
    return absl::DataLossError(StrCat("is not a journal of a coordinator (",
                                      ToStd(version.status().message()), ")"));
  }
  int number = 0;
  const bool known = absl::SimpleAtoi(*version, &number) &&
                     number >= kOldestJournalFormat && number <= format_version;
  if (known) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("has format ", version->empty() ? "none" : *version,
             ", this version of gavel knows formats ", kOldestJournalFormat,
             " to ", format_version, "; use the version of gavel that wrote it",
             number > format_version ? ", or a newer one" : ""));
}

absl::StatusOr<ChainEnd> ReadChainBase(SqliteDatabase& database) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq, term, time, hash FROM journal_base"));
  ChainEnd base;
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found) return base;
  base.position = {select.Integer(1), select.Integer(0)};
  base.time = select.Real(2);
  if (SetHash(select.Blob(3), &base.head)) return base;
  return absl::DataLossError(
      StrCat("where its rows begin is damaged", kRemedy));
}

absl::StatusOr<std::vector<uint64_t>> ListSnapshots(SqliteDatabase& database) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq FROM snapshot ORDER BY seq DESC"));
  std::vector<uint64_t> list;
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
    if (!found) return list;
    list.push_back(select.Integer(0));
  }
}

absl::StatusOr<JournalSnapshot> ReadSnapshot(SqliteDatabase& database,
                                             uint64_t seq) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare(
          "SELECT term, time, head, hash FROM snapshot WHERE seq = ?", seq));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  if (!found) return Damaged(seq, "it is not there");
  JournalSnapshot snapshot;
  snapshot.at.position = {select.Integer(0), seq};
  snapshot.at.time = select.Real(1);
  JournalHash hash;
  if (!SetHash(select.Blob(2), &snapshot.at.head) ||
      !SetHash(select.Blob(3), &hash)) {
    return Damaged(seq, "its hash is no hash");
  }
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement parts,
      database.Prepare("SELECT bytes FROM snapshot_part WHERE seq = ? "
                       "ORDER BY part",
                       seq));
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool more, parts.Step());
    if (!more) break;
    snapshot.bytes += parts.Blob(0);
  }
  if (SnapshotHash(snapshot.at, snapshot.bytes) != hash) {
    return Damaged(seq, "its hash does not follow from it");
  }
  GAVEL_RETURN_IF_ERROR(CheckAgainstRow(database, snapshot.at));
  return snapshot;
}

absl::Status ReadRows(SqliteDatabase& database, const TakeRow& take,
                      ChainEnd* end) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq, term, time, event, hash FROM journal "
                       "WHERE seq > ? ORDER BY seq",
                       end->position.seq));
  while (true) {
    const absl::StatusOr<bool> found = select.Step();
    GAVEL_RETURN_IF_ERROR(
        Annotate(found.status(), StrCat("after row ", end->position.seq)));
    if (!*found) return CheckEnd(database, end->position.seq);
    GAVEL_ASSIGN_OR_RETURN(const JournalRow row, NextRow(select, kRemedy, end));
    GAVEL_RETURN_IF_ERROR(Annotate(take(row), StrCat("row ", row.seq)));
  }
}

absl::Status VerifyRows(SqliteDatabase& database, uint64_t last, uint64_t rows,
                        ChainEnd* end) {
  const uint64_t until = std::min(last, end->position.seq + rows);
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare("SELECT seq, term, time, event, hash FROM journal "
                       "WHERE seq > ? AND seq <= ? ORDER BY seq",
                       end->position.seq, until));
  size_t bytes = 0;
  while (end->position.seq < until && bytes < kVerifiedBytesMax) {
    const std::string after = StrCat("after row ", end->position.seq);
    const absl::StatusOr<bool> found = select.Step();
    GAVEL_RETURN_IF_ERROR(Annotate(found.status(), after));
    if (!*found) {
      return absl::DataLossError(
          StrCat(after, " one is missing", kRemedyBehindSnapshot));
    }
    GAVEL_ASSIGN_OR_RETURN(const JournalRow row,
                           NextRow(select, kRemedyBehindSnapshot, end));
    bytes += row.row.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<ChainEnd> RecoverChain(SqliteDatabase& database,
                                      const RecoverInto& into) {
  std::optional<ChainEnd> end;
  std::vector<uint64_t> snapshots;
  if (into.begin) {
    GAVEL_ASSIGN_OR_RETURN(snapshots, ListSnapshots(database));
  }
  for (const uint64_t seq : snapshots) {
    if (seq >= into.before) continue;
    const absl::StatusOr<JournalSnapshot> snapshot =
        ReadSnapshot(database, seq);
    const absl::Status begun =
        snapshot.ok() ? into.begin(&*snapshot) : snapshot.status();
    if (begun.ok()) {
      end = snapshot->at;
      break;
    }
    // A snapshot of a newer format can't be skipped: its data would be lost.
    if (absl::IsFailedPrecondition(begun)) return begun;
    if (into.note) {
      into.note(StrCat(ToStd(begun.message()), "; going on without it"));
    }
  }
  if (!end) {
    GAVEL_ASSIGN_OR_RETURN(end, FromNothing(database, into));
  }
  GAVEL_RETURN_IF_ERROR(ReadRows(database, into.take, &*end));
  return *end;
}

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

// A failed transaction is not rolled back: nothing is written after a failure,
// and uncommitted changes are forgotten.
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
    // Rows may still fit. The parts already written are removed with the next
    // snapshot. ROLLBACK fails if SQLite has already rolled back by itself.
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

// Removes parts of snapshots beyond the newest kSnapshotsKept, and of those
// that were never completed.
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
