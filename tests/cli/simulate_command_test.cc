// `gavel simulate`, `sweep`, `report` and `reproduce` as users call them.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/study/fake_simulation.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

class SimulateTest : public GavelTest {
 protected:
  void SetUp() override { throughputs_ = WriteSampleThroughputs(folder()); }

  // `gavel simulate` on two v100 with these options more.
  Ended Simulate(const std::vector<std::string>& options) {
    std::vector<std::string> argv = {"simulate", "--throughputs", throughputs_};
    if (std::ranges::find(options, "--cluster") == options.end()) {
      argv.insert(argv.end(), {"--cluster", "v100:2"});
    }
    argv.insert(argv.end(), options.begin(), options.end());
    return Run(argv);
  }

  // Three jobs of an hour each, at 0, 0 and 1800 s.
  std::string WriteTrace() {
    return Write("jobs.toml",
                 "[[job]]\ntype = \"A3C\"\nduration_s = 3600\ncount = 2\n"
                 "[[job]]\ntype = \"CycleGAN\"\nduration_s = 3600\n"
                 "arrival_s = 1800\n");
  }

  std::string WriteSweep(const std::string& more) {
    return Write("sweep.toml",
                 "throughputs = \"throughputs.json\"\nclusters = [\"v100:2\"]\n"
                 "rates = [1]\njobs = 20\nfixed_duration_s = 1800\n" +
                     more);
  }

  // One line that names `what`, nothing on standard output, exit code `code`.
  static void ExpectRefused(const Ended& ended, const std::string& what,
                            int code = 1) {
    EXPECT_EQ(ended.exit_code, code) << what << ": " << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr(what));
    EXPECT_THAT(ended.output, IsEmpty());
    if (code == 1) {
      EXPECT_EQ(Count(ended.errors, "\n"), 1) << ended.errors;
    }
  }

  std::string throughputs_;
};

TEST_F(SimulateTest, ATraceRunsToItsEndAndTheJsonHasItAll) {
  const Ended ended =
      Simulate({"--trace", WriteTrace(), "--policy", "fifo_perf", "--prices",
                "v100=2", "--output", Path("out.json"), "--record-rounds"});
  ASSERT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("3 of 3 jobs ended"), HasSubstr("average JCT"),
                    HasSubstr("utilisation"), HasSubstr("jobs/s"),
                    Not(HasSubstr("["))));  // no bar: this is no terminal
  const Json json = Json::parse(ReadText(Path("out.json")));
  for (const char* key : {"avg_jct_s",
                          "p50_jct_s",
                          "p99_jct_s",
                          "makespan_s",
                          "cluster_utilization",
                          "utilization",
                          "total_cost",
                          "slo_violations",
                          "preemptions",
                          "moves",
                          "rounds",
                          "solves",
                          "lost_s",
                          "wall_s",
                          "cpu_s",
                          "complete",
                          "unfit",
                          "jobs",
                          "leases",
                          "usage",
                          "policy"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["complete"], true);
  ASSERT_EQ(json["jobs"].size(), 3);
  EXPECT_EQ(json["jobs"][2]["arrival"], 1800);
  EXPECT_NEAR(json["jobs"][0]["jct"], 3600, 360);
  EXPECT_NEAR(json["total_cost"], 6, 0.1);  // three hours at 2 each
  EXPECT_GT(json["jobs"][1]["rho"], 0);
  for (const char* key :
       {"rho_above_1", "rho_static_above_1", "rho_mean_above_1"}) {
    EXPECT_GE(json[key], 0) << key;
    EXPECT_LE(json[key], 1) << key;
  }
  EXPECT_GE(json["max_rho_static"], json["avg_rho_static"]);
  EXPECT_GE(json["max_rho_mean"], json["avg_rho_mean"]);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("finish-time fairness  average"),
                                  HasSubstr("of the jobs")));
}

