// `gavel reproduce reality`, end to end, with workers that train nothing.
#include <csignal>
#include <sstream>

#include "tests/cli/live_workload_fixture.h"

namespace gavel::testing {
namespace {

class RealityTest : public LiveWorkloadTest {
 protected:
  // The throughputs are known, so that nothing is measured.
  void WriteThroughputs() {
    Write("throughputs.json",
          "{\"fast\": {\"('sleeper', 1)\": {\"null\": 50}}, "
          "\"slow\": {\"('sleeper', 1)\": {\"null\": 50}}}");
  }
  std::vector<std::string> Short(std::vector<std::string> more) {
    more.insert(more.end(), {"--jobs", "5", "--runs", "1", "--durations", "1",
                             "2", "--round", "1"});
    return Reproduce("reality", more);
  }
  // The cells of a row of the document.
  static std::vector<std::string> Cells(const std::string& text,
                                        const std::string& begin) {
    std::istringstream lines(text);
    std::vector<std::string> cells;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(begin)) continue;
      std::istringstream row(line);
      for (std::string cell; std::getline(row, cell, '|');) {
        cells.push_back(cell);
      }
      break;
    }
    return cells;
  }
};

TEST_F(RealityTest, ATraceIsMeasuredRunLiveAndSimulated) {
  WriteSleeper();
  const Ended ended =
      Run(Short({"--measure", "0.5", "--markdown", "--limit", "60"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.errors << ended.output;
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("measuring 1 of 2: sleeper on 1 "),
                                  HasSubstr("live run 1 of 1: 5 jobs")));
  EXPECT_THAT(
      ended.output,
      AllOf(HasSubstr("5 jobs of 1 to 2 s"), HasSubstr("1 fast, 1 slow"),
            HasSubstr("| RUN | MAKESPAN (s) | SIMULATED |"),
            HasSubstr("Simulated makespan "), HasSubstr("average JCT ")));
  const auto run = Cells(ended.output, "| 1 |");
  ASSERT_GE(run.size(), 8u) << ended.output;
  const double makespan_s = std::stod(run[2]);
  EXPECT_GT(makespan_s, 2.5);  // 5 jobs of more than a second on two
  EXPECT_NEAR(std::stod(run[3]), makespan_s, 0.6 * makespan_s);
  EXPECT_NEAR(std::stod(run[6]), std::stod(run[5]), 0.6 * std::stod(run[5]));
  const auto inputs = Cells(ended.output, "| sleeper |");
  ASSERT_GE(inputs.size(), 5u) << ended.output;
  EXPECT_NEAR(std::stod(inputs[2]), 50, 2);
  EXPECT_GT(std::stod(inputs[4]), 0);  // a process takes time to start
  // `gavel simulate` takes the files that it left there.
  const Ended simulated =
      Run({"simulate", "--trace", state() + "/trace.toml", "--throughputs",
           state() + "/throughputs.json", "--overheads",
           state() + "/run-1/overheads.toml", "--cluster", "fast:1,slow:1",
           "--round-duration", "1"});
  EXPECT_EQ(simulated.exit_code, 0) << simulated.errors;
  EXPECT_EQ(Workers(), 0);
}

TEST_F(RealityTest, WhatIsTooFarApartIsAFailure) {
  WriteSleeper();
  // Twice as fast as it is.
  Write("throughputs.json",
        "{\"fast\": {\"('sleeper', 1)\": {\"null\": 100}}, "
        "\"slow\": {\"('sleeper', 1)\": {\"null\": 100}}}");
  const Ended ended = Run(Short({"--throughputs", Path("throughputs.json")}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.output, HasSubstr("Simulated makespan -"));
  EXPECT_THAT(ended.errors,
              AllOf(HasSubstr("the simulation is off by -"),
                    HasSubstr("more than 10 %"), HasSubstr("--limit")));
}

TEST_F(RealityTest, AJobThatFailsLiveIsNamed) {
  WriteSleeper({"--exit-at", "5", "3"});
  WriteThroughputs();
  const Ended ended = Run(Short({"--throughputs", Path("throughputs.json")}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors,
              AllOf(HasSubstr("not all jobs finished: job 1 job-01"),
                    HasSubstr("/run-1/state/logs")));
  EXPECT_EQ(Workers(), 0);
}

TEST_F(RealityTest, CtrlCLeavesNoProcessBehind) {
  WriteSleeper();
  WriteThroughputs();
  const auto command = Start(
      Reproduce("reality", {"--throughputs", Path("throughputs.json"), "--jobs",
                            "4", "--durations", "60", "60", "--runs", "1"}));
  ASSERT_TRUE(Eventually([&] { return Workers() > 0; })) << command->errors();
  command->Signal(SIGINT);
  EXPECT_EQ(command->Wait(), 1);
  EXPECT_THAT(command->errors(), HasSubstr("stopped before all jobs ended"));
  EXPECT_EQ(Workers(), 0);
}

TEST_F(RealityTest, MistakesAreNamedBeforeAnythingRuns) {
  WriteSleeper();
  EXPECT_THAT(Run(Reproduce("reality", {"--only", "LM"})).errors,
              HasSubstr("there is no workload \"LM\"; choose of sleeper"));
  EXPECT_THAT(Run(Reproduce("reality", {"--policy", "fair"})).errors,
              HasSubstr("fair"));
  EXPECT_THAT(Run(Reproduce("reality", {"--durations", "2", "1"})).errors,
              HasSubstr("the first is the shorter one"));
  WriteThroughputs();
  Write("workloads.toml",
        "[[workload]]\ntype = \"lost\"\ncommand = [\"no_such_program\"]\n");
  EXPECT_THAT(Run(Reproduce("reality", {})).errors,
              AllOf(HasSubstr("lost: the program no_such_program is neither"),
                    HasSubstr("--workloads")));
  Write("workloads.toml",
        "[[workload]]\ntype = \"other\"\ncommand = [\"true\"]\n");
  EXPECT_THAT(
      Run(Reproduce("reality", {"--throughputs", Path("throughputs.json")}))
          .errors,
      HasSubstr("\"other\" has no throughput on any type"));
}

}  // namespace
}  // namespace gavel::testing
