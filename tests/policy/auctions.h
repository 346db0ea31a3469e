// Random auctions for tests and benchmarks, by seed.
#ifndef GAVEL_TESTS_POLICY_AUCTIONS_H_
#define GAVEL_TESTS_POLICY_AUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/policy/partial_allocation.h"

namespace gavel::testing {

struct Auction {
  policy::AuctionOffer offer;
  std::vector<policy::Bid> bids;
};

struct AuctionShape {
  size_t bids = 5;
  size_t rows_max = 12;
  size_t servers = 4;
  int free_min = 0;
  int free_max = 4;
};

// Bids as apps of several tasks make them: each task is a gang of 1, 2 or 4
// accelerators of one server, and there are three types of servers, on which
// each app is faster by its own factors. Less is gained by each further task,
// and speed is lost over several servers.
Auction AppAuction(uint64_t seed, const AuctionShape& shape);

// Bids without such order: random bundles and values. Some rows are worse than
// nothing or than rows with less, and some values are equal.
Auction WildAuction(uint64_t seed, const AuctionShape& shape);

// The program of the auction, bids and servers in its order.
policy::BundleProgram ProgramOf(const Auction& auction);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_AUCTIONS_H_
