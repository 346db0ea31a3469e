#include "study/policy_case.h"

#include "coordinator/workload/json_fields.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace study;
namespace {

using Json = nlohmann::json;

// A case with two jobs, 0 and 4, on two types.
Json Case() {
  return Json::parse(R"({
    "case": 7,
    "cluster_spec": {"v100": 1, "k80": 2},
    "jobs": [
      {"id": 4, "type": "B", "scale_factor": 1, "priority_weight": 2.0,
       "num_steps_remaining": 900, "time_since_start": 30.5},
      {"id": 0, "type": "A", "scale_factor": 1, "priority_weight": 1.0,
       "num_steps_remaining": 100, "time_since_start": 0.0}],
    "throughputs": {"0": {"v100": 4.0, "k80": 1.0},
                    "4": {"v100": 9.0, "k80": 3.0}}})");
}

absl::StatusOr<PolicyProblem> Parsed(const Json& json,
                                     std::string_view policy = "fifo") {
  absl::StatusOr<std::vector<PolicyCase>> cases =
      ParsePolicyCases(json, policy);
  if (!cases.ok()) return cases.status();
  return cases->front().problem;
}

TEST(PolicyCase, JobsComeInTheOrderOfIdsAndTypesByName) {
  ASSERT_OK_AND_ASSIGN(const PolicyProblem problem, Parsed(Case()));
  EXPECT_THAT(problem.types, ElementsAre("k80", "v100"));
  EXPECT_THAT(problem.capacity, ElementsAre(2, 1));
  ASSERT_EQ(problem.jobs.size(), 2u);
  EXPECT_EQ(problem.jobs[0].id, JobId(1));  // 0 is no JobId
  EXPECT_EQ(problem.jobs[1].id, JobId(5));
  EXPECT_LT(problem.jobs[0].arrival_s, problem.jobs[1].arrival_s);
  EXPECT_EQ(problem.jobs[1].weight, 2);
  EXPECT_EQ(problem.jobs[1].steps_remaining, 900);
  EXPECT_EQ(problem.jobs[1].time_since_start_s, 30.5);
  EXPECT_THAT(problem.throughputs, ElementsAre(1, 4, 3, 9));
}

TEST(PolicyCase, AFileHasOneCaseOrSeveral) {
  ASSERT_OK_AND_ASSIGN(const auto one, ParsePolicyCases(Case(), "fifo"));
  EXPECT_EQ(one.at(0).number, 7);
  Json second = Case();
  second.erase("case");
  ASSERT_OK_AND_ASSIGN(
      const auto two,
      ParsePolicyCases({{"policy", "x"}, {"cases", {Case(), second}}}, "fifo"));
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].number, 1);
}

TEST(PolicyCase, WhatOnlySomePoliciesUseIsReadToo) {
  Json json = Case();
  json["pair_throughputs"]["4,0"] = {{"v100", {8, 2}}, {"k80", {0, 0}}};
  json["SLO_seconds_remaining"]["4"] = -60;
  json["cumulative_isolated_time"] = {20.5, 10.5};  // of 4, then of 0
  json["instance_costs"] = {{"v100", 0.74}, {"k80", 0.135}, {"tpu", 9}};
  json["entities"]["team"] = {{"jobs", {4}}, {"weight", 3}, {"policy", "fifo"}};
  json["previous_allocation"] = {{"0,4", {{"v100", 1}, {"k80", 0}}}};
  ASSERT_OK_AND_ASSIGN(const PolicyProblem problem, Parsed(json));
  // The earlier job of a pair comes first.
  ASSERT_EQ(problem.pairs.size(), 1u);
  EXPECT_EQ(problem.pairs[0].first, 0u);
  EXPECT_THAT(problem.pair_throughputs, ElementsAre(0, 0, 2, 8));
  EXPECT_EQ(problem.jobs[0].deadline_s, PolicyJob::kNoDeadline);
  EXPECT_EQ(problem.jobs[1].deadline_s, -60);
  EXPECT_EQ(problem.jobs[0].isolated_s, 10.5);
  EXPECT_EQ(problem.jobs[1].isolated_s, 20.5);
  EXPECT_THAT(problem.cost, ElementsAre(0.135, 0.74));
  EXPECT_EQ(problem.entities.at(0).policy, "fifo");
  EXPECT_EQ(problem.jobs[0].entity, -1);
  EXPECT_EQ(problem.jobs[1].entity, 0);
  EXPECT_EQ(problem.jobs[0].running_on, 1);
  EXPECT_EQ(problem.jobs[0].running_with, JobId(5));
  EXPECT_EQ(problem.jobs[1].running_with, JobId(1));
}

