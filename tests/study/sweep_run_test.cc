#include <atomic>

#include "study/sweep.h"
#include "tests/study/fake_simulation.h"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {

using namespace study;
namespace {

class SweepRunTest : public ::testing::Test {
 protected:
  SweepRunTest() {
    base_.cluster = "v100:4";
    base_.throughputs = WriteSampleThroughputs(folder_.path());
    base_.jobs = 200;
    base_.rate_per_h = 2;
    base_.fixed_duration_s = 3600;
  }

  SimulationStore OpenStore() {
    auto store = SimulationStore::Open(folder_.path() + "/results.db");
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  // With simulations that are counted.
  absl::StatusOr<SweepOutcome> Run(
      const SweepSpec& spec, SimulationStore& store,
      const SweepOptions& options = {},
      const std::function<void(Sweep&, const SweepProgress&)>& look = {}) {
    Sweep sweep(spec, options, store, inputs_,
                [this](SimulationOptions asked, const Trace& trace,
                       const ThroughputTable& table) {
                  ++simulations_;
                  return FakeSimulations(fake_)(std::move(asked), trace, table);
                });
    return sweep.Run([&](const SweepProgress& progress) {
      EXPECT_LE(progress.done, progress.runs);
      if (look) look(sweep, progress);
    });
  }

  SweepSpec OfSeeds(int count) {
    SweepSpec spec;
    for (int seed = 0; seed < count; ++seed) {
      spec.runs.push_back(base_);
      spec.runs.back().seed = static_cast<uint64_t>(seed);
    }
    return spec;
  }

  TemporaryFolder folder_;
  SimulationSpec base_;
  FakeSimulationOptions fake_;
  SimulationInputCache inputs_;
  std::atomic<int> simulations_ = 0;
};

TEST_F(SweepRunTest, AllRunsAreKeptWithTheirJobs) {
  SimulationStore store = OpenStore();
  ASSERT_OK_AND_ASSIGN(const SweepOutcome outcome,
                       Run(OfSeeds(5), store, {.threads = 3}));
  EXPECT_FALSE(outcome.stopped);
  ASSERT_EQ(outcome.runs.size(), 5);
  EXPECT_EQ(outcome.runs[3].spec.seed, 3);  // in the sweep's order
  ASSERT_OK_AND_ASSIGN(const auto runs, store.Runs());
  ASSERT_EQ(runs.size(), 5);
  ASSERT_OK_AND_ASSIGN(const auto jobs, store.Jobs(runs[0].id));
  EXPECT_EQ(jobs.size(), 200);
  ASSERT_OK_AND_ASSIGN(const auto usage, store.Usage(runs[0].id));
  EXPECT_FALSE(usage.empty());
  ASSERT_OK_AND_ASSIGN(const auto leases, store.RunsWithLeases());
  EXPECT_TRUE(leases.empty());  // record = "usage"
}

TEST_F(SweepRunTest, WhatIsKnownIsNotRunAgain) {
  SimulationStore store = OpenStore();
  ASSERT_OK(Run(OfSeeds(3), store));
  EXPECT_EQ(simulations_, 3);
  size_t skipped = 0;
  ASSERT_OK_AND_ASSIGN(
      const SweepOutcome outcome,
      Run(OfSeeds(5), store, {}, [&](Sweep&, const SweepProgress& progress) {
        skipped = progress.skipped;
        EXPECT_EQ(progress.runs, 2);
      }));
  EXPECT_EQ(skipped, 3);
  EXPECT_EQ(simulations_, 5);
  EXPECT_EQ(outcome.runs.size(), 5);
}

TEST_F(SweepRunTest, EqualRunsAreRunOnce) {
  SimulationStore store = OpenStore();
  SweepSpec spec = OfSeeds(2);
  spec.runs.push_back(spec.runs.front());
  ASSERT_OK(Run(spec, store));
  EXPECT_EQ(simulations_, 2);
}

TEST_F(SweepRunTest, StoppedItKeepsWhatHasEndedAndGoesOnLater) {
  SimulationStore store = OpenStore();
  SweepOptions options;
  ASSERT_OK_AND_ASSIGN(const SweepOutcome first,
                       Run(OfSeeds(4), store, options));
  EXPECT_EQ(first.runs.size(), 4);
  fake_.time_step_s = 1e-4;  // the next ones never end
  SweepSpec more = OfSeeds(8);
  ASSERT_OK_AND_ASSIGN(const SweepOutcome stopped,
                       Run(more, store, {.threads = 2},
                           [](Sweep& sweep, const SweepProgress& progress) {
                             EXPECT_EQ(progress.skipped, 4);
                             if (!progress.active.empty()) sweep.Stop();
                           }));
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.runs.size(), 4);  // no half of a run
  fake_.time_step_s = 3600;
  simulations_ = 0;
  ASSERT_OK_AND_ASSIGN(const SweepOutcome last, Run(more, store));
  EXPECT_EQ(last.runs.size(), 8);
  EXPECT_EQ(simulations_, 4);
}

TEST_F(SweepRunTest, StoppedWhenAllIsDoneItIsDone) {
  SimulationStore store = OpenStore();
  bool was_stopped = false;
  ASSERT_OK_AND_ASSIGN(const SweepOutcome outcome,
                       Run(OfSeeds(4), store, {.threads = 2},
                           [&](Sweep& sweep, const SweepProgress& progress) {
                             if (progress.done < 4) return;
                             sweep.Stop();
                             was_stopped = true;
                           }));
  EXPECT_TRUE(was_stopped);
  EXPECT_FALSE(outcome.stopped);
  EXPECT_EQ(outcome.runs.size(), 4);
}

TEST_F(SweepRunTest, AnErrorIsOneOfTheResultsAndRetryRunsItAgain) {
  SimulationStore store = OpenStore();
  fake_.error = "solver broke down";
  ASSERT_OK_AND_ASSIGN(const SweepOutcome failed, Run(OfSeeds(2), store));
  ASSERT_EQ(failed.runs.size(), 2);
  EXPECT_EQ(failed.runs[0].run.status, RunStatus::kError);
  EXPECT_EQ(failed.runs[0].run.detail, "solver broke down");
  fake_.error.clear();
  ASSERT_OK(Run(OfSeeds(2), store));
  EXPECT_EQ(simulations_, 2);  // known, though in error
  ASSERT_OK_AND_ASSIGN(const SweepOutcome again,
                       Run(OfSeeds(2), store, {.retry = true}));
  EXPECT_EQ(simulations_, 4);
  EXPECT_EQ(again.runs[0].run.status, RunStatus::kOk);
  ASSERT_OK_AND_ASSIGN(const auto runs, store.Runs());
  EXPECT_EQ(runs.size(), 2);
}

TEST_F(SweepRunTest, ABadInputOfOneRunDoesNotEndTheOthers) {
  SimulationStore store = OpenStore();
  SweepSpec spec = OfSeeds(2);
  spec.runs[0].cluster = "v100:many";
  ASSERT_OK_AND_ASSIGN(const SweepOutcome outcome, Run(spec, store));
  EXPECT_EQ(outcome.runs[0].run.status, RunStatus::kError);
  EXPECT_THAT(outcome.runs[0].run.detail, HasSubstr("many"));
  EXPECT_EQ(outcome.runs[1].run.status, RunStatus::kOk);
}

TEST_F(SweepRunTest, AMissingFileIsToldAtOnce) {
  SimulationStore store = OpenStore();
  SweepSpec spec = OfSeeds(2);
  spec.runs[1].throughputs = "/none.json";
  EXPECT_THAT(Run(spec, store),
              StatusIs(absl::StatusCode::kNotFound, "/none.json"));
  EXPECT_EQ(simulations_, 0);
}

TEST_F(SweepRunTest, ASearchFindsTheHighestRateAndKeepsItsTries) {
  SimulationStore store = OpenStore();
  SweepSpec spec = OfSeeds(2);
  for (SimulationSpec& run : spec.runs) {
    run.rate_per_h = 0;
    run.jobs = 2000;
  }
  spec.search = SweepSearch{
      .rate_min = 1, .rate_max = 9, .precision = 0.5, .growth_max = 2};
  spec.jct_limit_s = 40 * 3600;
  ASSERT_OK_AND_ASSIGN(const SweepOutcome outcome,
                       Run(spec, store, {.threads = 2}));
  ASSERT_EQ(outcome.searches.size(), 2);
  for (const SearchAnswer& answer : outcome.searches) {
    EXPECT_GE(answer.rate_per_h, 3);  // the fake cluster serves 4
    EXPECT_LE(answer.rate_per_h, 4.5);
    EXPECT_FALSE(answer.at_upper_end);
  }
  ASSERT_OK_AND_ASSIGN(const auto tries, store.Runs());
  // Those above the capacity, which is 4, are not simulated.
  EXPECT_GE(tries.size(), 6);
  simulations_ = 0;
  ASSERT_OK_AND_ASSIGN(const SweepOutcome again, Run(spec, store));
  EXPECT_EQ(simulations_, 0);  // all tries were known
  EXPECT_EQ(again.searches.size(), 2);
  const std::string table = RenderOutcome(again, 100);
  EXPECT_THAT(table, HasSubstr("HIGHEST JOBS/H"));
}

TEST_F(SweepRunTest, ASearchTriesNoRateAboveTheCapacityAndTellsIt) {
  SimulationStore store = OpenStore();
  SweepSpec spec = OfSeeds(1);
  spec.runs[0].rate_per_h = 0;
  fake_.capacity_per_h = 1000;  // no simulation finds anything wrong
  spec.search = SweepSearch{.rate_min = 1, .rate_max = 9, .precision = 0.5};
  ASSERT_OK_AND_ASSIGN(const SweepOutcome outcome, Run(spec, store));
  ASSERT_EQ(outcome.searches.size(), 1);
  EXPECT_EQ(outcome.searches[0].rate_per_h, 4);  // four jobs of an hour
  EXPECT_NEAR(outcome.searches[0].capacity_per_h, 4, 1e-6);
  ASSERT_OK_AND_ASSIGN(const auto tries, store.Runs());
  for (const StoredRun& run : tries) EXPECT_LE(run.spec.rate_per_h, 4);
  const std::string table = RenderOutcome(outcome, 100);
  EXPECT_THAT(table, AllOf(HasSubstr("CAPACITY"), HasSubstr("4.00")));
}

TEST_F(SweepRunTest, TheFinalTablePoolsSeeds) {
  SimulationStore store = OpenStore();
  SweepSpec spec = OfSeeds(3);
  for (SimulationSpec run : OfSeeds(3).runs) {
    run.policy = "fifo";
    spec.runs.push_back(run);
  }
  ASSERT_OK_AND_ASSIGN(const SweepOutcome outcome, Run(spec, store));
  const std::string table = RenderOutcome(outcome, 120);
  EXPECT_EQ(std::ranges::count(table, '\n'), 3);
  EXPECT_THAT(table, HasSubstr("POLICY"));
  EXPECT_THAT(table, Not(HasSubstr("SEED")));
  EXPECT_THAT(table, HasSubstr("fifo "));
  EXPECT_THAT(table, Not(HasSubstr("APP RHO")));
}

TEST(SweepTable, FairnessOfAppsIsAMeanOverSeeds) {
  SweepOutcome outcome;
  for (const uint64_t seed : {0, 1}) {
    StoredRun& run = outcome.runs.emplace_back();
    run.spec.seed = seed;
    run.run.status = RunStatus::kOk;
    run.run.result.median_app_rho = 1;
    run.run.result.max_app_rho = seed == 0 ? 2 : 2.5;
    run.run.result.app_jain_index = 0.75;
  }
  const std::string table = RenderOutcome(outcome, 120);
  EXPECT_THAT(table, AllOf(HasSubstr("MEDIAN APP RHO WORST APP RHO"),
                           HasSubstr("JAIN"), HasSubstr(" 1.000 "),
                           HasSubstr(" 2.250 "), HasSubstr(" 0.750 ")));
}

}  // namespace
}  // namespace gavel::testing
