// A server in a network namespace of its own, and the link to it goes down:
// nothing arrives, nothing is refused. Needs root and iproute2, else it skips.
#include <unistd.h>

#include <cstdlib>

#include "core/text.h"
#include "gavel_paths.h"
#include "tests/reliability/cluster_fixture.h"

namespace gavel::testing {
namespace {

constexpr char kRelay[] = GAVEL_BINARY_DIR "/tests/relay";
constexpr int kRelayPort = 17077;

// A namespace with a link to this one, until it is destroyed.
class Namespace {
 public:
  Namespace() : name_(StrCat("gavel", getpid())) {
    made_ = Ip("netns add ", name_) &&
            Ip("link add ", near(), " type veth peer name far netns ", name_) &&
            Ip("addr add ", near_address(), "/30 dev ", near()) &&
            Ip("link set ", near(), " up") && Inside("link set lo up") &&
            Inside("addr add ", far_address(), "/30 dev far") &&
            Inside("link set far up");
  }
  ~Namespace() {
    Ip("link del ", near());
    Ip("netns del ", name_);
  }
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;

  bool made() const { return made_; }
  // "ip netns exec NAME", to begin an argv with.
  std::vector<std::string> Exec() const {
    return {"/usr/sbin/ip", "netns", "exec", name_};
  }
  void SetLink(bool up) { Ip("link set ", near(), up ? " up" : " down"); }
  // Unlikely to be anybody's.
  std::string near_address() const { return "10.213.77.1"; }
  std::string far_address() const { return "10.213.77.2"; }

 private:
  template <class... T>
  static bool Ip(const T&... words) {
    const std::string command =
        StrCat("/usr/sbin/ip ", words..., " >/dev/null 2>&1");
    return std::system(command.c_str()) == 0;
  }
  template <class... T>
  bool Inside(const T&... words) const {
    return Ip("-n ", name_, " ", words...);
  }
  std::string near() const { return StrCat("gv", getpid() % 100000); }

  std::string name_;
  bool made_ = false;
};

class LinkDownTest : public ClusterTest {
 protected:
  std::unique_ptr<Process> StartInside(std::vector<std::string> argv) {
    const std::vector<std::string> exec = namespace_.Exec();
    argv.insert(argv.begin(), exec.begin(), exec.end());
    return std::make_unique<Process>(argv,
                                     Path(StrCat("inside.", ++processes_)));
  }

  Namespace namespace_;
  int processes_ = 0;
};

TEST_F(LinkDownTest, TheJobGoesOnElsewhereAndNothingIsLost) {
  if (!namespace_.made()) {
    GTEST_SKIP() << "network namespaces need root and iproute2 (ip netns)";
  }
  WriteServers({"far"}, 3, 1.5);
  StartCoordinator();
  // The link is between two relays; the coordinator listens on this machine.
  const std::string relay_port = std::to_string(kRelayPort);
  const Process near({kRelay, namespace_.near_address(), relay_port,
                      "127.0.0.1", std::to_string(port())},
                     Path("relay"));
  const auto far = StartInside(
      {kRelay, "127.0.0.1", relay_port, namespace_.near_address(), relay_port});
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

  namespace_.SetLink(false);
  // Nobody reaches the worker; its lease ends by its own clock.
  EXPECT_TRUE(Logs("job", " give far"));
  WriteServers({"near"}, 3, 1.5);
  StartAgent("near");
  ASSERT_TRUE(Logs("job", " take near", 1, 60)) << coordinator().errors();
  const pid_t cut_off = LastPid("job", "give");
  namespace_.SetLink(true);

  EXPECT_TRUE(Eventually([&] { return !IsAlive(cut_off); }, 60));
  EXPECT_TRUE(
      Eventually([&] { return CheckpointOf("job").steps == 2000; }, 60));
  EXPECT_TRUE(ReachesState(endpoint(), "job", "CD"));
  ExpectEachStepOnce("job", 2000);
  ExpectNothingLostOrShared();
}

}  // namespace
}  // namespace gavel::testing
