// A job that the throughput table does not know gets the row of the job type
// that it is most like.
#include <cmath>

#include "coordinator/engine/throughput_estimator.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

// A table of "meek" and "hungry" on a v100 and an older type. On the v100 they
// are measured in pairs, in which "hungry" slows its partner more than "meek"
// does.
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

// "failed" could not be measured beside any other job.
TEST(ReferenceRows, WhatWasNotMeasuredIsNotTakenForCannotShare) {
  auto table = ThroughputTable::Parse(
      R"json({"v100": {"('meek', 1)": {"null": 10, "('meek', 1)": [9, 9],
                                       "('hungry', 1)": [7, 5]},
                       "('hungry', 1)": {"null": 10, "('hungry', 1)": [5, 5],
                                         "('meek', 1)": [5, 7]},
                       "('failed', 1)": {"null": 10}},
              "k80": {"('meek', 1)": {"null": 2},
                      "('hungry', 1)": {"null": 5},
                      "('failed', 1)": {"null": 8}}})json",
      "with gaps");
  ASSERT_TRUE(table.ok()) << table.status().message();
  const auto shared = std::make_shared<const ThroughputTable>(*table);
  const auto match = ReferenceRows(shared, 3).Find(
      1, {{"v100", "", 10}, {"k80", "", 8}, {"v100", "meek", 0.5}});
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(shared->NameOf(match->row).first, "failed");
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
  // Runs "meek" of the table and the fresh job on the accelerator together.
  JobId StartBesideMeek(std::map<std::string, double> given,
                        std::vector<ProfiledCell> profile) {
    driver_.answer = [](const PolicyProblem& problem) {
      PolicyResult result;
      result.outcome = SolveOutcome::kOptimal;
      const size_t count = problem.jobs.size();
      result.allocation = Allocation::FromRows(
          {{problem.jobs[0].id, count > 1 ? problem.jobs[1].id : JobId()}}, 1,
          {1.0});
      return result;
    };
    JobSpec known;
    known.app = "meek";
    meek_ = driver_.Submit("known", 1, known);
    const JobId fresh = SubmitFresh(std::move(given), std::move(profile));
    driver_.At(driver_.engine().round_ends_at() + 1);
    EXPECT_EQ(driver_.job(fresh).partner, meek_);
    driver_.Run(meek_);
    driver_.Run(fresh);
    return fresh;
  }
  void Report(JobId job, double steps_per_s, double window_s) {
    driver_.At(driver_.now + window_s);
    driver_.ReportSpeed(job, steps_per_s, window_s);
  }
  void ExpectLikeHungry(const Engine& engine, JobId job) const {
    const Job& fresh = engine.jobs().at(job);
    ASSERT_TRUE(fresh.table_row.has_value());
    EXPECT_EQ(engine.options().throughputs->NameOf(*fresh.table_row).first,
              "hungry");
    EXPECT_GT(fresh.row_speed, 0);
  }
  JobId meek_;
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
  // The fresh job is like "hungry" beside "meek", at twice the speed.
  EXPECT_THAT(driver_.problem.pair_throughputs,
              ElementsAre(::testing::DoubleNear(32, 1e-9),
                          ::testing::DoubleNear(6, 1e-9)));
}

TEST_F(Estimates, TellOfTypesThatNobodyMeasured) {
  SubmitFresh({{"v100", 40}}, {{"v100", "hungry", 0.4}});
  const ThroughputMatrix& matrix = driver_.engine().throughputs();
  const Throughput there = matrix.Get(JobId(1), "k80");
  EXPECT_NEAR(there.steps_per_s, 4, 1e-9);
  // It still has to be tried there.
  EXPECT_EQ(there.source, ThroughputSource::kGuessed);
}

TEST_F(Estimates, WithoutAnySignAJobHasNoRow) {
  EXPECT_FALSE(driver_.job(SubmitFresh({}, {})).table_row.has_value());
}

TEST_F(Estimates, OfPairsAreNotTakenFromSpeedsAloneOnTypes) {
  const JobId job = SubmitFresh({{"v100", 40}, {"k80", 4}}, {});
  EXPECT_FALSE(driver_.job(job).table_row.has_value());
}

TEST_F(Estimates, OfAPairThatRanStayWhenThePartnerEnds) {
  const JobId job = StartBesideMeek({{"v100", 40}}, {});
  EXPECT_FALSE(driver_.job(job).table_row.has_value());
  Report(job, 32, 5);
  ExpectLikeHungry(driver_.engine(), job);
  driver_.Gone(driver_.Key(meek_), 0);
  EXPECT_EQ(driver_.job(meek_).state, JobState::kFinished);
  Report(job, 60, 50);  // it looks anew for what the job is like
  EXPECT_NEAR(driver_.engine().throughputs().Get(job, "v100").steps_per_s, 60,
              0.5);
  ExpectLikeHungry(driver_.engine(), job);
  ExpectLikeHungry(driver_.Restored(), job);
  driver_.Restart();
  ExpectLikeHungry(driver_.engine(), job);
}

TEST_F(Estimates, OfPairsAreCorrectedByWhatIsMeasured) {
  const JobId job =
      StartBesideMeek({{"v100", 40}, {"k80", 4}}, {{"v100", "meek", 0.8}});
  ASSERT_EQ(driver_.problem.pair_throughputs.size(), 2u);
  EXPECT_NEAR(driver_.problem.pair_throughputs[1], 32, 1e-9);
  Report(job, 20, 60);
  Report(meek_, 3, 60);
  driver_.Submit("another");  // solved anew
  ASSERT_EQ(driver_.problem.pair_throughputs.size(), 2u);
  EXPECT_NEAR(driver_.problem.pair_throughputs[0], 3, 0.1);
  EXPECT_NEAR(driver_.problem.pair_throughputs[1], 20, 0.25);
}

TEST_F(Estimates, OfAPairThatRanOutOfMemoryAreForgottenByARelease) {
  const JobId job = StartBesideMeek({{"v100", 40}}, {});
  driver_.GiveBack(driver_.Key(job), {}, ReleaseCause::kOutOfMemory);
  ASSERT_EQ(driver_.job(job).profile.size(), 1u);
  EXPECT_EQ(driver_.job(job).profile[0].beside, "meek");
  EXPECT_EQ(driver_.job(job).profile[0].value, 0);
  driver_.Step(event::JobCommanded{job, CommandKind::kRelease, 1});
  EXPECT_THAT(driver_.job(job).profile, IsEmpty());
}

TEST_F(Estimates, AreTheSameAfterASnapshot) {
  const JobId job =
      SubmitFresh({{"v100", 40}, {"k80", 4}}, {{"v100", "meek", 0.8}});
  const Engine other = driver_.Restored();
  EXPECT_EQ(other.jobs().at(job).table_row, driver_.job(job).table_row);
  EXPECT_EQ(other.jobs().at(job).row_speed, driver_.job(job).row_speed);
  const JobId sparse = SubmitFresh({{"v100", 40}}, {{"v100", "hungry", 0.4}});
  const Engine restored = driver_.Restored();
  const double estimate =
      driver_.engine().throughputs().Get(sparse, "k80").steps_per_s;
  EXPECT_NEAR(estimate, 4, 1e-9);
  EXPECT_EQ(restored.throughputs().Get(sparse, "k80").steps_per_s, estimate);
}

}  // namespace
}  // namespace gavel