TEST_F(SimulateTest, InteractiveJobsAreToldApart) {
  const std::string trace =
      Write("team.toml",
            "[[job]]\ntype = \"A3C\"\nduration_s = 3600\ncount = 2\n"
            "[[job]]\ntype = \"interactive\"\nclass = \"interactive\"\n"
            "duration_s = 600\narrival_s = 1700\n");
  const Ended ended = Simulate({"--trace", trace, "--overheads", "pause=0.5",
                                "--output", Path("out.json")});
  ASSERT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              HasSubstr("interactive jobs      1, start after p50 0.500 s, "
                        "p99 0.500 s, at most 0.500 s, paused: 0\n"));
  const Json json = Json::parse(ReadText(Path("out.json")));
  EXPECT_EQ(json["interactive_jobs"], 1);
  EXPECT_EQ(json["interactive_p99_start_s"], 0.5);
  EXPECT_EQ(json["interactive_paused"], 0);
  EXPECT_EQ(json["jobs"][0]["class"], "training");
  EXPECT_EQ(json["jobs"][2]["class"], "interactive");
  EXPECT_EQ(json["jobs"][2]["start_delay_s"], 0.5);
  EXPECT_EQ(json["jobs"][2]["jct"], 600.5);
  ExpectRefused(Simulate({"--trace", trace, "--ideal"}),
                "job 2 is interactive, and the ideal simulation");
  ExpectRefused(Simulate({"--trace", trace, "--interactive", "0.5"}),
                "--interactive and --fixed-duration are for --generate");
}

TEST_F(SimulateTest, ASeedGivesTheSameEachTime) {
  const std::vector<std::string> options = {
      "--generate",       "--jobs", "30",     "--rate", "1",
      "--fixed-duration", "3000",   "--seed", "4",      "--output"};
  std::vector<Json> results;
  for (const char* name : {"one.json", "two.json"}) {
    std::vector<std::string> argv = options;
    argv.push_back(Path(name));
    ASSERT_EQ(Simulate(argv).exit_code, 0);
    results.push_back(Json::parse(ReadText(Path(name))));
  }
  EXPECT_EQ(results[0]["jobs"], results[1]["jobs"]);
  EXPECT_EQ(results[0]["rounds"], results[1]["rounds"]);
}

TEST_F(SimulateTest, AJobThatFitsNowhereIsReportedAndTheRestGoesOn) {
  const std::string trace = Write(
      "jobs.toml",
      "[[job]]\ntype = \"ResNet-18 (batch size 64)\"\nscale_factor = 8\n"
      "steps_total = 1000\n[[job]]\ntype = \"A3C\"\nsteps_total = 1000\n");
  const Ended ended =
      Simulate({"--trace", trace, "--output", Path("out.json")});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("job 0 fits nowhere"));
  const Json json = Json::parse(ReadText(Path("out.json")));
  ASSERT_EQ(json["unfit"].size(), 1);
  EXPECT_EQ(json["unfit"][0]["id"], 0);
  EXPECT_EQ(json["complete"], true);
}

TEST_F(SimulateTest, ATimeLimitEndsARunThatIsNotComplete) {
  const Ended ended = Simulate({"--trace", WriteTrace(), "--time-limit", "600",
                                "--output", Path("out.json")});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("0 of 3 jobs ended"), HasSubstr("incomplete")));
  const Json json = Json::parse(ReadText(Path("out.json")));
  EXPECT_TRUE(json["avg_jct_s"].is_null());
  EXPECT_EQ(json["complete"], false);
  for (const char* key : {"makespan_s", "max_rho", "worst_share"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  EXPECT_THAT(ended.output, HasSubstr("worst share           - of its target"));
}

TEST_F(SimulateTest, NoJobThatFitsIsAnError) {
  const std::string trace =
      Write("large.toml",
            "[[job]]\ntype = \"ResNet-18 (batch size 64)\"\n"
            "scale_factor = 8\nsteps_total = 1000\n");
  const Ended ended = Simulate({"--trace", trace});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("no job fits the cluster; job 0: scale"));
  EXPECT_THAT(ended.output, HasSubstr("0 of 1 jobs ended"));
  const Ended late = Simulate({"--trace",
                               Write("late.toml",
                                     "[[job]]\ntype = \"A3C\"\n"
                                     "steps_total = 1000\narrival_s = 500\n"),
                               "--time-limit", "100"});
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.errors, HasSubstr("no job ran: the time limit"));
}

TEST_F(SimulateTest, PricesThatAreOfNoUseAreSaid) {
  const std::string trace = WriteTrace();
  ExpectRefused(Simulate({"--trace", trace, "--prices", "v100=2,a100x=1"}),
                "the cluster has no a100x");
  const Ended none =
      Simulate({"--trace", trace, "--policy", "max_throughput_per_cost"});
  EXPECT_EQ(none.exit_code, 0) << none.errors;
  EXPECT_THAT(none.errors, HasSubstr("gavel: note: max_throughput_per_cost"));
}

