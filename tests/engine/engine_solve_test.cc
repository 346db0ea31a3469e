// The problems that the engine gives to the policy, when it does so, and how it
// uses the answers.

#include <cmath>

#include "coordinator/workload/throughput_table.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

std::shared_ptr<const ThroughputTable> Table() {
  return std::make_shared<const ThroughputTable>(*ThroughputTable::Parse(
      R"json({"v100": {"('app', 1)": {"null": 5, "('app', 1)": [3, 4]},
                       "('app', 2)": {"null": 9}},
              "v100_unconsolidated": {"('app', 2)": {"null": 6}}})json",
      "table"));
}

JobSpec App(double throughput = 0) {
  JobSpec spec;
  spec.app = "app";
  if (throughput > 0) spec.throughputs["v100"] = throughput;
  return spec;
}

TEST(Solve, FillsThroughputsInByTheTableAndKeepsThemInTheJournal) {
  EngineDriver driver(1, "fifo",
                      [](EngineOptions& o) { o.throughputs = Table(); });
  driver.Submit("a", 1, App());
  EXPECT_THAT(driver.problem.throughputs, ElementsAre(5));
  driver.Submit("b", 1, App(7));  // the user's own figure comes first
  EXPECT_THAT(driver.problem.throughputs, ElementsAre(5, 7));
  const Engine replayed = driver.Replayed({});  // without the table
  EXPECT_EQ(replayed.throughputs().Get(JobId(1), "v100").steps_per_s, 5);
}

TEST(Solve, OffersThePairsThatTheTableKnows) {
  EngineDriver driver(2, "fifo", [](EngineOptions& o) {
    o.throughputs = Table();
    o.packing = true;
  });
  driver.Submit("a", 1, App());
  driver.Submit("b", 1);  // the table does not know its job type
  driver.Submit("c", 1, App());
  driver.Submit("d", 2, App());  // another scale factor
  // a and c have the same row of the table. So they have one kind, and each
  // gets the mean throughput of the pair.
  EXPECT_THAT(driver.problem.kinds, ElementsAre(0, 1, 0, 3));
  ASSERT_EQ(driver.problem.pairs.size(), 1u);
  EXPECT_EQ(driver.problem.pairs[0].first, 0u);
  EXPECT_EQ(driver.problem.pairs[0].second, 0u);
  EXPECT_THAT(driver.problem.pair_throughputs, ElementsAre(3.5, 3.5));
}

TEST(Solve, TellsPlacementsOnlyWhereTheyMatter) {
  EngineDriver driver(2, "max_min_fairness_perf", [](EngineOptions& o) {
    o.throughputs = Table();
    o.placement_sensitive = true;
  });
  driver.Submit("a", 1, App());
  EXPECT_FALSE(driver.problem.placement_sensitive());
  driver.Submit("b", 2, App());
  ASSERT_TRUE(driver.problem.placement_sensitive());
  EXPECT_THAT(driver.problem.servers, ElementsAre(ElementsAre(2)));
  EXPECT_THAT(driver.problem.throughputs, ElementsAre(5, 5, 9, 6));
  // The mechanism knows only types, so the allocation has no placement columns.
  EXPECT_EQ(driver.engine().allocation().allocation.columns(), 1u);
}

TEST(Solve, TellsDeadlinesWeightsAndEntities) {
  EngineDriver driver(1, "fifo", [](EngineOptions& o) {
    o.entities = {{"vision", 2, "fifo"}, {"speech", 1, "fairness"}};
  });
  JobSpec spec;
  spec.entity = "speech";
  spec.deadline_s = 1000;
  spec.weight = 3;
  driver.now = 5;
  driver.Submit("a", 1, spec);
  driver.now = 25;
  driver.Submit("b");
  const PolicyJob& job = driver.problem.jobs[0];
  EXPECT_EQ(job.entity, 1);
  EXPECT_EQ(job.deadline_s, 980 - 100);  // a round earlier
  EXPECT_EQ(job.weight, 3);
  EXPECT_EQ(driver.problem.jobs[1].entity, -1);
  EXPECT_EQ(driver.problem.jobs[1].deadline_s, PolicyJob::kNoDeadline);
  EXPECT_EQ(driver.problem.entities.size(), 2u);
}

TEST(Solve, ADeadlineThatIsNearIsHalfAsFar) {
  EngineDriver driver(1, "fifo");
  JobSpec spec;
  spec.deadline_s = 100;
  driver.now = 5;
  driver.Submit("a", 1, spec);
  driver.now = 25;
  driver.Submit("b");
  EXPECT_EQ(driver.problem.jobs[0].deadline_s, 40);
  driver.now = 115;
  driver.Submit("c");
  EXPECT_EQ(driver.problem.jobs[0].deadline_s, -10);  // missed: unchanged
}

