#include "coordinator/server/history_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/server/row_json.h"
#include "coordinator/workload/job_spec.h"
#include "core/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"

namespace gavel {

namespace {

using Json = nlohmann::ordered_json;

// Rows that one page looks at.
constexpr int kRowsPerPageMax = 4096;

enum class Kind : uint8_t { kInteger, kReal, kText, kMap };
template <class T>
constexpr Kind KindOf() {
  if constexpr (std::is_integral_v<T>) return Kind::kInteger;
  if constexpr (std::is_same_v<T, double>) return Kind::kReal;
  if constexpr (std::is_same_v<T, std::string>) return Kind::kText;
  return Kind::kMap;
}
std::string_view SqlTypeOf(Kind kind) {
  if (kind == Kind::kInteger) return "INTEGER";
  return kind == Kind::kReal ? "REAL" : "TEXT";
}

struct Field {
  std::string_view name;
  Kind kind;
};
struct Table {
  std::string_view name;
  std::vector<Field> fields;
  std::string_view begins;  // column of when it began
  std::string_view ends;    // and ended; 0 there: not yet
  bool has_readers = true;
};

template <class Row>
Table TableOf(std::string_view begins, std::string_view ends,
              bool has_readers = true) {
  Table table{Row::kTable, {}, begins, ends, has_readers};
  const Row row;
  VisitFields(row, [&]<class T>(const RowKey& key, const T&) {
    table.fields.push_back({key.name, KindOf<T>()});
  });
  return table;
}

const std::vector<Table>& Tables() {
  static const std::vector<Table> tables = {
      TableOf<HistoryJob>("submitted_s", "ended_s"),
      TableOf<HistoryLease>("from_s", "to_s"),
      TableOf<HistoryRound>("from_s", "from_s"),
      TableOf<HistorySteps>("at_s", "at_s"),
      TableOf<HistoryShares>("from_s", "to_s"),
      TableOf<HistoryNotice>("at_s", "at_s", /*has_readers=*/false)};
  return tables;
}

// Null: readers have no such table.
const Table* FindTable(std::string_view name) {
  const auto found = std::ranges::find(Tables(), name, &Table::name);
  return found == Tables().end() || !found->has_readers ? nullptr : &*found;
}

// Binds parameters from 1 on.
class Binds {
 public:
  explicit Binds(SqliteStatement& statement) : statement_(statement) {}
  void operator()(const std::string& text) {
    statement_.BindText(++parameter_, text);
  }
  // No number would be NULL, which the tables refuse.
  void operator()(double value) {
    statement_.BindReal(++parameter_, std::isfinite(value) ? value : 0);
  }
  template <std::integral T>
  void operator()(T value) {
    statement_.BindInteger(++parameter_, static_cast<uint64_t>(value));
  }
  void operator()(const std::map<std::string, double>& map) {
    statement_.BindText(++parameter_, DumpJson(map));
  }

