#include "coordinator/engine/operators.h"
#include "coordinator/server/engine_runner.h"
#include "tests/server/busy_engine.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// An engine with two accelerators, and the facts that the log gets from it.
struct Logged {
  explicit Logged(const EngineOptions& options = BusyOptions())
      : busy(
            [this](const action::Persist& row, const Engine& engine) {
              for (Fact& fact : facts.Observe(*row.event, engine)) {
                lines.push_back(std::move(fact));
              }
            },
            options) {
    busy.Start(1);
    busy.AddAccelerators(2);
  }
  std::vector<std::string> With(const std::string& part) const {
    std::vector<std::string> found;
    for (const Fact& fact : lines) {
      if (fact.text.find(part) != std::string::npos) found.push_back(fact.text);
    }
    return found;
  }
  WorkerExited Exit() const {
    WorkerExited exit;
    exit.server = "v100-0";
    exit.worker = {JobId(1), 0,
                   busy.engine.jobs().at(JobId(1)).workers[0].incarnation};
    return exit;
  }

  ClusterFacts facts;
  std::vector<Fact> lines;
  BusyEngine busy;
};

TEST(ClusterFacts, AJobThatIsHeldIsToldOnceWithItsReason) {
  Logged logged;
  logged.busy.Submit("a");
  EXPECT_THAT(logged.With("submitted"),
              ElementsAre("job 1 \"a\" submitted by ada, scale factor 1"));
  for (int i = 0; i < 3; ++i) logged.busy.End(JobId(1), 0, 1);
  EXPECT_EQ(logged.With("job 1 rank 0 on v100-0 ended: exit code 1").size(),
            3U);
  EXPECT_THAT(logged.With("is held"),
              ElementsAre(HasSubstr("job 1 \"a\" is held: ")));
  logged.busy.Step(event::JobCommanded{JobId(1), CommandKind::kRelease});
  EXPECT_EQ(logged.With("job 1 \"a\" is released").size(), 1U);
}

TEST(ClusterFacts, AJobThatIsToWaitForOthersIsNotToldOfAsHeld) {
  Logged logged;
  logged.busy.Submit("a");
  for (const char* name : {"b", "c", "d"}) logged.busy.Submit(name);
  const JobId last(4);
  ASSERT_TRUE(logged.busy.engine.jobs().at(last).assigned.empty());
  event::JobUpdated updated{last, {}};
  updated.update.after_any = {"a"};
  logged.busy.Step(updated);
  ASSERT_TRUE(WaitsByItself(logged.busy.engine.jobs().at(last)));
  logged.busy.AddAccelerators(1, "k80");  // all jobs are looked at
  EXPECT_THAT(logged.With("waiting"), IsEmpty());
}

TEST(ClusterFacts, AnArrayHasALineOfItsOwnAndNotOneForEachElement) {
  Logged logged;
  JobSpec spec;
  spec.name = "lm";
  spec.argv = {"./train"};
  spec.owner = "ada";
  spec.array = "0-99%2";
  logged.busy.Step(event::JobSubmitted{spec, 1});
  EXPECT_THAT(
      logged.With("submitted"),
      ElementsAre("array 1 of 100 jobs \"lm\" submitted by ada, scale factor "
                  "1"));
  EXPECT_THAT(logged.With("is held"), IsEmpty());
  logged.busy.Step(event::JobCommanded{JobId(1), CommandKind::kHold});
  EXPECT_THAT(logged.With("array 1"), Contains("hold of 100 jobs of array 1"));
  EXPECT_THAT(logged.With("lm_5"), IsEmpty());
}

TEST(ClusterFacts, NothingThatAProgramWroteIsInTheLog) {
  Logged logged;
  logged.busy.Submit("a");
  for (int i = 0; i < 3; ++i) {
    WorkerExited exit = logged.Exit();
    exit.exit_code = 3;
    exit.error_line = "Error: password=hunter2";
    logged.busy.Step(event::WorkerGone{exit});
  }
  EXPECT_EQ(logged.With("exit code 3").size(), 4U);
  EXPECT_THAT(logged.With("hunter2"), IsEmpty());
}

TEST(ClusterFacts, AFailedStartIsToldWithItsReason) {
  Logged logged;
  logged.busy.Submit("a");
  WorkerExited exit = logged.Exit();
  exit.launch_error = "./train: no such file";
  logged.busy.Step(event::WorkerGone{exit});
  EXPECT_THAT(
      logged.With("failed to start"),
      ElementsAre(
          "job 1 rank 0 on v100-0 failed to start: ./train: no such file"));
  EXPECT_EQ(logged.With("is held").size(), 1U);
}

TEST(ClusterFacts, AStartThatItsOwnerCancelledHasNotFailed) {
  Logged logged;
  logged.busy.Submit("a");
  const WorkerExited exit = logged.Exit();
  WorkerLaunched launched;
  launched.server = "v100-0";
  launched.worker = exit.worker;
  logged.facts.Of(launched, logged.busy.engine);
  logged.busy.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  WorkerExited killed = exit;
  killed.signal = 15;
  logged.busy.Step(event::WorkerGone{killed});
  EXPECT_EQ(logged.With("failed to start").size(), 0U);
  EXPECT_EQ(logged.With("ended: killed by signal 15").size(), 1U);
}

