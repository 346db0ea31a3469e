// Replays the corpus with whatever compiler and sanitizers this build has:
// inputs from the real encoders, and those that once broke a decoder. A target
// ends the process when something does not hold.
//
// GAVEL_WRITE_SEEDS=1 writes the seeds into the corpus.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/text.h"
#include "gtest/gtest.h"
#include "tests/fuzz/targets.h"

namespace gavel::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path CorpusOf(const Target& target) {
  return fs::path(GAVEL_SOURCE_DIR) / "tests/fuzz/corpus" / target.name;
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
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
      target.run(ReadFile(entry.path()));
      ++count;
    }
    EXPECT_GE(count, static_cast<int>(target.seeds().size())) << target.name;
  }
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
