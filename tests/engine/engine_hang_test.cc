// Workers whose loop stands still, processes that nobody wants, agents that
// know nothing of what ran before them, and settings of then.

#include "core/text.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class HungWorker : public ::testing::Test {
 protected:
  HungWorker()
      : driver_(1, "fifo", [](EngineOptions& options) {
          options.hang_timeout_s = 50;
          options.round_duration_s = 1000;
          options.stop_grace_s = 7;
        }) {
    driver_.now = 1;
  }

  // Once a second until `time`, with renewals; `steps` of the report.
  void ReportUntil(Time time, uint64_t steps, uint64_t boundaries = 0) {
    while (driver_.now < time) {
      driver_.At(driver_.now + 1);
      event::StepsReported report;
      report.worker = key_;
      report.epoch = driver_.worker(job_).held_epoch;
      report.progress.steps_done = steps;
      report.progress.boundaries = boundaries;
      driver_.Step(report);
      if (driver_.worker(job_).hung_s == 0) driver_.Request(key_, true);
    }
  }
  void Start(JobSpec spec = {}) {
    job_ = driver_.Submit("a", 1, std::move(spec));
    key_ = driver_.Run(job_);
  }
  std::string Why() const { return driver_.Why(job_); }

  EngineDriver driver_;
  JobId job_;
  WorkerKey key_;
};

TEST_F(HungWorker, IsToldAndThenEndedByItsAgent) {
  Start();
  ReportUntil(10, 5);
  EXPECT_THAT(Why(), HasSubstr("running on"));
  ReportUntil(40, 5);
  EXPECT_THAT(Why(), HasSubstr("rank 0 on v100 has made no step"));
  EXPECT_EQ(driver_.Count<StopWorker>(), 0);
  ReportUntil(70, 5);
  ASSERT_TRUE(driver_.Last<StopWorker>().has_value());
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, key_);
  EXPECT_EQ(driver_.Last<StopWorker>()->grace_s, 7);
}

TEST_F(HungWorker, IsNotRenewedAndStartsAgainWhenItIsGone) {
  Start();
  ReportUntil(70, 5);
  const int grants = driver_.Count<LeaseGrant>();
  driver_.Request(key_, /*holding=*/true);
  EXPECT_EQ(driver_.Count<LeaseGrant>(), grants);
  driver_.Gone(key_, 0, 9);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.incarnation, 2u);
}

TEST_F(HungWorker, ThatLeavesWith75WhenItIsEndedHasFailed) {
  Start();
  ReportUntil(70, 5);
  WorkerExited exit = driver_.ExitOf(job_);
  exit.exit_code = 75;
  exit.finished_code = 75;
  exit.stopped = true;
  driver_.Step(event::WorkerGone{exit});
  EXPECT_EQ(driver_.job(job_).failures_in_a_row, 1);
}

TEST_F(HungWorker, ThatPassesBoundariesIsLeftAlone) {
  Start();
  for (uint64_t i = 1; i < 20; ++i) {
    ReportUntil(driver_.now + 10, 5, i);
  }
  EXPECT_EQ(driver_.Count<StopWorker>(), 0);
}

TEST_F(HungWorker, ThatWritesACheckpointIsLeftAloneWhileBytesMove) {
  Start();
  for (uint64_t i = 1; i < 20; ++i) {
    ReportUntil(driver_.now + 10, 5);
    driver_.Step(event::WorkerBusy{{key_, {}, i << 20}});
  }
  EXPECT_EQ(driver_.Count<StopWorker>(), 0);
  ReportUntil(driver_.now + 70, 5);
  EXPECT_GT(driver_.Count<StopWorker>(), 0);
}

TEST_F(HungWorker, OfAJobThatNeverWantsItIsLeftAlone) {
  JobSpec spec;
  spec.hang_timeout_s = 0;
  Start(spec);
  ReportUntil(300, 5);
  EXPECT_EQ(driver_.Count<StopWorker>(), 0);
}

TEST_F(HungWorker, WithLongStepsHasTheTimeOfAHundred) {
  JobSpec spec;
  spec.throughputs = {{"v100", 0.5}};
  Start(spec);
  ReportUntil(190, 5);
  EXPECT_EQ(driver_.Count<StopWorker>(), 0);
  ReportUntil(220, 5);
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, key_);
}

TEST_F(HungWorker, ThatIsNotHeardIsNotTakenAsHung) {
  Start();
  ReportUntil(10, 5);
  for (int i = 0; i < 40; ++i) {
    driver_.At(driver_.now + 2);
    driver_.Request(key_, /*holding=*/true);
  }
  EXPECT_EQ(driver_.Count<StopWorker>(), 0);
}

