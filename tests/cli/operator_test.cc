// What operators type while a cluster runs, with real processes.
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class OperatorTest : public GavelTest {
 protected:
  void StartCluster(int slots, const std::string& policy = "fifo") {
    WriteCluster(slots, 30, 20);
    policy_ = policy;
    StartCoordinator();
    agent_ = StartAgent(endpoint_, {"--jobs-as-root"});
    ASSERT_TRUE(HasIdleAccelerators(endpoint_));
  }
  void StartCoordinator() {
    coordinator_ =
        Start({"coordinator", "--listen", listen_, "--state", state(),
               "--cluster", Path("cluster.toml"), "--policy", policy_});
    endpoint_ = EndpointOf(*coordinator_);
    listen_ = endpoint_;
  }
  Ended Do(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--coordinator", endpoint_});
    return Run(arguments);
  }
  void Submit(const std::string& name, const std::string& steps = "100000") {
    const Ended submitted = Do({"submit", WriteJob(name, {"--steps", steps})});
    ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  }
  json Json(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const Ended ended = Do(std::move(arguments));
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    return json::parse(ended.output, nullptr, false);
  }
  std::string NodeState() {
    const json nodes = Json({"nodes"});
    return nodes.empty() ? "" : nodes[0].value("state", "");
  }
  std::string AcceleratorState() {
    const json nodes = Json({"nodes"});
    return nodes.empty() ? "" : nodes[0]["accelerators"][0].value("state", "");
  }
  std::string Why(const std::string& job) {
    return Json({"why", job}).value("reason", "");
  }

  std::string policy_;
  std::string listen_ = "tcp://127.0.0.1:0";
  std::string endpoint_;
  std::unique_ptr<Process> coordinator_;
  std::unique_ptr<Process> agent_;
};

