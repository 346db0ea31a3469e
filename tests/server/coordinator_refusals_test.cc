// Requests that the coordinator refuses, and its answers.
#include <sys/stat.h>

#include <fstream>

#include "core/text.h"
#include "tests/server/fake_peers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(CoordinatorOptions, FiguresMustBePositive) {
  const TemporaryFolder folder;
  CoordinatorServerOptions options = QuietOptions(folder.path());
  options.engine.lease_duration_s = 0;
  EXPECT_THAT(CoordinatorServer::Create(options),
              IsInvalid("lease_duration_s is 0"));
  options = QuietOptions("");
  EXPECT_THAT(CoordinatorServer::Create(options), IsInvalid("state directory"));
}

TEST(CoordinatorOptions, AStateDirectoryThatIsAFileIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::ofstream(path) << "x";
  EXPECT_THAT(CoordinatorServer::Create(QuietOptions(path)),
              StatusIs(kPermissionDenied, path));
}

TEST(CoordinatorOptions, ItsNewDirectoryIsPrivate) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a/b";
  ASSERT_OK(CoordinatorServer::Create(QuietOptions(path)));
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

class CoordinatorRefusals : public Test {
 protected:
  CoordinatorRefusals()
      : coordinator_(QuietOptions(folder_.path())),
        client_(coordinator_.endpoint()) {}
  ~CoordinatorRefusals() override {
    // The coordinator still serves other clients.
    EXPECT_EQ(client_.SubmitNamed("well").error, "");
    EXPECT_OK(coordinator_.Stop());
  }

  TemporaryFolder folder_;
  RunningCoordinator coordinator_;
  FakeClient client_;
};

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
