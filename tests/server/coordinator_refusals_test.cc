// What the coordinator does not do, and how it says so.
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "core/text.h"
#include "tests/server/fake_peers.h"
#include "tests/server/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

using ::testing::HasSubstr;

TEST(CoordinatorOptions, AnEndpointBeyondThisMachineIsRefused) {
  const TemporaryFolder folder;
  for (const char* endpoint : {"tcp://0.0.0.0:0", "tcp://192.0.2.1:7077"}) {
    CoordinatorServerOptions options = QuietOptions(folder.path());
    options.endpoint = endpoint;
    EXPECT_THAT(CoordinatorServer::Create(options),
                StatusIs(absl::StatusCode::kPermissionDenied, "loopback"));
  }
}

TEST(CoordinatorOptions, AnUnknownPolicyNamesTheKnownOnes) {
  const TemporaryFolder folder;
  CoordinatorServerOptions options = QuietOptions(folder.path());
  options.policy = "lottery";
  EXPECT_THAT(CoordinatorServer::Create(options),
              StatusIs(kNotFound, "max_min_fairness"));
}

TEST(CoordinatorOptions, FiguresMustBePositive) {
  const TemporaryFolder folder;
  CoordinatorServerOptions options = QuietOptions(folder.path());
  options.engine.lease_duration_s = 0;
  EXPECT_THAT(CoordinatorServer::Create(options),
              StatusIs(kInvalidArgument, "lease_duration_s is 0"));
  options = QuietOptions("");
  EXPECT_THAT(CoordinatorServer::Create(options),
              StatusIs(kInvalidArgument, "state directory"));
}

TEST(CoordinatorOptions, AStateDirectoryThatIsAFileIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::ofstream(path) << "x";
  EXPECT_THAT(CoordinatorServer::Create(QuietOptions(path)),
              StatusIs(absl::StatusCode::kPermissionDenied, path));
}

TEST(CoordinatorOptions, ItsNewDirectoryIsPrivate) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a/b";
  ASSERT_OK(CoordinatorServer::Create(QuietOptions(path)));
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(CoordinatorOptions, ASecondOneOnTheSameStateIsRefused) {
  const TemporaryFolder folder;
  const RunningCoordinator first(QuietOptions(folder.path()));
  ASSERT_OK(first.created());
  EXPECT_THAT(CoordinatorServer::Create(QuietOptions(folder.path())),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       "another coordinator runs on it"));
}

TEST(CoordinatorOptions, ATakenPortIsNamed) {
  const TemporaryFolder folder;
  const RunningCoordinator first(QuietOptions(folder.path() + "/1"));
  ASSERT_OK(first.created());
  CoordinatorServerOptions options = QuietOptions(folder.path() + "/2");
  options.endpoint = first.endpoint();
  EXPECT_THAT(CoordinatorServer::Create(options),
              StatusIs(absl::StatusCode::kAlreadyExists, "is taken"));
}

TEST(CoordinatorOptions, SaysWhereItListens) {
  const TemporaryFolder folder;
  std::FILE* out = std::tmpfile();
  CoordinatorServerOptions options = QuietOptions(folder.path());
  options.announce = out;
  RunningCoordinator coordinator(options);
  ASSERT_OK(coordinator.created());
  const std::string endpoint = coordinator.endpoint();
  FakeClient(endpoint).Query(QueryKind::kStatus);  // it runs
  EXPECT_OK(coordinator.Stop());
  char line[128] = "";
  std::rewind(out);
  EXPECT_NE(std::fgets(line, sizeof(line), out), nullptr);
  std::fclose(out);
  EXPECT_EQ(std::string(line), StrCat("gavel: listening on ", endpoint, "\n"));
}

class CoordinatorRefusals : public ::testing::Test {
 protected:
  CoordinatorRefusals()
      : coordinator_(QuietOptions(folder_.path())),
        client_(coordinator_.endpoint()) {}
  ~CoordinatorRefusals() override {
    // Nothing else was disturbed.
    EXPECT_EQ(client_.SubmitNamed("well").error, "");
    EXPECT_OK(coordinator_.Stop());
  }

  std::string ErrorOf(const std::string& lines, const std::string& name) {
    const SubmitReply reply = client_.Submit(
        StrCat("name = \"", name, "\"\ncommand = [\"./train\"]\n", lines));
    EXPECT_FALSE(reply.job.valid());
    return reply.error;
  }

  TemporaryFolder folder_;
  RunningCoordinator coordinator_;
  FakeClient client_;
};

TEST_F(CoordinatorRefusals, AnUnknownKey) {
  const std::string error = ErrorOf("colour = \"red\"\n", "a");
  EXPECT_THAT(error, HasSubstr("job.toml:3:"));
  EXPECT_THAT(error, HasSubstr("colour"));
}

TEST_F(CoordinatorRefusals, ANegativeWeight) {
  EXPECT_THAT(ErrorOf("weight = -1.0\n", "a"), HasSubstr("weight"));
}

TEST_F(CoordinatorRefusals, AScaleFactorThatFitsNowhere) {
  FakeAgent agent(coordinator_.endpoint(), "here");
  ASSERT_TRUE(agent.Join(2).has_value());
  const std::string error = ErrorOf("scale_factor = 16\n", "a");
  EXPECT_THAT(error, HasSubstr("scale factor 16"));
  EXPECT_THAT(error, HasSubstr("2 v100"));
}

TEST_F(CoordinatorRefusals, ANameThatIsTaken) {
  EXPECT_EQ(client_.SubmitNamed("a").error, "");
  EXPECT_THAT(ErrorOf("", "a"), HasSubstr("taken by job 1"));
}

TEST_F(CoordinatorRefusals, WhatIsNoToml) {
  EXPECT_THAT(client_.Submit("name = ").error, HasSubstr("job.toml:1:"));
}

TEST_F(CoordinatorRefusals, AnAgentWithAPathForAName) {
  FakePeer agent(coordinator_.endpoint());
  AgentHello hello;
  hello.server = "../../etc";
  agent.Send(hello);
  const auto rejected = agent.Receive<AgentRejected>();
  ASSERT_TRUE(rejected.has_value());
  EXPECT_THAT(rejected->reason, HasSubstr("name"));
}

TEST_F(CoordinatorRefusals, AnAgentWithTwoAcceleratorsOfOneUuid) {
  FakePeer agent(coordinator_.endpoint());
  AgentHello hello;
  hello.server = "here";
  hello.incarnation = 1;
  hello.accelerators = {{"v100", "same"}, {"v100", "same"}};
  agent.Send(hello);
  const auto rejected = agent.Receive<AgentRejected>();
  ASSERT_TRUE(rejected.has_value());
  EXPECT_THAT(rejected->reason, HasSubstr("same"));
}

TEST_F(CoordinatorRefusals, AWorkerThatNobodyLaunched) {
  FakePeer worker(coordinator_.endpoint());
  WorkerHello hello;
  hello.worker = {JobId(5), 0, 1};
  worker.Send(hello);
  EXPECT_TRUE(worker.Receive<WorkerRejected>().has_value());
}

TEST_F(CoordinatorRefusals, MessagesThatOnlyACoordinatorSends) {
  FakePeer stranger(coordinator_.endpoint());
  stranger.Send(LeaseGrant{});
  stranger.Send(ExitAcknowledged{"here", {}});
  stranger.Send(QueryReply{});
  EXPECT_FALSE(client_.Query(QueryKind::kStatus).is_null());
}

}  // namespace
}  // namespace gavel::testing
