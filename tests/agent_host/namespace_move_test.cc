// Two agents' streams in network namespaces of their own, joined by a veth pair
// that goes down in the middle and up again. Needs root and iproute2.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "coordinator/agent_host/agent_checkpoints.h"
#include "core/text.h"
#include "tests/agent_host/generation_samples.h"
#include "tests/support/network_namespaces.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr JobId kJob(5);
constexpr double kPatience_s = 60;
using Spaces = testing::NetworkNamespaces;

class NamespaceMove : public Test {
 protected:
  void SetUp() override {
    if (!spaces_.made()) {
      GTEST_SKIP() << "network namespaces need root and iproute2 (ip netns)";
    }
    ASSERT_TRUE(Spaces::In("a", "link add v0 type veth peer name v0 netns ",
                           Spaces::InSystem("b")));
    ASSERT_TRUE(Spaces::In("a", "addr add 10.77.5.1/24 dev v0"));
    ASSERT_TRUE(Spaces::In("b", "addr add 10.77.5.2/24 dev v0"));
    Link("up");
    ASSERT_TRUE(Spaces::In("b", "link set v0 up"));
    // Slow enough to be cut in the middle.
    if (std::system(StrCat("tc -n ", Spaces::InSystem("a"),
                           " qdisc add dev v0 root tbf rate 100mbit burst "
                           "128kb latency 200ms >/dev/null 2>&1")
                        .c_str()) != 0) {
      GTEST_SKIP() << "tc can't slow the line";
    }
    std::filesystem::create_directories(from_);
    ASSERT_OK(
        testing::WriteGeneration(disk_, from_, {1, 100},
                                 {testing::MakeShard("x", 30'000'000, 1),
                                  testing::MakeShard("y", 10'000'000, 2)}));
  }
  void TearDown() override {
    reader_.reset();
    source_.reset();
  }

  void Link(const std::string& state) {
    ASSERT_TRUE(Spaces::In("a", "link set v0 ", state));
  }

  // Its sockets and threads are those of the namespace that it is started in.
  static std::unique_ptr<GenerationStream> StartIn(const std::string& space,
                                                   const std::string& address) {
    std::unique_ptr<GenerationStream> stream;
    std::thread([&] {
      const int file =
          open(StrCat("/var/run/netns/", Spaces::InSystem(space)).c_str(),
               O_RDONLY | O_CLOEXEC);
      ASSERT_EQ(setns(file, CLONE_NEWNET), 0);
      close(file);
      GenerationStreamOptions options;
      options.address = address;
      options.wake = [] {};
      stream = *GenerationStream::Start(std::move(options));
    }).join();
    return stream;
  }

  template <class Done>
  std::optional<FetchState> WaitFor(Done done) {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration<double>(kPatience_s);
    while (std::chrono::steady_clock::now() < end) {
      for (const FetchState& state : reader_->TakeStates()) {
        if (done(state)) return state;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return std::nullopt;
  }

  const Spaces spaces_{{"a", "b"}};
  FileSystem& disk_ = FileSystem::Posix();
  TemporaryFolder folder_;
  const std::string from_ = folder_.path() + "/from";
  const std::string to_ = folder_.path() + "/to";
  std::unique_ptr<GenerationStream> source_, reader_;
};

TEST_F(NamespaceMove, GoesOnWhenTheLineWasDown) {
  source_ = StartIn("a", "10.77.5.1");
  reader_ = StartIn("b", "10.77.5.2");
  source_->Serve(kJob, reader_->public_key(), from_);
  reader_->Fetch(kJob, to_,
                 {"a", source_->endpoint(), source_->public_key(), {}});
  const auto some = WaitFor(
      [](const FetchState& s) { return s.bytes_done > 5'000'000 || s.over; });
  ASSERT_TRUE(some.has_value());
  ASSERT_FALSE(some->over) << some->error << " too fast to be cut";
  Link("down");
  const auto waits =
      WaitFor([](const FetchState& s) { return !s.waits_for.empty(); });
  ASSERT_TRUE(waits.has_value());
  EXPECT_GE(waits->bytes_done, some->bytes_done);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  Link("up");
  const auto over = WaitFor([](const FetchState& s) { return s.over; });
  ASSERT_TRUE(over.has_value());
  EXPECT_EQ(over->error, "");
  EXPECT_EQ(over->generation, (Generation{1, 100}));
  EXPECT_OK(testing::VerifyGeneration(disk_, to_, {{1, 100}, 0}));
}

}  // namespace
}  // namespace gavel
