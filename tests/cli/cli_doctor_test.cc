// `gavel doctor` on a program that resumes exactly, and on those that do not.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "gavel_paths.h"
#include "nlohmann/json.hpp"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kTrainer[] = GAVEL_BINARY_DIR "/tests/fake_trainer";
constexpr char kMinimal[] = GAVEL_BINARY_DIR "/minimal";
constexpr char kTorchTrainer[] = GAVEL_BINARY_DIR "/tests/doctor_trainer";

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
            HasSubstr("paused     after step 1"),
            HasSubstr("moved      after step 1"),
            HasSubstr("20 values equal to the bit"),
            HasSubstr("by SIGKILL once the checkpoint of step 10 was there"),
            HasSubstr("from step 10 to step 20"), HasSubstr("10 values"),
            HasSubstr("checkpoint "), HasSubstr("verified; saved in"),
            HasSubstr("alone, "), HasSubstr("under a lease"),
            HasSubstr("PASS")));
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(DoctorTest, EpochsEvaluationsAndTheOwnEndAreExamined) {
  const Ended ended = Examine({});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(
      ended.output,
      AllOf(HasSubstr("tracked    weight (floating-point number of 8 bytes)"),
            HasSubstr("epochs     4 loops ended, the first at step 5; "
                      "evaluated 4 times"),
            HasSubstr("tracked state equal"),
            HasSubstr("end        at step 40, also when started again from "
                      "step 20")));
}

TEST_F(DoctorTest, WithoutAnEpochEndItIsNoPass) {
  const Ended ended = Examine({"endless"}, {"--steps", "20"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("UNKNOWN: no epoch end examined"),
                                  HasSubstr("give --steps 80 or more"),
                                  Not(HasSubstr("PASS"))));
}

TEST_F(DoctorTest, LongEpochsGetMoreSteps) {
  const Ended ended = Examine({"--epoch-steps", "30"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("alone      80 steps"), HasSubstr("PASS")));
}

TEST_F(DoctorTest, TrackedStateThatIsNotReportedIsCompared) {
  const Ended ended = Examine({"forgets-quietly"});
  ExpectFailure(ended,
                "FAIL: what is reported is equal, but the tracked state at "
                "step 20 is not, in the run that was restored: quiet");
  EXPECT_THAT(ended.output, HasSubstr("tracked state DIFFERS: quiet"));
}

TEST_F(DoctorTest, AMovingAverageThatNobodyTracksIsAFailure) {
  const Ended ended = Examine({"average"});
  ExpectFailure(ended, "FAIL: it uses state that is not tracked");
  EXPECT_THAT(ended.output,
              HasSubstr("untracked  a copy that follows the model"));
}

TEST_F(DoctorTest, AnEpochCounterThatNobodyTracksIsAFailure) {
  ExpectFailure(Examine({"uncounted"}),
                "started again from step 20 it goes on to step 60, "
                "undisturbed it ends at step 40");
}

TEST_F(DoctorTest, WhatTheAccountGivesAwayIsBlamed) {
  const Ended by_break = Examine({"forgets", "breaks"});
  ExpectFailure(by_break,
                "Suspect: a loop that is left by `break` (the first "
                "time at step 5)");
  std::filesystem::remove_all(state());
  ExpectFailure(Examine({"forgets", "schedule"}), "Suspect: of its rate");
}

