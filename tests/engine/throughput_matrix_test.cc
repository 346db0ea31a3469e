#include "coordinator/engine/throughput_matrix.h"

#include <cmath>

#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr JobId kJob(1);

void ExpectThroughput(const Throughput& throughput, double steps_per_s,
                      ThroughputSource source) {
  EXPECT_NEAR(throughput.steps_per_s, steps_per_s, 1e-9 * steps_per_s);
  EXPECT_EQ(throughput.source, source);
}

class ThroughputMatrixTest : public Test {
 protected:
  ThroughputMatrix matrix;
};

TEST_F(ThroughputMatrixTest, AGivenFigureIsTaken) {
  matrix.AddJob(kJob, {{"v100", 10}, {"k80", 0}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 10, ThroughputSource::kGiven);
  ExpectThroughput(matrix.Get(kJob, "k80"), 0, ThroughputSource::kGiven);
  EXPECT_FALSE(matrix.NeedsTrial(kJob, "k80"));
}

TEST_F(ThroughputMatrixTest, AMeasurementCountsMoreThanWhatWasGiven) {
  matrix.AddJob(kJob, {{"v100", 10}});
  // A given figure weighs as much as one second of measurements.
  EXPECT_TRUE(matrix.Measure(kJob, "v100", 5, 9));
  ExpectThroughput(matrix.Get(kJob, "v100"), 5.5, ThroughputSource::kMeasured);
  for (int i = 0; i < 60; ++i) matrix.Measure(kJob, "v100", 5, 60);
  EXPECT_NEAR(matrix.Get(kJob, "v100").steps_per_s, 5, 0.01);
}

TEST_F(ThroughputMatrixTest, WhatWasMeasuredWhereItShouldNotRunCountsAlone) {
  matrix.AddJob(kJob, {{"v100", 0}});
  matrix.Measure(kJob, "v100", 5, 1);
  ExpectThroughput(matrix.Get(kJob, "v100"), 5, ThroughputSource::kMeasured);
}

TEST(ThroughputMatrix, AnOldMeasurementCountsForLessThanANewOne) {
  const auto after = [](Time age_s) {
    ThroughputMatrix matrix;
    matrix.AddJob(kJob, {});
    matrix.Measure(kJob, "v100", 10, 20, 100);
    matrix.Measure(kJob, "v100", 20, 20, 100 + age_s);
    return matrix.Get(kJob, "v100").steps_per_s;
  };
  EXPECT_NEAR(after(0), 15, 1e-9);
  EXPECT_NEAR(after(ThroughputMatrix::kHalfLife_s), 50.0 / 3, 1e-9);
  EXPECT_NEAR(after(20 * ThroughputMatrix::kHalfLife_s), 20, 1e-4);
  EXPECT_NEAR(after(-5), 15, 1e-9);  // the clock went back
}

TEST_F(ThroughputMatrixTest, AnEstimateIsABetterGuessAndStillOne) {
  matrix.AddJob(kJob, {{"k80", 1}});
  matrix.AddJob(JobId(2), {{"k80", 2}, {"v100", 20}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 10, ThroughputSource::kGuessed);
  matrix.Estimate(kJob, {{"v100", 7}, {"k80", 3}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 7, ThroughputSource::kGuessed);
  ExpectThroughput(matrix.Get(kJob, "k80"), 1, ThroughputSource::kGiven);
  EXPECT_TRUE(matrix.NeedsTrial(kJob, "v100"));
  matrix.Measure(kJob, "v100", 4, 1);
  ExpectThroughput(matrix.Get(kJob, "v100"), 4, ThroughputSource::kMeasured);
  matrix.Estimate(kJob, {{"v100", 9}});  // it was measured
  ExpectThroughput(matrix.Get(kJob, "v100"), 4, ThroughputSource::kMeasured);
  matrix.Estimate(JobId(9), {{"v100", 1}});  // no such job
  matrix.RemoveJob(kJob);
  matrix.AddJob(kJob, {{"k80", 1}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 10, ThroughputSource::kGuessed);
}

TEST_F(ThroughputMatrixTest, AFigureThatIsFarOffIsTold) {
  matrix.AddJob(kJob, {{"v100", 40}, {"k80", 10}});
  matrix.Measure(kJob, "v100", 22, 5);
  EXPECT_EQ(matrix.Contradicted(kJob, "v100").given, -1);  // too early to tell
  matrix.Measure(kJob, "v100", 22, 5);
  const auto told = matrix.Contradicted(kJob, "v100");
  EXPECT_EQ(told.given, 40);
  EXPECT_EQ(told.measured, 22);
  EXPECT_EQ(told.before, -1);
  matrix.Measure(kJob, "k80", 9, 60);  // near enough
  EXPECT_EQ(matrix.Contradicted(kJob, "k80").given, -1);
  EXPECT_EQ(matrix.Contradicted(kJob, "p100").measured, -1);
  EXPECT_EQ(matrix.Contradicted(JobId(7), "v100").measured, -1);
}

TEST_F(ThroughputMatrixTest, ASpeedThatHasDriftedIsTold) {
  matrix.AddJob(kJob, {});
  Time now = 0;
  const auto run = [&](double steps_per_s, int minutes) {
    for (int i = 0; i < minutes; ++i) {
      matrix.Measure(kJob, "v100", steps_per_s, 60, now += 60);
    }
  };
  run(40, 60);
  EXPECT_EQ(matrix.Contradicted(kJob, "v100").before, -1);
  run(20, 3);
  const auto told = matrix.Contradicted(kJob, "v100");
  EXPECT_NEAR(told.measured, 20, 1e-9);
  EXPECT_GT(told.before, 30);
  run(20, 300);  // the new speed is normal
  EXPECT_EQ(matrix.Contradicted(kJob, "v100").before, -1);
}

TEST_F(ThroughputMatrixTest, WhatWasThoughtOfAPairIsAPrior) {
  matrix.AddJob(kJob, {});
  matrix.AddJob(JobId(2), {});
  // The measurement equals the prior, so there is no need to solve again.
  EXPECT_FALSE(matrix.MeasureTogether(kJob, JobId(2), "v100", 6, 60, 6));
  EXPECT_TRUE(matrix.MeasureTogether(JobId(2), kJob, "v100", 3, 9, 8));
  EXPECT_NEAR(*matrix.Together(JobId(2), kJob, "v100"), 3.5, 1e-9);
}

TEST_F(ThroughputMatrixTest, AJobWithoutAnyFigureCountsAllTypesAlike) {
  matrix.AddJob(kJob, {});
  matrix.AddJob(JobId(2), {{"v100", 8}, {"k80", 2}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 1, ThroughputSource::kGuessed);
  ExpectThroughput(matrix.Get(kJob, "k80"), 1, ThroughputSource::kGuessed);
  EXPECT_TRUE(matrix.NeedsTrial(kJob, "v100"));
}

TEST_F(ThroughputMatrixTest, AGuessScalesTheOwnFigureByTheMedianRatioOfOthers) {
  matrix.AddJob(kJob, {{"k80", 3}});
  matrix.AddJob(JobId(2), {{"v100", 8}, {"k80", 2}});    // 4
  matrix.AddJob(JobId(3), {{"v100", 100}, {"k80", 1}});  // 100
  matrix.AddJob(JobId(4), {{"v100", 2}, {"k80", 1}});    // 2
  ExpectThroughput(matrix.Get(kJob, "v100"), 12, ThroughputSource::kGuessed);
  matrix.RemoveJob(JobId(3));
  ExpectThroughput(matrix.Get(kJob, "v100"), 9, ThroughputSource::kGuessed);
}

TEST_F(ThroughputMatrixTest, AGuessFromSeveralKnownTypesIsTheirMean) {
  matrix.AddJob(kJob, {{"k80", 1}, {"p100", 10}, {"t4", 1000}});
  matrix.AddJob(JobId(2), {{"v100", 4}, {"k80", 1}});   // says 4
  matrix.AddJob(JobId(3), {{"v100", 2}, {"p100", 1}});  // says 20
  ExpectThroughput(matrix.Get(kJob, "v100"), 12, ThroughputSource::kGuessed);
}

TEST_F(ThroughputMatrixTest, WithoutRatiosAGuessIsTheOwnMean) {
  matrix.AddJob(kJob, {{"k80", 2}, {"p100", 4}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 3, ThroughputSource::kGuessed);
}

TEST_F(ThroughputMatrixTest, ZerosNeverMakeAGuess) {
  matrix.AddJob(kJob, {{"k80", 5}, {"p100", 0}});
  matrix.AddJob(JobId(2), {{"v100", 0}, {"k80", 2}});
  matrix.AddJob(JobId(3), {{"v100", 2}, {"k80", 0}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 5, ThroughputSource::kGuessed);
  matrix.AddJob(JobId(4), {{"v100", 0}});
  ExpectThroughput(matrix.Get(JobId(4), "t4"), 1, ThroughputSource::kGuessed);
}

TEST_F(ThroughputMatrixTest, MeasurementsAreAWeightedMeanOfTheLastMinute) {
  matrix.AddJob(kJob, {});
  matrix.Measure(kJob, "v100", 10, 30);
  matrix.Measure(kJob, "v100", 20, 30);
  ExpectThroughput(matrix.Get(kJob, "v100"), 15, ThroughputSource::kMeasured);
  matrix.Measure(kJob, "v100", 15, 3600);  // all else is forgotten
  matrix.Measure(kJob, "v100", 45, 20);
  ExpectThroughput(matrix.Get(kJob, "v100"), 25, ThroughputSource::kMeasured);
}

TEST_F(ThroughputMatrixTest, OldSpeedIsForgottenWithinAFewMinutes) {
  matrix.AddJob(kJob, {});
  for (int i = 0; i < 100; ++i) matrix.Measure(kJob, "v100", 10, 5);
  for (int i = 0; i < 60; ++i) matrix.Measure(kJob, "v100", 30, 5);
  EXPECT_NEAR(matrix.Get(kJob, "v100").steps_per_s, 30, 0.5);
}

TEST_F(ThroughputMatrixTest, ASmallChangeIsNoise) {
  matrix.AddJob(kJob, {{"v100", 100}});
  EXPECT_FALSE(matrix.Measure(kJob, "v100", 104, 60));
  EXPECT_FALSE(matrix.Measure(kJob, "v100", 97, 60));
  EXPECT_TRUE(matrix.Measure(kJob, "v100", 94, 60));
  EXPECT_FALSE(matrix.Measure(kJob, "v100", 90, 60));
}

TEST_F(ThroughputMatrixTest, SlowDriftIsNoticedInTheEnd) {
  matrix.AddJob(kJob, {{"v100", 100}});
  int noticed = 0;
  double speed = 100;
  for (int i = 0; i < 20; ++i) {
    speed *= 0.99;
    if (matrix.Measure(kJob, "v100", speed, 60)) ++noticed;
  }
  EXPECT_GE(noticed, 3);
  EXPECT_LE(noticed, 4);
}

TEST_F(ThroughputMatrixTest, AMeasurementRefinesTheGuessesOfOthers) {
  matrix.AddJob(kJob, {{"k80", 1}});
  matrix.AddJob(JobId(2), {{"k80", 2}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 1, ThroughputSource::kGuessed);
  matrix.Measure(JobId(2), "v100", 10, 1);
  ExpectThroughput(matrix.Get(kJob, "v100"), 5, ThroughputSource::kGuessed);
}

TEST_F(ThroughputMatrixTest, AnImplausibleMeasurementIsIgnored) {
  matrix.AddJob(kJob, {{"v100", 10}});
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(matrix.Measure(kJob, "v100", bad, 1));
    EXPECT_FALSE(matrix.Measure(kJob, "v100", 1, bad));
  }
  EXPECT_FALSE(matrix.Measure(JobId(9), "v100", 1, 1));
  ExpectThroughput(matrix.Get(kJob, "v100"), 10, ThroughputSource::kGiven);
}

TEST_F(ThroughputMatrixTest, AJobAddedAgainStartsAfresh) {
  matrix.AddJob(kJob, {});
  matrix.Measure(kJob, "v100", 10, 1);
  matrix.AddJob(kJob, {{"v100", 3}});
  ExpectThroughput(matrix.Get(kJob, "v100"), 3, ThroughputSource::kGiven);
}

// ---- two jobs together, and out of memory

TEST_F(ThroughputMatrixTest, APairIsKnownByWhatWasMeasuredOfEach) {
  matrix.AddJob(kJob, {{"v100", 10}});
  matrix.AddJob(JobId(2), {{"v100", 10}});
  EXPECT_EQ(matrix.Together(kJob, JobId(2), "v100"), std::nullopt);
  EXPECT_TRUE(matrix.MeasureTogether(JobId(2), kJob, "v100", 6, 1));
  EXPECT_EQ(matrix.Together(JobId(2), kJob, "v100"), 6);
  EXPECT_EQ(matrix.Together(kJob, JobId(2), "v100"), std::nullopt);
  EXPECT_TRUE(matrix.MeasureTogether(kJob, JobId(2), "v100", 8, 1));
  EXPECT_EQ(matrix.Together(kJob, JobId(2), "v100"), 8);
  EXPECT_FALSE(matrix.MeasureTogether(kJob, JobId(2), "v100", 8.1, 1));
  EXPECT_EQ(matrix.Together(kJob, JobId(2), "k80"), std::nullopt);
  ExpectThroughput(matrix.Get(kJob, "v100"), 10, ThroughputSource::kGiven);
  matrix.RemoveJob(JobId(2));
  EXPECT_FALSE(matrix.has_pairs());
}

TEST_F(ThroughputMatrixTest, MeasurementsTogetherThatAreNoneAreIgnored) {
  matrix.AddJob(kJob, {});
  matrix.AddJob(JobId(2), {});
  for (const double wrong : {0.0, -1.0, std::nan("")}) {
    EXPECT_FALSE(matrix.MeasureTogether(kJob, JobId(2), "v100", wrong, 1));
    EXPECT_FALSE(matrix.MeasureTogether(kJob, JobId(2), "v100", 1, wrong));
  }
  EXPECT_FALSE(matrix.MeasureTogether(kJob, JobId(3), "v100", 1, 1));
  EXPECT_FALSE(matrix.has_pairs());
}

TEST_F(ThroughputMatrixTest, OutOfMemoryIsZeroWhateverElseIsKnown) {
  matrix.AddJob(kJob, {{"v100", 10}, {"k80", 2}});
  EXPECT_FALSE(matrix.HasExclusions(kJob));
  matrix.Exclude(kJob, "v100");
  matrix.Measure(kJob, "v100", 9, 1);
  EXPECT_EQ(matrix.Get(kJob, "v100").steps_per_s, 0);
  EXPECT_FALSE(matrix.NeedsTrial(kJob, "v100"));
  EXPECT_EQ(matrix.Get(kJob, "k80").steps_per_s, 2);
  EXPECT_TRUE(matrix.HasExclusions(kJob));
  EXPECT_TRUE(matrix.Readmit(kJob));
  EXPECT_FALSE(matrix.Readmit(kJob));
  EXPECT_EQ(matrix.Get(kJob, "v100").steps_per_s, 9.5);  // 10 were given
}

TEST_F(ThroughputMatrixTest, ATypeOfWhichOnlyThatIsKnownIsUnknownAgain) {
  matrix.AddJob(kJob, {{"v100", 10}});
  matrix.Exclude(kJob, "k80");
  EXPECT_EQ(matrix.Get(kJob, "k80").steps_per_s, 0);
  matrix.Readmit(kJob);
  EXPECT_TRUE(matrix.NeedsTrial(kJob, "k80"));
  EXPECT_GT(matrix.Get(kJob, "k80").steps_per_s, 0);
}

TEST_F(ThroughputMatrixTest, APairOutOfMemoryLeavesTheTypeToEachAlone) {
  matrix.AddJob(kJob, {{"v100", 10}});
  matrix.AddJob(JobId(2), {{"v100", 5}});
  matrix.ExcludePair(JobId(2), kJob, "v100");
  EXPECT_EQ(matrix.Together(kJob, JobId(2), "v100"), 0);
  EXPECT_EQ(matrix.Together(JobId(2), kJob, "v100"), 0);
  EXPECT_EQ(matrix.Get(kJob, "v100").steps_per_s, 10);
  EXPECT_TRUE(matrix.HasExclusions(kJob));
  EXPECT_TRUE(matrix.Readmit(JobId(2)));
  EXPECT_EQ(matrix.Together(kJob, JobId(2), "v100"), std::nullopt);
}

TEST_F(ThroughputMatrixTest, OnlyNewsTellsAJobApartFromItsKind) {
  for (uint64_t job = 1; job <= 5; ++job) matrix.AddJob(JobId(job), {});
  // The measurements equal the prior, or nearly.
  matrix.MeasureTogether(JobId(1), JobId(2), "v100", 6, 60, /*prior=*/6);
  matrix.MeasureTogether(JobId(2), JobId(1), "v100", 8.2, 60, /*prior=*/8);
  EXPECT_THAT(matrix.UnlikeTheirKind(), IsEmpty());
  // The speed differs from the prior; the partner was not measured.
  matrix.MeasureTogether(JobId(3), JobId(1), "v100", 5, 60, /*prior=*/6);
  EXPECT_THAT(matrix.UnlikeTheirKind(), ElementsAre(JobId(3)));
  // There was no prior.
  matrix.MeasureTogether(JobId(2), JobId(1), "k80", 1, 60);
  EXPECT_THAT(matrix.UnlikeTheirKind(), ElementsAre(JobId(2), JobId(3)));
  matrix.ExcludePair(JobId(4), JobId(5), "v100");
  EXPECT_THAT(matrix.UnlikeTheirKind(),
              ElementsAre(JobId(2), JobId(3), JobId(4), JobId(5)));
}

// ---- elastic jobs

using ThroughputBySize = ThroughputMatrixTest;

TEST_F(ThroughputBySize, IsGuessedFromTheNearestThatIsKnown) {
  matrix.AddJob(JobId(1), {{"v100", 10}}, 2);
  EXPECT_EQ(matrix.AtSize(JobId(1), "v100", 2).steps_per_s, 10);
  EXPECT_EQ(matrix.AtSize(JobId(1), "v100", 2).source,
            ThroughputSource::kGiven);
  const Throughput guessed = matrix.AtSize(JobId(1), "v100", 4);
  EXPECT_NEAR(guessed.steps_per_s, 10 * std::pow(2, 0.8), 1e-9);
  EXPECT_EQ(guessed.source, ThroughputSource::kGuessed);
  matrix.MeasureSize(JobId(1), "v100", 4, 12, 10);
  EXPECT_EQ(matrix.AtSize(JobId(1), "v100", 4).steps_per_s, 12);
  EXPECT_EQ(matrix.AtSize(JobId(1), "v100", 4).source,
            ThroughputSource::kMeasured);
  EXPECT_NEAR(matrix.AtSize(JobId(1), "v100", 8).steps_per_s,
              12 * std::pow(2, 0.8), 1e-9);
  EXPECT_NEAR(matrix.AtSize(JobId(1), "v100", 1).steps_per_s,
              10 * std::pow(0.5, 0.8), 1e-9);
  // The figure of the requested size is unchanged.
  EXPECT_EQ(matrix.Get(JobId(1), "v100").steps_per_s, 10);
}

TEST_F(ThroughputBySize, OfTheAskedSizeIsGuessedToo) {
  matrix.AddJob(JobId(1), {}, 4);
  matrix.MeasureSize(JobId(1), "v100", 2, 10, 10);
  EXPECT_NEAR(matrix.AtSize(JobId(1), "v100", 4).steps_per_s,
              10 * std::pow(2, 0.8), 1e-9);
  matrix.MeasureSize(JobId(1), "v100", 4, 15, 10);
  EXPECT_EQ(matrix.Get(JobId(1), "v100").steps_per_s, 15);
}

TEST_F(ThroughputBySize, OneThatFailedIsZeroAndSoAreLargerOnes) {
  matrix.AddJob(JobId(1), {{"v100", 10}}, 1);
  matrix.ExcludeSize(JobId(1), "v100", 4);
  EXPECT_EQ(matrix.AtSize(JobId(1), "v100", 4).steps_per_s, 0);
  EXPECT_EQ(matrix.AtSize(JobId(1), "v100", 5).steps_per_s, 0);
  EXPECT_GT(matrix.AtSize(JobId(1), "v100", 3).steps_per_s, 10);
  EXPECT_TRUE(matrix.Readmit(JobId(1)));
  EXPECT_GT(matrix.AtSize(JobId(1), "v100", 4).steps_per_s, 10);
}

TEST_F(ThroughputBySize, IsForgottenWithItsJob) {
  matrix.AddJob(JobId(1), {{"v100", 10}}, 1);
  matrix.MeasureSize(JobId(1), "v100", 2, 11, 10);
  matrix.RemoveJob(JobId(1));
  matrix.AddJob(JobId(1), {{"v100", 10}}, 1);
  EXPECT_NE(matrix.AtSize(JobId(1), "v100", 2).steps_per_s, 11);
}

}  // namespace
}  // namespace gavel::testing
