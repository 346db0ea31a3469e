// Packed pairs: two jobs on one accelerator, each with one of its two slots.

#include "coordinator/workload/throughput_table.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

PolicyResult Shares(std::vector<ShareUnit> units, std::vector<double> shares) {
  PolicyResult result;
  result.outcome = SolveOutcome::kOptimal;
  result.allocation =
      Allocation::FromRows(std::move(units), 1, std::move(shares));
  return result;
}

// Packs all jobs of the problem in pairs, one after the other.
PolicyResult InPairs(const PolicyProblem& problem) {
  std::vector<ShareUnit> units;
  for (size_t i = 0; i < problem.jobs.size(); i += 2) {
    const bool two = i + 1 < problem.jobs.size();
    units.push_back(
        {problem.jobs[i].id, two ? problem.jobs[i + 1].id : JobId()});
  }
  const size_t count = units.size();
  return Shares(std::move(units), std::vector<double>(count, 1.0));
}

// A job with a known throughput, which needs no turn alone on trial.
class Packing : public ::testing::Test {
 protected:
  Packing() { driver_.answer = InPairs; }
  EngineDriver driver_{1, "max_min_fairness"};
};

TEST_F(Packing, APairGetsOneSlotEachOfOneAccelerator) {
  driver_.hold_solver = true;
  const JobId a = driver_.Submit("a", 1, KnownJob());
  driver_.hold_solver = false;
  driver_.Submit("b", 1, KnownJob());
  driver_.Step(event::AllocationReady{1, InPairs(driver_.problem)});
  // a runs alone first; the next round packs it with b.
  const WorkerKey first = driver_.Run(a);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->slots, 2);
  driver_.At(driver_.engine().round_ends_at() + 1);
  EXPECT_EQ(driver_.Last<PauseRequest>()->worker, first);
  const JobId b = JobId(2);
  EXPECT_EQ(driver_.job(a).partner, b);
  EXPECT_EQ(driver_.job(b).partner, a);
  EXPECT_EQ(driver_.job(a).assigned, driver_.job(b).assigned);

  // b gets no lease while a has a lease of both slots.
  driver_.Hello(driver_.Key(b));
  driver_.Request(driver_.Key(b));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker.job, a);
  driver_.GiveBack(first);
  driver_.Request(driver_.Key(b));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker.job, b);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->slots, 1);
  driver_.Request(first);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker.job, a);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->slots, 1);
}

class RunningPair : public Packing {
 protected:
  RunningPair() {
    driver_.hold_solver = true;
    a_ = driver_.Submit("a", 1, KnownJob());
    b_ = driver_.Submit("b", 1, KnownJob());
    driver_.Step(event::AllocationReady{1, InPairs(driver_.problem)});
    driver_.hold_solver = false;
    driver_.Step(event::AllocationReady{2, InPairs(driver_.problem)});
    driver_.At(driver_.engine().round_ends_at() + 1);
    first_ = driver_.Run(a_);
    second_ = driver_.Run(b_);
  }
  JobId a_, b_;
  WorkerKey first_, second_;
};

TEST_F(RunningPair, HoldsOneAcceleratorTogether) {
  EXPECT_NE(driver_.worker(a_).held_epoch, 0u);
  EXPECT_NE(driver_.worker(b_).held_epoch, 0u);
  EXPECT_EQ(driver_.worker(a_).held, driver_.worker(b_).held);
}

TEST_F(RunningPair, GoesOnWithoutAPauseWhenOneEnds) {
  const int pauses = driver_.Count<PauseRequest>();
  driver_.Gone(second_, 0);
  EXPECT_EQ(driver_.job(b_).state, JobState::kFinished);
  driver_.At(driver_.engine().round_ends_at() + 1);
  EXPECT_EQ(driver_.Count<PauseRequest>(), pauses);
  EXPECT_NE(driver_.worker(a_).held_epoch, 0u);
}

TEST_F(RunningPair, WhoIsLeftIsMeasuredAlone) {
  driver_.Gone(second_, 0);
  const auto alone = [&] {
    return driver_.engine().throughputs().Get(a_, "v100").source;
  };
  driver_.At(driver_.now + 5);
  driver_.ReportSpeed(a_, 2, 8);  // partly of when both were there
  EXPECT_EQ(alone(), ThroughputSource::kGiven);
  driver_.At(driver_.now + 5);
  driver_.ReportSpeed(a_, 2, 8);
  EXPECT_EQ(alone(), ThroughputSource::kMeasured);
}

