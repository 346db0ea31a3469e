#include "tests/policy/auctions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

namespace gavel::testing {

using policy::Bid;
using policy::BidderId;
using policy::Bundle;

namespace {

constexpr size_t kTypes = 3;

std::vector<int> RandomFree(std::mt19937_64& random,
                            const AuctionShape& shape) {
  std::uniform_int_distribution<int> free(shape.free_min, shape.free_max);
  std::vector<int> servers(shape.servers);
  for (int& server : servers) server = free(random);
  return servers;
}

// `size` accelerators of servers of one type, from `first` on; of fewer if
// there are no more. Empty: none.
Bundle GangOf(const std::vector<int>& free, size_t first, int size) {
  Bundle bundle;
  for (size_t s = first; s < free.size() && size > 0; s += kTypes) {
    const int count = std::min(free[s], size);
    if (count == 0) continue;
    bundle.parts.push_back({static_cast<int>(s), count});
    size -= count;
  }
  if (size > 0) bundle.parts.clear();
  return bundle;
}

}  // namespace

Auction AppAuction(uint64_t seed, const AuctionShape& shape) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  Auction auction;
  auction.offer.free = RandomFree(random, shape);
  for (size_t i = 0; i < shape.bids; ++i) {
    Bid& bid = auction.bids.emplace_back();
    bid.id = BidderId(i + 1);
    const double elapsed = uniform(random);
    const double work = 1 + 9 * uniform(random);
    const double scaling = 0.6 + 0.4 * uniform(random);
    const double spread = 0.5 + 0.5 * uniform(random);
    const double speed[kTypes] = {1, 1 + uniform(random),
                                  1.5 + 2 * uniform(random)};
    const int gang_max = 1 << (random() % 5);
    bid.rho_nothing = (elapsed + work * (2 + 8 * uniform(random))) / 2;
    // Servers come in another order for each app.
    for (size_t k = 0; bid.rows.size() < shape.rows_max && k < 8 * shape.rows_max;
         ++k) {
      const size_t first = random() % shape.servers;
      const int size = std::min(gang_max, 1 << (random() % 5));
      Bundle bundle = GangOf(auction.offer.free, first, size);
      if (bundle.parts.empty()) continue;
      const double slowed = bundle.parts.size() == 1 ? 1 : spread;
      const double rate =
          speed[first % kTypes] * slowed * std::pow(size, scaling);
      bid.rows.push_back({std::move(bundle), (elapsed + work / rate) / 2});
    }
  }
  return auction;
}

Auction WildAuction(uint64_t seed, const AuctionShape& shape) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  Auction auction;
  auction.offer.free = RandomFree(random, shape);
  for (size_t i = 0; i < shape.bids; ++i) {
    Bid& bid = auction.bids.emplace_back();
    bid.id = BidderId(1 + i * 3);
    bid.rho_nothing = std::exp(4 * uniform(random));
    const size_t rows = random() % (shape.rows_max + 1);
    for (size_t r = 0; r < rows; ++r) {
      std::map<int, int> counts;
      for (size_t k = 0; k < 1 + random() % 3; ++k) {
        const auto server = static_cast<int>(random() % shape.servers);
        const int free = auction.offer.free[static_cast<size_t>(server)];
        if (free == 0) continue;
        counts[server] = 1 + static_cast<int>(random() % static_cast<size_t>(free));
      }
      if (counts.empty()) continue;
      policy::BidRow row;
      for (const auto& [server, count] : counts) {
        row.bundle.parts.push_back({server, count});
      }
      row.rho = random() % 4 == 0 ? 1 : std::exp(4.2 * uniform(random));
      bid.rows.push_back(std::move(row));
    }
  }
  std::shuffle(auction.bids.begin(), auction.bids.end(), random);
  return auction;
}

}  // namespace gavel::testing
