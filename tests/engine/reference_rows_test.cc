// Jobs that the throughput table does not know get the row of the one that they
// are most like.
#include "coordinator/engine/reference_rows.h"

#include <cmath>

#include "gmock/gmock.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "meek" and "hungry", on a v100 and an older one; each keeps of its steps/s
// beside others what it leaves to them.
std::shared_ptr<const ThroughputTable> MeekAndHungry() {
  auto table = ThroughputTable::Parse(
      R"json({"v100": {"('meek', 1)": {"null": 10, "('meek', 1)": [9, 9],
                                       "('hungry', 1)": [6, 16]},
                       "('hungry', 1)": {"null": 20, "('hungry', 1)": [8, 8],
                                         "('meek', 1)": [16, 6]}},
              "k80": {"('meek', 1)": {"null": 8},
                      "('hungry', 1)": {"null": 2}}})json",
      "two models");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return std::make_shared<const ThroughputTable>(*std::move(table));
}

TEST(ReferenceRows, FindTheRowThatAJobIsMostLike) {
  const auto table = MeekAndHungry();
  const ReferenceRows rows(table, 2);
  EXPECT_EQ(rows.RowsOf(1).size(), 2u);
  EXPECT_THAT(rows.RowsOf(2), IsEmpty());
  EXPECT_TRUE(rows.CanShare(1));
  EXPECT_FALSE(rows.CanShare(2));
  const auto slow = rows.Find(1, {{"v100", "", 40}, {"k80", "", 4.1}});
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(table->NameOf(slow->row).first, "hungry");
  EXPECT_NEAR(slow->speed, 2, 0.05);
  const auto meek = rows.Find(1, {{"v100", "", 5}, {"v100", "meek", 0.9}});
  ASSERT_TRUE(meek.has_value());
  EXPECT_EQ(table->NameOf(meek->row).first, "meek");
  EXPECT_NEAR(meek->speed, 0.5, 1e-12);
  EXPECT_FALSE(rows.Find(1, {{"tpu", "", 5}, {"v100", "stranger", 1}}));
  EXPECT_FALSE(rows.Find(4, {{"v100", "meek", 1}}));
}

TEST(ReferenceRows, NoMoreAreTakenThanAsked) {
  EXPECT_EQ(ReferenceRows(MeekAndHungry(), 1).RowsOf(1).size(), 1u);
  EXPECT_EQ(ReferenceRows(MeekAndHungry(), 26).RowsOf(1).size(), 2u);
}

class Estimates : public ::testing::Test {
 protected:
  JobId SubmitFresh(std::map<std::string, double> given,
                    std::vector<ProfiledCell> profile) {
    event::JobSubmitted submitted;
    submitted.spec.name = submitted.spec.app = "fresh";
    submitted.spec.argv = {"./train"};
    submitted.spec.throughputs = std::move(given);
    submitted.profile = std::move(profile);
    driver_.Step(submitted);
    return driver_.engine().jobs().rbegin()->first;
  }
  EngineDriver driver_{1, "max_min_fairness", [](EngineOptions& options) {
                         options.throughputs = MeekAndHungry();
                         options.reference_models = 2;
                         options.packing = true;
                       }};
};

TEST_F(Estimates, GoToThePolicyScaledToTheJobsOwnSpeed) {
  const JobId job =
      SubmitFresh({{"v100", 40}, {"k80", 4}}, {{"v100", "meek", 0.8}});
  ASSERT_TRUE(driver_.job(job).table_row.has_value());
  EXPECT_NEAR(driver_.job(job).row_speed, 2, 1e-9);
  JobSpec known;
  known.app = "meek";
  const JobId meek = driver_.Submit("known", 1, known);
  EXPECT_EQ(driver_.job(meek).row_speed, 0);
  ASSERT_EQ(driver_.problem.pairs.size(), 1u);
  // As "hungry" beside "meek", twice as fast.
  EXPECT_THAT(driver_.problem.pair_throughputs,
              ElementsAre(::testing::DoubleNear(32, 1e-9),
                          ::testing::DoubleNear(6, 1e-9)));
}

TEST_F(Estimates, TellOfTypesThatNobodyMeasured) {
  SubmitFresh({{"v100", 40}}, {{"v100", "hungry", 0.4}});
  const ThroughputMatrix& matrix = driver_.engine().throughputs();
  const Throughput there = matrix.Get(JobId(1), "k80");
  EXPECT_NEAR(there.steps_per_s, 4, 1e-9);
  // It is still to be tried.
  EXPECT_EQ(there.source, ThroughputSource::kGuessed);
}

TEST_F(Estimates, WithoutAnySignAJobHasNoRow) {
  EXPECT_FALSE(driver_.job(SubmitFresh({}, {})).table_row.has_value());
}

TEST_F(Estimates, OfPairsAreNotTakenFromSpeedsAloneOnTypes) {
  const JobId job = SubmitFresh({{"v100", 40}, {"k80", 4}}, {});
  EXPECT_FALSE(driver_.job(job).table_row.has_value());
}

TEST_F(Estimates, AreTheSameAfterASnapshot) {
  const JobId job =
      SubmitFresh({{"v100", 40}, {"k80", 4}}, {{"v100", "meek", 0.8}});
  const auto bytes = driver_.engine().Snapshot();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  Engine other(driver_.engine().options());
  ASSERT_TRUE(other.Restore(*bytes).ok());
  EXPECT_EQ(other.jobs().at(job).table_row, driver_.job(job).table_row);
  EXPECT_EQ(other.jobs().at(job).row_speed, driver_.job(job).row_speed);
}

}  // namespace
}  // namespace gavel
