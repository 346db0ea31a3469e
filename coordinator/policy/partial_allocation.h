// The auction of Themis (Mahajan et al., NSDI'20, section 5.1): which bundle of
// free accelerators each app gets, and which part of it the app keeps so that
// no app gains by a bid that is not true. It is the partial allocation
// mechanism of Cole, Gkatzelis and Goel (EC'13). themis.cc calls it.
// Pure functions, thread-safe.
//
// An app values a bundle at 1 / rho, where rho is the finish-time fairness that
// it would have with the bundle: its running time there over the time in a
// cluster of its own. Each bid is a table of bundles and their rho, and one rho
// for nothing.
//
// 1. The auction chooses at most one row of each bid so that the product of all
//    values is largest and no server gives more than it has.
// 2. Bid i keeps the fraction c_i of its bundle: the product of the others'
//    values in this choice, over the largest product of the others' values when
//    i takes no part. c_i is in (0, 1], and 1 for bids that hinder nobody.
// 3. A fraction of a bundle is rounded down to whole accelerators.
//
// What this proves. In the fractional form bid i is worth c_i v_i(x) in the
// choice x. That is the product of all values in x over a number that does not
// depend on bid i, so its true value is largest where the true product is, and
// a true bid leads there: no other bid gains. The choice in which i has nothing
// is one of those compared, so no bid is worth less than nothing was. Both hold
// as far as the choices are exact: an outcome of kOptimal says so, and `gap`
// says how far. If values are homogeneous of degree one and accelerators are
// divisible, c_i >= 1/e; a bid that has most of very few accelerators may keep
// less.
#ifndef GAVEL_COORDINATOR_POLICY_PARTIAL_ALLOCATION_H_
#define GAVEL_COORDINATOR_POLICY_PARTIAL_ALLOCATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/policy/highs_solver.h"
#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/locality.h"

