#include "simulator/trace_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_format.h"
#include "coordinator/workload/price_series.h"
#include "core/text.h"
#include "tests/simulation/world/virtual_cluster.h"
#include "tests/simulator/trace_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(TraceSimulation, AJobAloneTakesItsStepsOverItsThroughput) {
  const SimulationResult result =
      Simulate(SmallOptions("fast:1,slow:1"), SmallTrace({{"a", 1000, 50}}));
  ASSERT_TRUE(result.complete);
  ASSERT_EQ(result.jobs.size(), 1u);
  EXPECT_DOUBLE_EQ(result.jobs[0].jct_s, 250);  // 4 steps/s, at once
  EXPECT_DOUBLE_EQ(result.jobs[0].completion_s, 300);
  EXPECT_DOUBLE_EQ(result.makespan_s, 250);
  EXPECT_DOUBLE_EQ(result.utilization.at("fast"), 1);
  EXPECT_DOUBLE_EQ(result.utilization.at("slow"), 0);
  EXPECT_DOUBLE_EQ(result.cluster_utilization, 0.5);
  EXPECT_EQ(result.preemptions, 0u);
}

TEST(TraceSimulation, AJobWaitsForOthersAndForItsTime) {
  SimulationOptions options = SmallOptions("fast:4", "fifo");
  options.waits.resize(3);
  options.waits[1].after = {0};
  options.waits[2].not_before_s = 200'000;
  const SimulationResult result =
      Simulate(options, SmallTrace({{"a", 1000}, {"a", 1000}, {"a", 1000}}));
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_DOUBLE_EQ(result.jobs[0].completion_s, 250);
  EXPECT_GE(result.jobs[1].started_s, 250);
  EXPECT_LE(result.jobs[1].started_s, 300);
  EXPECT_GE(result.jobs[2].started_s, 200'000);
  EXPECT_LE(result.jobs[2].started_s, 200'100);
}

TEST(TraceSimulation, AJobKeepsToItsServers) {
  SimulationOptions options = SmallOptions("fast:4x2", "fifo");
  options.servers.assign(3, {"fast-1"});
  const SimulationResult result =
      Simulate(options, SmallTrace({{"a", 1000}, {"a", 1000}, {"a", 1000}}));
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_DOUBLE_EQ(result.jobs[0].started_s, 0);
  EXPECT_DOUBLE_EQ(result.jobs[1].started_s, 0);
  EXPECT_GE(result.jobs[2].started_s, 250);
}

TEST(TraceSimulation, ElementsOfAnArrayWaitForTheirTurn) {
  SimulationOptions options = SmallOptions("fast:4", "fifo");
  options.waits.resize(5);
  for (size_t i = 0; i < 4; ++i) {
    options.waits[i].array = 7;
    options.waits[i].at_once = 2;
    options.waits[i].queued = i < 2;
  }
  options.waits[4].after_arrays = {7};
  const SimulationResult result = Simulate(
      options,
      SmallTrace(
          {{"a", 1000}, {"a", 2000}, {"a", 1000}, {"a", 1000}, {"a", 1000}}));
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_DOUBLE_EQ(result.jobs[0].started_s, 0);
  EXPECT_DOUBLE_EQ(result.jobs[1].started_s, 0);
  EXPECT_GE(result.jobs[2].started_s, 250);
  EXPECT_LE(result.jobs[2].started_s, 300);
  EXPECT_GE(result.jobs[3].started_s, 500);
  EXPECT_LE(result.jobs[3].started_s, 600);
  EXPECT_GE(result.jobs[4].started_s, result.jobs[3].completion_s);
  EXPECT_LE(result.jobs[4].started_s, result.jobs[3].completion_s + 100);
}

TEST(TraceSimulation, TwoEqualJobsShareOneAcceleratorByRounds) {
  const SimulationResult result =
      Simulate(SmallOptions("fast:1"), SmallTrace({{"a", 2000}, {"a", 2000}}));
  ASSERT_TRUE(result.complete);
  // Each has 500 s of work, and they take turns of 100 s.
  EXPECT_DOUBLE_EQ(result.jobs[0].jct_s + result.jobs[1].jct_s, 900 + 1000);
  EXPECT_DOUBLE_EQ(result.makespan_s, 1000);
  EXPECT_DOUBLE_EQ(result.cluster_utilization, 1);
  EXPECT_NEAR(result.worst_share, 1, 0.25);
}

TEST(TraceSimulation, AnIdleAcceleratorNeverWaitsForTheRound) {
  const SimulationResult result = Simulate(
      SmallOptions("fast:1"), SmallTrace({{"a", 400, 0}, {"a", 400, 10}}));
  ASSERT_TRUE(result.complete);
  EXPECT_DOUBLE_EQ(result.jobs[1].completion_s, 200);
}

TEST(TraceSimulation, PreemptionsCostWhatIsAsked) {
  SimulationOptions options = SmallOptions("fast:1");
  const Trace trace = SmallTrace({{"a", 2000}, {"a", 2000}});
  const SimulationResult free = Simulate(options, trace);
  options.overheads.all = {.pause_s = 2, .resume_s = 3, .move_s = 7};
  const SimulationResult charged = Simulate(options, trace);
  ASSERT_TRUE(charged.complete);
  EXPECT_GT(charged.preemptions, 0u);
  EXPECT_EQ(charged.moves, 0u);  // there is nowhere else to go
  EXPECT_DOUBLE_EQ(charged.lost_s,
                   5.0 * static_cast<double>(charged.preemptions));
  EXPECT_NEAR(charged.makespan_s, free.makespan_s + charged.lost_s, 1e-6);
}

TEST(TraceSimulation, AStartIsChargedOnce) {
  SimulationOptions options = SmallOptions("fast:1");
  const Trace trace = SmallTrace({{"a", 2000}, {"a", 2000}});
  const SimulationResult free = Simulate(options, trace);
  options.overheads.all = {.start_s = 8};
  const SimulationResult charged = Simulate(options, trace);
  ASSERT_TRUE(charged.complete);
  EXPECT_GT(charged.preemptions, 0u);
  EXPECT_DOUBLE_EQ(charged.lost_s, 16);
  EXPECT_DOUBLE_EQ(charged.jobs[0].lost_s, 8);
  EXPECT_NEAR(charged.makespan_s, free.makespan_s + 16, 1e-6);
}

TEST(TraceSimulation, MovesAreCountedAndCharged) {
  SimulationOptions options = SmallOptions("fast:1,slow:1");
  options.overheads.all = {.pause_s = 0, .resume_s = 0, .move_s = 10};
  const SimulationResult result =
      Simulate(options, SmallTrace({{"a", 4000}, {"b", 4000}}));
  ASSERT_TRUE(result.complete);
  EXPECT_GT(result.moves, 0u);
  EXPECT_DOUBLE_EQ(result.lost_s, 10.0 * static_cast<double>(result.moves));
}

TEST(TraceSimulation, AGangRunsAllTogetherOrNotAtAll) {
  const SimulationResult result =
      Simulate(SmallOptions("fast:2"),
               SmallTrace({{"a", 800, 0, 1}, {"a", 1600, 0, 2}}));
  ASSERT_TRUE(result.complete);
  EXPECT_EQ(result.jobs[1].scale_factor, 2);
  // 200 s on one and 200 s on both accelerators.
  EXPECT_LE(result.makespan_s, 400 + 1e-9);
}

TEST(TraceSimulation, AGangThatIsSpreadIsSlowWhateverThePolicyKnows) {
  const Trace trace = SmallTrace({{"a", 1600, 0, 2}});
  for (const bool ideal : {false, true}) {
    for (const bool sensitive : {false, true}) {
      const auto makespan_s = [&](std::string_view cluster) {
        SimulationOptions options = SmallOptions(cluster);
        options.ideal = ideal;
        options.engine.placement_sensitive = sensitive;
        return Simulate(options, trace).makespan_s;
      };
      EXPECT_DOUBLE_EQ(makespan_s("fast:2x1"), 400) << ideal << sensitive;
      EXPECT_DOUBLE_EQ(makespan_s("fast:2x2"), 200) << ideal << sensitive;
      // If the cluster has no servers, they make no difference.
      EXPECT_DOUBLE_EQ(makespan_s("fast:2"), 200) << ideal << sensitive;
    }
  }
}

TEST(TraceSimulation, AJobThatFitsNowhereIsReportedAndTheRestGoesOn) {
  const SimulationResult result = Simulate(
      SmallOptions("fast:1"), SmallTrace({{"a", 400, 0, 2}, {"a", 400, 0, 1}}));
  EXPECT_TRUE(result.complete);
  ASSERT_EQ(result.unfit.size(), 1u);
  EXPECT_EQ(result.unfit[0].job, 0u);
  EXPECT_THAT(result.unfit[0].reason, HasSubstr("scale factor 2"));
  ASSERT_EQ(result.jobs.size(), 1u);
  EXPECT_DOUBLE_EQ(result.jobs[0].jct_s, 100);
}

TEST(TraceSimulation, CostIsPriceTimesTimeHeld) {
  SimulationOptions options = SmallOptions("fast:1");
  const auto prices = PriceSeries::Parse(
      "time_s,type,price\n0,fast,3.6\n100,fast,7.2\n", "prices");
  ASSERT_TRUE(prices.ok()) << prices.status().message();
  options.prices = *prices;
  const SimulationResult result =
      Simulate(options, SmallTrace({{"a", 800, 0}, {"a", 400, 1000}}));
  ASSERT_TRUE(result.complete);
  // 100 s at 3.6 per hour, then 100 s and 100 s at 7.2: no charge for the gap.
  EXPECT_NEAR(result.total_cost, 0.1 + 0.2 + 0.2, 1e-9);
  EXPECT_NEAR(result.jobs[0].cost, 0.3, 1e-9);
}

TEST(TraceSimulation, WhatAJobHoldsWhileItPausesAndResumesIsPaidFor) {
  SimulationOptions options = SmallOptions("fast:1");
  options.prices = *PriceSeries::Constant("fast=36");  // 0.01 a second
  options.overheads.all = {.pause_s = 2, .resume_s = 3, .start_s = 5};
  const SimulationResult result =
      Simulate(options, SmallTrace({{"a", 2000}, {"a", 2000}}));
  ASSERT_TRUE(result.complete);
  ASSERT_GT(result.preemptions, 0u);
  // The accelerator is never idle.
  EXPECT_NEAR(result.total_cost, 0.01 * result.makespan_s, 1e-9);
  double run_s = 0;
  for (const SimulatedJob& job : result.jobs) {
    EXPECT_NEAR(job.cost, 0.01 * job.run_s, 1e-9);
    EXPECT_NEAR(job.run_s, 500 + job.lost_s, 1e-9);
    run_s += job.run_s;
  }
  EXPECT_NEAR(run_s, result.makespan_s, 1e-9);
}

TEST(TraceSimulation, AViolatedDeadlineIsCountedInItsOwnUnits) {
  SmallJob met{"a", 400, 5000};
  met.slo = 1.2;
  met.duration_s = 100;
  SmallJob missed{"a", 4000, 5000};
  missed.slo = 1.2;
  missed.duration_s = 100;  // it takes 1000
  const SimulationResult result =
      Simulate(SmallOptions("fast:2"), SmallTrace({met, missed}));
  ASSERT_TRUE(result.complete);
  EXPECT_EQ(result.slo_jobs, 2u);
  EXPECT_EQ(result.slo_violations, 1u);
  EXPECT_DOUBLE_EQ(result.jobs[0].deadline_s, 5120);
}

// A job that had only the share that its deadline requires would end after it,
// because rounds realise a share only to within their length.
TEST(TraceSimulation, RoundsKeepTheDeadlinesThatThePolicyKeeps) {
  SimulationOptions options = SmallOptions(
      "fast:2,slow:2", "max_sum_throughput_normalized_by_cost_perf_SLOs");
  const auto prices = PriceSeries::Parse(
      "time_s,type,price\n0,fast,36\n0,slow,3.6\n", "prices");
  ASSERT_TRUE(prices.ok()) << prices.status().message();
  options.prices = *prices;
  std::vector<SmallJob> jobs;
  for (int i = 0; i < 12; ++i) {
    // A job takes 2,000 s on the fast type and 8,000 s on the cheap one. With
    // both in turn, it meets the deadline of 5,000 s.
    SmallJob& job = jobs.emplace_back(SmallJob{"a", 8000, 2570.0 * i});
    job.duration_s = 2000;
    job.slo = 2.5;
  }
  const SimulationResult result = Simulate(options, SmallTrace(jobs));
  ASSERT_TRUE(result.complete);
  EXPECT_EQ(result.slo_jobs, 12u);
  EXPECT_EQ(result.slo_violations, 0u);
  for (const SimulatedJob& job : result.jobs) {
    EXPECT_GT(job.jct_s, 4000) << "it was not worth the fast one's price";
  }
}

TEST(TraceSimulation, OnlyTheWindowCountsAndEndsTheRun) {
  SimulationOptions options = SmallOptions("fast:4");
  options.window_begin = 1;
  options.window_end = 3;
  const SimulationResult result = Simulate(
      options, SmallTrace({{"a", 400}, {"a", 800}, {"a", 1200}, {"a", 1e9}}));
  EXPECT_TRUE(result.complete);
  ASSERT_EQ(result.jobs.size(), 2u);
  EXPECT_EQ(result.jobs[0].job, 1u);
  EXPECT_DOUBLE_EQ(result.avg_jct_s, 250);
  EXPECT_DOUBLE_EQ(result.p50_jct_s, 250);
}

TEST(TraceSimulation, TheTimeLimitEndsARunUnfinished) {
  SimulationOptions options = SmallOptions("fast:1");
  options.time_limit_s = 50;
  const SimulationResult result = Simulate(options, SmallTrace({{"a", 1e6}}));
  EXPECT_FALSE(result.complete);
  EXPECT_THAT(result.stopped, HasSubstr("time limit of 50"));
  EXPECT_TRUE(std::isnan(result.avg_jct_s));
  EXPECT_EQ(result.jobs[0].completion_s, kNever);
}

TEST(TraceSimulation, FailuresCostTheWorkSinceTheLastGeneration) {
  SimulationOptions options = SmallOptions("fast:1");
  options.failures_per_hour = 20;
  options.checkpoint_interval_s = 50;
  options.seed = 3;
  const SimulationResult result = Simulate(options, SmallTrace({{"a", 8000}}));
  ASSERT_TRUE(result.complete);
  EXPECT_GT(result.failures, 0u);
  EXPECT_GT(result.makespan_s, 2000);
  EXPECT_LE(result.makespan_s,
            2000 + 50.0 * static_cast<double>(result.failures));
}

TEST(TraceSimulation, TheIdealSharesWithoutRounds) {
  SimulationOptions options = SmallOptions("fast:1");
  options.ideal = true;
  const SimulationResult result =
      Simulate(options, SmallTrace({{"a", 2000}, {"a", 1000}}));
  ASSERT_TRUE(result.complete);
  EXPECT_NEAR(result.jobs[0].jct_s, 750, 1e-6);
  EXPECT_NEAR(result.jobs[1].jct_s, 500, 1e-6);
}

TEST(TraceSimulation, RoundsComeCloseToTheIdeal) {
  std::vector<SmallJob> jobs;
  for (int i = 0; i < 20; ++i) {
    jobs.push_back({i % 3 == 0 ? "b" : "a", 40000.0 + 5000 * i, 2000.0 * i, 1});
  }
  SimulationOptions options = SmallOptions("fast:2,slow:3");
  options.engine.round_duration_s = 20;
  const SimulationResult rounds = Simulate(options, SmallTrace(jobs));
  options.ideal = true;
  const SimulationResult ideal = Simulate(options, SmallTrace(jobs));
  EXPECT_NEAR(rounds.avg_jct_s / ideal.avg_jct_s, 1, 0.02);
}

// Two equal jobs take turns. The first one ends a round before the second,
// which then has the accelerator to itself.
TEST(TraceSimulation, JobsThatTakeTurnsHaveARhoOfNearlyOne) {
  SimulationOptions options = SmallOptions("fast:1");
  const Trace trace = SmallTrace({{"a", 8000}, {"a", 8000}});
  for (const char* policy :
       {"max_min_fairness_perf", "finish_time_fairness_perf"}) {
    options.policy = policy;
    options.ideal = false;
    const SimulationResult result = Simulate(options, trace);
    ASSERT_TRUE(result.complete);
    const auto [less, more] =
        std::minmax(result.jobs[0].rho, result.jobs[1].rho);
    EXPECT_NEAR(less, 3900.0 / 4000, 1e-9) << policy;
    EXPECT_NEAR(more, 4000.0 / 3900, 1e-9) << policy;
    EXPECT_DOUBLE_EQ(result.rho_above_1, 0.5);
    options.ideal = true;
    const SimulationResult ideal = Simulate(options, trace);
    EXPECT_NEAR(ideal.jobs[0].rho, 1, 1e-9) << policy;
    EXPECT_NEAR(ideal.jobs[1].rho, 1, 1e-9) << policy;
    EXPECT_EQ(ideal.rho_above_1, 0);
  }
}

// Each keeps 3/4 of its speed beside the other.
TEST(TraceSimulation, APackedPairHasTheRhoOfItsSpeed) {
  const SimulationResult result =
      Simulate(SmallOptions("fast:1", "max_min_fairness_packed"),
               SmallTrace({{"a", 4000}, {"a", 4000}}));
  ASSERT_TRUE(result.complete);
  for (const SimulatedJob& job : result.jobs) {
    EXPECT_NEAR(job.rho, 2.0 / 3, 1e-9);
    EXPECT_NEAR(job.rho_static, 2.0 / 3, 1e-9);
    EXPECT_NEAR(job.rho_mean, 2.0 / 3, 1e-9);
  }
}

// A job runs alone for 100 s, in the second half of which another job waits. It
// then runs beside that job for 400 s, at 3/4 of its speed, and alone for 600
// s.
TEST(TraceSimulation, EachStepCountsByThePaceAndTheJobsOfItsTime) {
  const SimulationResult result = Simulate(
      SmallOptions("fast:1", "max_min_fairness_packed"),
      SmallTrace({{"a", 4.0 * (100 + 300 + 600), 0}, {"a", 4 * 300.0, 50}}));
  ASSERT_TRUE(result.complete);
  ASSERT_NEAR(result.jobs[0].jct_s, 1100, 1e-9);
  ASSERT_NEAR(result.jobs[1].jct_s, 450, 1e-9);
  EXPECT_NEAR(result.jobs[0].rho, 1100.0 / (50 + 2 * 50 + 2 * 300 + 600), 1e-9);
  EXPECT_NEAR(result.jobs[1].rho, 450.0 / (2 * 300), 1e-9);
  // The trace has two jobs; both are there for 450 s.
  EXPECT_NEAR(result.jobs[0].rho_static, 1100.0 / 1000 / 2, 1e-9);
  EXPECT_NEAR(result.jobs[0].rho_mean, 1100.0 / 1000 / (1550.0 / 1100), 1e-9);
  EXPECT_NEAR(result.jobs[1].rho_mean, 450.0 / 300 / 2, 1e-9);
}

// Weights 1, 2 and 5 have rhos of 30/17, 25/24 and 8/15 without rounds.
TEST(TraceSimulation, WeightsShowInRho) {
  SimulationOptions options = SmallOptions("fast:1", "max_min_fairness");
  options.engine.round_duration_s = 10;
  const Trace trace = SmallTrace(
      {{"a", 40000, 0, 1, 1}, {"a", 40000, 0, 1, 2}, {"a", 40000, 0, 1, 5}});
  for (const bool ideal : {false, true}) {
    options.ideal = ideal;
    const SimulationResult result = Simulate(options, trace);
    ASSERT_TRUE(result.complete);
    EXPECT_NEAR(result.jobs[0].rho, 30.0 / 17, ideal ? 1e-6 : 0.01);
    EXPECT_NEAR(result.jobs[1].rho, 25.0 / 24, ideal ? 1e-6 : 0.01);
    EXPECT_NEAR(result.jobs[2].rho, 8.0 / 15, ideal ? 1e-6 : 0.01);
  }
}

TEST(TraceSimulation, PackedJobsRunTogether) {
  // Alone in turns they would take 1000 s; together each has 3 steps/s.
  const SimulationResult result =
      Simulate(SmallOptions("fast:1", "max_min_fairness_packed"),
               SmallTrace({{"a", 2000}, {"a", 2000}}));
  ASSERT_TRUE(result.complete);
  EXPECT_NEAR(result.makespan_s, 2000 / 3.0, 1e-6);
  EXPECT_NEAR(result.cluster_utilization, 1, 1e-9);
}

TEST(TraceSimulation, TheSameOptionsGiveTheSameRun) {
  std::vector<SmallJob> jobs;
  for (int i = 0; i < 12; ++i)
    jobs.push_back({"a", 3000.0 + 700 * i, 90.0 * i});
  const auto run = [&] {
    const SimulationResult result =
        Simulate(SmallOptions("fast:2,slow:1"), SmallTrace(jobs));
    std::string text = StrCat(result.rounds, " ", result.preemptions);
    for (const SimulatedJob& job : result.jobs)
      StrAppend(&text, " ", job.jct_s);
    return text;
  };
  EXPECT_EQ(run(), run());
}

TEST(TraceSimulation, RecordsLeasesThatNeverOverlap) {
  SimulationOptions options = SmallOptions("fast:2,slow:1");
  options.record_rounds = true;
  std::vector<SmallJob> jobs;
  for (int i = 0; i < 6; ++i) jobs.push_back({"a", 3000.0 + 500 * i, 50.0 * i});
  const SimulationResult result = Simulate(options, SmallTrace(jobs));
  ASSERT_FALSE(result.leases.empty());
  ASSERT_FALSE(result.usage.empty());
  std::map<uint64_t, Time> free_from;
  for (const RecordedLease& lease : result.leases) {
    EXPECT_GE(lease.from_s, free_from[lease.accelerator] - 1e-9);
    EXPECT_GE(lease.to_s, lease.from_s);
    free_from[lease.accelerator] = lease.to_s;
  }
}

// The trace simulation and the whole system under a perfect network use one
// engine. They differ by milliseconds of messages and boundaries.
TEST(TraceSimulation, AgreesWithTheWholeSystem) {
  std::vector<SmallJob> jobs;
  for (int i = 0; i < 6; ++i) {
    jobs.push_back({i % 2 == 0 ? "a" : "b", 20000.0 + 4000 * i, 1300.0 * i});
  }
  const SimulationOptions options = SmallOptions("fast:2,slow:1");
  const SimulationResult simulated = Simulate(options, SmallTrace(jobs));

  VirtualClusterOptions system_options;
  system_options.engine.round_duration_s = options.engine.round_duration_s;
  system_options.policy = options.policy;
  VirtualCluster system(system_options);
  for (const char* server : {"fast-0", "fast-1", "slow-0"}) {
    AcceleratorInfo info;
    info.type = std::string(server).substr(0, 4);
    info.uuid = StrCat(server, "-0");
    system.AddServer(server, {info});
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    system.RunUntil(jobs[i].arrival_s);
    JobSpec spec;
    spec.name = StrCat("job-", i);
    spec.argv = {"-"};
    spec.steps_total = static_cast<uint64_t>(jobs[i].steps);
    VirtualTraining training;
    training.steps_total = spec.steps_total;
    training.steps_per_s = {{"fast", jobs[i].type == "a" ? 4 : 2}, {"slow", 1}};
    training.start_s = 0.01;
    training.park_s = 0.001;
    training.checkpoint_s = 0.001;
    for (const auto& [type, speed] : training.steps_per_s) {
      spec.throughputs[type] = speed;
    }
    system.Submit(spec, training);
  }
  ASSERT_TRUE(system.RunUntilAllEnded(200'000));
  for (const std::string& broken : system.violations()) ADD_FAILURE() << broken;
  double jct = 0;
  for (const auto& [id, job] : system.engine().jobs()) {
    jct += job.ended_at - job.submitted_at;
  }
  EXPECT_NEAR(jct / 6 / simulated.avg_jct_s, 1, 0.02);
}

TEST(TraceSimulation, ResumesFromACheckpointToTheSameEnd) {
  std::vector<SmallJob> jobs;
  for (int i = 0; i < 15; ++i) {
    jobs.push_back({i % 2 == 0 ? "a" : "b", 3000.0 + 700 * i, 300.0 * i});
  }
  SimulationOptions options = SmallOptions("fast:2,slow:2");
  options.failures_per_hour = 1;
  options.record_rounds = true;
  options.overheads.all = {.pause_s = 3, .resume_s = 2, .move_s = 2};
  const Trace trace = SmallTrace(jobs);
  const SimulationResult straight = Simulate(options, trace);
  for (const uint64_t events : {1, 50, 200}) {
    auto first = TraceSimulation::Create(options, trace, SmallTable());
    ASSERT_TRUE(first.ok());
    ASSERT_FALSE((*first)->Run(events));
    const auto checkpoint = (*first)->Checkpoint();
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto second = TraceSimulation::Create(options, trace, SmallTable());
    ASSERT_TRUE(second.ok());
    ASSERT_TRUE((*second)->Resume(*checkpoint).ok());
    while (!(*second)->Run(1000)) {
    }
    const SimulationResult resumed = (*second)->Result();
    EXPECT_EQ(resumed.avg_jct_s, straight.avg_jct_s) << events;
    EXPECT_EQ(resumed.makespan_s, straight.makespan_s);
    EXPECT_EQ(resumed.preemptions, straight.preemptions);
    EXPECT_EQ(resumed.failures, straight.failures);
    EXPECT_EQ(resumed.lost_s, straight.lost_s);
    EXPECT_EQ(resumed.rounds, straight.rounds);
    EXPECT_EQ(resumed.leases.size(), straight.leases.size());
    EXPECT_EQ(resumed.worst_share, straight.worst_share);
  }
}

// All figures of a result, to the last bit.
std::string Everything(const SimulationResult& result) {
  std::string all =
      StrCat(result.preemptions, " ", result.moves, " ", result.rounds, " ",
             result.solves, " ", result.failures);
  const auto add = [&](double figure) {
    StrAppend(&all, absl::StrFormat(" %a", figure));
  };
  for (const double figure :
       {result.avg_jct_s, result.makespan_s, result.lost_s, result.total_cost,
        result.profiling_s, result.cluster_utilization}) {
    add(figure);
  }
  for (const SimulatedJob& job : result.jobs) {
    StrAppend(&all, "\njob ", job.job, " ", job.preemptions, " ", job.moves);
    for (const double figure :
         {job.arrival_s, job.completion_s, job.jct_s, job.rho, job.rho_static,
          job.rho_mean, job.cost, job.run_s, job.lost_s, job.share_target,
          job.share_received}) {
      add(figure);
    }
  }
  for (const RecordedLease& lease : result.leases) {
    StrAppend(&all, "\nlease ", lease.job, " ", lease.accelerator);
    add(lease.from_s);
    add(lease.to_s);
  }
  return all;
}

struct SavedKind {
  const char* what;
  const char* policy;
  void (*adjust)(SimulationOptions& options, Trace& trace);
};

const SavedKind kSavedKinds[] = {
    {"an assignment", "fifo_perf", [](SimulationOptions&, Trace&) {}},
    {"one for each round", "gandiva", [](SimulationOptions&, Trace&) {}},
    {"servers", "gandiva_reactive", [](SimulationOptions&, Trace&) {}},
    {"trials", "gandiva_reactive",
     [](SimulationOptions& options, Trace&) {
       options.engine.introspection = true;
     }},
    {"shares", "max_min_fairness_perf", [](SimulationOptions&, Trace&) {}},
    {"shares by progress", "finish_time_fairness_perf",
     [](SimulationOptions&, Trace&) {}},
    {"pairs", "max_min_fairness_packed", [](SimulationOptions&, Trace&) {}},
    {"a few allocations", "max_min_fairness_perf",
     [](SimulationOptions& options, Trace&) {
       options.engine.reset_interval_s = 250;
     }},
    {"memory and moves that cost", "max_min_fairness_perf",
     [](SimulationOptions& options, Trace&) {
       options.engine.mechanism = MechanismKind::kMoveAware;
       options.engine.memory_rounds = 3;
     }},
    {"prices", "max_throughput_per_cost",
     [](SimulationOptions& options, Trace&) {
       options.prices = *PriceSeries::Constant("fast=36,slow=9");
     }},
    {"entities", "max_min_fairness_water_filling_perf",
     [](SimulationOptions&, Trace& trace) {
       trace.entities = {{"x", 1, "fifo"}, {"y", 2, "fairness"}};
       for (size_t i = 0; i < trace.jobs.size(); ++i) {
         trace.jobs[i].entity = i % 2;
       }
     }},
    {"elastic jobs", "max_min_fairness_perf",
     [](SimulationOptions&, Trace& trace) {
       for (TraceJob& job : trace.jobs) job.scale_factor_max = 2;
     }},
    {"losses", "slaq", [](SimulationOptions&, Trace&) {}},
    {"losses and sizes", "optimus",
     [](SimulationOptions&, Trace& trace) {
       for (TraceJob& job : trace.jobs) job.scale_factor_max = 2;
     }},
    {"estimates", "max_min_fairness_packed",
     [](SimulationOptions& options, Trace&) {
       options.engine.reference_models = 2;
       options.profiling.part = 0.5;
     }},
};

// The simulation is resumed from after each event: when jobs come, start,
// pause, end or fail, in rounds and between them.
TEST(TraceSimulation, GoesOnFromEveryMomentToTheSameEnd) {
  for (const SavedKind& kind : kSavedKinds) {
    SCOPED_TRACE(kind.what);
    std::vector<SmallJob> jobs;
    for (int i = 0; i < 7; ++i) {
      jobs.push_back({i % 2 == 0 ? "a" : "b", 333.0 + 170 * i, 37.0 * i,
                      i == 3 ? 2 : 1, 1.0 + i % 3});
    }
    SimulationOptions options = SmallOptions("fast:2,slow:1", kind.policy);
    options.failures_per_hour = 3;
    options.checkpoint_interval_s = 20;
    options.record_rounds = true;
    options.overheads.all = {.pause_s = 3, .resume_s = 2, .move_s = 2};
    Trace trace = SmallTrace(jobs);
    kind.adjust(options, trace);
    const std::string straight = Everything(Simulate(options, trace));
    auto first = *TraceSimulation::Create(options, trace, SmallTable());
    int moments = 0;
    for (; !first->Run(1); ++moments) {
      const auto checkpoint = first->Checkpoint();
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      auto second = *TraceSimulation::Create(options, trace, SmallTable());
      ASSERT_TRUE(second->Resume(*checkpoint).ok());
      while (!second->Run(1000)) {
      }
      ASSERT_EQ(Everything(second->Result()), straight)
          << "saved at " << first->now() << " s";
    }
    EXPECT_GT(moments, 30);
  }
}

TEST(TraceSimulation, ADamagedCheckpointIsRefused) {
  const SimulationOptions options = SmallOptions("fast:1");
  const Trace trace = SmallTrace({{"a", 4000}});
  auto simulation = TraceSimulation::Create(options, trace, SmallTable());
  (*simulation)->Run(3);
  const std::string good = *(*simulation)->Checkpoint();
  for (size_t size = 0; size < good.size(); size += 7) {
    auto other = TraceSimulation::Create(options, trace, SmallTable());
    EXPECT_FALSE((*other)->Resume(good.substr(0, size)).ok()) << size;
  }
  const Trace longer = SmallTrace({{"a", 4000}, {"a", 1}});
  auto other = TraceSimulation::Create(options, longer, SmallTable());
  const absl::Status status = (*other)->Resume(good);
  EXPECT_NE(status.message().find("of a simulation of 1 jobs, this one has 2"),
            absl::string_view::npos)
      << status.message();
}

// The share of entity 0 in all accelerator time until the 50th job ends.
double ShareOfFirstEntity(SimulationOptions options, const Trace& trace) {
  options.record_rounds = true;
  const SimulationResult whole = Simulate(options, trace);
  EXPECT_TRUE(whole.complete) << whole.stopped;
  std::vector<double> ends;
  for (const SimulatedJob& job : whole.jobs) ends.push_back(job.completion_s);
  std::sort(ends.begin(), ends.end());
  const double until = ends.at(49);
  std::array<double, 2> held_s = {0, 0};
  if (options.ideal) {
    options.time_limit_s = until;
    for (const SimulatedJob& job : Simulate(options, trace).jobs) {
      held_s[trace.jobs[job.job].entity] += job.run_s;
    }
  }
  for (const RecordedLease& lease : whole.leases) {
    held_s[trace.jobs[lease.job].entity] +=
        std::max(0.0, std::min(until, lease.to_s) - lease.from_s);
  }
  return held_s[0] / (held_s[0] + held_s[1]);
}

struct EntityCase {
  const char* what;
  const char* cluster;
  double weight;           // of entity 0; that of entity 1 is 1
  const char* policy;      // within both
  int long_jobs;           // of entity 0
  double short_s;          // the jobs of entity 1
  double long_s = 20'000;  // those of entity 0
};

const EntityCase kEntityCases[] = {
    {"jobs of a round", "fast:1", 1, "fifo", 1, 100},
    {"jobs of a part of a round", "fast:1", 1, "fifo", 1, 83},
    {"jobs of a few rounds", "fast:1", 1, "fifo", 1, 230},
    {"weights", "fast:1", 2, "fifo", 1, 83},
    {"several accelerators", "fast:3", 1, "fifo", 3, 83},
    {"many jobs that share", "fast:2", 1, "fairness", 2, 83},
    {"many jobs that share, with weights", "fast:4", 3, "fairness", 9, 130},
    {"short jobs of both", "fast:1", 1, "fifo", 150, 50, 150},
};

// The time that an entity had through jobs that have ended is not forgotten.
TEST(TraceSimulation, EntitiesHaveTheSharesThatTheIdealGivesThem) {
  for (const EntityCase& one : kEntityCases) {
    std::vector<SmallJob> jobs;
    for (int i = 0; i < one.long_jobs; ++i)
      jobs.push_back({"a", 4 * one.long_s});
    for (int i = 0; i < 150; ++i) jobs.push_back({"a", 4 * one.short_s});
    Trace trace = SmallTrace(jobs);
    trace.entities = {{"long", one.weight, one.policy},
                      {"short", 1, one.policy}};
    for (size_t i = 0; i < trace.jobs.size(); ++i) {
      trace.jobs[i].entity = i < static_cast<size_t>(one.long_jobs) ? 0 : 1;
    }
    SimulationOptions options =
        SmallOptions(one.cluster, "max_min_fairness_water_filling_perf");
    options.ideal = true;
    const double ideal = ShareOfFirstEntity(options, trace);
    options.ideal = false;
    for (const double memory_rounds : {0, 8}) {
      for (const MechanismKind mechanism :
           {MechanismKind::kGavel, MechanismKind::kMoveAware}) {
        // Debts of many small shares rise slowly, and one large share comes
        // first.
        if (mechanism == MechanismKind::kMoveAware &&
            std::string_view(one.policy) == "fairness") {
          continue;
        }
        options.engine.memory_rounds = memory_rounds;
        options.engine.mechanism = mechanism;
        EXPECT_NEAR(ShareOfFirstEntity(options, trace), ideal, 0.02)
            << one.what << ", memory of " << memory_rounds << " rounds, "
            << MechanismName(mechanism);
      }
    }
  }
}

TEST(TraceSimulation, AnElasticJobStartsWithTheSizeThatFits) {
  Trace trace = SmallTrace({{"a", 8000}});
  trace.jobs[0].scale_factor_max = 2;
  const SimulationResult result = Simulate(SmallOptions("fast:2"), trace);
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_DOUBLE_EQ(result.jobs[0].jct_s, 1000);  // 8 steps/s
  EXPECT_EQ(result.preemptions, 0u);
}

// Job "a" wants the fast accelerators, the second of which is free only when
// the round ends.
TEST(TraceSimulation, NoAcceleratorIsIdleBesideAJobThatFits) {
  for (const char* policy : {"gandiva", "sjf", "allox", "fifo_perf"}) {
    const SimulationResult result = Simulate(
        SmallOptions("fast:2,slow:4", policy), SmallTrace({{"a", 40000, 0},
                                                           {"b", 1, 0.5},
                                                           {"b", 60000, 0.5},
                                                           {"b", 30000, 1}}));
    ASSERT_TRUE(result.complete) << result.stopped;
    EXPECT_LE(result.jobs[1].jct_s, 1 + 1e-9) << policy;
    // AlloX lets a long job wait for a type that is faster for it.
    if (std::string_view(policy) == "allox") continue;
    for (const SimulatedJob& job : result.jobs) {
      EXPECT_NEAR(job.run_s, job.jct_s, 1e-9) << policy << " " << job.job;
    }
  }
}

struct BadInput {
  std::string what;
  SimulationOptions options;
  Trace trace;
  std::string message;
};

// 4 steps/s with one worker, 8 with two.
TEST(TraceSimulation, AnElasticJobGrowsIntoWhatIsIdleAndShrinksForAnother) {
  SimulationOptions options = SmallOptions("fast:2");
  options.record_rounds = true;
  options.overheads.all = {.pause_s = 1, .resume_s = 2, .move_s = 5};
  Trace trace = SmallTrace({{"a", 8000, 0}, {"a", 1200, 550}});
  const SimulationResult rigid = Simulate(options, trace);
  ASSERT_TRUE(rigid.complete);
  EXPECT_DOUBLE_EQ(rigid.jobs[0].jct_s, 2000);
  trace.jobs[0].scale_factor_max = 2;
  const SimulationResult result = Simulate(options, trace);
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_LT(result.jobs[0].jct_s, 1400);
  // The other job waits at most for the end of a round.
  EXPECT_LE(result.jobs[1].completion_s, 550 + 100 + 300 + 10);
  // The job holds both accelerators, leaves one to the other job, and then
  // holds both again.
  std::map<uint64_t, double> held_s;  // by accelerator
  for (const RecordedLease& lease : result.leases) {
    if (lease.job == 0) held_s[lease.accelerator] += lease.to_s - lease.from_s;
  }
  EXPECT_EQ(held_s.size(), 2U);
  EXPECT_GT(result.cluster_utilization, 0.8);
  // Every step was done once: the time for which the job held accelerators is
  // training or loss.
  double accelerator_s = 0;
  for (const auto& [accelerator, seconds] : held_s) accelerator_s += seconds;
  EXPECT_NEAR(accelerator_s, 8000 / 4.0 + result.lost_s, 1e-6);
}

// ---- losses

// The first job needs 20,000 s, and the second one, which comes after 6,500 s,
// 9,000 s. By their losses both end where the first one is half done.
double CompletionOfSecond(const char* policy, double b0) {
  Trace trace = SmallTrace({{"a", 80'000}, {"a", 36'000, 6'500}});
  trace.jobs[0].loss.b0 = b0;
  const SimulationResult result =
      Simulate(SmallOptions("fast:1", policy), trace);
  EXPECT_TRUE(result.complete) << result.stopped;
  EXPECT_NEAR(result.makespan_s, 29'000, 100);
  return result.jobs[1].completion_s;
}

TEST(TraceSimulation, OptimusGoesByTheLossAndNotByTheStepsLeft) {
  EXPECT_NEAR(CompletionOfSecond("srtf", 2 * 99), 15'500, 200);
  // The default curve ends with the steps.
  EXPECT_NEAR(CompletionOfSecond("optimus", 99), 15'500, 200);
  // With a loss that converges when the job is half done, it trains up to there
  // first, 3,500 s more.
  EXPECT_NEAR(CompletionOfSecond("optimus", 2 * 99), 19'000, 300);
}

// Once the loss of the job that runs has fallen, the other one has its turn.
TEST(TraceSimulation, SlaqLeavesAJobWhoseLossHasFallen) {
  const Trace trace = SmallTrace({{"a", 80'000}, {"a", 80'000}});
  const SimulationResult result =
      Simulate(SmallOptions("fast:1", "slaq"), trace);
  EXPECT_TRUE(result.complete) << result.stopped;
  EXPECT_GT(result.preemptions, 2);
  EXPECT_EQ(Simulate(SmallOptions("fast:1", "srtf"), trace).preemptions, 0);
}

// ---- apps

// The apps outside the window are present, too, and an app that is partly
// outside does not count.
TEST(TraceSimulation, AnAppOfTheWindowHasTheRhoThatItHasInTheWholeTrace) {
  std::vector<SmallJob> jobs(8, {"a", 16'000});
  Trace trace = SmallTrace(jobs);
  trace.apps = {"w", "x", "y", "z"};
  for (size_t i = 0; i < jobs.size(); ++i) trace.jobs[i].app = i / 2;
  SimulationOptions options = SmallOptions("fast:2", "fifo");
  const SimulationResult whole = Simulate(options, trace);
  ASSERT_THAT(whole.apps, SizeIs(4));
  options.window_begin = 1;
  options.window_end = 6;
  const SimulationResult window = Simulate(options, trace);
  ASSERT_THAT(window.apps, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(window.apps[i].name, whole.apps[i + 1].name);
    EXPECT_NEAR(window.apps[i].rho, whole.apps[i + 1].rho, 1e-9);
  }
}

// ---- lies

// Three apps of two jobs of 4,000 s on two accelerators.
SimulationResult WithLies(const char* policy, double part, double factor) {
  std::vector<SmallJob> jobs(6, {"a", 16'000});
  Trace trace = SmallTrace(jobs);
  trace.apps = {"x", "y", "z"};
  for (size_t i = 0; i < jobs.size(); ++i) trace.jobs[i].app = i / 2;
  SimulationOptions options = SmallOptions("fast:2", policy);
  options.lies = {part, factor};
  return Simulate(options, trace);
}

TEST(TraceSimulation, AnAppThatLiesStarvesOthersUnderTheStrawman) {
  const SimulationResult honest = WithLies("strawman", 0.4, 1);
  const SimulationResult lies = WithLies("strawman", 0.4, 5);
  ASSERT_THAT(lies.apps, SizeIs(3));
  EXPECT_EQ(std::ranges::count(lies.apps, true, &SimulatedApp::lies), 1);
  EXPECT_LT(lies.median_lying_app_rho, 0.7 * honest.median_lying_app_rho);
  EXPECT_GE(lies.max_honest_app_rho, honest.max_honest_app_rho);
  EXPECT_TRUE(std::isnan(WithLies("strawman", 0, 5).median_lying_app_rho));
}

// Where all apps are offered the accelerators, scaling rho changes nothing.
TEST(TraceSimulation, AScaledRhoGainsNothingInTheAuction) {
  const SimulationResult honest = WithLies("themis_f=0", 0.4, 1);
  const SimulationResult lies = WithLies("themis_f=0", 0.4, 5);
  for (size_t app = 0; app < 3; ++app) {
    EXPECT_EQ(lies.apps[app].completion_s, honest.apps[app].completion_s);
  }
}

// ---- gangs that lose speed when spread

// An app whose one job needs two accelerators: on a server of two, and on two
// servers of one.
SimulationResult WithSpreadLoss(const char* cluster, double part) {
  Trace trace = SmallTrace({{"a", 16'000, 0, 2}});
  trace.apps = {"x"};
  trace.jobs[0].app = 0;
  SimulationOptions options = SmallOptions(cluster);
  options.spread_loss = {part, 0.5};
  return Simulate(options, trace);
}

TEST(TraceSimulation, ASensitiveGangLosesSpeedOnSeveralServersAlone) {
  const double alone_s = WithSpreadLoss("fast:2x2", 1).jobs[0].completion_s;
  EXPECT_EQ(WithSpreadLoss("fast:2x2", 0).jobs[0].completion_s, alone_s);
  // By the table alone.
  const double spread_s = WithSpreadLoss("fast:2x1", 0).jobs[0].completion_s;
  EXPECT_NEAR(WithSpreadLoss("fast:2x1", 1).jobs[0].completion_s, 2 * spread_s,
              400);
  // The accelerators of both parts are one type, and have names of their own.
  EXPECT_EQ(WithSpreadLoss("fast:2x2,fast:4x1", 1).jobs[0].completion_s,
            alone_s);
}

TEST(TraceSimulation, BadInputIsNamed) {
  const Trace good = SmallTrace({{"a", 100}});
  const SimulationOptions fine = SmallOptions("fast:1");
  std::vector<BadInput> cases;
  const auto add = [&](std::string message) -> BadInput& {
    return cases.emplace_back(BadInput{message, fine, good, message});
  };
  add("policy \"nobody\" does not exist").options.policy = "nobody";
  add("\"gone\" of the cluster").options.cluster[0].type = "gone";
  add("no row for type \"c\"").trace = SmallTrace({{"c", 100}});
  add("at scale factor 3; add it").trace.jobs[0].scale_factor_max = 3;
  add("the trace has no jobs").trace = Trace();
  add("no accelerators").options.cluster.clear();
  add("the round duration is nan").options.engine.round_duration_s =
      std::nan("");
  add("the rate of failures is -1").options.failures_per_hour = -1;
  add("the window 5:5 holds no jobs").options.window_begin = 5;
  cases.back().options.window_end = 5;
  add("the window begins at job 7").options.window_begin = 7;
  for (const BadInput& bad : cases) {
    const auto made =
        TraceSimulation::Create(bad.options, bad.trace, SmallTable());
    ASSERT_FALSE(made.ok()) << bad.what;
    EXPECT_NE(made.status().message().find(ToAbsl(bad.message)),
              absl::string_view::npos)
        << made.status().message();
  }
}

// A gang of two at 8 steps/s in a group, 4 on a server, 2 in a rack, 1 beyond.
TEST(TraceSimulation, AGangIsAsFastAsTheLevelThatItGets) {
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(R"json({
    "fast@group": {"('a', 2)": {"null": 8}},
    "fast": {"('a', 2)": {"null": 4}, "('a', 1)": {"null": 4}},
    "fast@rack": {"('a', 2)": {"null": 2}},
    "fast_unconsolidated": {"('a', 2)": {"null": 1}}})json",
                                              "levels"));
  const Trace trace = SmallTrace({{"a", 800, 0, 2}});
  for (const bool ideal : {false, true}) {
    for (const bool sensitive : {false, true}) {
      const auto makespan_s = [&](std::string_view cluster) {
        SimulationOptions options = SmallOptions(cluster);
        options.ideal = ideal;
        options.engine.placement_sensitive = sensitive;
        return Simulate(options, trace, table).makespan_s;
      };
      EXPECT_DOUBLE_EQ(makespan_s("fast:4x4:group=2"), 100) << ideal;
      EXPECT_DOUBLE_EQ(makespan_s("fast:4x2:group=1:rack=4"), 200) << ideal;
      EXPECT_DOUBLE_EQ(makespan_s("fast:2x1:rack=2"), 400) << ideal;
      EXPECT_DOUBLE_EQ(makespan_s("fast:2x1:rack=1"), 800) << ideal;
      EXPECT_DOUBLE_EQ(makespan_s("fast:2x1"), 800) << ideal;
    }
  }
}

}  // namespace
}  // namespace gavel::testing
