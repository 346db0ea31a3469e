// Tests a sender and a receiver over a line that drops, doubles, reorders,
// alters and cuts, with files in memory.
#include <deque>
#include <random>

#include "coordinator/agent/checkpoint_stream.h"
#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr JobId kJob(7);
constexpr char kReader[] = "reader";
constexpr Generation kLatest{3, 900};

std::string RandomBytes(size_t size, std::mt19937& random) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

struct Faults {
  double drop = 0, twice = 0, swap = 0, alter = 0, cut = 0;
};

// A source, a reader and the line between them. The manifest is only random
// bytes; the files are compared byte by byte.
class World {
 public:
  World(uint32_t seed, std::vector<size_t> sizes, Generation at_least = {})
      : random_(seed),
        receiver_(
            StreamReceiverOptions{kJob, uint64_t{1} << 20, at_least, 100}) {
    for (const size_t size : sizes)
      files_.push_back(RandomBytes(size, random_));
    manifest_ = RandomBytes(300, random_);
    sender_.Allow(0, kReader, kJob, "/directory");
  }

  void Start() { DoReceiver(receiver_.Start(now_, {})); }

  // Delivers one frame, or waits until something is due. False if nothing is
  // left to do.
  bool Step(const Faults& faults) {
    if (line_.empty()) {
      const Time next = std::min(receiver_.NextDeadline(), now_ + 10);
      if (receiver_.over()) return false;
      now_ = std::max(now_, next);
      DoSender(sender_.Tick(now_));
      DoReceiver(receiver_.Tick(now_));
      return !receiver_.over();
    }
    now_ += 0.001;
    const auto chance = [&](double p) {
      return std::uniform_real_distribution<>(0, 1)(random_) < p;
    };
    if (chance(faults.cut)) line_.clear();
    if (line_.empty()) return true;
    if (line_.size() > 1 && chance(faults.swap)) std::swap(line_[0], line_[1]);
    Frame frame = line_.front();
    if (!chance(faults.twice)) line_.pop_front();
    if (chance(faults.drop)) return true;
    // Alters only chunks: the line itself is authenticated, but bytes that were
    // read from a disk or lay in memory are not.
    if (frame.bytes.size() > 1000 && chance(faults.alter)) {
      frame.bytes[random_() % frame.bytes.size()] ^= 0x20;
    }
    Deliver(frame);
    return true;
  }

  // Runs until the transfer is over; false if that never happens.
  bool Run(const Faults& faults, int steps = 200'000) {
    while (steps-- > 0) {
      if (!Step(faults)) return true;
    }
    return false;
  }

  void Deliver(const std::pair<bool, std::string>& to_sender_bytes) {
    Deliver(Frame{to_sender_bytes.first, to_sender_bytes.second});
  }

  struct Frame {
    bool to_sender;
    std::string bytes;
  };
  void Deliver(const Frame& frame) {
    const auto message = DecodeStreamMessage(frame.bytes);
    if (!message.ok()) return;
    if (frame.to_sender) {
      DoSender(sender_.Receive(now_, kReader, *message));
    } else {
      DoReceiver(receiver_.Receive(now_, *message));
    }
  }

  void DoSender(const StreamSender::Actions& actions) {
    for (const auto& action : actions) {
      if (const auto* send = std::get_if<stream_sender::Send>(&action)) {
        line_.push_back({false, EncodeStreamMessage(send->message)});
      } else if (const auto* open =
                     std::get_if<stream_sender::OpenGeneration>(&action)) {
        Open(*open);
      } else if (const auto* read =
                     std::get_if<stream_sender::ReadFile>(&action)) {
        Read(read->read);
      }
    }
  }

  void Open(const stream_sender::OpenGeneration& open) {
    if (none_ || (open.below != Generation{} && open.below <= kLatest)) {
      return DoSender(
          sender_.OpenFailed(open.session, StreamRefusal::kNoGeneration, ""));
    }
    std::vector<uint64_t> sizes;
    for (const std::string& file : files_) sizes.push_back(file.size());
    DoSender(sender_.Opened(open.session, kLatest, manifest_, sizes));
  }

