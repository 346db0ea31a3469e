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

// Bids as apps make them: gangs of 1, 2, 4, ... accelerators on one server or
// several, of three types that each app is faster on by its own factors. Less
// is gained by each further accelerator, and speed is lost over several
// servers.
Auction AppAuction(uint64_t seed, const AuctionShape& shape);

// Bids without such order: random bundles and values. Some rows are worse than
// nothing or than rows with less, and some values are equal.
Auction WildAuction(uint64_t seed, const AuctionShape& shape);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_POLICY_AUCTIONS_H_