 private:
  SqliteStatement& statement_;
  int parameter_ = 0;
};

template <class Row>
absl::Status Write(SqliteDatabase& database, const Row& row) {
  std::string marks;
  VisitFields(row, [&](const RowKey&, const auto&) {
    marks += marks.empty() ? "?" : ",?";
  });
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement* const insert,
      database.PrepareOnce(StrCat("INSERT OR REPLACE INTO history_",
                                  Row::kTable, " VALUES(", marks, ")")));
  Binds bind(*insert);
  VisitFields(row, [&](const RowKey&, const auto& value) { bind(value); });
  return insert->Step().status();
}

absl::Status Write(SqliteDatabase& database, const HistoryThinned& t) {
  return database.Run(
      "DELETE FROM history_steps WHERE job = ? AND number % ? != 0", t.job,
      t.stride);
}

Json ReadValue(const SqliteStatement& row, int column, Kind kind) {
  switch (kind) {
    case Kind::kInteger:
      // Exit codes and ranks may be negative.
      return static_cast<int64_t>(row.Integer(column));
    case Kind::kReal:
      return row.Real(column);
    case Kind::kText:
      return std::string(row.Blob(column));
    case Kind::kMap:
      break;
  }
  Json map = Json::parse(row.Blob(column), nullptr, /*allow_exceptions=*/false);
  return map.is_object() ? map : Json::object();
}

Json ReadRow(const SqliteStatement& row, const Table& table) {
  Json json = Json::object();
  int column = 0;
  for (const Field& field : table.fields) {
    json[std::string(field.name)] = ReadValue(row, column++, field.kind);
  }
  return json;
}

// Adds what a job has had since rows of it were written: its leases that run,
// up to now, and the steps of its last report.
absl::Status AddUpToNow(SqliteDatabase& database, double now_s, Json& job) {
  const auto id = job.value("job", uint64_t{0});
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement leases,
      database.Prepare("SELECT rank, type, from_s FROM history_leases"
                       " WHERE job = ? AND to_s = 0",
                       id));
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool found, leases.Step());
    if (!found) break;
    const double held_s = std::max(0.0, now_s - leases.Real(2));
    if (leases.Integer(0) == 0) {
      job["run_s"] = job.value("run_s", 0.0) + held_s;
    }
    Json& of_type = job["accelerator_s"][std::string(leases.Blob(1))];
    of_type = (of_type.is_number() ? of_type.get<double>() : 0) + held_s;
  }
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement steps,
      database.Prepare("SELECT MAX(steps_done) FROM history_steps"
                       " WHERE job = ?",
                       id));
  GAVEL_ASSIGN_OR_RETURN(const bool found, steps.Step());
  if (!found) return absl::OkStatus();
  job["steps_done"] =
      std::max(job.value("steps_done", uint64_t{0}), steps.Integer(0));
  return absl::OkStatus();
}

// Why a job is held may quote its program's output. It has ended, or is ending.
void HideFrom(const Identity& reader, Json& row) {
  const std::string state = row.value("state", "");
  if (state != "F" && state != "CG") return;
  if (MayTouch(reader, row.value("user", ""))) return;
  row["reason"] =
      StrCat("`gavel why ", row.value("job", uint64_t{0}), "` says why");
}

// -1: the table has no such column.
int ColumnOf(const Table& table, std::string_view name) {
  const auto found = std::ranges::find(table.fields, name, &Field::name);
  return found == table.fields.end()
             ? -1
             : static_cast<int>(found - table.fields.begin());
}

// Asked of each row that a page looks at, so before any JSON is made of it.
class RowFilter {
 public:
  RowFilter(const HistoryFilter& filter, const Table& table)
      : filter_(filter),
        job_(filter.job == 0 ? -1 : ColumnOf(table, "job")),
        user_(filter.user.empty() ? -1 : ColumnOf(table, "user")),
        state_(filter.state.empty() ? -1 : ColumnOf(table, "state")),
        begins_(ColumnOf(table, table.begins)),
        ends_(ColumnOf(table, table.ends)) {}

  bool Takes(const SqliteStatement& row) const {
    if (job_ >= 0 && row.Integer(job_) != filter_.job) return false;
    if (user_ >= 0 && row.Blob(user_) != filter_.user) return false;
    if (state_ >= 0 && row.Blob(state_) != filter_.state) return false;
    const double ended_s = row.Real(ends_);
    if (ended_s > 0 && ended_s < filter_.since_s) return false;
    return filter_.until_s <= 0 || row.Real(begins_) <= filter_.until_s;
  }

 private:
  const HistoryFilter& filter_;
  int job_, user_, state_, begins_, ends_;  // columns; -1: it does not matter
};

// The key counts up; of one job the index finds the rows.
std::string SelectOf(const Table& table, const HistoryFilter& filter) {
  std::string columns;
  for (const Field& field : table.fields) {
    StrAppend(&columns, columns.empty() ? "" : ", ", field.name);
  }
  const std::string_view key = table.fields.front().name;
  const bool by_job = filter.job != 0 && ColumnOf(table, "job") >= 0;
  return StrCat("SELECT ", columns, " FROM history_", table.name, " WHERE ",
                key, " > ?1", by_job ? " AND job = ?2" : "", " ORDER BY ", key,
                " LIMIT ", kRowsPerPageMax);
}

}  // namespace

