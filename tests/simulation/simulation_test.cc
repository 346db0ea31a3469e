// The simulation itself: a seed is a run, to the last bit; what it injects it
// does inject.
#include <sys/resource.h>

#include "core/text.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/seed_runs.h"
#include "tests/simulation/world/virtual_cluster.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  for (const uint64_t seed : {3, 7, 30}) {
    const ScenarioResult first = RunScenario(seed, {});
    const ScenarioResult second = RunScenario(seed, {});
    EXPECT_EQ(first.digest, second.digest) << "seed " << seed;
    EXPECT_EQ(first.ended_at, second.ended_at) << "seed " << seed;
    EXPECT_GT(first.rows, 100u) << "seed " << seed;
  }
}

TEST(Simulation, AnotherSeedGivesAnotherRun) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    digests.insert(RunScenario(seed, {}).digest);
  }
  EXPECT_EQ(digests.size(), 20u);
}

TEST(Simulation, TellingTheStoryChangesNothing) {
  ScenarioOptions told;
  int lines = 0;
  told.story = [&](Time, const std::string&) { ++lines; };
  EXPECT_EQ(RunScenario(11, told).digest, RunScenario(11, {}).digest);
  EXPECT_GT(lines, 100);
}

TEST(Simulation, SeedsThatCouldNotBeRunAreAFailure) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{0, files.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);  // no pipe to a process
  const SeedRuns runs = RunSeeds({1, 2}, {}, 1, /*stop_at_failure=*/false);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  ASSERT_EQ(runs.failures.size(), 1u);
  EXPECT_THAT(runs.failures[0].what, testing::HasSubstr("0 of 2 seeds"));
}

TEST(Simulation, EveryKindOfFaultIsInjected) {
  const SeedRuns runs = RunSeeds({1, 300}, {}, 1, /*stop_at_failure=*/false);
  for (const SeedFailure& failure : runs.failures) {
    ADD_FAILURE() << "seed " << failure.seed << ": " << failure.what;
  }
  EXPECT_EQ(runs.seeds, 300u);
  for (const char* kind : {"accelerator: fails",
                           "coordinator: killed",
                           "coordinator: other leases",
                           "coordinator: stalled",
                           "coordinator: taken over",
                           "journal: disk full",
                           "journal: fsync failed",
                           "journal: disk slow",
                           "journal: end lost",
                           "agent: killed",
                           "agent: stalled",
                           "agent: state lost",
                           "network: other weather",
                           "network: server cut off",
                           "network: server not heard",
                           "network: server hears nothing",
                           "server: wedged",
                           "checkpoint: damaged",
                           "checkpoint: failed",
                           "checkpoint: late",
                           "worker: killed",
                           "worker: hangs",
                           "worker: stalled",
                           "message: lost",
                           "message: doubled",
                           "message: late",
                           "message: cut off",
                           "user: cancels",
                           "user: releases",
                           "bidder: killed",
                           "bidder: two of an app",
                           "bidder: other habit"}) {
    EXPECT_TRUE(runs.faults.contains(kind) && runs.faults.at(kind) > 20)
        << kind;
  }
  for (const char* tier : {"keep", "park", "evict", "stop"}) {
    EXPECT_TRUE(runs.pauses.contains(tier) && runs.pauses.at(tier) > 20)
        << tier;
  }
  // There were auctions, trials and limits to check.
  for (const char* kind :
       {"bids: counted", "auctions: held again", "trials: begun",
        "trials: kept", "limits: reached"}) {
    EXPECT_TRUE(runs.checks.contains(kind) && runs.checks.at(kind) > 20)
        << kind;
  }
  // Few come to that: one seed of five tries, and its jobs are short. 300 seeds
  // have about 7.
  const char* rare = "trials: undone";
  EXPECT_TRUE(runs.checks.contains(rare) && runs.checks.at(rare) > 2) << rare;
}

// Two gangs take turns with steps of four seconds.
TEST(Simulation, AGangOfLongStepsStopsInTimeAndNotInVain) {
  VirtualClusterOptions options;
  options.engine.round_duration_s = 120;
  options.engine.lease_duration_s = 30;
  options.engine.plan_lead_s = 30;
  options.policy = "max_min_fairness";
  const auto run = [&](int gangs) {
    auto cluster = std::make_unique<VirtualCluster>(options);
    cluster->AddServer("here", {{"v100", "a"}, {"v100", "b"}});
    for (int i = 0; i < gangs; ++i) {
      JobSpec spec;
      spec.name = StrCat("gang-", i);
      spec.argv = {"./train"};
      spec.scale_factor = 2;
      VirtualTraining training;
      training.steps_total = 90;
      training.steps_per_s = {{"v100", 0.25}};
      cluster->Submit(spec, training);
    }
    EXPECT_TRUE(cluster->RunUntilAllEnded(2000));
    EXPECT_THAT(cluster->violations(), testing::IsEmpty());
    for (const auto& [id, job] : cluster->engine().jobs()) {
      for (const Worker& worker : job.workers) {
        EXPECT_EQ(worker.incarnation, 1u) << "its gang broke";
      }
    }
    return cluster;
  };
  const auto two = run(2);
  EXPECT_GT(two->engine().jobs().begin()->second.stays.pauses(), 0u);
  // It keeps its accelerators from round to round.
  const auto one = run(1);
  EXPECT_EQ(one->engine().jobs().begin()->second.stays.pauses(), 0u);
}

TEST(SeedRange, IsTwoNumbers) {
  const auto range = ParseSeeds("3:500");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 3u);
  EXPECT_EQ(range->last, 500u);
  for (const char* wrong : {"", "3", "0:5", "6:5", "a:b", "1:2:3", "-1:5"}) {
    EXPECT_FALSE(ParseSeeds(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace gavel
