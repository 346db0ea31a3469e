// `gavel local`, end to end, with workers that train nothing.
#include <csignal>

#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

class LocalTest : public GavelTest {};

TEST_F(LocalTest, ThreeJobsTakeTurnsOnTwoSlotsAndFinish) {
  WriteCluster(2, 0.6, 0.5);
  std::vector<std::string> jobs;
  for (const char* name : {"one", "two", "three"}) {
    jobs.push_back(WriteJob(name, {"--steps", "250", "--step-ms", "8"}));
  }
  const Ended local = RunLocal(jobs);
  EXPECT_EQ(local.exit_code, 0) << local.errors;
  EXPECT_THAT(local.output, HasSubstr("job 1 one: running on here-"));
  EXPECT_THAT(local.output, HasSubstr("NODELIST(REASON)"));
  const Json summary = Summary();
  EXPECT_GE(summary["rounds"], 3);
  ASSERT_EQ(summary["jobs"].size(), 3);
  int pauses = 0;
  for (const Json& job : summary["jobs"]) {
    EXPECT_EQ(job["state"], "finished");
    EXPECT_EQ(job["steps"], 250);
    EXPECT_EQ(job["final_generation"]["step"], 250);
    EXPECT_FALSE(job["accelerators_used"].empty());
    EXPECT_NEAR(job["scalars"]["loss"], 1.0 / 251, 1e-9);
    pauses += job["pauses"].get<int>();
    ExpectEachStepOnce(job["name"], 250);
    EXPECT_THAT(LogOf(job["id"]), HasSubstr("on 1 threads"));
  }
  EXPECT_GE(pauses, 1);
}

TEST_F(LocalTest, AKilledWorkerGoesOnFromItsLastGeneration) {
  WriteCluster(1, 10, 5);
  const auto local = StartLocal(
      {WriteJob("victim", {"--steps", "300", "--checkpoint-every", "7"})});
  const std::string endpoint = EndpointOf(*local);
  ASSERT_TRUE(ReachesStep(endpoint, "victim", 60));
  ASSERT_EQ(WorkerPids().size(), 1);
  kill(WorkerPids().front(), SIGKILL);
  EXPECT_EQ(local->Wait(), 0) << local->errors();
  EXPECT_EQ(Summary()["jobs"][0]["steps"], 300);
  ExpectEachStepOnce("victim", 300);
  const std::string log = LogOf(1);
  EXPECT_EQ(Count(log, "starts at step 0 "), 1) << log;
  EXPECT_EQ(Count(log, "starts at step "), 2) << log;
}

TEST_F(LocalTest, CtrlCEndsInOrderAndTheSameCommandGoesOn) {
  WriteCluster(1, 10, 5);
  const std::string job = WriteJob("long", {"--steps", "200"});
  {
    const auto local = StartLocal({job});
    ASSERT_TRUE(ReachesStep(EndpointOf(*local), "long", 20));
    const std::vector<pid_t> pids = WorkerPids();
    local->Signal(SIGINT);
    EXPECT_EQ(local->Wait(), 1);
    EXPECT_THAT(local->errors(), HasSubstr("stopped before all jobs ended"));
    for (const pid_t pid : pids) EXPECT_FALSE(IsAlive(pid));
    EXPECT_THAT(LogOf(1), HasSubstr("ends with 75"));
  }
  const Ended again = RunLocal({job});
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("job long goes on as job 1"));
  ExpectEachStepOnce("long", 200);
}

TEST_F(LocalTest, AJobThatExitsNonZeroThreeTimesIsHeldWithTheReason) {
  WriteCluster(1, 10, 5);
  const Ended local = RunLocal({WriteJob("broken", {"--exit-at", "5", "3"})});
  EXPECT_EQ(local.exit_code, 1);
  EXPECT_THAT(local.errors, AllOf(HasSubstr("job 1 broken"), HasSubstr("3"),
                                  HasSubstr("gavel release")));
  EXPECT_EQ(Summary()["jobs"][0]["state"], "held");
  EXPECT_EQ(Count(LogOf(1), "starts at step"), 3);
}

