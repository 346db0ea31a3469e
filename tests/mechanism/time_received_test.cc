#include <cmath>
#include <random>

#include "coordinator/mechanism/round_table.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr JobId kJob(1);
constexpr JobId kOtherJob(2);
constexpr JobId kThirdJob(3);
constexpr ShareUnit kAlone{kJob, JobId()};
constexpr ShareUnit kOtherAlone{kOtherJob, JobId()};
constexpr ShareUnit kPair{kJob, kOtherJob};
constexpr ShareUnit kOtherPair{kOtherJob, kThirdJob};
using Row = std::vector<double>;

Row SinceReset(const TimeReceived& received, const ShareUnit& unit,
               size_t types) {
  Row since_reset;
  Row deficit;
  received.Rows(unit, types, since_reset, deficit);
  return since_reset;
}

Row Deficit(const TimeReceived& received, const ShareUnit& unit, size_t types) {
  Row since_reset;
  Row deficit;
  received.Rows(unit, types, since_reset, deficit);
  return deficit;
}

class TimeReceivedTest : public Test {
 protected:
  TimeReceived received;
};

TEST_F(TimeReceivedTest, AddsUpByUnitAndType) {
  received.Add(kAlone, 1, 10);
  received.Add(kAlone, 0, 5);
  received.Add(kAlone, 1, 2);
  received.Add(kOtherAlone, 0, 1);
  EXPECT_EQ(SinceReset(received, kAlone, 3), (Row{5, 12, 0}));
  EXPECT_EQ(SinceReset(received, kAlone, 1), (Row{5}));
}

TEST(TimeReceived, ABookingAddsTheSameInWhateverOrderUnitsCome) {
  const std::vector<ShareUnit> units = {
      {JobId(1), JobId()},  {JobId(1), JobId()}, {JobId(2), JobId()},
      {JobId(2), JobId(3)}, {JobId(5), JobId()}, {JobId(1), JobId(4)},
      {JobId(3), JobId()},  {JobId(9), JobId()}, {JobId(2), JobId()}};
  TimeReceived one_by_one;
  TimeReceived booked;
  TimeReceived::Booking booking(booked);
  double seconds = 1;
  for (const ShareUnit& unit : units) {
    one_by_one.Add(unit, 1, seconds);
    one_by_one.Owe(unit, 0, 3 * seconds);
    booking.Add(unit, 1, seconds);
    booking.Owe(unit, 0, 3 * seconds);
    seconds *= 2;
  }
  booking.Add(units[0], 1, -1);
  for (const ShareUnit& unit : units) {
    EXPECT_EQ(SinceReset(booked, unit, 2), SinceReset(one_by_one, unit, 2));
    EXPECT_EQ(Deficit(booked, unit, 2), Deficit(one_by_one, unit, 2));
  }
  booked.Remove(JobId(2));
  EXPECT_EQ(SinceReset(booked, {JobId(2), JobId(3)}, 2),
            (std::vector<double>{0, 0}));
}

TEST_F(TimeReceivedTest, APairHasItsOwnTime) {
  received.Add(kAlone, 0, 10);
  received.Add(kPair, 0, 3);
  EXPECT_EQ(SinceReset(received, kAlone, 1), (Row{10}));
  EXPECT_EQ(SinceReset(received, kPair, 1), (Row{3}));
  EXPECT_EQ(SinceReset(received, kOtherAlone, 1), (Row{0}));
}

TEST_F(TimeReceivedTest, AResetForgetsOnlyWhatWasSinceTheLastOne) {
  received.Owe(kAlone, 0, 4);
  received.Add(kAlone, 0, 10);
  received.Reset();
  EXPECT_EQ(SinceReset(received, kAlone, 1), (Row{0}));
  EXPECT_EQ(Deficit(received, kAlone, 1), (Row{-6}));
  received.Add(kAlone, 0, 3);
  EXPECT_EQ(SinceReset(received, kAlone, 1), (Row{3}));
  EXPECT_EQ(Deficit(received, kAlone, 1), (Row{-9}));
}

TEST_F(TimeReceivedTest, ADeficitIsWhatWasOwedLessWhatWasReceived) {
  received.Owe(kPair, 1, 100);
  EXPECT_EQ(Deficit(received, kPair, 2), (Row{0, 100}));
  received.Add(kPair, 1, 30);
  received.Add(kPair, 0, 5);
  EXPECT_EQ(Deficit(received, kPair, 3), (Row{-5, 70, 0}));
  EXPECT_EQ(Deficit(received, kAlone, 1), (Row{0}));
  EXPECT_EQ(SinceReset(received, kPair, 2), (Row{5, 30}));
}

