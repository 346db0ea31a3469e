// One pass over all jobs at given accelerator prices: the least cost at which
// each job has its demand. It is all that the price method (price_levels.h,
// price_water.h, price_program.h) does per job. The same bits on every
// processor: the same operations in the same order, sums in eight lanes by the
// job's index, no fused multiply-adds. Pure, thread-safe.
//
// A job of throughputs T_j that demands the rate d solves
//   min sum_j (p_j - g_j T_j) x_j,  sum_j T_j x_j >= d,  sum_j x_j <= 1,  x >=
//   0:
// it walks along the lower convex hull of {(0, 0)} and (T_j, p_j - g_j T_j) by
// gift wrapping, to d, and on as long as it goes down. At most two x_j > 0.
#ifndef GAVEL_COORDINATOR_POLICY_PRICE_PASS_H_
#define GAVEL_COORDINATOR_POLICY_PRICE_PASS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gavel::policy {

inline constexpr size_t kPriceLanes = 8;
inline constexpr size_t kPriceTypesMax = 64;

// The demand of job m at level t. kRamp: min(b + t a, c); kFinish: a / (-t b -
// c), the rate that finishes with the ratio rho = -t (fairness.cc).
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

// The jobs as the price method sees them, in the order in which its pass reads
// them. The solvers on prices use them. Values without locks.

// n jobs, J columns: types of which there is something, and parts of such that
// gangs may use only so much of (where they do not fill the servers).
struct PriceJobs {
  size_t size = 0;
  size_t types = 0;
  std::vector<double> throughputs;  // [blocks x J x kPriceLanes]; see PricePass
  std::vector<double> accelerators;  // [blocks x kPriceLanes], 0 for no job
  std::vector<double> capacity;      // [J], > 0
  // [J] whose accelerators a column's are: its own number, or that of the type
  // that it is a part of, whose capacity holds for both together. Empty: all
  // are types.
  std::vector<size_t> within;

  // The column's own number, or that of the type that it is a part of.
  size_t Within(size_t column) const {
    return within.empty() ? column : within[column];
  }
  size_t blocks() const { return accelerators.size() / kPriceLanes; }
  double& Throughput(size_t m, size_t j) {
    return throughputs[(m / kPriceLanes * types + j) * kPriceLanes +
                       m % kPriceLanes];
  }
  double Throughput(size_t m, size_t j) const {
    return const_cast<PriceJobs*>(this)->Throughput(m, j);
  }
};

// [J] what accelerators cost that are used through a column, at these prices of
// capacities: its own and, for a part, that of its type.
std::vector<double> PricesOfColumns(const PriceJobs& jobs,
                                    std::span<const double> prices);
// Usage of columns as usage of capacities.
void AddParts(const PriceJobs& jobs, std::span<double> usage);

// `size` jobs without throughputs, each of one accelerator.
PriceJobs MakePriceJobs(size_t size, std::vector<double> capacity);

// d_m(t) of PricePass; vectors [n] or empty (kRamp: b 0, c infinite).
struct PriceDemand {
  DemandCurve curve = DemandCurve::kRamp;
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> c;
};

// Fills the vectors up to whole blocks with what demands nothing.
void PadDemand(const PriceJobs& jobs, PriceDemand* demand);

// All borrowed. `demand` is padded.
PricePass PassOf(const PriceJobs& jobs, const PriceDemand& demand);

// Jobs `first`, `first + stride`, ... with their demands; each stands for
// `stride` jobs or, at the end, as many as there are.
struct PriceSample {
  PriceJobs jobs;
  PriceDemand demand;
};
PriceSample SampleJobs(const PriceJobs& jobs, const PriceDemand& demand,
                       size_t stride);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_PRICE_PASS_H_
