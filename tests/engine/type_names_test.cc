#include "coordinator/engine/type_names.h"

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

TEST(TypeNames, LeaveOutFormFactorAndMemoryButNoModel) {
  EXPECT_THAT(ShorterTypeNames("a100-pcie-80gb"),
              ElementsAre("a100-80gb", "a100-pcie", "a100"));
  EXPECT_THAT(ShorterTypeNames("v100-16gb"), ElementsAre("v100"));
  EXPECT_THAT(ShorterTypeNames("v100"), IsEmpty());
  EXPECT_THAT(ShorterTypeNames("rtx_6000_ada"), IsEmpty());
  EXPECT_THAT(ShorterTypeNames("cpu-fast"), IsEmpty());
  EXPECT_THAT(ShorterTypeNames("cpu-fast-4gb"), ElementsAre("cpu-fast"));
}

TEST(TypeNames, AShortOneMeansNothingWhereItMeansTwo) {
  const std::vector<std::string> both{"a100-40gb", "a100-80gb", "v100-16gb"};
  EXPECT_THAT(NamesOfType("a100-80gb", both), ElementsAre("a100-80gb"));
  EXPECT_THAT(NamesOfType("v100-16gb", both), ElementsAre("v100-16gb", "v100"));
  // Somebody's own "a100" is that.
  const std::vector<std::string> own{"a100", "a100-80gb"};
  EXPECT_THAT(NamesOfType("a100-80gb", own), ElementsAre("a100-80gb"));
}

TEST(TypeNames, FiguresAreFoundByThem) {
  const std::vector<std::string> types{"a100-80gb", "v100-16gb", "v100-32gb"};
  std::map<std::string, double> given{
      {"a100", 4}, {"a100_unconsolidated", 3}, {"v100", 2}, {"v100-32gb", 1}};
  NameInFull(types, &given);
  EXPECT_THAT(given, ElementsAre(Pair("a100", 4), Pair("a100-80gb", 4),
                                 Pair("a100-80gb_unconsolidated", 3),
                                 Pair("a100_unconsolidated", 3),
                                 Pair("v100", 2), Pair("v100-32gb", 1)));
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(
                           R"~({"a100": {"('lm', 1)": {"null": 5}},
               "v100": {"('lm', 1)": {"null": 2}}})~",
                           "table"));
  EXPECT_EQ(FindColumn(table, "a100-80gb", types), table.FindType("a100"));
  EXPECT_EQ(FindColumn(table, "v100-16gb", types), std::nullopt);
}

// Agents may join after the job was submitted.
TEST(TypeNames, AJobsFiguresHoldOnATypeThatJoinsLater) {
  EngineDriver driver;
  JobSpec spec;
  spec.throughputs = {{"v100", 2}, {"a100", 7}};
  const JobId job = driver.Submit("a", 1, spec);
  driver.Step(event::ServerJoined{EngineDriver::HelloOf("there", "a100-80gb")});
  const Throughput known = driver.engine().throughputs().Get(job, "a100-80gb");
  EXPECT_EQ(known.steps_per_s, 7);
  EXPECT_EQ(known.source, ThroughputSource::kGiven);
}

}  // namespace
}  // namespace gavel
