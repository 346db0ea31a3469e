// Tests elastic jobs in the engine: when they grow and shrink, what becomes of
// their processes, and that a replay decides the same.
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

constexpr int kAccelerators = 4;
constexpr double kRound_s = 100;

class ElasticJobs : public ::testing::Test {
 protected:
  explicit ElasticJobs(int rounds = 3, std::string policy = "max_min_fairness")
      : driver_(kAccelerators, std::move(policy), [rounds](EngineOptions& o) {
          o.resize_rounds = rounds;
          o.launch_timeout_s = 1e6;  // nobody is slow here
          o.pause_grace_s = 1e6;
        }) {}

  JobId Submit(const std::string& name, int min, int asked, int max) {
    JobSpec spec;
    spec.scale_factor_min = min;
    spec.scale_factor_max = max;
    return driver_.Submit(name, asked, spec);
  }
  const Job& At(JobId id) const { return driver_.job(id); }
  const Worker& WorkerOf(JobId id, int rank) const {
    return At(id).workers.at(static_cast<size_t>(rank));
  }
  // All workers of the gang join if they have not yet, and are granted their
  // leases.
  void Start(JobId id) {
    for (int rank = 0; rank < At(id).world_size; ++rank) {
      if (WorkerOf(id, rank).process == ProcessState::kLaunching) {
        driver_.Hello(driver_.Key(id, rank));
      }
    }
    driver_.Request(driver_.Key(id));
    driver_.Request(driver_.Key(id), /*holding=*/true, 0, "here:1");
    for (int rank = 1; rank < At(id).world_size; ++rank) {
      driver_.Request(driver_.Key(id, rank));
    }
  }
  bool Runs(JobId id) const {
    return !At(id).assigned.empty() &&
           std::ranges::all_of(At(id).gang(), [&](const Worker& worker) {
             return worker.held_epoch == At(id).epoch;
           });
  }
  void Report(JobId id, double steps_per_s) {
    Progress progress;
    progress.steps_done = 10;
    progress.throughput_steps_per_s = steps_per_s;
    progress.window_s = 60;
    driver_.Step(event::StepsReported{driver_.Key(id),
                                      WorkerOf(id, 0).held_epoch, progress});
  }
  // Workers that were asked to give their lease back do so, and those that were
  // asked to end do.
  void Obey(JobId id) {
    for (int rank = 0; rank < static_cast<int>(At(id).workers.size()); ++rank) {
      const Worker& worker = WorkerOf(id, rank);
      if (worker.pause_sent_at == kNever) continue;
      if (worker.held_epoch != 0) {
        driver_.GiveBack(driver_.Key(id, rank), worker.progress);
      }
    }
    for (int rank = 0; rank < static_cast<int>(At(id).workers.size()); ++rank) {
      if (WorkerOf(id, rank).leaving) driver_.Gone(driver_.Key(id, rank), 75);
    }
  }
  // Advances to the beginning of the next round, and does all that follows from
  // it.
  void NextRound(const std::vector<JobId>& jobs) {
    driver_.At(driver_.engine().round_ends_at());
    for (const JobId id : jobs) Obey(id);
    for (const JobId id : jobs) {
      if (!At(id).assigned.empty() && !Runs(id)) Start(id);
    }
  }
  std::string Size(JobId id) const { return RenderResize(At(id)); }

  EngineDriver driver_;
};

class ElasticEveryRound : public ElasticJobs {
 protected:
  ElasticEveryRound() : ElasticJobs(1) {}
};

TEST_F(ElasticJobs, GrowAtTheNextRoundWhenAcceleratorsAreIdle) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  driver_.At(kRound_s - 1);
  EXPECT_EQ(At(job).scale_factor, kAccelerators);
  EXPECT_EQ(At(job).assigned.size(), 1);  // not before the round
  EXPECT_TRUE(Runs(job));
  driver_.At(kRound_s);
  EXPECT_EQ(At(job).assigned.size(), kAccelerators);
  EXPECT_EQ(driver_.Last<PauseRequest>()->tier, PauseTier::kEvict);
  // The new ranks restore the state that the old rank commits, so they are not
  // launched before it has ended.
  EXPECT_EQ(driver_.Count<LaunchWorker>(), 1);
  Obey(job);
  EXPECT_EQ(driver_.Count<LaunchWorker>(), 1 + kAccelerators);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->world_size, kAccelerators);
  driver_.now += 2;
  Start(job);
  EXPECT_TRUE(Runs(job));
  EXPECT_EQ(driver_.Last<LeaseGrant>()->world_size, kAccelerators);
  EXPECT_EQ(At(job).resize_s, 2);
  EXPECT_EQ(At(job).failures_in_a_row, 0);
  EXPECT_EQ(Size(job), "grown to 4: 3 v100 idle, +4.1 steps/s");
}

TEST_F(ElasticJobs, ThatAreNotElasticStayAsTheyAre) {
  const JobId job = driver_.Submit("fixed", 1);
  Start(job);
  Report(job, 2);
  NextRound({job});
  EXPECT_EQ(At(job).world_size, 1);
  EXPECT_EQ(Size(job), "");
}

