#include "study/simulation_store.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tests/study/sample_runs.h"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {

using namespace study;
namespace {

class SimulationStoreTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/results.db"; }
  SimulationStore Open() {
    auto store = SimulationStore::Open(path());
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  TemporaryFolder folder_;
};

TEST_F(SimulationStoreTest, ARunReadsBackWhole) {
  StoredRun run = SampleRunWithRounds("max_min_fairness_perf");
  run.spec.window_begin = 4000;
  run.spec.multi_gpu = true;
  run.spec.overheads = "pause=2";
  run.run.result.unfit = {{3, "needs 16 accelerators"}};
  run.run.result.jobs[1].completion_s = kNever;
  run.run.result.jobs[2].interactive = true;
  run.run.result.jobs[2].started_s = 12.5;
  run.run.result.interactive.jobs = 1;
  run.run.result.interactive.p99_start_s = 0.5;
  run.run.result.apps = {{"search", 4, 60, 7200, 1.5, true},
                         {"", 1, 0, 3600, 0.75, false}};
  {
    SimulationStore store = Open();
    ASSERT_OK(store.Append(run));
  }
  SimulationStore store = Open();
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  ASSERT_EQ(runs.size(), 1);
  const StoredRun& read = runs.front();
  EXPECT_EQ(read.spec, run.spec);
  EXPECT_EQ(read.key, run.key);
  EXPECT_EQ(read.run.status, RunStatus::kOk);
  EXPECT_EQ(read.run.result.avg_jct_s, run.run.result.avg_jct_s);
  EXPECT_EQ(read.run.result.types, run.run.result.types);
  EXPECT_EQ(read.run.result.utilization, run.run.result.utilization);
  EXPECT_EQ(read.run.result.preemptions, run.run.result.preemptions);
  ASSERT_OK_AND_ASSIGN(const auto jobs, store.Jobs(read.id));
  ASSERT_EQ(jobs.size(), run.run.result.jobs.size());
  EXPECT_EQ(jobs[1].completion_s, kNever);
  EXPECT_EQ(jobs[1].started_s, kNever);
  EXPECT_FALSE(jobs[1].interactive);
  EXPECT_EQ(jobs[2].started_s, 12.5);
  EXPECT_TRUE(jobs[2].interactive);
  EXPECT_EQ(read.run.result.interactive.jobs, 1U);
  EXPECT_EQ(read.run.result.interactive.p99_start_s, 0.5);
  EXPECT_EQ(jobs[2].jct_s, run.run.result.jobs[2].jct_s);
  EXPECT_EQ(jobs[2].type, run.run.result.jobs[2].type);
  EXPECT_EQ(jobs[2].share_received, run.run.result.jobs[2].share_received);
  ASSERT_OK_AND_ASSIGN(const auto apps, store.Apps(read.id));
  ASSERT_EQ(apps.size(), 2);
  EXPECT_EQ(apps[0].name, "search");
  EXPECT_EQ(apps[0].jobs, 4U);
  EXPECT_EQ(apps[0].arrival_s, 60);
  EXPECT_EQ(apps[0].completion_s, 7200);
  EXPECT_EQ(apps[0].rho, 1.5);
  EXPECT_TRUE(apps[0].lies);
  EXPECT_EQ(apps[1].rho, 0.75);
  EXPECT_FALSE(apps[1].lies);
  ASSERT_OK_AND_ASSIGN(const auto usage, store.Usage(read.id));
  ASSERT_EQ(usage.size(), run.run.result.usage.size());
  EXPECT_EQ(usage[7].busy, run.run.result.usage[7].busy);
  EXPECT_EQ(usage[7].waiting_jobs, run.run.result.usage[7].waiting_jobs);
  ASSERT_OK_AND_ASSIGN(const auto leases, store.Leases(read.id));
  ASSERT_EQ(leases.size(), run.run.result.leases.size());
  EXPECT_EQ(leases[5].accelerator, run.run.result.leases[5].accelerator);
  ASSERT_OK_AND_ASSIGN(const auto with_leases, store.RunsWithLeases());
  EXPECT_THAT(with_leases, ::testing::ElementsAre(read.id));
}

TEST_F(SimulationStoreTest, WhatIsNotKnownIsNotANumber) {
  StoredRun run = SampleRun("fifo", 3.5, 0);  // does not drain
  SimulationStore store = Open();
  ASSERT_OK(store.Append(run));
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  EXPECT_TRUE(std::isnan(runs[0].run.result.avg_jct_s));
  EXPECT_EQ(runs[0].run.status, RunStatus::kCannotDrain);
  EXPECT_EQ(runs[0].run.detail, run.run.detail);
}

TEST_F(SimulationStoreTest, ARunWithTheSameKeyTakesTheFirstOnesPlace) {
  SimulationStore store = Open();
  StoredRun run = SampleRun("fifo", 1, 0);
  run.run.status = RunStatus::kTimeout;
  ASSERT_OK(store.Append(run));
  run.run.status = RunStatus::kOk;
  run.run.result.jobs.resize(5);
  ASSERT_OK(store.Append(run));
  ASSERT_OK_AND_ASSIGN(const auto runs, store.Runs());
  ASSERT_EQ(runs.size(), 1);
  EXPECT_EQ(runs[0].run.status, RunStatus::kOk);
  ASSERT_OK_AND_ASSIGN(const auto jobs, store.Jobs(runs[0].id));
  EXPECT_EQ(jobs.size(), 5);  // none of the first one's are left
}

TEST_F(SimulationStoreTest, AReaderSeesRunsWhileAWriterGoesOn) {
  SimulationStore writer = Open();
  ASSERT_OK(writer.Append(SampleRun("fifo", 1, 0)));
  ASSERT_OK_AND_ASSIGN(SimulationStore reader,
                       SimulationStore::OpenExisting(path()));
  ASSERT_OK_AND_ASSIGN(const auto before, reader.Runs());
  EXPECT_EQ(before.size(), 1);
  ASSERT_OK(writer.Append(SampleRun("fifo", 1, 1)));
  ASSERT_OK_AND_ASSIGN(const auto after, reader.Runs());
  EXPECT_EQ(after.size(), 2);
}

TEST_F(SimulationStoreTest, ManyUsageSamplesAreThinnedAndLeasesCut) {
  StoredRun run = SampleRun("fifo", 1, 0);
  run.run.result.usage.clear();
  for (int i = 0; i < 5000; ++i) {
    run.run.result.usage.push_back(
        {static_cast<double>(i), {0.5, 0.5, 0.5}, 1});
  }
  run.run.result.leases.assign(SimulationStore::kLeasesMax + 3, {1, 1, 0, 5});
  SimulationStore store = Open();
  ASSERT_OK(store.Append(run));
  ASSERT_OK_AND_ASSIGN(const auto usage, store.Usage(1));
  EXPECT_LE(usage.size(), SimulationStore::kUsageSamplesMax + 1);
  EXPECT_GE(usage.size(), SimulationStore::kUsageSamplesMax / 2);
  ASSERT_OK_AND_ASSIGN(const auto leases, store.Leases(1));
  EXPECT_EQ(leases.size(), SimulationStore::kLeasesMax);
}

TEST_F(SimulationStoreTest, OtherFilesAreRefusedAndLeftAlone) {
  EXPECT_THAT(SimulationStore::OpenExisting(path()),
              StatusIs(absl::StatusCode::kNotFound, "gavel sweep"));
  const std::string text = folder_.path() + "/text.db";
  std::ofstream(text) << "this is no database, but long enough to be looked at "
                         "as one, which it is not";
  EXPECT_THAT(SimulationStore::Open(text),
              StatusIs(absl::StatusCode::kDataLoss, "text.db"));
  const std::string other = folder_.path() + "/other.db";
  {
    ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(other));
    ASSERT_OK(database.Execute("CREATE TABLE songs(name TEXT)"));
  }
  EXPECT_THAT(SimulationStore::Open(other),
              StatusIs(kInvalidArgument, "not one of results"));
}