TEST_F(DoctorTest, TheAnswerIsJsonWhenAsked) {
  const Ended ended = Examine({}, {"--json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  const auto json = nlohmann::json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ended.output;
  EXPECT_EQ(json["passed"], true);
  EXPECT_EQ(json["steps"], 20);
  EXPECT_EQ(json["epoch_ends"].size(), 4);
  EXPECT_EQ(json["tracked"].size(), 1);
  ASSERT_EQ(json["runs"].size(), 3);
  EXPECT_EQ(json["runs"][0]["run"], "paused");
  EXPECT_EQ(json["runs"][0]["state_compared"], true);
  EXPECT_EQ(json["runs"][1]["values_compared"], 20);
  EXPECT_EQ(json["runs"][2]["compared_from_step"], 10);
  for (const auto& run : json["runs"]) EXPECT_TRUE(run["differences"].empty());
  const auto& measures = json["measures"];
  EXPECT_GE(measures["save_s"], 0);
  EXPECT_GE(measures["load_s"], 0);
  EXPECT_GT(measures["checkpoint_bytes"], 0);
  EXPECT_GE(measures["checkpoints_verified"], 5);
  EXPECT_GE(measures["step_s"], 0.003);  // it sleeps for that long
  EXPECT_GE(measures["leased_step_s"], 0.003);
}

// Though it would report the same when it had lost everything.
TEST_F(DoctorTest, ValuesThatNeverVaryOrAreNoNumbersTellNothing) {
  ExpectFailure(Examine({"constant"}),
                "is the same in each step (loss is 1), so no run could differ");
  std::filesystem::remove_all(state());
  ExpectFailure(Examine({"diverges"}), "loss at step 4 is not a number");
}

TEST_F(DoctorTest, AFailureIsInTheJsonToo) {
  const Ended ended = Examine({"forgets"}, {"--json"});
  EXPECT_EQ(ended.exit_code, 1);
  const auto json = nlohmann::json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ended.output;
  EXPECT_EQ(json["passed"], false);
  const auto& difference = json["runs"][2]["differences"][0];
  EXPECT_EQ(difference["name"], "loss");
  EXPECT_EQ(difference["step"], 10);
  EXPECT_NE(difference["found"], difference["undisturbed"]);
  EXPECT_TRUE(std::filesystem::exists(json["kept"].get<std::string>()));
}

TEST_F(DoctorTest, StepsThatAreTooQuickAreSlowedDownToBePaused) {
  const Ended ended = Examine({"--step-ms", "0"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("paused     after step "));
}

TEST_F(DoctorTest, AnOddNumberOfStepsPasses) {
  const Ended ended = Examine({}, {"--steps", "7"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the checkpoint of step 3 was there"));
}

TEST_F(DoctorTest, AProgramThatEndsByItselfIsInterruptedEarlier) {
  const Ended ended = Examine({"--steps", "8"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("alone      8 steps"),
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

TEST_F(DoctorTest, StateThatAPauseLosesIsFound) {
  const Ended ended = Examine({"loses-paused"});
  ExpectFailure(ended, "in the run that was paused");
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("FAIL: loss at step 1"), HasSubstr("Suspect:")));
}

TEST_F(DoctorTest, AToleranceLetsSmallDifferencesPass) {
  EXPECT_EQ(Examine({"forgets"}, {"--tolerance", "1"}).exit_code, 0);
  EXPECT_EQ(Examine({"forgets"}, {"--tolerance", "1e-9"}).exit_code, 1);
}

TEST_F(DoctorTest, AProgramThatAsksForNoLeaseIsToldSo) {
  ExpectFailure(Examine({"leaseless"}), "it never asked for a lease");
}

TEST_F(DoctorTest, AProgramThatReachesNoBoundaryWhenAskedIsToldSo) {
  ExpectFailure(Examine({"deaf"}), "it could not be paused");
}

TEST_F(DoctorTest, AProgramThatHangsInsteadOfPausingIsToldSo) {
  ExpectFailure(Examine({"hangs-paused"}, {"--timeout", "2"}),
                "it could not be paused");
}

TEST_F(DoctorTest, AProgramWithoutALoopIsToldSo) {
  ExpectFailure(Examine({"loopless"}), "never reached a boundary");
}

TEST_F(DoctorTest, ACheckpointThatDoesNotVerifyIsNamed) {
  const Ended ended = Examine({"damages"});
  ExpectFailure(ended, "a checkpoint does not verify");
  EXPECT_THAT(ended.output, HasSubstr("/shard-00000.safetensors: "));
}

TEST_F(DoctorTest, AProgramThatWantsArgumentsIsToldWhereTheyGo) {
  const Ended ended = Examine({"asks"});
  ExpectFailure(ended, "exits with 2");
  EXPECT_THAT(ended.output, HasSubstr("gavel doctor -- ./train ARGUMENTS"));
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

// Programs that passed when no epoch ended and reports alone were compared.
TEST_F(DoctorTest, ProgramsThatForgetWhatIsSeldomUsedFail) {
  if (!std::filesystem::exists(kTorchTrainer)) {
    GTEST_SKIP() << "doctor_trainer is not built (no LibTorch)";
  }
  const auto examine = [&](const std::string& mode) {
    std::filesystem::remove_all(state());
    return Run({"doctor", "--state", state(), "--", kTorchTrainer, mode});
  };
  const Ended whole = examine("whole");
  EXPECT_EQ(whole.exit_code, 0) << whole.output << whole.errors;
  EXPECT_THAT(whole.output, AllOf(HasSubstr("scheduler (learning-rate"),
                                  HasSubstr("2 loops ended, the first at step "
                                            "8; evaluated 2 times"),
                                  HasSubstr("end        at step 48")));
  ExpectFailure(examine("scheduler"), "no scheduler is tracked");
  ExpectFailure(examine("average"), "a copy that follows the model");
  ExpectFailure(examine("epoch"), "what counts its epochs is not tracked");
  ExpectFailure(examine("break"), "Suspect: a loop that is left by `break`");
}

TEST_F(DoctorTest, TheSmallestExamplePasses) {
  if (!std::filesystem::exists(kMinimal)) {
    GTEST_SKIP() << "examples/minimal is not built (no LibTorch)";
  }
  const Ended ended = Run({"doctor", "--state", state(), "--", kMinimal});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("PASS"), HasSubstr("loss")));
}

}  // namespace
}  // namespace gavel::testing
