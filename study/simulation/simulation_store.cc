#include "study/simulation/simulation_store.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"
#include "study/simulation/sqlite_rows.h"
#include "study/simulation/usage_samples.h"

namespace gavel {
namespace {

constexpr uint64_t kApplicationId = 0x6761766c;  // "gavl"
constexpr int kWalPagesMax = 1000;

// A report reads while a sweep writes: WAL, and patience for another writer.
constexpr char kOpenSql[] =
    "PRAGMA busy_timeout=20000;"
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=NORMAL;"
    "PRAGMA foreign_keys=ON;";

// The rest of the schema; `runs` is made of the fields themselves.
constexpr char kTablesSql[] =
    "CREATE TABLE utilization("
    " run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,"
    " type TEXT NOT NULL, busy REAL, PRIMARY KEY(run, type)) WITHOUT ROWID;"
    "CREATE TABLE jobs("
    " run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,"
    " job INTEGER NOT NULL, type TEXT, scale_factor INTEGER, weight REAL,"
    " arrival_s REAL, completion_s REAL, jct_s REAL, rho REAL, cost REAL,"
    " run_s REAL, lost_s REAL, preemptions INTEGER, moves INTEGER,"
    " deadline_s REAL, share_target REAL, share_received REAL,"
    " PRIMARY KEY(run, job)) WITHOUT ROWID;"
    "CREATE TABLE unfit("
    " run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,"
    " job INTEGER NOT NULL, reason TEXT,"
    " PRIMARY KEY(run, job)) WITHOUT ROWID;"
    "CREATE TABLE usage("
    " run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,"
    " sample INTEGER NOT NULL, time_s REAL, type TEXT, busy REAL,"
    " waiting_jobs REAL);"
    "CREATE INDEX usage_of_run ON usage(run);"
    "CREATE TABLE leases("
    " run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,"
    " job INTEGER NOT NULL, accelerator INTEGER NOT NULL,"
    " from_s REAL, to_s REAL);"
    "CREATE INDEX leases_of_run ON leases(run);";

template <class T>
constexpr std::string_view SqlType() {
  if constexpr (std::same_as<T, std::string>) return "TEXT";
  return std::same_as<T, double> ? "REAL" : "INTEGER";
}

// Text goes in as a blob, and would stay one. NULL is read as infinity, which
// is never stored.
template <class T>
std::string Placeholder() {
  return std::same_as<T, std::string> ? "CAST(? AS TEXT)" : "?";
}
template <class T>
std::string Expression(std::string_view column) {
  return std::same_as<T, double> ? StrCat("ifnull(", column, ",9e999)")
                                 : std::string(column);
}

// Lists of the columns of `runs`, in one order.
struct RunColumns {
  std::vector<std::string> names;
  std::vector<std::string> definitions;
  std::vector<std::string> placeholders;
  std::vector<std::string> expressions;

  template <class T>
  void Add(std::string_view name, const T&) {
    names.emplace_back(name);
    definitions.push_back(StrCat(name, " ", SqlType<T>()));
    placeholders.push_back(Placeholder<T>());
    expressions.push_back(Expression<T>(name));
  }
};

RunColumns MakeRunColumns() {
  RunColumns columns;
  const StoredRun run;
  for (const char* name : {"key", "status", "detail", "types"}) {
    columns.Add(name, run.key);
  }
  columns.Add("complete", run.run.result.complete);
  const auto add = [&](const char* name, const auto& field) {
    columns.Add(name, field);
  };
  VisitFields(run.spec, add);
  VisitFigures(run.run, add);
  return columns;
}

std::string Comma(const std::vector<std::string>& words) {
  return absl::StrJoin(words, ",");
}

void NanForInfinity(StoredRun* run) {
  VisitFigures(run->run, [](const char*, auto& field) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, double>) {
      if (std::isinf(field)) field = std::numeric_limits<double>::quiet_NaN();
    }
  });
}

StoredRun ReadRun(const SqliteStatement& statement) {
  StoredRun stored;
  RowReader read(statement);
  std::string status;
  std::string types;
  read(stored.id);
  read(stored.key);
  read(status);
  read(stored.run.detail);
  read(types);
  read(stored.run.result.complete);
  const auto visit = [&](const char*, auto& field) { read(field); };
  VisitFields(stored.spec, visit);
  VisitFigures(stored.run, visit);
  NanForInfinity(&stored);
  stored.run.status = FindRunStatus(status);
  stored.run.result.policy = stored.spec.policy;
  if (!types.empty()) stored.run.result.types = absl::StrSplit(types, ',');
  return stored;
}

