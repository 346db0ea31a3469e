// Runs coordinator and agent as processes of their own, with keys, and kills
// one of them.
#include <csignal>

#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

class KillTest : public GavelClusterTest {
 protected:
  void SetUp() override { UseKeys({"here"}); }
};

TEST_F(KillTest, AKilledAgentLeavesNoOrphansAndTheNextOneSweeps) {
  WriteCluster(1, 10, 5);
  StartCoordinator();
  auto agent = StartAgent({"--stop-grace", "5"});
  // The worker leaves one child in its group, which no signal of the kernel
  // ends, and one in a session of its own.
  const std::string program = FakeWorker();
  Submit(
      WriteCommand("job", {"/bin/sh", "-c",
                           "sleep 1000 & echo $! > " + JobPath("child") +
                               "; setsid sh -c 'echo $$ > " + JobPath("apart") +
                               "; exec sleep 1000' & exec " + program +
                               " --steps 200 --step-ms 5"}));
  ASSERT_TRUE(ReachesStep(endpoint_, "job", 20));
  const std::vector<pid_t> workers = WorkerPids();
  ASSERT_EQ(workers.size(), 1);
  const pid_t child = std::stoi(ReadText(JobPath("child")));
  const pid_t apart = std::stoi(ReadText(JobPath("apart")));
  EXPECT_TRUE(IsAlive(child));
  EXPECT_TRUE(IsAlive(apart));

  agent->Signal(SIGKILL);
  EXPECT_EQ(agent->Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !IsAlive(workers[0]); }, 5));

  agent = StartAgent({"--stop-grace", "5"});
  EXPECT_TRUE(Eventually([&] { return !IsAlive(child) && !IsAlive(apart); }));
  EXPECT_TRUE(ReachesState(endpoint_, "job", "CD"));
  EXPECT_THAT(agent->errors(), HasSubstr("left by the last"));
  EXPECT_THAT(ReadText(state() + "/agent-here.incarnation"), StartsWith("2 "));
  ExpectEachStepOnce("job", 200);
  EXPECT_EQ(QueueRow(endpoint_, "job")["failures_in_a_row"], 0);
}

TEST_F(KillTest, WorkersTrainToTheLeasesEndWithoutTheirCoordinator) {
  WriteCluster(1, 4, 2);
  StartCoordinator();
  const auto agent = StartAgent({"--stop-grace", "5"});
  Submit(WriteJob("job", {"--steps", "600"}));
  ASSERT_TRUE(ReachesStep(endpoint_, "job", 30));
  const std::vector<pid_t> workers = WorkerPids();
  ASSERT_EQ(workers.size(), 1);

  KillCoordinator();
  EXPECT_TRUE(Eventually([&] {
    return LogOf(1).find("lease ended") != std::string::npos;
  })) << LogOf(1);
  EXPECT_TRUE(IsAlive(workers[0]));

  StartCoordinator();
  EXPECT_TRUE(ReachesState(endpoint_, "job", "CD"));
  ExpectEachStepOnce("job", 600);
  // The same process continued.
  EXPECT_EQ(Count(LogOf(1), "starts at step"), 1);
}

// Workers get the expected time between failures when they start, and it
// survives a restart of the coordinator.
TEST_F(KillTest, AKilledWorkerTellsHowOftenWorkersFail) {
  WriteCluster(1, 30, 5);
  StartCoordinator();
  const auto agent = StartAgent({"--stop-grace", "5"});
  const std::string program = FakeWorker();
  const auto command = [&](const std::string& name, const std::string& keys) {
    return WriteCommand(name,
                        {"/bin/sh", "-c",
                         "echo every $GAVEL_FAILURE_INTERVAL_S s; exec " +
                             program + " --steps 300"},
                        keys);
  };
  Submit(command("job", ""));
  ASSERT_TRUE(ReachesStep(endpoint_, "job", 30));
  EXPECT_THAT(LogOf(1), HasSubstr("every 21600 s"));
  kill(WorkerPids().at(0), SIGKILL);
  EXPECT_TRUE(ReachesState(endpoint_, "job", "CD"));
  // The value is half the sum of six hours and the time that the worker had
  // run.
  EXPECT_THAT(LogOf(1), HasSubstr("every 1080"));
  const std::string lost =
      "workers lost: 1 in 0.00 hours; one is expected to "
      "fail every 3.00 hours";
  EXPECT_THAT(Do({"status"}).output, HasSubstr(lost));
  KillCoordinator();
  StartCoordinator();
  EXPECT_THAT(Do({"status"}).output, HasSubstr(lost));
  // A job's own value wins.
  const std::string own =
      command("own", "[environment]\nGAVEL_FAILURE_INTERVAL_S = \"77\"\n");
  Submit(own);
  EXPECT_TRUE(ReachesState(endpoint_, "own", "CD"));
  EXPECT_THAT(LogOf(2), HasSubstr("every 77 s"));
}

TEST_F(KillTest, ASecondAgentOfTheSameNameIsRefused) {
  WriteCluster(1, 10, 5);
  StartCoordinator();
  const auto agent = StartAgent({"--stop-grace", "5"});
  ASSERT_TRUE(HasIdleAccelerators(endpoint_));
  const auto second = StartAgent({"--stop-grace", "5"});
  EXPECT_EQ(second->Wait(), 3);
  EXPECT_THAT(second->errors(),
              HasSubstr("an agent of server \"here\" already runs here"));
  EXPECT_THAT(second->errors(), HasSubstr(std::to_string(agent->pid())));
}

}  // namespace
}  // namespace gavel::testing
