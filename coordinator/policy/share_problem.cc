#include "coordinator/policy/share_problem.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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

// Over plain shares: throughputs, repairs, even spreads and results.

namespace {

// A share below this is the dust of floating-point pivots, not a decision; the
// mechanism would give it a whole round.
constexpr double kDust = 1e-13;

// Calls visit(limit, cell) for each limit of each cell.
template <class Visit>
void ForEachLimit(const ShareProblem& problem, Visit visit) {
  for (size_t i = 0; i < problem.cells.size(); ++i) {
    problem.cells[i].ForEachLimit([&](uint32_t limit) { visit(limit, i); });
  }
}

void ScaleJobs(const ShareProblem& problem, std::span<double> shares) {
  for (size_t m = 0; m < problem.size(); ++m) {
    double sum = 0;
    for (const JobCell& cell : problem.Cells(m)) {
      sum += cell.time * shares[cell.cell];
    }
    if (sum <= 1) continue;
    // In pairs this also lowers the other job's sum: it stays feasible.
    for (const JobCell& cell : problem.Cells(m)) {
      shares[cell.cell] /= sum;
    }
  }
}

void ScaleLimits(const ShareProblem& problem, std::span<double> shares) {
  std::vector<double> factor(problem.limits.size(), 0.0);
  ForEachLimit(problem, [&](size_t limit, size_t i) {
    factor[limit] += problem.cells[i].scale_factor * shares[i];
  });
  for (size_t r = 0; r < factor.size(); ++r) {
    const double used = factor[r];
    factor[r] = used > problem.limits[r] ? problem.limits[r] / used : 1;
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    double least = 1;
    problem.cells[i].ForEachLimit(
        [&](uint32_t r) { least = std::min(least, factor[r]); });
    shares[i] *= least;
  }
}

bool Alone(const ShareProblem& problem, size_t cell) {
  return problem.units[problem.cells[cell].unit].second < 0;
}

// The remainder of the limits while jobs are put in whole cells.
struct Room {
  const ShareProblem& problem;
  std::vector<double> left;

  double Of(const ShareCell& cell) const {
    double room = left[cell.type];
    cell.ForEachLimit([&](uint32_t r) { room = std::min(room, left[r]); });
    return room;
  }
  void Take(const ShareCell& cell) {
    cell.ForEachLimit([&](uint32_t r) { left[r] -= cell.scale_factor; });
  }
  // The cell with the most room of the job's fastest ones; nullopt: a pair is
  // faster, or none has room.
  std::optional<size_t> Best(size_t m, double fastest) const {
    std::optional<size_t> best;
    for (const JobCell& entry : problem.Cells(m)) {
      if (entry.throughput < fastest || !Alone(problem, entry.cell)) continue;
      const ShareCell& cell = problem.cells[entry.cell];
      if (Of(cell) < cell.scale_factor) continue;
      if (best && Of(cell) <= Of(problem.cells[*best])) continue;
      best = entry.cell;
    }
    return best;
  }
};

}  // namespace

double Throughput(const ShareProblem& problem, size_t m,
                  std::span<const double> shares) {
  double throughput = 0;
  for (const JobCell& cell : problem.Cells(m)) {
    throughput += cell.throughput * shares[cell.cell];
  }
  return throughput;
}

std::vector<double> Throughputs(const ShareProblem& problem,
                                std::span<const double> shares) {
  std::vector<double> throughputs(problem.size());
  for (size_t m = 0; m < throughputs.size(); ++m) {
    throughputs[m] = Throughput(problem, m, shares);
  }
  return throughputs;
}

std::vector<double> ProportionalThroughputs(const ShareProblem& problem) {
  const double accelerators = problem.accelerators();
  std::vector<double> proportional(problem.size(), 0.0);
  for (size_t m = 0; m < proportional.size(); ++m) {
    const std::span<const double> row = problem.Row(m);
    for (size_t j = 0; j < problem.types; ++j) {
      const double throughput =
          row[j] > 0 ? row[j] : row[row.size() - problem.types + j];
      proportional[m] += throughput * (problem.capacity[j] / accelerators);
    }
  }
  return proportional;
}

std::vector<double> LargestThroughputs(const ShareProblem& problem) {
  std::vector<double> largest(problem.size(), 0.0);
  for (size_t m = 0; m < largest.size(); ++m) {
    for (const JobCell& cell : problem.Cells(m)) {
      largest[m] = std::max(largest[m], cell.throughput);
    }
    if (problem.pairs != nullptr) {
      largest[m] = std::max(largest[m], problem.pairs->fastest[m]);
    }
  }
  return largest;
}

