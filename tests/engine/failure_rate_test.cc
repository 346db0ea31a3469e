#include "coordinator/engine/failures.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

constexpr char kVariable[] = "GAVEL_FAILURE_INTERVAL_S";

TEST(FailureRate, BeginsWithSixHours) {
  EXPECT_EQ(FailureRate().Interval_s(), 6 * 3600);
}

TEST(FailureRate, IsTheTimePerLossWithOneMoreOfEach) {
  FailureRate rate;
  rate.AddBusy(12 * 3600);
  EXPECT_EQ(rate.Interval_s(), 18 * 3600);
  rate.AddLoss();
  rate.AddLoss();
  EXPECT_EQ(rate.Interval_s(), 6 * 3600);
}

TEST(FailureRate, StaysWithinItsBounds) {
  FailureRate rate;
  for (int i = 0; i < 100; ++i) rate.AddLoss();
  EXPECT_EQ(rate.Interval_s(), FailureRate::kInterval_s_min);
  rate.AddBusy(1e12);
  EXPECT_EQ(rate.Interval_s(), FailureRate::kInterval_s_max);
}

// ---- what counts as a loss

struct Held : Worker {
  Held() { held_epoch = 3; }
};

WorkerExited Exit(int code, int signal = 0) {
  WorkerExited exit;
  exit.exit_code = code;
  exit.signal = signal;
  return exit;
}

TEST(Loss, IsAWorkerThatDiesOverItsLease) {
  EXPECT_TRUE(IsLoss(Held(), Exit(0, 9)));
  EXPECT_TRUE(IsLoss(Held(), Exit(1)));
  EXPECT_FALSE(IsLoss(Held(), Exit(0)));
  EXPECT_FALSE(IsLoss(Held(), Exit(kExitEvicted)));
  EXPECT_FALSE(IsLoss(Worker(), Exit(0, 9)));  // it waited
}

TEST(Loss, IsNotOneThatWasToldToEnd) {
  Held worker;
  worker.leaving = true;
  EXPECT_FALSE(IsLoss(worker, Exit(0, 9)));
  worker.restarting = true;  // with its gang: it may be what broke that
  EXPECT_TRUE(IsLoss(worker, Exit(0, 11)));
  WorkerExited stopped = Exit(0, 15);
  stopped.stopped = true;
  EXPECT_FALSE(IsLoss(worker, stopped));
  worker.hung_s = 700;  // it was stopped because it stood still
  EXPECT_TRUE(IsLoss(worker, stopped));
}

TEST(Loss, IsNotOneThatRanOutOfMemory) {
  Held worker;
  worker.out_of_memory = true;
  EXPECT_FALSE(IsLoss(worker, Exit(1)));
}

// ---- in the engine

class FailuresSeen : public ::testing::Test {
 protected:
  FailuresSeen() {
    JobSpec spec;
    spec.retries_max = 100;
    job_ = driver_.Submit("job", 1, spec);
  }
  std::string Told() const {
    const LaunchWorker launch =
        driver_.Last<LaunchWorker>().value_or(LaunchWorker());
    for (const auto& [name, value] : launch.environment) {
      if (name == kVariable) return value;
    }
    return "";
  }
  void RunFor(double seconds) {
    driver_.Run(job_);
    // One that holds no lease beyond its end.
    for (double left = seconds; left > 0; left -= 5) {
      driver_.At(driver_.now + std::min(5.0, left));
      driver_.Request(driver_.Key(job_), /*holding=*/true);
    }
  }
  void Kill() { driver_.Gone(driver_.Key(job_), 0, 9); }

  EngineDriver driver_;
  JobId job_;
};

TEST_F(FailuresSeen, AreCountedAndToldToWhoStartsNext) {
  EXPECT_EQ(Told(), "21600");
  RunFor(600);
  Kill();
  const FailureRate& rate = driver_.engine().failure_rate();
  EXPECT_EQ(rate.losses(), 1u);
  EXPECT_NEAR(rate.busy_s(), 600, 1e-6);
  EXPECT_EQ(Told(), "11100");  // (6 h + 600 s) / 2
}

TEST_F(FailuresSeen, AreKnownAfterARestartAndFromASnapshot) {
  RunFor(50);
  Kill();
  RunFor(50);
  Kill();
  const FailureRate seen = driver_.engine().failure_rate();
  ASSERT_EQ(seen.losses(), 2u);
  const Engine other = driver_.Restored();
  EXPECT_EQ(other.failure_rate().losses(), 2u);
  EXPECT_EQ(other.failure_rate().busy_s(), seen.busy_s());
  driver_.Restart();
  EXPECT_EQ(driver_.engine().failure_rate().losses(), 2u);
  EXPECT_NEAR(driver_.engine().failure_rate().busy_s(), seen.busy_s(), 1e-6);
}

TEST_F(FailuresSeen, AreThoseOfALostServerToo) {
  RunFor(50);
  driver_.JoinServer("here", 2);  // its agent was killed, and its worker so
  EXPECT_EQ(driver_.engine().failure_rate().losses(), 1u);
}

TEST_F(FailuresSeen, AreNotCancellations) {
  RunFor(50);
  driver_.Step(event::JobCommanded{job_, CommandKind::kCancel});
  Kill();
  EXPECT_EQ(driver_.engine().failure_rate().losses(), 0u);
}

TEST_F(FailuresSeen, TheJobsOwnValueComesLastAndWins) {
  JobSpec spec;
  spec.environment = {{kVariable, "100"}};
  driver_.Step(event::JobCommanded{job_, CommandKind::kCancel});
  driver_.Gone(driver_.Key(job_), 0, 15);
  driver_.Submit("other", 1, spec);
  std::vector<std::string> values;
  const auto launch = driver_.Last<LaunchWorker>();
  for (const auto& [name, value] : launch->environment) {
    if (name == kVariable) values.push_back(value);
  }
  EXPECT_THAT(values, ElementsAre("21600", "100"));
}

}  // namespace
}  // namespace gavel
