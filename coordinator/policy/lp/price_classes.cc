#include "coordinator/policy/lp/price_classes.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "core/radix_sort.h"

namespace gavel::policy {
namespace {

std::vector<double> SumsOf(std::span<const double> demands) {
  std::vector<double> sums(demands.size() + 1);
  std::partial_sum(demands.begin(), demands.end(), sums.begin() + 1);
  return sums;
}

// The first of the ascending `demands` above `limit`, from `first` on; `hint`
// is where it was the last time, which near an answer is where it still is.
size_t FirstAbove(std::span<const double> demands, size_t first, double limit,
                  uint32_t* hint) {
  const size_t at = std::max<size_t>(first, *hint);
  const bool here = (at == demands.size() || demands[at] > limit) &&
                    (at == first || demands[at - 1] <= limit);
  if (here) return at;
  const auto found = std::upper_bound(
      demands.begin() + static_cast<long>(first), demands.end(), limit);
  *hint = static_cast<uint32_t>(found - demands.begin());
  return *hint;
}

}  // namespace

std::optional<PriceClasses> PriceClasses::Of(const PriceJobs& jobs,
                                             std::span<const double> a,
                                             size_t classes_max) {
  PriceClasses out(jobs.types);
  std::vector<size_t> class_of;
  class_of.reserve(jobs.size);
  std::vector<double> row(jobs.types);
  for (size_t m = 0; m < jobs.size; ++m) {
    for (size_t j = 0; j < jobs.types; ++j) row[j] = jobs.Throughput(m, j);
    class_of.push_back(out.ClassOf(row, jobs.accelerators[m]));
    if (out.size() > classes_max) return std::nullopt;
  }
  // Sorted all at once, of which each class then takes its own.
  struct Demand {
    uint64_t key = 0;
    size_t job = 0;
  };
  std::vector<Demand> demands(jobs.size);
  std::vector<size_t> sizes(out.size());
  for (size_t m = 0; m < jobs.size; ++m) {
    demands[m] = {OrderedBits(a[m]), m};
    ++sizes[class_of[m]];
  }
  RadixSort(std::span(demands),
            [](const Demand& x, const Demand& y) { return x.key < y.key; });
  for (size_t i = 0; i < out.size(); ++i) {
    out.classes_[i].demands.reserve(sizes[i]);
  }
  for (const Demand& demand : demands) {
    const size_t m = demand.job;
    out.classes_[class_of[m]].demands.push_back(a[m]);
  }
  for (Class& one : out.classes_) one.sums = SumsOf(one.demands);
  return out;
}

size_t PriceClasses::ClassOf(std::span<const double> throughputs,
                             double accelerators) {
  const uint64_t hash = AddToHash(AddToHash(0, accelerators), throughputs);
  const size_t index = table_.Number(hash, [&](uint32_t other) {
    const Class& one = classes_[other];
    return one.accelerators == accelerators &&
           std::ranges::equal(one.throughputs, throughputs);
  });
  if (index == classes_.size()) {
    classes_.push_back(
        {{throughputs.begin(), throughputs.end()}, accelerators, {}, {0}});
  }
  return index;
}

// Where the flattest edge from `from` leads, the longest of those; `from`
// itself at the end. As in price_pass.cc.
PriceClasses::Corner PriceClasses::Next(const Class& one, const Corner& from,
                                        std::span<const double> prices) const {
  int best = from.type;
  double run = 0;
  double rise = 1;  // a vertical edge, of no length
  for (size_t j = 0; j < types_; ++j) {
    const double rate = one.throughputs[j] - from.rate;
    const double cost = prices[j] - from.cost;
    const double left = cost * run;
    const double right = rise * rate;
    const bool better =
        (rate > 0) & ((left < right) | ((left == right) & (rate > run)));
    best = better ? static_cast<int>(j) : best;
    run = better ? rate : run;
    rise = better ? cost : rise;
  }
  if (best == from.type) return from;
  const auto j = static_cast<size_t>(best);
  return {best, one.throughputs[j], prices[j]};
}

void PriceClasses::AddSums(const Class& one, double level,
                           std::span<const double> prices, uint32_t* hints,
                           PriceSums* sums) const {
  size_t first = 0;
  Corner from;
  double cost_per_step = 0;  // of the last edge
  while (first < one.demands.size()) {
    const Corner to = Next(one, from, prices);
    const bool last = to.type == from.type;
    if (last && from.type < 0) return;  // it can run nowhere
    const size_t end =
        last ? one.demands.size()
             : FirstAbove(one.demands, first, to.rate / level, hints++);
    const auto count = static_cast<double>(end - first);
    const double demanded = one.sums[end] - one.sums[first];
    // At the end of the hull a job has all that it can have; a rounding above
    // it, the slope is still that of the last edge: 0 would bound too much.
    const double run = last ? 1 : to.rate - from.rate;
    const double parts =
        last ? 0 : (level * demanded - from.rate * count) / run;
    const double rise = to.cost - from.cost;
    if (from.type >= 0) {
      sums->usage[from.type] += one.accelerators * (count - parts);
    }
    if (!last) sums->usage[to.type] += one.accelerators * parts;
    sums->cost += one.accelerators * (from.cost * count + parts * rise);
    if (!last) cost_per_step = rise / run;
    sums->slope += one.accelerators * cost_per_step * demanded;
    first = end;
    from = to;
  }
}

PriceEvaluator PriceClasses::Evaluator() const {
  std::vector<uint32_t> hints(classes_.size() * types_);
  return {[this, hints = std::move(hints)](
              double level, std::span<const double> prices) mutable {
            PriceSums sums;
            for (size_t i = 0; i < classes_.size(); ++i) {
              AddSums(classes_[i], level, prices, &hints[i * types_], &sums);
            }
            return sums;
          },
          /*idle_at_zero=*/true};
}

}  // namespace gavel::policy