namespace gavel::policy {

// The program inside an auction of bundles: choose at most one row of each bid
// so that the sum of gains is largest and no server gives more accelerators
// than it has (a multi-dimensional multiple-choice knapsack). Also the same
// program without one of the bids, warm-started, as each payment needs it.
// Called by partial_allocation.cc. Values without locks: not thread-safe.

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
// out, -1: none. `nodes_max`: as IntegerOptions. `seconds_max` is for
// benchmarks only.
BundleChoice ChooseByHighs(const BundleProgram& program, int without = -1,
                           double seconds_max = kInfinity,
                           int nodes_max = 100'000);

inline constexpr size_t kBidsMax = 1024;
inline constexpr size_t kBidRowsMax = 256;
inline constexpr size_t kAuctionServersMax = 4096;
// Servers that all bundles of an auction name together.
inline constexpr size_t kAuctionPartsMax = 1 << 20;
inline constexpr int kServerAcceleratorsMax = 1 << 16;
// A rho outside [1 / kRhoMax, kRhoMax] is refused: the sender cuts it off.
inline constexpr double kRhoMax = 1e12;

using BidderId = Id<struct BidderTag>;

// The accelerators that the auction gives away.
struct AuctionOffer {
  std::vector<int> free;  // [servers] free accelerators, >= 0
};

// Accelerators of servers. `parts` ascend by server, an index into
// AuctionOffer::free; counts are >= 1.
struct Bundle {
  std::vector<BundlePart> parts;
  friend bool operator==(const Bundle&, const Bundle&) = default;
};

struct BidRow {
  Bundle bundle;   // not empty
  double rho = 0;  // with the bundle; > 0
};

struct Bid {
  BidderId id;               // different for each bid
  double rho_nothing = 0;    // with no accelerator of the offer; > 0
  std::vector<BidRow> rows;  // in any order. A row that is no better than
                             // nothing is never chosen
};

struct AuctionOptions {
  // kAuto: prices with branch and bound, then HiGHS where these prove no
  // optimum and the tables together are small. kPrices: never HiGHS. kHighs:
  // HiGHS alone, for every choice.
  SolverChoice solver = SolverChoice::kAuto;
  // Where a rounded bundle loses accelerators. Give the number of the auction:
  // then it is another server each time.
  size_t rotation = 0;
};

struct BidOutcome {
  BidderId id;
  int row = kNoRow;     // index into Bid::rows, or kNoRow: nothing
  double value = 0;     // 1 / rho of the row, or of nothing
  double fraction = 1;  // c_i
  // c_i is at least this for the rows that were chosen, if the choice without
  // the bid was not proven to be the best one; else the same as `fraction`.
  double fraction_least = 1;
  Bundle kept;  // the fraction of the bundle in whole accelerators
};

// `outcome`: kOptimal if the product and the fractions are proven to within
// kOptimalGapMax, else kIterationLimit. `iterations`: choices that were
// computed, one and one for each bid that got a row.
struct AuctionResult : SolveReport {
  std::vector<BidOutcome> bids;  // in the order of the bids
  std::vector<int> left;         // [servers] what is free after all bids
  double objective = 0;          // sum of log(value)
  double bound = 0;              // no choice has a larger sum
  // The part by which the largest product may exceed that of this choice:
  // exp(bound - objective) - 1.
  double gap = 0;
  // The largest fraction / fraction_least - 1.
  double fraction_gap = 0;
};

// INVALID_ARGUMENT names the bid or server and says what to send. It is
// returned for: negative or too many accelerators of a server; more servers,
// bids, rows or parts than the limits above; an id that is 0 or appears twice;
// a rho that is not a number in [1 / kRhoMax, kRhoMax]; a row whose bundle is
// empty, names servers out of order or unknown ones, or counts < 1 or above
// what the server offers.
absl::Status CheckAuction(const AuctionOffer& offer, std::span<const Bid> bids);

// Runs one auction. INVALID_ARGUMENT as CheckAuction. The order of bids, and
// that of equal servers, change nothing: bids count by id, servers by capacity
// and by the rows that name them. The result is the same to the bit each time.
absl::StatusOr<AuctionResult> AllocatePartially(
    const AuctionOffer& offer, std::span<const Bid> bids,
    const AuctionOptions& options = {});

// `fraction` (in [0, 1]) of the bundle, rounded down to whole accelerators.
// Each server's part is rounded down; the accelerators that the whole bundle
// then lacks go to servers that lost a part, beginning with the one that
// `rotation` says.
Bundle FractionOf(const Bundle& bundle, double fraction, size_t rotation);

// The servers of an auction: which parts an offer has, and where the gangs of a
// bundle would be. Called by themis.cc. A value; not thread-safe.
//
// Equal servers, with the same type, number of accelerators and groups, are one
// part of the offer: which of them a gang gets makes no difference to it, so
// bids need not tell them apart. If a problem has no servers, or says nothing
// of placement, each type is one part, and has room for every gang.
class AuctionRooms {
 public:
  // Borrows the problem.
  explicit AuctionRooms(const PolicyProblem& problem);

  // Free accelerators by part.
  const std::vector<int>& free() const { return free_; }
  size_t parts() const { return free_.size(); }
  size_t TypeOf(size_t part) const { return types_[part]; }
  std::vector<size_t> PartsOf(size_t type) const;  // ascending

  struct Place {
    Locality level = Locality::kServer;
    std::vector<std::pair<size_t, int>> parts;  // accelerators of each
    AcceleratorId host;  // names the one server; invalid: there are several
  };
  // Takes the accelerators of a gang: in these parts while they have room, on
  // one server if one has, else of one rack, else on the fewest; and where they
  // have no room, in any part of their type. `parts`: of one type, ascending,
  // not empty. `hosts` (ascending) come first among servers that serve as well.
  // nullopt: there are not as many.
  std::optional<Place> Take(int scale_factor, const std::vector<size_t>& parts,
                            std::span<const size_t> hosts = {});
  // Indices into PolicyProblem::hosts where the job is now, ascending, and the
  // level that they have.
  std::vector<size_t> HostsOf(size_t job) const;
  Locality LevelOf(size_t job, int scale_factor) const;

 private:
  struct Host {
    AcceleratorId id;
    size_t part = 0;
    int free = 0;
    int group = 0;
    int rack = -1;
  };
  std::vector<size_t> BestHosts(int needed, std::span<const size_t> parts,
                                std::span<const size_t> hosts) const;
  std::optional<size_t> OneHost(int needed, std::span<const size_t> parts,
                                std::span<const size_t> hosts) const;
  std::vector<size_t> SeveralHosts(int needed,
                                   std::span<const size_t> parts) const;

  std::span<const PolicyPlace> places_;  // the problem's, by job
  std::vector<Host> hosts_;
  std::vector<size_t> types_;  // by part, ascending
  std::vector<int> free_;      // by part
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_PARTIAL_ALLOCATION_H_
