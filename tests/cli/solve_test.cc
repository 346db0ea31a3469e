// `gavel solve` as a user calls it.
#include "nlohmann/json.hpp"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

constexpr char kCase[] = R"({
  "cluster_spec": {"v100": 1, "k80": 1},
  "jobs": [
    {"id": 0, "scale_factor": 1, "num_steps_remaining": 500},
    {"id": 1, "scale_factor": 1, "num_steps_remaining": 100},
    {"id": 2, "scale_factor": 8, "num_steps_remaining": 100}],
  "throughputs": {"0": {"v100": 4, "k80": 1}, "1": {"v100": 9, "k80": 3},
                  "2": {"v100": 9, "k80": 3}},
  "instance_costs": {"v100": 0.74, "k80": 0.135},
  "SLO_seconds_remaining": {"0": 10}})";

class SolveTest : public GavelTest {
 protected:
  Ended Solve(const std::string& policy, const std::string& input,
              const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"solve", "--policy", policy,
                                          "--input", Write("case.json", input)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }
};

TEST_F(SolveTest, TheAnswerIsWrittenAsJson) {
  const Ended ended = Solve("fifo_perf", kCase, {"--output", Path("out.json")});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output, IsEmpty());
  const Json answer = Json::parse(ReadText(Path("out.json")));
  EXPECT_EQ(answer["policy"], "fifo_perf");
  const Json& one = answer["cases"].at(0);
  EXPECT_EQ(one["case"], 0);
  EXPECT_EQ(one["status"], "optimal");
  EXPECT_EQ(one["allocation"]["0"]["v100"], 1.0);
  EXPECT_EQ(one["allocation"]["1"]["k80"], 1.0);
  EXPECT_EQ(one["left_out"], Json({2}));
  for (const char* key : {"objective", "bound", "gap", "time_s"}) {
    EXPECT_TRUE(one[key].is_number()) << key;
  }
  EXPECT_EQ(one["solver"], "greedy");
  EXPECT_EQ(one["reason"], "");
}

TEST_F(SolveTest, WithoutAFileItIsATable) {
  const Ended ended = Solve("max_min_fairness_perf", kCase);
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("max_min_fairness_perf"), HasSubstr("optimal"),
                    HasSubstr("k80"), HasSubstr("JOB")));
}

TEST_F(SolveTest, TheSolverIsChosenAndTold) {
  const auto solved = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--output", Path("out.json")};
    flags.insert(flags.end(), more.begin(), more.end());
    std::string two = kCase;  // one accelerator for two jobs: not all at best
    two.replace(two.find("\"k80\": 1}"), 9, "\"k80\": 0}");
    EXPECT_EQ(Solve("max_min_fairness_perf", two, flags).exit_code, 0);
    return Json::parse(ReadText(Path("out.json")))["cases"].at(0);
  };
  const Json automatic = solved({});
  EXPECT_EQ(automatic["solver"], "prices");
  EXPECT_GT(automatic["iterations"].get<int>(), 0);
  EXPECT_EQ(solved({"--solver", "prices"})["objective"],
            automatic["objective"]);
  const Json highs = solved({"--solver", "highs"});
  EXPECT_EQ(highs["solver"], "highs-simplex");
  EXPECT_GT(highs["iterations"].get<int>(), 0);
  EXPECT_NEAR(highs["objective"].get<double>(),
              automatic["objective"].get<double>(), 1e-7);
  EXPECT_EQ(Solve("fifo", kCase, {"--solver", "none"}).exit_code, 2);
}

TEST_F(SolveTest, PricesThatDoNotServeAreTold) {
  const auto reason = [&](const std::string& solver) {
    EXPECT_EQ(Solve("max_sum_throughput_normalized_by_cost_perf_SLOs", kCase,
                    {"--solver", solver, "--output", Path("out.json")})
                  .exit_code,
              0);
    const Json one = Json::parse(ReadText(Path("out.json")))["cases"].at(0);
    EXPECT_THAT(one["solver"].get<std::string>(), HasSubstr("highs"));
    return one["reason"].get<std::string>();
  };
  EXPECT_THAT(reason("prices"), HasSubstr("solved by HiGHS: prices don't"));
  EXPECT_THAT(reason("auto"), Not(HasSubstr("solved by HiGHS")));
}

TEST_F(SolveTest, DeadlinesThatCannotBeMetAreAnAnswer) {
  const Ended ended = Solve("max_sum_throughput_normalized_by_cost_perf_SLOs",
                            kCase, {"--output", Path("out.json")});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  const Json one = Json::parse(ReadText(Path("out.json")))["cases"].at(0);
  EXPECT_EQ(one["status"], "infeasible");
  EXPECT_THAT(one["reason"].get<std::string>(),
              AllOf(HasSubstr("infeasible"), HasSubstr("job 0 (needs 50 ")));
  EXPECT_NEAR(one["allocation"]["0"]["v100"].get<double>(), 1, 1e-6);
}

TEST_F(SolveTest, MistakesAreToldInOneLine) {
  const auto expect = [](const Ended& ended, const std::string& part) {
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.errors, HasSubstr(part));
    EXPECT_EQ(Count(ended.errors, "\n"), 1) << ended.errors;
    EXPECT_THAT(ended.output, IsEmpty());
  };
  expect(Solve("las", kCase), "policy \"las\" does not exist; choose one of");
  expect(Solve("fifo", "{\"jobs\": ["), "case.json: parse error at line 1");
  expect(Solve("fifo", "[]"), "case.json: case 0: it is array; give");
  std::string nan = kCase;
  nan.replace(nan.find("\"v100\": 9"), 9, "\"v100\": NaN");
  expect(Solve("fifo", nan),
         "case 0: job 1: throughputs: the one on v100 is \"NaN\"");
  expect(Solve("finish_time_fairness", kCase),
         "case 0: job 0: time_since_start is missing; finish_time_fairness");
  expect(Run({"solve", "--policy", "fifo", "--input", Path("none.json")}),
         "none.json: no such file");
}

TEST_F(SolveTest, AWrongCommandLineIsTwo) {
  EXPECT_EQ(Run({"solve"}).exit_code, 2);
  EXPECT_EQ(Run({"solve", "--policy", "fifo"}).exit_code, 2);
}

TEST_F(SolveTest, PoliciesAreListed) {
  const Ended ended = Run({"solve", "--list-policies"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("allox\n"), HasSubstr("\nsjf\n")));
}

}  // namespace
}  // namespace gavel::testing
