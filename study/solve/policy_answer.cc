#include "study/solve/policy_answer.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/table.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

namespace gavel::study {
namespace {

constexpr char kNone[] = "-";

// "3" or "3,5".
std::string UnitName(const ShareUnit& unit) {
  const std::string job = StrCat(IdInCase(unit.job));
  return unit.packed() ? StrCat(job, ",", IdInCase(unit.partner)) : job;
}

// Of the columns of an allocation.
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
