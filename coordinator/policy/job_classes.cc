#include "coordinator/policy/job_classes.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/share_problem.h"

namespace gavel::policy {
namespace {

// [k] the class of each job, in the order of their first members.
std::vector<uint32_t> Classify(const ShareProblem& problem) {
  std::vector<uint32_t> class_of(problem.size());
  if (problem.units.size() != problem.size()) {  // pairs are listed
    std::iota(class_of.begin(), class_of.end(), uint32_t{0});
    return class_of;
  }
  const auto kind = [&](size_t m) {
    return problem.pairs == nullptr ? size_t{0} : problem.pairs->kind[m];
  };
  RowTable table;
  std::vector<size_t> first;  // by class
  for (size_t m = 0; m < problem.size(); ++m) {
    uint64_t hash = AddToHash(0, problem.scale_factor[m]);
    hash = AddToHash(hash, problem.weight[m]);
    hash = AddToHash(hash, problem.Row(m));
    class_of[m] = table.Number(hash, [&](uint32_t other) {
      const size_t a = first[other];
      return problem.scale_factor[a] == problem.scale_factor[m] &&
             problem.weight[a] == problem.weight[m] && kind(a) == kind(m) &&
             std::ranges::equal(problem.Row(a), problem.Row(m));
    });
    if (class_of[m] == first.size()) first.push_back(m);
  }
  return class_of;
}

PairTable TableOfClasses(const PairTable& table,
                         const std::vector<size_t>& first,
                         const std::vector<double>& members) {
  PairTable out;
  out.cells = table.cells;
  out.members = members;
  out.jobs.resize(table.jobs.size());
  for (const size_t m : first) {
    out.jobs[table.kind[m]].push_back(static_cast<uint32_t>(out.kind.size()));
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
  for (const size_t m : first) {
    const auto index = static_cast<uint32_t>(out.jobs.size());
    out.jobs.push_back(problem.jobs[m]);
    out.scale_factor.push_back(problem.scale_factor[m]);
    out.weight.push_back(problem.weight[m]);
    const std::span<const double> row = problem.Row(m);
    out.throughputs.insert(out.throughputs.end(), row.begin(), row.end());
    out.units.push_back({problem.units[m].id, index, /*second=*/-1});
    for (const JobCell& entry : problem.Cells(m)) {
      ShareCell cell = problem.cells[entry.cell];
      cell.unit = index;
      cell.scale_factor *= members[index];
      out.job_cells.push_back(
          {static_cast<uint32_t>(out.cells.size()), entry.throughput});
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

// The partners of each member of two classes, and the part of the classes'
// time together for each: all members of a class have the same time, with few
// partners. Calls visit(member of a, member of b, part).
template <class Visit>
void Match(std::span<const uint32_t> a, std::span<const uint32_t> b,
           Visit visit) {
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
void MatchRing(std::span<const uint32_t> a, Visit visit) {
  const size_t pairs = a.size() == 2 ? 1 : a.size();
  for (size_t i = 0; i < pairs; ++i) {
    visit(a[i], a[(i + 1) % a.size()], 1 / static_cast<double>(pairs));
  }
}

// Lists the pairs of the members with shares above 0 behind `all`.
void ListMembers(const JobClasses& classes, std::span<const double> shares,
                 ShareProblem* problem, std::vector<double>* all) {
  const ShareProblem& of = classes.problem;
  std::vector<std::vector<uint32_t>> members(of.size());
  for (size_t m = 0; m < problem->size(); ++m) {
    members[classes.class_of[m]].push_back(static_cast<uint32_t>(m));
  }
  const PairTable& table = *of.pairs;
  const size_t alone = of.cells.size() - of.listed.size();
  std::vector<ListedCell> listed;
  for (size_t i = 0; i < of.listed.size(); ++i) {
    const double share = shares[alone + i];
    if (!(share > 0)) continue;
    const auto unit = of.cells[alone + i].unit;
    auto a = of.units[unit].first;
    auto b = static_cast<uint32_t>(of.units[unit].second);
    const size_t cell = of.listed[i];
    if (table.kind[a] != table.cells[cell].first) {
      std::swap(a, b);
    }
    const double pairs = share * table.PairsAtATime(a, b);
    const auto visit = [&](uint32_t first, uint32_t second, double part) {
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

// Job m stands for copies[m] of its kind, for one where that is empty. Without
// a problem where all jobs are different and stand for one.
JobClasses Grouped(const ShareProblem& problem,
                   std::span<const double> copies) {
  JobClasses classes;
  classes.class_of = Classify(problem);
  std::vector<size_t> first;  // by class
  for (size_t m = 0; m < problem.size(); ++m) {
    if (classes.class_of[m] == first.size()) {
      first.push_back(m);
      classes.members.push_back(0);
    }
    classes.members[classes.class_of[m]] += copies.empty() ? 1 : copies[m];
  }
  if (first.size() < problem.size() || !copies.empty()) {
    classes.problem = FirstMembers(problem, first, classes.members);
  }
  return classes;
}

// One job for each row of the problem, in the order of the first that have it:
// whatever the numbers of the rows are.
struct Kinds {
  PolicyProblem problem;
  std::vector<size_t> first;      // by kind
  std::vector<double> copies;     // by kind
  std::vector<uint32_t> kind_of;  // [n]
};

// nullopt: few jobs are equal.
std::optional<Kinds> KindsOf(const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  const bool known = problem.rows.row_of.size() == n;
  const JobRows found = known ? JobRows() : JobRows(problem, n / 2);
  const JobRows& rows = known ? problem.rows : found;
  if (rows.row_of.size() < n) return std::nullopt;
  Kinds kinds;
  kinds.problem.types = problem.types;
  kinds.problem.capacity = problem.capacity;
  kinds.problem.servers = problem.servers;
  kinds.kind_of.reserve(n);
  std::vector<uint32_t> kind_of_row(rows.size(), kLeftOut);
  for (size_t m = 0; m < n; ++m) {
    uint32_t& kind = kind_of_row[rows.row_of[m]];
    if (kind == kLeftOut) {
      kind = static_cast<uint32_t>(kinds.first.size());
      kinds.first.push_back(m);
      kinds.copies.push_back(0);
      kinds.problem.jobs.push_back(problem.jobs[m]);
      const std::span<const double> row = problem.Row(m);
      kinds.problem.throughputs.insert(kinds.problem.throughputs.end(),
                                       row.begin(), row.end());
    }
    kinds.kind_of.push_back(kind);
    ++kinds.copies[kind];
  }
  if (kinds.first.size() > n / 2) return std::nullopt;
  return kinds;
}

}  // namespace

JobClasses ClassifyJobs(const ShareProblem& problem) {
  JobClasses classes = Grouped(problem, {});
  if (classes.members.size() == problem.size()) classes.problem = problem;
  return classes;
}

JobClasses ClassesOf(const PolicyProblem& problem, ShareOptions options) {
  options.pairs = options.pairs_unlisted = false;
  const std::optional<Kinds> kinds = KindsOf(problem);
  const PolicyProblem& of = kinds.has_value() ? kinds->problem : problem;
  // Some can run nowhere, and of some kinds jobs are equal where they can.
  ShareProblem usable = MakeShareProblem(of, options);
  std::vector<double> copies;
  if (kinds.has_value()) {
    for (const size_t kind : usable.jobs) copies.push_back(kinds->copies[kind]);
  }
  JobClasses classes = Grouped(usable, copies);
  std::vector<uint32_t> class_of(of.jobs.size(), kLeftOut);
  for (size_t i = 0; i < usable.size(); ++i) {
    class_of[usable.jobs[i]] = classes.class_of[i];
  }
  classes.class_of = std::move(class_of);
  const bool all_different = classes.members.size() == usable.size();
  if (all_different && copies.empty()) classes.problem = std::move(usable);
  if (kinds.has_value()) {
    for (size_t& job : classes.problem.jobs) job = kinds->first[job];
    class_of = kinds->kind_of;
    for (uint32_t& kind : class_of) kind = classes.class_of[kind];
    classes.class_of = std::move(class_of);
  }
  classes.problem.left_out.clear();
  for (size_t m = 0; m < classes.class_of.size(); ++m) {
    if (classes.class_of[m] != kLeftOut) continue;
    classes.problem.left_out.push_back(problem.jobs[m].id);
  }
  return classes;
}

PolicyResult ToResult(const PolicyProblem& problem, const JobClasses& classes,
                      std::span<const double> shares, double objective,
                      double bound) {
  const ShareProblem& of = classes.problem;
  std::vector<double> rows(of.size() * of.columns, 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    const ShareCell& cell = of.cells[i];
    rows[cell.unit * of.columns + cell.column] = shares[i];
  }
  std::vector<ShareUnit> units;
  std::vector<uint32_t> class_of;
  units.reserve(problem.jobs.size());
  class_of.reserve(problem.jobs.size());
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    if (classes.class_of[m] == kLeftOut) continue;
    units.push_back({problem.jobs[m].id, JobId()});
    class_of.push_back(classes.class_of[m]);
  }
  PolicyResult result = ToResult(of, {}, objective, bound);
  result.allocation = Allocation::FromClasses(
      std::move(units), std::move(class_of), of.columns, std::move(rows));
  return result;
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
      all[to[i].cell] = shares[from[i].cell];
    }
  }
  if (problem->pairs != nullptr) ListMembers(classes, shares, problem, &all);
  return all;
}

}  // namespace gavel::policy