TEST_F(TimeReceivedTest, AgeingKeepsTheFractions) {
  received.Add(kAlone, 0, 300);
  received.Add(kOtherAlone, 0, 100);
  received.Age(/*keep_s=*/30);
  EXPECT_EQ(SinceReset(received, kAlone, 1), (Row{30}));
  EXPECT_EQ(SinceReset(received, kOtherAlone, 1), (Row{10}));
  received.Age(/*keep_s=*/60);  // nobody has that much
  EXPECT_EQ(SinceReset(received, kAlone, 1), (Row{30}));
}

TEST_F(TimeReceivedTest, AgeingScalesBothSidesOfTheDeficitsWhenTheyAreLong) {
  received.Owe(kAlone, 0, 10 * kDeficitMemory);
  received.Add(kAlone, 1, 2 * kDeficitMemory);
  received.Owe(kPair, 0, 4 * kDeficitMemory);
  received.Add(kPair, 0, 3 * kDeficitMemory);
  received.Age(/*keep_s=*/10);
  EXPECT_EQ(Deficit(received, kPair, 1), (Row{kDeficitMemory}));
  received.Age(/*keep_s=*/5);
  EXPECT_EQ(Deficit(received, kAlone, 2),
            (Row{5 * kDeficitMemory, -kDeficitMemory}));
  EXPECT_EQ(Deficit(received, kPair, 1), (Row{kDeficitMemory / 2}));
}

TEST_F(TimeReceivedTest, ADebtThatIsNeverPaidStaysWithinItsMemory) {
  for (int round = 0; round < 1000; ++round) {
    received.Owe(kAlone, 0, 360);
    received.Owe(kOtherAlone, 0, 180);
    received.Age(/*keep_s=*/720);
  }
  const double most = 720 * kDeficitMemory;
  EXPECT_NEAR(Deficit(received, kAlone, 1)[0], most, 1e-6);
  // Not the same for all: who is owed more stays ahead.
  EXPECT_NEAR(Deficit(received, kOtherAlone, 1)[0], most / 2, 1e-6);
}

TEST_F(TimeReceivedTest, NeverFalls) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-5, 10);
  const auto sum = [&] {
    double seconds = 0;
    for (const ShareUnit& unit : {kAlone, kPair}) {
      for (const double since : SinceReset(received, unit, 4)) seconds += since;
    }
    return seconds;
  };
  double before = 0;
  for (int i = 0; i < 1000; ++i) {
    received.Add(i % 3 == 0 ? kPair : kAlone, random() % 4, uniform(random));
    EXPECT_GE(sum(), before);
    before = sum();
  }
  const Row deficit = Deficit(received, kAlone, 4);
  for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) {
    received.Add(kAlone, 0, bad);
    received.Owe(kAlone, 0, bad);
    EXPECT_EQ(sum(), before);
    EXPECT_EQ(Deficit(received, kAlone, 4), deficit);
  }
}

TEST_F(TimeReceivedTest, ARemovedOrUnknownJobHasReceivedNothing) {
  received.Add(kAlone, 0, 10);
  received.Owe(kAlone, 0, 10);
  received.Remove(kJob);
  for (const ShareUnit& unit : {kAlone, kOtherAlone}) {
    EXPECT_EQ(SinceReset(received, unit, 2), (Row{0, 0}));
    EXPECT_EQ(Deficit(received, unit, 2), (Row{0, 0}));
  }
}

TEST_F(TimeReceivedTest, ARemovedJobTakesItsPairsAlongAndNothingElse) {
  received.Add(kPair, 0, 3);
  received.Add(kOtherPair, 0, 5);
  received.Add(kOtherAlone, 0, 7);
  received.Remove(kJob);
  EXPECT_EQ(SinceReset(received, kPair, 1), (Row{0}));
  EXPECT_EQ(SinceReset(received, kOtherPair, 1), (Row{5}));
  EXPECT_EQ(SinceReset(received, kOtherAlone, 1), (Row{7}));
  received.Remove(kOtherJob);
  received.Remove(kThirdJob);
  EXPECT_EQ(SinceReset(received, kOtherPair, 1), (Row{0}));
}

}  // namespace
}  // namespace gavel::testing