TEST_F(LocalTest, ACommandThatIsNotThereHoldsItsJobAndNoOther) {
  WriteCluster(1, 2, 1);
  const Ended local = RunLocal({WriteCommand("lost", {"./no_such_program"}),
                                WriteCommand("lost2", {"no_such_program"}),
                                WriteJob("fine", {"--steps", "20"})});
  EXPECT_EQ(local.exit_code, 1);
  EXPECT_THAT(local.errors,
              AllOf(HasSubstr("./no_such_program: no such file or directory; "
                              "give an absolute path"),
                    HasSubstr(folder()),
                    HasSubstr("no_such_program: not found in PATH")));
  EXPECT_EQ(Summary()["jobs"][0]["state"], "held");
  EXPECT_EQ(Summary()["jobs"][1]["state"], "held");
  EXPECT_EQ(Summary()["jobs"][2]["state"], "finished");
}

TEST_F(LocalTest, AProgramThatNeverSpeaksIsHeldAndTold) {
  WriteCluster(1, 10, 5);
  const auto local =
      StartLocal({WriteCommand("mute", {"sleep", "1000"},
                               "retries_max = 2\nstart_timeout_s = 0.3\n")},
                 {"--stop-grace", "0.3"});
  EXPECT_EQ(local->Wait(), 1);
  EXPECT_THAT(local->errors(),
              HasSubstr("does not link the runtime; set class = \"opaque\""));
  EXPECT_EQ(Summary()["jobs"][0]["state"], "held");
}

TEST_F(LocalTest, AWorkerThatIgnoresPausesIsEndedForTheOthers) {
  WriteCluster(1, 1, 0.5);
  const auto local = StartLocal(
      {WriteJob("stubborn", {"--steps", "100000", "--ignore-pauses"}),
       WriteJob("polite", {"--steps", "50"})},
      {"--pause-grace", "0.5", "--stop-grace", "0.3"});
  const std::string endpoint = EndpointOf(*local);
  EXPECT_TRUE(ReachesState(endpoint, "polite", "CD")) << local->output();
  local->Signal(SIGTERM);
  EXPECT_EQ(local->Wait(), 1);
  EXPECT_THAT(WorkerPids(), ::testing::IsEmpty());
}

TEST_F(LocalTest, AGangRunsAllItsWorkersAtOnce) {
  WriteCluster(2, 10, 5);
  const Ended local =
      RunLocal({WriteJob("pair", {"--steps", "30"}, "scale_factor = 2\n")});
  EXPECT_EQ(local.exit_code, 0) << local.errors;
  EXPECT_EQ(Summary()["jobs"][0]["accelerators_used"].size(), 2);
  EXPECT_FALSE(LogOf(1, /*rank=*/1).empty());
}

TEST_F(LocalTest, WhatOthersAskIsAnswered) {
  WriteCluster(2, 10, 5);
  const auto local = StartLocal({WriteJob("asked", {"--steps", "100000"}),
                                 WriteJob("second", {"--steps", "100000"})});
  const std::string endpoint = EndpointOf(*local);
  const auto ask = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--coordinator", endpoint});
    const Ended ended = Run(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    return ended.output;
  };
  ASSERT_TRUE(ReachesStep(endpoint, "asked", 10));
  EXPECT_THAT(ask({"queue"}), AllOf(HasSubstr("JOBID"), HasSubstr("asked"),
                                    HasSubstr("here-")));
  EXPECT_THAT(ask({"nodes"}), AllOf(HasSubstr("here"), HasSubstr("allocated")));
  EXPECT_THAT(ask({"status"}), HasSubstr("max_min_fairness_perf"));
  EXPECT_THAT(ask({"why", "asked"}), HasSubstr("job 1 asked: "));
  EXPECT_THAT(ask({"logs", "asked"}), HasSubstr("starts at step 0"));
  for (const char* query : {"queue", "nodes", "status"}) {
    EXPECT_FALSE(
        Json::parse(ask({query, "--json"}), nullptr, false).is_discarded());
  }
  EXPECT_THAT(ask({"cancel", "asked"}), HasSubstr("Cancelled job 1"));
  EXPECT_TRUE(ReachesState(endpoint, "asked", "CA"));
  const Ended followed = Run({"logs", "-f", "1", "--coordinator", endpoint});
  EXPECT_THAT(followed.output, HasSubstr("starts at step 0"));
  EXPECT_EQ(followed.exit_code, 1);
  EXPECT_THAT(followed.errors, HasSubstr("cancelled by its user"));
  EXPECT_THAT(ask({"logs", "--json", "1"}),
              HasSubstr("{\"offset\":0,\"data\":\"starts"));
  ask({"cancel", "second"});
  EXPECT_EQ(local->Wait(), 1);
  EXPECT_THAT(local->errors(), HasSubstr("cancelled"));
}

}  // namespace
}  // namespace gavel::testing
