#include "study/simulation_run.h"

#include <cmath>

#include "study/simulation_store.h"
#include "tests/study/fake_simulation.h"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {

using namespace study;
namespace {

class SimulationRunTest : public ::testing::Test {
 protected:
  // 400 jobs of an hour each, at `rate_per_h`, on a cluster that serves 4.
  Watched Run(double rate_per_h, const RunControl& control = {}) {
    SimulationSpec spec;
    spec.cluster = "v100:4";
    spec.throughputs = WriteSampleThroughputs(folder_.path());
    spec.jobs = 400;
    spec.rate_per_h = rate_per_h;
    spec.fixed_duration_s = 3600;
    spec.time_limit_s = time_limit_s_;
    spec.window_begin = window_begin_;
    SimulationInputCache cache;
    auto inputs = cache.Load(spec);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    inputs->options.record_rounds = true;
    return RunSimulation(*inputs, FakeSimulations(fake_), control);
  }

  TemporaryFolder folder_;
  FakeSimulationOptions fake_;
  double time_limit_s_ = 0;
  uint64_t window_begin_ = 0;
};

TEST_F(SimulationRunTest, AllJobsEnd) {
  const Watched watched = Run(2);
  EXPECT_TRUE(watched.started);
  EXPECT_EQ(watched.run.status, RunStatus::kOk);
  EXPECT_TRUE(watched.run.result.complete);
  EXPECT_EQ(watched.run.result.jobs.size(), 400);
  EXPECT_GT(watched.run.wall_s, 0);
  EXPECT_TRUE(IsSustainable(watched.run));
  EXPECT_NEAR(watched.run.stretch_second, watched.run.stretch_first, 0.3);
}

TEST_F(SimulationRunTest, AboveCapacityTheSecondHalfTakesLonger) {
  const Watched watched = Run(6);
  EXPECT_EQ(watched.run.status, RunStatus::kOk);
  EXPECT_GT(watched.run.stretch_second, 2 * watched.run.stretch_first);
  EXPECT_FALSE(IsSustainable(watched.run));
}

TEST_F(SimulationRunTest, WhatCannotDrainIsGivenUpEarly) {
  RunControl control;
  control.jct_limit_s = 5 * 3600;
  const Watched watched = Run(8, control);
  EXPECT_EQ(watched.run.status, RunStatus::kCannotDrain);
  EXPECT_THAT(watched.run.detail, HasSubstr("the queue grows"));
  EXPECT_FALSE(watched.run.result.complete);
  EXPECT_FALSE(IsSustainable(watched.run));
  // 400 jobs at 4 an hour would take 100 h.
  EXPECT_LT(watched.run.result.makespan_s, 60 * 3600);
}

TEST_F(SimulationRunTest, AHighButSteadyJctIsNoReasonToGiveUp) {
  RunControl control;
  control.jct_limit_s = 60;  // below what each job takes
  EXPECT_EQ(Run(2, control).run.status, RunStatus::kOk);
}

TEST_F(SimulationRunTest, TheSimulatedTimeLimitCountsAsCannotDrain) {
  time_limit_s_ = 10 * 3600;
  const Watched watched = Run(2);
  EXPECT_EQ(watched.run.status, RunStatus::kCannotDrain);
  EXPECT_THAT(watched.run.detail, HasSubstr("time limit"));
  EXPECT_TRUE(std::isnan(watched.run.stretch_second));
}

TEST_F(SimulationRunTest, ItStopsWhenAsked) {
  RunControl control;
  double last = -1;
  control.goes_on = [&](double fraction, Time) {
    EXPECT_GE(fraction, last);
    EXPECT_LE(fraction, 1);
    last = fraction;
    return fraction < 0.3;
  };
  const Watched watched = Run(2, control);
  EXPECT_TRUE(watched.stopped);
  EXPECT_FALSE(watched.run.result.complete);
  EXPECT_GT(last, 0.3);
}

TEST_F(SimulationRunTest, StoppedItIsSavedAndGoesOnFromThere) {
  std::string saved;
  RunControl control;
  control.goes_on = [](double fraction, Time) { return fraction < 0.5; };
  control.save = [&](const std::string& bytes) {
    saved = bytes;
    return absl::OkStatus();
  };
  const Watched stopped = Run(2, control);
  EXPECT_TRUE(stopped.stopped);
  ASSERT_FALSE(saved.empty());
  control.goes_on = nullptr;
  control.resumed = saved;
  const Watched rest = Run(2, control);
  const Watched whole = Run(2);
  EXPECT_EQ(rest.run.status, RunStatus::kOk);
  EXPECT_EQ(rest.run.result.avg_jct_s, whole.run.result.avg_jct_s);
  control.resumed = "no checkpoint";
  const Watched damaged = Run(2, control);
  EXPECT_FALSE(damaged.started);
  EXPECT_EQ(damaged.run.detail, "damaged");
}

TEST_F(SimulationRunTest, ASaveThatFailsEndsTheRun) {
  RunControl control;
  control.save_every_s = 0;
  control.save = [](const std::string&) {
    return absl::PermissionDeniedError("disk full");
  };
  fake_.time_step_s = 1;
  const Watched watched = Run(2, control);
  EXPECT_EQ(watched.run.status, RunStatus::kError);
  EXPECT_EQ(watched.run.detail, "disk full");
}

TEST_F(SimulationRunTest, AWallClockLimitIsATimeout) {
  fake_.time_step_s = 1e-3;  // would take for ever
  RunControl control;
  control.wall_limit_s = 0.02;
  const Watched watched = Run(2, control);
  EXPECT_EQ(watched.run.status, RunStatus::kTimeout);
  EXPECT_THAT(watched.run.detail, HasSubstr("0.02 s"));
}

TEST_F(SimulationRunTest, WhatCannotStartSaysWhy) {
  fake_.error = "no throughput for job type A3C";
  const Watched watched = Run(2);
  EXPECT_FALSE(watched.started);
  EXPECT_EQ(watched.run.status, RunStatus::kError);
  EXPECT_EQ(watched.run.detail, fake_.error);
}

TEST(IsSustainable, SmallGrowthAndShortWaitsAreFine) {
  SimulationRun run;
  run.status = RunStatus::kOk;
  struct Case {
    double first;
    double second;
    bool sustainable;
  };
  for (const Case& one : {Case{3, 3.5, true}, Case{3, 3.7, false},
                          Case{1.1, 1.9, true}, Case{1.1, 2.1, false}}) {
    run.stretch_first = one.first;
    run.stretch_second = one.second;
    EXPECT_EQ(IsSustainable(run), one.sustainable) << one.second;
  }
  run.stretch_second = 1;
  run.status = RunStatus::kCannotDrain;
  EXPECT_FALSE(IsSustainable(run));
}

TEST(IsSustainable, NoRateAboveTheCapacityIs) {
  SimulationRun run;
  run.status = RunStatus::kOk;
  run.stretch_first = run.stretch_second = 1.1;
  run.offered_load = 0.99;
  EXPECT_TRUE(IsSustainable(run));
  run.offered_load = 1.01;
  EXPECT_FALSE(IsSustainable(run));
}

// Growth that began with the first job looks small within a late window.
TEST(IsSustainable, WaitingJobsThatGrowFromTheBeginningAreNotSustained) {
  SimulationRun run;
  run.status = RunStatus::kOk;
  run.stretch_first = 10;
  run.stretch_second = 11;
  run.waiting_first = 20;
  run.waiting_second = 60;  // in proportion to time
  EXPECT_FALSE(IsSustainable(run));
  run.waiting_second = 36;  // by its square root
  EXPECT_TRUE(IsSustainable(run));
  run.waiting_second = 60;
  run.stretch_second = 1.9;  // nobody waits for long
  EXPECT_TRUE(IsSustainable(run));
}

TEST_F(SimulationRunTest, ALateWindowShowsTheGrowthThatBeganBeforeIt) {
  window_begin_ = 320;
  fake_.capacity_per_h = 3;  // below what the linear program says
  const Watched growing = Run(3.9);
  EXPECT_EQ(growing.run.status, RunStatus::kOk);
  EXPECT_LT(growing.run.offered_load, 1);
  EXPECT_LT(growing.run.stretch_second, 1.2 * growing.run.stretch_first);
  EXPECT_GT(growing.run.waiting_second, 2.2 * growing.run.waiting_first);
  EXPECT_FALSE(IsSustainable(growing.run));
}

TEST_F(SimulationRunTest, TheOfferedLoadIsOfTheMostThatTheClusterCanDo) {
  // Four accelerators do four jobs of an hour.
  EXPECT_NEAR(Run(3).run.offered_load, 0.75, 1e-6);
  EXPECT_NEAR(Run(6).run.offered_load, 1.5, 1e-6);
}

TEST(RunStatusNames, ReadBack) {
  for (const RunStatus status : {RunStatus::kOk, RunStatus::kCannotDrain,
                                 RunStatus::kError, RunStatus::kTimeout}) {
    EXPECT_EQ(FindRunStatus(RunStatusName(status)), status);
  }
  EXPECT_EQ(FindRunStatus("whatever"), RunStatus::kError);
}

TEST(ThinUsage, KeepsTheTimeWeightedMean) {
  std::vector<UsageSample> usage;
  double area = 0;
  for (int i = 0; i < 5000; ++i) {
    const double busy = i % 3 == 0 ? 1 : 0.25;
    const double until = i + (i % 2 == 0 ? 0.5 : 0);
    usage.push_back({until, {busy}, static_cast<double>(i)});
  }
  for (size_t i = 0; i + 1 < usage.size(); ++i) {
    area += usage[i].busy[0] * (usage[i + 1].time_s - usage[i].time_s);
  }
  const std::vector<UsageSample> thin = ThinUsage(usage, 100);
  EXPECT_LE(thin.size(), 101);
  EXPECT_GE(thin.size(), 90);
  EXPECT_EQ(thin.front().time_s, usage.front().time_s);
  double thin_area = 0;
  for (size_t i = 0; i < thin.size(); ++i) {
    const double ends =
        i + 1 < thin.size() ? thin[i + 1].time_s : usage.back().time_s;
    thin_area += thin[i].busy[0] * (ends - thin[i].time_s);
  }
  EXPECT_NEAR(thin_area, area, 1e-6 * area);
  EXPECT_EQ(ThinUsage(usage, 10'000).size(), usage.size());
}

}  // namespace
}  // namespace gavel::testing