TEST(PolicyCase, LossesAreThoseUpToThePresentStep) {
  Json json = Case();
  json["losses"] = {{"4", {{0, 3.5}, {100, 2}}}, {"0", {{7, -1}}}};
  ASSERT_OK_AND_ASSIGN(const PolicyProblem problem, Parsed(json));
  ASSERT_THAT(problem.losses, SizeIs(3));
  EXPECT_EQ(problem.losses[0].job, 0u);
  EXPECT_EQ(problem.losses[0].loss, -1);
  EXPECT_EQ(problem.losses[1].job, 1u);
  EXPECT_EQ(problem.losses[2].steps, 100);
  EXPECT_EQ(problem.jobs[1].steps_done, 100);
  EXPECT_OK(CheckProblem(problem));
  json["losses"]["4"] = {{5, 1}, {5, 2}};
  EXPECT_THAT(Parsed(json), StatusIs(kInvalidArgument,
                                     "losses of job 4: step 5; give [[step"));
  json["losses"]["4"] = {5};
  EXPECT_THAT(Parsed(json),
              StatusIs(kInvalidArgument, "losses of job 4: 5; give [[step"));
}

TEST(PolicyCase, ServersMakePlacementMatter) {
  Json json = Case();
  json["servers"] = {{"v100", {1}}, {"k80", {1, 1}}};
  json["unconsolidated_throughputs"]["4"] = {{"v100", 8}, {"k80", 2}};
  ASSERT_OK_AND_ASSIGN(const PolicyProblem problem, Parsed(json));
  EXPECT_TRUE(problem.placement_sensitive());
  EXPECT_THAT(problem.throughputs, ElementsAre(1, 4, 1, 4, 3, 9, 2, 8));
  json["servers"]["k80"] = {1, 2};
  EXPECT_THAT(Parsed(json),
              StatusIs(kInvalidArgument, "those of k80 have 3 accelerators"));
}

TEST(PolicyCase, KindsOfJobsShareAlike) {
  Json json = Case();
  json["kinds"] = {{"0", 4}, {"4", 4}};
  json["pair_throughputs"]["4,4"] = {{"v100", {2, 2}}, {"k80", {1, 1}}};
  ASSERT_OK_AND_ASSIGN(const PolicyProblem problem, Parsed(json));
  EXPECT_THAT(problem.kinds, ElementsAre(1, 1));
  ASSERT_EQ(problem.pairs.size(), 1u);
  EXPECT_EQ(problem.pairs[0].first, 1u);
  EXPECT_EQ(problem.pairs[0].second, 1u);
  EXPECT_THAT(problem.pair_throughputs, ElementsAre(1, 1, 2, 2));
}

TEST(PolicyCase, APairOfUnequalGangsIsNone) {
  Json json = Case();
  json["jobs"][0]["scale_factor"] = 2;
  json["pair_throughputs"]["0,4"] = {{"v100", {1, 1}}, {"k80", {1, 1}}};
  ASSERT_OK_AND_ASSIGN(const PolicyProblem problem, Parsed(json));
  EXPECT_TRUE(problem.pairs.empty());
}

// A case with one change, and the error that it gives.
struct BadCase {
  const char* name;
  void (*spoil)(Json& json);
  const char* message;
};

class BadCases : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadCases, AreToldWithCaseAndRemedy) {
  Json json = Case();
  GetParam().spoil(json);
  const absl::Status status = Parsed(json).status();
  EXPECT_THAT(status, StatusIs(kInvalidArgument, GetParam().message));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("case 7: "), Not(HasSubstr("\n"))));
}