TEST_F(SimulateTest, OptionsThatContradictEachOtherAreRefused) {
  const std::string trace = WriteTrace();
  ExpectRefused(Simulate({}), "--trace FILE");
  ExpectRefused(Simulate({"--trace", trace, "--generate"}), "give one");
  ExpectRefused(Simulate({"--generate", "--jobs", "5"}), "--rate");
  ExpectRefused(Simulate({"--generate", "--rate", "2"}), "--jobs N");
  ExpectRefused(
      Simulate({"--generate", "--jobs", "5", "--rate", "2", "--static"}),
      "exclude each other");
  ExpectRefused(Simulate({"--trace", trace, "--jobs", "5"}), "--generate");
  ExpectRefused(Simulate({"--generate", "--jobs", "5", "--rate", "0"}),
                "--static");
  ExpectRefused(Simulate({"--trace", trace, "--record-rounds"}), "--output");
  ExpectRefused(Run({"simulate", "--trace", trace}), "--throughputs");
}

TEST_F(SimulateTest, FiguresThatMakeNoSenseAreRefused) {
  const std::string trace = WriteTrace();
  struct Case {
    std::vector<std::string> options;
    const char* what;
  };
  const Case cases[] = {{{"--round-duration", "-360"}, "--round-duration"},
                        {{"--round-duration", "nan"}, "--round-duration"},
                        {{"--round-duration", "0.05"}, "at least 0.1"},
                        {{"--time-limit", "-1"}, "--time-limit"},
                        {{"--window", "5"}, "4000:5000"},
                        {{"--window", "0:9"}, "the 3 jobs"},
                        {{"--cluster", "v100"}, "v100"},
                        {{"--cluster", "v100:-3"}, "-3"},
                        {{"--cluster", "h100:2"}, "h100"},
                        {{"--policy", "max_min"}, "max_min"},
                        {{"--mechanism", "fair"}, "move_aware"},
                        {{"--queue", "long"}, "per_type"},
                        {{"--overheads", "pause=-1"}, "pause"},
                        {{"--prices", "v100=x"}, "v100"},
                        {{"--overheads", "none.toml"}, "none.toml"},
                        {{"--failures-per-hour", "-2"}, "failures"}};
  for (const Case& one : cases) {
    std::vector<std::string> argv = {"--trace", trace};
    argv.insert(argv.end(), one.options.begin(), one.options.end());
    ExpectRefused(Simulate(argv), one.what);
  }
  const Ended usage = Simulate({"--trace", trace, "--seed", "x"});
  EXPECT_EQ(usage.exit_code, 2);
}

TEST_F(SimulateTest, BadFilesArePointedAt) {
  ExpectRefused(Simulate({"--trace", Path("none.trace")}), "no such file");
  ExpectRefused(Simulate({"--trace", folder()}), "directory");
  ExpectRefused(Simulate({"--trace", Write("bad.trace", "A3C\tx\t1\t2\n")}),
                "bad.trace:1:");
  ExpectRefused(Simulate({"--trace", Write("odd.toml",
                                           "[[job]]\ntype = \"Unheard\"\n"
                                           "steps_total = 5\n")}),
                "Unheard");
  ExpectRefused(
      Simulate({"--trace", WriteTrace(), "--output", Path("no/such/out.json")}),
      "can't be written");
}

