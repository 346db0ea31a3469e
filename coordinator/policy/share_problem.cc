#include "coordinator/policy/share_problem.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <utility>

#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/text.h"

namespace gavel::policy {
namespace {

// Builds the parts of a ShareProblem in their order.
class Builder {
 public:
  Builder(const PolicyProblem& problem, ShareOptions options)
      : problem_(problem), options_(options), types_(problem.types.size()) {
    out_.types = types_;
    out_.columns = problem.columns();
    out_.capacity.assign(problem.capacity.begin(), problem.capacity.end());
    out_.limits = out_.capacity;
    for (const std::vector<int>& servers : problem.servers) {
      largest_server_.push_back(
          servers.empty() ? 0
                          : *std::max_element(servers.begin(), servers.end()));
    }
  }

  ShareProblem Build() {
    assert(!(options_.pairs && options_.agnostic));
    for (size_t m = 0; m < problem_.jobs.size(); ++m) AddJob(m);
    AddUnits();
    IndexCells();
    if (options_.pairs && options_.pairs_unlisted) AddTable();
    return std::move(out_);
  }

 private:
  // A gang of `scale_factor` has room in the column.
  bool HasRoom(int scale_factor, size_t column) const {
    const size_t type = problem_.TypeOfColumn(column);
    if (problem_.capacity[type] < scale_factor) return false;
    if (!problem_.placement_sensitive() || column >= types_) return true;
    return largest_server_[type] >= scale_factor;
  }

  void AddJob(size_t m) {
    const PolicyJob& job = problem_.jobs[m];
    const std::span<const double> given = problem_.Row(m);
    const size_t start = out_.throughputs.size();
    bool usable = false;
    for (size_t c = 0; c < given.size(); ++c) {
      double throughput = HasRoom(job.scale_factor, c) ? given[c] : 0;
      if (options_.agnostic && throughput > 0) throughput = 1;
      usable = usable || throughput > 0;
      out_.throughputs.push_back(throughput);
    }
    position_.push_back(usable ? static_cast<int>(out_.jobs.size()) : -1);
    if (!usable) {
      out_.throughputs.resize(start);
      out_.left_out.push_back(job.id);
      return;
    }
    out_.jobs.push_back(m);
    out_.scale_factor.push_back(job.scale_factor);
    out_.weight.push_back(job.weight);
  }

  void AddUnits() {
    const bool listed = options_.pairs && !options_.pairs_unlisted;
    size_t p = 0;
    for (size_t m = 0; m < problem_.jobs.size(); ++m) {
      if (position_[m] >= 0) AddAlone(m);
      if (!listed) continue;
      if (!problem_.kinds.empty()) {
        AddPairsByKind(m);
        continue;
      }
      for (; p < problem_.pairs.size() && problem_.pairs[p].first == m; ++p) {
        AddPair(p, m, problem_.pairs[p].second);
      }
    }
  }

  void AddPairsByKind(size_t m) {
    for (size_t other = m + 1; other < problem_.jobs.size(); ++other) {
      const std::optional<size_t> pair = FindPair(problem_, m, other);
      if (pair.has_value()) AddPair(*pair, m, other);
    }
  }

  void AddAlone(size_t m) {
    const int i = position_[m];
    out_.units.push_back(
        {{problem_.jobs[m].id, JobId()}, static_cast<uint32_t>(i), -1});
    const std::span<const double> row = out_.Row(static_cast<size_t>(i));
    for (size_t c = 0; c < row.size(); ++c) {
      if (row[c] > 0) AddCell(c, problem_.jobs[m].scale_factor, row[c], 0);
    }
  }

