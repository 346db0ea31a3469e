// Statements of Gandiva (Xiao et al., OSDI'18), section 4.2, on the
// introspective mode, each with its section; and what keeps trials few.
#include "coordinator/engine/event.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

using ::testing::HasSubstr;

// The first two jobs always have their turn.
PolicyResult TheFirstTwoHaveTheirTurn(const PolicyProblem& problem) {
  PolicyResult result;
  result.outcome = SolveOutcome::kOptimal;
  std::vector<ShareUnit> units;
  std::vector<double> shares;
  for (const PolicyJob& job : problem.jobs) {
    units.push_back({job.id, JobId()});
    shares.push_back(units.size() <= 2 ? 1 : 0);
  }
  result.allocation =
      Allocation::FromRows(std::move(units), 1, std::move(shares));
  return result;
}

// Jobs of known speed on one server; rounds of 100 s.
class Introspection : public ::testing::Test {
 protected:
  explicit Introspection(int accelerators = 1,
                         std::string policy = "max_min_fairness")
      : driver_(accelerators, std::move(policy),
                [](EngineOptions& options) { options.introspection = true; }) {}

  // All workers follow the coordinator's requests.
  void Obey() {
    const auto each = [&](const auto& act) {
      for (const auto& [id, job] : driver_.engine().jobs()) {
        for (int rank = 0; job.active() && rank < job.world_size; ++rank) {
          act(job, job.workers[static_cast<size_t>(rank)],
              driver_.Key(id, rank));
        }
      }
    };
    each([&](const Job&, const Worker& worker, const WorkerKey& key) {
      if (worker.held_epoch == 0 || worker.pause_sent_at == kNever) return;
      driver_.GiveBack(key);
    });
    each([&](const Job&, const Worker& worker, const WorkerKey& key) {
      if (worker.process != ProcessState::kJoined || !worker.leaving) return;
      WorkerExited exit = driver_.ExitOf(key.job, key.rank);
      exit.exit_code = kExitEvicted;
      driver_.Step(event::WorkerGone{exit});
    });
    each([&](const Job&, const Worker& worker, const WorkerKey& key) {
      if (worker.process == ProcessState::kLaunching) driver_.Hello(key);
    });
    each([&](const Job& job, const Worker& worker, const WorkerKey& key) {
      if (job.assigned.empty() || worker.process != ProcessState::kJoined) {
        return;
      }
      driver_.Request(key, worker.held_epoch == job.epoch);
      if (key.rank == 0 && job.is_gang()) {
        driver_.Request(key, /*holding=*/true, 0, "here:1");
      }
    });
  }
  void NextRound() {
    driver_.At(driver_.engine().round_ends_at());
    Obey();
  }
  // Both jobs of the pair report the speed, over the last 20 s.
  void Report(const ShareUnit& pair, double first, double second) {
    driver_.At(driver_.now + 21);
    driver_.ReportSpeed(pair.job, first, 20);
    driver_.ReportSpeed(pair.partner, second, 20);
    Obey();
  }
  // An operator's command, for a coordinator whose own setting is `own`.
  void Switch(bool on, bool own) {
    event::PolicyChanged changed{"max_min_fairness"};
    changed.introspection = on;
    changed.introspection_is_own = on == own;
    driver_.Step(changed);
  }
  bool IsOn() const { return driver_.engine().options().introspection; }
  ShareUnit StartPair() {
    Obey();
    for (int round = 0; round < 3 && !driver_.PackedPair().packed(); ++round) {
      NextRound();
    }
    EXPECT_TRUE(driver_.PackedPair().packed());
    return driver_.PackedPair();
  }

  EngineDriver driver_;
};

class TwoJobs : public Introspection {
 protected:
  TwoJobs() {
    driver_.Submit("a", 1, KnownJob());
    driver_.Submit("b", 1, KnownJob());
  }
};

// Section 4.2.1: "we assign jobs in a packed fashion only when overloaded".
TEST_F(Introspection, WhileEachJobHasAnAcceleratorNoneIsPacked) {
  driver_.Submit("a", 1, KnownJob());
  Obey();
  for (int round = 0; round < 5; ++round) {
    NextRound();
    EXPECT_FALSE(driver_.PackedPair().packed());
  }
}

