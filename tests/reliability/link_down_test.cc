// A server in a network namespace of its own, and the link to it goes down:
// nothing arrives, nothing is refused. Needs root and iproute2, else it skips.
#include <unistd.h>

#include "core/text.h"
#include "gavel_paths.h"
#include "tests/reliability/cluster_fixture.h"
#include "tests/support/network_namespaces.h"

namespace gavel::testing {
namespace {

constexpr char kRelay[] = GAVEL_BINARY_DIR "/tests/relay";
constexpr int kRelayPort = 17077;

// Unlikely to be anybody's.
constexpr char kNearAddress[] = "10.213.77.1";
constexpr char kFarAddress[] = "10.213.77.2";

using Spaces = NetworkNamespaces;

// A server with a link to this one.
class LinkDownTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (!spaces_.made() ||
        !Spaces::Ip("link add ", near_, " type veth peer name far netns ",
                    Spaces::InSystem("far")) ||
        !Spaces::Ip("addr add ", kNearAddress, "/30 dev ", near_) ||
        !Spaces::Ip("link set ", near_, " up") ||
        !Spaces::In("far", "addr add ", kFarAddress, "/30 dev far") ||
        !Spaces::In("far", "link set far up")) {
      GTEST_SKIP() << "network namespaces need root and iproute2 (ip netns)";
    }
  }
  void SetLink(bool up) {
    Spaces::Ip("link set ", near_, up ? " up" : " down");
  }
  std::unique_ptr<Process> StartInside(std::vector<std::string> argv) {
    const std::vector<std::string> exec = Spaces::Exec("far");
    argv.insert(argv.begin(), exec.begin(), exec.end());
    return std::make_unique<Process>(argv,
                                     Path(StrCat("inside.", ++processes_)));
  }

  const Spaces spaces_{{"far"}};
  const std::string near_ = StrCat("gv", getpid() % 100000);
  int processes_ = 0;
};

TEST_F(LinkDownTest, TheJobGoesOnElsewhereAndNothingIsLost) {
  WriteServers({"far"}, 3, 1.5);
  StartCoordinator();
  // The link is between two relays; the coordinator listens on this machine.
  const std::string relay_port = std::to_string(kRelayPort);
  const Process near(
      {kRelay, kNearAddress, relay_port, "127.0.0.1", std::to_string(port())},
      Path("relay"));
  const auto far =
      StartInside({kRelay, "127.0.0.1", relay_port, kNearAddress, relay_port});
  ASSERT_TRUE(Eventually([&] {
    return near.output().size() > 5 && far->output().size() > 5;
  })) << near.errors()
      << far->errors();
  std::vector<std::string> argv =
      AgentArguments("far", StrCat("tcp://127.0.0.1:", relay_port));
  argv.insert(argv.begin(), GAVEL_BINARY_DIR "/gavel");
  const auto agent = StartInside(argv);
  Submit("job", {"--steps", "2000"});
  ASSERT_TRUE(Logs("job", " take far")) << agent->errors();
  ASSERT_TRUE(Logs("job", " commit ", 3));

  SetLink(false);
  // Nobody reaches the worker; its lease ends by its own clock.
  EXPECT_TRUE(Logs("job", " give far"));
  WriteServers({"near"}, 3, 1.5);
  StartAgent("near");
  ASSERT_TRUE(Logs("job", " take near", 1, 60)) << coordinator().errors();
  const pid_t cut_off = LastPid("job", "give");
  SetLink(true);

  EXPECT_TRUE(Eventually([&] { return !IsAlive(cut_off); }, 60));
  EXPECT_TRUE(
      Eventually([&] { return CheckpointOf("job").steps == 2000; }, 60));
  EXPECT_TRUE(ReachesState(endpoint(), "job", "CD"));
  ExpectEachStepOnce("job", 2000);
  ExpectNothingLostOrShared();
}

}  // namespace
}  // namespace gavel::testing