  void Read(const StreamRead& read) {
    const std::string& file =
        read.file == kStreamManifest ? manifest_ : files_.at(read.file);
    ASSERT_LE(read.offset + read.size, file.size());
    StreamChunk chunk{read.session, read.file, read.offset, 0,
                      file.substr(read.offset, read.size)};
    chunk.checksum = StreamChecksum(chunk.data);
    bytes_sent_ += chunk.data.size();
    chunks_on_line_ = std::max(chunks_on_line_, line_.size());
    line_.push_back({false, EncodeStreamMessage(chunk)});
  }

  void DoReceiver(const StreamReceiver::Actions& actions) {
    for (const auto& action : actions) {
      if (const auto* send = std::get_if<stream_receiver::Send>(&action)) {
        line_.push_back({true, EncodeStreamMessage(send->message)});
      } else if (const auto* prepare =
                     std::get_if<stream_receiver::Prepare>(&action)) {
        EXPECT_EQ(prepare->manifest, manifest_);
        std::vector<StreamFile> needs;
        for (size_t i = 0; i < files_.size(); ++i) {
          needs.push_back({i, files_[i].size(), here_[i].size()});
        }
        DoReceiver(receiver_.Prepared(now_, needs));
      } else if (const auto* write =
                     std::get_if<stream_receiver::Write>(&action)) {
        ASSERT_EQ(write->offset, here_[write->file].size());
        here_[write->file] += write->data;
      } else if (const auto* finish =
                     std::get_if<stream_receiver::Finish>(&action)) {
        const bool whole =
            here_[finish->file] == files_[finish->file] && !damaged_;
        if (!whole) here_[finish->file].clear();
        DoReceiver(receiver_.Finished(now_, whole));
      } else if (std::holds_alternative<stream_receiver::Commit>(action)) {
        for (size_t i = 0; i < files_.size(); ++i)
          EXPECT_EQ(here_[i], files_[i]);
        ++commits_;
        DoReceiver(receiver_.Committed(now_));
      } else if (const auto* done =
                     std::get_if<stream_receiver::Done>(&action)) {
        done_ = done->generation;
      } else if (const auto* give_up =
                     std::get_if<stream_receiver::GiveUp>(&action)) {
        why_ = give_up->why;
      }
    }
  }

  std::mt19937 random_;
  StreamSender sender_;
  StreamReceiver receiver_;
  std::vector<std::string> files_;
  std::string manifest_;
  std::map<uint64_t, std::string> here_;
  std::deque<Frame> line_;
  Time now_ = 1;
  int commits_ = 0;
  uint64_t bytes_sent_ = 0;
  size_t chunks_on_line_ = 0;
  bool none_ = false;
  bool damaged_ = false;
  std::optional<Generation> done_;
  std::string why_;
};

std::vector<size_t> SomeSizes(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<size_t> sizes(1 + random() % 4);
  for (size_t& size : sizes) size = 8 + random() % (3 * kStreamChunkBytesMax);
  return sizes;
}

TEST(Stream, MovesEveryByteOnceOverAGoodLine) {
  World world(1, {5'000'000, 10, 2 * kStreamChunkBytesMax, 9});
  world.Start();
  ASSERT_TRUE(world.Run({}));
  EXPECT_EQ(world.done_, kLatest);
  EXPECT_EQ(world.commits_, 1);
  uint64_t bytes = world.manifest_.size();
  for (const std::string& file : world.files_) bytes += file.size();
  EXPECT_EQ(world.bytes_sent_, bytes);
  EXPECT_EQ(world.receiver_.dropped(), 0);
  EXPECT_EQ(world.receiver_.bytes_done(), world.receiver_.bytes_total());
}

TEST(Stream, CreditBoundsWhatIsOnTheLine) {
  World world(2, {40 * kStreamChunkBytesMax});
  world.Start();
  ASSERT_TRUE(world.Run({}));
  EXPECT_LE(world.chunks_on_line_, kStreamCredit);
}

