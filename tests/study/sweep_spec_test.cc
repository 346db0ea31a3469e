#include <filesystem>
#include <fstream>
#include <sstream>

#include "gavel_paths.h"
#include "study/sweep.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace study;
namespace {

constexpr char kBase[] =
    "throughputs = \"t.json\"\njobs = 10\nrates = [1, 2.5]\n";

absl::StatusOr<SweepSpec> Parse(const std::string& toml) {
  return ParseSweep(toml, "sweep.toml", "/data");
}

TEST(SweepSpec, OneRunForEachCombination) {
  ASSERT_OK_AND_ASSIGN(
      const SweepSpec sweep,
      Parse(std::string(kBase) + "policies = [\"fifo\", \"isolated\"]\n"
                                 "seeds = [0, 1, 2]\n"
                                 "mechanism = \"move_aware\"\n"
                                 "round_durations = [360, 720]\n"));
  EXPECT_EQ(sweep.runs.size(), 2 * 3 * 2 * 2);
  std::set<std::string> policies;
  std::set<double> rates;
  for (const SimulationSpec& run : sweep.runs) {
    policies.insert(run.policy);
    rates.insert(run.rate_per_h);
    EXPECT_EQ(run.mechanism, "move_aware");
    EXPECT_EQ(run.jobs, 10);
  }
  EXPECT_EQ(policies, (std::set<std::string>{"fifo", "isolated"}));
  EXPECT_EQ(rates, (std::set<double>{1, 2.5}));
  EXPECT_EQ(sweep.record, SweepRecord::kUsage);
}

TEST(SweepSpec, PathsAreRelativeToTheFile) {
  ASSERT_OK_AND_ASSIGN(
      const SweepSpec sweep,
      Parse(
          "throughputs = \"../t.json\"\ntraces = [\"a.trace\", \"/b.trace\"]\n"
          "overheads = [\"none\", \"pause=2\", \"costs.toml\"]\n"
          "prices = \"gcp\"\n"));
  ASSERT_EQ(sweep.runs.size(), 6);
  EXPECT_EQ(sweep.runs[0].throughputs, "/t.json");
  EXPECT_EQ(sweep.runs[0].trace, "/data/a.trace");
  EXPECT_EQ(sweep.runs[1].trace, "/b.trace");
  EXPECT_EQ(sweep.runs[0].overheads, "none");
  EXPECT_EQ(sweep.runs[5].overheads, "/data/costs.toml");
  EXPECT_EQ(sweep.runs[5].prices, "gcp");
}

TEST(SweepSpec, ARangeIsSpreadEvenly) {
  ASSERT_OK_AND_ASSIGN(const SweepSpec sweep,
                       Parse("throughputs = \"t.json\"\njobs = 10\n"
                             "rates = {from = 1, to = 2, count = 5}\n"));
  ASSERT_EQ(sweep.runs.size(), 5);
  EXPECT_EQ(sweep.runs[1].rate_per_h, 1.25);
  EXPECT_EQ(sweep.runs[4].rate_per_h, 2);
}

TEST(SweepSpec, WholeNumbersMayBeARangeToo) {
  ASSERT_OK_AND_ASSIGN(const SweepSpec sweep,
                       Parse("throughputs = \"t.json\"\nrates = [0]\n"
                             "jobs = {from = 100, to = 400, count = 4}\n"
                             "seeds = {from = 0, to = 2, count = 3}\n"));
  std::set<std::pair<uint64_t, uint64_t>> runs;
  for (const SimulationSpec& run : sweep.runs) {
    runs.insert({run.jobs, run.seed});
  }
  EXPECT_EQ(runs.size(), 12);
  EXPECT_TRUE(runs.contains({100, 0}));
  EXPECT_TRUE(runs.contains({400, 2}));
  ASSERT_OK_AND_ASSIGN(const SweepSpec rounded,
                       Parse("throughputs = \"t.json\"\nrates = [1]\n"
                             "jobs = {from = 1, to = 4, count = 3}\n"));
  ASSERT_EQ(rounded.runs.size(), 3);
  EXPECT_EQ(rounded.runs[1].jobs, 3);  // 2.5
  EXPECT_THAT(Parse("throughputs = \"t.json\"\nrates = [1]\n"
                    "jobs = {from = 1, to = 4, count = 5}\n"),
              StatusIs(kInvalidArgument,
                       "sweep.toml:3:8: jobs has 5 whole numbers from 1 to 4; "
                       "lower count"));
}

TEST(SweepSpec, RatesAreDecimalSteps) {
  ASSERT_OK_AND_ASSIGN(const SweepSpec sweep,
                       Parse("throughputs = \"t.json\"\njobs = 10\n"
                             "rates = {from = 0.1, to = 1.2, count = 12}\n"));
  std::string rates;
  for (const SimulationSpec& run : sweep.runs) {
    rates += FieldText(run.rate_per_h) + " ";
  }
  EXPECT_EQ(rates, "0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1 1.1 1.2 ");
  EXPECT_EQ(FieldText(RoundDecimal(0.6000000000000001)), "0.6");
  EXPECT_EQ(RoundDecimal(0), 0);
}

// The original's scripts do the same with -a 0.0. At a rate of 0 all jobs would
// arrive at once.
TEST(SweepSpec, ARangeOfRatesFromZeroBeginsAtItsSecondPoint) {
  ASSERT_OK_AND_ASSIGN(const SweepSpec rates,
                       Parse("throughputs = \"t.json\"\njobs = 10\n"
                             "rates = {from = 0.0, to = 6.0, count = 4}\n"));
  ASSERT_EQ(rates.runs.size(), 3);
  EXPECT_EQ(rates.runs[0].rate_per_h, 2);
  ASSERT_OK_AND_ASSIGN(const SweepSpec jobs,
                       Parse("throughputs = \"t.json\"\nrates = [0]\n"
                             "jobs = {from = 0, to = 200, count = 3}\n"));
  ASSERT_EQ(jobs.runs.size(), 2);
  EXPECT_EQ(jobs.runs[0].jobs, 100);
  EXPECT_EQ(jobs.runs[0].rate_per_h, 0);  // written, it is all at once
}

TEST(SweepSpec, ColumnsOfTracesMayBeIgnored) {
  const std::string base = "throughputs = \"t.json\"\ntrace = \"a.csv\"\n";
  ASSERT_OK_AND_ASSIGN(const SweepSpec all,
                       Parse(base + "ignore_columns = true\n"));
  EXPECT_EQ(all.runs[0].ignore_columns, "*");
  ASSERT_OK_AND_ASSIGN(const SweepSpec some,
                       Parse(base + "ignore_columns = [\"user\", \"vc\"]\n"));
  EXPECT_EQ(some.runs[0].ignore_columns, "user,vc");
  ASSERT_OK_AND_ASSIGN(const SweepSpec none,
                       Parse(base + "ignore_columns = false\n"));
  EXPECT_EQ(none.runs[0].ignore_columns, "");
}

TEST(SweepSpec, LimitsWindowAndSearch) {
  ASSERT_OK_AND_ASSIGN(
      const SweepSpec sweep,
      Parse("throughputs = \"t.json\"\nwindow = \"100:200\"\n"
            "record = \"rounds\"\n[limits]\njct_h = 50\nwall_s = 60\n"
            "[search]\nrate_min = 1\nrate_max = 3\nprecision = 0.5\n"));
  ASSERT_EQ(sweep.runs.size(), 1);
  EXPECT_EQ(sweep.runs[0].window_begin, 100);
  EXPECT_EQ(sweep.runs[0].window_end, 200);
  EXPECT_EQ(sweep.record, SweepRecord::kRounds);
  EXPECT_EQ(sweep.jct_limit_s, 50 * 3600);
  EXPECT_EQ(sweep.wall_limit_s, 60);
  ASSERT_TRUE(sweep.search);
  EXPECT_EQ(sweep.search->rate_max, 3);
}

TEST(SweepSpec, WhatIsWrongIsPointedAt) {
  struct Case {
    const char* toml;
    const char* place;
    const char* remedy;
  };
  const Case cases[] = {
      {"polices = [\"fifo\"]", "sweep.toml:4:", "\"policies\""},
      {"seeds = [0, -1]", "sweep.toml:4:", "whole number"},
      {"seeds = [0.5]", "sweep.toml:4:", "whole number"},
      {"seeds = []", "sweep.toml:4:", "give a value"},
      {"policies = [1]", "sweep.toml:4:", "a string"},
      {"multi_gpu = 1", "sweep.toml:4:", "true or false"},
      {"failures_per_hour = nan", "sweep.toml:4:", "number"},
      {"rate_per_h = 3", "sweep.toml:", "keep one"},
      {"window = \"5\"", "sweep.toml:4:", "4000:5000"},
      {"record = \"all\"", "sweep.toml:4:", "usage"},
      {"policies = [\"lottery\"]", "sweep.toml", "lottery"},
      {"fixed_duration_s = {from = 2, to = 1}", "sweep.toml:4:", "above"},
      {"ignore_columns = 3", "sweep.toml:4:", "array"},
      {"ideal = true\noverheads = \"pause=2\"", "sweep.toml", "leave one out"},
      {"[limits]\njct = 5", "sweep.toml:5:", "jct_h"},
      {"[search]\nrate_max = 4", "sweep.toml:", "leave one of them out"},
      {"seeds = [0", "sweep.toml:4:", "not TOML"}};
  for (const Case& one : cases) {
    const absl::Status status =
        Parse(std::string(kBase) + one.toml + "\n").status();
    EXPECT_FALSE(status.ok()) << one.toml;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(one.place), HasSubstr(one.remedy)))
        << one.toml;
  }
}

