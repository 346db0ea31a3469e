#include "core/flat_map.h"

#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gavel {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(FlatMap, IsInTheOrderOfItsKeys) {
  FlatMap<std::string, int> map;
  map["b"] = 2;
  map[std::string_view("c")] = 3;
  map["a"] = 1;
  map["b"] += 10;
  EXPECT_THAT(map, ElementsAre(Pair("a", 1), Pair("b", 12), Pair("c", 3)));
}

TEST(FlatMap, FindsWhatIsThere) {
  FlatMap<std::string, int> map;
  map["b"] = 2;
  EXPECT_EQ(map.find(std::string_view("b"))->second, 2);
  EXPECT_TRUE(map.contains("b"));
  EXPECT_EQ(map.find("a"), map.end());
  EXPECT_FALSE(map.contains("c"));
}

TEST(FlatMap, InsertsAKeyOnce) {
  FlatMap<std::string, int> map;
  map.insert({"b", 2});
  map.insert({"a", 1});
  map.insert({"b", 3});
  EXPECT_THAT(map, ElementsAre(Pair("a", 1), Pair("b", 2)));
}

TEST(FlatMap, ErasesWhatIsAsked) {
  FlatMap<std::string, int> map;
  map["a"] = 1;
  map["b"] = 2;
  map["c"] = 3;
  EXPECT_EQ(map.EraseIf([](const auto& entry) { return entry.second != 2; }),
            2u);
  EXPECT_THAT(map, ElementsAre(Pair("b", 2)));
}

}  // namespace
}  // namespace gavel