TEST_F(SimulationStoreTest, ResultsOfAnEarlierVersionGetTheColumnsTheyLack) {
  StoredRun run = SampleRun("fifo", 1, 0);
  ASSERT_OK(Open().Append(run));
  {
    ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path()));
    ASSERT_OK(
        database.Execute("ALTER TABLE runs DROP COLUMN offered_load;"
                         "ALTER TABLE runs DROP COLUMN spread_speed;"
                         "ALTER TABLE jobs DROP COLUMN name;DROP TABLE apps;"
                         "PRAGMA user_version=2"));
  }
  run.key += "-later";
  run.run.offered_load = 0.5;
  run.run.result.jobs[0].name = "application_7";
  run.run.result.apps = {{"search", 4, 60, 7200, 1.5, false}};
  SimulationStore store = Open();
  ASSERT_OK(store.Append(run));
  ASSERT_OK_AND_ASSIGN(const auto runs, store.Runs());
  ASSERT_EQ(runs.size(), 2);
  EXPECT_TRUE(std::isnan(runs[0].run.offered_load));
  EXPECT_EQ(runs[0].spec, run.spec) << "what it did not know was not used";
  EXPECT_EQ(runs[1].run.offered_load, 0.5);
  EXPECT_EQ(runs[0].run.result.avg_jct_s, run.run.result.avg_jct_s);
  ASSERT_OK_AND_ASSIGN(const auto old_jobs, store.Jobs(runs[0].id));
  EXPECT_EQ(old_jobs[0].name, "");
  EXPECT_EQ(old_jobs[0].jct_s, run.run.result.jobs[0].jct_s);
  ASSERT_OK_AND_ASSIGN(const auto jobs, store.Jobs(runs[1].id));
  EXPECT_EQ(jobs[0].name, "application_7");
  ASSERT_OK_AND_ASSIGN(const auto old_apps, store.Apps(runs[0].id));
  EXPECT_EQ(old_apps.size(), 0);
  ASSERT_OK_AND_ASSIGN(const auto apps, store.Apps(runs[1].id));
  EXPECT_EQ(apps.size(), 1);
  EXPECT_EQ(jobs[0].jct_s, run.run.result.jobs[0].jct_s);
}

