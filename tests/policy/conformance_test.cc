// The recorded cases of the original Gavel, answered as `gavel solve` answers
// them, under the rule that the original forgot: a job can't use a type smaller
// than its gang. Compares objectives, and allocations only where the optimum is
// unique. Skipped where the recorded cases are missing.
#include <cmath>
#include <fstream>
#include <tuple>

#include "coordinator/policy/policy.h"
#include "gavel_paths.h"
#include "nlohmann/json.hpp"
#include "study/policy_case.h"
#include "tests/policy/checker.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace study;
namespace {

using Json = nlohmann::json;

#ifdef GAVEL_REFERENCE_DIR
constexpr const char* kReferenceDirectory = GAVEL_REFERENCE_DIR;
#else
constexpr const char* kReferenceDirectory = "";
#endif

// The relative tolerance of objectives.
constexpr double kObjectiveTolerance = 1e-6;

struct Answered {
  Json given;
  Json answer;
  PolicyProblem problem;
  PolicyResult result;

  JobId IdOf(const Json& id) const { return JobIdOfCase(id.get<int64_t>()); }
};

// The cases of a file; none where the recorded results are missing.
Json Cases(const std::string& file) {
  std::ifstream stream(std::string(kReferenceDirectory) + "/cases/" + file +
                       ".json");
  return stream ? Json::parse(stream)["cases"] : Json::array();
}

// The policy that answers the cases of a file.
std::string PolicyOf(const std::string& file) {
  return file == "max_min_fairness_packed_mixed_scale_factors"
             ? "max_min_fairness_packed"
             : file;
}

absl::StatusOr<Answered> AnswerTo(const Json& given, const Policy& policy,
                                  SolverChoice solver) {
  auto cases = ParsePolicyCases(given, policy.name());
  if (!cases.ok()) return cases.status();
  cases->front().problem.solver = solver;
  absl::StatusOr<PolicyResult> result = policy.Solve(cases->front().problem);
  if (!result.ok()) return result.status();
  const PolicyAnswer answer{std::move(cases->front()), *std::move(result), 0};
  // The answer goes through text, as users get it.
  Json text =
      Json::parse(AnswersJson(policy.name(), {answer}).dump())["cases"].front();
  return Answered{given, std::move(text), answer.of.problem, answer.result};
}

std::vector<Answered> Answers(const std::string& file,
                              SolverChoice solver = SolverChoice::kAuto) {
  std::vector<Answered> all;
  const auto policy = MakePolicy(PolicyOf(file));
  EXPECT_OK(policy.status());
  if (!policy.ok()) return all;
  for (const Json& given : Cases(file)) {
    SCOPED_TRACE(given["case"]);
    absl::StatusOr<Answered> answer = AnswerTo(given, **policy, solver);
    EXPECT_OK(answer.status());
    if (answer.ok()) all.push_back(*std::move(answer));
  }
  return all;
}

#define SKIP_WITHOUT(file)                                          \
  if (Cases(file).empty()) {                                        \
    GTEST_SKIP() << "GAVEL_REFERENCE_DIR has no cases of " << file; \
  }

bool IsMinimum(const std::string& policy) {
  return policy.starts_with("finish_time_fairness") ||
         policy.starts_with("min_total_duration") ||
         policy.starts_with("allox");
}

// Whether the deadlines of the case can't all be met.
bool Infeasible(const Json& given, const std::string& policy) {
  return policy.ends_with("_SLOs") && given.contains("right") &&
         given["right"].contains("slo_feasible") &&
         !given["right"]["slo_feasible"].get<bool>();
}

// Checks that the answer for users says what the solver found.
void ExpectTold(const Answered& one) {
  std::set<int64_t> left_out;
  for (const JobId id : one.result.left_out) left_out.insert(IdInCase(id));
  EXPECT_EQ(one.answer["left_out"].get<std::set<int64_t>>(), left_out);
  for (const auto& [unit, row] : one.answer["allocation"].items()) {
    const size_t comma = unit.find(',');
    ShareUnit id = {JobIdOfCase(std::stoi(unit)), JobId()};
    if (comma != unit.npos) {
      id.partner = JobIdOfCase(std::stoi(unit.substr(comma + 1)));
    }
    const std::vector<double> shares =
        AllocationOf(one.problem, one.result).Row(id);
    for (size_t j = 0; j < shares.size(); ++j) {
      EXPECT_EQ(row.value(one.problem.types[j], 0.0), shares[j]) << unit;
    }
  }
  if (!one.given.contains("right")) return;
  EXPECT_EQ(left_out, one.given["right"]["left_out"].get<std::set<int64_t>>());
}

// Checks that neither our objective nor the reference's is beyond the bound.
void ExpectCertificate(const Answered& one, const std::string& policy) {
  const double sign = IsMinimum(policy) ? -1 : 1;
  const double objective = one.answer["objective"];
  const double bound = one.answer["bound"];
  const double gap =
      std::abs(bound - objective) / std::max(1.0, std::abs(bound));
  EXPECT_LE(sign * objective, sign * bound);
  EXPECT_NEAR(one.answer["gap"].get<double>(), gap, 1e-12);
  EXPECT_LE(gap, 1e-7);
  if (one.answer["status"] != "optimal" || !one.given.contains("right")) return;
  const Json& right = one.given["right"];
  if (!right.contains("value") || right["value"].is_null()) return;
  const double value = right["value"];
  EXPECT_LE(sign * value, sign * bound + kObjectiveTolerance * std::abs(value));
}

void ExpectObjective(const Answered& one, const std::string& policy) {
  if (!one.given.contains("right")) return;
  const Json& right = one.given["right"];
  if (!right.contains("value") || right["value"].is_null()) return;
  const double value = right["value"];
  EXPECT_NEAR(one.answer["objective"].get<double>(), value,
              kObjectiveTolerance * value);
  EXPECT_EQ(FormulaErrors(policy, one.problem, one.result), "");
  if (!right.contains("vector")) return;
  const auto vector = right["vector"].get<std::vector<double>>();
  const bool agnostic = policy == "max_min_fairness_water_filling";
  const std::vector<double> values =
      Sorted(JobValues(one.problem, one.result.allocation, agnostic));
  ASSERT_EQ(values.size(), vector.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], vector[i], kObjectiveTolerance * vector[i])
        << "the value of rank " << i;
  }
}

