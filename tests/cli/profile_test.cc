// `gavel profile`, end to end, with workers that train nothing.
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "coordinator/workload/throughput_table.h"
#include "gavel_paths.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

class ProfileTest : public GavelTest {
 protected:
  // Two workloads of the fake worker, with 100 and 50 steps/s.
  std::string WriteWorkloads(const std::string& more_of_slow = "") {
    const std::string worker = GAVEL_BINARY_DIR "/tests/fake_worker";
    const auto one = [&](const std::string& type, const std::string& ms) {
      return "[[workload]]\ntype = \"" + type + "\"\ncommand = [\"" + worker +
             "\", \"--steps\", \"1000000\", \"--step-ms\", \"" + ms + "\"";
    };
    return Write(
        "workloads.toml",
        one("quick", "10") + "]\n" + one("slow", "20") + more_of_slow + "]\n");
  }
  std::vector<std::string> Command(std::vector<std::string> more = {},
                                   const std::string& measure_s = "1",
                                   const std::string& timeout_s = "20") {
    std::vector<std::string> command = {"profile",   Path("workloads.toml"),
                                        "--cluster", Path("cluster.toml"),
                                        "--table",   Path("profile.csv"),
                                        "--output",  Path("t.json"),
                                        "--state",   state(),
                                        "--warm-up", "0.2",
                                        "--measure", measure_s,
                                        "--timeout", timeout_s};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::string Text(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(ProfileTest, MeasuresAloneAndInPairsAndWritesBothForms) {
  WriteCluster(1, 10, 5);
  WriteWorkloads();
  const Ended ended = Run(Command());
  ASSERT_EQ(ended.exit_code, 0) << ended.errors << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("1 of 5: quick on 1 "));
  EXPECT_THAT(ended.output, HasSubstr("6 figures in "));
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(Text("t.json"), "t.json"));
  const auto quick = table.FindRow("quick", 1);
  const auto slow = table.FindRow("slow", 1);
  ASSERT_TRUE(quick && slow);
  EXPECT_NEAR(*table.Alone(*quick, 0), 100, 1);
  EXPECT_NEAR(*table.Alone(*slow, 0), 50, 1);
  // The workers only sleep, so neither slows the other.
  const auto both = table.Together(*quick, *slow, 0);
  ASSERT_TRUE(both.has_value());
  EXPECT_NEAR(both->first, 100, 1);
  EXPECT_NEAR(both->second, 50, 1);
  const auto itself = table.Together(*slow, *slow, 0);
  ASSERT_TRUE(itself.has_value());
  EXPECT_GT(itself->first, 0);
}

TEST_F(ProfileTest, StoppedItGoesOnWhereItWas) {
  WriteCluster(1, 10, 5);
  WriteWorkloads();
  const auto first = Start(Command({"--alone"}, "3"));
  for (int i = 0; i < 200 && Count(first->output(), "2 of 2") == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_THAT(first->output(), HasSubstr("2 of 2"));
  first->Signal(SIGINT);
  EXPECT_EQ(first->Wait(), 1);
  EXPECT_THAT(first->errors(), HasSubstr("the same command goes on"));
  EXPECT_THAT(Text("profile.csv"), HasSubstr("quick,1,"));
  EXPECT_EQ(Text("profile.csv").find("slow,1,"), std::string::npos);
  const std::string before = Text("profile.csv");
  const Ended again = Run(Command({"--alone"}));
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  // The rows of the first run are unchanged.
  EXPECT_EQ(Text("profile.csv").substr(0, before.size()), before);
  EXPECT_THAT(Text("profile.csv"), HasSubstr("slow,1,"));
}

TEST_F(ProfileTest, BusyTheOtherAcceleratorsTrainCopies) {
  WriteCluster(3, 10, 5);
  WriteWorkloads();
  const Ended ended = Run(Command({"--alone", "--busy"}, "0.5"));
  ASSERT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("2 figures in "));
  for (const char* job : {"job-1", "job-2", "job-3"}) {
    EXPECT_THAT(ReadText(state() + "/" + job + ".log"),
                HasSubstr("starts at step 0"));
  }
}

// A fake worker reports five times a second, so that three reports are more
// than three times this.
TEST_F(ProfileTest, AShortMeasurementStillHasEnoughReports) {
  WriteCluster(1, 10, 5);
  WriteWorkloads();
  const Ended ended = Run(Command({"--alone"}, "0.1"));
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("2 figures in "));
}

