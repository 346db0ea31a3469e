// Tests how the reports of two runs are compared, and the advice on
// differences.
#include "coordinator/cli/doctor_examination.h"
#include "coordinator/cli/doctor_run.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(DoctorReport, NamesMayHaveBlanksAndACutLineIsLeftOut) {
  EXPECT_THAT(
      ParseReport("0 loss 0x1p+0\nno report\n3 step time nan\n4 loss 0x"),
      ElementsAre(ReportedValue{0, "loss", "0x1p+0"},
                  ReportedValue{3, "step time", "nan"}));
}

TEST(DoctorReport, TheEarliestDifferenceComesFirst) {
  const auto expected = ParseReport("1 b 1\n1 a 1\n2 b 2\n3 b 3\n4 a 4\n");
  const auto found = ParseReport("1 b 9\n1 a 1\n2 b 2\n3 b 5\n");
  const auto all = CompareReports(expected, found, 2);
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(DescribeDifference(all[0], "there"),
            "b at step 3: 3 (3) undisturbed, 5 (5) there");
  EXPECT_EQ(DescribeDifference(all[1], "there"),
            "a at step 4: 4 (4) undisturbed, not reported there");
}

TEST(DoctorReport, WhatIsReportedBeforeTheLoopDoesNotCount) {
  const auto expected = ParseReport("0 size 5\n1 a 1\n2 a 2\n3 a 3\n");
  EXPECT_THAT(
      CompareReports(expected, ParseReport("2 size 5\n2 a 2\n3 a 3\n"), 2),
      IsEmpty());
  EXPECT_THAT(CompareReports(expected, ParseReport("2 a 2\n3 a 3\n3 a 3\n"), 2),
              Not(IsEmpty()));
}

TEST(DoctorReport, WhatIsNoNumberOrNeverVariesIsFound) {
  const auto steady = ParseReport("1 a 1\n1 b 2\n2 a 1\n2 b 2\n");
  EXPECT_FALSE(AnyVaries(steady));
  EXPECT_FALSE(FirstNan(steady));
  EXPECT_TRUE(AnyVaries(ParseReport("1 a 1\n1 b 2\n2 a 1\n2 b 3\n")));
  EXPECT_FALSE(AnyVaries({}));
  EXPECT_EQ(FirstNan(ParseReport("1 a inf\n2 b -nan\n3 a nan\n")),
            (ReportedValue{2, "b", "-nan"}));
}

TEST(DoctorReport, ToleranceIsAPartOfTheLargerValue) {
  const auto expected = ParseReport("1 a 0x1p+10\n1 b 1\n1 c nan\n");
  const auto found = ParseReport("1 a 0x1.004p+10\n1 b 1\n1 c nan\n");
  EXPECT_EQ(CompareReports(expected, found, 0).size(), 1);
  EXPECT_THAT(CompareReports(expected, found, 0, 1e-2), IsEmpty());
  EXPECT_EQ(CompareReports(expected, found, 0, 1e-4).size(), 1);
  // Values that are missing or no longer numbers differ at any tolerance.
  EXPECT_EQ(
      CompareReports(expected, ParseReport("1 a 0x1p+10\n1 b nan\n"), 0, 1)
          .size(),
      2);
}

TEST(DoctorAdvice, OneNameThatDiffersAloneIsTheSuspect) {
  ExaminedRun run;
  run.name = "restored";
  run.from_step = 5;
  const ReportDifference difference = {6, "average", "0x1p+0", "0x1p+1"};
  const DoctorAccount account;
  EXPECT_THAT(
      AdviseOnDifference(run, difference, {account, "", "loss"}).problem,
      HasSubstr("only `average` differs, `loss` of the same step is "
                "equal: the number behind `average` is not tracked"));
  EXPECT_THAT(AdviseOnDifference(run, difference, {account, "", ""}).problem,
              HasSubstr("optimizer's state"));
  EXPECT_THAT(
      AdviseOnDifference(run, difference, {account, "what was lost", ""})
          .problem,
      HasSubstr("Suspect: what was lost."));
}

TEST(DoctorAdvice, WhatDiffersFirstNamesWhatWasLost) {
  LostState lost;
  lost.from = 5;
  lost.step = 6;
  lost.names = {"model/weight", "model/bias", "optimizer/exp_avg/0"};
  lost.updates = lost.restored_updates = {6, 7, 8};
  EXPECT_EQ(DescribeLostState(lost),
            "of the tracked state, model, optimizer differ first, after step "
            "6");
  lost.names = {"gavel.bytes/engine", "gavel/random/cpu"};
  EXPECT_THAT(DescribeLostState(lost), HasSubstr("std::normal_distribution"));
  lost.names = {"gavel.bytes/gavel/loop/position"};
  EXPECT_THAT(
      DescribeLostState(lost),
      HasSubstr("other batches come; of the tracked state, the position "
                "in the data differs first"));
  // Every second step updates the model, and the fifth one does not.
  lost.names = {"model/weight"};
  lost.is_between_updates = true;
  lost.updates = lost.restored_updates = {6, 8, 10};
  EXPECT_THAT(DescribeLostState(lost), HasSubstr("gradients mostly, was lost"));
  lost.restored_updates = {7, 9};
  EXPECT_THAT(DescribeLostState(lost),
              HasSubstr("by other steps (undisturbed those that end at 6, 8, "
                        "10; after the restart 7, 9): what counts"));
}

TEST(DoctorAccount, HasLoopsAndWhatIsTracked) {
  const DoctorAccount account = ParseAccount(
      "tracked 0 model module\ntracked 0 epoch signed number of 8 bytes\n"
      "loop-begin 0 -\nloop-end 5 -\nevaluation 5 -\nloop-begin 5 -\n"
      "news 5 of a later version\nloop-break 8 -\n"
      "untracked 3 average a tensor of [2, 2]\nloop-end 9");
  EXPECT_THAT(account.tracked, ElementsAre("model (module)",
                                           "epoch (signed number of 8 bytes)"));
  EXPECT_EQ(account.loops_begun, 2u);
  EXPECT_THAT(account.epoch_ends, ElementsAre(5u));
  EXPECT_THAT(account.LoopEnds(), ElementsAre(5u, 8u));
  EXPECT_THAT(account.evaluations, ElementsAre(5u));
  EXPECT_TRUE(account.CountsSomething());
  ASSERT_NE(account.Lost(), nullptr);
  EXPECT_EQ(account.Lost()->step, 3u);
  EXPECT_EQ(account.Lost()->text, "a tensor of [2, 2]");
  EXPECT_TRUE(ParseAccount("").empty());
}

TEST(DoctorAccount, AsksForStepsUntilEpochsEndOnBothSidesOfTheKill) {
  EXPECT_EQ(StepsForEpochs({}, 20), 0u);
  DoctorAccount account;
  account.loops_begun = 1;
  EXPECT_EQ(StepsForEpochs(account, 20), 80u);
  account.epoch_ends = {64, 128};
  EXPECT_EQ(StepsForEpochs(account, 80), 144u);
  EXPECT_EQ(StepsForEpochs(account, 144), 0u);
  account.epoch_ends = {5, 10, 15};
  EXPECT_EQ(StepsForEpochs(account, 20), 0u);
}

}  // namespace
}  // namespace gavel::testing
