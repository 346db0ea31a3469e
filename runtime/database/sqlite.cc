#include "runtime/database/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"

namespace gavel {
namespace {

// So long a writer waits for another one to end its transaction.
constexpr int kBusy_ms_max = 2000;

absl::StatusCode CodeOf(int result) {
  switch (result & 0xff) {  // the primary code of an extended one
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrorOf(sqlite3* database, int result) {
  std::string text = sqlite3_errstr(result);
  if (database != nullptr) {
    text = sqlite3_errmsg(database);
    if (const int system = sqlite3_system_errno(database); system != 0) {
      StrAppend(&text, " (", std::strerror(system), ")");
    }
  }
  return {CodeOf(result), text};
}

// Callers name the file.
absl::Status ErrorOf(int error_number) {
  return {absl::ErrnoToStatusCode(error_number), std::strerror(error_number)};
}

std::string EscapeUri(std::string_view path) {
  std::string escaped;
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      constexpr char kDigits[] = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      escaped += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      escaped += c;
    }
  }
  return escaped;
}

int RememberPages(void* pages, sqlite3*, const char*, int count) {
  *static_cast<int*>(pages) = count;
  return SQLITE_OK;
}

}  // namespace

void SqliteStatement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void SqliteStatement::BindInteger(int parameter, uint64_t value) {
  Note(sqlite3_bind_int64(statement_.get(), parameter,
                          static_cast<sqlite3_int64>(value)));
}

void SqliteStatement::BindReal(int parameter, double value) {
  Note(sqlite3_bind_double(statement_.get(), parameter, value));
}

void SqliteStatement::BindBlob(int parameter, std::string_view bytes) {
  // Never null, which a column that is NOT NULL refuses.
  const char* data = bytes.empty() ? "" : bytes.data();
  Note(sqlite3_bind_blob64(statement_.get(), parameter, data, bytes.size(),
                           SQLITE_TRANSIENT));
}

void SqliteStatement::BindText(int parameter, std::string_view text) {
  const char* data = text.empty() ? "" : text.data();
  Note(sqlite3_bind_text64(statement_.get(), parameter, data, text.size(),
                           SQLITE_TRANSIENT, SQLITE_UTF8));
}

void SqliteStatement::Note(int result) {
  if (bind_error_ == SQLITE_OK) bind_error_ = result;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  if (bind_error_ != SQLITE_OK) return ErrorOf(nullptr, bind_error_);
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  const absl::Status error =
      result == SQLITE_DONE
          ? absl::OkStatus()
          : ErrorOf(sqlite3_db_handle(statement_.get()), result);
  sqlite3_reset(statement_.get());
  if (!error.ok()) return error;
  return false;
}

uint64_t SqliteStatement::Integer(int column) const {
  return static_cast<uint64_t>(sqlite3_column_int64(statement_.get(), column));
}

double SqliteStatement::Real(int column) const {
  return sqlite3_column_double(statement_.get(), column);
}

std::string_view SqliteStatement::Blob(int column) const {
  // In this order: sqlite3_column_blob may convert, which changes the size.
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  if (bytes == nullptr) return {};
  return {static_cast<const char*>(bytes), static_cast<size_t>(size)};
}

SqliteDatabase::SqliteDatabase(sqlite3* database)
    : wal_pages_(std::make_unique<int>(0)), database_(database) {
  // Takes the place of SQLite's own checkpoints, which keep their errors to
  // themselves and are tried again: a failed fsync forbids that.
  sqlite3_wal_hook(database, RememberPages, wal_pages_.get());
}

void SqliteDatabase::Close::operator()(sqlite3* database) const {
  sqlite3_close_v2(database);
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::Open(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.get() < 0) return ErrorOf(errno);
  // Closed while SQLite has the file open, it would end SQLite's locks.
  file.Close();
  sqlite3* opened = nullptr;
  const int result =
      sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);
  SqliteDatabase database(opened);
  if (result != SQLITE_OK) return ErrorOf(opened, result);
  sqlite3_extended_result_codes(opened, 1);
  sqlite3_busy_timeout(opened, kBusy_ms_max);
  return database;
}

