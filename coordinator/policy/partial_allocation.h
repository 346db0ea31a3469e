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
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/policy/bundle_program.h"
#include "coordinator/policy/policy.h"
#include "core/ids.h"

namespace gavel::policy {

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

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_PARTIAL_ALLOCATION_H_