TEST_F(RunningPair, IsPartedByAPauseOfBoth) {
  driver_.answer = [](const PolicyProblem& problem) {
    return Shares({{problem.jobs[0].id, JobId()}}, {1.0});
  };
  driver_.Submit("c", 1, KnownJob());  // solved anew
  driver_.At(driver_.engine().round_ends_at() + 1);
  EXPECT_FALSE(driver_.job(a_).partner.valid());
  EXPECT_TRUE(driver_.job(b_).assigned.empty());
  EXPECT_NE(driver_.worker(a_).pause_sent_at, kNever);
  EXPECT_NE(driver_.worker(b_).pause_sent_at, kNever);
}

TEST_F(RunningPair, CountsTheTimeOfBothJobsOnce) {
  driver_.At(driver_.now + 20);
  driver_.Gone(second_, 0);
  EXPECT_NEAR(driver_.job(b_).received_s, 20, 1e-9);
  EXPECT_NEAR(driver_.engine().SharesOf(b_, driver_.now).received *
                  (driver_.job(b_).ended_at - driver_.job(b_).counted_since),
              20, 1e-9);
}

TEST_F(RunningPair, SurvivesARestart) {
  driver_.Restart();
  EXPECT_EQ(driver_.job(a_).partner, b_);
  driver_.Request(first_, /*holding=*/true);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, first_);
  driver_.Request(second_, /*holding=*/true);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker, second_);
}

// Two jobs have the same row of the table, which says how fast they are
// together.
TEST(PairOfATable, IsOfOneKindUntilAnotherSpeedIsMeasured) {
  EngineDriver driver(1, "max_min_fairness", [](EngineOptions& options) {
    options.packing = true;
    options.throughputs =
        std::make_shared<const ThroughputTable>(*ThroughputTable::Parse(
            R"json({"v100": {"('app', 1)": {"null": 5,
                                            "('app', 1)": [3, 3]}}})json",
            "table"));
  });
  driver.answer = InPairs;
  JobSpec spec;
  spec.app = "app";
  driver.hold_solver = true;
  const JobId a = driver.Submit("a", 1, spec);
  const JobId b = driver.Submit("b", 1, spec);
  driver.Step(event::AllocationReady{1, InPairs(driver.problem)});
  driver.hold_solver = false;
  driver.Step(event::AllocationReady{2, InPairs(driver.problem)});
  driver.At(driver.engine().round_ends_at() + 1);
  driver.Run(a);
  driver.Run(b);
  const auto report = [&](JobId job, double steps_per_s) {
    driver.At(driver.now + 6);
    driver.ReportSpeed(job, steps_per_s, 5);
    driver.Submit(StrCat("after", driver.now), 1, spec);  // solved anew
  };
  report(a, 3.05);
  EXPECT_THAT(driver.problem.kinds, ::testing::ElementsAre(0, 0, 0));
  report(b, 2);
  EXPECT_THAT(driver.problem.kinds, ::testing::ElementsAre(0, 1, 0, 0));
}

TEST_F(RunningPair, OutOfMemoryPartsThePairAndNotTheType) {
  driver_.GiveBack(second_, {}, ReleaseCause::kOutOfMemory);
  EXPECT_EQ(driver_.engine().throughputs().Together(a_, b_, "v100"), 0.0);
  EXPECT_EQ(driver_.engine().throughputs().Get(b_, "v100").steps_per_s, 1);
  EXPECT_TRUE(driver_.job(b_).assigned.empty());
  EXPECT_NE(driver_.worker(a_).held_epoch, 0u);
}

// ---- pairs of unknown speed: measured live, first on trial

// There are more jobs than accelerators, and the allocation runs each alone.
class PairTrials : public ::testing::Test {
 protected:
  static constexpr int kJobs = 3;

  PairTrials()
      : driver_(1, "max_min_fairness", [](EngineOptions& options) {
          options.packing = true;
          options.pair_trials = true;
        }) {
    for (int i = 0; i < kJobs; ++i) {
      driver_.Submit(StrCat("job", i), 1, KnownJob());
    }
  }
  void Start(JobId job) {
    if (driver_.worker(job).process == ProcessState::kLaunching) {
      driver_.Hello(driver_.Key(job));
    }
    driver_.Request(driver_.Key(job));
    ASSERT_NE(driver_.worker(job).held_epoch, 0u);
  }
  ShareUnit StartPair() {
    for (int round = 0; round < 5 && !driver_.PackedPair().packed(); ++round)
      driver_.EndRound();
    const ShareUnit pair = driver_.PackedPair();
    EXPECT_TRUE(pair.packed());
    Start(pair.job);
    Start(pair.partner);
    return pair;
  }