TEST(Solve, ANewPriceAsksThePolicyAgain) {
  EngineDriver driver;
  driver.Submit("a");
  EXPECT_TRUE(driver.problem.cost.empty());
  const int solves = driver.solves;
  driver.Step(event::PricesChanged{{{"v100", 0.74}}});
  EXPECT_EQ(driver.solves, solves + 1);
  EXPECT_THAT(driver.problem.cost, ElementsAre(0.74));
}

TEST(Solve, CountsOnReportsAndOnWhatWasDoneSince) {
  EngineDriver driver(2, "fifo");
  JobSpec spec = App(2);
  spec.steps_total = 1000;
  const JobId job = driver.Submit("a", 1, spec);
  const WorkerKey key = driver.Run(job);
  Progress progress;
  progress.steps_done = 50;
  driver.now = 20;
  driver.Step(
      event::StepsReported{key, driver.worker(job).held_epoch, progress});
  driver.now = 30;
  driver.Submit("b");
  EXPECT_DOUBLE_EQ(driver.problem.jobs[0].steps_remaining, 1000 - 50 - 20);
  EXPECT_DOUBLE_EQ(driver.problem.jobs[0].time_received_s, 30);
  EXPECT_DOUBLE_EQ(driver.job(job).isolated_s, 35);
}

TEST(Solve, AMeasuredSpeedIsSolvedForInTheNextRoundOnce) {
  EngineDriver driver(1, "max_min_fairness");
  const JobId job = driver.Submit("a", 1, App(2));
  driver.Run(job);
  const int solves = driver.solves;
  driver.ReportSpeed(job, 40, 60);
  EXPECT_EQ(driver.solves, solves);
  driver.EndRound();
  EXPECT_EQ(driver.solves, solves + 1);
  EXPECT_GT(driver.problem.throughputs[0], 30);
  driver.EndRound();
  EXPECT_EQ(driver.solves, solves + 1);
}

TEST(Solve, AtMostOncePerResetInterval) {
  EngineDriver driver(2, "max_min_fairness",
                      [](EngineOptions& o) { o.reset_interval_s = 60; });
  driver.Submit("a");
  EXPECT_EQ(driver.solves, 1);
  driver.At(10);
  const JobId late = driver.Submit("b");
  EXPECT_EQ(driver.solves, 1);
  // The job is in no allocation yet, but still takes the idle accelerator.
  EXPECT_FALSE(driver.job(late).assigned.empty());
  driver.At(61);
  EXPECT_EQ(driver.solves, 2);
}

TEST(Solve, ChoosesForEachRoundWhatIsChosenForOneLease) {
  EngineDriver driver(1);
  size_t turn = 0;
  driver.answer = [&](const PolicyProblem& problem) {
    PolicyResult result;
    result.outcome = SolveOutcome::kOptimal;
    result.is_assignment = true;
    result.each_round = true;
    const size_t who = turn++ % problem.jobs.size();
    result.assignment = {{{problem.jobs[who].id, JobId()}, 0}};
    return result;
  };
  driver.Submit("a");
  driver.Submit("b");
  const int solves = driver.solves;
  driver.At(driver.engine().round_ends_at() + 1);
  EXPECT_EQ(driver.solves, solves + 1);
  driver.At(driver.engine().round_ends_at() + 1);
  EXPECT_EQ(driver.solves, solves + 2);
}

// 100 jobs that come within the gap after a solve share the next one.
TEST(Solve, ABurstOfSubmissionsSharesSolves) {
  EngineDriver driver(1, "fifo",
                      [](EngineOptions& o) { o.solve_gap_s_per_job = 0.01; });
  driver.Submit("first");
  EXPECT_EQ(driver.solves, 1);  // at once
  for (int i = 0; i < 100; ++i) driver.Submit(StrCat("job-", i));
  EXPECT_EQ(driver.solves, 1);
  driver.At(driver.now + 2);
  EXPECT_EQ(driver.solves, 2);
  EXPECT_EQ(driver.problem.jobs.size(), 101u);
}

TEST(Solve, AJobThatHasEndedKeepsNoProgram) {
  EngineDriver driver(1);
  JobSpec spec;
  spec.environment = {{"KEY", std::string(1000, 'x')}};
  const JobId ended = driver.Submit("a", 1, spec);
  const JobId held = driver.Submit("b", 1, spec);
  driver.Gone(driver.Run(ended), 0);
  EXPECT_TRUE(driver.job(ended).spec.argv.empty());
  EXPECT_TRUE(driver.job(ended).spec.environment.empty());
  EXPECT_EQ(driver.job(ended).spec.name, "a");
  EXPECT_FALSE(driver.job(held).spec.environment.empty());
}

TEST(Solve, DeadlinesThatCannotBeMetStillGiveAnAllocation) {
  EngineDriver driver;
  driver.answer = [](const PolicyProblem& problem) {
    PolicyResult result;
    result.outcome = SolveOutcome::kInfeasible;
    result.detail = "infeasible: job 1";
    result.allocation =
        Allocation::FromRows({{problem.jobs[0].id, JobId()}}, 1, {1.0});
    return result;
  };
  const JobId job = driver.Submit("a");
  EXPECT_FALSE(driver.job(job).assigned.empty());
  EXPECT_EQ(driver.engine().allocation().detail, "infeasible: job 1");
}

