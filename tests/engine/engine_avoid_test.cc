// Accelerators that a job goes to again only where there is no other.

#include "coordinator/engine/failures.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class Avoids : public ::testing::Test {
 protected:
  void Make(const std::string& policy) {
    driver_ = std::make_unique<EngineDriver>(2, policy);
  }
  AcceleratorId PlaceOf(JobId job) const {
    const auto& assigned = driver_->job(job).assigned;
    return assigned.empty() ? AcceleratorId() : assigned.front();
  }
  std::string ServerOf(JobId job) const {
    return driver_->engine().cluster().accelerator(PlaceOf(job)).server;
  }
  void Fail(JobId job) {
    WorkerExited exit = driver_->ExitOf(job);
    exit.exit_code = 1;
    driver_->Step(event::WorkerGone{exit});
  }
  void FindNoRoom(JobId job) {
    driver_->GiveBack(driver_->Key(job), {}, ReleaseCause::kNoRoom);
  }

  std::unique_ptr<EngineDriver> driver_ =
      std::make_unique<EngineDriver>(2, "fifo");
  const AcceleratorId first_{1};
  const AcceleratorId second_{2};
};

TEST_F(Avoids, AJobWhoseProcessFailedStartsOnAnother) {
  const JobId job = driver_->Submit("a");
  driver_->Run(job);
  ASSERT_EQ(PlaceOf(job), first_);
  Fail(job);
  EXPECT_EQ(PlaceOf(job), second_);
  EXPECT_EQ(driver_->job(job).failures_in_a_row, 1);
  driver_->Run(job);
  EXPECT_EQ(driver_->worker(job).held, second_);
}

TEST_F(Avoids, WhereThereIsNoOtherItIsTriedAgain) {
  const JobId job = driver_->Submit("a");
  driver_->Run(job);
  driver_->Run(driver_->Submit("b"));
  Fail(job);
  EXPECT_EQ(PlaceOf(job), first_);
  EXPECT_EQ(driver_->worker(job).process, ProcessState::kLaunching);
  Fail(job);
  Fail(job);
  EXPECT_EQ(driver_->job(job).state, JobState::kHeld);
}

TEST_F(Avoids, AProcessThatFailsBeforeItsFirstLeaseBlamesTheServer) {
  driver_->JoinServer("there", 1);
  const JobId job = driver_->Submit("a");
  ASSERT_EQ(ServerOf(job), "here");
  Fail(job);
  EXPECT_EQ(ServerOf(job), "there");
}

TEST_F(Avoids, ASecondFailureOnAServerBlamesTheServer) {
  Make("fifo");
  driver_->JoinServer("here", 2);
  const JobId job = driver_->Submit("a");
  driver_->Run(job);
  Fail(job);
  ASSERT_EQ(PlaceOf(job), second_);
  driver_->Run(job);
  driver_->JoinServer("there", 1);
  Fail(job);
  EXPECT_EQ(ServerOf(job), "there");
}

TEST_F(Avoids, OneThatFoundNoRoomGoesToTheIdleOneBesideIt) {
  const JobId job = driver_->Submit("a");
  driver_->Run(job);
  FindNoRoom(job);
  EXPECT_EQ(PlaceOf(job), second_);
  EXPECT_EQ(driver_->job(job).failures_in_a_row, 0);
}

// The policy gives shares: at the end of the round it moves.
TEST_F(Avoids, IsLeftAsSoonAsAnotherIsIdleAlsoAfterARestart) {
  Make("max_min_fairness");
  const JobId job = driver_->Submit("a");
  const JobId other = driver_->Submit("b");
  driver_->Run(job);
  driver_->Run(other);
  const AcceleratorId place = PlaceOf(job);
  FindNoRoom(job);
  ASSERT_EQ(PlaceOf(job), place);
  driver_->Restart();
  driver_->Step(event::JobCommanded{other, CommandKind::kCancel, 1});
  driver_->Gone(driver_->Key(other), 0);
  driver_->EndRound();
  EXPECT_TRUE(PlaceOf(job).valid());
  EXPECT_NE(PlaceOf(job), place);
}

