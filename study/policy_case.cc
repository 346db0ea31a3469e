#include "study/policy_case.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/json_fields.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"

namespace gavel::study {
namespace {

// ---- the part of a case that only some policies use: costs, entities, the
// present allocation, times and deadlines

// The jobs of a file: indices into PolicyProblem::jobs.
struct CaseJobs {
  std::map<int64_t, size_t> by_id;
  std::vector<size_t> in_order;  // of the file

  absl::StatusOr<size_t> At(std::string_view id) const;
  // The two jobs of a key "A,B". "A,A" is allowed only with `alike`.
  absl::StatusOr<std::pair<size_t, size_t>> PairAt(std::string_view key,
                                                   bool alike = false) const;
};

// Returns an optional field of a case, or null without it. `form` says in the
// error what to give. INVALID_ARGUMENT: the field is no object.
absl::StatusOr<const ParsedJson*> OptionalTable(const ParsedJson& case_json,
                                                const std::string& key,
                                                std::string_view form) {
  if (FindField(case_json, key) == nullptr) return nullptr;
  return Field(case_json, key, ParsedJson::value_t::object, form);
}

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

// Adds the losses of one job. The last one belongs to its present step.
absl::Status AddLosses(const ParsedJson& points, size_t m,
                       PolicyProblem* problem) {
  constexpr char kForm[] = "give [[step, loss], ...] with ascending steps";
  if (!points.is_array()) return Refuse(points.type_name(), "; ", kForm);
  double& steps_done = problem->jobs[m].steps_done;
  steps_done = -1;
  for (const ParsedJson& point : points) {
    if (!point.is_array() || point.size() != 2) {
      return Refuse(point.dump(), "; ", kForm);
    }
    GAVEL_ASSIGN_OR_RETURN(const double steps, NotNegative(point[0], "a step"));
    GAVEL_ASSIGN_OR_RETURN(const double loss, Number(point[1], "a loss"));
    if (!(steps > steps_done)) return Refuse("step ", steps, "; ", kForm);
    steps_done = steps;
    problem->losses.push_back({m, steps, loss});
  }
  steps_done = std::max(0.0, steps_done);
  return absl::OkStatus();
}

absl::Status ParseLosses(const ParsedJson& json, const CaseJobs& jobs,
                         PolicyProblem* problem) {
  constexpr char kKey[] = "losses";
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* losses,
                         OptionalTable(json, kKey, "{ID: [[step, loss]]}"));
  if (losses == nullptr) return absl::OkStatus();
  for (const auto& [id, points] : losses->items()) {
    const absl::StatusOr<size_t> m = jobs.At(id);
    if (!m.ok()) return Annotate(m.status(), kKey);
    GAVEL_RETURN_IF_ERROR(
        Annotate(AddLosses(points, *m, problem), StrCat(kKey, " of job ", id)));
  }
  std::ranges::stable_sort(problem->losses, {}, &PolicyLoss::job);
  return absl::OkStatus();
}

// Fills in `problem`, which has its types and jobs. `case_json` is an object.
absl::Status ParseCaseExtras(const ParsedJson& case_json, const CaseJobs& jobs,
                             PolicyProblem* problem) {
  GAVEL_RETURN_IF_ERROR(ParseCosts(case_json, problem));
  GAVEL_RETURN_IF_ERROR(ParseEntities(case_json, jobs, problem));
  GAVEL_RETURN_IF_ERROR(ParsePrevious(case_json, jobs, problem));
  GAVEL_RETURN_IF_ERROR(ParseLosses(case_json, jobs, problem));
  constexpr Times kTimes[] = {
      {"cumulative_isolated_time", &PolicyJob::isolated_s, false},
      {"time_received", &PolicyJob::time_received_s, false},
      {"SLO_seconds_remaining", &PolicyJob::deadline_s, true}};
  for (const Times& times : kTimes) {
    GAVEL_RETURN_IF_ERROR(ParseTimes(times, case_json, jobs, problem));
  }
  return absl::OkStatus();
}

// ---- a case

constexpr int64_t kIdMax = int64_t{1} << 53;
constexpr int64_t kCountMax = 1'000'000'000;

constexpr char kThroughputs[] = "throughputs";
constexpr char kApart[] = "unconsolidated_throughputs";
constexpr char kKinds[] = "kinds";
constexpr char kPairs[] = "pair_throughputs";
constexpr char kPairsApart[] = "unconsolidated_pair_throughputs";

// A field that policies need if their name contains `part`.
struct Need {
  std::string_view part;
  const char* field;
};

constexpr Need kNeedsOfJobs[] = {
    {"allox", "num_steps_remaining"},
    {"finish_time_fairness", "num_steps_remaining"},
    {"finish_time_fairness", "time_since_start"},
    {"min_total_duration", "num_steps_remaining"},
    {"optimus", "num_steps_remaining"},
    {"sjf", "num_steps_remaining"},
    {"slaq", "num_steps_remaining"},
    {"srtf", "num_steps_remaining"},
    {"strawman", "num_steps_remaining"},
    {"strawman", "time_since_start"},
    {"themis", "num_steps_remaining"},
    {"themis", "time_since_start"},
    {"SLOs", "num_steps_remaining"},
};

constexpr Need kNeedsOfCases[] = {
    {"cost", "instance_costs"},
    {"finish_time_fairness", "cumulative_isolated_time"},
    {"gandiva", kPairs},
    {"packed", kPairs},
    {"SLOs", "SLO_seconds_remaining"},
};

absl::Status CheckNeeds(std::span<const Need> needs, const ParsedJson& json,
                        std::string_view policy) {
  for (const Need& need : needs) {
    if (policy.find(need.part) == std::string_view::npos) continue;
    if (policy == "gandiva_reactive") continue;  // it needs no pairs
    if (FindField(json, need.field) != nullptr) continue;
    return Refuse(need.field, " is missing; ", policy, " needs it");
  }
  return absl::OkStatus();
}

absl::Status ReadCluster(const ParsedJson& json, PolicyProblem* problem) {
  constexpr char kForm[] = "{TYPE: accelerators}";
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* spec,
      Field(json, "cluster_spec", ParsedJson::value_t::object, kForm));
  for (const auto& [type, count] : spec->items()) {  // by name
    GAVEL_ASSIGN_OR_RETURN(
        const int64_t accelerators,
        Whole(count, StrCat("cluster_spec: ", type), 0, kCountMax));
    problem->types.push_back(type);
    problem->capacity.push_back(static_cast<int>(accelerators));
  }
  if (!problem->types.empty()) return absl::OkStatus();
  return Refuse("cluster_spec has no types; give ", kForm);
}

