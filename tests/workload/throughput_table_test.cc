#include "coordinator/workload/throughput_table.h"

#include <random>

#include "core/text.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr std::string_view kSmallTable = R"json({
  "v100": {
    "('A (b)', 1)": {"null": 10.5,
                     "('A (b)', 1)": [6, 5.5],
                     "('it's', 1)": [3.0, 4.0]},
    "('A (b)', 2)": {"null": 20},
    "('it's', 1)": {"null": 8, "('A (b)', 1)": [4.0, 3.0]}
  },
  "k80_unconsolidated": {"('A (b)', 2)": {"null": 1.5}},
  "k80": {
    "('A (b)', 2)": {"null": 2, "('A (b)', 2)": [0.0, 1.0]},
    "('it's', 1)": {"null": 0}
  }
})json";

ThroughputTable SmallTable() {
  return ThroughputTable::Parse(kSmallTable, "t.json").value();
}

absl::Status TableError(std::string_view json) {
  return ThroughputTable::Parse(json, "t.json").status();
}

// A table of a single row, `figures`.
std::string OneRow(std::string_view figures) {
  return "{\"v100\": {\"('A', 1)\": " + std::string(figures) + "}}";
}

TEST(ThroughputTable, KnowsTypesAndRows) {
  const ThroughputTable table = SmallTable();
  EXPECT_THAT(table.types(), ElementsAre("k80", "v100"));
  EXPECT_EQ(table.FindType("k80"), 0U);
  EXPECT_EQ(table.FindType("v100"), 1U);
  EXPECT_EQ(table.FindType("k80_unconsolidated"), std::nullopt);
  EXPECT_EQ(table.FindType("p100"), std::nullopt);
  EXPECT_EQ(table.FindType(""), std::nullopt);
  EXPECT_EQ(table.rows(), 3U);
  for (ThroughputTable::Row row = 0; row < table.rows(); ++row) {
    EXPECT_EQ(table.FindRow(table.NameOf(row).first, table.NameOf(row).second),
              row);
  }
  EXPECT_EQ(table.FindRow("A (b)", 3), std::nullopt);
  EXPECT_EQ(table.FindRow("A", 1), std::nullopt);
}

// As much of two tables as their users can ask.
void ExpectSame(const ThroughputTable& a, const ThroughputTable& b) {
  ASSERT_EQ(a.types(), b.types());
  ASSERT_EQ(a.rows(), b.rows());
  for (ThroughputTable::Row row = 0; row < a.rows(); ++row) {
    const auto in_b = b.FindRow(a.NameOf(row).first, a.NameOf(row).second);
    ASSERT_TRUE(in_b.has_value()) << a.NameOf(row).first;
    for (size_t type = 0; type < a.types().size(); ++type) {
      for (const Locality level : kAllLocalities) {
        EXPECT_EQ(a.Alone(row, type, level), b.Alone(*in_b, type, level));
      }
      for (const bool consolidated : {true, false}) {
        for (ThroughputTable::Row other = 0; other < a.rows(); ++other) {
          EXPECT_EQ(a.Together(row, other, type, consolidated),
                    b.Together(*in_b,
                               *b.FindRow(a.NameOf(other).first,
                                          a.NameOf(other).second),
                               type, consolidated));
        }
      }
    }
  }
}

TEST(WriteThroughputs, WhatIsWrittenReadsBackTheSame) {
  const ThroughputTable table = SmallTable();
  const std::string json = WriteThroughputs(table.ToFigures());
  ASSERT_OK_AND_ASSIGN(const ThroughputTable again,
                       ThroughputTable::Parse(json, "again.json"));
  ExpectSame(table, again);
  EXPECT_EQ(again.has_unconsolidated(), table.has_unconsolidated());
}

