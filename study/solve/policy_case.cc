#include "study/solve/policy_case.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "coordinator/cli/json_fields.h"
#include "core/status.h"
#include "core/text.h"
#include "study/solve/policy_case_extras.h"

namespace gavel::study {
namespace {

constexpr int64_t kIdMax = int64_t{1} << 53;
constexpr int64_t kCountMax = 1'000'000'000;

constexpr char kThroughputs[] = "throughputs";
constexpr char kApart[] = "unconsolidated_throughputs";
constexpr char kKinds[] = "kinds";
constexpr char kPairs[] = "pair_throughputs";
constexpr char kPairsApart[] = "unconsolidated_pair_throughputs";

// What the policies of some names can't do without; true where `name` has
// `part` in it.
struct Need {
  std::string_view part;
  const char* field;
};

constexpr Need kNeedsOfJobs[] = {
    {"allox", "num_steps_remaining"},
    {"finish_time_fairness", "num_steps_remaining"},
    {"finish_time_fairness", "time_since_start"},
    {"min_total_duration", "num_steps_remaining"},
    {"sjf", "num_steps_remaining"},
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

using Row = std::vector<double>;

// The throughputs of one job by type.
absl::StatusOr<Row> JobRow(const ParsedJson& table, const std::string& id,
                           const PolicyProblem& problem) {
  GAVEL_ASSIGN_OR_RETURN(
      const ParsedJson* entry,
      Field(table, id, ParsedJson::value_t::object, "{TYPE: steps/s}"));
  Row row;
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

// Those of two jobs that share, by type; 0 where nobody has measured them.
absl::StatusOr<Row> PairRow(const ParsedJson& table, const std::string& key,
                            const PolicyProblem& problem) {
  GAVEL_ASSIGN_OR_RETURN(const ParsedJson* entry,
                         Field(table, key, ParsedJson::value_t::object,
                               "{TYPE: [steps/s, steps/s]}"));
  Row row;
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
// `apart`, behind each other. What `apart` lacks is as in `together`.
template <class RowOf>
absl::StatusOr<Row> BothRows(const ParsedJson& json, const char* together,
                             const char* apart, const std::string& key,
                             const PolicyProblem& problem, RowOf row_of) {
  const ParsedJson* table = FindField(json, together);
  absl::StatusOr<Row> row = row_of(*table, key, problem);
  if (!row.ok()) return Annotate(row.status(), together);
  if (!problem.placement_sensitive()) return row;
  const ParsedJson* other = FindField(json, apart);
  if (other == nullptr || FindField(*other, key) == nullptr) other = table;
  const absl::StatusOr<Row> more = row_of(*other, key, problem);
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
    const absl::StatusOr<Row> row =
        BothRows(json, kThroughputs, kApart, id, *problem, JobRow);
    if (!row.ok()) return Annotate(row.status(), StrCat("job ", id));
    problem->throughputs.insert(problem->throughputs.end(), row->begin(),
                                row->end());
  }
  return absl::OkStatus();
}

using PairRows = std::map<std::pair<size_t, size_t>, Row>;

absl::Status AddPair(const ParsedJson& json, const std::string& key,
                     const CaseJobs& jobs, const PolicyProblem& problem,
                     PairRows* rows) {
  GAVEL_ASSIGN_OR_RETURN(auto pair, jobs.PairAt(key, !problem.kinds.empty()));
  GAVEL_ASSIGN_OR_RETURN(
      Row row, BothRows(json, kPairs, kPairsApart, key, problem, PairRow));
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

}  // namespace gavel::study
