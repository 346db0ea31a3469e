// The judge of the other tests here must find what it is there to find.
#include "tests/reliability/worker_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gavel::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGood[] =
    "100 7 start 0 0 0\n"
    "110 7 take a-0\n"
    "120 7 commit 1 3\n"
    "130 7 give a-0\n"
    "200 8 start 1 3 6\n"
    "210 8 take a-1\n"
    "220 8 commit 2 5\n";

TEST(WorkerLog, AGoodOneIsGood) {
  const Findings found = CheckWorkerLogs(
      {{"one", kGood}, {"two", "50 9 start 0 0 0\n140 9 take a-0\n"}});
  EXPECT_EQ(found.incarnations, 3);
  EXPECT_EQ(found.commits, 2);
  EXPECT_EQ(found.takes, 3);
  EXPECT_EQ(found.highest_step, 5);
  EXPECT_EQ(found.lost_steps, 0);
  EXPECT_EQ(found.shared, 0);
  EXPECT_THAT(found.details, IsEmpty());
}

TEST(WorkerLog, ACheckpointThatWasNotRestoredIsLost) {
  const Findings found =
      CheckWorkerLogs({{"one", std::string(kGood) + "300 9 start 1 3 6\n"}});
  EXPECT_EQ(found.lost_steps, 2);
  EXPECT_THAT(found.details,
              ElementsAre(HasSubstr("restored (1, 3) after (2, 5)")));
}

TEST(WorkerLog, ALateCheckpointOfAnOlderEpochIsNoLoss) {
  const Findings found = CheckWorkerLogs(
      {{"one",
        std::string(kGood) + "300 7 commit 1 900\n310 9 start 2 5 15\n"}});
  EXPECT_EQ(found.lost_steps, 0);
}

TEST(WorkerLog, AStepThatWasCountedTwiceIsFound) {
  const Findings found = CheckWorkerLogs({{"one", "1 1 start 1 3 7\n"}});
  EXPECT_EQ(found.lost_steps, 1);
  EXPECT_THAT(found.details, ElementsAre(HasSubstr("step 3 has the sum 7")));
}

TEST(WorkerLog, TwoOnOneAcceleratorAreFound) {
  const Findings found = CheckWorkerLogs(
      {{"one", kGood}, {"two", "115 9 take a-0\n300 9 commit 1 1\n"}});
  EXPECT_EQ(found.shared, 1);
  EXPECT_THAT(found.details,
              ElementsAre("a-0: process 9 took it while 7 had it"));
}

TEST(WorkerLog, TwoBesideEachOtherHaveALockEach) {
  const std::string alone = "100 7 take a.0 a.1\n120 7 give a\n";
  const std::string first = "130 8 take a.0\n300 8 commit 1 1\n";
  Findings found = CheckWorkerLogs(
      {{"one", alone}, {"two", first}, {"three", "150 9 take a.1\n"}});
  EXPECT_EQ(found.shared, 0);
  EXPECT_EQ(found.takes, 3);
  EXPECT_EQ(found.takes_beside, 2);
  // One that has it alone meets whoever has either lock.
  found = CheckWorkerLogs({{"one", "100 7 take a.0 a.1\n200 7 give a\n"},
                           {"two", "150 9 take a.1\n"}});
  EXPECT_EQ(found.shared, 1);
  EXPECT_THAT(found.details,
              ElementsAre("a.1: process 9 took it while 7 had it"));
}

TEST(WorkerLog, ALockThatWasTakenIsFound) {
  EXPECT_EQ(CheckWorkerLogs({{"one", "1 1 shared a-0\n"}}).shared, 1);
}

TEST(WorkerLog, ALineThatIsCutOffIsIgnored) {
  EXPECT_EQ(CheckWorkerLogs({{"one", std::string(kGood) + "300 9 start 0"}})
                .incarnations,
            2);
}

}  // namespace
}  // namespace gavel::testing
