#include "coordinator/workload/toml_reader.h"

#include <random>

#include "tests/support/test.h"

namespace gavel {
namespace {

TEST(ClosestWord, IsTheOneWithTheFewestEdits) {
  const std::vector<std::string_view> words = {"name", "weight", "workers_min",
                                               "workers_max"};
  EXPECT_EQ(ClosestWord("nam", words), "name");
  EXPECT_EQ(ClosestWord("nmae", words), "name");
  EXPECT_EQ(ClosestWord("na", {"app", "an"}), "an");
  EXPECT_EQ(ClosestWord("Weight", words), "weight");
  EXPECT_EQ(ClosestWord("workers_mox", words), "workers_max");
}

TEST(ClosestWord, IsNoneWhenAllAreFar) {
  EXPECT_EQ(ClosestWord("gpu", {"name", "app"}), "");
  EXPECT_EQ(ClosestWord("x", {"name"}), "");
  EXPECT_EQ(ClosestWord("", {"name"}), "");
  EXPECT_EQ(ClosestWord("name", {}), "");
}

TEST(QuoteToml, EscapesWhatTomlWantsEscaped) {
  EXPECT_EQ(QuoteToml(R"(a"b\c)"), R"("a\"b\\c")");
  EXPECT_EQ(QuoteToml("a\nb\tc\x7f"), R"("a\nb\u0009c\u007F")");
  EXPECT_EQ(QuoteToml("\xc3\xa4"), "\"\xc3\xa4\"");
}

TEST(TomlReader, KeepsTheFirstError) {
  const toml::table table = ParseToml("a = 1\nb = 2", "x", 100).value();
  absl::Status status;
  TomlReader reader(table, "x", status);
  std::string text = "default";
  EXPECT_FALSE(reader.Read("b", text));
  EXPECT_FALSE(reader.Read("a", text));
  EXPECT_EQ(text, "default");
  EXPECT_EQ(status.message(), "x:2:5: b is an integer; write a string");
}

TEST(ParseToml, BoundsTheText) {
  EXPECT_THAT(ParseToml("# 12345", "x", 6),
              IsInvalid("x:1:1: 7 bytes exceed the 6 allow"));
}

// Each ran into an assertion of toml++ 3.3 and ended the process.
TEST(ParseToml, RefusesHeadersThatBreakTheLibrary) {
  for (const char* text : {"[&", "[[[1]]]", "[[=", "[[[]]", "[[[a]]]"}) {
    EXPECT_THAT(ParseToml(text, "x", 100),
                IsInvalid("x:1:1: not TOML; check the brack"))
        << text;
  }
}

// Its tables of white space and letters call them unreachable.
TEST(ParseToml, RefusesCharactersThatTheLibraryForgot) {
  for (const char* text : {"[\xd0\x92]", "\xc3\xa9 = 1", "a \xd4\x90= 1"}) {
    EXPECT_THAT(ParseToml(text, "x", 100), IsInvalid("not TOML")) << text;
  }
  EXPECT_OK(ParseToml("a = \"\xd0\x92\"  # \xc3\xa9", "x", 100));
}

// Whatever few characters of the grammar follow each other.
TEST(ParseToml, SurvivesRandomText) {
  constexpr std::string_view kCharacters = "[]{}=\"'.,#\n a1-_+:TZ\\u0exb&\r";
  std::mt19937_64 random(9);
  for (int i = 0; i < 50000; ++i) {
    std::string text;
    for (size_t n = random() % 24; n > 0; --n) {
      text.push_back(kCharacters[random() % kCharacters.size()]);
    }
    const auto table = ParseToml(text, "x", 100);
    if (!table.ok()) {
      EXPECT_THAT(table, IsInvalid("not TOML")) << text;
    }
  }
}

TEST(ParseToml, RefusesDeepNesting) {
  const std::string deep =
      "a = " + std::string(1000, '[') + std::string(1000, ']');
  EXPECT_THAT(ParseToml(deep, "x", 10000), IsInvalid("x:1:"));
}

}  // namespace
}  // namespace gavel