absl::Status CreateHistory(SqliteDatabase& database) {
  std::string sql;
  for (const Table& table : Tables()) {
    StrAppend(&sql, "CREATE TABLE IF NOT EXISTS history_", table.name, "(",
              table.fields.front().name, " INTEGER PRIMARY KEY");
    for (const Field& field : std::span(table.fields).subspan(1)) {
      StrAppend(&sql, ", ", field.name, " ", SqlTypeOf(field.kind),
                " NOT NULL");
    }
    StrAppend(&sql, ");");
  }
  for (const char* table : {"history_leases", "history_steps"}) {
    StrAppend(&sql, "CREATE INDEX IF NOT EXISTS ", table, "_job ON ", table,
              "(job);");
  }
  return database.Execute(sql.c_str());
}

absl::Status WriteHistory(SqliteDatabase& database,
                          std::span<const HistoryRow> rows) {
  for (const HistoryRow& row : rows) {
    GAVEL_RETURN_IF_ERROR(
        std::visit([&](const auto& r) { return Write(database, r); }, row));
  }
  return absl::OkStatus();
}

absl::Status PruneHistory(SqliteDatabase& database, uint64_t seq) {
  for (const char* sql :
       {"DELETE FROM history_leases WHERE seq <= ? AND to_s > 0",
        "DELETE FROM history_rounds WHERE seq <= ?",
        "DELETE FROM history_steps WHERE seq <= ?",
        "DELETE FROM history_shares WHERE seq <= ?",
        "DELETE FROM history_jobs WHERE last_seq <= ? AND over"}) {
    GAVEL_RETURN_IF_ERROR(database.Run(sql, seq));
  }
  return database.Run("DELETE FROM history_notices WHERE id < ?",
                      (seq + 1) * HistoryNotice::kPerRowMax);
}

namespace {

void ReadColumn(const SqliteStatement& row, int column, std::string* value) {
  *value = std::string(row.Blob(column));
}
void ReadColumn(const SqliteStatement& row, int column, double* value) {
  *value = row.Real(column);
}
template <std::integral T>
void ReadColumn(const SqliteStatement& row, int column, T* value) {
  *value = static_cast<T>(row.Integer(column));
}

}  // namespace

absl::StatusOr<WaitingNotices> ReadNotices(
    SqliteDatabase& database, const std::vector<std::string>& events,
    uint64_t behind, uint64_t waiting_max) {
  std::string names;
  for (const std::string_view event : kNoticeEvents) {
    if (!WantsNotice(events, event)) continue;
    StrAppend(&names, names.empty() ? "'" : ", '", event, "'");
  }
  // The highest id first: rows that come meanwhile are for the next time.
  WaitingNotices waiting;
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement highest,
      database.Prepare("SELECT COALESCE(MAX(id), 0) FROM history_notices"));
  GAVEL_RETURN_IF_ERROR(highest.Step().status());
  waiting.last = std::max(behind, highest.Integer(0));
  GAVEL_RETURN_IF_ERROR(highest.Step().status());
  if (waiting.last == behind) return waiting;
  const std::string wanted = StrCat(
      " FROM history_notices WHERE id > ?1 AND id <= ?2 AND "
      "(chosen OR event IN (",
      names, "))");
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement count,
                         database.Prepare(StrCat("SELECT COUNT(*)", wanted),
                                          behind, waiting.last));
  GAVEL_RETURN_IF_ERROR(count.Step().status());
  const uint64_t found = count.Integer(0);
  GAVEL_RETURN_IF_ERROR(count.Step().status());
  if (found == 0) return waiting;
  if (found > waiting_max) waiting.dropped = found - waiting_max;
  std::string columns;
  VisitFields(waiting.first.emplace(), [&](const RowKey& key, const auto&) {
    StrAppend(&columns, columns.empty() ? "" : ", ", key.name);
  });
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database.Prepare(
          StrCat("SELECT ", columns, wanted, " ORDER BY id LIMIT 1 OFFSET ?3"),
          behind, waiting.last, waiting.dropped));
  GAVEL_ASSIGN_OR_RETURN(const bool is_there, select.Step());
  if (!is_there) return absl::DataLossError("a notice is not there any more");
  int column = 0;
  VisitFields(*waiting.first, [&](const RowKey&, auto& value) {
    ReadColumn(select, column++, &value);
  });
  return waiting;
}