constexpr BadCase kBadCases[] = {
    {"NoCluster", [](Json& json) { json.erase("cluster_spec"); },
     "cluster_spec is missing; give {TYPE: accelerators}"},
    {"NoTypes", [](Json& json) { json["cluster_spec"] = Json::object(); },
     "cluster_spec has no types"},
    {"HalfAnAccelerator",
     [](Json& json) { json["cluster_spec"]["v100"] = 1.5; },
     "cluster_spec: v100 is 1.5; give a whole number"},
    {"FewerThanNoAccelerators",
     [](Json& json) { json["cluster_spec"]["v100"] = -1; },
     "cluster_spec: v100 is -1"},
    {"NoJobs", [](Json& json) { json.erase("jobs"); }, "jobs is missing"},
    {"JobsOfAnotherType", [](Json& json) { json["jobs"] = 3; },
     "jobs is number; give [{id, scale_factor"},
    {"NoId", [](Json& json) { json["jobs"][1].erase("id"); },
     "jobs[1]: id is missing"},
    {"BadId", [](Json& json) { json["jobs"][1]["id"] = -1; },
     "jobs[1]: id is -1"},
    {"TwoOfOneId", [](Json& json) { json["jobs"][1]["id"] = 4; },
     "job 4 is there twice"},
    {"NoScaleFactor", [](Json& json) { json["jobs"][0].erase("scale_factor"); },
     "job 4: scale_factor is missing"},
    {"ScaleFactorZero", [](Json& json) { json["jobs"][0]["scale_factor"] = 0; },
     "job 4: scale_factor is 0; give a whole number from 1"},
    {"WeightZero", [](Json& json) { json["jobs"][0]["priority_weight"] = 0; },
     "job 4: priority_weight is 0; give one above 0"},
    {"NegativeSteps",
     [](Json& json) { json["jobs"][0]["num_steps_remaining"] = -5; },
     "job 4: num_steps_remaining is -5; give 0 or more"},
    {"NoThroughputs", [](Json& json) { json.erase("throughputs"); },
     "throughputs is missing"},
    {"NoThroughputsOfAJob", [](Json& json) { json["throughputs"].erase("4"); },
     "job 4: throughputs: 4 is missing; give {TYPE: steps/s}"},
    {"NoThroughputOnAType",
     [](Json& json) { json["throughputs"]["4"].erase("k80"); },
     "job 4: throughputs: the one on k80 is missing; give steps/s, 0 where"},
    {"NegativeThroughput",
     [](Json& json) { json["throughputs"]["4"]["k80"] = -1.5; },
     "job 4: throughputs: the one on k80 is -1.5; give 0 or more"},
    {"ThroughputAsText",
     [](Json& json) { json["throughputs"]["4"]["k80"] = "NaN"; },
     "job 4: throughputs: the one on k80 is \"NaN\"; give a number"},
    {"PairOfAnUnknownJob",
     [](Json& json) { json["pair_throughputs"]["0,9"] = Json::object(); },
     "pair 0,9: 9 is none of the ids in jobs"},
    {"PairOfOne",
     [](Json& json) { json["pair_throughputs"]["4"] = Json::object(); },
     "\"4\" is no pair; give two ids as \"3,5\""},
    {"PairWithItself",
     [](Json& json) { json["pair_throughputs"]["4,4"] = Json::object(); },
     "\"4,4\" is a job with itself"},
    {"PairTwice",
     [](Json& json) {
       json["pair_throughputs"]["0,4"] = Json::object();
       json["pair_throughputs"]["4,0"] = Json::object();
     },
     "pair 4,0: pair_throughputs: it is there twice"},
    {"HalfAPair",
     [](Json& json) { json["pair_throughputs"]["0,4"]["v100"] = {1}; },
     "pair 0,4: pair_throughputs: the one on v100 is no pair of numbers"},
    {"KindOfAnUnknownJob", [](Json& json) { json["kinds"]["9"] = 0; },
     "kinds: 9 is none of the ids"},
    {"UnknownKind", [](Json& json) { json["kinds"]["4"] = 9; },
     "kinds: 9 is none of the ids"},
    {"DeadlineOfAnUnknownJob",
     [](Json& json) { json["SLO_seconds_remaining"]["9"] = 1; },
     "SLO_seconds_remaining: 9 is none of the ids"},
    {"TooFewTimes", [](Json& json) { json["cumulative_isolated_time"] = {1}; },
     "cumulative_isolated_time is not one number for each job; give 2"},
    {"NoCostOfAType", [](Json& json) { json["instance_costs"]["v100"] = 1; },
     "instance_costs: k80 is missing"},
    {"FreeType",
     [](Json& json) {
       json["instance_costs"] = {{"v100", 0}, {"k80", 1}};
     },
     "instance_costs: v100 is 0; give one above 0"},
    {"TwoEntities",
     [](Json& json) {
       json["entities"] = {{"a", {{"jobs", {4}}}}, {"b", {{"jobs", {4}}}}};
     },
     "entity b: job 4 is in another one, too"},
};

INSTANTIATE_TEST_SUITE_P(All, BadCases, ::testing::ValuesIn(kBadCases),
                         [](const ::testing::TestParamInfo<BadCase>& bad) {
                           return std::string(bad.param.name);
                         });

