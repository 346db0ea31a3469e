// `gavel doctor` on a program that resumes exactly, and on those that do not.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "coordinator/cli/doctor_report.h"
#include "core/text.h"
#include "tests/cli/gavel_fixture.h"

namespace gavel::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kTrainer[] = GAVEL_BINARY_DIR "/tests/fake_trainer";
constexpr char kMinimal[] = GAVEL_BINARY_DIR "/minimal";

class DoctorTest : public GavelTest {
 protected:
  Ended Examine(const std::vector<std::string>& trainer_arguments,
                const std::vector<std::string>& options = {}) {
    std::vector<std::string> arguments = {"doctor", "--state", state()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"--", kTrainer});
    arguments.insert(arguments.end(), trainer_arguments.begin(),
                     trainer_arguments.end());
    return Run(arguments);
  }
  // Folders that were left behind.
  std::vector<std::string> Kept() const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(state(), error)) {
      names.push_back(entry.path().string());
    }
    return names;
  }
  void ExpectFailure(const Ended& ended, const std::string& why) const {
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, AllOf(HasSubstr("FAIL"), HasSubstr(why)));
    ASSERT_EQ(Kept().size(), 1);
    EXPECT_THAT(ended.output, HasSubstr(Kept().front()));
  }
};

TEST_F(DoctorTest, AProgramThatResumesPasses) {
  const Ended ended = Examine({});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(
      ended.output,
      AllOf(HasSubstr("alone      20 steps"), HasSubstr("reported: loss"),
            HasSubstr("by SIGKILL once the checkpoint of step 10 was there"),
            HasSubstr("from step 10 to step 20"), HasSubstr("10 values"),
            HasSubstr("PASS")));
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(DoctorTest, AnOddNumberOfStepsPasses) {
  const Ended ended = Examine({}, {"--steps", "7"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the checkpoint of step 3 was there"));
}

TEST_F(DoctorTest, AProgramThatEndsByItselfIsInterruptedEarlier) {
  const Ended ended = Examine({"--steps", "8"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("alone      8 steps"), HasSubstr("not the 20"),
                    HasSubstr("from step 4 to step 8")));
}

TEST_F(DoctorTest, StateThatIsNotSavedIsFound) {
  const Ended ended = Examine({"forgets"});
  ExpectFailure(ended, "loss at step 10: ");
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("undisturbed"), HasSubstr("after the restart"),
                    HasSubstr("0x"), HasSubstr("Track()"),
                    Not(HasSubstr("not deterministic"))));
}

TEST_F(DoctorTest, AProgramThatIsNotDeterministicIsToldSo) {
  const Ended ended = Examine({"random"});
  ExpectFailure(ended, "the program itself is not deterministic: noise at");
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("seed all"), Not(HasSubstr("Track()"))));
}

TEST_F(DoctorTest, LostStateIsToldApartFromRandomness) {
  const Ended ended = Examine({"random", "forgets"});
  ExpectFailure(ended, "FAIL: loss at step 10: ");
  EXPECT_THAT(ended.output, HasSubstr("not deterministic: noise at step 0"));
}

TEST_F(DoctorTest, IgnoredNamesAreNotCompared) {
  EXPECT_EQ(Examine({"timed"}, {"--ignore", "step time"}).exit_code, 0);
  EXPECT_EQ(Examine({"timed"}).exit_code, 1);
}

TEST_F(DoctorTest, WithoutReportsNothingCanBeTold) {
  const Ended ended = Examine({"silent"});
  ExpectFailure(ended, "nothing can be told");
  EXPECT_THAT(ended.output, HasSubstr("session->Report("));
}

TEST_F(DoctorTest, AProgramThatFailsShowsItsOutput) {
  const Ended ended = Examine({"fails"});
  ExpectFailure(ended, "run alone, exits with 3");
  EXPECT_THAT(ended.output, HasSubstr("| no such data set"));
}

TEST_F(DoctorTest, AProgramThatFailsToRestoreShowsItsOutput) {
  const Ended ended = Examine({"fails-resumed"});
  ExpectFailure(ended, "started again, exits with 4");
  EXPECT_THAT(ended.output, HasSubstr("| the checkpoint does not fit"));
}

TEST_F(DoctorTest, AProgramWithoutCheckpointsFails) {
  ExpectFailure(Examine({"stateless"}), "wrote no checkpoint");
}

TEST_F(DoctorTest, AProgramThatBeginsAgainFails) {
  ExpectFailure(Examine({"restarts"}),
                "went on from step 0, not from the checkpoint of step 10");
}

TEST_F(DoctorTest, AProgramThatIsTooFastToBeKilledIsStoppedByItsBudget) {
  const Ended ended = Examine({"late"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("not killed"),
                                  HasSubstr("from step 10 to step 20")));
}

TEST_F(DoctorTest, AProgramThatDoesNotUseTheRuntimeIsToldSo) {
  const Ended ended = Examine({"unused"});
  ExpectFailure(ended, "does not use the runtime");
  EXPECT_THAT(ended.output, HasSubstr("gavel::Iterator"));
}

TEST_F(DoctorTest, AProgramThatHangsIsKilled) {
  ExpectFailure(Examine({"hangs"}, {"--timeout", "0.3"}),
                "still runs after 0.3 s");
}

TEST_F(DoctorTest, ACommandThatIsNotThereIsNamed) {
  const Ended ended = Run({"doctor", "--state", state(), "--", "no-such-one"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("no-such-one: command not found"));
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(DoctorTest, AWrongCommandLineIsTwo) {
  EXPECT_EQ(Run({"doctor"}).exit_code, 2);
  EXPECT_EQ(Run({"doctor", "--"}).exit_code, 2);
  EXPECT_EQ(Run({"doctor", kTrainer}).exit_code, 2);
  EXPECT_EQ(Run({"doctor", "--steps", "1", "--", kTrainer}).exit_code, 2);
  EXPECT_EQ(Run({"doctor", "--nonsense", "--", kTrainer}).exit_code, 2);
}

TEST_F(DoctorTest, ArgumentsAreHandedOverAsTheyAre) {
  const Ended ended =
      Run({"doctor", "--state", state(), "--", "sh", "-c",
           "echo \"$#:$*\"; exit 3", "sh", "[a,b]", "--", "-x", "--steps=4"});
  EXPECT_THAT(ended.output, HasSubstr("| 4:[a,b] -- -x --steps=4\n"));
}

TEST_F(DoctorTest, AnInterruptLeavesNothingBehind) {
  const auto doctor =
      Start({"doctor", "--state", state(), "--", kTrainer, "hangs"});
  ASSERT_TRUE(Eventually([&] { return Kept().size() == 1; }));
  doctor->Signal(SIGINT);
  EXPECT_EQ(doctor->Wait(), 1);
  EXPECT_THAT(doctor->errors(), HasSubstr("interrupted"));
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(DoctorTest, TheSmallestExamplePasses) {
  if (!std::filesystem::exists(kMinimal)) {
    GTEST_SKIP() << "examples/minimal is not built (no LibTorch)";
  }
  const Ended ended = Run({"doctor", "--state", state(), "--", kMinimal});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("PASS"), HasSubstr("loss")));
}

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

}  // namespace
}  // namespace gavel::testing