TEST_F(HungWorker, TooOftenInARowHoldsTheJobWithTheReason) {
  JobSpec spec;
  spec.retries_max = 2;
  Start(spec);
  for (int i = 0; i < 2; ++i) {
    if (i > 0) key_ = driver_.Run(job_);
    ReportUntil(driver_.now + 70, 5);
    driver_.Gone(key_, 0, 9);
  }
  EXPECT_EQ(driver_.job(job_).state, JobState::kHeld);
  EXPECT_THAT(Why(), HasSubstr("no boundary for"));
  driver_.Restart();
  EXPECT_THAT(Why(), HasSubstr("no boundary for"));
}

TEST(Stranger, IsStoppedUntilItIsToldToBeGone) {
  EngineDriver driver;
  const WorkerKey stranger{JobId(7), 0, 3};
  driver.JoinServer("here", 1, {{stranger, 42}});
  EXPECT_EQ(driver.Last<StopWorker>()->worker, stranger);
  EXPECT_EQ(driver.Last<StopWorker>()->grace_s, 0);
  driver.At(driver.now + 30);
  const int stops = driver.Count<StopWorker>();
  EXPECT_GT(stops, 4);
  driver.Gone(stranger, 0, 9);
  driver.At(driver.now + 30);
  EXPECT_EQ(driver.Count<StopWorker>(), stops);
}

AgentHello OtherState() {
  AgentHello hello = EngineDriver::HelloOf("here", "v100");
  hello.state_id = "another";
  return hello;
}

WorkerExited NotRunning(const WorkerKey& key) {
  WorkerExited exit;
  exit.server = "here";
  exit.worker = key;
  exit.launch_error = "not running on this server";
  exit.no_failure = true;
  return exit;
}

TEST(AgentWithAnotherStateDirectory, HasNotSweptSoLeasesAreWaitedOut) {
  EngineDriver driver(1, "fifo", [](EngineOptions& options) {
    options.agent_timeout_s = 5;
    options.pause_grace_s = 30;
  });
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Run(job);
  driver.At(6);  // the agent is lost, the lease of 10 s runs
  driver.Step(event::ServerJoined{OtherState()});
  EXPECT_EQ(driver.worker(job).held_epoch, driver.job(job).epoch);
  const int grants = driver.Count<LeaseGrant>();
  driver.Request(key, /*holding=*/true);
  EXPECT_EQ(driver.Count<LeaseGrant>(), grants) << "it is not renewed";
  driver.Step(event::WorkerGone{NotRunning(key)});
  EXPECT_NE(driver.worker(job).held_epoch, 0u) << "it can't know that";
  for (int i = 0; i < 60 && driver.worker(job).incarnation == 1; ++i) {
    AgentHeartbeat beat;
    beat.server = "here";
    beat.incarnation = 1;
    beat.highest_seen = driver.engine().position();
    driver.Step(event::AgentHeard{beat});
    driver.At(driver.now + 1);
    if (const auto stop = driver.Last<StopWorker>()) {
      EXPECT_GT(driver.now, 40);
      driver.Step(event::WorkerGone{NotRunning(key)});
    }
  }
  EXPECT_EQ(driver.worker(job).incarnation, 2u) << "it starts anew";
}

TEST(Settings, OfThenAreInTheJournalAndInSnapshots) {
  const auto table = ThroughputTable::Parse(
      R"json({"v100": {"('app', 1)": {"null": 3, "('app', 1)": [2, 1.5]}},
          "v100_unconsolidated": {"('app', 1)": {"null": 2.5}}})json",
      "table");
  ASSERT_TRUE(table.ok());
  EngineDriver driver(1, "fifo", [&](EngineOptions& options) {
    options.throughputs = std::make_shared<const ThroughputTable>(*table);
    options.reset_interval_s = 17;
    options.placement_sensitive = true;
    options.packing = true;
    options.entities = {{"vision", 2, "fifo"}};
  });
  JobSpec spec;
  spec.app = "app";
  driver.Submit("a", 1, spec);

  const auto expect_same = [&](const Engine& engine) {
    const EngineOptions& options = engine.options();
    EXPECT_EQ(options.reset_interval_s, 17);
    EXPECT_TRUE(options.placement_sensitive);
    EXPECT_TRUE(options.packing);
    ASSERT_EQ(options.entities.size(), 1u);
    EXPECT_EQ(options.entities[0].name, "vision");
    ASSERT_NE(options.throughputs, nullptr);
    const auto row = options.throughputs->FindRow("app", 1);
    ASSERT_TRUE(row.has_value());
    EXPECT_EQ(options.throughputs->Alone(*row, 0), 3);
    EXPECT_EQ(options.throughputs->Alone(*row, 0, Locality::kCluster), 2.5);
    EXPECT_EQ(options.throughputs->Together(*row, *row, 0),
              std::pair(2.0, 1.5));
    EXPECT_EQ(engine.jobs().begin()->second.table_row, row);
  };
  expect_same(driver.Replayed({}));
  expect_same(driver.Restored({}));
}

}  // namespace
}  // namespace gavel
