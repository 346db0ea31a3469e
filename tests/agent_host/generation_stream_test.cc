// Runs the streams of two agents over real sockets and a real disk.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "coordinator/agent_host/agent_checkpoints.h"
#include "core/text.h"
#include "runtime/transport/stream_sockets.h"
#include "tests/agent_host/generation_samples.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr JobId kJob(5);
constexpr double kPatience_s = 30;

// One agent's stream, and the states that it reports.
class Agent {
 public:
  Agent() {
    GenerationStreamOptions options;
    options.wake = [this] {
      const std::lock_guard lock(mutex_);
      woken_ = true;
      changed_.notify_all();
    };
    stream_ = *GenerationStream::Start(std::move(options));
  }

  CheckpointSource AsSource() const {
    return {"a", stream_->endpoint(), stream_->public_key(), {}};
  }
  GenerationStream& stream() { return *stream_; }

  // The first state that satisfies `done`; nothing if none comes in time.
  template <class Done>
  std::optional<FetchState> WaitFor(Done done, double patience_s) {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration<double>(patience_s);
    std::optional<FetchState> last;
    while (std::chrono::steady_clock::now() < end) {
      for (FetchState& state : stream_->TakeStates()) {
        last = std::move(state);
        if (done(*last)) return last;
      }
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(50),
                        [&] { return woken_; });
      woken_ = false;
    }
    return std::nullopt;
  }
  std::optional<FetchState> WaitUntilOver() {
    return WaitFor([](const FetchState& s) { return s.over; }, kPatience_s);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  std::unique_ptr<GenerationStream> stream_;
};

class GenerationStreamTest : public Test {
 protected:
  void SetUp() override {
    from_ = folder_.path() + "/from";
    to_ = folder_.path() + "/to";
    std::filesystem::create_directories(from_);
    Commit({1, 100}, 1);
  }
  void Commit(Generation generation, uint32_t seed) {
    ASSERT_OK(WriteGeneration(disk_, from_, generation,
                              {MakeShard("same", 20'000'000, 99),
                               MakeShard("changes", 5'000'000, seed)}));
  }
  void ExpectWhole(Generation generation) {
    EXPECT_OK(testing::VerifyGeneration(disk_, to_, {generation, 0}));
  }

  FileSystem& disk_ = FileSystem::Posix();
  TemporaryFolder folder_;
  std::string from_, to_;
  Agent source_, reader_;
};

TEST_F(GenerationStreamTest, MovesTheLatestAndThenOnlyWhatChanged) {
  source_.stream().Serve(kJob, reader_.stream().public_key(), from_);
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  std::optional<FetchState> state = reader_.WaitUntilOver();
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->error, "");
  EXPECT_EQ(state->generation, (Generation{1, 100}));
  EXPECT_GT(state->bytes_total, 25'000'000);
  ExpectWhole({1, 100});

  Commit({1, 200}, 2);
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  state = reader_.WaitUntilOver();
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->generation, (Generation{1, 200}));
  EXPECT_LT(state->bytes_total, 5'100'000);
  EXPECT_GT(state->bytes_total, 5'000'000);
  ExpectWhole({1, 200});
}

TEST_F(GenerationStreamTest, WhoIsNotAllowedGetsNothingUntilHeIs) {
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  const auto waits = reader_.WaitFor(
      [](const FetchState& s) { return !s.waits_for.empty(); }, kPatience_s);
  ASSERT_TRUE(waits.has_value());
  EXPECT_FALSE(std::filesystem::exists(to_));
  source_.stream().Serve(kJob, reader_.stream().public_key(), from_);
  ASSERT_TRUE(reader_.WaitUntilOver().has_value());
  ExpectWhole({1, 100});
}