absl::Status ParseServers(const ParsedJson& json, PolicyProblem* problem) {
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* servers,
      OptionalTable(json, "servers", "{TYPE: [accelerators of each server]}"));
  if (servers == nullptr) return absl::OkStatus();
  for (size_t j = 0; j < problem->types.size(); ++j) {
    const std::string& type = problem->types[j];
    std::vector<int> sizes;
    int64_t sum = 0;
    for (const ParsedJson& size : servers->value(type, ParsedJson::array())) {
      GAVEL_ASSIGN_OR_RETURN(
          const int64_t count,
          Whole(size, StrCat("servers: ", type), 1, kCountMax));
      sizes.push_back(static_cast<int>(count));
      sum += count;
    }
    if (sum != problem->capacity[j]) {
      return Refuse("servers: those of ", type, " have ", sum,
                    " accelerators, cluster_spec ", problem->capacity[j],
                    "; make them equal");
    }
    problem->servers.push_back(std::move(sizes));
  }
  return absl::OkStatus();
}

absl::StatusOr<PolicyJob> ParseJob(const ParsedJson& json) {
  PolicyJob job;
  const ParsedJson* scale_factor = FindField(json, "scale_factor");
  if (scale_factor == nullptr) {
    return Refuse("scale_factor is missing; give its number of accelerators");
  }
  GAVEL_ASSIGN_OR_RETURN(const int64_t count,
                         Whole(*scale_factor, "scale_factor", 1, kCountMax));
  job.scale_factor = static_cast<int>(count);
  if (const ParsedJson* weight = FindField(json, "priority_weight")) {
    GAVEL_ASSIGN_OR_RETURN(job.weight, Positive(*weight, "priority_weight"));
  }
  const std::pair<const char*, double*> numbers[] = {
      {"num_steps_remaining", &job.steps_remaining},
      {"time_since_start", &job.time_since_start_s}};
  for (const auto& [key, number] : numbers) {
    if (const ParsedJson* value = FindField(json, key)) {
      GAVEL_ASSIGN_OR_RETURN(*number, NotNegative(*value, key));
    }
  }
  return job;
}