// Results of an earlier version get further columns only where the version of
// the tables has risen.
TEST_F(SimulationStoreTest, EachColumnIsOfTheVersionThatBroughtIt) {
  Open();
  ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path()));
  ASSERT_OK_AND_ASSIGN(
      SqliteStatement ask,
      database.Prepare("SELECT group_concat(name) FROM (SELECT name FROM "
                       "pragma_table_info('runs') UNION ALL SELECT name FROM "
                       "pragma_table_info('jobs') UNION ALL SELECT name FROM "
                       "pragma_table_info('apps'))"));
  ASSERT_OK_AND_ASSIGN(const bool has_row, ask.Step());
  ASSERT_TRUE(has_row);
  const std::string names(ask.Blob(0));
  EXPECT_EQ(SimulationStore::kSchemaVersion, 7u);
  EXPECT_EQ(std::ranges::count(names, ',') + 1, 122)
      << "for other columns, raise kSchemaVersion and correct both numbers: "
      << names;
}

TEST_F(SimulationStoreTest, AnotherVersionsResultsAreRefused) {
  Open();
  {
    ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path()));
    ASSERT_OK(database.Execute("PRAGMA user_version=99"));
  }
  EXPECT_THAT(SimulationStore::Open(path()),
              StatusIs(kInvalidArgument, "schema 99"));
}

TEST_F(SimulationStoreTest, TextIsTextForOtherPrograms) {
  SimulationStore store = Open();
  ASSERT_OK(store.Append(SampleRun("fifo", 1, 0)));
  ASSERT_OK_AND_ASSIGN(SqliteDatabase database, SqliteDatabase::Open(path()));
  ASSERT_OK_AND_ASSIGN(
      SqliteStatement ask,
      database.Prepare("SELECT count(*) FROM runs JOIN jobs ON run=id WHERE "
                       "policy='fifo' AND status='ok' AND typeof(cluster)="
                       "'text' AND type LIKE 'ResNet-18%'"));
  ASSERT_OK_AND_ASSIGN(const bool has_row, ask.Step());
  ASSERT_TRUE(has_row);
  EXPECT_EQ(ask.Integer(0), 300);
}

}  // namespace
}  // namespace gavel::testing