TEST_F(SimulateTest, AJobTypeThatTheThroughputsLackIsAnErrorUnlessAllowed) {
  const std::string trace = Write("odd.csv",
                                  "duration_s,num_gpus,type\n3600,1,A3C\n"
                                  "3600,1,Unheard\n");
  ExpectRefused(Simulate({"--trace", trace}),
                "job 1: the throughput file has no row of type \"Unheard\"");
  ExpectRefused(Simulate({"--trace", trace, "--unknown-types", "same"}),
                "give error or equal");
  const Ended allowed =
      Simulate({"--trace", trace, "--unknown-types", "equal"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.errors;
  ExpectRefused(Simulate({"--trace", Write("colour.csv",
                                           "duration_s,num_gpus,colour\n"
                                           "3600,1,A3C\n")}),
                "colour.csv:1:21: unknown column \"colour\"");
}

TEST_F(SimulateTest, TheAdviceOnUnknownTypesCanBeFollowed) {
  // Steps and no duration, as Gavel's form has them.
  const std::string trace =
      Write("odd.trace", "Unheard\trun\t--steps\t0\t7200\t0\t1\n");
  ExpectRefused(Simulate({"--trace", trace}), "--unknown-types equal");
  const Ended allowed = Simulate({"--trace", trace, "--unknown-types", "equal",
                                  "--output", Path("out.json")});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.errors;
  EXPECT_THAT(allowed.errors, HasSubstr("1 step/s is assumed"));
  EXPECT_NEAR(Json::parse(ReadText(Path("out.json")))["avg_jct_s"], 7200, 360);
  const std::string sweep =
      Write("odd.toml",
            "throughputs = \"throughputs.json\"\ntrace = \"odd.trace\"\n"
            "clusters = [\"v100:2\"]\n");
  ExpectRefused(Run({"sweep", sweep, "--output", Path("odd.db")}),
                "unknown_types = \"equal\" in a sweep");
  std::ofstream(sweep, std::ios::app) << "unknown_types = \"equal\"\n";
  EXPECT_EQ(Run({"sweep", sweep, "--output", Path("odd.db")}).exit_code, 0);
}

TEST_F(SimulateTest, ScaleFactorsWithoutARowRunAndAreTold) {
  const std::string trace = Write(
      "msr.trace",
      "ResNet-18 (batch size 64)\tcd %s/x && run\t--steps\t1\t1200\t0\t12\n"
      "A3C\trun\t--steps\t0\t10000000\t5\t16\n");
  const Ended ended = Simulate(
      {"--trace", trace, "--cluster", "v100:12", "--output", Path("out.json")});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.errors,
              HasSubstr("gavel: note: " + trace +
                        ": 2 jobs have scale factors that the throughput file "
                        "has no row for"));
  const Json json = Json::parse(ReadText(Path("out.json")));
  // 12 accelerators at 10 steps/s; 16 do not fit.
  EXPECT_NEAR(json["jobs"][0]["jct"], 10, 1e-6);
  EXPECT_EQ(json["unfit"].size(), 1);
}

TEST_F(SimulateTest, ACsvWithColumnsOfItsOwnRunsWhereTheyAreIgnored) {
  const std::string trace = Write("helios.csv",
                                  "job_id,user,gpu_num,submit_time,duration\n"
                                  "17,ada,1,2020-04-01 00:00:00,3600\n"
                                  "18,ada,0,2020-04-01 00:10:00,60\n"
                                  "19,bob,1,2020-04-01 00:30:00,3600\n");
  ExpectRefused(Simulate({"--trace", trace}),
                "leave it out by --ignore-columns");
  for (const std::vector<std::string>& ignore :
       {std::vector<std::string>{"--ignore-columns"},
        std::vector<std::string>{"--ignore-columns", "user"}}) {
    std::vector<std::string> options = {"--trace", trace, "--record-rounds",
                                        "--output", Path("out.json")};
    options.insert(options.end(), ignore.begin(), ignore.end());
    const Ended ended = Simulate(options);
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    EXPECT_THAT(ended.errors,
                AllOf(HasSubstr("1 column left out: user"),
                      HasSubstr("1 row of 0 accelerators is left out")));
  }
  const Json json = Json::parse(ReadText(Path("out.json")));
  ASSERT_EQ(json["jobs"].size(), 2);
  EXPECT_EQ(json["jobs"][1]["name"], "19");
  EXPECT_EQ(json["jobs"][1]["arrival"], 1800);
  // Named as the columns of the database.
  ASSERT_EQ(json["leases"].size(), 2);
  EXPECT_EQ(json["leases"][1]["job"], 1);
  EXPECT_EQ(json["leases"][1]["from_s"], 1800);
  EXPECT_NEAR(json["leases"][1]["to_s"], 5400, 1e-6);
  EXPECT_TRUE(json["leases"][1].contains("accelerator"));
  EXPECT_TRUE(json["usage"][0].contains("time_s"));
  ExpectRefused(Simulate({"--trace", trace, "--ignore-columns", "vc"}),
                "unknown column \"user\"");
}

TEST_F(SimulateTest, TheIdealRefusesWhatItCannotAct) {
  const std::string trace = WriteTrace();
  ExpectRefused(
      Simulate({"--trace", trace, "--ideal", "--overheads", "pause=2"}),
      "--ideal pre-empts nothing, so --overheads pause=2");
  ExpectRefused(
      Simulate({"--trace", trace, "--ideal", "--failures-per-hour", "1"}),
      "--ideal has no failures");
  EXPECT_EQ(Simulate({"--trace", trace, "--ideal"}).exit_code, 0);
}

TEST_F(SimulateTest, CtrlCTellsWhatHasEndedByThen) {
  const auto process =
      Start({"simulate", "--throughputs", throughputs_, "--cluster", "v100:2",
             "--generate", "--jobs", "200000", "--rate", "1", "--policy",
             "fifo_perf", "--round-duration", "1"});
  ASSERT_FALSE(process->Wait(0.5)) << process->errors();
  process->Signal(SIGINT);
  EXPECT_EQ(process->Wait(), 1);
  EXPECT_THAT(process->output(), HasSubstr("jobs ended"));
  EXPECT_THAT(process->errors(), HasSubstr("stopped before all jobs ended"));
}

TEST_F(SimulateTest, ASavedSimulationGoesOnToTheSameResult) {
  const std::vector<std::string> options = {
      "--generate", "--jobs",   "20000",       "--rate",
      "1",          "--policy", "fifo_perf",   "--fixed-duration",
      "3000",       "--save",   Path("saved"), "--output"};
  std::vector<std::string> argv = {"simulate", "--throughputs", throughputs_,
                                   "--cluster", "v100:2"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back(Path("one.json"));
  const auto process = Start(argv);
  process->Wait(0.3);
  process->Signal(SIGINT);
  process->Wait();
  const bool was_saved = std::filesystem::exists(Path("saved"));
  argv.back() = Path("two.json");
  const Ended rest = Run(argv);
  EXPECT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_FALSE(std::filesystem::exists(Path("saved")));
  argv.back() = Path("three.json");
  EXPECT_EQ(Run(argv).exit_code, 0);
  EXPECT_EQ(Json::parse(ReadText(Path("two.json")))["jobs"],
            Json::parse(ReadText(Path("three.json")))["jobs"]);
  if (!was_saved) GTEST_SKIP() << "it was faster than the signal";
}

TEST_F(SimulateTest, ASweepMakesResultsThatAReportDraws) {
  const std::string sweep = WriteSweep(
      "policies = [\"fifo_perf\", \"isolated\"]\nseeds = [0, 1]\n"
      "record = \"rounds\"\n");
  const std::string results = Path("results.db");
  const Ended first = Run({"sweep", sweep, "-j", "2", "--output", results});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_THAT(first.output, AllOf(HasSubstr("[4/4]"), HasSubstr("POLICY"),
                                  HasSubstr("gavel report")));
  const Ended again = Run({"sweep", sweep, "--output", results});
  EXPECT_THAT(again.output, Not(HasSubstr("[1/")));
  const Ended report = Run(
      {"report", results, "--output", Path("r.html"), "--csv", Path("csv")});
  ASSERT_EQ(report.exit_code, 0) << report.errors;
  EXPECT_THAT(report.output, HasSubstr("4 runs, 4 ok"));
  EXPECT_THAT(ReadText(Path("r.html")), HasSubstr("\"id\":\"rounds\""));
  EXPECT_EQ(Count(ReadText(Path("csv/runs.csv")), "\n"), 5);
}

TEST_F(SimulateTest, AStoppedSweepGoesOnWhereItWas) {
  const std::string sweep = WriteSweep(
      "policy = \"fifo_perf\"\nseeds = [0, 1, 2, 3, 4, 5]\n"
      "round_duration_s = 0.5\n");
  const std::string results = Path("results.db");
  const auto process = Start({"sweep", sweep, "-j", "1", "--output", results});
  ASSERT_TRUE(Eventually([&] {
    return process->output().find("[1/6]") != std::string::npos;
  })) << process->errors();
  process->Signal(SIGINT);
  const std::optional<int> code = process->Wait();
  const int told = Count(process->output(), "/6] ");
  if (code == 1) {  // it may have been faster than the signal
    EXPECT_THAT(process->errors(), HasSubstr("the same command goes on"));
    EXPECT_LT(told, 6);
  }
  const Ended rest = Run({"sweep", sweep, "-j", "1", "--output", results});
  EXPECT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_EQ(Count(rest.output, "] fifo_perf, seed "), 6 - told);
}

TEST_F(SimulateTest, ASweepWithErrorsFailsAndItsLinesNameWhatVaries) {
  const std::string trace =
      Write("large.toml",
            "[[job]]\ntype = \"ResNet-18 (batch size 64)\"\n"
            "scale_factor = 4\nsteps_total = 1000\n");
  const std::string sweep =
      Write("large-sweep.toml",
            "throughputs = \"throughputs.json\"\ntrace = \"large.toml\"\n"
            "clusters = [\"v100:2\", \"v100:8\"]\npolicy = \"fifo_perf\"\n");
  const Ended ended = Run({"sweep", sweep, "--output", Path("results.db")});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("1 of 2 runs ended in an error"));
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("] fifo_perf, v100:2: error: no job fits"),
                    HasSubstr("] fifo_perf, v100:8: average JCT"),
                    Not(HasSubstr("seed"))));
  const Ended lacking =
      Run({"sweep",
           Write("h100.toml",
                 "throughputs = \"throughputs.json\"\n"
                 "clusters = [\"v100:2\", \"h100:2\"]\nrates = [1]\n"
                 "jobs = 20\n"),
           "--output", Path("none.db")});
  ExpectRefused(lacking, "\"h100\" of the cluster");
}