TEST(StreamProperty, ArrivesWholeWhateverTheLineDoes) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, SomeSizes(seed));
    world.Start();
    ASSERT_TRUE(world.Run({0.05, 0.05, 0.1, 0.05, 0.01}));
    EXPECT_EQ(world.done_, kLatest);
    EXPECT_EQ(world.commits_, 1);
    EXPECT_THAT(world.why_, IsEmpty());
  }
}

TEST(StreamProperty, GoesOnAfterACutAtAnyFrame) {
  World whole(4, {3'000'000, 700});
  whole.Start();
  int frames = 0;
  while (whole.Step({})) ++frames;
  for (int at = 0; at < frames; ++at) {
    SCOPED_TRACE(at);
    World world(4, {3'000'000, 700});
    world.Start();
    for (int i = 0; i < at; ++i) world.Step({});
    world.line_.clear();
    ASSERT_TRUE(world.Run({}));
    EXPECT_EQ(world.done_, kLatest);
    // Received chunks are not sent again: at most the credit was lost.
    EXPECT_LE(world.bytes_sent_,
              whole.bytes_sent_ + kStreamCredit * kStreamChunkBytesMax);
  }
}

TEST(Stream, ASourceThatStartedAnewIsOpenedAgain) {
  World world(5, {6'000'000});
  world.Start();
  while (world.here_[0].empty()) world.Step({});
  const size_t here = world.here_[0].size();
  EXPECT_GT(here, 0);
  world.sender_ = StreamSender();
  world.sender_.Allow(world.now_, kReader, kJob, "/directory");
  ASSERT_TRUE(world.Run({}));
  EXPECT_EQ(world.done_, kLatest);
  EXPECT_LT(world.bytes_sent_, 6'000'000 + here + kStreamChunkBytesMax);
}

