// Rows in and out of SQLite statements, column after column. Not thread-safe;
// borrows statements and databases.
#ifndef GAVEL_STUDY_SIMULATION_SQLITE_ROWS_H_
#define GAVEL_STUDY_SIMULATION_SQLITE_ROWS_H_

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/server/journal/sqlite.h"
#include "core/status.h"

namespace gavel {

// Binds parameters from 1 on, one after the other.
class Binder {
 public:
  explicit Binder(SqliteStatement& statement) : statement_(statement) {}

  void operator()(std::string_view text) {
    statement_.BindBlob(++parameter_, text);
  }
  // NaN and infinity become NULL.
  void operator()(double value) {
    statement_.BindReal(++parameter_,
                        std::isfinite(value)
                            ? value
                            : std::numeric_limits<double>::quiet_NaN());
  }
  void operator()(std::integral auto value) {
    statement_.BindInteger(++parameter_, static_cast<uint64_t>(value));
  }

 private:
  SqliteStatement& statement_;
  int parameter_ = 0;
};

// Reads columns from 0 on, one after the other.
class RowReader {
 public:
  explicit RowReader(const SqliteStatement& statement)
      : statement_(statement) {}

  void operator()(std::string& text) { text = statement_.Blob(column_++); }
  void operator()(double& value) { value = statement_.Real(column_++); }
  template <std::integral T>
  void operator()(T& value) {
    value = static_cast<T>(statement_.Integer(column_++));
  }

 private:
  const SqliteStatement& statement_;
  int column_ = 0;
};

// Steps to the end.
inline absl::Status Drain(SqliteStatement& statement) {
  const absl::StatusOr<bool> row = statement.Step();
  return row.status();
}

// Runs `sql` once for each of `rows`, which `bind` binds.
template <class Rows, class Bind>
absl::Status InsertRows(SqliteDatabase& database, std::string_view sql,
                        const Rows& rows, const Bind& bind) {
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement insert, database.Prepare(sql));
  for (const auto& row : rows) {
    Binder binder(insert);
    bind(binder, row);
    GAVEL_RETURN_IF_ERROR(Drain(insert));
  }
  return absl::OkStatus();
}

// Calls `take` with each row of `sql`, with its one `parameter`.
template <class Take>
absl::Status ForEachRow(SqliteDatabase& database, std::string_view sql,
                        uint64_t parameter, const Take& take) {
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement select, database.Prepare(sql));
  select.BindInteger(1, parameter);
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool has_row, select.Step());
    if (!has_row) return absl::OkStatus();
    take(select);
  }
}

}  // namespace gavel

#endif  // GAVEL_STUDY_SIMULATION_SQLITE_ROWS_H_
