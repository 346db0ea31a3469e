// What operators do to a running coordinator, over real sockets and a real
// journal.
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "tests/server/fake_peers.h"
#include "tests/server/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CoordinatorOperatorTest : public ::testing::Test {
 protected:
  void SetUp() override { Start("fifo"); }
  void Start(const std::string& policy) {
    CoordinatorServerOptions options = QuietOptions(state());
    options.policy = policy;
    coordinator_ = std::make_unique<RunningCoordinator>(std::move(options));
    ASSERT_OK(coordinator_->created());
    client_ = std::make_unique<FakeClient>(coordinator_->endpoint());
    agent_ = std::make_unique<FakeAgent>(coordinator_->endpoint(), "here",
                                         ++incarnation_);
    ASSERT_TRUE(agent_->Join(1).has_value());
  }
  void Restart(const std::string& policy) {
    EXPECT_OK(coordinator_->Stop());
    Start(policy);
  }
  std::string Do(CommandKind kind, const std::string& target,
                 const JobUpdate& update = {}, JobId job = JobId()) {
    CommandRequest command;
    command.request = ++request_;
    command.kind = kind;
    command.target = target;
    command.update = update;
    command.job = job;
    client_->Send(command);
    const auto reply = client_->Receive<CommandReply>();
    return reply ? reply->error : "no reply";
  }
  json Node() { return client_->Query(QueryKind::kNodes)[0]; }
  std::string Policy() { return client_->Query(QueryKind::kStatus)["policy"]; }
  std::string state() const { return folder_.path() + "/state"; }
  // Ends the coordinator: then all of it is on disk.
  std::string Audit() {
    EXPECT_OK(coordinator_->Stop());
    coordinator_.reset();
    std::ostringstream text;
    text << std::ifstream(state() + "/audit.log").rdbuf();
    return text.str();
  }

  TemporaryFolder folder_;
  uint64_t request_ = 1000;
  uint64_t incarnation_ = 0;
  std::unique_ptr<RunningCoordinator> coordinator_;
  std::unique_ptr<FakeClient> client_;
  std::unique_ptr<FakeAgent> agent_;
};

TEST_F(CoordinatorOperatorTest, DrainsAndResumesAServerOverRestarts) {
  EXPECT_EQ(Do(CommandKind::kDrain, "here"), "");
  EXPECT_EQ(Node()["state"], "drained");
  EXPECT_EQ(Node()["accelerators"][0]["state"], "drained");
  Restart("fifo");
  EXPECT_EQ(Node()["state"], "drained");
  EXPECT_EQ(Do(CommandKind::kResume, "here"), "");
  EXPECT_EQ(Node()["state"], "idle");
  EXPECT_THAT(Do(CommandKind::kResume, "here"), HasSubstr("is not drained"));
  EXPECT_THAT(Audit(), AllOf(HasSubstr("\"drain\""), HasSubstr("\"resume\"")));
}

TEST_F(CoordinatorOperatorTest, AgentThatHasLeftIsDownAtOnce) {
  agent_->Send(AgentLeaving{"here", incarnation_, {}, false});
  agent_->Send(AgentLeaving{"here", incarnation_, {}, true});
  json node = Node();
  for (int i = 0; i < 100 && node["state"] != "down"; ++i) node = Node();
  EXPECT_EQ(node["state"], "down");
  EXPECT_EQ(node["accelerators"][0]["state"], "down");
  EXPECT_EQ(Do(CommandKind::kForget, "here"), "");
  EXPECT_TRUE(client_->Query(QueryKind::kNodes).empty());
}

TEST_F(CoordinatorOperatorTest, PolicySetLiveDecidesAndSurvivesRestarts) {
  EXPECT_EQ(Policy(), "fifo");
  EXPECT_EQ(Do(CommandKind::kPolicy, "max_min_fairness"), "");
  EXPECT_EQ(Policy(), "max_min_fairness");
  client_->SubmitNamed("a");
  const json row = client_->WaitForRow(
      JobId(1), [](const json& r) { return r["share_target"] == 1.0; });
  EXPECT_FALSE(row.is_null());
  EXPECT_THAT(Do(CommandKind::kPolicy, "max_min_fairness"),
              HasSubstr("decides already"));
  EXPECT_THAT(Do(CommandKind::kPolicy, "none_such"), HasSubstr("none_such"));
  Restart("fifo");
  EXPECT_EQ(Policy(), "max_min_fairness");
  // Another one is asked for at the start: that one.
  Restart("max_min_fairness_perf");
  EXPECT_EQ(Policy(), "max_min_fairness_perf");
}

TEST_F(CoordinatorOperatorTest, UpdateIsBoundedAsASubmissionIs) {
  const JobId job = client_->SubmitNamed("a").job;
  JobUpdate update;
  EXPECT_THAT(Do(CommandKind::kUpdate, "", update, job),
              HasSubstr("nothing is to be changed"));
  update.weight = 2;
  EXPECT_EQ(Do(CommandKind::kUpdate, "", update, job), "");
  update.weight = 1e9;
  EXPECT_THAT(Do(CommandKind::kUpdate, "", update, job), HasSubstr("weight"));
  update = {};
  update.scale_factor_min = 4;
  EXPECT_THAT(Do(CommandKind::kUpdate, "", update, job),
              HasSubstr("exceeds scale_factor"));
  update = {};
  update.types = {"h900"};
  EXPECT_THAT(Do(CommandKind::kUpdate, "", update, job),
              HasSubstr("no type \"h900\""));
  EXPECT_EQ(Do(CommandKind::kHold, "", {}, job), "");
  EXPECT_THAT(Do(CommandKind::kCheckpoint, "", {}, job), HasSubstr("is held"));
  EXPECT_EQ(Do(CommandKind::kRelease, "", {}, job), "");
}

}  // namespace
}  // namespace gavel::testing
