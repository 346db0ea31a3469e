#include "coordinator/server/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <map>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/server/query.h"
#include "coordinator/server/rows.h"
#include "coordinator/workload/job_spec.h"
#include "core/message_fields.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"

namespace gavel {

// ---- Tables

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
  std::string_view begins;  // column of when it began, for readers
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
      TableOf<HistoryReason>("at_s", "at_s"),
      TableOf<HistoryCheckpoint>("at_s", "at_s"),
      TableOf<HistoryNotice>("at_s", "at_s", /*has_readers=*/false),
      TableOf<HistoryOpaque>("", "", /*has_readers=*/false)};
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

absl::Status Write(SqliteDatabase& database, const HistoryCheckpoint& c) {
  GAVEL_RETURN_IF_ERROR(Write<HistoryCheckpoint>(database, c));
  if (c.number <= kHistoryCheckpointsMax) return absl::OkStatus();
  return database.Run(
      "DELETE FROM history_checkpoints WHERE job = ? AND number <= ?", c.job,
      c.number - kHistoryCheckpointsMax);
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
        states_(absl::StrSplit(filter.state, ',', absl::SkipEmpty())),
        job_(filter.job == 0 ? -1 : ColumnOf(table, "job")),
        user_(filter.user.empty() ? -1 : ColumnOf(table, "user")),
        state_(states_.empty() ? -1 : ColumnOf(table, "state")),
        begins_(ColumnOf(table, table.begins)),
        ends_(ColumnOf(table, table.ends)) {}

  bool Takes(const SqliteStatement& row) const {
    if (job_ >= 0 && row.Integer(job_) != filter_.job) return false;
    if (user_ >= 0 && row.Blob(user_) != filter_.user) return false;
    if (state_ >= 0 &&
        std::ranges::find(states_, row.Blob(state_)) == states_.end()) {
      return false;
    }
    const double ended_s = row.Real(ends_);
    if (ended_s > 0 && ended_s < filter_.since_s) return false;
    return filter_.until_s <= 0 || row.Real(begins_) <= filter_.until_s;
  }

 private:
  const HistoryFilter& filter_;
  std::vector<std::string> states_;
  int job_, user_, state_, begins_, ends_;  // columns; -1: it does not matter
};

// False in a file that an earlier version wrote and none has opened since.
absl::StatusOr<bool> KnowsOpaqueJobs(SqliteDatabase& database) {
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement select,
                         database.Prepare("SELECT 1 FROM sqlite_master"
                                          " WHERE name = 'history_opaque'"));
  return select.Step();
}

// The key counts up; of one job the index finds the rows. `tells_opaque`: a
// last column says whether the job is opaque.
std::string SelectOf(const Table& table, const HistoryFilter& filter,
                     bool tells_opaque) {
  std::string columns;
  for (const Field& field : table.fields) {
    StrAppend(&columns, columns.empty() ? "" : ", ", field.name);
  }
  if (tells_opaque) {
    columns +=
        ", EXISTS(SELECT 1 FROM history_opaque AS o"
        " WHERE o.job = history_jobs.job)";
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
  for (const char* table : {"history_leases", "history_steps",
                            "history_reasons", "history_checkpoints"}) {
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
        "DELETE FROM history_reasons WHERE seq <= ?",
        "DELETE FROM history_checkpoints WHERE seq <= ?",
        "DELETE FROM history_jobs WHERE last_seq <= ? AND over"}) {
    GAVEL_RETURN_IF_ERROR(database.Run(sql, seq));
  }
  GAVEL_RETURN_IF_ERROR(
      database.Run("DELETE FROM history_opaque"
                   " WHERE job NOT IN (SELECT job FROM history_jobs)"));
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
             "\"; choose jobs, leases, reasons, checkpoints, rounds, "
             "steps or shares"));
}

