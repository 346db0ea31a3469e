// What the price method knows of the jobs, in the order in which its pass reads
// it. Called by the solvers on prices and what feeds them. A value without
// locks.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_JOBS_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_JOBS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_pass.h"

namespace gavel::policy {

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

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_JOBS_H_