std::vector<double> Normalizers(const ShareProblem& problem) {
  std::vector<double> normalizers = ProportionalThroughputs(problem);
  for (size_t m = 0; m < normalizers.size(); ++m) {
    normalizers[m] = problem.scale_factor[m] / normalizers[m];
  }
  return normalizers;
}

std::vector<double> WeightedNormalizers(const ShareProblem& problem) {
  std::vector<double> gains = Normalizers(problem);
  for (size_t m = 0; m < gains.size(); ++m) gains[m] *= problem.weight[m];
  return gains;
}

void RepairShares(const ShareProblem& problem, std::span<double> shares) {
  assert(shares.size() == problem.cells.size());
  for (double& share : shares) {
    // Written so that NaN becomes 0 too.
    if (!(share > kDust)) share = 0;
    share = std::min(share, 1.0);
  }
  ScaleJobs(problem, shares);
  // Limits come last: making shares smaller leaves the jobs feasible.
  ScaleLimits(problem, shares);
}

void TopUpShares(const ShareProblem& problem, std::span<const double> wanted,
                 std::span<double> shares) {
  if (shares.empty()) return;
  constexpr double kShortMin = 1e-9;
  constexpr double kTakenMax = 1e-9;
  std::vector<std::pair<size_t, double>> extra;  // (cell, share)
  double taken = 0;
  for (size_t m = 0; m < problem.size(); ++m) {
    const double missing = wanted[m] - Throughput(problem, m, shares);
    if (missing <= kShortMin * wanted[m]) continue;
    JobCell best;
    for (const JobCell& cell : problem.Cells(m)) {
      if (!Alone(problem, cell.cell)) continue;
      if (cell.throughput > best.throughput) best = cell;
    }
    const auto i = best.cell;
    const double share = std::max(missing / best.throughput, 2 * kDust);
    const auto type = problem.cells[i].type;
    extra.emplace_back(i, share);
    taken += share * std::max(1.0, problem.cells[i].scale_factor /
                                       problem.limits[type]);
  }
  if (extra.empty() || taken > kTakenMax) return;
  for (const auto& [i, share] : extra) shares[i] += share;
  RepairShares(problem, shares);
}

std::vector<double> EvenShares(const ShareProblem& problem) {
  std::vector<double> asked(problem.limits.size(), 0.0);
  const auto alone = [&](size_t i) { return Alone(problem, i); };
  ForEachLimit(problem, [&](size_t limit, size_t i) {
    if (alone(i)) asked[limit] += problem.cells[i].scale_factor;
  });
  std::vector<double> shares(problem.cells.size(), 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (alone(i)) shares[i] = 1;
  }
  ForEachLimit(problem, [&](size_t limit, size_t i) {
    if (!alone(i)) return;
    shares[i] = std::min(shares[i], problem.limits[limit] / asked[limit]);
  });
  RepairShares(problem, shares);
  return shares;
}

std::optional<std::vector<double>> EveryoneAtBest(const ShareProblem& problem) {
  const std::vector<double> fastest = LargestThroughputs(problem);
  std::vector<double> shares(problem.cells.size(), 0.0);
  Room room{problem, problem.limits};
  // Jobs that are equally fast in several cells take what the others leave.
  for (const bool choosy : {true, false}) {
    for (size_t m = 0; m < problem.size(); ++m) {
      const auto cells = problem.Cells(m);
      const auto equal = std::count_if(
          cells.begin(), cells.end(),
          [&](const JobCell& cell) { return cell.throughput >= fastest[m]; });
      if ((equal == 1) != choosy) continue;
      const std::optional<size_t> best = room.Best(m, fastest[m]);
      if (!best) return std::nullopt;
      room.Take(problem.cells[*best]);
      shares[*best] = 1;
    }
  }
  return shares;
}

bool MayAllBeAtBest(const ShareProblem& problem) {
  Room room{problem, problem.limits};
  double all = problem.accelerators();
  for (size_t m = 0; m < problem.size(); ++m) {
    JobCell best;
    bool choosy = false;  // no other cell is as good
    for (const JobCell& cell : problem.Cells(m)) {
      if (cell.throughput < best.throughput) continue;
      choosy = cell.throughput > best.throughput;
      best = cell;
    }
    const ShareCell& cell = problem.cells[best.cell];
    all -= cell.scale_factor;
    if (choosy) room.Take(cell);
    if (all < 0 || room.Of(cell) < 0) return false;
  }
  return true;
}

