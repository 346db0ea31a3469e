// One pass over all jobs at given accelerator prices: what the jobs cost that
// have what they demand as cheaply as they can. It is all that the price method
// (price_levels.h, price_water.h, price_sums.h) does per job, so there are
// versions for several instruction sets, chosen at run time. All give the same
// bits: the same operations in the same order, sums in eight lanes by the job's
// index, no fused multiply-adds. Pure, thread-safe.
//
// A job of throughputs T_j that demands the rate d solves
//   min sum_j (p_j - g_j T_j) x_j,  sum_j T_j x_j >= d,  sum_j x_j <= 1,  x >=
//   0:
// it walks along the lower convex hull of {(0, 0)} and (T_j, p_j - g_j T_j) by
// gift wrapping, to d, and on as long as it goes down. At most two x_j > 0.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_PASS_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_PASS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gavel {

inline constexpr size_t kPriceLanes = 8;
inline constexpr size_t kPriceTypesMax = 64;

// Of job m at level t. kRamp: min(b + t a, c); kFinish: a / (-t b - c), the
// rate that finishes with the ratio rho = -t (finish_time_fairness.cc).
enum class DemandCurve : uint8_t { kRamp, kFinish };

// Jobs by blocks of kPriceLanes; the last block is filled up with jobs that
// have no throughput and demand nothing. All arrays are borrowed.
struct PricePass {
  size_t blocks = 0;
  size_t types = 0;                      // J <= kPriceTypesMax
  const double* throughputs = nullptr;   // [blocks x J x kPriceLanes], >= 0
  const double* accelerators = nullptr;  // [jobs] what it holds when it runs
  DemandCurve curve = DemandCurve::kRamp;
  const double* a = nullptr;  // [jobs]
  const double* b = nullptr;  // [jobs]; kRamp: may be null, 0
  const double* c = nullptr;  // [jobs]; kRamp: may be null, infinite
  // A step of job m on type j gains g_m worth_j. Both null: nothing.
  const double* gain = nullptr;   // [jobs] g, >= 0
  const double* worth = nullptr;  // [J], >= 0
};

struct PriceSums {
  double cost = 0;   // of all accelerators that are used; less gain g T x
  double slope = 0;  // d cost / d level, a subgradient
  double usage[kPriceTypesMax] = {};  // accelerators of each type
};

// A point (level, prices) and what part of the time jobs spend as chosen there.
struct PricePoint {
  double level = 0;
  double weight = 0;
  const double* prices = nullptr;  // [J]
};

// Prices near `prices` and levels near `level`.
struct PriceBox {
  double level = 0;
  double level_radius = 0;
  const double* prices = nullptr;  // [J]
  const double* radius = nullptr;  // [J]
};

// Usage is worked out to so many powers of the level's distance from that of
// the box. Of kRamp it is linear; of kFinish the terms left out are below 1e-16
// of it.
inline constexpr size_t kPriceTerms = 12;

// What jobs use together that choose the same edge everywhere in a box: of type
// j sum_k usage[j][k] (level - box level)^k. `gain`: of sum g T x.
struct PriceSettled {
  double usage[kPriceTypesMax][kPriceTerms] = {};
  double gain = 0;
};

enum class PassVersion : uint8_t { kScalar, kAvx2, kAvx512 };

// This machine can run it.
bool Supported(PassVersion version);
// The fastest that it can run.
PassVersion FastestVersion();

PriceSums SumPass(const PricePass& pass, double level,
                  std::span<const double> prices, PassVersion version);

// Adds weight x_j of each point to `shares`: [blocks x kPriceLanes x J], all 0
// where there are several points: then any version gives the same bits.
void AddShares(const PricePass& pass, std::span<const PricePoint> points,
               std::span<double> shares, PassVersion version);

// Sums over the jobs that are settled in `box`; `open` is filled with the
// others, ascending.
PriceSettled SplitPass(const PricePass& pass, const PriceBox& box,
                       std::vector<uint32_t>* open, PassVersion version);

// The versions, one file each: for price_pass.cc.
namespace price_pass {
using SumFunction = void (*)(const PricePass&, double, const double*,
                             PriceSums*);
using ShareFunction = void (*)(const PricePass&, const PricePoint*, size_t,
                               double*);
// Returns how many jobs are open.
using SplitFunction = size_t (*)(const PricePass&, const PriceBox&,
                                 PriceSettled*, uint32_t*);
struct Functions {
  SumFunction sum = nullptr;
  ShareFunction share = nullptr;
  SplitFunction split = nullptr;
};
// Null where the compiler can't make them.
Functions Scalar();
Functions Avx2();
Functions Avx512();
}  // namespace price_pass

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_PASS_H_
