#include "iterator/checkpoint_saver.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/support/test.h"

namespace gavel::internal {
namespace {

TEST(CheckpointSchedule, IsDueAtOnceBeforeItIsStarted) {
  const SessionOptions options;
  const CheckpointSchedule schedule(options);
  EXPECT_EQ(schedule.due_ns(), 0);
  EXPECT_EQ(schedule.due_step(), 0);
}

TEST(CheckpointSchedule, FollowsTheIntervalsOfTheOptions) {
  SessionOptions options;
  options.checkpoint_interval_s = 5;
  options.checkpoint_interval_steps = 100;
  CheckpointSchedule schedule(options);
  schedule.Restart(/*now=*/20, /*steps_done=*/7, /*world_size=*/1);
  EXPECT_EQ(schedule.due_ns(), 25'000'000'000);
  EXPECT_EQ(schedule.due_step(), 107);
}

TEST(CheckpointSchedule, WithoutIntervalsIsNeverDue) {
  SessionOptions options;
  options.checkpoint_interval_s = 0;
  CheckpointSchedule schedule(options);
  schedule.Restart(20, 7, 1);
  EXPECT_EQ(schedule.due_ns(), kNever_ns);
  EXPECT_EQ(schedule.due_step(), kNoStep);
}

TEST(CheckpointSchedule, TakesTheShortestIntervalUntilASaveHasShownItsCost) {
  const SessionOptions options;
  CheckpointSchedule schedule(options);
  schedule.Restart(20, 7, 1);
  EXPECT_EQ(schedule.due_ns(), ToNanoseconds(20 + kCheckpointIntervalMin_s));
  schedule.SetStall(2);
  schedule.Restart(20, 7, 4);
  EXPECT_EQ(schedule.due_ns(),
            ToNanoseconds(
                20 + CheckpointInterval_s(2, options.failure_interval_s, 4)));
}

TEST(CheckpointSchedule, ARequestBringsTheNextOneForward) {
  SessionOptions options;
  options.checkpoint_interval_s = 5;
  CheckpointSchedule schedule(options);
  schedule.Restart(20, 7, 1);
  schedule.RequestAt(21'000'000'000);
  EXPECT_EQ(schedule.due_ns(), 21'000'000'000);
  schedule.Restart(21, 8, 1);
  EXPECT_EQ(schedule.due_ns(), 26'000'000'000);
}

}  // namespace
}  // namespace gavel::internal
