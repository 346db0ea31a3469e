#include <algorithm>
#include <string>
#include <vector>

#include "study/solve/policy_case.h"

namespace gavel::study {
namespace {

constexpr char kFull[] = R"json({
  "case": 0,
  "cluster_spec": {"k80": 2, "v100": 2},
  "servers": {"k80": [2], "v100": [1, 1]},
  "jobs": [
    {"id": 0, "scale_factor": 1, "priority_weight": 1.0,
     "num_steps_remaining": 40000, "time_since_start": 600.0},
    {"id": 1, "scale_factor": 1, "priority_weight": 2.0,
     "num_steps_remaining": 90000, "time_since_start": 0.0},
    {"id": 2, "scale_factor": 2, "priority_weight": 1.0,
     "num_steps_remaining": 20000, "time_since_start": 60.0}],
  "throughputs": {
    "0": {"k80": 4.0, "v100": 20.0},
    "1": {"k80": 6.0, "v100": 24.0},
    "2": {"k80": 2.0, "v100": 12.0}},
  "unconsolidated_throughputs": {"2": {"k80": 1.5, "v100": 9.0}},
  "pair_throughputs": {"0,1": {"k80": [2.5, 3.5], "v100": [14.0, 15.0]}},
  "unconsolidated_pair_throughputs": {
    "0,1": {"k80": [2.5, 3.5], "v100": [14.0, 15.0]}},
  "kinds": {"0": 0, "1": 1},
  "instance_costs": {"k80": 0.135, "v100": 0.74},
  "SLO_seconds_remaining": {"1": 86400.0},
  "cumulative_isolated_time": [500.0, 0.0, 50.0],
  "time_received": {"0": 300.0, "2": 60.0},
  "entities": {
    "speech": {"jobs": [1, 2], "weight": 1.0, "policy": "fifo"},
    "vision": {"jobs": [0], "weight": 2.0, "policy": "fairness"}},
  "previous_allocation": {"0": {"v100": 1.0}}
})json";

// What policies of a name with `part` in it use, but do not need.
struct Use {
  std::string_view part;
  std::string_view field;
};
constexpr Use kUses[] = {
    {"water_filling", "entities"},
    {"gandiva", "previous_allocation"},
};

constexpr std::string_view kAlways[] = {"cluster_spec", "jobs", "throughputs"};
constexpr std::string_view kAlwaysOfJobs[] = {"id", "scale_factor",
                                              "priority_weight"};

template <class Keep>
void KeepFields(Json& object, const Keep& keep) {
  std::vector<std::string> rest;
  for (const auto& [key, value] : object.items()) {
    if (!keep(key)) rest.push_back(key);
  }
  for (const std::string& key : rest) object.erase(key);
}

bool Uses(std::string_view policy, std::string_view field) {
  return std::ranges::any_of(kUses, [&](const Use& use) {
    return use.field == field && policy.find(use.part) != policy.npos;
  });
}

}  // namespace

Json FullPolicyExample() { return Json::parse(kFull); }

Json PolicyExample(std::string_view policy) {
  Json example = FullPolicyExample();
  KeepFields(example, [&](std::string_view field) {
    return std::ranges::count(kAlways, field) > 0 ||
           PolicyNeeds(policy, field) || Uses(policy, field);
  });
  for (Json& job : example["jobs"]) {
    KeepFields(job, [&](std::string_view field) {
      return std::ranges::count(kAlwaysOfJobs, field) > 0 ||
             PolicyNeeds(policy, field);
    });
  }
  return example;
}

}  // namespace gavel::study