absl::StatusOr<HistoryPage> ReadHistory(SqliteDatabase& database,
                                        const HistoryFilter& filter,
                                        uint64_t cursor, double now_s,
                                        const Identity* reader) {
  const Table* table = FindTable(filter.table);
  if (table == nullptr) return absl::InvalidArgumentError("no such table");
  const bool of_jobs = table->name == HistoryJob::kTable;
  bool tells_opaque = false;
  if (of_jobs) {
    GAVEL_ASSIGN_OR_RETURN(tells_opaque, KnowsOpaqueJobs(database));
  }
  const std::string sql = SelectOf(*table, filter, tells_opaque);
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
      if (of_jobs) {
        const auto last = static_cast<int>(table->fields.size());
        row["opaque"] = tells_opaque ? select.Integer(last) : 0;
      }
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

// ---- Rows from events

namespace {

std::string_view CauseName(const event::LeaseEnded& e) {
  switch (e.cause) {
    case ReleaseCause::kOutOfMemory:
      return "out of memory";
    case ReleaseCause::kResumeFailed:
      return "could not start";
    case ReleaseCause::kDeviceFailed:
      return "device failed";
    case ReleaseCause::kNoRoom:
      return "no room";
    case ReleaseCause::kPaused:
      break;
  }
  return e.finished ? "finished" : "paused";
}

// The state that notices are about. Nobody holds a job that waits for a time,
// for its turn or for other jobs.
JobState NoticedState(const Job& job) {
  return WaitsByItself(job) ? JobState::kActive : job.state;
}

}  // namespace

// For Packer; in the namespace that lookup needs.
constexpr JobState LastOf(JobState) { return JobState::kHeld; }
auto Fields(As<HistoryJob> auto& j) {
  return std::tie(j.job, j.last_seq, j.over, j.name, j.user, j.entity, j.app,
                  j.state, j.reason, j.scale_factor, j.weight, j.submitted_s,
                  j.started_s, j.ended_s, j.run_s, j.pausing_s, j.steps_done,
                  j.steps_total, j.pauses, j.moves, j.evictions, j.failures,
                  j.exit_code, j.signal, j.accelerator_s, j.steps_per_s,
                  j.given_steps_per_s);
}
auto Fields(As<HistoryLease> auto& l) {
  return std::tie(l.seq, l.job, l.rank, l.epoch, l.server, l.type, l.uuid,
                  l.from_s, l.to_s, l.steps_from, l.steps_to, l.ended);
}
auto Fields(As<HistoryProjector::OpenLease> auto& l) {
  return std::tie(l.row, l.since, l.incarnation);
}
auto Fields(As<HistoryProjector::Rate> auto& r) {
  return std::tie(r.steps, r.seconds);
}
auto Fields(As<HistoryProjector::OpenJob> auto& j) {
  return std::tie(j.row, j.leases, j.rates, j.reports, j.reports_kept, j.stride,
                  j.told, j.at_risk, j.left, j.requeued, j.newest,
                  j.checkpoints);
}

struct HistoryProjector::Observation {
  HistoryProjector& own;
  uint64_t seq;
  Time now;
  const Engine& engine;
  std::vector<HistoryRow> rows = {};
  uint64_t notices = 0;  // among them

  OpenJob* Find(JobId job) {
    const auto found = own.jobs_.find(job);
    return found == own.jobs_.end() ? nullptr : &found->second;
  }

  void On(const event::CoordinatorStarted& e) {
    if (e.wall_s > 0) own.wall_offset_s_ = e.wall_s - now;
    if (!e.policy.empty()) own.policy_ = e.policy;
    own.round_duration_s_ = e.round_duration_s;
  }

  void On(const event::JobSubmitted&) {
    for (const JobId id : LastSubmitted(engine.jobs())) {
      own.jobs_[id].row.submitted_s = own.WallTime(now);
      Tell(id);
    }
  }

  // A job that was held and may try again is open again.
  void On(const event::JobCommanded& e) {
    for (const JobId id : NamedJobs(engine.jobs(), e)) {
      OpenJob* const job = Find(id);
      if (job != nullptr) job->requeued |= e.kind == CommandKind::kRequeue;
      Tell(id);
    }
  }

  void On(const event::JobUpdated& e) {
    OpenJob* const job = Find(e.job);
    if (job != nullptr && e.update.deadline_s) job->at_risk = false;
    Tell(e.job);
  }

  void On(const event::TimeReached& e) { Tell(e.job); }

  void On(const event::ParentsEnded& e) { Tell(e.job); }

  void On(const event::PolicyChanged& e) { own.policy_ = e.policy; }

  // A generation that its first process restored was there before the job.
  void On(const event::WorkerJoined& e) {
    OpenJob* const job = Find(e.hello.worker.job);
    if (job == nullptr) return;
    if (job->row.started_s > 0) {
      NoteCheckpoint(*job, e.hello.worker, e.hello.progress);
    } else {
      job->newest = std::max(job->newest, e.hello.progress.last_generation);
    }
  }

  void NoteCheckpoint(OpenJob& job, const WorkerKey& worker,
                      const Progress& progress) {
    const Generation& last = progress.last_generation;
    if (!(job.newest < last)) return;
    job.newest = last;
    HistoryCheckpoint checkpoint;
    checkpoint.seq = seq;
    checkpoint.job = worker.job.value();
    checkpoint.number = ++job.checkpoints;
    checkpoint.epoch = last.epoch;
    checkpoint.step = last.step;
    checkpoint.at_s = own.WallTime(now);
    checkpoint.state_bytes = progress.state_bytes;
    const Job* const known = engine.FindJob(worker.job);
    const auto rank = static_cast<size_t>(worker.rank);
    if (known != nullptr && rank < known->workers.size()) {
      checkpoint.server = known->workers[rank].server;
    }
    rows.emplace_back(std::move(checkpoint));
  }

  void On(const event::LeaseStarted& e) {
    OpenJob* job = Find(e.worker.job);
    if (job == nullptr) return;
    const int rank = e.worker.rank;
    CloseLease(*job, rank, "replaced", Progress());
    const Accelerator& accelerator =
        engine.cluster().accelerator(e.accelerator);
    OpenLease lease;
    lease.row.seq = seq;
    lease.row.job = e.worker.job.value();
    lease.row.rank = rank;
    lease.row.epoch = e.epoch;
    lease.row.server = accelerator.server;
    lease.row.type = accelerator.info.type;
    lease.row.uuid = accelerator.info.uuid;
    lease.row.from_s = own.WallTime(now);
    const Job* const held_by = engine.FindJob(e.worker.job);
    const auto index = static_cast<size_t>(rank);
    if (held_by != nullptr && index < held_by->workers.size()) {
      lease.row.steps_from = held_by->workers[index].progress.steps_done;
    }
    lease.since = now;
    lease.incarnation = e.worker.incarnation;
    if (job->row.started_s == 0) {
      job->row.started_s = lease.row.from_s;
      if (held_by != nullptr) {
        NoteJob(*held_by, "started",
                StrCat("has started on ", lease.row.type, " of server ",
                       lease.row.server));
      }
    }
    rows.emplace_back(lease.row);
    const auto left = job->left.find(rank);
    if (held_by != nullptr && left != job->left.end() && left->second.valid() &&
        left->second != e.accelerator) {
      NoteReason(lease.row,
                 engine.WhyMoved(*held_by, left->second, e.accelerator, now));
    }
    job->requeued = false;
    job->leases[rank] = std::move(lease);
    Tell(e.worker.job);
  }

  void NoteReason(const HistoryLease& lease, std::string text) {
    HistoryReason reason;
    reason.seq = seq;
    reason.lease = lease.seq;
    reason.job = lease.job;
    reason.rank = lease.rank;
    reason.at_s = own.WallTime(now);
    reason.text = std::move(text);
    rows.emplace_back(std::move(reason));
  }

  void NotePause(const OpenJob& job, const event::LeaseEnded& e) {
    const auto lease = job.leases.find(e.worker.rank);
    const Job* const known = engine.FindJob(e.worker.job);
    if (lease == job.leases.end() || known == nullptr || e.finished ||
        e.cause != ReleaseCause::kPaused) {
      return;
    }
    const HistoryLease& row = lease->second.row;
    const AcceleratorId left = engine.cluster().Find(row.server, row.uuid);
    if (!left.valid()) return;
    NoteReason(row, job.requeued && known->active()
                        ? "paused: to start anew, by `gavel requeue`"
                        : engine.WhyPaused(*known, row.rank, left, now));
  }

  void CloseLease(OpenJob& job, int rank, std::string_view why,
                  const Progress& progress) {
    const auto it = job.leases.find(rank);
    if (it == job.leases.end()) return;
    OpenLease& lease = it->second;
    const double held_s = now - lease.since;
    lease.row.to_s = own.WallTime(now);
    lease.row.steps_to = std::max(lease.row.steps_from, progress.steps_done);
    lease.row.ended = why;
    job.row.accelerator_s[lease.row.type] += held_s;
    if (rank == 0) job.row.run_s += held_s;
    job.left[rank] = engine.cluster().Find(lease.row.server, lease.row.uuid);
    rows.emplace_back(std::move(lease.row));
    job.leases.erase(it);
  }

  void On(const event::LeaseEnded& e) {
    if (OpenJob* job = Find(e.worker.job)) {
      NotePause(*job, e);
      NoteCheckpoint(*job, e.worker, e.progress);
      CloseLease(*job, e.worker.rank, CauseName(e), e.progress);
      Tell(e.worker.job);
    }
  }

  void On(const event::WorkerGone& e) {
    OpenJob* job = Find(e.exit.worker.job);
    if (job == nullptr) return;
    if (!e.exit.no_failure) {
      job->row.exit_code = e.exit.exit_code == kExitEvicted &&
                                   e.end != event::ProcessEnd::kFailed
                               ? 0
                               : e.exit.exit_code;
      job->row.signal = e.exit.signal;
      const bool by_code = (job->row.exit_code != 0 || e.exit.signal != 0 ||
                            !e.exit.launch_error.empty()) &&
                           !e.exit.stopped;
      const bool failed = e.end == event::ProcessEnd::kUntold
                              ? by_code
                              : e.end == event::ProcessEnd::kFailed;
      job->row.failures += failed ? 1 : 0;
    }
    if (e.launched_on.valid()) AddSilent(*job, e);
    // Writes the job's row, which may be the last one: then it is forgotten.
    CloseVanished(e.exit.worker.job, "process ended");
  }

  // Adds a lease for a process that used its accelerator without one, so that
  // its time counts as used.
  void AddSilent(OpenJob& job, const event::WorkerGone& e) {
    const Accelerator& accelerator =
        engine.cluster().accelerator(e.launched_on);
    HistoryLease row;
    row.seq = seq;
    row.job = e.exit.worker.job.value();
    row.rank = e.exit.worker.rank;
    row.server = accelerator.server;
    row.type = accelerator.info.type;
    row.uuid = accelerator.info.uuid;
    row.from_s = own.WallTime(e.launched_at);
    row.to_s = own.WallTime(now);
    row.ended = "never spoke";
    const double held_s = now - e.launched_at;
    job.row.accelerator_s[row.type] += held_s;
    if (row.rank == 0) job.row.run_s += held_s;
    if (job.row.started_s == 0) job.row.started_s = row.from_s;
    rows.emplace_back(std::move(row));
  }

  void On(const event::WorkerAbandoned& e) {
    CloseVanished(e.worker.job, "server lost");
  }

  // Its hello tells which processes are gone.
  void On(const event::ServerJoined& e) {
    std::vector<JobId> there;
    for (const auto& [id, job] : own.jobs_) {
      for (const auto& [rank, lease] : job.leases) {
        if (lease.row.server == e.hello.server) there.push_back(id);
      }
    }
    for (const JobId id : there) CloseVanished(id, "agent started anew");
    TellChanged();
  }

  void On(const event::ServerLost& e) {
    if (!e.left) {
      Note("node_lost",
           StrCat("Server ", e.server,
                  " is lost: its agent is silent, and its accelerators can't "
                  "be reached."));
    }
    TellChanged();
  }

  void On(const event::AcceleratorLost& e) {
    const AcceleratorId id = engine.cluster().Find(e.server, e.uuid);
    if (id.valid() &&
        engine.cluster().accelerator(id).state == AcceleratorState::kLost) {
      Note("node_lost",
           StrCat("Accelerator ", e.uuid, " of server ", e.server,
                  " has failed; no job gets it until its agent is started "
                  "anew."));
    }
    TellChanged();
  }

  void On(const event::AcceleratorsDrained& e) {
    if (e.drained && !e.why.empty()) {
      Note("node_lost",
           StrCat("Accelerator ", e.uuid, " of server ", e.server,
                  " is drained by the coordinator."),
           e.why);
    }
    TellChanged();
  }

  // Leases that the engine no longer counts as held.
  void CloseVanished(JobId id, std::string_view why) {
    OpenJob* job = Find(id);
    const Job* const known = engine.FindJob(id);
    if (job == nullptr || known == nullptr) return;
    const std::vector<Worker>& workers = known->workers;
    std::vector<int> gone;
    for (const auto& [rank, lease] : job->leases) {
      const auto index = static_cast<size_t>(rank);
      const bool held = index < workers.size() &&
                        workers[index].held_epoch == lease.row.epoch &&
                        workers[index].incarnation == lease.incarnation;
      if (!held) gone.push_back(rank);
    }
    for (const int rank : gone) {
      const auto index = static_cast<size_t>(rank);
      CloseLease(*job, rank, why,
                 index < workers.size() ? workers[index].progress : Progress());
    }
    Tell(id);
  }

  void On(const event::StepsReported& e) {
    OpenJob* job = Find(e.worker.job);
    if (job == nullptr) return;
    NoteCheckpoint(*job, e.worker, e.progress);
    if (e.worker.rank != 0) return;
    const auto lease = job->leases.find(0);
    HistorySteps steps;
    if (lease != job->leases.end()) steps.type = lease->second.row.type;
    const Job* const known = engine.FindJob(e.worker.job);
    const bool alone = known != nullptr && !known->partner.valid();
    if (alone && !steps.type.empty() && e.progress.window_s > 0) {
      Rate& rate = job->rates[steps.type];
      rate.steps += e.progress.throughput_steps_per_s * e.progress.window_s;
      rate.seconds += e.progress.window_s;
    }
    const uint64_t number = job->reports++;
    if (number % job->stride != 0) return;
    steps.seq = seq;
    steps.job = e.worker.job.value();
    steps.number = number;
    steps.at_s = own.WallTime(now);
    steps.steps_done = e.progress.steps_done;
    steps.steps_per_s = e.progress.throughput_steps_per_s;
    rows.emplace_back(std::move(steps));
    if (++job->reports_kept < kHistoryStepsMax) return;
    job->stride *= 2;
    job->reports_kept = (job->reports_kept + 1) / 2;
    rows.emplace_back(HistoryThinned{e.worker.job.value(), job->stride});
  }

  void On(const event::RoundStarted&) {
    HistoryRound round;
    round.seq = seq;
    round.round = engine.rounds();
    round.from_s = own.WallTime(now);
    for (const auto& [id, open] : own.jobs_) {
      const Job* const job = engine.FindJob(id);
      if (job == nullptr || !job->active()) continue;
      ++(job->assigned.empty() ? round.waiting : round.running);
      // Each job of a packed pair counts half.
      const double part = job->partner.valid() ? 0.5 : 1;
      for (const AcceleratorId where : job->assigned) {
        round.busy[engine.cluster().accelerator(where).info.type] += part;
      }
    }
    rows.emplace_back(std::move(round));
    TellShares();
    for (auto& [id, open] : own.jobs_) LookAtDeadline(id, open);
  }

  // Tells once of a deadline that the job will miss at its present rate: the
  // steps/s measured where it ran last, for the share of time that the policy
  // gives it. A job without a share counts as if it ran from now on.
  void LookAtDeadline(JobId id, OpenJob& open) {
    const Job* const job = engine.FindJob(id);
    if (open.at_risk || job == nullptr ||
        NoticedState(*job) != JobState::kActive || !job->spec.deadline_s) {
      return;
    }
    const double left_s = job->submitted_at + *job->spec.deadline_s - now;
    const double needed_s = SecondsNeeded(*job, open);
    if (left_s > 0 && needed_s <= left_s) return;
    open.at_risk = true;
    const std::string what =
        left_s <= 0 ? std::string("has missed its deadline")
                    : absl::StrFormat(
                          "will miss its deadline: it needs about %.0f s more "
                          "at its present rate, and has %.0f s",
                          needed_s, left_s);
    NoteJob(*job, "at_risk", what);
  }

  // 0: not known. Only by what the journal has, so that a replay tells the
  // same.
  double SecondsNeeded(const Job& job, const OpenJob& open) const {
    if (job.spec.steps_total == 0 || job.workers.empty()) return 0;
    const AcceleratorId last = job.stays.last();
    const auto total = static_cast<double>(job.spec.steps_total);
    const auto done = static_cast<double>(job.workers[0].known.steps_done);
    const auto here =
        last.valid()
            ? open.rates.find(engine.cluster().accelerator(last).info.type)
            : open.rates.end();
    double steps_per_s = 0;
    if (here != open.rates.end() && here->second.seconds > 0) {
      steps_per_s = here->second.steps / here->second.seconds;
    } else {
      for (const auto& [type, given] : job.spec.throughputs) {
        steps_per_s = std::max(steps_per_s, given);
      }
    }
    if (!(steps_per_s > 0)) return 0;
    const double share = job.target_share > 0 ? job.target_share : 1;
    return std::max(0.0, total - done) / (steps_per_s * share);
  }

  void Note(std::string_view event, std::string text, std::string reason = "",
            const Job* job = nullptr) {
    HistoryNotice notice;
    if (notices >= HistoryNotice::kPerRowMax) return;
    if (job != nullptr) {
      notice.chosen = !job->spec.notify.empty();
      if (notice.chosen && !WantsNotice(job->spec.notify, event)) return;
      notice.job = job->id.value();
      notice.name = job->spec.name;
      notice.user = job->spec.owner;
      notice.app = job->spec.app;
    }
    notice.id = seq * HistoryNotice::kPerRowMax + notices++;
    notice.event = event;
    notice.at_s = own.WallTime(now);
    notice.text = std::move(text);
    notice.reason = std::move(reason);
    rows.emplace_back(std::move(notice));
  }

  // `what`: of the sentence about the job.
  void NoteJob(const Job& job, std::string_view event, const std::string& what,
               std::string reason = "") {
    Note(event,
         StrCat("Job ", job.id.value(), " \"", job.spec.name, "\"",
                job.spec.owner.empty() ? "" : StrCat(" of ", job.spec.owner),
                " ", what, "."),
         std::move(reason), &job);
  }

  // The rows of all jobs whose state has changed.
  void TellChanged() {
    std::vector<JobId> changed;
    for (const auto& [id, open] : own.jobs_) {
      const Job* const job = engine.FindJob(id);
      if (job != nullptr && NoticedState(*job) != open.told) {
        changed.push_back(id);
      }
    }
    for (const JobId id : changed) Tell(id);
  }

  void NoteState(const Job& job, OpenJob& open) {
    const JobState state = NoticedState(job);
    if (state == open.told) return;
    open.told = state;
    switch (state) {
      case JobState::kActive:
        return;
      case JobState::kFinished:
        // With the exit code of an interactive job, where that is not 0.
        return NoteJob(job, "finished", "has finished",
                       std::holds_alternative<reason::FinishedWith>(job.reason)
                           ? RenderReason(job.reason)
                           : "");
      case JobState::kCancelled:
        return NoteJob(job, "cancelled", "was cancelled",
                       RenderReason(job.reason));
      case JobState::kHeld:
        break;
    }
    const bool asked =
        std::holds_alternative<reason::HeldByUser>(job.reason) ||
        std::holds_alternative<reason::HeldTimeLimit>(job.reason);
    std::string what = asked ? "is held" : "has failed and is held";
    if (const size_t children = engine.CountChildren(job); children > 0) {
      StrAppend(&what, "; ", children,
                children == 1 ? " job waits for it" : " jobs wait for it");
    }
    NoteJob(job, asked ? "held" : "failed", what, RenderReason(job.reason));
  }

  void TellShares() {
    HistoryShares shares;
    shares.seq = seq;
    shares.from_s = own.WallTime(now);
    shares.to_s = shares.from_s + own.round_duration_s_;
    for (const auto& [id, open] : own.jobs_) {
      const Job* const job = engine.FindJob(id);
      if (job == nullptr || !job->active() || job->spec.opaque() ||
          !(job->target_share > 0)) {
        continue;
      }
      shares.entitled[job->spec.owner] += job->target_share * job->scale_factor;
    }
    if (!shares.entitled.empty()) rows.emplace_back(std::move(shares));
  }

  void On(const event::WorkersEvicted& e) {
    for (const WorkerKey& worker : e.workers) {
      if (OpenJob* job = Find(worker.job)) {
        ++job->row.evictions;
        Tell(worker.job);
      }
    }
  }

  void On(const event::JobsResized& e) {
    for (const Resize& resize : e.resizes) Tell(resize.job);
  }

  // Writes the job's row as the engine has it; forgets a job that is over.
  void Tell(JobId id) {
    const Job* const known = engine.FindJob(id);
    OpenJob* open = Find(id);
    if (known == nullptr || open == nullptr) return;
    const Job& job = *known;
    const bool ended =
        job.state == JobState::kFinished || job.state == JobState::kCancelled;
    HistoryJob& row = open->row;
    row.job = id.value();
    row.last_seq = seq;
    row.over = ended && !job.AnyLive() && open->leases.empty();
    row.name = job.spec.name;
    row.user = job.spec.owner;
    row.entity = job.spec.entity;
    row.app = job.spec.app;
    row.state = StateLetters(job);
    row.reason = job.active() ? "" : RenderReason(job.reason);
    row.scale_factor = job.scale_factor;
    row.weight = job.spec.weight;
    if (!ended) row.ended_s = 0;
    if (ended && row.ended_s == 0) row.ended_s = own.WallTime(job.ended_at);
    row.steps_total = job.spec.steps_total;
    row.given_steps_per_s = job.spec.throughputs;
    for (const Worker& worker : job.workers) {
      row.steps_done = std::max(row.steps_done, worker.progress.steps_done);
    }
    row.pauses = job.stays.pauses();
    row.moves = job.stays.moves();
    row.pausing_s = job.stays.pausing_s();
    for (const auto& [type, rate] : open->rates) {
      row.steps_per_s[type] = rate.steps / rate.seconds;
    }
    rows.emplace_back(row);
    if (job.spec.opaque()) rows.emplace_back(HistoryOpaque{row.job});
    NoteState(job, *open);
    if (row.over) own.jobs_.erase(id);
  }

  template <class E>
  void On(const E&) {}
};

std::vector<HistoryRow> HistoryProjector::Observe(uint64_t seq, Time now,
                                                  const Event& event,
                                                  const Engine& engine) {
  Observation seen{*this, seq, now, engine};
  std::visit([&](const auto& e) { seen.On(e); }, event);
  return std::move(seen.rows);
}

std::string HistoryProjector::Save() const {
  Packer packer(kJournalLimits);
  packer.Array(4);
  PutField(packer, wall_offset_s_);
  PutField(packer, jobs_);
  PutField(packer, policy_);
  PutField(packer, round_duration_s_);
  return packer.Take();
}

absl::Status HistoryProjector::Load(std::string_view saved) {
  Unpacker unpacker(saved, kJournalLimits);
  GetField(unpacker, wall_offset_s_);
  GetField(unpacker, jobs_);
  GetField(unpacker, policy_);
  GetField(unpacker, round_duration_s_);
  // Snapshots of earlier versions lack the notices that were sent. No notice is
  // sent now of a job that was held long ago.
  for (auto& [id, job] : jobs_) {
    if (job.row.state == "F") job.told = JobState::kHeld;
  }
  if (unpacker.ok() && unpacker.passed_over()) {
    return absl::FailedPreconditionError(
        "the snapshot's history has fields that this version of gavel does not "
        "know; use the version that wrote it, or a newer one");
  }
  if (unpacker.ok()) return absl::OkStatus();
  return absl::DataLossError(StrCat("the snapshot's history is damaged: ",
                                    ToStd(unpacker.status().message())));
}

}  // namespace gavel