  EngineDriver driver_;
};

TEST_F(PairTrials, APairThatNobodyKnowsIsTriedAndThenOffered) {
  EXPECT_TRUE(driver_.problem.pairs.empty());
  const ShareUnit pair = StartPair();
  driver_.At(driver_.now + 10);
  driver_.ReportSpeed(pair.job, 0.8, 5);
  driver_.ReportSpeed(pair.partner, 0.6, 5);
  EXPECT_THAT(driver_.Why(pair.partner),
              ::testing::HasSubstr(StrCat("v100 beside job ", pair.job.value(),
                                          " at 60 % of its speed alone")));
  driver_.EndRound();
  ASSERT_EQ(driver_.problem.pairs.size(), 1u);
  EXPECT_EQ(driver_.problem.pair_throughputs, (std::vector<double>{0.8, 0.6}));
  // Alone, the job is as fast as before.
  EXPECT_EQ(driver_.engine().throughputs().Get(pair.job, "v100").steps_per_s,
            1);
}

// An exclusive device has room for one process.
TEST_F(PairTrials, NobodyIsTriedInAPairOnAnExclusiveAccelerator) {
  driver_.declare = [](AcceleratorInfo& info) { info.exclusive = true; };
  driver_.JoinServer("here", 2);
  for (int round = 0; round < 5; ++round) {
    driver_.EndRound();
    EXPECT_FALSE(driver_.PackedPair().packed());
    EXPECT_TRUE(driver_.problem.pairs.empty());
  }
}

// The table has the jobs' type but no measurement of it in pairs.
TEST(PairOfATable, ThatTheTableLacksIsTried) {
  EngineDriver driver(1, "max_min_fairness", [](EngineOptions& options) {
    options.packing = options.pair_trials = true;
    options.throughputs =
        std::make_shared<const ThroughputTable>(*ThroughputTable::Parse(
            R"json({"v100": {"('app', 1)": {"null": 5}}})json", "table"));
  });
  JobSpec spec;
  spec.app = "app";
  for (const char* name : {"a", "b"}) driver.Submit(name, 1, spec);
  bool packed = false;
  for (int round = 0; round < 4; ++round) {
    driver.At(driver.engine().round_ends_at());
    for (const auto& [id, job] : driver.engine().jobs()) {
      packed |= job.partner.valid();
    }
  }
  EXPECT_TRUE(packed);
}

// Each job may use its observed need and half of the rest.
TEST_F(PairTrials, TheTwoShareTheMemory) {
  driver_.memory_bytes = 120;
  driver_.context_bytes = 10;
  driver_.JoinServer("here", 1);
  const ShareUnit pair = StartPair();
  const auto limit = [&](JobId job) {
    driver_.Request(driver_.Key(job), /*holding=*/true);
    EXPECT_EQ(driver_.Last<LeaseGrant>()->worker.job, job);
    return driver_.Last<LeaseGrant>()->memory_limit_bytes;
  };
  EXPECT_EQ(limit(pair.job), 50u);
  EXPECT_EQ(limit(pair.partner), 50u);
  Progress progress;
  progress.device_bytes = 60;
  driver_.Step(event::StepsReported{
      driver_.Key(pair.job), driver_.worker(pair.job).held_epoch, progress});
  EXPECT_EQ(limit(pair.job), 80u);
  EXPECT_EQ(limit(pair.partner), 20u);
  progress.device_bytes = 90;
  driver_.Step(event::StepsReported{driver_.Key(pair.partner),
                                    driver_.worker(pair.partner).held_epoch,
                                    progress});
  EXPECT_EQ(limit(pair.job), 40u);  // too little for both: 60 : 90
  EXPECT_EQ(limit(pair.partner), 60u);
}

// The threads of a CPU slot are divided. The job that is left gets all of them
// with its next renewal.
TEST_F(PairTrials, TheTwoShareTheThreads) {
  const auto granted = [&](JobId job) {
    driver_.Request(driver_.Key(job), /*holding=*/true);
    EXPECT_EQ(driver_.Last<LeaseGrant>()->worker.job, job);
    return driver_.Last<LeaseGrant>()->accelerator.threads;
  };
  driver_.threads = 5;
  driver_.JoinServer("here", 1);
  ShareUnit pair = StartPair();
  EXPECT_EQ(granted(pair.job), 3);
  EXPECT_EQ(granted(pair.partner), 2);
  driver_.Gone(driver_.Key(pair.job), 0);
  EXPECT_EQ(granted(pair.partner), 5);
}

TEST_F(PairTrials, OfOneThreadEachHasOne) {
  const ShareUnit pair = StartPair();
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker.job, pair.partner);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->accelerator.threads, 1);
}

