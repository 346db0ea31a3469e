// Tests `gavel doctor` on a program that resumes exactly, and on programs that
// do not.
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "gavel_paths.h"
#include "nlohmann/json.hpp"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

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
  // The folders that were left behind.
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
            HasSubstr("tracked    weight (floating-point number of 8 bytes)"),
            HasSubstr("epochs     4 loops ended, the first at step 5; "
                      "evaluated 4 times"),
            HasSubstr("tracked state equal"),
            HasSubstr("end        at step 40"),
            HasSubstr("paused     after step 1"),
            HasSubstr("moved      after step 1"),
            HasSubstr("20 values equal to the bit"),
            HasSubstr("by SIGKILL once the checkpoint of step 13 was there"),
            HasSubstr("from step 13 to step 40"), HasSubstr("27 values"),
            HasSubstr("from step 20 to step 40"),
            HasSubstr("from step 36 to step 40"), HasSubstr("checkpoint "),
            HasSubstr("verified; saved in"), HasSubstr("alone, "),
            HasSubstr("under a lease"), HasSubstr("PASS")));
  EXPECT_THAT(Kept(), IsEmpty());
}

// A way in which fake_trainer fails, and the report that the doctor gives.
struct Failing {
  std::vector<std::string> trainer_arguments;
  std::string why;
  std::string more = "";
  std::vector<std::string> options = {};
};
class FailingProgram : public DoctorTest, public WithParamInterface<Failing> {};

TEST_P(FailingProgram, IsToldWhy) {
  const Failing& failing = GetParam();
  const Ended ended = Examine(failing.trainer_arguments, failing.options);
  ExpectFailure(ended, failing.why);
  EXPECT_THAT(ended.output, HasSubstr(failing.more));
}

