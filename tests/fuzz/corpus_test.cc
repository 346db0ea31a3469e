// Replays the corpus with whatever compiler and sanitizers this build has:
// inputs from the real encoders, and those that once broke a decoder. A target
// ends the process when something does not hold.
//
// GAVEL_WRITE_SEEDS=1 writes the seeds into the corpus.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/codec.h"
#include "core/text.h"
#include "gavel_paths.h"
#include "msgpack.hpp"
#include "tests/fuzz/targets.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

namespace gavel::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path CorpusOf(const Target& target) {
  return fs::path(GAVEL_SOURCE_DIR) / "tests/fuzz/corpus" / target.name;
}

TEST(Corpus, SeedsAndWhatIsMadeOfThemRun) {
  for (const Target& target : Targets()) {
    SCOPED_TRACE(target.name);
    const std::vector<std::string> seeds = target.seeds();
    ASSERT_FALSE(seeds.empty());
    for (const std::string& seed : seeds) {
      // Whole, cut off anywhere, and with a byte changed anywhere.
      for (size_t at = 0; at <= seed.size(); ++at) {
        target.run(std::string_view(seed).substr(0, at));
      }
      for (size_t at = 0; at < seed.size(); ++at) {
        for (const int flip : {0x01, 0x80, 0xff}) {
          std::string changed = seed;
          changed[at] = static_cast<char>(changed[at] ^ flip);
          target.run(changed);
        }
      }
    }
  }
}

TEST(Corpus, EveryInputThatWasKeptRuns) {
  for (const Target& target : Targets()) {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(CorpusOf(target))) {
      SCOPED_TRACE(entry.path().string());
      target.run(testing::ReadText(entry.path()));
      ++count;
    }
    EXPECT_GE(count, static_cast<int>(target.seeds().size())) << target.name;
  }
}

// Whether `now` says what `then` said: arrays may have grown at their ends.
bool SaysAll(const msgpack::object& then, const msgpack::object& now) {
  if (then.type != msgpack::type::ARRAY || now.type != then.type) {
    return then == now;
  }
  const auto& [size, parts] = then.via.array;
  if (now.via.array.size < size) return false;
  for (uint32_t i = 0; i < size; ++i) {
    if (!SaysAll(parts[i], now.via.array.ptr[i])) return false;
  }
  return true;
}

// One frame of each type, as versions that are in use write them, and one more
// (TYPE.2) where fields came later. They stay: a change after which one of them
// is read as something else needs another kProtocolVersion, and new files
// beside these.
TEST(Corpus, FrozenFramesAreStillReadAsTheyWereMeant) {
  const fs::path folder =
      fs::path(GAVEL_SOURCE_DIR) / "tests/fuzz/corpus/message";
  const std::string prefix = "frozen-";
  size_t frames = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.substr(0, prefix.size()) != prefix) continue;
    SCOPED_TRACE(name);
    ++frames;
    const std::string frame = testing::ReadText(entry.path());
    const absl::StatusOr<Message> message = DecodeMessage(frame);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(MessageName(*message),
              name.substr(prefix.size(), name.find('.') - prefix.size()));
    const std::string again = *EncodeMessage(*message);
    EXPECT_EQ(again.substr(0, kFrameHeaderBytes),
              frame.substr(0, kFrameHeaderBytes));
    const auto body = [](const std::string& bytes) {
      return msgpack::unpack(bytes.data() + kFrameHeaderBytes,
                             bytes.size() - kFrameHeaderBytes);
    };
    EXPECT_TRUE(SaysAll(body(frame).get(), body(again).get()));
  }
  EXPECT_GE(frames, 34U);
}

TEST(Corpus, DeepNestingIsRefused) {
  for (const Target& target : Targets()) {
    SCOPED_TRACE(target.name);
    for (const char* open : {"[", "{\"a\":", "a = [", "\x91", "{\"body\":["}) {
      std::string text;
      for (int i = 0; i < 200'000; ++i) text += open;
      target.run(text);
    }
  }
}

TEST(Corpus, IsSmall) {
  uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(
           fs::path(GAVEL_SOURCE_DIR) / "tests/fuzz/corpus")) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_LT(bytes, 300'000U);
}

TEST(Corpus, FoldersAreThoseOfTargets) {
  std::set<std::string> names;
  for (const Target& target : Targets()) names.emplace(target.name);
  for (const auto& entry : fs::directory_iterator(fs::path(GAVEL_SOURCE_DIR) /
                                                  "tests/fuzz/corpus")) {
    EXPECT_TRUE(names.contains(entry.path().filename().string()))
        << entry.path();
  }
}

TEST(Corpus, SeedsAreWrittenWhenAskedFor) {
  if (std::getenv("GAVEL_WRITE_SEEDS") == nullptr) {
    GTEST_SKIP() << "only with GAVEL_WRITE_SEEDS=1";
  }
  for (const Target& target : Targets()) {
    fs::create_directories(CorpusOf(target));
    int number = 0;
    for (const std::string& seed : target.seeds()) {
      std::ofstream(CorpusOf(target) / StrCat("seed-", ++number),
                    std::ios::binary)
          << seed;
    }
  }
}

}  // namespace
}  // namespace gavel::fuzz