Allocation ToAllocation(const ShareProblem& problem,
                        std::span<const double> shares) {
  std::vector<bool> held(problem.units.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 0) held[problem.cells[i].unit] = true;
  }
  std::vector<size_t> order(problem.units.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Pairs that were listed later come last.
  const auto by_id = [&](size_t a, size_t b) {
    return problem.units[a].id < problem.units[b].id;
  };
  if (!std::is_sorted(order.begin(), order.end(), by_id)) {
    std::sort(order.begin(), order.end(), by_id);
  }
  std::vector<ShareUnit> units;
  std::vector<size_t> row(problem.units.size(), 0);
  for (const size_t u : order) {
    if (problem.units[u].second >= 0 && !held[u]) continue;
    row[u] = units.size();
    units.push_back(problem.units[u].id);
  }
  std::vector<double> rows(units.size() * problem.columns, 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    const ShareCell& cell = problem.cells[i];
    if (!(shares[i] > 0)) continue;
    rows[row[cell.unit] * problem.columns + cell.column] = shares[i];
  }
  return Allocation::FromRows(std::move(units), problem.columns,
                              std::move(rows));
}

bool AllTypesAlike(const ShareProblem& problem) {
  for (size_t m = 0; m < problem.size(); ++m) {
    const std::span<const JobCell> cells = problem.Cells(m);
    const bool alike =
        std::all_of(cells.begin(), cells.end(), [&](const JobCell& cell) {
          return cell.throughput == cells.front().throughput;
        });
    if (!alike) return false;
  }
  return true;
}

PolicyResult ToResult(const ShareProblem& problem,
                      std::span<const double> shares, double objective,
                      double bound, std::string_view solver) {
  PolicyResult result;
  result.solver = solver;
  result.outcome = SolveOutcome::kOptimal;
  result.allocation = ToAllocation(problem, shares);
  result.worth = AllTypesAlike(problem) ? TypeWorth::kAlike : TypeWorth::kSpeed;
  result.left_out = problem.left_out;
  result.objective = objective;
  result.bound = bound;
  result.gap = std::abs(bound - objective) / std::max(1.0, std::abs(bound));
  return result;
}

// Even spreads, for policies to which all types are alike.

namespace {

// Each scales jobs, then limits. Few are needed where most jobs can run
// anywhere.
constexpr int kIterationsMax = 500;
// A job may lose this part of its time to the spread.
constexpr double kSpreadLossMax = 1e-12;

// [k] time of each job on all types together.
std::vector<double> Totals(const ShareProblem& problem,
                           std::span<const double> shares) {
  std::vector<double> totals(problem.size(), 0.0);
  for (size_t m = 0; m < totals.size(); ++m) {
    for (const JobCell& cell : problem.Cells(m)) {
      totals[m] += shares[cell.cell];
    }
  }
  return totals;
}

// Scales each job's cells so that they sum to its total.
void ScaleJobsTo(const ShareProblem& problem, std::span<const double> totals,
                 std::span<double> shares) {
  const std::vector<double> now = Totals(problem, shares);
  for (size_t m = 0; m < totals.size(); ++m) {
    if (now[m] <= 0) continue;
    for (const JobCell& cell : problem.Cells(m)) {
      shares[cell.cell] *= totals[m] / now[m];
    }
  }
}

}  // namespace

// Iterative proportional fitting: of all shares with these sums that keep to
// the limits it finds the ones closest to the even spread, by entropy.
void SpreadEvenly(const ShareProblem& problem, std::span<double> shares) {
  const bool pairs = problem.units.size() != problem.size();
  if (pairs || !AllTypesAlike(problem)) return;
  const std::vector<double> totals = Totals(problem, shares);
  std::vector<double> spread(shares.size(), 1.0);
  for (int iteration = 0; iteration < kIterationsMax; ++iteration) {
    ScaleJobsTo(problem, totals, spread);
    RepairShares(problem, spread);
    const std::vector<double> now = Totals(problem, spread);
    bool kept = true;
    for (size_t m = 0; m < totals.size(); ++m) {
      kept &= now[m] >= totals[m] * (1 - kSpreadLossMax);
    }
    if (!kept) continue;
    std::copy(spread.begin(), spread.end(), shares.begin());
    return;
  }
}

std::optional<PolicyResult> ResultIfNoneScarce(
    const ShareProblem& problem,
    const std::function<double(std::span<const double> shares)>& objective) {
  if (problem.size() == 0) return ToResult(problem, {}, 0, 0, "none");
  std::optional<std::vector<double>> best = EveryoneAtBest(problem);
  if (!best.has_value()) return std::nullopt;
  SpreadEvenly(problem, *best);
  const double value = objective(*best);
  return ToResult(problem, *best, value, value, "all-at-best");
}

double Dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace gavel::policy