// `place`: in the file's list.
absl::StatusOr<PolicyJob> ParseJobWithId(const ParsedJson& json, size_t place,
                                         std::string_view policy) {
  const std::string where = StrCat("jobs[", place, "]");
  if (!json.is_object()) {
    return Refuse(where, " is ", json.type_name(),
                  "; give {id, scale_factor, ...}");
  }
  const ParsedJson* field = FindField(json, "id");
  if (field == nullptr) {
    return Refuse(where, ": id is missing; give a whole number");
  }
  GAVEL_ASSIGN_OR_RETURN(const int64_t id,
                         Whole(*field, StrCat(where, ": id"), 0, kIdMax));
  absl::StatusOr<PolicyJob> job = ParseJob(json);
  if (job.ok()) {
    const absl::Status needs = CheckNeeds(kNeedsOfJobs, json, policy);
    if (!needs.ok()) job = needs;
  }
  if (!job.ok()) return Annotate(job.status(), StrCat("job ", id));
  job->id = JobIdOfCase(id);
  job->arrival_s = static_cast<double>(id);
  return job;
}

absl::StatusOr<CaseJobs> ParseJobs(const ParsedJson& json,
                                   std::string_view policy,
                                   PolicyProblem* problem) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* list,
                         Field(json, "jobs", ParsedJson::value_t::array,
                               "[{id, scale_factor, ...}]"));
  CaseJobs jobs;
  std::vector<int64_t> ids;  // in the order of the file
  for (const ParsedJson& one : *list) {
    GAVEL_ASSIGN_OR_RETURN(const PolicyJob job,
                           ParseJobWithId(one, ids.size(), policy));
    ids.push_back(IdInCase(job.id));
    if (!jobs.by_id.emplace(ids.back(), 0).second) {
      return Refuse("job ", ids.back(), " is there twice; give each id once");
    }
    problem->jobs.push_back(job);
  }
  std::sort(problem->jobs.begin(), problem->jobs.end(),
            [](const PolicyJob& a, const PolicyJob& b) { return a.id < b.id; });
  size_t m = 0;
  for (auto& [id, index] : jobs.by_id) index = m++;
  for (const int64_t id : ids) jobs.in_order.push_back(jobs.by_id.at(id));
  return jobs;
}

using CaseRow = std::vector<double>;

// The throughputs of one job by type.
absl::StatusOr<CaseRow> JobRow(const ParsedJson& table, const std::string& id,
                               const PolicyProblem& problem) {
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* entry,
      Field(table, id, ParsedJson::value_t::object, "{TYPE: steps/s}"));
  CaseRow row;
  for (const std::string& type : problem.types) {
    const ParsedJson* value = FindField(*entry, type);
    if (value == nullptr) {
      return Refuse("the one on ", type,
                    " is missing; give steps/s, 0 where it cannot run");
    }
    GAVEL_ASSIGN_OR_RETURN(const double throughput,
                           NotNegative(*value, StrCat("the one on ", type)));
    row.push_back(throughput);
  }
  return row;
}

