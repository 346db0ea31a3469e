#include "coordinator/policy/lp/price_pass.h"

#include <bit>
#include <cassert>
#include <cstdint>

// The loops over the jobs of a block have no branches, so that the compiler
// vectorises them, with -O3; the loader picks the version for the processor.
// Without fused multiply-adds (CMakeLists.txt) both give the same bits. (The
// run time of sanitizers is not ready when the loader picks.)
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GAVEL_VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define GAVEL_VECTORISED
#endif
#define GAVEL_INLINE inline __attribute__((always_inline))

namespace gavel::policy {
namespace {

// Sums of so many blocks are added up apart: less rounding.
constexpr size_t kBlocksOfSum = 1024;

// All ones or none, and choices by these: the compiler makes branches of bools.
using Mask = int64_t;
GAVEL_INLINE Mask MaskOf(bool holds) { return -static_cast<Mask>(holds); }
GAVEL_INLINE double Select(Mask mask, double yes, double no) {
  return std::bit_cast<double>((mask & std::bit_cast<Mask>(yes)) |
                               (~mask & std::bit_cast<Mask>(no)));
}

// A figure of each job of a block.
using Lanes = double[kPriceLanes];

// Of the walks of a block's jobs along their hulls.
struct Walks {
  // The demands.
  Lanes demand;
  Lanes demand_slope;
  // The points reached: rate, cost, type (-1: none, the origin).
  Lanes rate;
  Lanes cost;
  Lanes type;
  Mask open[kPriceLanes];  // the walk is not at its end
  // The flattest edges from there.
  Lanes edge_rate;
  Lanes edge_cost;
  Lanes edge_type;
  // Where the walks end: on the edge between two types, at `part` of it.
  Lanes from;
  Lanes to;
  Lanes part;
  Lanes total;  // cost
  Lanes slope;  // of the edge
};

GAVEL_INLINE void SetDemands(const PricePass& pass, size_t block, double level,
                             Walks& w) {
  const size_t first = block * kPriceLanes;
  const double* a = pass.a + first;
  if (pass.curve == DemandCurve::kFinish) {
    const double* b = pass.b + first;
    const double* c = pass.c + first;
    for (size_t i = 0; i < kPriceLanes; ++i) {
      const double left = -level * b[i] - c[i];
      const double rate = a[i] / left;
      w.demand[i] = rate;
      w.demand_slope[i] = rate * b[i] / left;
    }
    return;
  }
  for (size_t i = 0; i < kPriceLanes; ++i) {
    w.demand[i] = level * a[i];
    w.demand_slope[i] = a[i];
  }
  if (pass.b != nullptr) {
    const double* b = pass.b + first;
    for (size_t i = 0; i < kPriceLanes; ++i) w.demand[i] += b[i];
  }
  if (pass.c != nullptr) {
    const double* c = pass.c + first;
    for (size_t i = 0; i < kPriceLanes; ++i) {
      const bool capped = w.demand[i] >= c[i];
      w.demand[i] = capped ? c[i] : w.demand[i];
      w.demand_slope[i] = capped ? 0 : w.demand_slope[i];
    }
  }
}

// The flattest edges from where the walks are; the longest of those. At first
// vertical ones, of no length.
template <bool kGain>
GAVEL_INLINE void FindEdges(const PricePass& pass, size_t block,
                            const double* prices, Walks& w) {
  const double* throughputs =
      pass.throughputs + block * pass.types * kPriceLanes;
  const double* gain = kGain ? pass.gain + block * kPriceLanes : nullptr;
  for (size_t i = 0; i < kPriceLanes; ++i) {
    w.edge_rate[i] = 0;
    w.edge_cost[i] = 1;
    w.edge_type[i] = -1;
  }
  for (size_t j = 0; j < pass.types; ++j) {
    const double* of_type = throughputs + j * kPriceLanes;
    const auto type = static_cast<double>(j);
    const double price = prices[j];
    const double worth = kGain ? pass.worth[j] : 0;
    for (size_t i = 0; i < kPriceLanes; ++i) {
      const double throughput = of_type[i];
      const double run = throughput - w.rate[i];
      const double paid =
          kGain ? price - gain[i] * (worth * throughput) : price;
      const double rise = paid - w.cost[i];
      const double left = rise * w.edge_rate[i];
      const double right = w.edge_cost[i] * run;
      const Mask better =
          MaskOf(run > 0) &
          (MaskOf(left < right) |
           (MaskOf(left == right) & MaskOf(run > w.edge_rate[i])));
      w.edge_rate[i] = Select(better, run, w.edge_rate[i]);
      w.edge_cost[i] = Select(better, rise, w.edge_cost[i]);
      w.edge_type[i] = Select(better, type, w.edge_type[i]);
    }
  }
}

// One edge further, where there is one to take. Returns whether any walk is
// still open.
template <bool kGain>
GAVEL_INLINE bool TakeEdges(Walks& w) {
  int64_t open = 0;
  for (size_t i = 0; i < kPriceLanes; ++i) {
    const double rate = w.edge_rate[i];
    const double cost = w.edge_cost[i];
    const double end = w.rate[i] + rate;
    const Mask lacks = MaskOf(w.rate[i] < w.demand[i]);
    const Mask down = kGain ? MaskOf(cost < 0) : 0;
    const Mask take = w.open[i] & MaskOf(rate > 0) & (lacks | down);
    const Mask whole = MaskOf(end < w.demand[i]) | down;
    const double part = (w.demand[i] - w.rate[i]) / rate;
    const double taken = Select(~whole & MaskOf(part < 1), part, 1);
    w.from[i] = Select(take, w.type[i], w.from[i]);
    w.to[i] = Select(take, w.edge_type[i], w.to[i]);
    w.part[i] = Select(take, taken, w.part[i]);
    w.total[i] = Select(take, w.cost[i] + taken * cost, w.total[i]);
    w.slope[i] = Select(take, cost / rate, w.slope[i]);
    w.open[i] = take & whole;
    w.rate[i] = end;
    w.cost[i] += cost;
    w.type[i] = w.edge_type[i];
  }
  for (size_t i = 0; i < kPriceLanes; ++i) open |= w.open[i];
  return open != 0;
}

template <bool kGain>
GAVEL_INLINE void Walk(const PricePass& pass, size_t block, double level,
                       const double* prices, Walks& w) {
  SetDemands(pass, block, level, w);
  for (size_t i = 0; i < kPriceLanes; ++i) {
    w.rate[i] = w.cost[i] = w.total[i] = w.slope[i] = 0;
    w.type[i] = w.from[i] = w.to[i] = -1;
    w.part[i] = 1;
    w.open[i] = -1;
  }
  do {
    FindEdges<kGain>(pass, block, prices, w);
  } while (TakeEdges<kGain>(w));
}

template <bool kGain>
GAVEL_INLINE void SumBlocks(const PricePass& pass, double level,
                            const double* prices, PriceSums* sums) {
  Walks w;
  for (size_t first = 0; first < pass.blocks; first += kBlocksOfSum) {
    const size_t end =
        first + kBlocksOfSum < pass.blocks ? first + kBlocksOfSum : pass.blocks;
    double cost[kPriceLanes] = {};
    double slope[kPriceLanes] = {};
    double usage[kPriceTypesMax][kPriceLanes] = {};
    for (size_t block = first; block < end; ++block) {
      Walk<kGain>(pass, block, level, prices, w);
      const double* held = pass.accelerators + block * kPriceLanes;
      for (size_t i = 0; i < kPriceLanes; ++i) {
        cost[i] += held[i] * w.total[i];
        slope[i] += held[i] * (w.slope[i] * w.demand_slope[i]);
      }
      for (size_t i = 0; i < kPriceLanes; ++i) {
        const auto from = static_cast<int>(w.from[i]);
        const auto to = static_cast<int>(w.to[i]);
        if (from >= 0) usage[from][i] += held[i] * (1 - w.part[i]);
        if (to >= 0) usage[to][i] += held[i] * w.part[i];
      }
    }
    for (const double one : cost) sums->cost += one;
    for (const double one : slope) sums->slope += one;
    for (size_t j = 0; j < pass.types; ++j) {
      for (const double one : usage[j]) sums->usage[j] += one;
    }
  }
}

template <bool kGain>
GAVEL_INLINE void ShareBlocks(const PricePass& pass, const PricePoint& point,
                              double* shares) {
  Walks w;
  for (size_t block = 0; block < pass.blocks; ++block) {
    Walk<kGain>(pass, block, point.level, point.prices, w);
    for (size_t i = 0; i < kPriceLanes; ++i) {
      double* row = shares + (block * kPriceLanes + i) * pass.types;
      const auto from = static_cast<int>(w.from[i]);
      const auto to = static_cast<int>(w.to[i]);
      if (from >= 0) row[from] += point.weight * (1 - w.part[i]);
      if (to >= 0) row[to] += point.weight * w.part[i];
    }
  }
}

GAVEL_VECTORISED void Sum(const PricePass& pass, double level,
                          const double* prices, PriceSums* sums) {
  if (pass.gain == nullptr) {
    SumBlocks<false>(pass, level, prices, sums);
  } else {
    SumBlocks<true>(pass, level, prices, sums);
  }
}

GAVEL_VECTORISED void Share(const PricePass& pass, const PricePoint& point,
                            double* shares) {
  if (pass.gain == nullptr) {
    ShareBlocks<false>(pass, point, shares);
  } else {
    ShareBlocks<true>(pass, point, shares);
  }
}

}  // namespace

PriceSums SumPass(const PricePass& pass, double level,
                  std::span<const double> prices) {
  assert(prices.size() == pass.types && pass.types <= kPriceTypesMax);
  PriceSums sums;
  Sum(pass, level, prices.data(), &sums);
  return sums;
}

void AddShares(const PricePass& pass, std::span<const PricePoint> points,
               std::span<double> shares) {
  assert(shares.size() == pass.blocks * kPriceLanes * pass.types);
  for (const PricePoint& point : points) Share(pass, point, shares.data());
}

}  // namespace gavel::policy