TEST_F(Avoids, AServerThatItsFileExcludesIsNeverUsed) {
  driver_->JoinServer("there", 1);
  JobSpec spec;
  spec.exclude_servers = {"here"};
  const JobId job = driver_->Submit("a", 1, spec);
  EXPECT_EQ(ServerOf(job), "there");
  spec.exclude_servers.clear();
  spec.servers = {"there"};
  const JobId other = driver_->Submit("b", 1, spec);
  EXPECT_EQ(ServerOf(other), "there");
  // The other accelerators stay idle, also after a restart and a failure.
  const JobId third = driver_->Submit("c", 1, spec);
  EXPECT_FALSE(PlaceOf(third).valid());
  driver_->Restart();
  driver_->Run(job);
  Fail(job);
  driver_->Step(event::Tick{});
  EXPECT_NE(ServerOf(job), "here");
  EXPECT_FALSE(PlaceOf(third).valid());
  driver_->JoinServer("elsewhere", 1);
  EXPECT_FALSE(PlaceOf(third).valid()) << "a server that joined later";
}

TEST_F(Avoids, AJobWhoseServersHaveTooFewAcceleratorsSaysSo) {
  JobSpec spec;
  spec.servers = {"there"};
  const JobId job = driver_->Submit("a", 2, spec);
  EXPECT_FALSE(PlaceOf(job).valid());
  EXPECT_EQ(RenderReason(driver_->engine().Why(job, driver_->now)),
            "waiting: the servers that its file lets it have (there) have not "
            "2 accelerators in reach of a type that it can use; `gavel nodes` "
            "lists them");
  driver_->JoinServer("there", 1);
  EXPECT_EQ(ServerOf(job), "there");
}

TEST_F(Avoids, ADrainedServerThatItsFileExcludesIsNotNamed) {
  driver_->JoinServer("there", 1);
  for (const char* server : {"here", "there"}) {
    driver_->Step(event::AcceleratorsDrained{server});
  }
  JobSpec spec;
  spec.servers = {"there"};
  const JobId job = driver_->Submit("a", 1, spec);
  EXPECT_THAT(driver_->Why(job), AllOf(HasSubstr("v100 of there"),
                                       Not(HasSubstr("here and there"))));
}

// The policy chooses a type, and does not see that another job has the only
// server of it that this job may have.
TEST_F(Avoids, AJobRunsOnAnotherTypeWhileItsOwnIsFreeOnExcludedServersOnly) {
  driver_ = std::make_unique<EngineDriver>(1, "fifo_perf");
  JobSpec spec;
  spec.throughputs = {{"v100", 10}, {"p100", 5}};
  const JobId first = driver_->Submit("a", 1, spec);
  driver_->Run(first);
  ASSERT_EQ(ServerOf(first), "here");
  driver_->JoinServer("there", 1);
  driver_->Step(event::ServerJoined{EngineDriver::HelloOf("slow", "p100")});
  spec.exclude_servers = {"there"};
  const JobId job = driver_->Submit("b", 1, spec);
  ASSERT_TRUE(PlaceOf(job).valid())
      << RenderReason(driver_->engine().Why(job, driver_->now));
  EXPECT_EQ(ServerOf(job), "slow");
  // So does the next one when that server is free again.
  const JobId next = driver_->Submit("c", 1, spec);
  EXPECT_FALSE(PlaceOf(next).valid());
  driver_->Step(event::JobCommanded{job, CommandKind::kCancel, 1});
  driver_->Gone(driver_->Key(job), 0);
  EXPECT_EQ(ServerOf(next), "slow");
}

