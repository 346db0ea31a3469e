// The pass of price_pass.h over kWidth jobs at once. Included by one file for
// each instruction set, which sets GAVEL_PASS_WIDTH; compiled with the flags of
// that set, so nothing of the standard library's templates may be used here
// (the linker keeps one copy of those for all files). No functions but those in
// the anonymous namespace.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_PASS_BODY_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_PASS_BODY_H_

#include "coordinator/policy/lp/price_pass.h"

#if GAVEL_PASS_WIDTH > 1
#include <immintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wpsabi"

namespace gavel {
namespace {

constexpr size_t kWidth = GAVEL_PASS_WIDTH;
static_assert(kPriceLanes % kWidth == 0);
constexpr size_t kChunks = kPriceLanes / kWidth;
// Sums of so many blocks are added up apart: less rounding.
constexpr size_t kBlocksOfSum = 1024;

#if GAVEL_PASS_WIDTH == 1
using Lanes = double;
using Mask = bool;
inline Lanes Load(const double* from) { return *from; }
inline void Store(Lanes value, double* to) { *to = value; }
inline Lanes All(double value) { return value; }
inline bool Any(Mask mask) { return mask; }
inline Mask True() { return true; }
inline Mask Not(Mask mask) { return !mask; }
#else
typedef double Lanes __attribute__((vector_size(GAVEL_PASS_WIDTH * 8)));
typedef decltype(Lanes{} < Lanes{}) Mask;
inline Lanes Load(const double* from) {
  Lanes value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
inline void Store(Lanes value, double* to) {
  __builtin_memcpy(to, &value, sizeof(value));
}
inline Lanes All(double value) { return value - Lanes{}; }
inline bool Any(Mask mask) {
#if GAVEL_PASS_WIDTH == 8
  const auto bits = reinterpret_cast<__m512i>(mask);
  return _mm512_test_epi64_mask(bits, bits) != 0;
#else
  return _mm256_movemask_pd(reinterpret_cast<__m256d>(mask)) != 0;
#endif
}
inline Mask True() { return Lanes{} == Lanes{}; }
inline Mask Not(Mask mask) { return ~mask; }
#endif

inline Lanes Select(Mask mask, Lanes yes, Lanes no) { return mask ? yes : no; }

// Where the walks of kWidth jobs end: on the edge between two types (-1: none,
// the origin), at `part` of it.
struct Walk {
  Lanes from;
  Lanes to;
  Lanes part;
  Lanes cost;
  Lanes slope;  // of the edge
};

template <bool kGain>
inline __attribute__((always_inline)) Walk WalkHull(const double* throughputs,
                                                    size_t types,
                                                    const double* prices,
                                                    const double* worth,
                                                    Lanes demand, Lanes gain) {
  const Lanes zero = All(0);
  Lanes at_rate = zero;
  Lanes at_cost = zero;
  Lanes at = All(-1);
  // The last edge.
  Lanes from = at;
  Lanes to = at;
  Lanes from_rate = zero;
  Lanes from_cost = zero;
  Lanes edge_rate = All(1);
  Lanes edge_cost = zero;
  Mask open = True();
  Mask inside = Not(open);
  for (size_t step = 0; step <= types; ++step) {
    // The flattest edge from here; the longest of those. At first a vertical
    // one, of no length.
    Lanes best_rate = zero;
    Lanes best_cost = All(1);
    Lanes best = All(-1);
    for (size_t j = 0; j < types; ++j) {
      const Lanes throughput = Load(throughputs + j * kPriceLanes);
      const Lanes rate = throughput - at_rate;
      Lanes price = All(prices[j]);
      if (kGain) price = price - gain * (All(worth[j]) * throughput);
      const Lanes cost = price - at_cost;
      const Lanes left = cost * best_rate;
      const Lanes right = best_cost * rate;
      const Mask better =
          (rate > zero) &
          ((left < right) | ((left == right) & (rate > best_rate)));
      best_rate = Select(better, rate, best_rate);
      best_cost = Select(better, cost, best_cost);
      best = Select(better, All(static_cast<double>(j)), best);
    }
    const Mask lacks = at_rate < demand;
    const Mask down = best_cost < zero;
    Mask take = open & (best_rate > zero);
    Mask whole = at_rate + best_rate < demand;
    if (kGain) {
      take = take & (lacks | down);
      whole = whole | down;
    } else {
      take = take & lacks;
    }
    from = Select(take, at, from);
    to = Select(take, best, to);
    from_rate = Select(take, at_rate, from_rate);
    from_cost = Select(take, at_cost, from_cost);
    edge_rate = Select(take, best_rate, edge_rate);
    edge_cost = Select(take, best_cost, edge_cost);
    open = take & whole;
    inside = inside | (take & Not(whole));
    if (!Any(open)) break;
    at_rate = Select(open, at_rate + best_rate, at_rate);
    at_cost = Select(open, at_cost + best_cost, at_cost);
    at = Select(open, best, at);
  }
  const Lanes one = All(1);
  Lanes part = (demand - from_rate) / edge_rate;
  part = Select(inside & (part < one), part, one);
  return {from, to, part, from_cost + part * edge_cost, edge_cost / edge_rate};
}

struct Demand {
  Lanes rate;
  Lanes slope;
};

inline Demand DemandAt(const PricePass& pass, size_t job, double level) {
  const Lanes a = Load(pass.a + job);
  if (pass.curve == DemandCurve::kFinish) {
    const Lanes b = Load(pass.b + job);
    const Lanes left = All(-level) * b - Load(pass.c + job);
    const Lanes rate = a / left;
    return {rate, rate * b / left};
  }
  Lanes rate = All(level) * a;
  Lanes slope = a;
  if (pass.b != nullptr) rate = rate + Load(pass.b + job);
  if (pass.c != nullptr) {
    const Lanes cap = Load(pass.c + job);
    const Mask capped = rate >= cap;
    rate = Select(capped, cap, rate);
    slope = Select(capped, All(0), slope);
  }
  return {rate, slope};
}

template <bool kGain>
inline __attribute__((always_inline)) Walk WalkOf(const PricePass& pass,
                                                  size_t job, Lanes demand,
                                                  const double* prices) {
  const size_t block = job / kPriceLanes;
  const Lanes gain = kGain ? Load(pass.gain + job) : All(0);
  return WalkHull<kGain>(
      pass.throughputs + block * pass.types * kPriceLanes + job % kPriceLanes,
      pass.types, prices, pass.worth, demand, gain);
}

inline Lanes FromPart(const Walk& walk) {
  return Select(walk.from >= All(0), All(1) - walk.part, All(0));
}

template <bool kGain>
inline __attribute__((always_inline)) void SumBlocks(const PricePass& pass,
                                                     double level,
                                                     const double* prices,
                                                     PriceSums* sums) {
  const size_t types = pass.types;
  *sums = PriceSums();
  for (size_t first = 0; first < pass.blocks; first += kBlocksOfSum) {
    const size_t end =
        first + kBlocksOfSum < pass.blocks ? first + kBlocksOfSum : pass.blocks;
    Lanes cost[kChunks] = {};
    Lanes slope[kChunks] = {};
    Lanes usage[kPriceTypesMax][kChunks] = {};
    for (size_t block = first; block < end; ++block) {
      for (size_t chunk = 0; chunk < kChunks; ++chunk) {
        const size_t job = block * kPriceLanes + chunk * kWidth;
        const Demand demand = DemandAt(pass, job, level);
        const Walk walk = WalkOf<kGain>(pass, job, demand.rate, prices);
        const Lanes held = Load(pass.accelerators + job);
        cost[chunk] = cost[chunk] + held * walk.cost;
        slope[chunk] = slope[chunk] + held * (walk.slope * demand.slope);
        const Lanes held_from = held * FromPart(walk);
        const Lanes held_to = held * walk.part;
        for (size_t j = 0; j < types; ++j) {
          const Lanes type = All(static_cast<double>(j));
          usage[j][chunk] = usage[j][chunk] +
                            Select(walk.from == type, held_from, All(0)) +
                            Select(walk.to == type, held_to, All(0));
        }
      }
    }
    const auto add = [](const Lanes* lanes, double* total) {
      double parts[kPriceLanes];
      for (size_t chunk = 0; chunk < kChunks; ++chunk) {
        Store(lanes[chunk], parts + chunk * kWidth);
      }
      for (size_t i = 0; i < kPriceLanes; ++i) *total += parts[i];
    };
    add(cost, &sums->cost);
    add(slope, &sums->slope);
    for (size_t j = 0; j < types; ++j) add(usage[j], &sums->usage[j]);
  }
}

void Sum(const PricePass& pass, double level, const double* prices,
         PriceSums* sums) {
  if (pass.gain == nullptr) {
    SumBlocks<false>(pass, level, prices, sums);
  } else {
    SumBlocks<true>(pass, level, prices, sums);
  }
}

}  // namespace
}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_PASS_BODY_H_
