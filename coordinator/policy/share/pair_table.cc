#include "coordinator/policy/share/pair_table.h"

#include <algorithm>
#include <utility>

namespace gavel {
namespace {

// Units of pairs by their jobs, for pairs that get another cell.
std::map<std::pair<int, int>, int> PairUnits(const ShareProblem& problem) {
  std::map<std::pair<int, int>, int> units;
  for (size_t u = problem.size(); u < problem.units.size(); ++u) {
    const UsableUnit& unit = problem.units[u];
    units[{unit.first, unit.second}] = static_cast<int>(u);
  }
  return units;
}

// What the cells added mean to the jobs in them, by job.
struct Additions {
  std::vector<std::pair<int, JobCell>> entries;  // (job m, cell)

  void Add(int job, int cell, double throughput, double time) {
    entries.push_back({job, {cell, throughput, time}});
  }
};

// One pass: a job's new cells come behind the ones it has.
void Merge(Additions additions, ShareProblem* problem) {
  std::stable_sort(
      additions.entries.begin(), additions.entries.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<JobCell> merged;
  std::vector<size_t> start = {0};
  merged.reserve(problem->job_cells.size() + additions.entries.size());
  auto next = additions.entries.begin();
  for (size_t m = 0; m < problem->size(); ++m) {
    const std::span<const JobCell> old = problem->Cells(m);
    merged.insert(merged.end(), old.begin(), old.end());
    for (;
         next != additions.entries.end() && next->first == static_cast<int>(m);
         ++next) {
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
    double& first = of_kind[static_cast<size_t>(cell.first)];
    double& second = of_kind[static_cast<size_t>(cell.second)];
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
  std::map<std::pair<int, int>, int> units = PairUnits(*problem);
  Additions additions;
  for (const ListedCell& entry : listed) {
    const PairCell& of = table.cells[entry.cell];
    const auto a = static_cast<size_t>(entry.first);
    const auto b = static_cast<size_t>(entry.second);
    const std::pair key = std::minmax(entry.first, entry.second);
    const auto [unit, is_new] =
        units.emplace(key, static_cast<int>(problem->units.size()));
    if (is_new) {
      const auto id = [&](int m) {
        return problem->units[static_cast<size_t>(m)].id.job;
      };
      problem->units.push_back(
          {{id(key.first), id(key.second)}, key.first, key.second});
    }
    problem->listed.push_back(entry.cell);
    const double pairs = table.PairsAtATime(a, b);
    const auto index = static_cast<int>(problem->cells.size());
    problem->cells.push_back(
        {unit->second, of.column,
         static_cast<int>(static_cast<size_t>(of.column) % problem->types),
         of.placement, problem->scale_factor[a] * pairs});
    if (a == b) {
      additions.Add(entry.first, index, of.first_throughput, 1);
      continue;
    }
    const double first = pairs / table.members[a];
    const double second = pairs / table.members[b];
    additions.Add(entry.first, index, of.first_throughput * first, first);
    additions.Add(entry.second, index, of.second_throughput * second, second);
  }
  Merge(std::move(additions), problem);
}

}  // namespace gavel