// A gang that grows takes no accelerator of another server.
TEST_F(Avoids, AnElasticJobGrowsOnItsServersOnly) {
  driver_->JoinServer("there", 1);
  JobSpec spec;
  spec.servers = {"there"};
  spec.scale_factor_min = 1;
  spec.scale_factor_max = 4;
  spec.throughputs = {{"v100", 10}};
  const JobId job = driver_->Submit("a", 1, spec);
  for (int i = 0; i < 3; ++i) driver_->EndRound();
  EXPECT_LE(driver_->job(job).assigned.size(), 2u);
  for (const AcceleratorId id : driver_->job(job).assigned) {
    EXPECT_EQ(driver_->engine().cluster().accelerator(id).server, "there");
  }
}

TEST(Avoidance, EndsInTimeAtAGoodEndAndWithTheJob) {
  Cluster cluster;
  AcceleratorInfo info;
  info.type = "v100";
  info.uuid = "gpu-0";
  ASSERT_OK(cluster.Join("here", {info}));
  engine::Avoidance avoidance(cluster);
  const JobId job(7);
  const AcceleratorId where(1);
  constexpr double kTime_s = engine::Avoidance::kAvoid_s;
  avoidance.Avoid(0, job, where);
  EXPECT_TRUE(avoidance.Avoids(kTime_s - 1, job, where));
  EXPECT_FALSE(avoidance.Avoids(kTime_s, job, where));
  EXPECT_THAT(avoidance.At(kTime_s), IsEmpty());
  EXPECT_FALSE(avoidance.IsKeptOut(job));
  avoidance.NoteGoodEnd(job, where);
  EXPECT_FALSE(avoidance.Avoids(1, job, where));
  avoidance.Avoid(0, job, where);
  avoidance.Forget(job);
  EXPECT_FALSE(avoidance.any());
}

TEST(Avoidance, KeepsAJobOutUntilItIsForgotten) {
  Cluster cluster;
  AcceleratorInfo info;
  info.type = "v100";
  info.uuid = "gpu-0";
  ASSERT_OK(cluster.Join("here", {info}));
  engine::Avoidance avoidance(cluster);
  const JobId job(7);
  const AcceleratorId where(1);
  avoidance.KeepOut(job, where);
  avoidance.Avoid(0, job, where);
  avoidance.NoteGoodEnd(job, where);
  EXPECT_TRUE(avoidance.Avoids(1e9, job, where));
  EXPECT_TRUE(avoidance.IsKeptOut(job));
  EXPECT_EQ(avoidance.CountLeft(job, 0), 0);
  EXPECT_EQ(avoidance.CountLeft(JobId(8), 0), 1);
  avoidance.Forget(where);
  EXPECT_FALSE(avoidance.any());
}

TEST(Avoidance, CountsTheFreeAcceleratorsThatAJobMayHave) {
  Cluster cluster;
  std::vector<AcceleratorInfo> infos(3);
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].type = "v100";
    infos[i].uuid = StrCat("gpu-", i);
  }
  ASSERT_OK(cluster.Join("here", infos));
  engine::Avoidance avoidance(cluster);
  engine::Changes changes;
  engine::AssignedAccelerators assigned(cluster, changes);
  assigned.Recount();
  const JobId job(7);
  EXPECT_EQ(avoidance.CountFree(job, 0, assigned), 3);
  avoidance.SetBarred(job, {AcceleratorId(1)});
  avoidance.KeepOut(job, AcceleratorId(1));
  avoidance.KeepOut(job, AcceleratorId(2));
  EXPECT_EQ(avoidance.CountFree(job, 0, assigned), 1);
  EXPECT_EQ(avoidance.CountFree(JobId(8), 0, assigned), 3);
  assigned.Add(AcceleratorId(2), JobId(8));
  EXPECT_EQ(avoidance.CountFree(job, 0, assigned), 1);
  assigned.Add(AcceleratorId(3), JobId(8));
  EXPECT_EQ(avoidance.CountFree(job, 0, assigned), 0);
}

}  // namespace
}  // namespace gavel