// Section 4.2.1: a pair is kept if the total of normalised rates rises.
TEST_F(TwoJobs, APairThatBeatsTurnsIsKept) {
  const ShareUnit pair = StartPair();
  EXPECT_THAT(driver_.engine().TrialNotes(driver_.job(pair.job)),
              HasSubstr("on trial"));
  Report(pair, 0.8, 0.81);
  EXPECT_EQ(driver_.PackedPair(), pair);
  EXPECT_THAT(driver_.engine().TrialNotes(driver_.job(pair.job)),
              HasSubstr("kept at 1.61 times"));
  // Later its workers, which report nothing, would be taken to hang.
  for (int round = 0; round < 5; ++round) {
    NextRound();
    EXPECT_EQ(driver_.PackedPair(), pair);
    EXPECT_NE(driver_.worker(pair.partner).held_epoch, 0u);
  }
}

// Section 4.2.1: otherwise packing is undone.
TEST_F(TwoJobs, APairThatTurnsBeatIsPartedInTheRound) {
  const ShareUnit pair = StartPair();
  const Time ends_at = driver_.engine().round_ends_at();
  Report(pair, 0.4, 0.5);
  EXPECT_LT(driver_.now, ends_at);
  EXPECT_FALSE(driver_.PackedPair().packed());
  EXPECT_THAT(driver_.engine().TrialNotes(driver_.job(pair.job)),
              HasSubstr("undone at 0.90 times"));
  // One of the two has the accelerator again.
  EXPECT_NE(driver_.job(pair.job).assigned.empty(),
            driver_.job(pair.partner).assigned.empty());
  for (int round = 0; round < 30; ++round) {
    NextRound();
    EXPECT_FALSE(driver_.PackedPair().packed());
  }
}

TEST_F(TwoJobs, APairThatNobodyMeasuresIsPartedWithinAMinute) {
  const ShareUnit pair = StartPair();
  driver_.At(driver_.now + 50);
  EXPECT_EQ(driver_.PackedPair(), pair);
  driver_.At(driver_.now + 16);
  EXPECT_FALSE(driver_.PackedPair().packed());
}

TEST_F(TwoJobs, APairEndsWhenAnAcceleratorIsVacated) {
  const ShareUnit pair = StartPair();
  Report(pair, 0.8, 0.8);
  driver_.JoinServer("there", 1);
  NextRound();
  NextRound();
  EXPECT_FALSE(driver_.PackedPair().packed());
  EXPECT_FALSE(driver_.job(pair.job).assigned.empty());
  EXPECT_FALSE(driver_.job(pair.partner).assigned.empty());
}

TEST_F(TwoJobs, ARestartKeepsWhatWasTried) {
  const ShareUnit pair = StartPair();
  Report(pair, 0.8, 0.8);
  const std::string note = driver_.engine().TrialNotes(driver_.job(pair.job));
  const Engine restored = driver_.Restored();
  EXPECT_EQ(restored.TrialNotes(*restored.FindJob(pair.job)), note);
  const Engine replayed = driver_.Replayed(driver_.engine().options());
  EXPECT_EQ(replayed.TrialNotes(*replayed.FindJob(pair.job)), note);
  EXPECT_EQ(replayed.FindJob(pair.job)->partner, pair.partner);
}

TEST_F(TwoJobs, WithoutTheSettingNothingIsTried) {
  EngineDriver driver(1, "max_min_fairness");
  driver.Submit("a", 1, KnownJob());
  driver.Submit("b", 1, KnownJob());
  for (int round = 0; round < 5; ++round) {
    driver.EndRound();
    EXPECT_FALSE(driver.PackedPair().packed());
  }
}

