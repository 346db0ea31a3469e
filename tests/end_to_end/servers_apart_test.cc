// Tests servers in network namespaces of their own, joined by veth pairs and a
// bridge, with keys, as docs/security.md describes it: a job moves between two
// servers that share no directory, and a gang runs on both. Needs root and
// iproute2.
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/checkpoint_directory.h"
#include "tests/support/gavel_fixture.h"
#include "tests/support/network_namespaces.h"

namespace gavel::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kUser[] = "nobody";  // the owner of the jobs
constexpr uid_t kUserId = 65534;
constexpr char kProgram[] = GAVEL_BINARY_DIR "/gavel";
constexpr char kEpochs[] = "60";
constexpr char kEndpoint[] = "tcp://10.213.78.3:7077";
constexpr double kPatience_s = 120;

using Spaces = NetworkNamespaces;

std::string Address(const std::string& server) {
  return server == "a" ? "10.213.78.1" : "10.213.78.2";
}

// Sets up "head" with a bridge, and "a" and "b" on it.
bool Bridge() {
  const auto join = [](const std::string& server) {
    return Spaces::In(server, "link add eth type veth peer name to-", server,
                      " netns ", Spaces::InSystem("head")) &&
           Spaces::In(server, "addr add ", Address(server), "/24 dev eth") &&
           Spaces::In(server, "link set eth up") &&
           Spaces::In("head", "link set to-", server, " master bridge") &&
           Spaces::In("head", "link set to-", server, " up");
  };
  return Spaces::In("head", "link add bridge type bridge") &&
         Spaces::In("head", "addr add 10.213.78.3/24 dev bridge") &&
         Spaces::In("head", "link set bridge up") && join("a") && join("b");
}

// The outermost folder on `path` that other users can't pass through; empty if
// there is none.
std::string ClosedFolder(const std::string& path) {
  std::string above;
  for (const fs::path& part : fs::path(path)) {
    above = (fs::path(above) / part).string();
    struct stat info {};
    if (stat(above.c_str(), &info) == 0 && (info.st_mode & S_IXOTH) == 0) {
      return above;
    }
  }
  return "";
}

class ServersApart : public GavelTest {
 protected:
  void SetUp() override {
    if (!spaces_.made() || !Bridge()) {
      GTEST_SKIP() << "network namespaces need root and iproute2 (ip netns)";
    }
    if (!ClosedFolder(GAVEL_BINARY_DIR).empty()) {
      GTEST_SKIP() << "jobs of " << kUser << " can't run programs in "
                   << GAVEL_BINARY_DIR;
    }
    setenv("HOME", folder().c_str(), 1);  // none of the caller's keys
    unsetenv("GAVEL_KEY_FILE");
    unsetenv("GAVEL_COORDINATOR_KEY");
    ASSERT_EQ(chmod(folder().c_str(), 0711), 0);
    ASSERT_EQ(mkdir(Path("jobs").c_str(), 0755), 0);
    ASSERT_EQ(chown(Path("jobs").c_str(), kUserId, kUserId), 0);
    ASSERT_EQ(mkdir(Path("cache").c_str(), 0755), 0);
    Keygen({"--coordinator"}, "head");
    Allow("a", {"--role", "node"}, Keygen({"--node", "a"}, "key-a"));
    Allow("b", {"--role", "node"}, Keygen({"--node", "b"}, "key-b"));
    Allow("alice", {"--role", "user", "--unix-user", kUser},
          Keygen({"--user", "alice"}, "alice"));
  }

  // Makes a key pair. Returns the public key.
  std::string Keygen(std::vector<std::string> whose,
                     const std::string& directory) {
    whose.insert(whose.begin(), {"keygen", "--directory", Path(directory)});
    const Ended made = Run(whose);
    EXPECT_EQ(made.exit_code, 0) << made.errors;
    const size_t at = made.output.find("public key");
    std::istringstream words(made.output.substr(at + 10));
    std::string key;
    words >> key;
    return key;
  }
  void Allow(const std::string& name, std::vector<std::string> what,
             const std::string& key) {
    what.insert(what.begin(), {"user", "--principals", Path("principals.toml"),
                               "add", name, "--public-key", key});
    const Ended added = Run(what);
    EXPECT_EQ(added.exit_code, 0) << added.errors;
  }