absl::Status InsertJobs(SqliteDatabase& database, uint64_t run,
                        const std::vector<SimulatedJob>& jobs) {
  constexpr char kSql[] =
      "INSERT INTO jobs VALUES(?,?,CAST(? AS TEXT),?,?,?,?,?,?,?,?,?,?,?,?,?,"
      "?)";
  return InsertRows(database, kSql, jobs,
                    [run](Binder& bind, const SimulatedJob& job) {
                      bind(run);
                      bind(job.job);
                      bind(job.type);
                      bind(job.scale_factor);
                      bind(job.weight);
                      bind(job.arrival_s);
                      bind(job.completion_s);
                      bind(job.jct_s);
                      bind(job.rho);
                      bind(job.cost);
                      bind(job.run_s);
                      bind(job.lost_s);
                      bind(job.preemptions);
                      bind(job.moves);
                      bind(job.deadline_s);
                      bind(job.share_target);
                      bind(job.share_received);
                    });
}

absl::Status InsertUsage(SqliteDatabase& database, uint64_t run,
                         const SimulationResult& result) {
  struct Row {
    size_t sample;
    size_t type;
  };
  const std::vector<UsageSample> usage =
      ThinUsage(result.usage, SimulationStore::kUsageSamplesMax);
  std::vector<Row> rows;
  for (size_t i = 0; i < usage.size(); ++i) {
    const size_t types = std::min(usage[i].busy.size(), result.types.size());
    for (size_t j = 0; j < types; ++j) rows.push_back({i, j});
  }
  return InsertRows(database,
                    "INSERT INTO usage VALUES(?,?,?,CAST(? AS TEXT),?,?)", rows,
                    [&](Binder& bind, const Row& row) {
                      const UsageSample& sample = usage[row.sample];
                      bind(run);
                      bind(row.sample);
                      bind(sample.time_s);
                      bind(result.types[row.type]);
                      bind(sample.busy[row.type]);
                      bind(sample.waiting_jobs);
                    });
}

absl::Status InsertLeases(SqliteDatabase& database, uint64_t run,
                          const std::vector<RecordedLease>& leases) {
  const auto kept = std::min(leases.size(), SimulationStore::kLeasesMax);
  return InsertRows(database, "INSERT INTO leases VALUES(?,?,?,?,?)",
                    std::span<const RecordedLease>(leases.data(), kept),
                    [run](Binder& bind, const RecordedLease& lease) {
                      bind(run);
                      bind(lease.job);
                      bind(lease.accelerator);
                      bind(lease.from_s);
                      bind(lease.to_s);
                    });
}

absl::StatusOr<uint64_t> AskInteger(SqliteDatabase& database,
                                    std::string_view sql) {
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement ask, database.Prepare(sql));
  GAVEL_ASSIGN_OR_RETURN(const bool has_row, ask.Step());
  return has_row ? ask.Integer(0) : 0;
}

}  // namespace

absl::StatusOr<SimulationStore> SimulationStore::Open(const std::string& path) {
  auto database = SqliteDatabase::Open(path);
  if (!database.ok()) return Annotate(database.status(), path);
  SimulationStore store(path, *std::move(database));
  absl::Status status = store.Prepare();
  if (absl::StrContains(status.message(), "not a database")) {
    status = absl::DataLossError(
        "this is not a database; name the RESULTS.db of a `gavel sweep`");
  }
  if (!status.ok()) return Annotate(status, path);
  return store;
}

absl::StatusOr<SimulationStore> SimulationStore::OpenExisting(
    const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(
        StrCat(path, ": no such file; `gavel sweep` makes results"));
  }
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        StrCat(path,
               ": this is a directory; name the results of `gavel sweep`"
               " in it"));
  }
  return Open(path);
}