TEST(Stream, WhatIsHereIsNotSent) {
  World world(6, {4'000'000, 1'000'000});
  world.here_[0] = world.files_[0];
  world.here_[1] = world.files_[1].substr(0, 999'000);
  world.Start();
  ASSERT_TRUE(world.Run({}));
  EXPECT_EQ(world.done_, kLatest);
  EXPECT_EQ(world.bytes_sent_, world.manifest_.size() + 1000);
}

TEST(Stream, APrefixThatIsNotTheFilesIsFetchedAgain) {
  World world(7, {2'000'000});
  world.here_[0] = std::string(1'500'000, 'x');
  world.Start();
  ASSERT_TRUE(world.Run({}));
  EXPECT_EQ(world.done_, kLatest);
}

TEST(Stream, WhatIsDamagedAtTheSourceNeverBecomesAGeneration) {
  World world(8, {100'000});
  world.damaged_ = true;
  world.Start();
  ASSERT_TRUE(world.Run({}));
  EXPECT_EQ(world.commits_, 0);
  EXPECT_THAT(world.why_, HasSubstr("damaged"));
}

TEST(Stream, NobodyReadsWithoutTheCoordinatorsWord) {
  World world(9, {100});
  world.sender_ = StreamSender();
  EXPECT_FALSE(world.sender_.Knows(0, kReader));
  world.Start();
  for (int i = 0; i < 50; ++i) world.Step({});
  EXPECT_EQ(world.bytes_sent_, 0);
  EXPECT_THAT(world.receiver_.waits_for(), HasSubstr("not been told"));
  world.sender_.Allow(world.now_, kReader, kJob, "/directory");
  ASSERT_TRUE(world.Run({}));
  EXPECT_EQ(world.done_, kLatest);
}

TEST(Stream, ASessionIsItsReadersAlone) {
  World world(10, {3'000'000});
  world.Start();
  for (int i = 0; i < 4; ++i) world.Step({});
  world.sender_.Allow(world.now_, "other", JobId(8), "/other");
  const auto actions =
      world.sender_.Receive(world.now_, "other", StreamRead{1, 0, 0, 10});
  ASSERT_EQ(actions.size(), 1);
  const auto* send = std::get_if<stream_sender::Send>(&actions[0]);
  ASSERT_NE(send, nullptr);
  EXPECT_EQ(std::get<StreamRefused>(send->message).refusal,
            StreamRefusal::kNoSession);
}

TEST(Stream, ReadsBeyondAFileAreNotAnswered) {
  World world(11, {3'000'000});
  world.Start();
  for (int i = 0; i < 4; ++i) world.Step({});
  const uint64_t big = ~uint64_t{0};
  for (const StreamRead read :
       {StreamRead{1, 0, 0, kStreamChunkBytesMax + 1},
        StreamRead{1, 0, big, 10}, StreamRead{1, 0, 2'999'999, 2},
        StreamRead{1, 1, 0, 1}, StreamRead{1, big, 0, 1},
        StreamRead{1, 0, 0, 0}}) {
    EXPECT_THAT(world.sender_.Receive(world.now_, kReader, read), IsEmpty());
  }
}

TEST(Stream, SessionsAreBounded) {
  StreamSender sender;
  sender.Allow(0, kReader, kJob, "/directory");
  size_t open = 0;
  for (uint64_t nonce = 1; nonce < 100; ++nonce) {
    for (const auto& action :
         sender.Receive(0, kReader, StreamOpen{nonce, kJob, {}})) {
      open += std::holds_alternative<stream_sender::OpenGeneration>(action);
      open -= std::holds_alternative<stream_sender::CloseGeneration>(action);
    }
    EXPECT_LE(open, kStreamSessionsPerReaderMax);
  }
  EXPECT_THAT(sender.Tick(kStreamIdle_s - 1), IsEmpty());
  EXPECT_EQ(sender.Tick(kStreamIdle_s).size(), open);
  EXPECT_EQ(sender.NextDeadline(), kNever);
}

TEST(Stream, TheRightToReadRunsOut) {
  StreamSender sender;
  sender.Allow(0, kReader, kJob, "/directory");
  EXPECT_TRUE(sender.Knows(kStreamRight_s, kReader));
  EXPECT_FALSE(sender.Knows(kStreamRight_s + 1, kReader));
}

TEST(Stream, ARightKeepsItsOwnerHoweverManyThereAre) {
  StreamSender sender;
  sender.Allow(0, kReader, kJob, "/directory", "alice");
  for (uint64_t job = 1000; job < 1000 + kStreamRightsMax; ++job) {
    sender.Allow(1, "other", JobId(job), StrCat("/", job), "bob");
  }
  sender.Allow(2, kReader, kJob, "/directory", "alice");  // once more
  const auto actions =
      sender.Receive(kStreamRight_s + 2, kReader, StreamOpen{1, kJob, {}});
  ASSERT_EQ(actions.size(), 1);
  const auto* open = std::get_if<stream_sender::OpenGeneration>(&actions[0]);
  ASSERT_NE(open, nullptr);
  EXPECT_EQ(open->unix_user, "alice");
}

TEST(Stream, AnOlderOneThanAcknowledgedIsNotTaken) {
  World world(12, {100}, Generation{3, 901});
  world.Start();
  ASSERT_TRUE(world.Run({}));
  EXPECT_THAT(world.why_, HasSubstr("acknowledged"));
  World none(13, {100}, Generation{3, 901});
  none.none_ = true;
  none.Start();
  ASSERT_TRUE(none.Run({}));
  EXPECT_THAT(none.why_, HasSubstr("any more"));
}

TEST(Stream, ASourceWithoutAnyIsDoneWhenNoneIsAskedFor) {
  World world(14, {100});
  world.none_ = true;
  world.Start();
  ASSERT_TRUE(world.Run({}));
  EXPECT_EQ(world.done_, Generation{});
  EXPECT_EQ(world.commits_, 0);
}

TEST(StreamMessages, RubbishIsRefused) {
  EXPECT_FALSE(DecodeStreamMessage("").ok());
  EXPECT_FALSE(
      DecodeStreamMessage(std::string(kStreamFrameBytesMax + 1, 'G')).ok());
}

}  // namespace
}  // namespace gavel