TEST_F(SimulateTest, ResultsWithoutANameAreInAFolderOfTheirOwn) {
  const std::string sweep = WriteSweep("policy = \"fifo_perf\"\n");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder());
  const Ended ended = Run({"sweep", sweep});
  std::filesystem::current_path(before);
  ASSERT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("results in gavel-results/sweep.db"));
  EXPECT_TRUE(std::filesystem::exists(Path("gavel-results/sweep.db")));
}

TEST_F(SimulateTest, ASweepNamesTheFileThatIsMissing) {
  const std::string sweep = WriteSweep("policy = \"fifo_perf\"\n");
  std::filesystem::remove(throughputs_);
  const Ended ended = Run({"sweep", sweep, "--output", Path("results.db")});
  ExpectRefused(ended, "throughputs.json: no such file");
  EXPECT_THAT(ended.errors, Not(HasSubstr("results.db")));
  // The database is there, and empty.
  ExpectRefused(Run({"report", Path("results.db"), "--output", Path("r.html")}),
                "results.db: no runs in it");
  EXPECT_FALSE(std::filesystem::exists(Path("r.html")));
}

TEST_F(SimulateTest, BadSweepsReportsAndReproductionsAreRefused) {
  ExpectRefused(Run({"sweep", Path("none.toml")}), "no such file");
  ExpectRefused(Run({"sweep", WriteSweep("polices = [\"fifo\"]\n")}),
                "sweep.toml:6:");
  ExpectRefused(Run({"sweep", WriteSweep(""), "--output", folder()}), folder());
  EXPECT_EQ(Run({"sweep"}).exit_code, 2);
  EXPECT_EQ(Run({"sweep", WriteSweep(""), "-j", "0"}).exit_code, 2);
  ExpectRefused(Run({"report", Path("none.db")}), "gavel sweep");
  ExpectRefused(Run({"report", Write("text.db", std::string(200, 'x'))}),
                "text.db: this is not a database; name the RESULTS.db");
  ExpectRefused(Run({"report", folder()}),
                "gavel: " + folder() + ": this is a directory; name");
  ExpectRefused(Run({"reproduce", "las-singel", "--throughputs", "t.json"}),
                "las-single");
  ExpectRefused(Run({"reproduce", "las-single"}), "--throughputs");
  EXPECT_EQ(Run({"reproduce"}).exit_code, 2);
}

TEST_F(SimulateTest, ReproduceListsAllResults) {
  const Ended list = Run({"reproduce", "--list"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_GE(Count(list.output, "\n"), 15);
  EXPECT_THAT(list.output, HasSubstr("strategy-proofness"));
}

}  // namespace
}  // namespace gavel::testing