TEST_F(TwoJobs, SwitchedOffLivePairsArePartedAndNothingIsTried) {
  const ShareUnit pair = StartPair();
  Report(pair, 0.8, 0.8);
  Switch(false, /*own=*/true);
  for (int round = 0; round < 5; ++round) {
    NextRound();
    EXPECT_FALSE(driver_.PackedPair().packed());
    // They take turns.
    EXPECT_NE(driver_.job(pair.job).assigned.empty(),
              driver_.job(pair.partner).assigned.empty());
  }
  const Engine replayed = driver_.Replayed(driver_.engine().options());
  EXPECT_FALSE(replayed.options().introspection);
  Switch(true, /*own=*/true);
  NextRound();
  NextRound();
  EXPECT_TRUE(driver_.PackedPair().packed()) << "what was learnt counts";
}

TEST_F(TwoJobs, ATrialThatIsSwitchedOffLeavesNoBackOff) {
  const ShareUnit pair = StartPair();
  Switch(false, /*own=*/true);
  EXPECT_EQ(driver_.engine().TrialNotes(driver_.job(pair.job)), "");
  NextRound();
  EXPECT_FALSE(driver_.PackedPair().packed());
  // A trial that began would be judged by now.
  driver_.At(driver_.now + 70);
  EXPECT_EQ(driver_.engine().TrialNotes(driver_.job(pair.job)), "");
}

TEST_F(TwoJobs, WhatWasSwitchedOutlastsRestartsUntilItIsTheOwnSetting) {
  const auto own_setting = [](bool on) {
    return [on](EngineOptions& options) { options.introspection = on; };
  };
  Switch(false, /*own=*/true);
  driver_.Restart();
  EXPECT_FALSE(IsOn());
  EXPECT_FALSE(driver_.Restored().options().introspection);
  driver_.Restart(own_setting(false));
  EXPECT_FALSE(IsOn());
  driver_.Restart(own_setting(true));
  EXPECT_TRUE(IsOn());
  // Another policy leaves it as it is.
  Switch(false, /*own=*/true);
  driver_.Step(event::PolicyChanged{"fifo", "max_min_fairness", false, true});
  EXPECT_FALSE(IsOn());
  Switch(true, /*own=*/true);
  driver_.Restart(own_setting(false));
  EXPECT_FALSE(IsOn()) << "the coordinator's own was set again";
}

// At most one trial of a job in trial_backoff_s, ten minutes, whatever the
// others do.
TEST_F(Introspection, AJobIsTriedOnceInTenMinutes) {
  for (int i = 0; i < 6; ++i) driver_.Submit(StrCat("job ", i), 1, KnownJob());
  Obey();
  std::map<JobId, std::vector<Time>> trials;
  std::set<ShareUnit> seen;
  while (driver_.now < 7200) {
    NextRound();
    const ShareUnit pair = driver_.PackedPair();
    if (!pair.packed()) continue;
    EXPECT_TRUE(seen.insert(pair).second) << "the same pair again";
    for (const JobId id : {pair.job, pair.partner}) {
      trials[id].push_back(driver_.now);
    }
    Report(pair, 0.3, 0.3);
  }
  EXPECT_GE(trials.size(), 2u);
  for (const auto& [id, times] : trials) {
    for (size_t i = 1; i < times.size(); ++i) {
      EXPECT_GE(times[i] - times[i - 1], 600) << "job " << id.value();
    }
  }
}

class TwoAccelerators : public Introspection {
 protected:
  TwoAccelerators() : Introspection(2) {}
  void Heartbeat(std::vector<int> percent) {
    AgentHeartbeat beat;
    beat.server = "here";
    beat.incarnation = 1;
    beat.highest_seen = driver_.engine().position();
    for (size_t i = 0; i < percent.size(); ++i) {
      AcceleratorHealth& health = beat.health.emplace_back();
      health.uuid = StrCat("here-", i);
      health.utilisation_percent = percent[i];
    }
    driver_.Step(event::AgentHeard{beat});
  }
};

// Section 4.2.1: "the job with the lowest GPU utilization is packed on the GPU
// with the lowest utilization".
TEST_F(TwoAccelerators, TheLeastUtilisedGetsCompany) {
  driver_.answer = TheFirstTwoHaveTheirTurn;
  const JobId a = driver_.Submit("a", 1, KnownJob());
  const JobId b = driver_.Submit("b", 1, KnownJob());
  Obey();
  const bool first = driver_.job(a).assigned.front() == AcceleratorId(1);
  Heartbeat(first ? std::vector{95, 20} : std::vector{20, 95});
  const JobId c = driver_.Submit("c", 1, KnownJob());
  NextRound();
  EXPECT_EQ(driver_.PackedPair(), PairOf(b, c));
}