  // Calls visit(column, throughput of the first, of the second kind) for the
  // columns that a pair has use for. The rows are what jobs of both kinds have
  // alone, at least.
  template <class Visit>
  void ForEachColumn(size_t p, int scale_factor,
                     std::span<const double> alone_a,
                     std::span<const double> alone_b, Visit visit) const {
    const std::span<const double> row = problem_.PairRow(p);
    for (size_t c = 0; c < out_.columns; ++c) {
      const double first = row[2 * c];
      const double second = row[2 * c + 1];
      if (first <= 0 || second <= 0) continue;
      if (!HasRoom(scale_factor, c)) continue;
      // Infinite where one of them can't run alone.
      if (first / alone_a[c] + second / alone_b[c] <= 1) continue;
      visit(c, first, second);
    }
  }

  // Jobs `m` < `other` of the problem, which are pair p.
  void AddPair(size_t p, size_t m, size_t other) {
    const int a = position_[m];
    const int b = position_[other];
    if (a < 0 || b < 0) return;
    const PolicyJob& job = problem_.jobs[m];
    out_.units.push_back(
        {{job.id, problem_.jobs[other].id}, static_cast<uint32_t>(a), b});
    const size_t cells = out_.cells.size();
    const bool turned = problem_.KindOf(m) > problem_.KindOf(other);
    const std::span<const double> row_a = out_.Row(static_cast<size_t>(a));
    const std::span<const double> row_b = out_.Row(static_cast<size_t>(b));
    ForEachColumn(p, job.scale_factor, turned ? row_b : row_a,
                  turned ? row_a : row_b,
                  [&](size_t c, double first, double second) {
                    if (turned) std::swap(first, second);
                    AddCell(c, job.scale_factor, first, second);
                  });
    if (out_.cells.size() == cells) out_.units.pop_back();
  }

  // The pairs of kinds that there are usable jobs for.
  void AddTable() {
    auto table = std::make_shared<PairTable>();
    const size_t n = problem_.jobs.size();
    table->jobs.resize(n);
    // [kinds x columns] what each job of the kind has alone, at least.
    std::vector<double> alone(n * out_.columns);
    for (size_t m = 0; m < out_.size(); ++m) {
      const size_t kind = problem_.KindOf(out_.jobs[m]);
      const std::span<const double> row = out_.Row(m);
      for (size_t c = 0; c < row.size(); ++c) {
        double& least = alone[kind * out_.columns + c];
        least = table->jobs[kind].empty() ? row[c] : std::min(least, row[c]);
      }
      table->jobs[kind].push_back(static_cast<uint32_t>(m));
      table->kind.push_back(kind);
    }
    table->members.assign(out_.size(), 1.0);
    for (size_t p = 0; p < problem_.pairs.size(); ++p) {
      const PolicyPair& pair = problem_.pairs[p];
      const std::vector<uint32_t>& first = table->jobs[pair.first];
      if (first.empty() || table->jobs[pair.second].empty()) continue;
      if (pair.first == pair.second && first.size() == 1) continue;
      const int scale_factor =
          problem_.jobs[out_.jobs[first.front()]].scale_factor;
      const auto row = [&](size_t kind) {
        return std::span(alone).subspan(kind * out_.columns, out_.columns);
      };
      ForEachColumn(
          p, scale_factor, row(pair.first), row(pair.second),
          [&](size_t c, double a, double b) {
            table->cells.push_back({static_cast<uint32_t>(pair.first),
                                    static_cast<uint32_t>(pair.second),
                                    static_cast<uint32_t>(c),
                                    PlacementOf(c, scale_factor), a, b});
          });
    }
    if (table->cells.empty()) return;  // prices serve it
    SetFastest(table.get());
    out_.pairs = std::move(table);
  }

  void AddCell(size_t column, int scale_factor, double first, double second) {
    ShareCell cell;
    cell.unit = static_cast<uint32_t>(out_.units.size() - 1);
    cell.column = static_cast<uint32_t>(column);
    cell.type = static_cast<uint32_t>(problem_.TypeOfColumn(column));
    cell.scale_factor = scale_factor;
    cell.placement = PlacementOf(column, scale_factor);
    out_.cells.push_back(cell);
    throughputs_.emplace_back(first, second);
  }

