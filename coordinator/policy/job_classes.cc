#include "coordinator/policy/job_classes.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gavel {
namespace {

// < 0, 0, > 0: an order of jobs in which equal ones are neighbours.
int Compare(const ShareProblem& problem, size_t a, size_t b) {
  const auto three = [](double x, double y) { return x < y ? -1 : x > y; };
  if (const int order =
          three(problem.scale_factor[a], problem.scale_factor[b])) {
    return order;
  }
  if (const int order = three(problem.weight[a], problem.weight[b])) {
    return order;
  }
  const std::span<const double> row_a = problem.Row(a);
  const std::span<const double> row_b = problem.Row(b);
  for (size_t c = 0; c < row_a.size(); ++c) {
    if (const int order = three(row_a[c], row_b[c])) return order;
  }
  return 0;
}

// [k] the first job that is equal to each.
std::vector<size_t> FirstEqual(const ShareProblem& problem) {
  std::vector<size_t> order(problem.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int compared = Compare(problem, a, b);
    return compared == 0 ? a < b : compared < 0;
  });
  std::vector<size_t> first(problem.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const bool equal = i > 0 && Compare(problem, order[i - 1], order[i]) == 0;
    first[order[i]] = equal ? first[order[i - 1]] : order[i];
  }
  return first;
}

// The first members' units and cells as a problem of their own.
ShareProblem FirstMembers(const ShareProblem& problem,
                          const std::vector<size_t>& first,
                          const std::vector<double>& members) {
  ShareProblem out;
  out.types = problem.types;
  out.columns = problem.columns;
  out.capacity = problem.capacity;
  out.limits = problem.limits;
  out.job_start.push_back(0);
  for (size_t m = 0; m < problem.size(); ++m) {
    if (first[m] != m) continue;
    const size_t index = out.jobs.size();
    out.jobs.push_back(problem.jobs[m]);
    out.scale_factor.push_back(problem.scale_factor[m]);
    out.weight.push_back(problem.weight[m]);
    const std::span<const double> row = problem.Row(m);
    out.throughputs.insert(out.throughputs.end(), row.begin(), row.end());
    out.units.push_back(
        {problem.units[m].id, static_cast<int>(index), /*second=*/-1});
    for (const JobCell& entry : problem.Cells(m)) {
      ShareCell cell = problem.cells[static_cast<size_t>(entry.cell)];
      cell.unit = static_cast<int>(index);
      cell.scale_factor *= members[index];
      out.job_cells.push_back(
          {static_cast<int>(out.cells.size()), entry.throughput});
      out.cells.push_back(cell);
    }
    out.job_start.push_back(out.job_cells.size());
  }
  return out;
}

}  // namespace

JobClasses ClassifyJobs(const ShareProblem& problem) {
  JobClasses classes;
  std::vector<size_t> first(problem.size());
  if (problem.units.size() == problem.size()) {
    first = FirstEqual(problem);
  } else {
    std::iota(first.begin(), first.end(), size_t{0});
  }
  classes.class_of.resize(problem.size());
  for (size_t m = 0; m < first.size(); ++m) {
    if (first[m] == m) {
      classes.class_of[m] = classes.members.size();
      classes.members.push_back(0);
    } else {
      classes.class_of[m] = classes.class_of[first[m]];
    }
    ++classes.members[classes.class_of[m]];
  }
  classes.problem = classes.members.size() == problem.size()
                        ? problem
                        : FirstMembers(problem, first, classes.members);
  return classes;
}

std::vector<double> SharesOfMembers(const ShareProblem& problem,
                                    const JobClasses& classes,
                                    std::span<const double> shares) {
  if (classes.members.size() == problem.size()) {
    return {shares.begin(), shares.end()};
  }
  std::vector<double> all(problem.cells.size());
  for (size_t m = 0; m < problem.size(); ++m) {
    const std::span<const JobCell> from =
        classes.problem.Cells(classes.class_of[m]);
    const std::span<const JobCell> to = problem.Cells(m);
    for (size_t i = 0; i < to.size(); ++i) {
      all[static_cast<size_t>(to[i].cell)] =
          shares[static_cast<size_t>(from[i].cell)];
    }
  }
  return all;
}

}  // namespace gavel
