#include "coordinator/server/rows.h"

#include <iterator>

#include "nlohmann/json.hpp"
#include "tests/support/test.h"

namespace gavel {
namespace {

using Json = nlohmann::ordered_json;

QueueRow SomeRow() {
  QueueRow row;
  row.id = 12;
  row.name = "lm \"a\"";
  row.scale_factor = 2;
  row.accelerators = {{"here", "v100", "here-0"}, {"there", "k80", "x"}};
  row.steps_per_s = 0.25;
  row.scalars = {{"loss", 2.5}, {"accuracy", 0.5}};
  row.last_generation = {3, 250};
  row.exit = ExitRow{4, std::nullopt, 9};
  return row;
}

// Both ways of writing give the same values, in the order of the list.
TEST(Rows, AreWrittenAsTextAsTheyAreAsValues) {
  JsonText text;
  text.Value(SomeRow());
  const Json read = Json::parse(text.Take());
  EXPECT_EQ(read, ToJson(SomeRow()));
  EXPECT_EQ(read.begin().key(), "id");
  EXPECT_EQ(std::prev(read.end()).key(), "app_to_come_s");
  EXPECT_EQ(read["accelerators"][1],
            Json({{"server", "there"}, {"type", "k80"}, {"uuid", "x"}}));
  EXPECT_EQ(read["scalars"].dump(), R"({"loss":2.5,"accuracy":0.5})");
  EXPECT_EQ(read["last_generation"], Json({{"epoch", 3}, {"step", 250}}));
  EXPECT_TRUE(read["ended_at_s"].is_null());
  EXPECT_TRUE(read["exit"]["exit_code"].is_null());
}

TEST(Rows, ComeBackAsTheyWere) {
  const Json json = ToJson(SomeRow());
  const auto row = ReadJson<QueueRow>(json);
  EXPECT_EQ(ToJson(row), json);
  EXPECT_EQ(row.name, "lm \"a\"");
  EXPECT_FALSE(row.ended_at_s.has_value());
  EXPECT_EQ(*FindNamed(row.scalars, "accuracy"), 0.5);
  EXPECT_EQ(FindNamed(row.scalars, "f1"), nullptr);
}

TEST(Rows, OfAnotherVersionAreReadAsFarAsTheyAreKnown) {
  const auto row = ReadJson<StatusRow>(Json::parse(
      R"({"term": 3, "seq": -1, "policy": 7, "colour": "red",
          "gap": "none", "rounds": 18446744073709551615,
          "profiling": {"accelerators": 1e10, "percentage_max": 25},
          "failures": [1], "troubles": ["a", 2, "b"],
          "jobs": {"R": 2, "PD": null}})"));
  EXPECT_EQ(row.term, 3);
  EXPECT_EQ(row.seq, 0);
  EXPECT_EQ(row.policy, "");
  EXPECT_FALSE(row.gap.has_value());
  EXPECT_EQ(row.rounds, UINT64_MAX);
  EXPECT_EQ(row.profiling.accelerators, 0);
  EXPECT_EQ(row.profiling.percentage_max, 25);
  EXPECT_EQ(row.failures.workers_lost, 0);
  EXPECT_THAT(row.troubles, ElementsAre("a", "b"));
  EXPECT_THAT(row.jobs, ElementsAre(Pair("R", 2)));
  EXPECT_TRUE(ReadJson<std::vector<NodeRow>>(nullptr).empty());
}

}  // namespace
}  // namespace gavel
