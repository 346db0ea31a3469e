#include "coordinator/server/journal/history_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/server/query/json_page.h"
#include "coordinator/server/wall_clock.h"
#include "core/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"

namespace gavel {

// Keys are those of the journal's rows, or the job's: what is pruned there is
// found here.
const char kHistoryTables[] =
    "CREATE TABLE IF NOT EXISTS history_jobs("
    " job INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL,"
    " over INTEGER NOT NULL, name TEXT NOT NULL, user TEXT NOT NULL,"
    " entity TEXT NOT NULL, app TEXT NOT NULL, state TEXT NOT NULL,"
    " reason TEXT NOT NULL, scale_factor INTEGER NOT NULL,"
    " weight REAL NOT NULL, submitted_s REAL NOT NULL,"
    " started_s REAL NOT NULL, ended_s REAL NOT NULL, run_s REAL NOT NULL,"
    " pausing_s REAL NOT NULL, steps_done INTEGER NOT NULL,"
    " steps_total INTEGER NOT NULL, pauses INTEGER NOT NULL,"
    " moves INTEGER NOT NULL, evictions INTEGER NOT NULL,"
    " failures INTEGER NOT NULL, exit_code INTEGER NOT NULL,"
    " signal INTEGER NOT NULL, accelerator_s TEXT NOT NULL,"
    " steps_per_s TEXT NOT NULL, given_steps_per_s TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS history_leases("
    " seq INTEGER PRIMARY KEY, job INTEGER NOT NULL, rank INTEGER NOT NULL,"
    " epoch INTEGER NOT NULL, server TEXT NOT NULL, type TEXT NOT NULL,"
    " uuid TEXT NOT NULL, from_s REAL NOT NULL, to_s REAL NOT NULL,"
    " steps_from INTEGER NOT NULL, steps_to INTEGER NOT NULL,"
    " ended TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS history_rounds("
    " seq INTEGER PRIMARY KEY, round INTEGER NOT NULL, from_s REAL NOT NULL,"
    " running INTEGER NOT NULL, waiting INTEGER NOT NULL,"
    " busy TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS history_steps("
    " seq INTEGER PRIMARY KEY, job INTEGER NOT NULL, number INTEGER NOT NULL,"
    " at_s REAL NOT NULL, steps_done INTEGER NOT NULL,"
    " steps_per_s REAL NOT NULL, type TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS history_shares("
    " seq INTEGER PRIMARY KEY, from_s REAL NOT NULL, to_s REAL NOT NULL,"
    " entitled TEXT NOT NULL);"
    "CREATE INDEX IF NOT EXISTS history_leases_job"
    " ON history_leases(job);"
    "CREATE INDEX IF NOT EXISTS history_steps_job"
    " ON history_steps(job);";

namespace {

using Json = nlohmann::ordered_json;

// Rows that one page looks at.
constexpr int kRowsPerPageMax = 4096;

enum class Kind : uint8_t { kInteger, kReal, kText, kMap };
struct Field {
  const char* name;
  Kind kind;
};

// The columns of each table, in the order of its statement above.
constexpr Field kJobFields[] = {{"job", Kind::kInteger},
                                {"last_seq", Kind::kInteger},
                                {"over", Kind::kInteger},
                                {"name", Kind::kText},
                                {"user", Kind::kText},
                                {"entity", Kind::kText},
                                {"app", Kind::kText},
                                {"state", Kind::kText},
                                {"reason", Kind::kText},
                                {"scale_factor", Kind::kInteger},
                                {"weight", Kind::kReal},
                                {"submitted_s", Kind::kReal},
                                {"started_s", Kind::kReal},
                                {"ended_s", Kind::kReal},
                                {"run_s", Kind::kReal},
                                {"pausing_s", Kind::kReal},
                                {"steps_done", Kind::kInteger},
                                {"steps_total", Kind::kInteger},
                                {"pauses", Kind::kInteger},
                                {"moves", Kind::kInteger},
                                {"evictions", Kind::kInteger},
                                {"failures", Kind::kInteger},
                                {"exit_code", Kind::kInteger},
                                {"signal", Kind::kInteger},
                                {"accelerator_s", Kind::kMap},
                                {"steps_per_s", Kind::kMap},
                                {"given_steps_per_s", Kind::kMap}};
constexpr Field kLeaseFields[] = {
    {"seq", Kind::kInteger},      {"job", Kind::kInteger},
    {"rank", Kind::kInteger},     {"epoch", Kind::kInteger},
    {"server", Kind::kText},      {"type", Kind::kText},
    {"uuid", Kind::kText},        {"from_s", Kind::kReal},
    {"to_s", Kind::kReal},        {"steps_from", Kind::kInteger},
    {"steps_to", Kind::kInteger}, {"ended", Kind::kText}};
constexpr Field kRoundFields[] = {
    {"seq", Kind::kInteger},     {"round", Kind::kInteger},
    {"from_s", Kind::kReal},     {"running", Kind::kInteger},
    {"waiting", Kind::kInteger}, {"busy", Kind::kMap}};
constexpr Field kStepsFields[] = {
    {"seq", Kind::kInteger},        {"job", Kind::kInteger},
    {"number", Kind::kInteger},     {"at_s", Kind::kReal},
    {"steps_done", Kind::kInteger}, {"steps_per_s", Kind::kReal},
    {"type", Kind::kText}};
constexpr Field kSharesFields[] = {{"seq", Kind::kInteger},
                                   {"from_s", Kind::kReal},
                                   {"to_s", Kind::kReal},
                                   {"entitled", Kind::kMap}};

struct Table {
  std::string_view name;
  std::span<const Field> fields;
  const char* begins;  // column of when it began
  const char* ends;    // and ended; 0 there: not yet
};
constexpr std::array<Table, 5> kTables = {
    {{"jobs", kJobFields, "submitted_s", "ended_s"},
     {"leases", kLeaseFields, "from_s", "to_s"},
     {"rounds", kRoundFields, "from_s", "from_s"},
     {"steps", kStepsFields, "at_s", "at_s"},
     {"shares", kSharesFields, "from_s", "to_s"}}};

const Table* FindTable(std::string_view name) {
  for (const Table& table : kTables) {
    if (table.name == name) return &table;
  }
  return nullptr;
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
    statement_.BindText(
        ++parameter_,
        Json(map).dump(-1, ' ', false, Json::error_handler_t::replace));
  }

