#include <limits>
#include <variant>

#include "coordinator/server/incoming.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

const WorkerKey kReporter{JobId(1), 0, 1};

Progress Told(uint64_t steps_done, double steps_per_s, double window_s) {
  Progress progress;
  progress.steps_done = steps_done;
  progress.throughput_steps_per_s = steps_per_s;
  progress.window_s = window_s;
  return progress;
}

bool Agrees(ReportCheck& check, Time now, Progress told) {
  const double steps_per_s = told.throughput_steps_per_s;
  const bool agrees = check.Check(now, kReporter, &told);
  EXPECT_EQ(told.throughput_steps_per_s, agrees ? steps_per_s : 0);
  EXPECT_EQ(told.window_s > 0, agrees);
  return agrees;
}

class ReportCheckTest : public Test {
 protected:
  ReportCheck check;
};

TEST_F(ReportCheckTest, ASpeedThatIsThatOfTheStepsIsBelieved) {
  check.Saw(10, kReporter, 100);
  EXPECT_TRUE(Agrees(check, 11, Told(150, 50, 1)));
  EXPECT_TRUE(Agrees(check, 12, Told(200, 49.9, 1.002)));
  // A report was lost on the way: its steps are not missed.
  EXPECT_TRUE(Agrees(check, 14, Told(300, 50, 1)));
  // It ran for a part of the time only.
  EXPECT_TRUE(Agrees(check, 60, Told(310, 40, 0.25)));
}

TEST_F(ReportCheckTest, AWindowBeginsAtTheLastStepThatWasTold) {
  check.Saw(0, kReporter, 0);
  EXPECT_TRUE(Agrees(check, 1, Told(1, 1, 1)));
  // In the middle of a long step there is nothing to tell.
  for (const Time now : {10.0, 20.0, 30.0}) {
    Progress told = Told(1, 0, 0);
    EXPECT_TRUE(check.Check(now, kReporter, &told));
  }
  EXPECT_TRUE(Agrees(check, 41, Told(2, 1 / 40.0, 40)));
}

TEST_F(ReportCheckTest, AProgramThatIsMovedOftenIsBelieved) {
  check.Saw(0, kReporter, 0);
  for (int move = 0; move < 20; ++move) {
    const Time now = 100 + 10 * move;
    const auto steps = static_cast<uint64_t>(1000 * move);
    // It is paused in the middle of a window, and tells its steps then.
    Progress told = Told(steps + 900, 0, 0);
    EXPECT_TRUE(check.Check(now, kReporter, &told));
    EXPECT_TRUE(Agrees(check, now + 4, Told(steps + 1000, 1000, 1)));
  }
}

TEST_F(ReportCheckTest, MoreThanItsOwnCountIsNotBelieved) {
  check.Saw(10, kReporter, 100);
  EXPECT_FALSE(Agrees(check, 11, Told(150, 1e9, 1)));
  EXPECT_FALSE(Agrees(check, 12, Told(200, 52.1, 1)));
  EXPECT_FALSE(Agrees(check, 13, Told(150, 10, 1)));  // it went back
  EXPECT_TRUE(Agrees(check, 14, Told(200, 50, 1)));   // and is believed again
}

TEST_F(ReportCheckTest, ALongerWindowThanTheTimeIsNotBelieved) {
  check.Saw(10, kReporter, 0);
  EXPECT_FALSE(Agrees(check, 11, Told(1000, 1e-6, 1e9)));
  EXPECT_FALSE(Agrees(check, 12, Told(2000, 100, 6.5)));
  EXPECT_TRUE(Agrees(check, 13, Told(3000, 100, 5.9)));  // late on its way
}

TEST_F(ReportCheckTest, WhatIsNoNumberIsNotBelieved) {
  check.Saw(10, kReporter, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(Agrees(check, 11, Told(10, nan, 1)));
  EXPECT_FALSE(Agrees(check, 12, Told(20, 10, nan)));
  EXPECT_FALSE(
      Agrees(check, 13, Told(30, std::numeric_limits<double>::infinity(), 1)));
}

// After a start of the coordinator, or when it came before its hello.
TEST_F(ReportCheckTest, WhoWasNotSeenIsBelievedOnce) {
  EXPECT_TRUE(Agrees(check, 11, Told(1000, 100, 9)));
  EXPECT_FALSE(Agrees(check, 12, Told(1001, 100, 9)));
  check.Forget(kReporter);
  EXPECT_TRUE(Agrees(check, 13, Told(1001, 100, 9)));
}

TEST_F(ReportCheckTest, HelloAgainChangesNothing) {
  EXPECT_TRUE(check.Saw(10, kReporter, 100));
  EXPECT_FALSE(check.Saw(20, kReporter, 150));
  EXPECT_TRUE(Agrees(check, 21, Told(160, 5.5, 10.9)));
}

TEST_F(ReportCheckTest, MessagesAreNotedCheckedAndForgotten) {
  WorkerHello hello;
  hello.worker = kReporter;
  hello.progress.steps_done = 100;
  Message message = hello;
  EXPECT_EQ(check.Take(10, &message), std::nullopt);
  message = StepReport{kReporter, 1, Told(110, 1e9, 1), {}};
  const auto line = check.Take(11, &message);
  EXPECT_THAT(line.value_or(""), HasSubstr("job 1 rank 0"));
  EXPECT_EQ(std::get<StepReport>(message).progress.window_s, 0);
  EXPECT_EQ(std::get<StepReport>(message).progress.steps_done, 110u);
  WorkerExited exited;
  exited.worker = kReporter;
  message = exited;
  EXPECT_EQ(check.Take(12, &message), std::nullopt);
  message = StepReport{kReporter, 1, Told(110, 1e9, 1), {}};
  EXPECT_EQ(check.Take(13, &message), std::nullopt);  // it is another process
}

TEST_F(ReportCheckTest, ManyProcessesDoNotGrowIt) {
  for (uint64_t i = 0; i <= ReportCheck::kWorkersMax; ++i) {
    EXPECT_TRUE(check.Saw(1, {JobId(i + 1), 0, 1}, 0));
  }
  EXPECT_TRUE(check.Saw(2, {JobId(1), 0, 1}, 0));  // was forgotten
}

}  // namespace
}  // namespace gavel::testing