TEST(ClusterFacts, AStartThatADrainEndedHasNotFailed) {
  Logged logged;
  logged.busy.launched_speak = false;
  logged.busy.Submit("a");
  WorkerExited exit = logged.Exit();
  WorkerLaunched launched;
  launched.server = "v100-0";
  launched.worker = exit.worker;
  logged.facts.Of(launched, logged.busy.engine);
  event::AcceleratorsDrained drained{"v100-0"};
  logged.busy.Step(drained);
  drained.drained = false;
  logged.busy.Step(drained);
  exit.signal = 15;
  exit.stopped = true;
  logged.busy.Step(event::WorkerGone{exit});
  EXPECT_THAT(logged.With("failed to start"), IsEmpty());
  EXPECT_EQ(logged.With("ended: killed by signal 15").size(), 1U);
}

TEST(ClusterFacts, ADrainIsToldWithItsReason) {
  Logged logged;
  event::AcceleratorsDrained drained{"v100-0", "v100-0-1"};
  logged.busy.Step(drained);
  drained.uuid = "v100-0-0";
  drained.why = "its memory had 3 uncorrectable errors";
  logged.busy.Step(drained);
  EXPECT_THAT(logged.With("drained"),
              ElementsAre("v100-0/v100-0-1 is drained by an operator",
                          "v100-0/v100-0-0 is drained: its memory had 3 "
                          "uncorrectable errors"));
}

TEST(ClusterFacts, AnAcceleratorThatHasNotFailedAfterAllIsTold) {
  Logged logged;
  logged.busy.Submit("a");
  logged.busy.Submit("b");
  logged.busy.Step(event::AcceleratorLost{"v100-0", "v100-0-0", JobId(1)});
  EXPECT_THAT(logged.With("job 1 says that it could not use"), SizeIs(1));
  EXPECT_THAT(logged.With("has failed"), IsEmpty());
  logged.busy.Step(event::AcceleratorLost{"v100-0", "v100-0-0", JobId(2)});
  EXPECT_THAT(logged.With("has failed"),
              ElementsAre(HasSubstr("as a second job says")));
  EXPECT_TRUE(logged.With("no longer").empty());
  logged.busy.Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  EXPECT_THAT(logged.With("no longer"),
              ElementsAre("accelerator v100-0-0 of server v100-0 counts as "
                          "failed no longer: jobs may get it"));
  logged.busy.Step(event::AcceleratorLost{"v100-0", "v100-0-1", {}});
  EXPECT_THAT(logged.With("v100-0-1 of server v100-0 has failed;"),
              ElementsAre(EndsWith("is started anew")));
}

TEST(ClusterFacts, ALostServerAndAnExpiredLeaseAreTold) {
  EngineOptions options = BusyOptions();
  options.agent_timeout_s = 15;
  options.lease_duration_s = 60;
  options.drift = EngineOptions().drift;
  Logged logged(options);
  logged.busy.Submit("a");
  logged.busy.now = 20;
  logged.busy.Step(event::Tick{});
  EXPECT_THAT(logged.With("server v100-0 is lost"),
              ElementsAre(HasSubstr("silent for 15 s; its 2 accelerators")));
  EXPECT_TRUE(logged.With("expired").empty());
  logged.busy.now = 100;
  logged.busy.Step(event::Tick{});
  EXPECT_THAT(logged.With("expired"),
              ElementsAre(HasSubstr(
                  "job 1 rank 0: its lease on v100-0-0 of server v100-0")));
}

// Launches are repeated every few seconds until the program says hello.
TEST(ClusterFacts, AStartingWorkerIsToldOnce) {
  Logged logged;
  logged.busy.Submit("a");
  WorkerLaunched launched;
  launched.server = "v100-0";
  launched.worker = logged.Exit().worker;
  launched.pid = 7;
  const auto first = logged.facts.Of(launched, logged.busy.engine);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->text, "job 1 rank 0: process 7 on v100-0");
  EXPECT_FALSE(logged.facts.Of(launched, logged.busy.engine).has_value());
  // There is no such worker, so there is nothing to remember.
  launched.worker.incarnation += 100;
  EXPECT_FALSE(logged.facts.Of(launched, logged.busy.engine).has_value());
}

TEST(ClusterFacts, AFailedDeviceAndARefusedAgentAreTold) {
  Logged logged;
  logged.busy.Step(event::AcceleratorLost{"v100-0", "v100-0-1"});
  EXPECT_THAT(logged.With("has failed"),
              ElementsAre(HasSubstr("accelerator v100-0-1 of server v100-0")));
  AgentRejected rejected;
  rejected.server = "b";
  rejected.reason = "another agent has this name";
  EXPECT_EQ(ClusterFacts::Of(rejected).text,
            "agent b is refused: another agent has this name");
}

}  // namespace
}  // namespace gavel::testing