// Three jobs run alone and report their need, until two accelerators are lost.
class PairsByNeed : public PairTrials {
 protected:
  bool AreMade(uint64_t need_bytes) {
    driver_.memory_bytes = 100;
    for (const char* name : {"here", "there", "yonder"}) {
      driver_.JoinServer(name, 1);
    }
    Progress progress;
    progress.device_bytes = need_bytes;
    for (const auto& [id, job] : driver_.engine().jobs()) {
      Start(id);
      driver_.Step(event::StepsReported{
          driver_.Key(id), driver_.worker(id).held_epoch, progress});
    }
    driver_.Step(event::AcceleratorLost{"there", "there-0"});
    driver_.Step(event::AcceleratorLost{"yonder", "yonder-0"});
    bool made = false;
    for (int round = 0; round < 6; ++round) {
      driver_.EndRound();
      made |= driver_.PackedPair().packed();
    }
    return made;
  }
};

TEST_F(PairsByNeed, AreMadeWhereTwoFit) { EXPECT_TRUE(AreMade(50)); }

TEST_F(PairsByNeed, AreNotMadeWhereTheyDoNot) { EXPECT_FALSE(AreMade(51)); }

TEST_F(PairTrials, AloneOrOfUnknownMemoryThereIsNoLimit) {
  const ShareUnit pair = StartPair();
  EXPECT_EQ(driver_.Last<LeaseGrant>()->worker.job, pair.partner);
  EXPECT_EQ(driver_.Last<LeaseGrant>()->memory_limit_bytes, 0u);
}

TEST_F(PairTrials, WhatWasMeasuredBeforeThePartnerCameDoesNotCount) {
  const ShareUnit pair = StartPair();
  driver_.At(driver_.now + 2);
  driver_.ReportSpeed(pair.job, 0.9, 5);
  EXPECT_FALSE(driver_.engine()
                   .throughputs()
                   .Together(pair.job, pair.partner, "v100")
                   .has_value());
}

TEST_F(PairTrials, EachPairHasOneTurn) {
  std::vector<ShareUnit> seen;
  for (int round = 0; round < 12; ++round) {
    if (const ShareUnit pair = driver_.PackedPair(); pair.packed()) {
      seen.push_back(pair);
      Start(pair.job);
      Start(pair.partner);
    }
    driver_.EndRound();
  }
  EXPECT_EQ(seen.size(), 3u);  // of three jobs
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// One job of the pair has not started when the round is over.
TEST_F(PairTrials, APairOfWhichOneDoesNotComeIsTriedAgain) {
  for (int round = 0; round < 5 && !driver_.PackedPair().packed(); ++round)
    driver_.EndRound();
  const ShareUnit pair = driver_.PackedPair();
  ASSERT_TRUE(pair.packed());
  Start(pair.job);
  int again = 0;
  for (int round = 0; round < 12; ++round) {
    driver_.EndRound();
    // A process that has not come is ended when its turn is over.
    for (const JobId id : {JobId(1), JobId(2), JobId(3)}) {
      const Worker& worker = driver_.worker(id);
      if (worker.launched_on.valid() && worker.leaving) {
        driver_.Gone(driver_.Key(id), 0, 15);
      }
    }
    if (driver_.PackedPair() != pair) continue;
    ++again;
    if (driver_.worker(pair.job).held_epoch == 0) Start(pair.job);
  }
  EXPECT_GE(again, 1);
  EXPECT_LE(again, 3);  // four turns in all
}

TEST_F(PairTrials, WithAnAcceleratorForEachNobodyIsTried) {
  driver_.JoinServer("there", 1);
  driver_.JoinServer("yonder", 1);
  for (int round = 0; round < 4; ++round) {
    driver_.At(driver_.engine().round_ends_at());
    EXPECT_FALSE(driver_.PackedPair().packed());
  }
}

TEST_F(RunningPair, KeepsItsAcceleratorInQuarantineUntilBothAreGone) {
  driver_.Step(event::ServerLost{"here"});
  driver_.At(driver_.now + 50);  // both leases are over by every clock
  EXPECT_EQ(driver_.engine().quarantined().size(), 2u);
  driver_.JoinServer("here", 1, {{first_, 1}, {second_, 2}});
  driver_.Gone(second_, 0, 9);
  EXPECT_EQ(driver_.engine().quarantined().size(), 1u);
  driver_.Gone(first_, 0, 9);
  EXPECT_TRUE(driver_.engine().quarantined().empty());
}

}  // namespace
}  // namespace gavel
