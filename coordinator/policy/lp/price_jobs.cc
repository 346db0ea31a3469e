#include "coordinator/policy/lp/price_jobs.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gavel::policy {
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
  // 0 / (rho - 0) is no demand either.
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
