// The program inside an auction of bundles: choose at most one row of each bid
// so that the sum of gains is largest and no server gives more accelerators
// than it has (a multi-dimensional multiple-choice knapsack). Also the same
// program without one of the bids, warm-started, as each payment needs it.
// Called by partial_allocation.cc. Values without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_BUNDLE_PROGRAM_H_
#define GAVEL_COORDINATOR_POLICY_BUNDLE_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {

// `count` accelerators of one server.
struct BundlePart {
  int server = 0;
  int count = 0;
  friend auto operator<=>(const BundlePart&, const BundlePart&) = default;
};

struct BundleProgram {
  std::vector<int> capacity;       // [servers] >= 0
  std::vector<int> bid_begin{0};   // [bids + 1] the first row of each bid
  std::vector<double> gain;        // [rows] > 0
  std::vector<int> part_begin{0};  // [rows + 1] the first part of each row
  std::vector<BundlePart> parts;   // a row names a server at most once

  int bids() const { return static_cast<int>(bid_begin.size()) - 1; }
  int rows() const { return static_cast<int>(gain.size()); }
  int servers() const { return static_cast<int>(capacity.size()); }
  std::span<const BundlePart> Parts(int row) const {
    const auto r = static_cast<size_t>(row);
    return {parts.data() + part_begin[r], parts.data() + part_begin[r + 1]};
  }
  int BidBegin(int bid) const { return bid_begin[static_cast<size_t>(bid)]; }
  int BidEnd(int bid) const { return bid_begin[static_cast<size_t>(bid) + 1]; }
  double Gain(int row) const { return gain[static_cast<size_t>(row)]; }

  void AddRow(double row_gain, std::span<const BundlePart> row_parts) {
    gain.push_back(row_gain);
    parts.insert(parts.end(), row_parts.begin(), row_parts.end());
    part_begin.push_back(static_cast<int>(parts.size()));
  }
  // Ends the bid that the rows added since the last call belong to.
  void EndBid() { bid_begin.push_back(rows()); }
};

inline constexpr int kNoRow = -1;  // the bid gets nothing, at gain 0

struct BundleChoice {
  std::vector<int> row;  // [bids] of the program, or kNoRow
  double gain = 0;       // sum over bids in their order
  double bound = 0;      // no choice gains more; >= gain
  bool used_highs = false;
  int64_t work = 0;  // rows that were priced
};

// The sum of the gains of `row` in the order of bids, without bid `without`.
double GainOf(const BundleProgram& program, std::span<const int> row,
              int without = -1);

struct BundleLimits {
  // Rows priced by branch and bound in one solve, before it stops with a bound.
  int64_t work_all = 0;
  int64_t work_without = 0;
  // Passes over the bids that lower the dual bound before branch and bound.
  int steps_all = 0;
  int steps_without = 0;
  // Moves of simulated annealing.
  int moves = 0;
  // Whether HiGHS solves what branch and bound leaves open.
  bool finish_by_highs = false;
};

// The limits for a program of this size: small programs are solved to the
// optimum, large ones in a bounded time.
BundleLimits LimitsFor(int rows, int bids);

// Lagrangian relaxation of the capacities. At prices p >= 0 of accelerators,
//   sum over bids of max(0, max over rows of (gain - p . parts)) + p . capacity
// bounds every choice, with or without one of the bids. Newton's method on the
// smoothed bound lowers it (with many servers, a subgradient method). Annealing
// and a local search raise the best choice. A row whose regret at the prices
// exceeds the difference is in no better choice; branch and bound over the
// others closes the rest where they are few. A choice without a bid starts from
// the prices and the choice of all.
class BundleSolver {
 public:
  // `program` outlives the solver.
  BundleSolver(const BundleProgram& program, const BundleLimits& limits);
  ~BundleSolver();
  BundleSolver(const BundleSolver&) = delete;
  BundleSolver& operator=(const BundleSolver&) = delete;

  // Chooses among all bids. Call it first.
  const BundleChoice& Solve();
  // Chooses among all bids except one. `known` [bids] is a choice that fits,
  // such as that of Solve(). The answer gains at least as much as the other
  // bids do in `known`.
  BundleChoice SolveWithout(int bid, std::span<const int> known);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The same by HiGHS alone, as an integer program. `without`: a bid to leave
// out, -1: none. `seconds_max` is for benchmarks only.
BundleChoice ChooseByHighs(const BundleProgram& program, int without = -1,
                           double seconds_max = kInfinity);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_BUNDLE_PROGRAM_H_
