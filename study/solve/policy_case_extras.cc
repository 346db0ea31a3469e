#include "study/solve/policy_case_extras.h"

#include <string>

#include "absl/strings/numbers.h"
#include "coordinator/cli/json_fields.h"
#include "core/status.h"
#include "study/solve/policy_case.h"

namespace gavel::study {
namespace {

absl::Status ParseCosts(const ParsedJson& json, PolicyProblem* problem) {
  constexpr char kForm[] = "{TYPE: per accelerator and hour}";
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* costs,
                         OptionalTable(json, "instance_costs", kForm));
  if (costs == nullptr) return absl::OkStatus();
  for (const std::string& type : problem->types) {
    const std::string what = StrCat("instance_costs: ", type);
    const ParsedJson* value = FindField(*costs, type);
    if (value == nullptr) return Refuse(what, " is missing; give ", kForm);
    GAVEL_ASSIGN_OR_RETURN(const double cost, Positive(*value, what));
    problem->cost.push_back(cost);
  }
  return absl::OkStatus();
}

absl::Status AddEntity(const std::string& name, const ParsedJson& json,
                       const CaseJobs& jobs, PolicyProblem* problem) {
  PolicyEntity entity;
  entity.name = name;
  if (!json.is_object()) {
    return Refuse("it is ", json.type_name(), "; give {jobs, weight, policy}");
  }
  if (const ParsedJson* weight = FindField(json, "weight")) {
    GAVEL_ASSIGN_OR_RETURN(entity.weight, Positive(*weight, "weight"));
  }
  if (const ParsedJson* policy = FindField(json, "policy")) {
    if (!policy->is_string()) {
      return Refuse("policy is ", policy->type_name(), "; give a name");
    }
    entity.policy = policy->get<std::string>();
  }
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* ids,
      Field(json, "jobs", ParsedJson::value_t::array, "[ID]"));
  for (const ParsedJson& id : *ids) {
    GAVEL_ASSIGN_OR_RETURN(const size_t m, jobs.At(id.dump()));
    if (problem->jobs[m].entity >= 0) {
      return Refuse("job ", id.dump(), " is in another one, too; give it one");
    }
    problem->jobs[m].entity = static_cast<int>(problem->entities.size());
  }
  problem->entities.push_back(std::move(entity));
  return absl::OkStatus();
}

absl::Status ParseEntities(const ParsedJson& json, const CaseJobs& jobs,
                           PolicyProblem* problem) {
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* entities,
      OptionalTable(json, "entities", "{NAME: {jobs, weight, policy}}"));
  if (entities == nullptr) return absl::OkStatus();
  for (const auto& [name, entity] : entities->items()) {
    GAVEL_RETURN_IF_ERROR(Annotate(AddEntity(name, entity, jobs, problem),
                                   StrCat("entity ", name)));
  }
  return absl::OkStatus();
}

// The type of which it has most of the time; -1: none.
int TypeItRunsOn(const ParsedJson& shares, const PolicyProblem& problem) {
  for (size_t j = 0; j < problem.types.size(); ++j) {
    const ParsedJson* share = FindField(shares, problem.types[j]);
    if (share != nullptr && share->is_number() && share->get<double>() > 0.5) {
      return static_cast<int>(j);
    }
  }
  return -1;
}

absl::Status AddRunning(const std::string& key, const ParsedJson& shares,
                        const CaseJobs& jobs, PolicyProblem* problem) {
  const int type = TypeItRunsOn(shares, *problem);
  if (key.find(',') == std::string::npos) {
    GAVEL_ASSIGN_OR_RETURN(const size_t m, jobs.At(key));
    if (type >= 0) problem->jobs[m].running_on = type;
    return absl::OkStatus();
  }
  GAVEL_ASSIGN_OR_RETURN(const auto pair, jobs.PairAt(key));
  if (type < 0) return absl::OkStatus();
  PolicyJob& first = problem->jobs[pair.first];
  PolicyJob& second = problem->jobs[pair.second];
  first.running_on = second.running_on = type;
  first.running_with = second.id;
  second.running_with = first.id;
  return absl::OkStatus();
}