 private:
  SqliteStatement& statement_;
  int parameter_ = 0;
};

template <class... Values>
absl::Status Insert(SqliteDatabase& database, std::string_view table,
                    const Values&... values) {
  std::string marks;
  for (size_t i = 0; i < sizeof...(values); ++i) {
    marks += i == 0 ? "?" : ",?";
  }
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement* const insert,
      database.PrepareOnce(StrCat("INSERT OR REPLACE INTO history_", table,
                                  " VALUES(", marks, ")")));
  Binds bind(*insert);
  (bind(values), ...);
  return insert->Step().status();
}

absl::Status Write(SqliteDatabase& database, const HistoryJob& j) {
  return Insert(database, "jobs", j.job, j.last_seq, j.over, j.name, j.user,
                j.entity, j.app, j.state, j.reason, j.scale_factor, j.weight,
                j.submitted_s, j.started_s, j.ended_s, j.run_s, j.pausing_s,
                j.steps_done, j.steps_total, j.pauses, j.moves, j.evictions,
                j.failures, j.exit_code, j.signal, j.accelerator_s,
                j.steps_per_s, j.given_steps_per_s);
}

absl::Status Write(SqliteDatabase& database, const HistoryLease& l) {
  return Insert(database, "leases", l.seq, l.job, l.rank, l.epoch, l.server,
                l.type, l.uuid, l.from_s, l.to_s, l.steps_from, l.steps_to,
                l.ended);
}

absl::Status Write(SqliteDatabase& database, const HistoryRound& r) {
  return Insert(database, "rounds", r.seq, r.round, r.from_s, r.running,
                r.waiting, r.busy);
}

absl::Status Write(SqliteDatabase& database, const HistorySteps& s) {
  return Insert(database, "steps", s.seq, s.job, s.number, s.at_s, s.steps_done,
                s.steps_per_s, s.type);
}

absl::Status Write(SqliteDatabase& database, const HistoryShares& s) {
  return Insert(database, "shares", s.seq, s.from_s, s.to_s, s.entitled);
}

absl::Status Write(SqliteDatabase& database, const HistoryThinned& t) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement remove,
      database.Prepare(
          "DELETE FROM history_steps WHERE job = ? AND number % ? != 0"));
  remove.BindInteger(1, t.job);
  remove.BindInteger(2, t.stride);
  return remove.Step().status();
}