// The throughputs of two jobs that share, by type; 0 where none is given.
absl::StatusOr<CaseRow> PairRow(const ParsedJson& table, const std::string& key,
                                const PolicyProblem& problem) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* entry,
                         Field(table, key, ParsedJson::value_t::object,
                               "{TYPE: [steps/s, steps/s]}"));
  CaseRow row;
  for (const std::string& type : problem.types) {
    const std::string what = StrCat("the one on ", type);
    const ParsedJson* both = FindField(*entry, type);
    if (both == nullptr) {
      row.insert(row.end(), {0, 0});
      continue;
    }
    if (!both->is_array() || both->size() != 2) {
      return Refuse(what, " is no pair of numbers; give [steps/s, steps/s]");
    }
    for (const ParsedJson& one : *both) {
      GAVEL_ASSIGN_OR_RETURN(const double throughput, NotNegative(one, what));
      row.push_back(throughput);
    }
  }
  return row;
}

// The rows of `key` in the tables `together` and, where placement matters,
// `apart`, concatenated. A row that `apart` lacks is that of `together`.
template <class RowOf>
absl::StatusOr<CaseRow> BothRows(const ParsedJson& json, const char* together,
                                 const char* apart, const std::string& key,
                                 const PolicyProblem& problem, RowOf row_of) {
  const ParsedJson* table = FindField(json, together);
  absl::StatusOr<CaseRow> row = row_of(*table, key, problem);
  if (!row.ok()) return Annotate(row.status(), together);
  if (!problem.placement_sensitive()) return row;
  const ParsedJson* other = FindField(json, apart);
  if (other == nullptr || FindField(*other, key) == nullptr) other = table;
  const absl::StatusOr<CaseRow> more = row_of(*other, key, problem);
  if (!more.ok()) return Annotate(more.status(), apart);
  row->insert(row->end(), more->begin(), more->end());
  return row;
}

absl::Status ParseThroughputs(const ParsedJson& json, PolicyProblem* problem) {
  constexpr char kForm[] = "{ID: {TYPE: steps/s}}";
  GAVEL_RETURN_IF_ERROR(OptionalTable(json, kApart, kForm).status());
  GAVEL_RETURN_IF_ERROR(
      Field(json, kThroughputs, ParsedJson::value_t::object, kForm).status());
  for (const PolicyJob& job : problem->jobs) {
    const std::string id = StrCat(IdInCase(job.id));
    const absl::StatusOr<CaseRow> row =
        BothRows(json, kThroughputs, kApart, id, *problem, JobRow);
    if (!row.ok()) return Annotate(row.status(), StrCat("job ", id));
    problem->throughputs.insert(problem->throughputs.end(), row->begin(),
                                row->end());
  }
  return absl::OkStatus();
}

using PairRows = std::map<std::pair<size_t, size_t>, CaseRow>;

absl::Status AddPair(const ParsedJson& json, const std::string& key,
                     const CaseJobs& jobs, const PolicyProblem& problem,
                     PairRows* rows) {
  GAVEL_ASSIGN_OR_RETURN(auto pair, jobs.PairAt(key, !problem.kinds.empty()));
  GAVEL_ASSIGN_OR_RETURN(
      CaseRow row, BothRows(json, kPairs, kPairsApart, key, problem, PairRow));
  if (pair.first > pair.second) {
    std::swap(pair.first, pair.second);
    for (size_t i = 0; i < row.size(); i += 2) std::swap(row[i], row[i + 1]);
  }
  // Gangs of different sizes don't share.
  if (problem.jobs[pair.first].scale_factor !=
      problem.jobs[pair.second].scale_factor) {
    return absl::OkStatus();
  }
  if (rows->emplace(pair, std::move(row)).second) return absl::OkStatus();
  return Refuse(kPairs, ": it is there twice; give each pair once");
}

