// The recorded cases of the original Gavel, under the rule that it forgot: a
// job cannot use a type smaller than its gang. Objectives are compared, never
// allocations.
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "coordinator/policy/policy.h"
#include "gtest/gtest.h"
#include "tests/policy/certificate.h"
#include "tests/support/status_matchers.h"

namespace gavel::testing {
namespace {

using Json = nlohmann::json;

#ifdef GAVEL_REFERENCE_DIR
constexpr const char* kReferenceDirectory = GAVEL_REFERENCE_DIR;
#else
constexpr const char* kReferenceDirectory = "";
#endif

// The cases of one policy; none where the recorded results are not at hand.
std::vector<Json> Cases(const std::string& policy) {
  std::ifstream file(std::string(kReferenceDirectory) + "/cases/" + policy +
                     ".json");
  if (!file) return {};
  const Json json = Json::parse(file);
  return {json["cases"].begin(), json["cases"].end()};
}

// Ids of the cases count from 0, ours from 1.
PolicyProblem ProblemOf(const Json& json) {
  PolicyProblem problem;
  for (const Json& type : json["worker_types"]) {
    problem.types.push_back(type);
    problem.capacity.push_back(json["cluster_spec"][problem.types.back()]);
  }
  std::vector<Json> jobs(json["jobs"].begin(), json["jobs"].end());
  std::sort(jobs.begin(), jobs.end(), [](const Json& a, const Json& b) {
    return a["id"].get<int>() < b["id"].get<int>();
  });
  for (const Json& job : jobs) {
    const int id = job["id"];
    PolicyJob entry;
    entry.id = JobId(static_cast<uint64_t>(id) + 1);
    entry.scale_factor = job["scale_factor"];
    entry.weight = job["priority_weight"];
    problem.jobs.push_back(entry);
    for (const std::string& type : problem.types) {
      problem.throughputs.push_back(
          json["throughputs"][std::to_string(id)][type]);
    }
  }
  return problem;
}

std::set<JobId> RightlyLeftOut(const Json& json) {
  std::set<JobId> left_out;
  for (const int id : json["right"]["left_out"]) {
    left_out.insert(JobId(static_cast<uint64_t>(id) + 1));
  }
  return left_out;
}

class MaxMinConformance : public ::testing::TestWithParam<const char*> {};

TEST_P(MaxMinConformance, ObjectivesAreThoseOfTheReference) {
  const std::vector<Json> cases = Cases(GetParam());
  if (cases.empty()) GTEST_SKIP() << "GAVEL_REFERENCE_DIR has no such cases";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Policy> policy,
                       MakePolicy(GetParam()));
  const bool agnostic = policy->name() == "max_min_fairness";
  for (const Json& json : cases) {
    SCOPED_TRACE(json["case"]);
    const PolicyProblem problem = ProblemOf(json);
    ASSERT_OK_AND_ASSIGN(const PolicyResult result, policy->Solve(problem));
    EXPECT_EQ(result.outcome, SolveOutcome::kOptimal);
    EXPECT_EQ(std::set(result.left_out.begin(), result.left_out.end()),
              RightlyLeftOut(json));
    EXPECT_EQ(FeasibilityErrors(problem, result), "");
    if (!json["right"].contains("value")) {
      EXPECT_TRUE(result.allocation.jobs().empty());
      continue;
    }
    const double value = json["right"]["value"];
    EXPECT_NEAR(result.objective, value, 1e-6 * value);
    EXPECT_NEAR(MaxMinObjective(problem, result, agnostic), value,
                1e-6 * value);
    EXPECT_LE(result.gap, 1e-7);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, MaxMinConformance,
                         ::testing::Values("max_min_fairness",
                                           "max_min_fairness_perf"));

// The original's own fifo over-allocates; here only what FIFO promises.
TEST(FifoConformance, CasesFillTheClusterInOrderAndNeverBeyond) {
  const std::vector<Json> cases = Cases("fifo");
  if (cases.empty()) GTEST_SKIP() << "GAVEL_REFERENCE_DIR has no such cases";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Policy> policy,
                       MakePolicy("fifo"));
  for (const Json& json : cases) {
    SCOPED_TRACE(json["case"]);
    const PolicyProblem problem = ProblemOf(json);
    ASSERT_OK_AND_ASSIGN(const PolicyResult result, policy->Solve(problem));
    std::vector<int> room = problem.capacity;
    std::set<JobId> gone(result.left_out.begin(), result.left_out.end());
    for (const TypeAssignment& entry : result.assignment) {
      room[entry.type] -= problem.jobs[entry.job.value() - 1].scale_factor;
      EXPECT_TRUE(gone.insert(entry.job).second);
    }
    EXPECT_GE(*std::min_element(room.begin(), room.end()), 0);
    // The first job that waits fits on none of its types.
    for (size_t m = 0; m < problem.jobs.size(); ++m) {
      if (gone.contains(problem.jobs[m].id)) continue;
      for (size_t j = 0; j < room.size(); ++j) {
        EXPECT_TRUE(problem.Row(m)[j] == 0 ||
                    room[j] < problem.jobs[m].scale_factor);
      }
      break;
    }
  }
}

}  // namespace
}  // namespace gavel::testing