TEST(Solve, ForgetsJobsThatEndedLongAgo) {
  EngineDriver driver(1, "fifo",
                      [](EngineOptions& o) { o.ended_jobs_kept = 2; });
  for (int i = 0; i < 5; ++i) {
    const JobId job = driver.Submit(StrCat("job", i));
    driver.Gone(driver.Run(job), 0);
  }
  ASSERT_EQ(driver.engine().jobs().size(), 2u);
  EXPECT_EQ(driver.engine().jobs().begin()->first, JobId(4));
  driver.Restart();
  EXPECT_EQ(driver.engine().jobs().size(), 2u);
  EXPECT_EQ(driver.Submit("next"), JobId(6));
}

TEST(Snapshot, GivesTheSameEngineAgain) {
  EngineDriver driver(2, "max_min_fairness");
  const JobId a = driver.Submit("a");
  driver.Submit("b");
  driver.Submit("c");
  driver.Run(a);
  driver.At(150);
  const Engine other = driver.Restored();
  EXPECT_EQ(*other.Snapshot(), *driver.engine().Snapshot());
  EXPECT_EQ(other.NextDeadline(), driver.engine().NextDeadline());
  EXPECT_EQ(RenderReason(other.Why(a, 150)), driver.Why(a));
}

// ---- losses

Progress At(uint64_t steps, double loss) {
  Progress progress;
  progress.steps_done = steps;
  progress.scalars = {{"accuracy", 0.5}, {"loss", loss}};
  return progress;
}

TEST(Losses, OfReportsAndLeaseEndsReachThePolicy) {
  EngineDriver driver(1, "slaq");
  const JobId silent = driver.Submit("silent");
  driver.Gone(driver.Run(silent), 0);
  const JobId job = driver.Submit("job");
  const WorkerKey key = driver.Run(job);
  driver.Step(
      event::StepsReported{key, driver.worker(job).held_epoch, At(10, 3)});
  driver.Step(event::StepsReported{key, driver.worker(job).held_epoch,
                                   At(20, std::nan(""))});
  driver.GiveBack(key, At(30, 2));
  const auto check = [&] {
    driver.Submit("other");
    ASSERT_THAT(driver.problem.losses, SizeIs(2));
    EXPECT_EQ(driver.problem.losses[0].steps, 10);
    EXPECT_EQ(driver.problem.losses[0].loss, 3);
    EXPECT_EQ(driver.problem.losses[1].steps, 30);
    EXPECT_EQ(driver.problem.losses[1].loss, 2);
    EXPECT_EQ(driver.problem.jobs[driver.problem.losses[0].job].id, job);
  };
  check();
  // The journal and a snapshot have them.
  EXPECT_EQ(driver.Restored().FindJob(job)->losses.points(),
            driver.job(job).losses.points());
  driver.Restart();
  check();
}

TEST(Losses, AreThinnedEvenlyAndKeepBothEnds) {
  LossHistory history;
  for (uint64_t steps = 1; steps <= 100'000; ++steps) {
    history.Add(steps, 1.0 / static_cast<double>(steps));
    ASSERT_LE(history.points().size(), LossHistory::kPointsMax);
    ASSERT_EQ(history.points().front().first, 1);
    ASSERT_EQ(history.points().back().first, steps);
  }
  const auto& points = history.points();
  ASSERT_GE(points.size(), LossHistory::kPointsMax / 2);
  for (size_t i = 2; i + 1 < points.size(); ++i) {
    EXPECT_LT(points[i].first - points[i - 1].first, 15'000);
    EXPECT_EQ(points[i].second, 1.0 / static_cast<double>(points[i].first));
  }
}

TEST(Losses, OfALostProcessAreDropped) {
  LossHistory history;
  for (const uint64_t steps : {10, 20, 30, 40}) history.Add(steps, 1);
  history.Add(25, 7);
  EXPECT_THAT(history.points(), ElementsAre(std::pair(10, 1), std::pair(20, 1),
                                            std::pair(25, 7)));
}

TEST(Snapshot, DamagedOnesAreRefused) {
  EngineDriver driver;
  driver.Submit("a");
  const std::string good = *driver.engine().Snapshot();
  for (size_t size = 0; size < good.size(); ++size) {
    Engine other(driver.engine().options());
    EXPECT_FALSE(other.Restore(good.substr(0, size)).ok()) << size;
  }
}

TEST(Snapshot, WaitsForTheDisk) {
  EngineDriver driver;
  driver.hold_disk = true;
  driver.Submit("a");
  EXPECT_FALSE(driver.engine().Snapshot().ok());
}

}  // namespace
}  // namespace gavel