absl::Status SimulationStore::Prepare() {
  GAVEL_RETURN_IF_ERROR(database_.Execute(kOpenSql));
  GAVEL_RETURN_IF_ERROR(database_.Execute("BEGIN IMMEDIATE"));
  GAVEL_ASSIGN_OR_RETURN(
      const uint64_t tables,
      AskInteger(database_, "SELECT count(*) FROM sqlite_schema"));
  GAVEL_ASSIGN_OR_RETURN(const uint64_t application,
                         AskInteger(database_, "PRAGMA application_id"));
  GAVEL_ASSIGN_OR_RETURN(const uint64_t version,
                         AskInteger(database_, "PRAGMA user_version"));
  if (tables == 0) {
    const std::string sql = StrCat("PRAGMA application_id=", kApplicationId,
                                   ";PRAGMA user_version=", kSchemaVersion,
                                   ";CREATE TABLE runs(id INTEGER PRIMARY KEY,",
                                   Comma(MakeRunColumns().definitions),
                                   ",UNIQUE(key));", kTablesSql);
    GAVEL_RETURN_IF_ERROR(database_.Execute(sql.c_str()));
  } else if (application != kApplicationId) {
    return absl::InvalidArgumentError(
        "a database, but not one of results; name another file");
  } else if (version != kSchemaVersion) {
    return absl::InvalidArgumentError(
        StrCat("results of another version of Gavel (schema ", version,
               ", here ", kSchemaVersion, "); name another file"));
  }
  return database_.Execute("COMMIT");
}

absl::Status SimulationStore::Append(const StoredRun& run) {
  return Annotate(AppendWhole(run), path_);
}

absl::Status SimulationStore::AppendWhole(const StoredRun& run) {
  GAVEL_RETURN_IF_ERROR(database_.Execute("BEGIN IMMEDIATE"));
  absl::Status status = InsertAll(run);
  if (status.ok()) status = database_.Execute("COMMIT");
  if (!status.ok()) {
    database_.Execute("ROLLBACK").IgnoreError();
    return status;
  }
  if (database_.wal_pages() < kWalPagesMax) return absl::OkStatus();
  return database_.Checkpoint();
}

absl::StatusOr<uint64_t> SimulationStore::InsertRun(const StoredRun& run) {
  const RunColumns columns = MakeRunColumns();
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database_.Prepare(StrCat("INSERT INTO runs(", Comma(columns.names),
                               ") VALUES(", Comma(columns.placeholders),
                               ") RETURNING id")));
  Binder bind(insert);
  bind(run.key);
  bind(RunStatusName(run.run.status));
  bind(run.run.detail);
  bind(Comma(run.run.result.types));
  bind(run.run.result.complete);
  const auto visit = [&](const char*, const auto& field) { bind(field); };
  VisitFields(run.spec, visit);
  VisitFigures(run.run, visit);
  GAVEL_ASSIGN_OR_RETURN(const bool has_row, insert.Step());
  const uint64_t id = has_row ? insert.Integer(0) : 0;
  GAVEL_RETURN_IF_ERROR(Drain(insert));
  return id;
}

absl::Status SimulationStore::InsertAll(const StoredRun& run) {
  const std::string keys[] = {run.key};
  GAVEL_RETURN_IF_ERROR(
      InsertRows(database_, "DELETE FROM runs WHERE key=CAST(? AS TEXT)", keys,
                 [](Binder& bind, const std::string& key) { bind(key); }));
  GAVEL_ASSIGN_OR_RETURN(const uint64_t id, InsertRun(run));
  const SimulationResult& result = run.run.result;
  GAVEL_RETURN_IF_ERROR(InsertRows(
      database_, "INSERT INTO utilization VALUES(?,CAST(? AS TEXT),?)",
      result.utilization, [id](Binder& bind, const auto& type_busy) {
        bind(id);
        bind(type_busy.first);
        bind(type_busy.second);
      }));
  GAVEL_RETURN_IF_ERROR(InsertRows(
      database_, "INSERT OR REPLACE INTO unfit VALUES(?,?,CAST(? AS TEXT))",
      result.unfit, [id](Binder& bind, const UnfitJob& job) {
        bind(id);
        bind(job.job);
        bind(job.reason);
      }));
  GAVEL_RETURN_IF_ERROR(InsertJobs(database_, id, result.jobs));
  GAVEL_RETURN_IF_ERROR(InsertUsage(database_, id, result));
  return InsertLeases(database_, id, result.leases);
}