  // If LibTorch is in a folder that only root may pass through, the job's user
  // reaches it all the same, because an agent has its own mounts.
  std::unique_ptr<Process> StartIn(const std::string& server,
                                   std::vector<std::string> argv) {
    std::string script = "exec \"$@\"";
    if (const std::string closed = ClosedFolder(GAVEL_CACHE_DIR);
        !closed.empty()) {
      script = StrCat("mount --bind ", GAVEL_CACHE_DIR, " ", Path("cache"),
                      " && mount -t tmpfs -o mode=0755 none ", closed,
                      " && mkdir -p ", GAVEL_CACHE_DIR, " && mount --bind ",
                      Path("cache"), " ", GAVEL_CACHE_DIR, " && ", script);
    }
    argv.insert(argv.begin(),
                {"/usr/sbin/ip", "netns", "exec", Spaces::InSystem(server),
                 "/bin/sh", "-c", script, "sh"});
    return std::make_unique<Process>(
        argv, Path(StrCat("in-", server, ".", ++processes_)));
  }
  void StartCoordinator() {
    coordinator_ =
        StartIn("head", {kProgram, "coordinator", "--listen", kEndpoint,
                         "--state", state(), "--cluster", Path("cluster.toml"),
                         "--key", Path("head/coordinator.key"), "--principals",
                         Path("principals.toml")});
    ASSERT_NE(EndpointOf(*coordinator_), "") << coordinator_->errors();
  }
  std::unique_ptr<Process> StartAgent(const std::string& server,
                                      std::vector<std::string> more = {}) {
    std::vector<std::string> argv = {kProgram,
                                     "agent",
                                     "--coordinator",
                                     kEndpoint,
                                     "--cluster",
                                     Path("cluster.toml"),
                                     "--server",
                                     server,
                                     "--state",
                                     Path("on-" + server),
                                     "--run-directory",
                                     Path("run-" + server),
                                     "--key",
                                     Path(StrCat("key-", server, "/node.key")),
                                     "--coordinator-key",
                                     Path("head/coordinator.pub"),
                                     "--address",
                                     Address(server)};
    argv.insert(argv.end(), more.begin(), more.end());
    return StartIn(server, argv);
  }
  Ended AsAlice(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), kProgram);
    arguments.insert(
        arguments.begin() + 2,
        {"--coordinator", kEndpoint, "--key", Path("alice/client.key"),
         "--coordinator-key", Path("head/coordinator.pub")});
    const auto process = StartIn("head", arguments);
    const std::optional<int> code = process->Wait();
    return {code.value_or(-1), process->output(), process->errors()};
  }
  bool Submit(const std::string& keys) {
    const nlohmann::json command = {GAVEL_GANG_WORKER, Path("jobs/weights")};
    Write("jobs/train.toml",
          StrCat("name = \"train\"\ncommand = ", command.dump(), "\n", keys,
                 "[environment]\nEPOCHS = \"", kEpochs,
                 "\"\nSTEP_MS = \"60\"\nGAVEL_DEVICE = \"cpu\"\n"
                 "GAVEL_CHECKPOINT_INTERVAL_S = \"1\"\n"));
    const Ended submitted = AsAlice({"submit", Path("jobs/train.toml")});
    EXPECT_EQ(submitted.exit_code, 0) << submitted.errors;
    return submitted.exit_code == 0;
  }
  bool Finishes() {
    return Eventually(
        [&] {
          return AsAlice({"queue", "--json"}).output.find("\"finished\"") !=
                 std::string::npos;
        },
        kPatience_s);
  }
  std::string LogOn(const std::string& server, int rank) const {
    return LogUnder(Path("on-" + server), 1, rank);
  }
  // The weights that one undisturbed process trains.
  std::string WeightsAlone() {
    setenv("EPOCHS", kEpochs, 1);
    setenv("GAVEL_DEVICE", "cpu", 1);
    Process alone({GAVEL_GANG_WORKER, Path("alone")}, Path("alone.out"));
    EXPECT_EQ(alone.Wait(kPatience_s), 0) << alone.errors();
    return ReadText(Path("alone"));
  }

  const Spaces spaces_{{"head", "a", "b"}};
  std::unique_ptr<Process> coordinator_;
  int processes_ = 0;
};