INSTANTIATE_TEST_SUITE_P(
    Doctor, FailingProgram,
    Values(
        Failing{{"forgets-quietly"},
                "FAIL: what is reported is equal, but the tracked state at "
                "step 40 is not, in the run that was restored: quiet",
                "tracked state DIFFERS: quiet"},
        Failing{{"average"},
                "FAIL: it uses state that is not tracked",
                "untracked  a copy that follows the model"},
        Failing{{"uncounted"},
                "started again from step 13 it goes on to step 50, "
                "undisturbed it ends at step 40"},
        Failing{{"impatient"},
                "started again from step 22 it goes on to step 35, "
                "undisturbed it ends at step 25",
                "the best value of an early stop"},
        // The trainer changes its rate after more steps than the first runs do.
        Failing{{"slows"}, "FAIL: loss at step 30: "},
        Failing{{"forgets", "breaks"},
                "Suspect: a loop that is left by `break` (the first time at "
                "step 5)"},
        Failing{{"forgets", "schedule"}, "Suspect: of its rate"},
        // A program with a constant loss would report the same when it had lost
        // everything.
        Failing{{"constant"},
                "is the same in each step (loss is 1), so no run could differ"},
        Failing{{"diverges"}, "loss at step 4 is not a number"},
        Failing{{"loses-paused"},
                "in the run that was paused",
                "FAIL: loss at step 1"},
        Failing{{"leaseless"}, "it never asked for a lease"},
        Failing{{"deaf"}, "it could not be paused"},
        Failing{
            {"hangs-paused"}, "it could not be paused", "", {"--timeout", "2"}},
        Failing{{"loopless"}, "never reached a boundary"},
        Failing{{"damages"},
                "a checkpoint does not verify",
                "/shard-00000.safetensors: "},
        Failing{{"asks"}, "exits with 2", "gavel doctor -- ./train ARGUMENTS"},
        Failing{{"random"},
                "the program itself is not deterministic: noise at",
                "seed all"},
        Failing{{"random", "forgets"},
                "FAIL: loss at step 13: ",
                "not deterministic: noise at step 0"},
        Failing{{"silent"}, "nothing can be told", "session->Report("},
        Failing{{"fails"}, "run alone, exits with 3", "| no such data set"},
        Failing{{"fails-resumed"},
                "started again, exits with 4",
                "| the checkpoint does not fit"},
        Failing{{"stateless"}, "wrote no checkpoint"},
        Failing{{"restarts"},
                "went on from step 0, not from the checkpoint of step 13"},
        Failing{{"unused"}, "does not use the runtime", "gavel::Iterator"},
        Failing{{"hangs"}, "still runs after 0.3 s", "", {"--timeout", "0.3"}}),
    [](const auto& failing) {
      std::string name = failing.param.trainer_arguments.front();
      for (size_t i = 1; i < failing.param.trainer_arguments.size(); ++i) {
        name += "_" + failing.param.trainer_arguments[i];
      }
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST_F(DoctorTest, WithoutAnEpochEndItIsNoPass) {
  const Ended ended = Examine({"endless"}, {"--steps", "20", "--timeout", "2"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(
      ended.output,
      AllOf(HasSubstr("UNKNOWN: nothing differs, but no epoch end was "
                      "examined"),
            HasSubstr("give --steps 80 or more"), Not(HasSubstr("PASS"))));
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(DoctorTest, WithoutItsOwnEndItIsNoPass) {
  const Ended ended = Examine({"unending"}, {"--timeout", "2"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("UNKNOWN: nothing differs, but its own end was "
                              "not reached in 2 s: what comes after step 20"),
                    HasSubstr("from step 7 to step 20"),
                    HasSubstr("set GAVEL_STEPS"), Not(HasSubstr("PASS"))));
  const Ended json = Examine({"unending"}, {"--timeout", "2", "--json"});
  EXPECT_EQ(json.exit_code, 3);
  const auto found = nlohmann::json::parse(json.output, nullptr, false);
  ASSERT_TRUE(found.is_object()) << json.output;
  EXPECT_EQ(found["unknown"], true);
  EXPECT_TRUE(found["kept"].is_null());
}

TEST_F(DoctorTest, TheStepBudgetOfItsUserIsAnEndOfItsOwn) {
  setenv("GAVEL_STEPS", "30", 1);
  const Ended ended = Examine({"unending"});
  unsetenv("GAVEL_STEPS");
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("end        at step 30"),
                                  HasSubstr("to step 30"), HasSubstr("PASS")));
}

TEST_F(DoctorTest, AnEarlyStopThatIsTrackedPasses) {
  const Ended ended = Examine({"patient"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("end        at step 25"));
}

TEST_F(DoctorTest, LongEpochsGetMoreSteps) {
  const Ended ended = Examine({"--epoch-steps", "30"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("alone      80 steps"), HasSubstr("PASS")));
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
  ASSERT_EQ(json["runs"].size(), 5);
  EXPECT_EQ(json["runs"][0]["run"], "paused");
  EXPECT_EQ(json["runs"][0]["state_compared"], true);
  EXPECT_EQ(json["runs"][1]["values_compared"], 20);
  EXPECT_EQ(json["runs"][2]["compared_from_step"], 13);
  EXPECT_EQ(json["runs"][3]["compared_from_step"], 20);
  EXPECT_EQ(json["runs"][4]["compared_from_step"], 36);
  for (const auto& run : json["runs"]) EXPECT_TRUE(run["differences"].empty());
  const auto& measures = json["measures"];
  EXPECT_GE(measures["save_s"], 0);
  EXPECT_GE(measures["load_s"], 0);
  EXPECT_GT(measures["checkpoint_bytes"], 0);
  EXPECT_GE(measures["checkpoints_verified"], 5);
  EXPECT_GE(measures["step_s"], 0.003);  // it sleeps for that long
  EXPECT_GE(measures["leased_step_s"], 0.003);
}

TEST_F(DoctorTest, AFailureIsInTheJsonToo) {
  const Ended ended = Examine({"forgets"}, {"--json"});
  EXPECT_EQ(ended.exit_code, 1);
  const auto json = nlohmann::json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ended.output;
  EXPECT_EQ(json["passed"], false);
  const auto& difference = json["runs"][2]["differences"][0];
  EXPECT_EQ(difference["name"], "loss");
  EXPECT_EQ(difference["step"], 13);
  EXPECT_NE(difference["found"], difference["undisturbed"]);
  EXPECT_TRUE(std::filesystem::exists(json["kept"].get<std::string>()));
}

TEST_F(DoctorTest, StepsThatAreTooQuickAreSlowedDownToBePaused) {
  const Ended ended = Examine({"--step-ms", "0"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("paused     after step "));
}

TEST_F(DoctorTest, AnOddNumberOfStepsPasses) {
  const Ended ended = Examine({"--steps", "7"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("the checkpoint of step 3 was there"),
                    HasSubstr("from step 4 to step 7"),
                    HasSubstr("from step 6 to step 7")));
}

TEST_F(DoctorTest, AProgramThatEndsByItselfIsInterruptedEarlier) {
  const Ended ended = Examine({"--steps", "8"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("alone      8 steps"),
                                  HasSubstr("from step 4 to step 8")));
}

TEST_F(DoctorTest, StateThatIsNotSavedIsFound) {
  const Ended ended = Examine({"forgets"});
  ExpectFailure(ended, "loss at step 13: ");
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("undisturbed"), HasSubstr("after the restart"),
                    HasSubstr("0x"), HasSubstr("Track()"),
                    Not(HasSubstr("not deterministic"))));
}

TEST_F(DoctorTest, AToleranceLetsSmallDifferencesPass) {
  EXPECT_EQ(Examine({"forgets"}, {"--tolerance", "1"}).exit_code, 0);
  EXPECT_EQ(Examine({"forgets"}, {"--tolerance", "1e-9"}).exit_code, 1);
}

TEST_F(DoctorTest, IgnoredNamesAreNotCompared) {
  EXPECT_EQ(Examine({"timed"}, {"--ignore", "step time"}).exit_code, 0);
  EXPECT_EQ(Examine({"timed"}).exit_code, 1);
}

TEST_F(DoctorTest, AProgramThatIsTooFastToBeKilledIsStoppedByItsBudget) {
  const Ended ended = Examine({"late"});
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("not killed"),
                                  HasSubstr("from step 13 to step 40")));
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

// A comparison of reports alone, without the end of an epoch, does not find
// these failures.
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
  const Ended even = examine("short");
  EXPECT_EQ(even.exit_code, 0) << even.output << even.errors;
  EXPECT_THAT(even.output, HasSubstr("alone      16 steps"));
  ExpectFailure(examine("micro"),
                "the model is updated by other steps (undisturbed those that "
                "end at 18, 20, 22, 24; after the restart 19, 21, 23, 25)");
  ExpectFailure(examine("scheduler"), "no scheduler is tracked");
  ExpectFailure(examine("average"), "a copy that follows the model");
  ExpectFailure(examine("epoch"), "what counts its epochs is not tracked");
  ExpectFailure(examine("break"), "Suspect: a loop that is left by `break`");
}

TEST_F(DoctorTest, MemoryThatStaysOnAnAcceleratorIsNamed) {
  if (!std::filesystem::exists(kTorchTrainer)) {
    GTEST_SKIP() << "doctor_trainer is not built (no LibTorch)";
  }
  const auto examine = [&](const std::string& mode) {
    return Run({"doctor", "--state", state(), "--device", "hpu:0", "--move-to",
                "hpu:1", "--", "env",
                "GAVEL_SIMULATED_DEVICE=devices=2,memory_mib=64", kTorchTrainer,
                mode});
  };
  const Ended whole = examine("whole");
  const Ended keeps = examine("memory");
  EXPECT_EQ(whole.exit_code, 0) << whole.output << whole.errors;
  EXPECT_THAT(whole.output, Not(HasSubstr("untracked")));
  EXPECT_THAT(keeps.output,
              AllOf(HasSubstr("untracked  1.0 MiB stay on the accelerator"),
                    HasSubstr("OnRelease()")))
      << keeps.errors;
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