TEST_F(OperatorTest, DrainLetsJobsLeaveAndResumeGivesTheServerBack) {
  StartCluster(1);
  Submit("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  const Ended drained = Do({"drain", "here"});
  EXPECT_EQ(drained.exit_code, 0) << drained.errors;
  EXPECT_THAT(drained.output, HasSubstr("here"));
  EXPECT_TRUE(Eventually([&] { return NodeState() == "drained"; }));
  EXPECT_THAT(Why("a"), HasSubstr("drained"));
  EXPECT_EQ(Count(LogOf(1), "pauses at step"), 1) << "nobody is killed";
  EXPECT_EQ(Do({"resume", "here"}).exit_code, 0);
  const uint64_t step = QueueRow(endpoint_, "a").value("steps_done", 0);
  EXPECT_TRUE(ReachesStep(endpoint_, "a", step + 20));
  const Ended again = Do({"resume", "here"});
  EXPECT_NE(again.exit_code, 0);
  EXPECT_THAT(again.errors, HasSubstr("is not drained"));
}

TEST_F(OperatorTest, AgentThatGetsSigtermIsDrainedFirstAndThenDown) {
  StartCluster(1);
  Submit("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  agent_->Signal(SIGTERM);
  EXPECT_EQ(agent_->Wait(), 0);
  EXPECT_EQ(Count(LogOf(1), "ended by the coordinator"), 1) << LogOf(1);
  // At once: not after the time in which a silent agent is given up.
  EXPECT_EQ(NodeState(), "down");
  EXPECT_EQ(AcceleratorState(), "down");
  agent_ = StartAgent(endpoint_, {"--jobs-as-root"});
  EXPECT_TRUE(ReachesState(endpoint_, "a", "R"));
  EXPECT_GE(CheckpointOf("a").steps, 20u);
}

TEST_F(OperatorTest, HoldRequeueAndCheckpointKeepEveryStep) {
  StartCluster(1);
  Submit("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  EXPECT_EQ(Do({"checkpoint", "a"}).exit_code, 0);
  EXPECT_TRUE(
      Eventually([&] { return Count(LogOf(1), "checkpoint at step") == 1; }));
  EXPECT_EQ(Do({"hold", "a"}).exit_code, 0);
  EXPECT_TRUE(ReachesState(endpoint_, "a", "F"));
  EXPECT_THAT(Why("a"), HasSubstr("`gavel hold`"));
  const Ended refused = Do({"checkpoint", "a"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.errors, HasSubstr("is held"));
  EXPECT_EQ(Do({"release", "a"}).exit_code, 0);
  EXPECT_TRUE(ReachesState(endpoint_, "a", "R"));
  EXPECT_EQ(Do({"requeue", "a"}).exit_code, 0);
  EXPECT_TRUE(
      Eventually([&] { return Count(LogOf(1), "starts at step") == 3; }));

  const std::string audit = ReadText(state() + "/audit.log");
  for (const char* action : {"hold", "requeue", "checkpoint", "release"}) {
    EXPECT_THAT(audit, HasSubstr(action));
  }
}

TEST_F(OperatorTest, UpdateHasTheBoundsOfASubmission) {
  StartCluster(1);
  Submit("a");
  EXPECT_EQ(Do({"update", "a", "--weight", "2", "--deadline", "500"}).exit_code,
            0);
  const Ended heavy = Do({"update", "a", "--weight", "1e9"});
  EXPECT_NE(heavy.exit_code, 0);
  EXPECT_THAT(heavy.errors, HasSubstr("weight"));
  EXPECT_THAT(Do({"update", "a", "--weight", "-1"}).errors,
              ::testing::StartsWith("gavel: weight"));
  const Ended few = Do({"update", "a", "--scale-factor-min", "4"});
  EXPECT_NE(few.exit_code, 0);
  EXPECT_THAT(few.errors, HasSubstr("exceeds scale_factor"));
  const Ended type = Do({"update", "a", "--types", "h900"});
  EXPECT_NE(type.exit_code, 0);
  EXPECT_THAT(type.errors, HasSubstr("no type \"h900\""));
  const Ended nothing = Do({"update", "a"});
  EXPECT_NE(nothing.exit_code, 0);
  EXPECT_THAT(nothing.errors, HasSubstr("nothing is to be changed"));
}

TEST_F(OperatorTest, PolicyIsShownPreviewedSetAndSurvivesARestart) {
  StartCluster(2);
  Submit("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 20));
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "fifo");
  const json preview = Json({"policy", "max_min_fairness", "--preview"});
  ASSERT_EQ(preview["jobs"].size(), 1u);
  EXPECT_GT(preview["jobs"][0].value("share_then", 0.0), 0.9);
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "fifo");
  EXPECT_EQ(Do({"policy", "max_min_fairness"}).exit_code, 0);
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "max_min_fairness");
  coordinator_->Signal(SIGKILL);
  EXPECT_EQ(coordinator_->Wait(), -SIGKILL);
  StartCoordinator();
  EXPECT_EQ(Json({"policy"}).value("policy", ""), "max_min_fairness");
  EXPECT_TRUE(ReachesStep(endpoint_, "a", 40));
  EXPECT_EQ(Count(LogOf(1), "pauses at step"), 0) << "it was kept";
  const Ended unknown = Do({"policy", "no_such_policy"});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.errors, HasSubstr("no_such_policy"));
  const Ended same = Do({"policy", "max_min_fairness"});
  EXPECT_NE(same.exit_code, 0);
  EXPECT_THAT(same.errors, HasSubstr("decides already"));
}

TEST_F(OperatorTest, NodesForgetRemovesAServerThatIsGone) {
  StartCluster(1);
  const Ended there = Do({"nodes", "--forget", "here"});
  EXPECT_NE(there.exit_code, 0);
  EXPECT_THAT(there.errors, HasSubstr("server here is there"));
  agent_->Signal(SIGTERM);
  EXPECT_EQ(agent_->Wait(), 0);
  const Ended forgotten = Do({"nodes", "--forget", "here"});
  EXPECT_EQ(forgotten.exit_code, 0) << forgotten.errors;
  EXPECT_TRUE(Json({"nodes"}).empty());
}

TEST_F(OperatorTest, UsageTellsHoursUsedAndEntitled) {
  WriteCluster(1, 2, 1);
  policy_ = "max_min_fairness";
  StartCoordinator();
  agent_ = StartAgent(endpoint_, {"--jobs-as-root"});
  Submit("a");
  ASSERT_TRUE(ReachesStep(endpoint_, "a", 400));
  const json usage = Json({"usage", "--since", "1h"});
  ASSERT_EQ(usage["users"].size(), 1u) << usage;
  EXPECT_GT(usage["users"][0].value("used_h", 0.0), 0.0);
  EXPECT_GT(usage["users"][0].value("entitled_h", 0.0), 0.0);
  const Ended nobody = Do({"usage", "--user", "nobody", "--json"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.errors, HasSubstr("nobody"));
}

}  // namespace
}  // namespace gavel::testing