absl::StatusOr<std::map<std::string, RunStatus>> SimulationStore::Statuses() {
  std::map<std::string, RunStatus> statuses;
  GAVEL_RETURN_IF_ERROR(ForEachRow(
      database_, "SELECT key,status FROM runs WHERE id>?", 0,
      [&](const SqliteStatement& row) {
        statuses[std::string(row.Blob(0))] = FindRunStatus(row.Blob(1));
      }));
  return statuses;
}

absl::StatusOr<std::vector<StoredRun>> SimulationStore::Runs() {
  std::vector<StoredRun> runs;
  GAVEL_RETURN_IF_ERROR(ForEachRow(
      database_,
      StrCat("SELECT id,", Comma(MakeRunColumns().expressions),
             " FROM runs WHERE id>? ORDER BY id"),
      0, [&](const SqliteStatement& row) { runs.push_back(ReadRun(row)); }));
  std::map<uint64_t, SimulationResult*> result_of;
  for (StoredRun& run : runs) result_of[run.id] = &run.run.result;
  GAVEL_RETURN_IF_ERROR(ForEachRow(
      database_,
      "SELECT run,type,ifnull(busy,9e999) FROM utilization "
      "WHERE run>?",
      0, [&](const SqliteStatement& row) {
        const auto it = result_of.find(row.Integer(0));
        if (it == result_of.end()) return;  // came in between
        it->second->utilization[std::string(row.Blob(1))] = row.Real(2);
      }));
  return runs;
}

absl::StatusOr<std::vector<SimulatedJob>> SimulationStore::Jobs(uint64_t run) {
  constexpr char kSql[] =
      "SELECT job,type,scale_factor,weight,arrival_s,"
      "ifnull(completion_s,9e999),jct_s,rho,cost,run_s,lost_s,preemptions,"
      "moves,ifnull(deadline_s,9e999),share_target,share_received FROM jobs "
      "WHERE run=? ORDER BY job";
  std::vector<SimulatedJob> jobs;
  GAVEL_RETURN_IF_ERROR(
      ForEachRow(database_, kSql, run, [&](const SqliteStatement& row) {
        SimulatedJob& job = jobs.emplace_back();
        RowReader read(row);
        read(job.job);
        read(job.type);
        read(job.scale_factor);
        read(job.weight);
        read(job.arrival_s);
        read(job.completion_s);
        read(job.jct_s);
        read(job.rho);
        read(job.cost);
        read(job.run_s);
        read(job.lost_s);
        read(job.preemptions);
        read(job.moves);
        read(job.deadline_s);
        read(job.share_target);
        read(job.share_received);
      }));
  return jobs;
}

absl::StatusOr<std::vector<UsageSample>> SimulationStore::Usage(uint64_t run) {
  std::vector<UsageSample> usage;
  GAVEL_RETURN_IF_ERROR(ForEachRow(
      database_,
      "SELECT sample,time_s,busy,waiting_jobs FROM usage WHERE run=? "
      "ORDER BY rowid",
      run, [&](const SqliteStatement& row) {
        if (row.Integer(0) >= usage.size()) usage.emplace_back();
        UsageSample& sample = usage.back();
        sample.time_s = row.Real(1);
        sample.busy.push_back(row.Real(2));
        sample.waiting_jobs = row.Real(3);
      }));
  return usage;
}

absl::StatusOr<std::vector<RecordedLease>> SimulationStore::Leases(
    uint64_t run) {
  std::vector<RecordedLease> leases;
  GAVEL_RETURN_IF_ERROR(
      ForEachRow(database_,
                 "SELECT job,accelerator,from_s,ifnull(to_s,9e999) FROM leases "
                 "WHERE run=? ORDER BY rowid",
                 run, [&](const SqliteStatement& row) {
                   leases.push_back({row.Integer(0), row.Integer(1),
                                     row.Real(2), row.Real(3)});
                 }));
  return leases;
}

absl::StatusOr<std::set<uint64_t>> SimulationStore::RunsWithLeases() {
  std::set<uint64_t> runs;
  GAVEL_RETURN_IF_ERROR(ForEachRow(
      database_, "SELECT DISTINCT run FROM leases WHERE run>?", 0,
      [&](const SqliteStatement& row) { runs.insert(row.Integer(0)); }));
  return runs;
}

}  // namespace gavel
