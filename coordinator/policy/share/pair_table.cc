#include "coordinator/policy/share/pair_table.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gavel::policy {
namespace {

using UnitsOfPairs = std::map<std::pair<uint32_t, uint32_t>, uint32_t>;

// Units of pairs by their jobs, for pairs that get another cell.
UnitsOfPairs PairUnits(const ShareProblem& problem) {
  UnitsOfPairs units;
  for (size_t u = problem.size(); u < problem.units.size(); ++u) {
    const UsableUnit& unit = problem.units[u];
    units[{unit.first, static_cast<uint32_t>(unit.second)}] =
        static_cast<uint32_t>(u);
  }
  return units;
}

// What the cells added mean to the jobs in them: (job m, cell).
using Additions = std::vector<std::pair<uint32_t, JobCell>>;

// One pass: a job's new cells come behind the ones it has.
void Merge(Additions additions, ShareProblem* problem) {
  std::stable_sort(
      additions.begin(), additions.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<JobCell> merged;
  std::vector<size_t> start = {0};
  merged.reserve(problem->job_cells.size() + additions.size());
  auto next = additions.begin();
  for (size_t m = 0; m < problem->size(); ++m) {
    const std::span<const JobCell> old = problem->Cells(m);
    merged.insert(merged.end(), old.begin(), old.end());
    for (; next != additions.end() && next->first == m; ++next) {
      merged.push_back(next->second);
    }
    start.push_back(merged.size());
  }
  problem->job_cells = std::move(merged);
  problem->job_start = std::move(start);
}

}  // namespace

double PairTable::PairsAtATime(size_t a, size_t b) const {
  return a == b ? members[a] / 2 : std::min(members[a], members[b]);
}

void SetFastest(PairTable* table) {
  std::vector<double> of_kind(table->jobs.size(), 0.0);
  for (const PairCell& cell : table->cells) {
    double& first = of_kind[cell.first];
    double& second = of_kind[cell.second];
    first = std::max(first, cell.first_throughput);
    second = std::max(second, cell.second_throughput);
  }
  table->fastest.resize(table->kind.size());
  for (size_t m = 0; m < table->kind.size(); ++m) {
    table->fastest[m] = of_kind[table->kind[m]];
  }
}

void ListCells(std::span<const ListedCell> listed, ShareProblem* problem) {
  const PairTable& table = *problem->pairs;
  UnitsOfPairs units = PairUnits(*problem);
  Additions additions;
  for (const ListedCell& entry : listed) {
    const PairCell& of = table.cells[entry.cell];
    const auto a = entry.first;
    const auto b = entry.second;
    const std::pair key = std::minmax(entry.first, entry.second);
    const auto [unit, is_new] =
        units.emplace(key, static_cast<uint32_t>(problem->units.size()));
    if (is_new) {
      const auto id = [&](uint32_t m) { return problem->units[m].id.job; };
      problem->units.push_back({{id(key.first), id(key.second)},
                                key.first,
                                static_cast<int>(key.second)});
    }
    problem->listed.push_back(entry.cell);
    const double pairs = table.PairsAtATime(a, b);
    const auto index = static_cast<uint32_t>(problem->cells.size());
    problem->cells.push_back({unit->second, of.column,
                              static_cast<uint32_t>(of.column % problem->types),
                              of.placement, problem->scale_factor[a] * pairs});
    if (a == b) {
      additions.push_back({entry.first, {index, of.first_throughput, 1}});
      continue;
    }
    const double first = pairs / table.members[a];
    const double second = pairs / table.members[b];
    additions.push_back(
        {entry.first, {index, of.first_throughput * first, first}});
    additions.push_back(
        {entry.second, {index, of.second_throughput * second, second}});
  }
  Merge(std::move(additions), problem);
}

}  // namespace gavel::policy
