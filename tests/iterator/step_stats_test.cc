#include "iterator/step_profile.h"
#include "tests/support/test.h"

namespace gavel::internal {
namespace {

TEST(ScalarSlots, KeepsTheLastValueOfEachName) {
  ScalarSlots slots;
  EXPECT_TRUE(slots.Set("loss", 3));
  EXPECT_TRUE(slots.Set("accuracy", 0.5));
  EXPECT_TRUE(slots.Set("loss", 2));
  const auto read = slots.Read();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0], std::make_pair(std::string("loss"), 2.0));
  EXPECT_EQ(read[1], std::make_pair(std::string("accuracy"), 0.5));
}

TEST(ScalarSlots, RefusesMoreNamesThanThereAreSlots) {
  ScalarSlots slots;
  for (size_t i = 0; i < ScalarSlots::kCountMax; ++i) {
    EXPECT_TRUE(slots.Set("scalar" + std::to_string(i), 1));
  }
  EXPECT_FALSE(slots.Set("one more", 1));
  EXPECT_TRUE(slots.Set("scalar3", 7));
  EXPECT_EQ(slots.Read().size(), ScalarSlots::kCountMax);
}

TEST(ScalarSlots, RefusesNamesThatDoNotFit) {
  ScalarSlots slots;
  EXPECT_FALSE(slots.Set("", 1));
  EXPECT_FALSE(slots.Set(std::string(ScalarSlots::kNameLengthMax + 1, 'x'), 1));
  EXPECT_TRUE(slots.Set(std::string(ScalarSlots::kNameLengthMax, 'x'), 1));
}

TEST(StepStats, CountsStepsAndTheirTimeOnly) {
  StepStats stats;
  stats.SetStepsDone(100);
  stats.MarkBoundary(1'000);
  stats.CountStep(1'500);
  EXPECT_EQ(stats.last_step_ns(), 500);
  stats.MarkBoundary(9'000);  // a pause
  stats.CountStep(9'200);
  EXPECT_EQ(stats.steps_done(), 102u);
  EXPECT_EQ(stats.running_ns(), 700);
}

TEST(StepStats, TellsOfPausesAndGenerations) {
  StepStats stats;
  stats.CountPause();
  stats.CountPause();
  stats.CountMove();
  stats.AddPausing(250'000'000);
  stats.SetLastGeneration({3, 40});
  const Progress progress = stats.Read();
  EXPECT_EQ(progress.pauses, 2u);
  EXPECT_EQ(progress.moves, 1u);
  EXPECT_DOUBLE_EQ(progress.pausing_s, 0.25);
  EXPECT_EQ(progress.last_generation, (Generation{3, 40}));
}

TEST(ThroughputWindow, IsStepsOverRunningTime) {
  StepStats stats;
  ThroughputWindow window;
  Progress progress;
  stats.MarkBoundary(0);
  window.Measure(stats, &progress);
  EXPECT_EQ(progress.throughput_steps_per_s, 0);
  stats.CountStep(200'000'000);
  stats.MarkBoundary(5'000'000'000);  // paused, does not count
  stats.CountStep(5'200'000'000);
  window.Measure(stats, &progress);
  EXPECT_DOUBLE_EQ(progress.throughput_steps_per_s, 5);
  EXPECT_DOUBLE_EQ(progress.window_s, 0.4);
}

TEST(ThroughputWindow, GrowsUntilAStepIsDone) {
  StepStats stats;
  ThroughputWindow window;
  stats.MarkBoundary(0);
  Progress progress;
  window.Measure(stats, &progress);
  Progress none;
  window.Measure(stats, &none);
  EXPECT_EQ(none.window_s, 0);
  stats.CountStep(3'000'000'000);
  window.Measure(stats, &progress);
  EXPECT_DOUBLE_EQ(progress.window_s, 3);
}

}  // namespace
}  // namespace gavel::internal