// A file that nobody writes is read without the side files that SQLite would
// make for it; one with a WAL is read together with that.
absl::StatusOr<SqliteDatabase> SqliteDatabase::OpenReadOnly(
    const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrorOf(errno);
  if (S_ISDIR(info.st_mode)) return ErrorOf(EISDIR);
  const bool has_wal =
      stat((path + "-wal").c_str(), &info) == 0 && info.st_size > 0;
  sqlite3* opened = nullptr;
  const std::string uri =
      StrCat("file:", EscapeUri(path), has_wal ? "" : "?immutable=1");
  const int result = sqlite3_open_v2(
      uri.c_str(), &opened, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
  SqliteDatabase database(opened);
  if (result != SQLITE_OK) return ErrorOf(opened, result);
  sqlite3_extended_result_codes(opened, 1);
  GAVEL_RETURN_IF_ERROR(
      database.Execute("PRAGMA query_only=ON; PRAGMA trusted_schema=OFF;"
                       "PRAGMA cell_size_check=ON;"));
  return database;
}

absl::Status SqliteDatabase::Execute(const char* sql) {
  const int result =
      sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
  if (result == SQLITE_OK) return absl::OkStatus();
  return ErrorOf(database_.get(), result);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Compile(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v2(database_.get(), sql.data(),
                         static_cast<int>(sql.size()), &statement, nullptr);
  if (result != SQLITE_OK) return ErrorOf(database_.get(), result);
  return SqliteStatement(statement);
}

absl::StatusOr<SqliteStatement*> SqliteDatabase::PrepareOnce(
    std::string_view sql) {
  auto found = kept_.find(sql);
  if (found == kept_.end()) {
    absl::StatusOr<SqliteStatement> made = Compile(sql);
    if (!made.ok()) return made.status();
    if (kept_.size() >= kKeptMax) kept_.clear();
    found = kept_.emplace(std::string(sql), *std::move(made)).first;
  }
  found->second.bind_error_ = SQLITE_OK;
  return &found->second;
}

absl::Status SqliteDatabase::ReserveWal(int64_t bytes) {
  sqlite3_file* wal = nullptr;
  int result = sqlite3_file_control(database_.get(), "main",
                                    SQLITE_FCNTL_JOURNAL_POINTER, &wal);
  if (result != SQLITE_OK) return ErrorOf(database_.get(), result);
  if (wal->pMethods == nullptr) return absl::OkStatus();
  sqlite3_int64 length = 0;
  result = wal->pMethods->xFileSize(wal, &length);
  static constexpr std::array<char, 1 << 16> kZeros{};
  const sqlite3_int64 before = length;
  while (result == SQLITE_OK && length < bytes) {
    const auto more = std::min<sqlite3_int64>(kZeros.size(), bytes - length);
    result = wal->pMethods->xWrite(wal, kZeros.data(), static_cast<int>(more),
                                   length);
    length += more;
  }
  if (result == SQLITE_OK && length > before) {
    result = wal->pMethods->xSync(wal, SQLITE_SYNC_NORMAL);
  } else if (result == SQLITE_FULL) {
    wal->pMethods->xTruncate(wal, before);
  }
  return result == SQLITE_OK ? absl::OkStatus() : ErrorOf(nullptr, result);
}

absl::Status SqliteDatabase::Checkpoint() {
  const int result = sqlite3_wal_checkpoint_v2(
      database_.get(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  // BUSY: a reader holds old pages, which the next checkpoint copies.
  if (result == SQLITE_OK || (result & 0xff) == SQLITE_BUSY) {
    return absl::OkStatus();
  }
  return ErrorOf(database_.get(), result);
}

void SqliteDatabase::LeaveFilesOnClose() {
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
                    nullptr);
}

}  // namespace gavel