TEST_F(Introspection, NoJobIsPackedOnAServerThatItsFileExcludes) {
  driver_.answer = TheFirstTwoHaveTheirTurn;
  driver_.JoinServer("there", 1);
  JobSpec elsewhere = KnownJob();
  elsewhere.exclude_servers = {"here"};
  driver_.Submit("a", 1, KnownJob());
  const JobId there = driver_.Submit("b", 1, elsewhere);
  Obey();
  const JobId waits = driver_.Submit("c", 1, elsewhere);
  NextRound();
  EXPECT_EQ(driver_.PackedPair(), PairOf(there, waits));
}

// The policy has one of the two run on a type that the other one may not have.
TEST_F(Introspection, APairIsPartedWhereOneOfTheTwoCantRun) {
  driver_.answer = [](const PolicyProblem& problem) {
    PolicyResult result;
    result.outcome = SolveOutcome::kOptimal;
    result.is_assignment = true;
    result.assignment.push_back(
        {{problem.jobs.front().id, JobId()}, problem.types.size() - 1});
    return result;
  };
  JobSpec anywhere = KnownJob();
  anywhere.throughputs["p100"] = 1;
  JobSpec fast = anywhere;
  fast.types = {"v100"};
  const JobId a = driver_.Submit("a", 1, anywhere);
  const JobId b = driver_.Submit("b", 1, fast);
  EXPECT_EQ(StartPair(), PairOf(a, b));
  driver_.Step(event::ServerJoined{EngineDriver::HelloOf("slow", "p100")});
  NextRound();
  NextRound();
  const auto type_of = [&](JobId id) {
    const auto& assigned = driver_.job(id).assigned;
    return assigned.empty() ? "none"
                            : driver_.engine()
                                  .cluster()
                                  .accelerator(assigned.front())
                                  .info.type;
  };
  EXPECT_EQ(type_of(a), "p100");
  EXPECT_NE(type_of(b), "p100");
}

// Section 4.2.2: a job moves to accelerators that were vacated.
class Reactive : public Introspection {
 protected:
  Reactive() : Introspection(2, "gandiva_reactive") {}
};

TEST_F(Reactive, ASuspendedJobMovesToVacatedAccelerators) {
  for (const char* name : {"a", "b", "c", "d"}) {
    driver_.Submit(name, 1, KnownJob());
  }
  Obey();
  for (int round = 0; round < 4; ++round) NextRound();
  driver_.JoinServer("there", 1);
  for (int round = 0; round < 4; ++round) NextRound();
  int running = 0;
  for (const auto& [id, job] : driver_.engine().jobs()) {
    running += job.assigned.empty() ? 0 : 1;
  }
  EXPECT_EQ(running, 4);
}

// Section 4.2.2: defragmentation makes room for jobs of several accelerators
// on one server.
TEST_F(Reactive, TheEmptiestServerIsEmptiedForAGang) {
  driver_.JoinServer("there", 1);
  const JobId a = driver_.Submit("a", 1, KnownJob());
  const JobId b = driver_.Submit("b", 1, KnownJob());
  const JobId c = driver_.Submit("c", 1, KnownJob());
  Obey();
  // One of the first two ends, so that each server has one job.
  const auto server = [&](JobId id) {
    return driver_.engine()
        .cluster()
        .accelerator(driver_.job(id).assigned.front())
        .server;
  };
  ASSERT_NE(server(a), server(c));
  driver_.Gone(driver_.Key(b), 0);
  const JobId gang = driver_.Submit("gang", 2, KnownJob());
  for (int round = 0; round < 4; ++round) NextRound();
  ASSERT_FALSE(driver_.job(gang).assigned.empty());
  EXPECT_EQ(server(a), server(c));
  EXPECT_NE(server(gang), server(a));
  EXPECT_EQ(driver_.job(gang).assigned.size(), 2u);
}

}  // namespace
}  // namespace gavel
