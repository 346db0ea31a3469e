#include "coordinator/policy/price_pass.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

// Half a block is walked at once, in vectors of the compiler that fit AVX2 and
// are split for less; the loader picks the version for the processor. Without
// fused multiply-adds (CMakeLists.txt) both give the same bits. (The run time
// of sanitizers is not ready when the loader picks.)
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GAVEL_VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define GAVEL_VECTORISED
#endif
#define GAVEL_INLINE inline __attribute__((always_inline))

namespace gavel::policy {
namespace {

// Sums of so many jobs are added up apart: less rounding.
constexpr size_t kJobsOfSum = 1024 * kPriceLanes;

// A figure of each of the jobs that are walked at once, and a choice for each:
// all ones or none.
constexpr size_t kWidth = kPriceLanes / 2;
using Lanes = double __attribute__((vector_size(8 * kWidth)));
using Mask = int64_t __attribute__((vector_size(8 * kWidth)));

GAVEL_INLINE void Load(const double* from, Lanes& lanes) {
  std::memcpy(&lanes, from, sizeof(lanes));
}

// Walks of jobs along their hulls.
struct Walks {
  // The demands.
  Lanes demand;
  Lanes demand_slope;
  // The points reached: rate, cost, type (-1: none, the origin).
  Lanes rate;
  Lanes cost;
  Lanes type;
  Mask open;  // the walk is not at its end
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

GAVEL_INLINE void SetDemands(const PricePass& pass, size_t first, double level,
                             Walks& w) {
  Lanes a, b, c;
  Load(pass.a + first, a);
  if (pass.curve == DemandCurve::kFinish) {
    Load(pass.b + first, b);
    Load(pass.c + first, c);
    const Lanes left = -level * b - c;
    w.demand = a / left;
    w.demand_slope = w.demand * b / left;
    return;
  }
  w.demand = level * a;
  w.demand_slope = a;
  if (pass.b != nullptr) {
    Load(pass.b + first, b);
    w.demand += b;
  }
  if (pass.c != nullptr) {
    Load(pass.c + first, c);
    const Mask capped = w.demand >= c;
    w.demand = capped ? c : w.demand;
    w.demand_slope = capped ? Lanes{} : w.demand_slope;
  }
}

// The flattest edges from where the walks are; the longest of those. At first
// vertical ones, of no length.
template <bool kGain>
GAVEL_INLINE void FindEdges(const PricePass& pass, size_t first,
                            const double* prices, Walks& w) {
  const double* throughputs = pass.throughputs +
                              first / kPriceLanes * pass.types * kPriceLanes +
                              first % kPriceLanes;
  Lanes gain{};
  if (kGain) Load(pass.gain + first, gain);
  Lanes edge_rate{};
  Lanes edge_cost = Lanes{} + 1;
  Lanes edge_type = Lanes{} - 1;
  const Lanes rate = w.rate, cost = w.cost;
  for (size_t j = 0; j < pass.types; ++j) {
    Lanes throughput;
    Load(throughputs + j * kPriceLanes, throughput);
    const Lanes run = throughput - rate;
    Lanes rise = prices[j] - cost;
    if (kGain) rise = (prices[j] - gain * (pass.worth[j] * throughput)) - cost;
    const Lanes left = rise * edge_rate;
    const Lanes right = edge_cost * run;
    const Mask better =
        (run > 0) & ((left < right) | ((left == right) & (run > edge_rate)));
    edge_rate = better ? run : edge_rate;
    edge_cost = better ? rise : edge_cost;
    edge_type = better ? Lanes{} + static_cast<double>(j) : edge_type;
  }
  w.edge_rate = edge_rate;
  w.edge_cost = edge_cost;
  w.edge_type = edge_type;
}

// One edge further, where there is one to take. Returns whether any walk is
// still open.
template <bool kGain>
GAVEL_INLINE bool TakeEdges(Walks& w) {
  const Lanes rate = w.edge_rate, cost = w.edge_cost;
  const Lanes end = w.rate + rate;
  Mask wanted = w.rate < w.demand;
  Mask whole = end < w.demand;
  if (kGain) {
    const Mask down = cost < 0;
    wanted |= down;
    whole |= down;
  }
  const Mask take = w.open & (rate > 0) & wanted;
  const Lanes part = (w.demand - w.rate) / rate;
  const Lanes taken = (~whole & (part < 1)) ? part : Lanes{} + 1;
  w.from = take ? w.type : w.from;
  w.to = take ? w.edge_type : w.to;
  w.part = take ? taken : w.part;
  w.total = take ? w.cost + taken * cost : w.total;
  w.slope = take ? cost / rate : w.slope;
  w.open = take & whole;
  w.rate = end;
  w.cost += cost;
  w.type = w.edge_type;
  int64_t open = 0;
  for (size_t i = 0; i < kWidth; ++i) open |= w.open[i];
  return open != 0;
}

template <bool kGain>
GAVEL_INLINE void Walk(const PricePass& pass, size_t first, double level,
                       const double* prices, Walks& w) {
  SetDemands(pass, first, level, w);
  w.rate = w.cost = w.total = w.slope = Lanes{};
  w.type = w.from = w.to = Lanes{} - 1;
  w.part = Lanes{} + 1;
  w.open = Mask{} - 1;
  do {
    FindEdges<kGain>(pass, first, prices, w);
  } while (TakeEdges<kGain>(w));
}

template <bool kGain>
GAVEL_INLINE void SumBlocks(const PricePass& pass, double level,
                            const double* prices, PriceSums* sums) {
  Walks w;
  const size_t jobs = pass.blocks * kPriceLanes;
  for (size_t begin = 0; begin < jobs; begin += kJobsOfSum) {
    const size_t end = begin + kJobsOfSum < jobs ? begin + kJobsOfSum : jobs;
    double cost[kPriceLanes] = {};
    double slope[kPriceLanes] = {};
    double usage[kPriceTypesMax][kPriceLanes] = {};
    for (size_t first = begin; first < end; first += kWidth) {
      Walk<kGain>(pass, first, level, prices, w);
      const double* held = pass.accelerators + first;
      const size_t lane = first % kPriceLanes;
      for (size_t i = 0; i < kWidth; ++i) {
        cost[lane + i] += held[i] * w.total[i];
        slope[lane + i] += held[i] * (w.slope[i] * w.demand_slope[i]);
        const auto from = static_cast<int>(w.from[i]);
        const auto to = static_cast<int>(w.to[i]);
        if (from >= 0) usage[from][lane + i] += held[i] * (1 - w.part[i]);
        if (to >= 0) usage[to][lane + i] += held[i] * w.part[i];
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
  for (size_t first = 0; first < pass.blocks * kPriceLanes; first += kWidth) {
    Walk<kGain>(pass, first, point.level, point.prices, w);
    for (size_t i = 0; i < kWidth; ++i) {
      double* row = shares + (first + i) * pass.types;
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

namespace {

size_t Blocks(size_t size) { return (size + kPriceLanes - 1) / kPriceLanes; }

}  // namespace

PriceJobs MakePriceJobs(size_t size, std::vector<double> capacity) {
  PriceJobs jobs;
  jobs.size = size;
  jobs.types = capacity.size();
  jobs.capacity = std::move(capacity);
  jobs.throughputs.assign(Blocks(size) * jobs.types * kPriceLanes, 0.0);
  jobs.accelerators.assign(Blocks(size) * kPriceLanes, 0.0);
  std::fill_n(jobs.accelerators.begin(), size, 1.0);
  return jobs;
}

std::vector<double> PricesOfColumns(const PriceJobs& jobs,
                                    std::span<const double> prices) {
  std::vector<double> columns(prices.begin(), prices.end());
  for (size_t j = 0; j < jobs.within.size(); ++j) {
    if (jobs.within[j] != j) columns[j] += prices[jobs.within[j]];
  }
  return columns;
}

void AddParts(const PriceJobs& jobs, std::span<double> usage) {
  for (size_t j = 0; j < jobs.within.size(); ++j) {
    if (jobs.within[j] != j) usage[jobs.within[j]] += usage[j];
  }
}

void PadDemand(const PriceJobs& jobs, PriceDemand* demand) {
  const size_t padded = jobs.blocks() * kPriceLanes;
  const bool finish = demand->curve == DemandCurve::kFinish;
  demand->a.resize(padded, 0.0);
  if (!demand->b.empty()) demand->b.resize(padded, finish ? 1.0 : 0.0);
  // Padding has no demand: 0 / (rho - 0) is 0.
  if (!demand->c.empty()) demand->c.resize(padded, 0.0);
}

PricePass PassOf(const PriceJobs& jobs, const PriceDemand& demand) {
  PricePass pass;
  pass.blocks = jobs.blocks();
  pass.types = jobs.types;
  pass.throughputs = jobs.throughputs.data();
  pass.accelerators = jobs.accelerators.data();
  pass.curve = demand.curve;
  pass.a = demand.a.data();
  if (!demand.b.empty()) pass.b = demand.b.data();
  if (!demand.c.empty()) pass.c = demand.c.data();
  return pass;
}

PriceSample SampleJobs(const PriceJobs& jobs, const PriceDemand& demand,
                       size_t stride) {
  PriceSample sample;
  const size_t size = (jobs.size + stride - 1) / stride;
  sample.jobs = MakePriceJobs(size, jobs.capacity);
  sample.jobs.within = jobs.within;
  sample.demand.curve = demand.curve;
  for (size_t i = 0; i < size; ++i) {
    const size_t m = i * stride;
    const size_t members = std::min(stride, jobs.size - m);
    sample.jobs.accelerators[i] =
        jobs.accelerators[m] * static_cast<double>(members);
    for (size_t j = 0; j < jobs.types; ++j) {
      sample.jobs.Throughput(i, j) = jobs.Throughput(m, j);
    }
    sample.demand.a.push_back(demand.a[m]);
    if (!demand.b.empty()) sample.demand.b.push_back(demand.b[m]);
    if (!demand.c.empty()) sample.demand.c.push_back(demand.c[m]);
  }
  PadDemand(sample.jobs, &sample.demand);
  return sample;
}

}  // namespace gavel::policy
