#include "tests/policy/auctions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
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

// Tasks of `gang` accelerators on servers of the type of `first`, from there
// on, at most `most` of them on each server. Empty if fewer than `tasks` fit.
Bundle BundleOf(const std::vector<int>& free, size_t first, int gang, int tasks,
                int most) {
  Bundle bundle;
  for (size_t s = first; s < free.size() && tasks > 0; s += kTypes) {
    const int here = std::min({free[s] / gang, tasks, most});
    if (here == 0) continue;
    bundle.parts.push_back({static_cast<int>(s), here * gang});
    tasks -= here;
  }
  if (tasks > 0) bundle.parts.clear();
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
    const int gang = 1 << (random() % 3);
    bid.rho_nothing = (elapsed + work * (2 + 8 * uniform(random))) / 2;
    std::set<std::vector<policy::BundlePart>> seen;
    for (size_t k = 0;
         bid.rows.size() < shape.rows_max && k < 8 * shape.rows_max; ++k) {
      const size_t first = random() % shape.servers;
      const int tasks = 1 + static_cast<int>(random() % 6);
      const int most = 1 + static_cast<int>(random() % 4);
      Bundle bundle = BundleOf(auction.offer.free, first, gang, tasks, most);
      if (bundle.parts.empty() || !seen.insert(bundle.parts).second) continue;
      const double slowed =
          std::pow(spread, static_cast<double>(bundle.parts.size() - 1) / 3);
      const double rate =
          speed[first % kTypes] * slowed * std::pow(tasks, scaling);
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
        counts[server] =
            1 + static_cast<int>(random() % static_cast<size_t>(free));
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

policy::BundleProgram ProgramOf(const Auction& auction) {
  policy::BundleProgram program;
  program.capacity = auction.offer.free;
  for (const Bid& bid : auction.bids) {
    for (const policy::BidRow& row : bid.rows) {
      if (row.rho >= bid.rho_nothing) continue;
      program.AddRow(std::log(bid.rho_nothing / row.rho), row.bundle.parts);
    }
    program.EndBid();
  }
  return program;
}

}  // namespace gavel::testing
