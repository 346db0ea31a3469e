// `gavel reproduce preemption`, end to end, with workers that train nothing.
#include <csignal>
#include <sstream>

#include "tests/cli/live_workload_fixture.h"

namespace gavel::testing {
namespace {

class PreemptionTest : public LiveWorkloadTest {
 protected:
  std::vector<std::string> Short(std::vector<std::string> more) {
    more.insert(more.end(), {"--rounds", "3", "--round", "0.5"});
    return Reproduce("preemption", more);
  }
};

// Milliseconds of a row of the document.
double LostIn(const std::string& text, const std::string& end) {
  const std::string begin = "| sleeper | " + end + " | ";
  const size_t at = text.find(begin);
  return at == std::string::npos ? -1
                                 : std::stod(text.substr(at + begin.size()));
}

TEST_F(PreemptionTest, RelaunchingCostsMoreThanPausingAndThatMoreThanNothing) {
  WriteSleeper();
  const Ended ended = Run(Short({"--markdown", "--html", Path("page.html")}));
  ASSERT_EQ(ended.exit_code, 0) << ended.errors << ended.output;
  EXPECT_THAT(ended.errors, HasSubstr("3 of 3: sleeper, relaunched"));
  EXPECT_THAT(ended.output, AllOf(HasSubstr("3 rounds of 0.5 s"),
                                  HasSubstr("Relaunching costs ")));
  const double extended = LostIn(ended.output, "extended");
  const double paused = LostIn(ended.output, "paused");
  const double relaunched = LostIn(ended.output, "relaunched");
  EXPECT_GE(extended, 0) << ended.output;
  EXPECT_GT(paused, extended) << ended.output;
  EXPECT_GT(relaunched, paused) << ended.output;
  // Four processes: the first, and one after each round.
  EXPECT_TRUE(std::filesystem::exists(state() + "/1-relaunched/trace-3.json"));
  EXPECT_FALSE(std::filesystem::exists(state() + "/1-relaunched/trace-4.json"));
  EXPECT_FALSE(std::filesystem::exists(state() + "/1-paused/trace-1.json"));
  EXPECT_THAT(ReadText(Path("page.html")),
              AllOf(HasSubstr("\"kind\":\"bars\""),
                    HasSubstr("sleeper, relaunched"), HasSubstr("resuming")));
  EXPECT_EQ(Workers(), 0);
}

TEST_F(PreemptionTest, ShowsATimeLine) {
  WriteSleeper();
  const Ended ended = Run(Short({}));
  ASSERT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("NOT TRAINING"), HasSubstr("############")));
}

TEST_F(PreemptionTest, AProgramThatFailsIsNamed) {
  WriteSleeper({"--exit-at", "5", "3"});
  const Ended ended = Run(Short({}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors,
              AllOf(HasSubstr("sleeper, extended: it ended with 3"),
                    HasSubstr("1-extended/job.log")));
}

TEST_F(PreemptionTest, AProgramThatIgnoresItsLeaseIsGivenUp) {
  WriteSleeper({"--ignore-pauses"});
  const Ended ended = Run(Short({"--timeout", "1.5"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("within 1.5 s"));
  Write("workloads.toml",
        "[[workload]]\ntype = \"deaf\"\ncommand = [\"sleep\", \"100\"]\n");
  EXPECT_THAT(Run(Short({"--timeout", "1"})).errors,
              HasSubstr("deaf, extended: no request for a lease within 1 s"));
  EXPECT_EQ(Workers(), 0);
}

TEST_F(PreemptionTest, CtrlCLeavesNoProcessBehind) {
  WriteSleeper();
  const auto command = Start(Reproduce("preemption", {"--round", "60"}));
  ASSERT_TRUE(Eventually([&] { return Workers() > 0; })) << command->errors();
  command->Signal(SIGINT);
  EXPECT_EQ(command->Wait(), 1);
  EXPECT_THAT(command->errors(), HasSubstr("stopped"));
  EXPECT_EQ(Workers(), 0);
}

TEST_F(PreemptionTest, WhatIsNotThereIsNamed) {
  WriteSleeper();
  EXPECT_THAT(Run(Reproduce("preemption", {"--only", "LM"})).errors,
              HasSubstr("there is no workload \"LM\"; choose of sleeper"));
  Write("cluster.toml", "[[server]]\nname = \"none\"\n");
  EXPECT_EQ(Run(Reproduce("preemption", {"--cluster", Path("cluster.toml")}))
                .exit_code,
            1);
}

}  // namespace
}  // namespace gavel::testing
