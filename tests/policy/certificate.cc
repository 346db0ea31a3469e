#include "tests/policy/certificate.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "core/text.h"

namespace gavel::testing {

PolicyProblem MakeProblem(std::vector<int> capacity,
                          const std::vector<std::vector<double>>& throughputs) {
  PolicyProblem problem;
  for (size_t j = 0; j < capacity.size(); ++j) {
    problem.types.push_back(StrCat("type", j));
  }
  problem.capacity = std::move(capacity);
  for (const std::vector<double>& row : throughputs) {
    PolicyJob job;
    job.id = JobId(problem.jobs.size() + 1);
    job.arrival_s = static_cast<double>(problem.jobs.size());
    problem.jobs.push_back(job);
    problem.throughputs.insert(problem.throughputs.end(), row.begin(),
                               row.end());
  }
  return problem;
}

PolicyProblem RandomProblem(uint64_t seed, size_t jobs_max) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t end) { return random() % end; };
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const size_t types = 1 + below(5);
  std::vector<int> capacity(types);
  for (int& count : capacity) count = static_cast<int>(below(9));
  std::vector<std::vector<double>> throughputs(1 + below(jobs_max));
  for (auto& row : throughputs) {
    const double speed = between(0.1, 100);
    for (size_t j = 0; j < types; ++j) {
      row.push_back(below(8) == 0 ? 0 : speed * between(0.2, 5));
    }
  }
  PolicyProblem problem = MakeProblem(std::move(capacity), throughputs);
  for (PolicyJob& job : problem.jobs) {
    job.scale_factor = 1 << below(4);
    job.weight = below(3) == 0 ? between(0.2, 5) : 1;
  }
  return problem;
}

std::vector<double> UsableRow(const PolicyProblem& problem, size_t job,
                              bool agnostic) {
  std::vector<double> row(problem.Row(job).begin(), problem.Row(job).end());
  for (size_t j = 0; j < row.size(); ++j) {
    if (problem.capacity[j] < problem.jobs[job].scale_factor) row[j] = 0;
    if (agnostic && row[j] > 0) row[j] = 1;
  }
  return row;
}

double NormalizedThroughput(const PolicyProblem& problem, size_t job,
                            const std::vector<double>& x, bool agnostic) {
  const std::vector<double> row = UsableRow(problem, job, agnostic);
  double proportional = 0;
  for (size_t j = 0; j < row.size(); ++j) {
    proportional += row[j] * problem.capacity[j];
  }
  proportional /=
      std::accumulate(problem.capacity.begin(), problem.capacity.end(), 0.0);
  const double throughput =
      std::inner_product(row.begin(), row.end(), x.begin(), 0.0);
  return problem.jobs[job].scale_factor * throughput /
         (problem.jobs[job].weight * proportional);
}

std::string FeasibilityErrors(const PolicyProblem& problem,
                              const PolicyResult& result) {
  constexpr double kTolerance = 1e-12;
  std::string errors;
  std::vector<double> used(problem.types.size(), 0.0);
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const PolicyJob& job = problem.jobs[m];
    const std::vector<double> usable = UsableRow(problem, m, false);
    const bool runs_nowhere = std::count(usable.begin(), usable.end(), 0.0) ==
                              static_cast<std::ptrdiff_t>(usable.size());
    const bool left_out =
        std::count(result.left_out.begin(), result.left_out.end(), job.id) == 1;
    if (left_out != runs_nowhere ||
        result.allocation.Contains(job.id) == left_out) {
      StrAppend(&errors, "job ", job.id.value(), " wrongly left out or in; ");
    }
    const std::vector<double> row = result.allocation.Row(job.id);
    double sum = 0;
    for (size_t j = 0; j < row.size(); ++j) {
      if (!(row[j] >= 0)) StrAppend(&errors, "negative share; ");
      if (row[j] > 0 && usable[j] == 0) {
        StrAppend(&errors, "job ", job.id.value(), " can't use type ", j, "; ");
      }
      used[j] += job.scale_factor * row[j];
      sum += row[j];
    }
    if (sum > 1 + kTolerance) StrAppend(&errors, "row sums to ", sum, "; ");
  }
  for (size_t j = 0; j < used.size(); ++j) {
    if (used[j] > problem.capacity[j] * (1 + kTolerance)) {
      StrAppend(&errors, "type ", j, " overloaded: ", used[j], "; ");
    }
  }
  return errors;
}

double MaxMinObjective(const PolicyProblem& problem, const PolicyResult& result,
                       bool agnostic) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    const JobId id = problem.jobs[m].id;
    if (!result.allocation.Contains(id)) continue;
    least = std::min(
        least,
        NormalizedThroughput(problem, m, result.allocation.Row(id), agnostic));
  }
  return least;
}

}  // namespace gavel::testing