TEST_F(ProfileTest, AGangIsMeasuredOnOneServerAndOverTwo) {
  Write("cluster.toml",
        "[[server]]\nname = \"here\"\n"
        "[[server.accelerator]]\ntype = \"cpu\"\ncount = 2\n"
        "[[server]]\nname = \"there\"\n"
        "[[server.accelerator]]\ntype = \"cpu\"\n");
  Write("workloads.toml",
        "[[workload]]\ntype = \"gang\"\nscale_factors = [2]\n"
        "command = [\"" GAVEL_BINARY_DIR
        "/tests/fake_worker\", \"--steps\", \"1000000\", \"--step-ms\", "
        "\"10\"]\n");
  const Ended ended = Run(Command({"--alone"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.errors << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("gang on 2 cpu, spread"));
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(Text("t.json"), "t.json"));
  const auto gang = table.FindRow("gang", 2);
  ASSERT_TRUE(gang);
  // The ranks of this gang train independently.
  EXPECT_NEAR(table.Alone(*gang, 0).value_or(0), 100, 1);
  EXPECT_NEAR(table.Alone(*gang, 0, Locality::kCluster).value_or(0), 100, 1);
}

TEST_F(ProfileTest, AWorkerThatCannotBeginSaysWhyAtOnce) {
  WriteCluster(2, 10, 5);
  for (const auto& [cause, why] : {std::pair("3", "the device is not there"),
                                   std::pair("1", "it could not begin"),
                                   std::pair("2", "out of memory")}) {
    Write("profile.csv",
          "workload,scale_factor,accelerator,placement,beside,steps_per_s,"
          "ci95,samples,seconds,note\n");
    Write("workloads.toml",
          std::string("[[workload]]\ntype = \"gang\"\nscale_factors = [2]\n"
                      "command = [\"" GAVEL_BINARY_DIR
                      "/tests/fake_worker\", \"--fail-resume\", \"") +
              cause + "\"]\n");
    const Ended ended = Run(Command({"--alone"}, "1", "60"));
    // Running out of memory is a result; the other failures are not.
    EXPECT_EQ(ended.exit_code, cause == std::string("2") ? 0 : 1);
    EXPECT_THAT(Text("profile.csv"), HasSubstr(why)) << ended.errors;
  }
}

TEST_F(ProfileTest, AWorkloadThatEndsIsNamedAndTheRestIsMeasured) {
  WriteCluster(1, 10, 5);
  WriteWorkloads(", \"--exit-at\", \"3\", \"4\"");
  const Ended ended = Run(Command({"--alone"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("1 of 2 could not be measured: slow on"));
  EXPECT_THAT(ended.errors, HasSubstr("its program exited with 4"));
  EXPECT_THAT(Text("t.json"), HasSubstr("quick"));
  EXPECT_EQ(Text("t.json").find("slow"), std::string::npos);
}

TEST_F(ProfileTest, MistakesAreNamedBeforeAnythingRuns) {
  WriteCluster(1, 10, 5);
  Write("workloads.toml", "[[workload]]\ntype = \"a\"\n");
  EXPECT_THAT(Run(Command()).errors, HasSubstr("command"));
  WriteWorkloads();
  Write("profile.csv", "no table\n");
  EXPECT_THAT(Run(Command()).errors, HasSubstr("is no line of titles"));
}

// Its reports only repeat the steps that it did before it hung.
TEST_F(ProfileTest, AProgramThatStandsStillIsGivenUp) {
  WriteCluster(1, 10, 5);
  Write("workloads.toml",
        "[[workload]]\ntype = \"stuck\"\ncommand = [\"" GAVEL_BINARY_DIR
        "/tests/fake_worker\", \"--step-ms\", \"10\", \"--hang-at\", "
        "\"20\"]\n");
  const Ended ended = Run(Command({"--alone"}, "1", "2"));
  EXPECT_EQ(ended.exit_code, 1) << ended.output;
  EXPECT_THAT(ended.errors, HasSubstr("no step for 2 s after 20"));
}

}  // namespace
}  // namespace gavel::testing