absl::Status ParseKinds(const ParsedJson& json, const CaseJobs& jobs,
                        PolicyProblem* problem) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* table,
                         OptionalTable(json, kKinds, "{ID: ID}"));
  if (table == nullptr) return absl::OkStatus();
  for (size_t m = 0; m < problem->jobs.size(); ++m) problem->kinds.push_back(m);
  for (const auto& [key, like] : table->items()) {
    const absl::StatusOr<size_t> job = jobs.At(key);
    if (!job.ok()) return Annotate(job.status(), kKinds);
    GAVEL_ASSIGN_OR_RETURN(
        const int64_t id,
        Whole(like, StrCat(kKinds, ": that of ", key), 0, kIdMax));
    const absl::StatusOr<size_t> other = jobs.At(StrCat(id));
    if (!other.ok()) return Annotate(other.status(), kKinds);
    problem->kinds[*job] = *other;
  }
  return absl::OkStatus();
}

absl::Status ParsePairs(const ParsedJson& json, const CaseJobs& jobs,
                        PolicyProblem* problem) {
  constexpr char kForm[] = "{\"A,B\": {TYPE: [of A, of B]}}";
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* table,
                         OptionalTable(json, kPairs, kForm));
  if (table == nullptr) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(OptionalTable(json, kPairsApart, kForm).status());
  PairRows rows;
  for (const auto& [key, entry] : table->items()) {
    GAVEL_RETURN_IF_ERROR(Annotate(AddPair(json, key, jobs, *problem, &rows),
                                   StrCat("pair ", key)));
  }
  for (const auto& [pair, row] : rows) {
    problem->pairs.push_back({pair.first, pair.second});
    problem->pair_throughputs.insert(problem->pair_throughputs.end(),
                                     row.begin(), row.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<PolicyProblem> ParseProblem(const ParsedJson& json,
                                           std::string_view policy) {
  if (!json.is_object()) {
    return Refuse("it is ", json.type_name(),
                  "; give {cluster_spec, jobs, throughputs}");
  }
  PolicyProblem problem;
  GAVEL_RETURN_IF_ERROR(ReadCluster(json, &problem));
  GAVEL_RETURN_IF_ERROR(ParseServers(json, &problem));
  GAVEL_ASSIGN_OR_RETURN(const auto jobs, ParseJobs(json, policy, &problem));
  GAVEL_RETURN_IF_ERROR(ParseThroughputs(json, &problem));
  GAVEL_RETURN_IF_ERROR(ParseKinds(json, jobs, &problem));
  GAVEL_RETURN_IF_ERROR(ParsePairs(json, jobs, &problem));
  GAVEL_RETURN_IF_ERROR(ParseCaseExtras(json, jobs, &problem));
  GAVEL_RETURN_IF_ERROR(CheckNeeds(kNeedsOfCases, json, policy));
  return problem;
}

// The case at `place` of the file.
absl::StatusOr<PolicyCase> ParseCase(const ParsedJson& json, size_t place,
                                     std::string_view policy) {
  PolicyCase result;
  result.number = static_cast<int64_t>(place);
  const ParsedJson* number =
      json.is_object() ? FindField(json, "case") : nullptr;
  if (number != nullptr) {
    GAVEL_ASSIGN_OR_RETURN(
        result.number,
        Whole(*number, StrCat("cases[", place, "]: case"), 0, kIdMax));
  }
  absl::StatusOr<PolicyProblem> problem = ParseProblem(json, policy);
  if (!problem.ok()) {
    return Annotate(problem.status(), StrCat("case ", result.number));
  }
  result.problem = *std::move(problem);
  return result;
}

}  // namespace

bool PolicyNeeds(std::string_view policy, std::string_view field) {
  const auto needs = [&](const Need& need) {
    return field == need.field && policy.find(need.part) != policy.npos;
  };
  return std::ranges::any_of(kNeedsOfJobs, needs) ||
         std::ranges::any_of(kNeedsOfCases, needs);
}

std::string WithIdsOfCase(std::string_view text) {
  constexpr std::string_view kJob = "job ";
  std::string result;
  while (!text.empty()) {
    const size_t job = std::min(text.find(kJob), text.size());
    const size_t begin = std::min(job + kJob.size(), text.size());
    result += text.substr(0, begin);
    text.remove_prefix(begin);
    size_t digits = 0;
    while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
    uint64_t id = 0;
    if (!absl::SimpleAtoi(ToAbsl(text.substr(0, digits)), &id)) continue;
    StrAppend(&result, IdInCase(JobId(id)));
    text.remove_prefix(digits);
  }
  return result;
}

absl::StatusOr<std::vector<PolicyCase>> ParsePolicyCases(
    const ParsedJson& file, std::string_view policy) {
  std::vector<PolicyCase> cases;
  std::span<const ParsedJson> all(&file, 1);
  if (file.is_object() && FindField(file, "cases") != nullptr) {
    GAVEL_ASSIGN_OR_RETURN(
        const ParsedJson* list,
        Field(file, "cases", ParsedJson::value_t::array, "[CASE]"));
    all = list->get_ref<const ParsedJson::array_t&>();
  }
  for (const ParsedJson& json : all) {
    GAVEL_ASSIGN_OR_RETURN(auto one, ParseCase(json, cases.size(), policy));
    cases.push_back(std::move(one));
  }
  return cases;
}

// ---- examples

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
  "previous_allocation": {"0": {"v100": 1.0}},
  "losses": {"0": [[1000, 2.0], [2000, 1.6], [4000, 1.2], [8000, 0.9]]}
})json";

