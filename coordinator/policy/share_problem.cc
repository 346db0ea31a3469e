#include "coordinator/policy/share_problem.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace gavel {
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
    size_t p = 0;
    for (size_t m = 0; m < problem_.jobs.size(); ++m) {
      if (position_[m] >= 0) AddAlone(m);
      for (; p < problem_.pairs.size() && problem_.pairs[p].first == m; ++p) {
        if (options_.pairs && position_[m] >= 0) AddPair(p);
      }
    }
  }

  void AddAlone(size_t m) {
    const int i = position_[m];
    out_.units.push_back({{problem_.jobs[m].id, JobId()}, i, -1});
    const std::span<const double> row = out_.Row(static_cast<size_t>(i));
    for (size_t c = 0; c < row.size(); ++c) {
      if (row[c] > 0) AddCell(c, problem_.jobs[m].scale_factor, row[c], 0);
    }
  }

  void AddPair(size_t p) {
    const PolicyPair& pair = problem_.pairs[p];
    const int a = position_[pair.first];
    const int b = position_[pair.second];
    if (b < 0) return;
    const PolicyJob& job = problem_.jobs[pair.first];
    out_.units.push_back({{job.id, problem_.jobs[pair.second].id}, a, b});
    const size_t cells = out_.cells.size();
    const std::span<const double> row = problem_.PairRow(p);
    const std::span<const double> row_a = out_.Row(static_cast<size_t>(a));
    const std::span<const double> row_b = out_.Row(static_cast<size_t>(b));
    for (size_t c = 0; c < out_.columns; ++c) {
      const double first = row[2 * c];
      const double second = row[2 * c + 1];
      if (first <= 0 || second <= 0) continue;
      if (!HasRoom(job.scale_factor, c)) continue;
      // Infinite where one of them can't run alone.
      if (first / row_a[c] + second / row_b[c] <= 1) continue;
      AddCell(c, job.scale_factor, first, second);
    }
    if (out_.cells.size() == cells) out_.units.pop_back();
  }

  void AddCell(size_t column, int scale_factor, double first, double second) {
    ShareCell cell;
    cell.unit = static_cast<int>(out_.units.size()) - 1;
    cell.column = static_cast<int>(column);
    cell.type = static_cast<int>(problem_.TypeOfColumn(column));
    cell.scale_factor = scale_factor;
    if (problem_.placement_sensitive() && column < types_) {
      cell.placement = PlacementLimit(column, scale_factor);
    }
    out_.cells.push_back(cell);
    throughputs_.emplace_back(first, second);
  }

  // The limit on consolidated gangs of this scale factor, -1 where it is that
  // of the type. There are few of them: as many as scale factors.
  int PlacementLimit(size_t type, int scale_factor) {
    for (const Placement& known : placements_) {
      if (known.type == type && known.scale_factor == scale_factor) {
        return known.limit;
      }
    }
    int accelerators = 0;
    for (const int size : problem_.servers[type]) {
      accelerators += size / scale_factor * scale_factor;
    }
    int limit = -1;
    if (accelerators < problem_.capacity[type]) {
      limit = static_cast<int>(out_.limits.size());
      out_.limits.push_back(accelerators);
    }
    placements_.push_back({type, scale_factor, limit});
    return limit;
  }

  // Calls visit(job m, its throughput) for each job in the cell.
  template <class Visit>
  void ForEachJob(size_t cell, Visit visit) const {
    const UsableUnit& unit =
        out_.units[static_cast<size_t>(out_.cells[cell].unit)];
    visit(static_cast<size_t>(unit.first), throughputs_[cell].first);
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
        out_.job_cells[next[m]++] = {static_cast<int>(i), throughput};
      });
    }
  }

  struct Placement {
    size_t type = 0;
    int scale_factor = 0;
    int limit = -1;
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

}  // namespace gavel