TEST(PolicyCase, APolicyIsNotRunWithoutWhatItNeeds) {
  const auto expect_needs = [](const char* policy, const char* field) {
    EXPECT_THAT(Parsed(Case(), policy),
                StatusIs(kInvalidArgument, std::string(field) + " is missing"));
  };
  expect_needs("max_sum_throughput_normalized_by_cost_perf", "instance_costs");
  expect_needs("max_min_fairness_packed", "pair_throughputs");
  expect_needs("finish_time_fairness_perf", "cumulative_isolated_time");
  Json json = Case();
  json["jobs"][0].erase("num_steps_remaining");
  EXPECT_THAT(Parsed(json, "min_total_duration"),
              StatusIs(kInvalidArgument,
                       "case 7: job 4: num_steps_remaining is "
                       "missing; min_total_duration needs it"));
  EXPECT_OK(Parsed(json, "max_min_fairness").status());
}

TEST(ParseJson, TellsWhereTheMistakeIs) {
  EXPECT_THAT(ParseJson("{\"a\": [1,\n2,}"),
              StatusIs(kInvalidArgument, "line 2, column 3"));
  EXPECT_THAT(ParseJson("").status(), StatusIs(kInvalidArgument, "line 1"));
  EXPECT_THAT(ParseJson("[1e999]").status(), StatusIs(kInvalidArgument, ""));
}

TEST(ParseJson, WhatPythonWritesForNoNumberIsLeftToTheField) {
  ASSERT_OK_AND_ASSIGN(const Json json,
                       ParseJson(R"({"NaN \" NaN": [NaN, -Infinity, 1]})"));
  EXPECT_EQ(json, (Json{{"NaN \" NaN", {"NaN", "-Infinity", 1}}}));
}

TEST(WithIdsOfCase, JobsAreNamedByTheIdsOfTheFile) {
  EXPECT_EQ(WithIdsOfCase("job 6 (needs 7), job 12: no"),
            "job 5 (needs 7), job 11: no");
  EXPECT_EQ(WithIdsOfCase("no job is here, nor job "),
            "no job is here, nor job ");
}

PolicyAnswer Answer() {
  PolicyAnswer answer;
  answer.of.number = 7;
  answer.of.problem = *Parsed(Case());
  answer.result.outcome = SolveOutcome::kOptimal;
  answer.result.solver = "greedy";
  return answer;
}

TEST(PolicyAnswer, AnAssignmentIsSharesOfOne) {
  PolicyAnswer answer = Answer();
  answer.result.is_assignment = true;
  answer.result.assignment = {{{JobId(5), JobId()}, 1}};
  const auto json = AnswersJson("fifo", {answer});
  EXPECT_EQ(json["policy"], "fifo");
  EXPECT_EQ(json["cases"][0]["status"], "optimal");
  EXPECT_EQ(json["cases"][0]["allocation"].dump(),
            R"({"0":{"k80":0.0,"v100":0.0},"4":{"k80":0.0,"v100":1.0}})");
}

TEST(PolicyAnswer, PairsAreNamedByBothAndThoseWithoutTimeAreNotThere) {
  PolicyAnswer answer = Answer();
  answer.result.allocation = Allocation::FromRows(
      {{JobId(1), {}}, {JobId(1), JobId(5)}, {JobId(5), {}}}, 2,
      {0, 0, 0.5, 0, 0.25, 0.25});
  EXPECT_EQ(AnswersJson("x", {answer})["cases"][0]["allocation"].dump(),
            R"({"0":{"k80":0.0,"v100":0.0},"0,4":{"k80":0.5,"v100":0.0},)"
            R"("4":{"k80":0.25,"v100":0.25}})");
}

TEST(PolicyAnswer, TheOutcomeIsToldWithTheIdsOfTheFile) {
  PolicyAnswer answer = Answer();
  answer.result.outcome = SolveOutcome::kInfeasible;
  answer.result.detail = "infeasible: job 5 (needs 3 steps/s, gets 2)";
  answer.result.left_out = {JobId(1)};
  const auto json = AnswersJson("x", {answer})["cases"][0];
  EXPECT_EQ(json["status"], "infeasible");
  EXPECT_EQ(json["reason"], "infeasible: job 4 (needs 3 steps/s, gets 2)");
  EXPECT_EQ(json["left_out"].dump(), "[0]");
  const std::string table = RenderAnswers("x", {answer}, 200);
  EXPECT_THAT(table, AllOf(HasSubstr("infeasible"), HasSubstr("job 4 (")));
}

}  // namespace
}  // namespace gavel::testing
