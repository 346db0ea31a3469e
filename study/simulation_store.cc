#include "study/simulation_store.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::study {
namespace {

constexpr uint64_t kApplicationId = 0x6761766c;  // "gavl"
constexpr int kWalPagesMax = 1000;

// WAL lets a report read while a sweep writes. The timeout is for a second
// writer.
constexpr char kOpenSql[] =
    "PRAGMA busy_timeout=20000;PRAGMA journal_mode=WAL;PRAGMA "
    "synchronous=NORMAL;PRAGMA foreign_keys=ON;";

// The first column of each table of a run's details.
constexpr char kRunColumn[] =
    "(run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,";

// The columns of `runs` but its id. `types`: the cluster's, joined by commas.
template <class Stored, class Text, class Visitor>
void VisitRun(Stored& stored, Text& status, Text& types, const Visitor& visit) {
  visit("key", stored.key);
  visit("status", status);
  visit("detail", stored.run.detail);
  visit("types", types);
  visit("complete", stored.run.result.complete);
  VisitFields(stored.spec, visit);
  VisitFigures(stored.run, visit);
}

// The columns of `jobs` but the run.
template <class Job, class Visitor>
void VisitJob(Job& job, const Visitor& visit) {
  visit("job", job.job);
  visit("name", job.name);
  visit("type", job.type);
  visit("scale_factor", job.scale_factor);
  visit("weight", job.weight);
  visit("arrival_s", job.arrival_s);
  visit("completion_s", job.completion_s);
  visit("jct_s", job.jct_s);
  visit("rho", job.rho);
  visit("rho_static", job.rho_static);
  visit("rho_mean", job.rho_mean);
  visit("cost", job.cost);
  visit("run_s", job.run_s);
  visit("lost_s", job.lost_s);
  visit("preemptions", job.preemptions);
  visit("moves", job.moves);
  visit("deadline_s", job.deadline_s);
  visit("share_target", job.share_target);
  visit("share_received", job.share_received);
  visit("interactive", job.interactive);
  visit("started_s", job.started_s);
}

// The columns that one of the two visits, as parts of SQL statements.
struct Columns {
  std::string names;
  std::vector<std::string> definitions;
  std::string expressions;   // of a SELECT
  std::string placeholders;  // of an INSERT

  // `null_is_infinite`: of a real column, since infinity is stored as NULL;
  // else NULL reads as 0.
  template <class T>
  void Add(std::string_view name, const T&, bool null_is_infinite) {
    constexpr bool is_text = std::same_as<T, std::string>;
    constexpr bool is_real = std::same_as<T, double>;
    const char* const comma = names.empty() ? "" : ",";
    StrAppend(&names, comma, name);
    definitions.push_back(
        StrCat(name, is_text ? " TEXT" : (is_real ? " REAL" : " INTEGER")));
    const bool replaces = is_real && null_is_infinite;
    StrAppend(&expressions, comma, replaces ? "ifnull(" : "", name,
              replaces ? ",9e999)" : "");
    StrAppend(&placeholders, comma, "?");
  }
};

Columns RunColumns() {
  Columns columns;
  const StoredRun run;
  const std::string text;
  VisitRun(run, text, text, [&](const char* name, const auto& field) {
    columns.Add(name, field, true);
  });
  return columns;
}

Columns JobColumns() {
  Columns columns;
  const SimulatedJob job;
  VisitJob(job, [&](const std::string_view name, const auto& field) {
    columns.Add(
        name, field,
        name == "completion_s" || name == "deadline_s" || name == "started_s");
  });
  return columns;
}

std::string AppsTableSql() {
  return StrCat("CREATE TABLE IF NOT EXISTS apps", kRunColumn,
                "app INTEGER NOT NULL,name TEXT,jobs INTEGER,arrival_s REAL,"
                "completion_s REAL,rho REAL,lies INTEGER,PRIMARY KEY(run,app)) "
                "WITHOUT ROWID;");
}

std::string TablesSql() {
  return StrCat(
      "PRAGMA application_id=", kApplicationId,
      ";PRAGMA user_version=", SimulationStore::kSchemaVersion,
      ";CREATE TABLE runs(id INTEGER PRIMARY KEY,",
      absl::StrJoin(RunColumns().definitions, ","),
      ",UNIQUE(key));CREATE TABLE utilization", kRunColumn,
      "type TEXT NOT NULL,busy REAL,PRIMARY KEY(run,type)) WITHOUT "
      "ROWID;CREATE TABLE jobs",
      kRunColumn, absl::StrJoin(JobColumns().definitions, ","),
      ",PRIMARY KEY(run,job)) WITHOUT ROWID;CREATE TABLE unfit", kRunColumn,
      "job INTEGER NOT NULL,reason TEXT,PRIMARY KEY(run,job)) WITHOUT "
      "ROWID;CREATE TABLE usage",
      kRunColumn,
      "sample INTEGER NOT NULL,time_s REAL,type TEXT,busy REAL,waiting_jobs "
      "REAL);CREATE INDEX usage_of_run ON usage(run);CREATE TABLE leases",
      kRunColumn,
      "job INTEGER NOT NULL,accelerator INTEGER NOT NULL,from_s REAL,to_s "
      "REAL);CREATE INDEX leases_of_run ON leases(run);",
      AppsTableSql());
}

// Binds parameters from 1 on, one after the other.
class Binder {
 public:
  explicit Binder(SqliteStatement& statement) : statement_(statement) {}

