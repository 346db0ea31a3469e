#include "coordinator/server/journal.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "xxhash.h"

namespace gavel {
namespace {

// The WAL is copied into the main file when it has grown this long (4 MiB).
constexpr int kWalPagesMax = 1000;

constexpr char kPragmas[] =
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=FULL;"
    "PRAGMA cell_size_check=ON;"
    "PRAGMA trusted_schema=OFF;"
    "PRAGMA cache_size=-512;";

constexpr char kTables[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS metadata("
    " key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS journal("
    " seq INTEGER PRIMARY KEY, term INTEGER NOT NULL, time REAL NOT NULL,"
    " event BLOB NOT NULL, hash BLOB NOT NULL) STRICT;"
    "INSERT OR IGNORE INTO metadata VALUES"
    " ('format_version', '1'),"
    " ('created', strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),"
    " ('last_seq', '0');"
    "COMMIT;";
static_assert(Journal::kFormatVersion == 1);

constexpr char kRemedy[] =
    "; restore the file from a backup, or start with an empty state directory";

void AppendBits(std::string* bytes, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) {
    bytes->push_back(static_cast<char>(value >> shift & 0xff));
  }
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

Journal::Journal(std::string path, FileLock lock, SqliteDatabase database)
    : path_(std::move(path)),
      lock_(std::move(lock)),
      database_(std::move(database)) {}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(
    const std::string& path) {
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
      new Journal(path, *std::move(lock), *std::move(database)));
  GAVEL_RETURN_IF_ERROR(journal->Error(journal->Prepare()));
  return journal;
}

absl::Status Journal::Prepare() {
  GAVEL_RETURN_IF_ERROR(database_.Execute(kPragmas));
  GAVEL_RETURN_IF_ERROR(database_.Execute(kTables));
  return CheckVersion();
}

absl::StatusOr<std::string> Journal::Metadata(std::string_view key) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database_.Prepare(
          StrCat("SELECT value FROM metadata WHERE key = '", key, "'")));
  GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
  return std::string(found ? select.Blob(0) : "none");
}

absl::Status Journal::CheckVersion() {
  GAVEL_ASSIGN_OR_RETURN(const std::string version, Metadata("format_version"));
  if (version == StrCat(kFormatVersion)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("has format ", version, ", this coordinator knows format ",
             kFormatVersion, "; use the version of gavel that wrote it"));
}

// The chain alone would not miss rows at its end.
absl::Status Journal::CheckEnd() {
  GAVEL_ASSIGN_OR_RETURN(const std::string last_seq, Metadata("last_seq"));
  if (last_seq == StrCat(position_.seq)) return absl::OkStatus();
  return absl::DataLossError(StrCat("row ", position_.seq + 1,
                                    " is missing: the last row should be ",
                                    last_seq, kRemedy));
}

absl::Status Journal::ReadAll(
    const std::function<absl::Status(const JournalRow&)>& on_row) {
  assert(!was_read_);
  was_read_ = true;
  absl::StatusOr<SqliteStatement> select = database_.Prepare(
      "SELECT seq, term, time, event, hash FROM journal ORDER BY seq");
  GAVEL_RETURN_IF_ERROR(Error(select.status()));
  while (true) {
    const absl::StatusOr<bool> found = select->Step();
    GAVEL_RETURN_IF_ERROR(
        Error(Annotate(found.status(), StrCat("after row ", position_.seq))));
    if (!*found) return Error(CheckEnd());
    const JournalRow row{select->Integer(0), select->Integer(1),
                         select->Real(2), std::string(select->Blob(3))};
    GAVEL_RETURN_IF_ERROR(Error(CheckRow(row, select->Blob(4))));
    GAVEL_RETURN_IF_ERROR(
        Error(Annotate(on_row(row), StrCat("row ", row.seq))));
    Follow(row, ChainHash(head_, row));
  }
}

absl::Status Journal::CheckRow(const JournalRow& row,
                               std::string_view hash) const {
  constexpr char kRemedy[] =
      "; restore the file from a backup, or start with an empty state "
      "directory";
  if (row.seq != position_.seq + 1) {
    return absl::DataLossError(StrCat("row ", position_.seq + 1,
                                      " is missing, row ", row.seq,
                                      " follows row ", position_.seq, kRemedy));
  }
  const JournalHash expected = ChainHash(head_, row);
  if (!std::ranges::equal(hash, expected)) {
    return absl::DataLossError(
        StrCat("row ", row.seq,
               " is damaged: its hash does not follow from it and row ",
               position_.seq, kRemedy));
  }
  return absl::OkStatus();
}

absl::Status Journal::Append(std::span<const JournalRow> rows) {
  assert(was_read_);
  if (!broken_.ok()) return broken_;
  absl::Status status = AppendInTransaction(rows);
  if (status.ok() && database_.wal_pages() >= kWalPagesMax) {
    status = database_.Checkpoint();
  }
  if (status.ok()) return status;
  broken_ = Error(status);
  database_.LeaveFilesOnClose();
  return broken_;
}

absl::Status Journal::AppendInTransaction(std::span<const JournalRow> rows) {
  GAVEL_RETURN_IF_ERROR(database_.Execute("BEGIN IMMEDIATE"));
  {
    GAVEL_ASSIGN_OR_RETURN(
        SqliteStatement insert,
        database_.Prepare("INSERT INTO journal VALUES (?, ?, ?, ?, ?)"));
    for (const JournalRow& row : rows) {
      GAVEL_RETURN_IF_ERROR(InsertRow(insert, row));
    }
    GAVEL_ASSIGN_OR_RETURN(
        SqliteStatement update,
        database_.Prepare(
            "UPDATE metadata SET value = ? WHERE key = 'last_seq'"));
    update.BindInteger(1, position_.seq);
    GAVEL_RETURN_IF_ERROR(update.Step().status());
  }
  return database_.Execute("COMMIT");
}

absl::Status Journal::InsertRow(SqliteStatement& insert,
                                const JournalRow& row) {
  assert(row.seq == position_.seq + 1);
  assert(std::isfinite(row.time));
  const JournalHash hash = ChainHash(head_, row);
  insert.BindInteger(1, row.seq);
  insert.BindInteger(2, row.term);
  insert.BindReal(3, row.time);
  insert.BindBlob(4, row.row);
  insert.BindBlob(5, {hash.data(), hash.size()});
  GAVEL_RETURN_IF_ERROR(insert.Step().status());
  Follow(row, hash);
  return absl::OkStatus();
}

void Journal::Follow(const JournalRow& row, const JournalHash& hash) {
  position_ = {row.term, row.seq};
  last_time_ = row.time;
  head_ = hash;
}

absl::Status Journal::Error(const absl::Status& status) const {
  return Annotate(status, StrCat("journal ", path_));
}

}  // namespace gavel