  // The limit on consolidated gangs of this scale factor, kNoPlacement where it
  // is that of the type. There are few of them: as many as scale factors.
  uint32_t PlacementOf(size_t column, int scale_factor) {
    if (!problem_.placement_sensitive() || column >= types_) {
      return kNoPlacement;
    }
    const size_t type = column;
    for (const Placement& known : placements_) {
      if (known.type == type && known.scale_factor == scale_factor) {
        return known.limit;
      }
    }
    int accelerators = 0;
    for (const int size : problem_.servers[type]) {
      accelerators += size / scale_factor * scale_factor;
    }
    uint32_t limit = kNoPlacement;
    if (accelerators < problem_.capacity[type]) {
      limit = static_cast<uint32_t>(out_.limits.size());
      out_.limits.push_back(accelerators);
    }
    placements_.push_back({type, scale_factor, limit});
    return limit;
  }

  // Calls visit(job m, its throughput) for each job in the cell.
  template <class Visit>
  void ForEachJob(size_t cell, Visit visit) const {
    const UsableUnit& unit = out_.units[out_.cells[cell].unit];
    visit(unit.first, throughputs_[cell].first);
    if (unit.second >= 0) {
      visit(static_cast<size_t>(unit.second), throughputs_[cell].second);
    }
  }

  void IndexCells() {
    std::vector<size_t>& start = out_.job_start;
    start.assign(out_.jobs.size() + 1, 0);
    for (size_t i = 0; i < out_.cells.size(); ++i) {
      ForEachJob(i, [&](size_t m, double) { ++start[m + 1]; });
    }
    std::partial_sum(start.begin(), start.end(), start.begin());
    out_.job_cells.resize(start.back());
    std::vector<size_t> next = start;
    for (size_t i = 0; i < out_.cells.size(); ++i) {
      ForEachJob(i, [&](size_t m, double throughput) {
        out_.job_cells[next[m]++] = {static_cast<uint32_t>(i), throughput};
      });
    }
  }

  struct Placement {
    size_t type = 0;
    int scale_factor = 0;
    uint32_t limit = kNoPlacement;
  };

  const PolicyProblem& problem_;
  ShareOptions options_;
  size_t types_;
  ShareProblem out_;
  std::vector<int> largest_server_;  // [J], with placement
  std::vector<int> position_;        // by job of the problem: m, -1 left out
  // By cell: of the first and the second job.
  std::vector<std::pair<double, double>> throughputs_;
  std::vector<Placement> placements_;
};

}  // namespace

ShareProblem MakeShareProblem(const PolicyProblem& problem,
                              ShareOptions options) {
  return Builder(problem, options).Build();
}

PolicyProblem WithReferenceType(PolicyProblem problem) {
  const ShareProblem shares = MakeShareProblem(problem);
  problem.rows = {};  // of the throughputs that were
  for (size_t m = 0; m < shares.size(); ++m) {
    const std::span<const double> row = shares.Row(m);
    double reference = 0;
    for (size_t c = 0; c < row.size() && reference == 0; ++c) {
      const std::string& type = problem.types[problem.TypeOfColumn(c)];
      if (type == kReferenceType) reference = row[c];
    }
    if (reference == 0) reference = std::ranges::max(row);
    for (size_t c = 0; c < row.size(); ++c) {
      problem.throughputs[shares.jobs[m] * problem.columns() + c] =
          row[c] > 0 ? reference : 0;
    }
  }
  return problem;
}

absl::StatusOr<std::vector<double>> Costs(const PolicyProblem& problem) {
  std::vector<double> cost = problem.cost;
  if (cost.empty()) cost.assign(problem.types.size(), 1.0);
  for (size_t j = 0; j < cost.size(); ++j) {
    if (cost[j] > 0) continue;
    return absl::InvalidArgumentError(
        StrCat("type ", problem.types[j],
               ": cost 0; give one above 0, or another policy"));
  }
  return cost;
}

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

// The new cells of the jobs in them: (job m, cell).
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