TEST_F(ElasticJobs, ShrinkForOneThatComesWithoutRest) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  NextRound({job});
  ASSERT_EQ(At(job).world_size, kAccelerators);
  const JobId other = driver_.Submit("other", 2);
  EXPECT_TRUE(At(other).assigned.empty());
  driver_.actions.clear();
  NextRound({job, other});
  EXPECT_EQ(At(job).world_size, 2);
  EXPECT_TRUE(Runs(job));
  EXPECT_TRUE(Runs(other));
  // Ranks 0 and 1 kept their processes.
  EXPECT_EQ(driver_.Count<LaunchWorker>(), 2);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->worker.job, other);
  for (const int gone : {2, 3}) {
    EXPECT_EQ(WorkerOf(job, gone).process, ProcessState::kNone);
  }
  EXPECT_EQ(Size(job), "shrunk to 2: no more v100 are free");
}

// Rank 0 ended with all its steps, and rank 1 did not, while the gang grew.
// When the gang shrinks to rank 0 alone, it has not come to its end.
TEST_F(ElasticEveryRound, ThatShrinkToWhoIsDoneRunOnceMore) {
  const JobId job = Submit("elastic", 1, 2, 3);
  Start(job);
  Report(job, 2);
  driver_.Gone(driver_.Key(job, 0), 0);
  ASSERT_EQ(WorkerOf(job, 0).process, ProcessState::kDone);
  NextRound({});
  ASSERT_EQ(At(job).world_size, 3);
  const JobId other = driver_.Submit("other", 3);
  NextRound({other});
  ASSERT_EQ(At(job).world_size, 1);
  NextRound({other});
  Obey(job);
  NextRound({job, other});
  EXPECT_TRUE(Runs(job));
  EXPECT_EQ(WorkerOf(job, 0).incarnation, 2u);
  driver_.Gone(driver_.Key(job, 0), 0);
  EXPECT_EQ(At(job).state, JobState::kFinished);
}

TEST_F(ElasticJobs, GrowAgainAfterTheirRest) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  NextRound({job});
  Report(job, 6);
  const JobId other = driver_.Submit("other", 2);
  NextRound({job, other});
  ASSERT_EQ(At(job).world_size, 2);
  Report(job, 4);
  const Time shrunk = At(job).resized_at;
  driver_.Step(event::JobCommanded{other, CommandKind::kCancel, 1});
  driver_.Gone(driver_.Key(other, 0), 75);
  driver_.Gone(driver_.Key(other, 1), 75);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(At(job).world_size, 2);
    NextRound({job});
  }
  if (At(job).world_size == 2) NextRound({job});
  EXPECT_EQ(At(job).world_size, kAccelerators);
  EXPECT_GE(At(job).resized_at, shrunk + 3 * kRound_s);
  EXPECT_TRUE(Runs(job));
}

TEST_F(ElasticEveryRound, GiveBackWhatMakesThemNotFaster) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  NextRound({job});
  ASSERT_EQ(At(job).world_size, kAccelerators);
  Report(job, 2.5);
  NextRound({job});
  EXPECT_EQ(At(job).world_size, 1);
  EXPECT_THAT(Size(job), HasSubstr("not faster by enough, 2.5 instead of 2"));
  for (int round = 0; round < 5; ++round) {
    NextRound({job});
    EXPECT_LT(At(job).world_size, kAccelerators) << "tried again";
  }
}

TEST_F(ElasticJobs, StartSmallerThanTheyAskedForRatherThanWait) {
  const JobId first = driver_.Submit("first", 3);
  Start(first);
  const JobId job = Submit("elastic", 1, 4, 4);
  EXPECT_EQ(At(job).assigned.size(), 1);
  Start(job);
  EXPECT_TRUE(Runs(job));
  EXPECT_EQ(Size(job), "shrunk to 1: no more v100 are free");
}

TEST_F(ElasticJobs, GoOnSmallerWhenAnAcceleratorIsLost) {
  const JobId job = Submit("elastic", 1, 4, 4);
  Start(job);
  ASSERT_EQ(At(job).world_size, 4);
  driver_.Step(event::AcceleratorLost{"here", "here-1"});
  Obey(job);
  EXPECT_EQ(At(job).assigned.size(), 3);
  Start(job);
  EXPECT_TRUE(Runs(job));
}

TEST_F(ElasticJobs, ThatDoNotComeTogetherGoBackToWhatTheyAskedFor) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  driver_.At(kRound_s);
  Obey(job);
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_EQ(At(job).assigned.size(), kAccelerators);
    for (int rank = 0; rank < kAccelerators; ++rank) {
      if (WorkerOf(job, rank).process == ProcessState::kLaunching) {
        driver_.Hello(driver_.Key(job, rank));
      }
    }
    driver_.Request(driver_.Key(job));
    driver_.GiveBack(driver_.Key(job), {}, ReleaseCause::kResumeFailed);
  }
  EXPECT_EQ(At(job).assigned.size(), 1);
  Obey(job);
  Start(job);
  EXPECT_TRUE(Runs(job));
  EXPECT_EQ(At(job).failed_starts, 0);
  EXPECT_THAT(Size(job), HasSubstr("with 4 of v100 it did not come together"));
  // A gang of fewer workers may still come together.
  for (int round = 0; round < 5 && At(job).world_size == 1; ++round) {
    NextRound({job});
    EXPECT_LT(At(job).world_size, kAccelerators);
  }
}