Json ReadRow(const SqliteStatement& row, const Table& table) {
  Json json = Json::object();
  for (size_t i = 0; i < table.fields.size(); ++i) {
    const auto column = static_cast<int>(i);
    switch (table.fields[i].kind) {
      case Kind::kInteger:
        // Exit codes and ranks may be negative.
        json[table.fields[i].name] = static_cast<int64_t>(row.Integer(column));
        break;
      case Kind::kReal:
        json[table.fields[i].name] = row.Real(column);
        break;
      case Kind::kText:
        json[table.fields[i].name] = std::string(row.Blob(column));
        break;
      case Kind::kMap: {
        Json map = Json::parse(row.Blob(column), nullptr, false);
        json[table.fields[i].name] =
            map.is_object() ? std::move(map) : Json::object();
        break;
      }
    }
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
                       " WHERE job = ? AND to_s = 0"));
  leases.BindInteger(1, id);
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
                       " WHERE job = ?"));
  steps.BindInteger(1, id);
  GAVEL_ASSIGN_OR_RETURN(const bool found, steps.Step());
  if (!found) return absl::OkStatus();
  job["steps_done"] =
      std::max(job.value("steps_done", uint64_t{0}), steps.Integer(0));
  return absl::OkStatus();
}

// -1: the table has no such column.
int ColumnOf(const Table& table, std::string_view name) {
  for (size_t i = 0; i < table.fields.size(); ++i) {
    if (table.fields[i].name == name) return static_cast<int>(i);
  }
  return -1;
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
  const char* key = table.fields.front().name;
  const bool by_job = filter.job != 0 && ColumnOf(table, "job") >= 0;
  return StrCat("SELECT ", columns, " FROM history_", table.name, " WHERE ",
                key, " > ?1", by_job ? " AND job = ?2" : "", " ORDER BY ", key,
                " LIMIT ", kRowsPerPageMax);
}

}  // namespace

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
    GAVEL_ASSIGN_OR_RETURN(SqliteStatement remove, database.Prepare(sql));
    remove.BindInteger(1, seq);
    GAVEL_RETURN_IF_ERROR(remove.Step().status());
  }
  return absl::OkStatus();
}

std::string FormatHistoryFilter(const HistoryFilter& filter) {
  return Json({{"table", filter.table},
               {"job", filter.job},
               {"user", filter.user},
               {"state", filter.state},
               {"since_s", filter.since_s},
               {"until_s", filter.until_s}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<HistoryFilter> ParseHistoryFilter(std::string_view text) {
  const auto wrong = absl::InvalidArgumentError(
      "the request is no filter of a history; use `gavel history` of the "
      "coordinator's version");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return wrong;
  HistoryFilter filter;
  const auto read = [&json](const char* key, auto& value, bool right) {
    if (!json.contains(key)) return true;
    if (right) json[key].get_to(value);
    return right;
  };
  const auto text_of = [&](const char* key, std::string& value) {
    return read(key, value, json.contains(key) && json[key].is_string());
  };
  const auto number_of = [&](const char* key, double& value) {
    return read(key, value, json.contains(key) && json[key].is_number());
  };
  const auto id_of = [&](const char* key, uint64_t& value) {
    return read(key, value,
                json.contains(key) && json[key].is_number_unsigned());
  };
  if (!text_of("table", filter.table) || !text_of("user", filter.user) ||
      !text_of("state", filter.state) || !id_of("job", filter.job) ||
      !number_of("since_s", filter.since_s) ||
      !number_of("until_s", filter.until_s)) {
    return wrong;
  }
  if (FindTable(filter.table) != nullptr) return filter;
  return absl::InvalidArgumentError(
      StrCat("there is no history of \"", filter.table,
             "\"; choose jobs, leases, rounds, steps or shares"));
}

absl::StatusOr<HistoryPage> ReadHistory(SqliteDatabase& database,
                                        const HistoryFilter& filter,
                                        uint64_t cursor, double now_s) {
  const Table* table = FindTable(filter.table);
  if (table == nullptr) return absl::InvalidArgumentError("no such table");
  const std::string sql = SelectOf(*table, filter);
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement select, database.Prepare(sql));
  select.BindInteger(1, cursor);
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
                                   const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(HistoryFilter filter,
                         ParseHistoryFilter(request.filter));
  if (request.job.valid()) filter.job = request.job.value();
  absl::StatusOr<SqliteDatabase> database = SqliteDatabase::OpenReadOnly(path);
  GAVEL_RETURN_IF_ERROR(Annotate(database.status(), path));
  return ReadHistory(*database, filter, request.cursor, WallClockNow());
}

}  // namespace

QueryReply AnswerHistory(const QueryRequest& request, const std::string& path) {
  QueryReply reply;
  reply.request = request.request;
  const absl::StatusOr<HistoryPage> page = PageOf(request, path);
  if (page.ok()) {
    reply.json = page->json;
    reply.next_cursor = page->next_cursor;
  } else {
    reply.error = std::string(page.status().message());
  }
  return reply;
}

}  // namespace gavel
