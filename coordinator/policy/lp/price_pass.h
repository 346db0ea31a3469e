// One pass over all jobs at given accelerator prices: the least cost at which
// each job has its demand. It is all that the price method (price_levels.h,
// price_water.h, price_sums.h) does per job. The same bits on every processor:
// the same operations in the same order, sums in eight lanes by the job's
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

namespace gavel::policy {

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

PriceSums SumPass(const PricePass& pass, double level,
                  std::span<const double> prices);

// Adds weight x_j of each point to `shares`: [blocks x kPriceLanes x J].
void AddShares(const PricePass& pass, std::span<const PricePoint> points,
               std::span<double> shares);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_PASS_H_