TEST_F(ElasticJobs, AreRefusedWhenNotEvenTheirLeastFits) {
  Submit("large", 5, 5, 8);
  EXPECT_THAT(driver_.LastReply(), HasSubstr("scale factor 5 fits on no"));
  EXPECT_EQ(driver_.engine().jobs().size(), 0);
  const JobId fits = Submit("fits", 2, 5, 8);
  EXPECT_EQ(driver_.LastReply(), "");
  EXPECT_EQ(At(fits).assigned.size(), kAccelerators);
}

// The job asked for more workers than there are accelerators, so the policy can
// give it nothing. It does not leave the job out on purpose.
TEST_F(ElasticJobs, ThatAskForMoreThanThereIsStartSmallerOnceThereIsRoom) {
  const JobId first = driver_.Submit("first", kAccelerators);
  Start(first);
  const JobId job = Submit("elastic", 2, kAccelerators + 1, 8);
  NextRound({first});
  EXPECT_TRUE(At(job).assigned.empty());
  for (int rank = 0; rank < kAccelerators; ++rank) {
    driver_.Gone(driver_.Key(first, rank), 0);
  }
  NextRound({job});
  EXPECT_EQ(At(job).assigned.size(), kAccelerators);
  Start(job);
  EXPECT_TRUE(Runs(job));
}

TEST_F(ElasticJobs, ARestartFindsTheSameSizes) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  NextRound({job});
  const JobId other = driver_.Submit("other", 2);
  NextRound({job, other});
  const Job before = At(job);
  driver_.Restart();
  EXPECT_EQ(At(job).scale_factor, before.scale_factor);
  EXPECT_EQ(At(job).world_size, before.world_size);
  EXPECT_EQ(At(job).assigned, before.assigned);
  EXPECT_EQ(At(job).resized_at, before.resized_at);
  EXPECT_EQ(At(job).resize_s, before.resize_s);
  EXPECT_EQ(RenderResize(At(job)), RenderResize(before));
  EXPECT_EQ(At(job).workers.size(), before.workers.size());
}

TEST_F(ElasticJobs, ThePolicyCountsWithWhatTheyAreGiven) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  NextRound({job});
  Report(job, 5);
  driver_.Submit("other", 1);
  EXPECT_EQ(driver_.problem.jobs.front().scale_factor, kAccelerators);
  EXPECT_EQ(driver_.problem.throughputs.front(), 5);
}

// Optimus (EuroSys'18), section 4: the policy itself says how many workers each
// job has.
class OptimusSizes : public ElasticJobs {
 protected:
  OptimusSizes() : ElasticJobs(1, "optimus") {}
};

TEST_F(OptimusSizes, AreThoseOfTheAssignment) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  NextRound({job});
  EXPECT_EQ(At(job).world_size, kAccelerators);
  EXPECT_EQ(Size(job), "sized to 4: the policy gives it so many workers");
  ASSERT_THAT(driver_.problem.sizes, SizeIs(1));
  EXPECT_EQ(driver_.problem.sizes[0].least, 1);
  EXPECT_THAT(driver_.problem.sizes[0].steps_per_s, SizeIs(kAccelerators));
}

TEST_F(OptimusSizes, ShrinkForAJobThatComes) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  NextRound({job});
  ASSERT_EQ(At(job).world_size, kAccelerators);
  Report(job, 5);
  const JobId other = Submit("other", 1, 1, kAccelerators);
  NextRound({job, other});
  NextRound({job, other});
  EXPECT_EQ(At(job).assigned.size() + At(other).assigned.size(), kAccelerators);
  EXPECT_GE(At(other).assigned.size(), 1);
  EXPECT_TRUE(Runs(job) && Runs(other));
  driver_.Restart();
  EXPECT_EQ(At(job).assigned.size() + At(other).assigned.size(), kAccelerators);
}

// The policy of this test gives one job nothing on purpose.
TEST_F(ElasticEveryRound, GrowWhereThePolicyLeavesAJobOut) {
  const JobId job = Submit("elastic", 1, 1, kAccelerators);
  Start(job);
  Report(job, 2);
  driver_.answer = [&](const PolicyProblem& problem) {
    PolicyResult result;
    result.outcome = SolveOutcome::kOptimal;
    result.allocation = Allocation::FromRows({{job, JobId()}}, 1, {1.0});
    EXPECT_EQ(problem.types.size(), 1);
    return result;
  };
  const JobId unwanted = driver_.Submit("unwanted", 1);
  NextRound({job});
  EXPECT_EQ(At(job).world_size, kAccelerators);
  EXPECT_TRUE(At(unwanted).assigned.empty());
  for (int round = 0; round < 3; ++round) NextRound({job});
  EXPECT_EQ(At(job).world_size, kAccelerators) << "shrunk for nobody";
}

}  // namespace
}  // namespace gavel