// A field that policies use but do not need if their name contains `part`.
struct Use {
  std::string_view part;
  std::string_view field;
};
constexpr Use kUses[] = {
    {"water_filling", "entities"},
    {"gandiva", "previous_allocation"},
    {"optimus", "losses"},
    {"slaq", "losses"},
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

// ---- answers

namespace {

constexpr char kNone[] = "-";

// "3" or "3,5".
std::string UnitName(const ShareUnit& unit) {
  const std::string job = StrCat(IdInCase(unit.job));
  return unit.packed() ? StrCat(job, ",", IdInCase(unit.partner)) : job;
}

// The names of the columns of an allocation.
std::vector<std::string> ColumnNames(const PolicyProblem& problem,
                                     size_t columns) {
  std::vector<std::string> names = problem.types;
  for (size_t c = names.size(); c < columns; ++c) {
    names.push_back(problem.types[problem.TypeOfColumn(c)] + "_unconsolidated");
  }
  return names;
}

struct Shares {
  std::vector<std::string> columns;
  std::map<ShareUnit, std::vector<double>> rows;
};

Shares SharesOf(const PolicyProblem& problem, const PolicyResult& result) {
  if (!result.is_assignment) {
    const Allocation& allocation = result.allocation;
    Shares shares{ColumnNames(problem, allocation.columns()), {}};
    for (const ShareUnit& unit : allocation.units()) {
      std::vector<double> row = allocation.Row(unit);
      const bool idle =
          std::ranges::all_of(row, [](double share) { return share == 0; });
      if (!unit.packed() || !idle) shares.rows[unit] = std::move(row);
    }
    return shares;
  }
  Shares shares{problem.types, {}};
  const std::vector<double> none(problem.types.size(), 0.0);
  for (const PolicyJob& job : problem.jobs) {
    if (std::ranges::count(result.left_out, job.id) > 0) continue;
    shares.rows[{job.id, JobId()}] = none;
  }
  for (const TypeAssignment& entry : result.assignment) {
    shares.rows.emplace(entry.unit, none).first->second[entry.type] = 1;
  }
  return shares;
}

std::vector<int64_t> LeftOutIds(const PolicyResult& result) {
  std::vector<int64_t> ids;
  for (const JobId job : result.left_out) ids.push_back(IdInCase(job));
  return ids;
}

Json AnswerJson(const PolicyAnswer& answer) {
  const PolicyResult& result = answer.result;
  const Shares shares = SharesOf(answer.of.problem, result);
  Json allocation = Json::object();
  for (const auto& [unit, row] : shares.rows) {
    Json& entry = allocation[UnitName(unit)] = Json::object();
    for (size_t c = 0; c < row.size(); ++c) entry[shares.columns[c]] = row[c];
  }
  return {{"case", answer.of.number},
          {"status", OutcomeName(result.outcome)},
          {"allocation", std::move(allocation)},
          {"objective", result.objective},
          {"bound", result.bound},
          {"gap", result.gap},
          {"solver", result.solver},
          {"iterations", result.iterations},
          {"time_s", answer.time_s},
          {"left_out", LeftOutIds(result)},
          {"reason", WithIdsOfCase(result.detail)}};
}

std::string OrNone(std::string text) { return text.empty() ? kNone : text; }

std::string RenderSummary(const std::vector<PolicyAnswer>& answers,
                          size_t width) {
  TableRows rows;
  for (const PolicyAnswer& answer : answers) {
    const PolicyResult& result = answer.result;
    rows.push_back(
        {StrCat(answer.of.number), std::string(OutcomeName(result.outcome)),
         StrCat(answer.of.problem.jobs.size()),
         absl::StrFormat("%.6g", result.objective),
         absl::StrFormat("%.6g", result.bound),
         absl::StrFormat("%.1e", result.gap), result.solver,
         result.iterations > 0 ? StrCat(result.iterations) : std::string(kNone),
         absl::StrFormat("%.3f", answer.time_s),
         OrNone(absl::StrJoin(LeftOutIds(result), ",")),
         OrNone(WithIdsOfCase(result.detail))});
  }
  return RenderTable(
      {Right("CASE"), Left("STATUS"), Right("JOBS"), Right("OBJECTIVE"),
       Right("BOUND"), Right("GAP"), Left("SOLVER"), Right("ITERATIONS"),
       Right("TIME_S"), Left("LEFT_OUT", 14), Left("REASON")},
      rows, width);
}

std::string RenderShares(const Shares& shares, size_t width) {
  std::vector<Column> columns = {Left("JOB")};
  for (const std::string& name : shares.columns) columns.push_back(Right(name));
  TableRows rows;
  for (const auto& [unit, row] : shares.rows) {
    rows.push_back({UnitName(unit)});
    for (const double share : row) {
      rows.back().push_back(share == 0 ? kNone
                                       : absl::StrFormat("%.4f", share));
    }
  }
  return RenderTable(columns, rows, width);
}

}  // namespace

Json AnswersJson(std::string_view policy,
                 const std::vector<PolicyAnswer>& answers) {
  Json json;
  json["policy"] = policy;
  json["cases"] = Json::array();
  for (const PolicyAnswer& answer : answers) {
    json["cases"].push_back(AnswerJson(answer));
  }
  return json;
}

std::string RenderAnswers(std::string_view policy,
                          const std::vector<PolicyAnswer>& answers,
                          size_t width) {
  std::string text = StrCat(policy, "\n", RenderSummary(answers, width));
  if (answers.size() != 1) return text;
  const PolicyAnswer& answer = answers.front();
  if (!answer.result.detail.empty()) {
    StrAppend(&text, "\n", WithIdsOfCase(answer.result.detail), "\n");
  }
  StrAppend(&text, "\n",
            RenderShares(SharesOf(answer.of.problem, answer.result), width));
  return text;
}

}  // namespace gavel::study