TEST(ThroughputTable, NamesAreReadAsPythonWritesThem) {
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(R"json({"v100": {
          "(\"ada's net\", 1)": {"null": 1, "('a\\\\b', 1)": [0.5, 1]},
          "('a\\\\b', 1)": {"null": 2},
          "('it\\'s \"it\"', 2)": {"null": 3},
          "('say \"no\"', 1)": {"null": 4}}})json",
                                              "t"));
  EXPECT_TRUE(table.FindRow("ada's net", 1).has_value());
  EXPECT_TRUE(table.FindRow("a\\b", 1).has_value());
  EXPECT_TRUE(table.FindRow("it's \"it\"", 2).has_value());
  EXPECT_TRUE(table.FindRow("say \"no\"", 1).has_value());
  const std::string json = WriteThroughputs(table.ToFigures());
  EXPECT_THAT(json, HasSubstr(R"x("(\"ada's net\", 1)")x"));
  EXPECT_THAT(json, HasSubstr(R"x("('it\\'s \"it\"', 2)")x"));
  ASSERT_OK_AND_ASSIGN(const ThroughputTable again,
                       ThroughputTable::Parse(json, "again.json"));
  ExpectSame(table, again);
}

TEST(ThroughputTable, WhatIsNoNumberIsToldTheRemedy) {
  for (const char* value : {"NaN", "Infinity", "-Infinity"}) {
    EXPECT_THAT(TableError(OneRow(std::string("{\"null\": ") + value + "}")),
                IsInvalid("a throughput that is no number; write steps/s, 0 "
                          "for what cannot run there, or leave the row out"))
        << value;
  }
}

TEST(WriteThroughputs, RandomFiguresKeepAllTheirDigits) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> draw(0, 1000);
  for (int i = 0; i < 50; ++i) {
    ThroughputTable::Figures figures{{"k80", "v100"}, {}, {}, {}, true, {}};
    const size_t rows = 1 + random() % 4;
    for (size_t row = 0; row < rows; ++row) {
      figures.names.emplace_back("type " + std::to_string(row), 1);
    }
    for (size_t cell = 0; cell < 4 * rows; ++cell) {
      figures.alone.push_back(draw(random));
      auto& partners = figures.partners.emplace_back();
      for (uint64_t other = 0; other < rows; ++other) {
        partners.push_back({other, {draw(random), draw(random)}});
      }
    }
    ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                         ThroughputTable::FromFigures(figures));
    ASSERT_OK_AND_ASSIGN(
        const ThroughputTable again,
        ThroughputTable::Parse(WriteThroughputs(figures), "again.json"));
    ExpectSame(table, again);
  }
}

TEST(ThroughputTable, KnowsWhatAJobMakesAlone) {
  const ThroughputTable table = SmallTable();
  const size_t k80 = *table.FindType("k80");
  const size_t v100 = *table.FindType("v100");
  const auto a = *table.FindRow("A (b)", 1);
  const auto a2 = *table.FindRow("A (b)", 2);
  const auto its = *table.FindRow("it's", 1);
  EXPECT_THAT(table.Alone(a, v100), Optional(10.5));
  EXPECT_THAT(table.Alone(a2, v100), Optional(20));
  EXPECT_THAT(table.Alone(its, k80), Optional(0));
  EXPECT_EQ(table.Alone(a, k80), std::nullopt);
  EXPECT_TRUE(table.has_unconsolidated());
  EXPECT_THAT(table.Alone(a2, k80, Locality::kCluster), Optional(1.5));
  EXPECT_THAT(table.Alone(a2, k80), Optional(2));
  EXPECT_EQ(table.Alone(a2, v100, Locality::kCluster), std::nullopt);
}

TEST(ThroughputTable, KnowsWhatTwoJobsMakeTogether) {
  const ThroughputTable table = SmallTable();
  const size_t v100 = *table.FindType("v100");
  const auto a = *table.FindRow("A (b)", 1);
  const auto a2 = *table.FindRow("A (b)", 2);
  const auto its = *table.FindRow("it's", 1);
  EXPECT_TRUE(table.has_pairs());
  EXPECT_EQ(table.Together(a, a, v100), std::pair(6.0, 5.5));
  EXPECT_EQ(table.Together(a, its, v100), std::pair(3.0, 4.0));
  EXPECT_EQ(table.Together(its, a, v100), std::pair(4.0, 3.0));
  // Nobody knows, which is not that they cannot.
  EXPECT_EQ(table.Together(its, its, v100), std::nullopt);
  EXPECT_EQ(table.Together(a, a, v100, false), std::nullopt);
  // One of two that stands still: they cannot share.
  EXPECT_EQ(table.Together(a2, a2, *table.FindType("k80")),
            std::pair(0.0, 0.0));
}

TEST(ThroughputTable, MayHaveNeitherPairsNorSpreadGangs) {
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(OneRow("{\"null\": 1}"), "t"));
  EXPECT_FALSE(table.has_pairs());
  EXPECT_FALSE(table.has_unconsolidated());
  EXPECT_THAT(table.types(), ElementsAre("v100"));
}

