// Jobs and submissions with paths on a file system that never answers, in a
// whole cluster. The tests need root and FUSE, and are skipped without them.
#include <chrono>

#include "core/text.h"
#include "tests/reliability/cluster_fixture.h"
#include "tests/support/silent_mount.h"

namespace gavel::testing {
namespace {

class HungMountTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    auto mount = SilentMount::Make(Path("mount"));
    if (!mount.ok()) GTEST_SKIP() << mount.status().message();
    mount_ = *std::move(mount);
    WriteServers({"left", "right"}, 600, 2);
    StartCoordinator();
  }
  // Removes the mount before the cluster stops, because processes hang in it.
  void TearDown() override { mount_.reset(); }
  void ExpectNoLeaseLost(const std::string& job) const {
    const std::string log = WorkerLog(job);
    EXPECT_EQ(Count(log, " take "), 1) << log;
    EXPECT_EQ(Count(log, " give "), 0) << log;
  }

  std::unique_ptr<SilentMount> mount_;
};

TEST_F(HungMountTest, AJobWhoseDirectoryHangsIsHeldAndTakesNoServerDown) {
  StartAgent("left");
  Process& right = StartAgent("right");
  Submit("victim", {"--steps", "1000000", "--step-ms", "20"});
  ASSERT_TRUE(Logs("victim", " commit "));
  const std::string directory = Path("mount/job");
  const Ended submitted =
      Run({"submit", "--coordinator", endpoint(),
           WriteCommand("hung", {"/bin/true"},
                        StrCat("working_directory = \"", directory, "\"\n"))});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.errors;
  ASSERT_TRUE(Eventually([&] { return mount_->asked(); }));
  // A job that comes meanwhile waits for one hung launch at most.
  Submit("other", {"--steps", "10"});
  const double two_launches_s = 60;
  EXPECT_TRUE(
      Eventually([&] { return QueueRow(endpoint(), "hung")["state"] == "F"; },
                 two_launches_s))
      << QueueRow(endpoint(), "hung");
  EXPECT_THAT(Run({"why", "hung", "--coordinator", endpoint()}).output,
              HasSubstr(directory));
  EXPECT_TRUE(ReachesState(endpoint(), "other", "CD"));
  EXPECT_THAT(Run({"nodes", "--coordinator", endpoint()}).output,
              Not(HasSubstr("unreachable")));
  ExpectNoLeaseLost("victim");
  // An agent also ends while it has processes that nothing can kill.
  right.Signal(SIGTERM);
  EXPECT_TRUE(right.Wait().has_value()) << right.errors();
}

TEST_F(HungMountTest, ASubmissionWithPathsThatHangKeepsNobodyWaiting) {
  Tenant alice(endpoint(), keys().Keys(keys().KeyFile("alice")));
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    const SubmitReply reply = alice.Ask<SubmitReply>(SubmitRequest{
        0, "job.toml",
        StrCat("name = \"job-", i, "\"\ncommand = [\"./train\"]\n",
               i % 2 == 0 ? StrCat("checkpoint_directory = \"there-", i, "\"\n")
                          : ""),
        Path("mount/job")});
    EXPECT_EQ(reply.error, "");
    EXPECT_EQ(
        alice.Ask<QueryReply>(QueryRequest{0, QueryKind::kStatus, JobId()})
            .error,
        "");
  }
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - before;
  EXPECT_LT(took.count(), 5);
  EXPECT_FALSE(mount_->asked());
}

}  // namespace
}  // namespace gavel::testing