TEST_F(GenerationStreamTest, ASourceThatStartsAnewIsGoneOnWith) {
  Agent* first = new Agent;
  first->stream().Serve(kJob, reader_.stream().public_key(), from_);
  reader_.stream().Fetch(kJob, to_, first->AsSource());
  reader_.WaitFor([](const FetchState& s) { return s.bytes_done > 0; },
                  kPatience_s);
  delete first;
  Agent next;
  next.stream().Serve(kJob, reader_.stream().public_key(), from_);
  reader_.stream().Fetch(kJob, to_, next.AsSource());
  const auto state = reader_.WaitUntilOver();
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->error, "");
  ExpectWhole({1, 100});
}

TEST_F(GenerationStreamTest, WithoutTheOwnersAccountNothingIsOpened) {
  source_.stream().Serve(kJob, reader_.stream().public_key(), from_,
                         "no-such-user-here");
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  const auto state = reader_.WaitUntilOver();
  ASSERT_TRUE(state.has_value());
  EXPECT_THAT(state->error, HasSubstr("no user \"no-such-user-here\""));
  EXPECT_FALSE(std::filesystem::exists(to_ + "/generation-000000000001"));
}

TEST_F(GenerationStreamTest, FilesAreOpenedAsTheirOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  std::filesystem::permissions(from_, std::filesystem::perms::owner_all);
  source_.stream().Serve(kJob, reader_.stream().public_key(), from_, "nobody");
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  const auto state = reader_.WaitUntilOver();
  ASSERT_TRUE(state.has_value());
  EXPECT_THAT(state->error, HasSubstr("cannot read"));
}

TEST_F(GenerationStreamTest, OrdersThatAreTooManyAreAnswered) {
  constexpr size_t kOrders = 20'000;
  for (uint64_t job = 1; job <= kOrders; ++job) {
    reader_.stream().Fetch(JobId(job), StrCat(to_, job), source_.AsSource());
  }
  size_t refused = 0;
  reader_.WaitFor(
      [&](const FetchState& s) {
        if (s.over) {
          EXPECT_THAT(s.error, HasSubstr("as many checkpoints as it can"));
          ++refused;
        }
        return refused == kOrders - kFetchesMax;
      },
      kPatience_s);
  EXPECT_EQ(refused, kOrders - kFetchesMax);
}

TEST_F(GenerationStreamTest, ADiskThatIsFullEndsItWithTheReason) {
  // A file is in the directory's place.
  ASSERT_OK(WriteTextFile(disk_, to_, "x"));
  source_.stream().Serve(kJob, reader_.stream().public_key(), from_);
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  const auto state = reader_.WaitUntilOver();
  ASSERT_TRUE(state.has_value());
  EXPECT_THAT(state->error, HasSubstr(to_));
}

TEST_F(GenerationStreamTest, StrangersAndRubbishDoNotDisturb) {
  StreamSocketsOptions options;
  options.keys = *NewCurveKeyPair();
  options.may_connect = [](const std::string&) { return false; };
  const auto stranger = *StreamSockets::Bind(options);
  ASSERT_OK(stranger->Connect(1, source_.AsSource().endpoint,
                              source_.AsSource().public_key));
  source_.stream().Serve(kJob, reader_.stream().public_key(), from_);
  EXPECT_FALSE(stranger->Send(1, "hello"));
  EXPECT_FALSE(stranger->Receive(0.5).has_value());
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  EXPECT_TRUE(reader_.WaitUntilOver().has_value());
  ExpectWhole({1, 100});
}

TEST_F(GenerationStreamTest, CancelledLeavesNothingCommitted) {
  reader_.stream().Fetch(kJob, to_, source_.AsSource());
  reader_.stream().Cancel(kJob);
  source_.stream().Serve(kJob, reader_.stream().public_key(), from_);
  EXPECT_FALSE(reader_.WaitFor([](const FetchState& s) { return s.over; }, 1.5)
                   .has_value());
  EXPECT_FALSE(std::filesystem::exists(to_ + "/generation-000000000001"));
}

}  // namespace
}  // namespace gavel
