#include "coordinator/jobs/time_received.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace gavel::testing {
namespace {

constexpr JobId kJob(1);
constexpr JobId kOther(2);
using Row = std::vector<double>;

TEST(TimeReceived, AddsUpByJobAndType) {
  TimeReceived received;
  received.Add(kJob, 1, 10);
  received.Add(kJob, 0, 5);
  received.Add(kJob, 1, 2);
  received.Add(kOther, 0, 1);
  EXPECT_EQ(received.Total(kJob), 17);
  EXPECT_EQ(received.TotalByType(kJob, 3), (Row{5, 12, 0}));
  EXPECT_EQ(received.SinceReset(kJob, 3), (Row{5, 12, 0}));
  EXPECT_EQ(received.Total(kOther), 1);
}

TEST(TimeReceived, AResetForgetsOnlyWhatWasSinceTheLastOne) {
  TimeReceived received;
  received.Add(kJob, 0, 10);
  received.Reset();
  EXPECT_EQ(received.SinceReset(kJob, 1), (Row{0}));
  received.Add(kJob, 0, 3);
  EXPECT_EQ(received.SinceReset(kJob, 1), (Row{3}));
  EXPECT_EQ(received.Total(kJob), 13);
}

TEST(TimeReceived, TheHeadStartIsForAllJobsAndTypesButNotForShares) {
  TimeReceived received;
  received.Reset(/*head_start_s=*/180);
  received.Add(kJob, 1, 20);
  EXPECT_EQ(received.SinceReset(kJob, 2), (Row{180, 200}));
  EXPECT_EQ(received.SinceReset(kOther, 2), (Row{180, 180}));
  EXPECT_EQ(received.ShareSinceReset(kJob, 2, 40), (Row{0, 0.5}));
  EXPECT_EQ(received.Total(kJob), 20);
}

TEST(TimeReceived, AgeingKeepsTheFractionsAndTheTotals) {
  TimeReceived received;
  received.Add(kJob, 0, 300);
  received.Add(kOther, 0, 100);
  received.Age(/*keep_s=*/30);
  EXPECT_EQ(received.SinceReset(kJob, 1), (Row{30}));
  EXPECT_EQ(received.SinceReset(kOther, 1), (Row{10}));
  EXPECT_EQ(received.Total(kJob), 300);
  received.Age(/*keep_s=*/60);  // nobody has that much
  EXPECT_EQ(received.SinceReset(kJob, 1), (Row{30}));
}

TEST(TimeReceived, NeverFalls) {
  TimeReceived received;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-5, 10);
  double before = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i % 50 == 0) received.Reset(1);
    received.Add(kJob, random() % 4, uniform(random));
    EXPECT_GE(received.Total(kJob), before);
    before = received.Total(kJob);
  }
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    received.Add(kJob, 0, bad);
    EXPECT_EQ(received.Total(kJob), before);
  }
}

TEST(TimeReceived, ARemovedOrUnknownJobHasReceivedNothing) {
  TimeReceived received;
  received.Add(kJob, 0, 10);
  received.Remove(kJob);
  for (const JobId job : {kJob, kOther}) {
    EXPECT_EQ(received.Total(job), 0);
    EXPECT_EQ(received.TotalByType(job, 2), (Row{0, 0}));
    EXPECT_EQ(received.SinceReset(job, 2), (Row{0, 0}));
    EXPECT_EQ(received.ShareSinceReset(job, 2, 1), (Row{0, 0}));
  }
}

}  // namespace
}  // namespace gavel::testing