TEST(SweepSpec, AMissingKeyIsNamedAsAKey) {
  EXPECT_THAT(Parse(""),
              StatusIs(kInvalidArgument, "throughputs = \"FILE.json\""));
}

TEST(SweepSpec, TooManyRunsAreRefused) {
  EXPECT_THAT(Parse("throughputs = \"t.json\"\njobs = 1\n"
                    "rates = {from = 1, to = 2, count = 9999}\n"
                    "round_durations = {from = 1, to = 2, count = 9999}\n"),
              StatusIs(kInvalidArgument, "more than 100000 runs"));
}

TEST(SweepSpec, TheExamplesAreRight) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           GAVEL_SOURCE_DIR "/examples/sweeps")) {
    if (entry.path().extension() != ".toml") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const auto sweep = ParseSweep(text.str(), entry.path().string(), ".");
    EXPECT_TRUE(sweep.ok()) << sweep.status();
    ++examples;
  }
  EXPECT_GE(examples, 3);
}

// The rates that a search tries when rates of at most `truth` can be sustained.
std::vector<double> Tries(double truth, double* highest) {
  RateSearch search({1, 3, 0.25});
  std::vector<double> tries;
  while (const auto rate = search.Next()) {
    tries.push_back(*rate);
    search.Answer(*rate <= truth);
  }
  EXPECT_LE(static_cast<int>(tries.size()), search.tries_max());
  *highest = search.highest();
  return tries;
}

TEST(RateSearch, FindsTheHighestRateOfAll) {
  for (double truth = 1; truth < 3; truth += 0.25) {
    double highest = 0;
    const std::vector<double> tries = Tries(truth + 0.1, &highest);
    EXPECT_EQ(highest, truth);
    const std::set<double> once(tries.begin(), tries.end());
    EXPECT_EQ(once.size(), tries.size());
  }
}

TEST(RateSearch, TellsWhenTheAnswerLiesOutside) {
  double highest = -1;
  EXPECT_EQ(Tries(0.5, &highest), std::vector<double>{1});
  EXPECT_EQ(highest, 0);
  EXPECT_EQ(Tries(9, &highest), (std::vector<double>{1, 3}));
  EXPECT_EQ(highest, 3);
}

TEST(RateSearch, ARangeOfOneRateIsTriedOnce) {
  RateSearch search({2, 2.05, 0.1});
  ASSERT_EQ(search.Next(), 2);
  search.Answer(true);
  EXPECT_FALSE(search.Next());
  EXPECT_TRUE(search.at_upper_end());
}

}  // namespace
}  // namespace gavel::testing