std::string FormatHistoryFilter(const HistoryFilter& filter) {
  return DumpJson(ToJson(filter));
}

absl::StatusOr<HistoryFilter> ParseHistoryFilter(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  bool right = json.is_object();
  HistoryFilter filter;
  VisitFields(filter, [&](const RowKey& key, auto& member) {
    const auto field = json.find(std::string(key.name));
    right = right && (field == json.end() || row_json::Read(*field, &member));
  });
  if (!right) {
    return absl::InvalidArgumentError(
        "the request is no filter of a history; use `gavel history` of the "
        "coordinator's version");
  }
  if (FindTable(filter.table) != nullptr) return filter;
  return absl::InvalidArgumentError(
      StrCat("there is no history of \"", filter.table,
             "\"; choose jobs, leases, rounds, steps or shares"));
}

absl::StatusOr<HistoryPage> ReadHistory(SqliteDatabase& database,
                                        const HistoryFilter& filter,
                                        uint64_t cursor, double now_s,
                                        const Identity* reader) {
  const Table* table = FindTable(filter.table);
  if (table == nullptr) return absl::InvalidArgumentError("no such table");
  const std::string sql = SelectOf(*table, filter);
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement select, database.Prepare(sql, cursor));
  if (sql.find("?2") != std::string::npos) select.BindInteger(2, filter.job);
  const RowFilter wanted(filter, *table);
  HistoryPage page;
  JsonPage rows;
  for (int looked = 0;; ++looked) {
    GAVEL_ASSIGN_OR_RETURN(const bool found, select.Step());
    if (!found) {
      page.next_cursor = looked == kRowsPerPageMax ? cursor : 0;
      break;
    }
    const uint64_t key = select.Integer(0);
    if (wanted.Takes(select)) {
      Json row = ReadRow(select, *table);
      if (now_s > 0 && row.value("over", 1) == 0) {
        GAVEL_RETURN_IF_ERROR(AddUpToNow(database, now_s, row));
      }
      if (reader != nullptr) HideFrom(*reader, row);
      if (!rows.Add(std::move(row))) {
        page.next_cursor = cursor;
        break;
      }
    }
    cursor = key;
  }
  page.json = rows.Take();
  return page;
}

absl::StatusOr<Json> ReadAllHistory(SqliteDatabase& database,
                                    const HistoryFilter& filter) {
  Json all = Json::array();
  uint64_t cursor = 0;
  do {
    GAVEL_ASSIGN_OR_RETURN(const HistoryPage page,
                           ReadHistory(database, filter, cursor));
    Json part = Json::parse(page.json, nullptr, /*allow_exceptions=*/false);
    for (Json& row : part) all.push_back(std::move(row));
    cursor = page.next_cursor;
  } while (cursor != 0);
  return all;
}

namespace {

// Opened for each page: no transaction stays open between two.
absl::StatusOr<HistoryPage> PageOf(const QueryRequest& request,
                                   const Identity& reader,
                                   const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(HistoryFilter filter,
                         ParseHistoryFilter(request.filter));
  if (request.job.valid()) filter.job = request.job.value();
  absl::StatusOr<SqliteDatabase> database = SqliteDatabase::OpenReadOnly(path);
  GAVEL_RETURN_IF_ERROR(Annotate(database.status(), path));
  return ReadHistory(*database, filter, request.cursor, WallClockNow(),
                     &reader);
}

}  // namespace

QueryReply AnswerHistory(const QueryRequest& request, const Identity& reader,
                         const std::string& path) {
  QueryReply reply;
  reply.request = request.request;
  const absl::StatusOr<HistoryPage> page = PageOf(request, reader, path);
  if (page.ok()) {
    reply.json = page->json;
    reply.next_cursor = page->next_cursor;
  } else {
    reply.error = std::string(page.status().message());
  }
  return reply;
}

}  // namespace gavel