TEST(ThroughputTable, BadFiguresAreNamedByTypeAndRow) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"null\": -1}",
       "t.json: in v100, row ('A', 1): throughput is -1; write steps/s"},
      {"{\"null\": 2e9}", "throughput is 2e+09; write steps/s from 0 to 1e+09"},
      {"{\"null\": -1.5e-3}", "throughput is -0.0015"},
      {"{\"null\": \"fast\"}",
       "in v100, row ('A', 1): throughput is a string; write a number"},
      {"{\"null\": null}", "throughput is null; write a number"},
      {"{\"null\": true}", "throughput is a boolean"},
      {"{\"null\": [1, 2]}", "throughput is an array; write a number"},
      {"{\"null\": {}}", "throughput is an object"},
      {"3", "in v100, row ('A', 1) is a number; write an object"},
      {"[3]", "in v100, row ('A', 1) is an array; write an object"},
  };
  for (const auto& [row, error] : cases) {
    EXPECT_THAT(TableError(OneRow(row)), IsInvalid(error)) << row;
  }
}

TEST(ThroughputTable, BadPairsAreNamedByBoth) {
  const std::pair<const char*, const char*> cases[] = {
      {"3",
       "in v100, row ('A', 1), with ('B', 1): throughput is a number; write "
       "[number, number]"},
      {"[]", "with ('B', 1): too few throughputs; write [of the row, of the"},
      {"[3]", "with ('B', 1): too few throughputs"},
      {"[3, 4, 5]", "with ('B', 1): too many throughputs"},
      {"[3, -4]", "with ('B', 1): throughput is -4; write steps/s"},
      {"[3, \"4\"]", "with ('B', 1): throughput is a string; write a number"},
      {"[3, [4]]", "with ('B', 1): throughput is an array; write a number"},
      {"[3, {}]", "with ('B', 1): throughput is an object; write a number"},
      {"{}", "with ('B', 1): throughput is an object; write [number, number]"},
      {"null", "with ('B', 1): throughput is null"},
  };
  for (const auto& [pair, error] : cases) {
    const std::string row =
        "{\"null\": 1, \"('B', 1)\": " + std::string(pair) + "}";
    EXPECT_THAT(TableError(OneRow(row)), IsInvalid(error)) << row;
  }
}

TEST(ThroughputTable, BadNamesAreQuoted) {
  for (const std::string name :
       {"A", "('A', 0)", "('A', -1)", "('A', 01)", "('A', 1.5)", "('A', )",
        "('A')", "('A', 1", "(A, 1)", "('', 1)", "", "('A', 99999999999)"}) {
    const std::string error = "\"" + name + "\" names no row; write ";
    EXPECT_THAT(TableError("{\"v100\": {\"" + name + "\": {\"null\": 1}}}"),
                IsInvalid(error));
    EXPECT_THAT(TableError(OneRow("{\"" + name + "\": [1, 2]}")),
                IsInvalid(error));
  }
  EXPECT_THAT(TableError("{\"\": {}}"),
              IsInvalid("an accelerator type has no name"));
}

TEST(ThroughputTable, NothingMayBeThereTwice) {
  const std::pair<std::string, const char*> cases[] = {
      {"{\"v100\": {}, \"v100\": {}}", "t.json: in v100 is there twice"},
      {"{\"v100\": {\"('A', 1)\": {\"null\": 1}, \"('A', 1)\": {}}}",
       "in v100, row ('A', 1) is there twice"},
      {OneRow("{\"null\": 1, \"null\": 1}"),
       "in v100, row ('A', 1): null is there twice"},
      {OneRow("{\"('B', 1)\": [1, 1], \"('B', 1)\": [1, 1]}"),
       "row ('A', 1), with ('B', 1) is there twice"},
  };
  for (const auto& [json, error] : cases) {
    EXPECT_THAT(TableError(json), IsInvalid(error)) << json;
  }
}