absl::Status ParsePrevious(const ParsedJson& json, const CaseJobs& jobs,
                           PolicyProblem* problem) {
  constexpr char kKey[] = "previous_allocation";
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* previous,
      OptionalTable(json, kKey, "{ID or \"A,B\": {TYPE: share}}"));
  if (previous == nullptr) return absl::OkStatus();
  for (const auto& [key, shares] : previous->items()) {
    GAVEL_RETURN_IF_ERROR(
        Annotate(AddRunning(key, shares, jobs, problem), kKey));
  }
  return absl::OkStatus();
}

// A time of each job.
struct Times {
  const char* key;
  double PolicyJob::*field;
  bool may_be_negative;
};

absl::Status SetTime(const Times& times, const ParsedJson& time,
                     PolicyJob& job) {
  if (time.is_null()) return absl::OkStatus();
  const std::string what = StrCat("job ", IdInCase(job.id), ": ", times.key);
  GAVEL_ASSIGN_OR_RETURN(job.*times.field, times.may_be_negative
                                               ? Number(time, what)
                                               : NotNegative(time, what));
  return absl::OkStatus();
}

// {ID: seconds}, or [seconds] in the order of the file.
absl::Status ParseTimes(const Times& times, const ParsedJson& json,
                        const CaseJobs& jobs, PolicyProblem* problem) {
  const ParsedJson* const value = FindField(json, times.key);
  if (value == nullptr) return absl::OkStatus();
  if (value->is_object()) {
    for (const auto& [id, time] : value->items()) {
      const absl::StatusOr<size_t> m = jobs.At(id);
      if (!m.ok()) return Annotate(m.status(), times.key);
      GAVEL_RETURN_IF_ERROR(SetTime(times, time, problem->jobs[*m]));
    }
    return absl::OkStatus();
  }
  if (!value->is_array() || value->size() != jobs.in_order.size()) {
    return Refuse(times.key, " is not one number for each job; give ",
                  jobs.in_order.size(), ", or {ID: seconds}");
  }
  for (size_t i = 0; i < value->size(); ++i) {
    GAVEL_RETURN_IF_ERROR(
        SetTime(times, (*value)[i], problem->jobs[jobs.in_order[i]]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<size_t> CaseJobs::At(std::string_view id) const {
  int64_t number = 0;
  if (absl::SimpleAtoi(ToAbsl(id), &number)) {
    const auto found = by_id.find(number);
    if (found != by_id.end()) return found->second;
  }
  return Refuse(id, " is none of the ids in jobs; correct it");
}

absl::StatusOr<std::pair<size_t, size_t>> CaseJobs::PairAt(std::string_view key,
                                                           bool alike) const {
  const size_t comma = key.find(',');
  if (comma == std::string_view::npos) {
    return Refuse("\"", key, "\" is no pair; give two ids as \"3,5\"");
  }
  GAVEL_ASSIGN_OR_RETURN(const size_t a, At(key.substr(0, comma)));
  GAVEL_ASSIGN_OR_RETURN(const size_t b, At(key.substr(comma + 1)));
  if (a != b || alike) return std::pair(a, b);
  return Refuse("\"", key, "\" is a job with itself; give two ids");
}

absl::StatusOr<const ParsedJson*> OptionalTable(const ParsedJson& case_json,
                                                const std::string& key,
                                                std::string_view form) {
  if (FindField(case_json, key) == nullptr) return nullptr;
  return Field(case_json, key, ParsedJson::value_t::object, form);
}

absl::Status ParseCaseExtras(const ParsedJson& case_json, const CaseJobs& jobs,
                             PolicyProblem* problem) {
  GAVEL_RETURN_IF_ERROR(ParseCosts(case_json, problem));
  GAVEL_RETURN_IF_ERROR(ParseEntities(case_json, jobs, problem));
  GAVEL_RETURN_IF_ERROR(ParsePrevious(case_json, jobs, problem));
  constexpr Times kTimes[] = {
      {"cumulative_isolated_time", &PolicyJob::isolated_s, false},
      {"time_received", &PolicyJob::time_received_s, false},
      {"SLO_seconds_remaining", &PolicyJob::deadline_s, true}};
  for (const Times& times : kTimes) {
    GAVEL_RETURN_IF_ERROR(ParseTimes(times, case_json, jobs, problem));
  }
  return absl::OkStatus();
}

}  // namespace gavel::study