std::string FileName(const ::testing::TestParamInfo<const char*>& file) {
  return file.param;
}

using FileAndSolver = std::tuple<const char*, SolverChoice>;

std::string FileAndSolverName(
    const ::testing::TestParamInfo<FileAndSolver>& info) {
  const char* const solvers[] = {"", "_by_highs", "_by_prices"};
  return std::string(std::get<0>(info.param)) +
         solvers[static_cast<size_t>(std::get<1>(info.param))];
}

// Each file is solved with the default choice of solver, with HiGHS and with
// prices.
class Conformance : public ::testing::TestWithParam<FileAndSolver> {};

TEST_P(Conformance, EveryCaseIsAnsweredRight) {
  const auto& [file, solver] = GetParam();
  SKIP_WITHOUT(file);
  const std::string policy = PolicyOf(file);
  for (const Answered& one : Answers(file, solver)) {
    SCOPED_TRACE("case " + one.given["case"].dump());
    const std::string by = one.answer["solver"];
    // Prices serve neither pairs nor deadlines that can't all be met.
    const bool served = policy.find("packed") == std::string::npos &&
                        !Infeasible(one.given, policy);
    EXPECT_FALSE(solver == SolverChoice::kHighs && by == "prices");
    EXPECT_FALSE(solver == SolverChoice::kPrices && served &&
                 by.starts_with("highs"))
        << by;
    EXPECT_EQ(one.answer["status"],
              Infeasible(one.given, policy) ? "infeasible" : "optimal");
    ExpectTold(one);
    EXPECT_EQ(ShareErrors(one.problem, one.result), "");
    ExpectCertificate(one, policy);
    ExpectObjective(one, policy);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, Conformance,
    ::testing::Combine(::testing::Values("allox", "fifo", "fifo_packed",
                                         "fifo_perf", "gandiva", "isolated",
                                         "max_min_fairness_strategy_proof_perf",
                                         "proportional"),
                       ::testing::Values(SolverChoice::kAuto)),
    FileAndSolverName);

INSTANTIATE_TEST_SUITE_P(
    LinearPrograms, Conformance,
    ::testing::Combine(
        ::testing::Values("finish_time_fairness", "finish_time_fairness_packed",
                          "finish_time_fairness_perf", "max_min_fairness",
                          "max_min_fairness_packed",
                          "max_min_fairness_packed_mixed_scale_factors",
                          "max_min_fairness_perf",
                          "max_min_fairness_water_filling",
                          "max_min_fairness_water_filling_packed",
                          "max_min_fairness_water_filling_perf",
                          "max_sum_throughput_normalized_by_cost_packed_SLOs",
                          "max_sum_throughput_normalized_by_cost_perf",
                          "max_sum_throughput_normalized_by_cost_perf_SLOs",
                          "max_sum_throughput_perf", "min_total_duration",
                          "min_total_duration_packed",
                          "min_total_duration_perf"),
        ::testing::Values(SolverChoice::kAuto, SolverChoice::kHighs,
                          SolverChoice::kPrices)),
    FileAndSolverName);

// The original forgets that a job has no throughput on a type that is smaller
// than its gang. Both rules give the same result when every job can run on
// every type.
bool RulesAgree(const PolicyProblem& problem) {
  const int smallest = *std::ranges::min_element(problem.capacity);
  return std::ranges::none_of(problem.throughputs,
                              [](double rate) { return rate == 0; }) &&
         std::ranges::all_of(problem.jobs, [&](const PolicyJob& job) {
           return job.scale_factor <= smallest;
         });
}

// The largest difference to the original's shares.
double DifferenceToOriginal(const Answered& one) {
  Json shares = one.answer["allocation"];
  double difference = 0;
  for (const auto& [unit, row] : one.given["gavel_allocation"].items()) {
    for (const auto& [type, share] : row.items()) {
      Json& ours = shares[unit][type];
      const double mine = ours.is_null() ? 0 : ours.get<double>();
      difference = std::max(difference, std::abs(mine - share.get<double>()));
    }
    shares.erase(unit);
  }
  for (const Json& row : shares) {
    for (const Json& share : row) {
      difference = std::max(difference, share.get<double>());
    }
  }
  return difference;
}

// Policies that leave nothing to choose. Cases in which the original is wrong
// are skipped: a job that fits nowhere stops its queue for ever, and its
// proportional gives out more than there is.
class ExactConformance : public ::testing::TestWithParam<const char*> {};

TEST_P(ExactConformance, AllocationsAreThoseOfTheOriginalWhereItIsRight) {
  SKIP_WITHOUT(GetParam());
  int compared = 0;
  for (const Answered& one : Answers(GetParam())) {
    SCOPED_TRACE("case " + one.given["case"].dump());
    const bool fifo = std::string(GetParam()).starts_with("fifo");
    const bool same_rules =
        fifo ? one.result.left_out.empty() : RulesAgree(one.problem);
    const double violation =
        one.given["objective"].value("gavel_max_constraint_violation", 0.0);
    if (!same_rules || violation > 1e-9) continue;
    EXPECT_LE(DifferenceToOriginal(one), 1e-12);
    ++compared;
  }
  EXPECT_GE(compared, 5);
}

INSTANTIATE_TEST_SUITE_P(Files, ExactConformance,
                         ::testing::Values("fifo_perf", "fifo_packed",
                                           "isolated", "proportional"),
                         FileName);

TEST(AlloxConformance, TheMatchingIsTheCheapest) {
  SKIP_WITHOUT("allox");
  for (const Answered& one : Answers("allox")) {
    SCOPED_TRACE("case " + one.given["case"].dump());
    const double cost = one.given["objective"]["reference_objective"];
    EXPECT_NEAR(one.answer["objective"].get<double>(), cost, 1e-9 * cost);
    // As many jobs run as in the original: the heads of all queues.
    double running = 0;
    for (const auto& [unit, row] : one.answer["allocation"].items()) {
      for (const auto& [type, share] : row.items()) {
        running += share.get<double>();
      }
    }
    EXPECT_EQ(running, one.given["objective"]["gavel_running_jobs"]);
  }
}

// The reference records each job's throughput at the optimum of the Nash
// product, and the factor by which the mechanism discounts it.
TEST(StrategyProofConformance, DiscountedThroughputsAreThoseOfTheReference) {
  constexpr char kFile[] = "max_min_fairness_strategy_proof_perf";
  SKIP_WITHOUT(kFile);
  for (const Answered& one : Answers(kFile)) {
    SCOPED_TRACE("case " + one.given["case"].dump());
    if (!RulesAgree(one.problem)) continue;
    const std::vector<double> throughputs =
        JobThroughputs(one.problem, one.result.allocation, false);
    const double mean = one.given["reference_objective"];
    EXPECT_NEAR(one.answer["objective"].get<double>(), mean, 1e-6 * mean);
    const Json& discounts = one.given["reference_discount_factors"];
    const Json& whole =
        one.given["reference_undiscounted_effective_throughputs"];
    for (size_t place = 0; place < whole.size(); ++place) {
      const double expected =
          discounts[place].get<double>() * whole[place].get<double>();
      const JobId id = one.IdOf(one.given["jobs"][place]["id"]);
      const auto job = std::ranges::find(one.problem.jobs, id, &PolicyJob::id);
      const auto m = static_cast<size_t>(job - one.problem.jobs.begin());
      // The product is flat around its optimum, so the reference has fewer
      // digits of the throughputs than of the product.
      EXPECT_NEAR(throughputs[m], expected, 1e-4 * expected);
    }
  }
}

class SloConformance : public ::testing::TestWithParam<const char*> {};

TEST_P(SloConformance, DeadlinesAreMetOrTheirJobsAreNamed) {
  SKIP_WITHOUT(GetParam());
  for (const Answered& one : Answers(GetParam())) {
    SCOPED_TRACE("case " + one.given["case"].dump());
    std::set<int64_t> missed;
    const std::vector<double> has =
        JobThroughputs(one.problem, one.result.allocation, false);
    for (size_t m = 0; m < has.size(); ++m) {
      const PolicyJob& job = one.problem.jobs[m];
      const double needs = job.steps_remaining / job.deadline_s;
      if (std::ranges::count(one.result.left_out, job.id) == 0 &&
          has[m] < needs * (1 - kOptimality)) {
        missed.insert(IdInCase(job.id));
      }
    }
    const std::string reason = one.answer["reason"];
    if (!Infeasible(one.given, GetParam())) {
      EXPECT_TRUE(missed.empty());
      EXPECT_EQ(reason, "");
      continue;
    }
    EXPECT_FALSE(missed.empty());
    EXPECT_THAT(reason, HasSubstr("infeasible"));
    // Only some of the jobs are named.
    EXPECT_LT(missed.size(), one.given["SLO_seconds_remaining"].size());
    for (const int64_t id : missed) {
      EXPECT_THAT(reason, HasSubstr("job " + std::to_string(id) + " "));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, SloConformance,
    ::testing::Values("max_sum_throughput_normalized_by_cost_packed_SLOs",
                      "max_sum_throughput_normalized_by_cost_perf_SLOs"),
    FileName);

// The original's own fifo gives out more than there is, so this checks only
// what FIFO promises.
TEST(FifoConformance, TheFirstJobThatWaitsFitsOnNoneOfItsTypes) {
  SKIP_WITHOUT("fifo");
  for (const Answered& one : Answers("fifo")) {
    SCOPED_TRACE("case " + one.given["case"].dump());
    const Json& allocation = one.answer["allocation"];
    std::map<std::string, int> room = one.given["cluster_spec"];
    std::map<int, int> scale_factor;
    for (const Json& job : one.given["jobs"]) {
      scale_factor[job["id"]] = job["scale_factor"];
    }
    for (const auto& [id, row] : allocation.items()) {
      for (const auto& [type, share] : row.items()) {
        if (share == 1.0) room[type] -= scale_factor[std::stoi(id)];
      }
    }
    for (const auto& [id, gang] : scale_factor) {
      const std::string key = std::to_string(id);
      if (!allocation.contains(key)) continue;  // left out
      const auto runs = [](const Json& share) { return share == 1.0; };
      if (std::any_of(allocation[key].begin(), allocation[key].end(), runs)) {
        continue;
      }
      for (const auto& [type, left] : room) {
        EXPECT_TRUE(left < gang || one.given["throughputs"][key][type] == 0);
      }
      break;
    }
  }
}

}  // namespace
}  // namespace gavel::testing