TEST(ThroughputTable, WhatIsNotJsonIsPointedAt) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "t.json:1:1: not JSON"},
      {"{", "t.json:1:1: not JSON"},
      {"{\n  \"v100\" 3", "t.json:2:10: not JSON in v100: syntax error"},
      {OneRow("{\"null\": NaN}"),
       "t.json:1:32: not JSON in v100, row ('A', 1): a throughput that is no "
       "number; write steps/s"},
      {OneRow("{\"null\": Infinity}"), "t.json:1:32: not JSON in v100, row"},
      {OneRow("{\"null\": 1e999}"), "number overflow parsing '1e999'"},
      {OneRow("{\"null\": 1}") + " x", "t.json:1:37: not JSON"},
      {"{\"v\xff\": {}}", "t.json:1:4: not JSON"},
      {"[]", "t.json: the file is an array; write an object"},
      {"7", "t.json: the file is a number; write an object"},
      {"{\"v100\": 7}", "t.json: in v100 is a number; write an object"},
      {"{}", "t.json: there are no throughputs; write e.g."},
      {OneRow("{}"), "t.json: there are no throughputs; write e.g."},
  };
  for (const auto& [json, error] : cases) {
    EXPECT_THAT(TableError(json), IsInvalid(error)) << json;
  }
}

TEST(ThroughputTable, HasLevelsOfLocalityWhereAFileHasThem) {
  constexpr std::string_view kLevels = R"json({
    "v100@group": {"('VGG-16', 4)": {"null": 40}},
    "v100": {"('VGG-16', 4)": {"null": 30}, "('A', 1)": {"null": 1}},
    "v100@rack": {"('VGG-16', 4)": {"null": 20}},
    "v100_unconsolidated": {"('VGG-16', 4)": {"null": 10}}})json";
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(kLevels, "t.json"));
  EXPECT_THAT(table.types(), ElementsAre("v100"));
  EXPECT_TRUE(table.has_levels());
  const size_t row = *table.FindRow("VGG-16", 4);
  double expected = 50;
  for (const Locality level : kAllLocalities) {
    EXPECT_THAT(table.Alone(row, 0, level), Optional(expected -= 10));
  }
  ASSERT_OK_AND_ASSIGN(
      const ThroughputTable again,
      ThroughputTable::Parse(WriteThroughputs(table.ToFigures()), "t.json"));
  ExpectSame(table, again);
  ASSERT_OK_AND_ASSIGN(const ThroughputTable restored,
                       ThroughputTable::FromFigures(table.ToFigures()));
  ExpectSame(table, restored);
  auto short_of_some = table.ToFigures();
  short_of_some.alone_at.pop_back();
  EXPECT_FALSE(ThroughputTable::FromFigures(short_of_some).ok());
}

TEST(ThroughputTable, AMissingLevelIsThatOfItsSubstitute) {
  ASSERT_OK_AND_ASSIGN(const ThroughputTable two,
                       ThroughputTable::Parse(R"json({
        "v100": {"('A', 2)": {"null": 8}, "('B', 2)": {"null": 6}},
        "v100_unconsolidated": {"('A', 2)": {"null": 3}}})json",
                                              "t.json"));
  EXPECT_FALSE(two.has_levels());
  const size_t a = *two.FindRow("A", 2);
  EXPECT_EQ(two.Alone(a, 0, Locality::kRack), std::nullopt);
  EXPECT_THAT(two.AloneAsAt(a, 0, Locality::kGroup), Optional(8));
  EXPECT_THAT(two.AloneAsAt(a, 0, Locality::kRack), Optional(3));
  EXPECT_THAT(two.AloneAsAt(*two.FindRow("B", 2), 0, Locality::kRack),
              Optional(6));
}

TEST(ThroughputTable, UnknownLevelsAndPairsOfThemAreRefused) {
  const auto parse = [](std::string_view type, std::string_view figure) {
    return ThroughputTable::Parse(
        StrCat("{\"", type, "\": {\"('A', 2)\": {", figure, "}}}"), "t.json");
  };
  EXPECT_THAT(parse("v100@pod", "\"null\": 1"),
              IsInvalid("v100@pod is at an unknown level of locality; write "
                        "TYPE@group"));
  EXPECT_THAT(parse("v100@server", "\"null\": 1"), IsInvalid("unknown level"));
  EXPECT_THAT(parse("v100@rack", "\"('A', 2)\": [1, 1]"),
              IsInvalid("pairs have no throughputs of groups and racks"));
}

}  // namespace
}  // namespace gavel
