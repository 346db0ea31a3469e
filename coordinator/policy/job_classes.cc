#include "coordinator/policy/job_classes.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "coordinator/policy/pair_table.h"

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
  if (problem.pairs != nullptr &&
      problem.pairs->kind[a] != problem.pairs->kind[b]) {
    return problem.pairs->kind[a] < problem.pairs->kind[b] ? -1 : 1;
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

PairTable TableOfClasses(const PairTable& table,
                         const std::vector<size_t>& first,
                         const std::vector<double>& members) {
  PairTable out;
  out.cells = table.cells;
  out.members = members;
  out.jobs.resize(table.jobs.size());
  for (size_t m = 0; m < first.size(); ++m) {
    if (first[m] != m) continue;
    out.jobs[table.kind[m]].push_back(static_cast<int>(out.kind.size()));
    out.kind.push_back(table.kind[m]);
    out.fastest.push_back(table.fastest[m]);
  }
  return out;
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
  if (problem.pairs != nullptr) {
    out.pairs = std::make_shared<PairTable>(
        TableOfClasses(*problem.pairs, first, members));
  }
  return out;
}

// Who each member of two classes is with, and for which part of the classes'
// time together: all members of a class have as much, of few others. Calls
// visit(member of a, member of b, part).
template <class Visit>
void Match(std::span<const int> a, std::span<const int> b, Visit visit) {
  const size_t of_a = a.size();
  const size_t of_b = b.size();
  const double all = static_cast<double>(of_a) * static_cast<double>(of_b);
  // Both lie along one line, of length of_a x of_b.
  size_t at = 0;
  while (at < of_a * of_b) {
    const size_t i = at / of_b;
    const size_t k = at / of_a;
    const size_t end = std::min((i + 1) * of_b, (k + 1) * of_a);
    visit(a[i], b[k], static_cast<double>(end - at) / all);
    at = end;
  }
}

// The same of a class with itself: in a ring.
template <class Visit>
void MatchRing(std::span<const int> a, Visit visit) {
  const size_t pairs = a.size() == 2 ? 1 : a.size();
  for (size_t i = 0; i < pairs; ++i) {
    visit(a[i], a[(i + 1) % a.size()], 1 / static_cast<double>(pairs));
  }
}

// Lists the pairs of the members with shares above 0 behind `all`.
void ListMembers(const JobClasses& classes, std::span<const double> shares,
                 ShareProblem* problem, std::vector<double>* all) {
  const ShareProblem& of = classes.problem;
  std::vector<std::vector<int>> members(of.size());
  for (size_t m = 0; m < problem->size(); ++m) {
    members[classes.class_of[m]].push_back(static_cast<int>(m));
  }
  const PairTable& table = *of.pairs;
  const size_t alone = of.cells.size() - of.listed.size();
  std::vector<ListedCell> listed;
  for (size_t i = 0; i < of.listed.size(); ++i) {
    const double share = shares[alone + i];
    if (!(share > 0)) continue;
    const auto unit = static_cast<size_t>(of.cells[alone + i].unit);
    auto a = static_cast<size_t>(of.units[unit].first);
    auto b = static_cast<size_t>(of.units[unit].second);
    const size_t cell = of.listed[i];
    if (table.kind[a] != static_cast<size_t>(table.cells[cell].first)) {
      std::swap(a, b);
    }
    const double pairs = share * table.PairsAtATime(a, b);
    const auto visit = [&](int first, int second, double part) {
      listed.push_back({first, second, cell});
      all->push_back(pairs * part);
    };
    if (a == b) {
      MatchRing(members[a], visit);
    } else {
      Match(members[a], members[b], visit);
    }
  }
  ListCells(listed, problem);
  RepairShares(*problem, *all);
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

std::vector<double> SharesOfMembers(const JobClasses& classes,
                                    std::span<const double> shares,
                                    ShareProblem* problem) {
  if (classes.members.size() == problem->size() && problem->pairs == nullptr) {
    return {shares.begin(), shares.end()};
  }
  std::vector<double> all(problem->cells.size());
  for (size_t m = 0; m < problem->size(); ++m) {
    const std::span<const JobCell> from =
        classes.problem.Cells(classes.class_of[m]);
    const std::span<const JobCell> to = problem->Cells(m);
    for (size_t i = 0; i < to.size(); ++i) {
      all[static_cast<size_t>(to[i].cell)] =
          shares[static_cast<size_t>(from[i].cell)];
    }
  }
  if (problem->pairs != nullptr) ListMembers(classes, shares, problem, &all);
  return all;
}

}  // namespace gavel