TEST_F(ServersApart, AJobMovesByAStreamAndTrainsTheSameToTheBit) {
  Write("cluster.toml",
        "[scheduling]\npolicy = \"max_min_fairness_perf\"\n"
        "round_duration_s = 4\nlease_duration_s = 4\n"
        "[[server]]\nname = \"a\"\n"
        "[[server.accelerator]]\ntype = \"slow\"\n"
        "[[server]]\nname = \"b\"\n"
        "[[server.accelerator]]\ntype = \"fast\"\n");
  StartCoordinator();
  const auto a = StartAgent("a", {"--own-checkpoints"});
  ASSERT_TRUE(Submit("throughputs = {slow = 10, fast = 1000}\n"));
  ASSERT_TRUE(
      Eventually([&] { return HasGeneration(Path("on-a")); }, kPatience_s))
      << a->errors() << LogOn("a", 0);
  const auto b = StartAgent("b", {"--own-checkpoints"});
  ASSERT_TRUE(Finishes()) << coordinator_->errors() << a->errors()
                          << b->errors() << LogOn("a", 0) << LogOn("b", 0);
  EXPECT_THAT(LogOn("a", 0), HasSubstr("running from step 0"));
  EXPECT_THAT(LogOn("b", 0), HasSubstr("going on from generation-"));
  EXPECT_FALSE(fs::exists(Path("jobs/gavel-state")));
  const std::string weights = ReadText(Path("jobs/weights"));
  EXPECT_NE(weights, "");
  EXPECT_EQ(weights, WeightsAlone());
}

TEST_F(ServersApart, AGangTrainsOverBoth) {
  Write("cluster.toml",
        "[scheduling]\nround_duration_s = 10\nlease_duration_s = 10\n"
        "[[server]]\nname = \"a\"\n"
        "[[server.accelerator]]\ntype = \"cpu\"\n"
        "[[server]]\nname = \"b\"\n"
        "[[server.accelerator]]\ntype = \"cpu\"\n");
  StartCoordinator();
  const auto a = StartAgent("a");
  const auto b = StartAgent("b");
  ASSERT_TRUE(Submit("scale_factor = 2\n"));
  ASSERT_TRUE(Finishes()) << coordinator_->errors() << a->errors()
                          << b->errors() << LogOn("a", 0) << LogOn("b", 1);
  std::string logs;
  for (const char* server : {"a", "b"}) {
    const std::string own = LogOn(server, 0) + LogOn(server, 1);
    EXPECT_THAT(own, HasSubstr(" of a gang of 2"));
    logs += own;
  }
  EXPECT_TRUE(HasGeneration(Path("jobs/gavel-state")));
  std::istringstream gang(ReadText(Path("jobs/weights")));
  std::istringstream alone(WeightsAlone());
  int count = 0;
  for (std::string got, want; std::getline(alone, want); ++count) {
    ASSERT_TRUE(std::getline(gang, got)) << logs;
    const double value = std::strtod(want.c_str(), nullptr);
    EXPECT_NEAR(std::strtod(got.c_str(), nullptr), value,
                2e-3 * (1 + std::abs(value)));
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace gavel::testing
