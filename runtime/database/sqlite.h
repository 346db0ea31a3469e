// SQLite as values and Status: a connection, a prepared statement. Called by
// what reads and writes journals and results. Neither is thread-safe; a
// statement must not outlive its database.
//
// Status codes: RESOURCE_EXHAUSTED disk full, DATA_LOSS file damaged or not a
// database, UNAVAILABLE locked by another process, INTERNAL anything else; the
// message ends with what SQLite and the operating system said.
#ifndef GAVEL_RUNTIME_DATABASE_SQLITE_H_
#define GAVEL_RUNTIME_DATABASE_SQLITE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gavel {

class SqliteStatement {
 public:
  // Parameters from 1. Blobs and text are copied.
  void BindInteger(int parameter, uint64_t value);
  void BindReal(int parameter, double value);
  void BindBlob(int parameter, std::string_view bytes);
  void BindText(int parameter, std::string_view text);  // for a person's SQL
  void Bind(int parameter, uint64_t value) { BindInteger(parameter, value); }
  void Bind(int parameter, double value) { BindReal(parameter, value); }
  void Bind(int parameter, std::string_view bytes) {
    BindBlob(parameter, bytes);
  }
  // True: a row is there to be read. False: done, and the statement is reset.
  absl::StatusOr<bool> Step();

  // Columns from 0; valid until the next Step.
  uint64_t Integer(int column) const;
  double Real(int column) const;
  std::string_view Blob(int column) const;

 private:
  friend class SqliteDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit SqliteStatement(sqlite3_stmt* statement) : statement_(statement) {}
  void Note(int result);  // of a bind; Step returns the first error
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bind_error_ = 0;
};

class SqliteDatabase {
 public:
  // Creates the file with mode 0600; what SQLite puts beside it inherits that.
  static absl::StatusOr<SqliteDatabase> Open(const std::string& path);
  // Opens the file to read committed data without changing it, while another
  // process may write. Returns NOT_FOUND when there is no such file.
  static absl::StatusOr<SqliteDatabase> OpenReadOnly(const std::string& path);

  // Statements without parameters and results, separated by semicolons.
  absl::Status Execute(const char* sql);
  // `values`: those of the first parameters, in the types that Bind takes.
  template <class... T>
  absl::StatusOr<SqliteStatement> Prepare(std::string_view sql,
                                          const T&... values) {
    absl::StatusOr<SqliteStatement> statement = Compile(sql);
    int parameter = 0;
    if (statement.ok()) (statement->Bind(++parameter, values), ...);
    return statement;
  }
  // The same, kept for the next time that this text comes: for those that each
  // commit needs. Its results are read to their end; at most kKeptMax texts.
  static constexpr size_t kKeptMax = 64;
  absl::StatusOr<SqliteStatement*> PrepareOnce(std::string_view sql);
  // Runs such a one to its end, with `values` as for Prepare.
  template <class... T>
  absl::Status Run(std::string_view sql, const T&... values) {
    const absl::StatusOr<SqliteStatement*> statement = PrepareOnce(sql);
    if (!statement.ok()) return statement.status();
    int parameter = 0;
    ((*statement)->Bind(++parameter, values), ...);
    return (*statement)->Step().status();
  }

  // Pages in the WAL after the last commit.
  int wal_pages() const { return *wal_pages_; }
  // Makes the WAL, if there is one, at least `bytes` long, with zeros, on disk:
  // a commit that does not make it longer is a third faster. Within a
  // transaction, so that nobody else writes there. RESOURCE_EXHAUSTED: no room,
  // and all is as before.
  absl::Status ReserveWal(int64_t bytes);
  // Copies what no reader needs from the WAL into the main file, with fsyncs.
  absl::Status Checkpoint();
  // From now on closing leaves the files as they are.
  void LeaveFilesOnClose();

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit SqliteDatabase(sqlite3* database);
  absl::StatusOr<SqliteStatement> Compile(std::string_view sql);
  std::unique_ptr<int> wal_pages_;  // SQLite's hook keeps its address
  std::unique_ptr<sqlite3, Close> database_;
  std::map<std::string, SqliteStatement, std::less<>> kept_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DATABASE_SQLITE_H_