  void operator()(std::string_view text) {
    statement_.BindText(++parameter_, text);
  }
  // NaN becomes NULL in SQLite; so does infinity here.
  void operator()(double value) {
    statement_.BindReal(++parameter_, std::isfinite(value) ? value : kNaN);
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

// Runs a statement without results, with these parameters.
template <class... Values>
absl::Status Run(SqliteDatabase& database, std::string_view sql,
                 const Values&... values) {
  GAVEL_ASSIGN_OR_RETURN(SqliteStatement* const statement,
                         database.PrepareOnce(sql));
  Binder bind(*statement);
  (bind(values), ...);
  return statement->Step().status();
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

StoredRun ReadRun(const SqliteStatement& row) {
  StoredRun stored;
  std::string status;
  std::string types;
  RowReader read(row);
  read(stored.id);
  VisitRun(stored, status, types, [&](const char*, auto& field) {
    read(field);
    if constexpr (std::same_as<std::remove_cvref_t<decltype(field)>, double>) {
      if (std::isinf(field)) field = kNaN;
    }
  });
  stored.run.status = FindRunStatus(status);
  stored.run.result.policy = stored.spec.policy;
  if (!types.empty()) stored.run.result.types = absl::StrSplit(types, ',');
  return stored;
}

absl::StatusOr<uint64_t> InsertRun(SqliteDatabase& database,
                                   const StoredRun& run) {
  const Columns columns = RunColumns();
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.Prepare(StrCat("INSERT INTO runs(", columns.names, ") VALUES(",
                              columns.placeholders, ") RETURNING id")));
  const std::string status(RunStatusName(run.run.status));
  const std::string types = absl::StrJoin(run.run.result.types, ",");
  Binder bind(insert);
  VisitRun(run, status, types,
           [&](const char*, const auto& field) { bind(field); });
  GAVEL_ASSIGN_OR_RETURN(const bool has_row, insert.Step());
  const uint64_t id = has_row ? insert.Integer(0) : 0;
  GAVEL_RETURN_IF_ERROR(insert.Step().status());
  return id;
}

absl::Status InsertJobs(SqliteDatabase& database, uint64_t run,
                        const std::vector<SimulatedJob>& jobs) {
  GAVEL_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.Prepare(StrCat("INSERT INTO jobs(run,", JobColumns().names,
                              ") VALUES(?,", JobColumns().placeholders, ")")));
  for (const SimulatedJob& job : jobs) {
    Binder bind(insert);
    bind(run);
    VisitJob(job, [&](const char*, const auto& field) { bind(field); });
    GAVEL_RETURN_IF_ERROR(insert.Step().status());
  }
  return absl::OkStatus();
}

absl::Status InsertApps(SqliteDatabase& database, uint64_t run,
                        const std::vector<SimulatedApp>& apps) {
  for (size_t i = 0; i < apps.size(); ++i) {
    const SimulatedApp& app = apps[i];
    GAVEL_RETURN_IF_ERROR(Run(
        database, "INSERT INTO apps VALUES(?,?,?,?,?,?,?,?)", run, i, app.name,
        app.jobs, app.arrival_s, app.completion_s, app.rho, app.lies));
  }
  return absl::OkStatus();
}

absl::Status InsertUsage(SqliteDatabase& database, uint64_t run,
                         const SimulationResult& result) {
  const std::vector<UsageSample> usage =
      ThinUsage(result.usage, SimulationStore::kUsageSamplesMax);
  for (size_t i = 0; i < usage.size(); ++i) {
    const UsageSample& sample = usage[i];
    const size_t types = std::min(sample.busy.size(), result.types.size());
    for (size_t j = 0; j < types; ++j) {
      GAVEL_RETURN_IF_ERROR(Run(
          database, "INSERT INTO usage VALUES(?,?,?,?,?,?)", run, i,
          sample.time_s, result.types[j], sample.busy[j], sample.waiting_jobs));
    }
  }
  return absl::OkStatus();
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
    return absl::InvalidArgumentError(StrCat(
        path,
        ": this is a directory; name the results of `gavel sweep` in it"));
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
    GAVEL_RETURN_IF_ERROR(database_.Execute(TablesSql().c_str()));
  } else if (application != kApplicationId) {
    return absl::InvalidArgumentError(
        "a database, but not one of results; name another file");
  } else if (version < kSchemaVersion) {
    GAVEL_RETURN_IF_ERROR(Upgrade());
  } else if (version > kSchemaVersion) {
    return absl::InvalidArgumentError(
        StrCat("results of another version of Gavel (schema ", version,
               ", here ", kSchemaVersion, "); name another file"));
  }
  return database_.Execute("COMMIT");
}

// By column of `runs` that is a field of the spec: its default, as SQL.
static std::map<std::string, std::string> SpecDefaults() {
  std::map<std::string, std::string> defaults;
  const SimulationSpec spec;
  VisitFields(spec, [&]<class T>(const char* name, const T& field) {
    constexpr bool is_text = std::same_as<T, std::string>;
    const char* const quote = is_text ? "'" : "";
    defaults[name] = StrCat(quote, FieldText(field), quote);
  });
  return defaults;
}

// Adds missing tables, and missing columns at the end of theirs. In a run of an
// earlier version a field of the spec has its default, and a result is not
// known.
absl::Status SimulationStore::Upgrade() {
  GAVEL_RETURN_IF_ERROR(database_.Execute(AppsTableSql().c_str()));
  const std::map<std::string, std::string> defaults = SpecDefaults();
  const std::pair<const char*, Columns> tables[] = {{"runs", RunColumns()},
                                                    {"jobs", JobColumns()}};
  for (const auto& [table, columns] : tables) {
    for (const std::string& definition : columns.definitions) {
      const std::string name = definition.substr(0, definition.find(' '));
      GAVEL_ASSIGN_OR_RETURN(
          const uint64_t there,
          AskInteger(database_,
                     StrCat("SELECT count(*) FROM pragma_table_info('", table,
                            "') WHERE name='", name, "'")));
      if (there > 0) continue;
      std::string sql =
          StrCat("ALTER TABLE ", table, " ADD COLUMN ", definition);
      const auto found = defaults.find(name);
      if (found != defaults.end()) StrAppend(&sql, " DEFAULT ", found->second);
      GAVEL_RETURN_IF_ERROR(database_.Execute(sql.c_str()));
    }
  }
  return database_.Execute(
      StrCat("PRAGMA user_version=", kSchemaVersion).c_str());
}

absl::Status SimulationStore::Append(const StoredRun& run) {
  absl::Status status = database_.Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return Annotate(status, path_);
  status = InsertAll(run);
  if (status.ok()) status = database_.Execute("COMMIT");
  if (!status.ok()) {
    database_.Execute("ROLLBACK").IgnoreError();
  } else if (database_.wal_pages() >= kWalPagesMax) {
    status = database_.Checkpoint();
  }
  return Annotate(status, path_);
}

absl::Status SimulationStore::InsertAll(const StoredRun& run) {
  GAVEL_RETURN_IF_ERROR(
      Run(database_, "DELETE FROM runs WHERE key=?", run.key));
  GAVEL_ASSIGN_OR_RETURN(const uint64_t id, InsertRun(database_, run));
  const SimulationResult& result = run.run.result;
  for (const auto& [type, busy] : result.utilization) {
    GAVEL_RETURN_IF_ERROR(Run(
        database_, "INSERT INTO utilization VALUES(?,?,?)", id, type, busy));
  }
  for (const UnfitJob& job : result.unfit) {
    GAVEL_RETURN_IF_ERROR(Run(database_,
                              "INSERT OR REPLACE INTO unfit VALUES(?,?,?)", id,
                              job.job, job.reason));
  }
  GAVEL_RETURN_IF_ERROR(InsertJobs(database_, id, result.jobs));
  GAVEL_RETURN_IF_ERROR(InsertApps(database_, id, result.apps));
  GAVEL_RETURN_IF_ERROR(InsertUsage(database_, id, result));
  for (size_t i = 0; i < std::min(result.leases.size(), kLeasesMax); ++i) {
    const RecordedLease& lease = result.leases[i];
    GAVEL_RETURN_IF_ERROR(Run(database_, "INSERT INTO leases VALUES(?,?,?,?,?)",
                              id, lease.job, lease.accelerator, lease.from_s,
                              lease.to_s));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredRun>> SimulationStore::Runs() {
  std::vector<StoredRun> runs;
  GAVEL_RETURN_IF_ERROR(ForEachRow(
      database_,
      StrCat("SELECT id,", RunColumns().expressions,
             " FROM runs WHERE id>? ORDER BY id"),
      0, [&](const SqliteStatement& row) { runs.push_back(ReadRun(row)); }));
  std::map<uint64_t, SimulationResult*> result_of;
  for (StoredRun& run : runs) result_of[run.id] = &run.run.result;
  GAVEL_RETURN_IF_ERROR(ForEachRow(
      database_,
      "SELECT run,type,ifnull(busy,9e999) FROM utilization WHERE run>?", 0,
      [&](const SqliteStatement& row) {
        const auto it = result_of.find(row.Integer(0));
        if (it == result_of.end()) return;  // added since the first statement
        it->second->utilization[std::string(row.Blob(1))] = row.Real(2);
      }));
  return runs;
}

absl::StatusOr<std::vector<SimulatedJob>> SimulationStore::Jobs(uint64_t run) {
  std::vector<SimulatedJob> jobs;
  GAVEL_RETURN_IF_ERROR(
      ForEachRow(database_,
                 StrCat("SELECT ", JobColumns().expressions,
                        " FROM jobs WHERE run=? ORDER BY job"),
                 run, [&](const SqliteStatement& row) {
                   RowReader read(row);
                   VisitJob(jobs.emplace_back(),
                            [&](const char*, auto& field) { read(field); });
                 }));
  return jobs;
}

absl::StatusOr<std::vector<SimulatedApp>> SimulationStore::Apps(uint64_t run) {
  std::vector<SimulatedApp> apps;
  GAVEL_RETURN_IF_ERROR(
      ForEachRow(database_,
                 "SELECT name,jobs,arrival_s,completion_s,rho,lies FROM apps "
                 "WHERE run=? ORDER BY app",
                 run, [&](const SqliteStatement& row) {
                   RowReader read(row);
                   SimulatedApp& app = apps.emplace_back();
                   read(app.name);
                   read(app.jobs);
                   read(app.arrival_s);
                   read(app.completion_s);
                   read(app.rho);
                   read(app.lies);
                 }));
  return apps;
}

absl::StatusOr<std::vector<UsageSample>> SimulationStore::Usage(uint64_t run) {
  std::vector<UsageSample> usage;
  GAVEL_RETURN_IF_ERROR(ForEachRow(database_,
                                   "SELECT sample,time_s,busy,waiting_jobs "
                                   "FROM usage WHERE run=? ORDER BY rowid",
                                   run, [&](const SqliteStatement& row) {
                                     if (row.Integer(0) >= usage.size())
                                       usage.emplace_back();
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

bool HaveApps(const std::vector<StoredRun>& runs) {
  return std::ranges::any_of(runs, [](const StoredRun& run) {
    return run.run.result.max_app_rho > 0;
  });
}

// ---- usage, thinned

namespace {

// The mean of samples [begin, end), weighted by their time; the last of them
// when they last no time.
UsageSample MeanOf(const std::vector<UsageSample>& usage, size_t begin,
                   size_t end) {
  const Time until =
      end < usage.size() ? usage[end].time_s : usage.back().time_s;
  UsageSample mean = usage[begin];
  if (until <= mean.time_s) mean = usage[end - 1];
  mean.time_s = usage[begin].time_s;
  if (until <= mean.time_s) return mean;
  std::ranges::fill(mean.busy, 0.0);
  mean.waiting_jobs = 0;
  double span = 0;
  for (size_t i = begin; i < end; ++i) {
    const Time ends = i + 1 < usage.size() ? usage[i + 1].time_s : until;
    const double weight = ends - usage[i].time_s;
    for (size_t j = 0; j < mean.busy.size(); ++j) {
      mean.busy[j] += weight * usage[i].busy[j];
    }
    mean.waiting_jobs += weight * usage[i].waiting_jobs;
    span += weight;
  }
  for (double& busy : mean.busy) busy /= span;
  mean.waiting_jobs /= span;
  return mean;
}

}  // namespace

std::vector<UsageSample> ThinUsage(const std::vector<UsageSample>& usage,
                                   size_t samples_max) {
  if (usage.size() <= samples_max || samples_max == 0) return usage;
  const Time begins = usage.front().time_s;
  const Time ends = usage.back().time_s;
  const double span = (ends - begins) / static_cast<double>(samples_max - 1);
  std::vector<UsageSample> thinned;
  size_t first = 0;
  for (size_t i = 1; i <= usage.size(); ++i) {
    const bool is_last = i == usage.size();
    const Time until = is_last ? ends : usage[i].time_s;
    const double due = begins + span * static_cast<double>(thinned.size() + 1);
    if (!is_last && until < due) continue;
    // The last one is an instant; alone it would be a spike of no width.
    if (until > usage[first].time_s || thinned.empty()) {
      thinned.push_back(MeanOf(usage, first, i));
    }
    first = i;
  }
  return thinned;
}

}  // namespace gavel::study
