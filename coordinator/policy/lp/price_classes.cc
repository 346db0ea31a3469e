#include "coordinator/policy/lp/price_classes.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

namespace gavel {
namespace {

constexpr size_t kEmptySlot = std::numeric_limits<size_t>::max();

// Rows seen so far by their bits, and where each was first.
class RowTable {
 public:
  RowTable(const PriceJobs& jobs, size_t rows_max)
      : jobs_(jobs), slots_(std::bit_ceil(4 * rows_max + 4), kEmptySlot) {}

  // The row's number; the next one for a row that is new.
  size_t Number(size_t m) {
    size_t slot = Hash(m) & (slots_.size() - 1);
    while (slots_[slot] != kEmptySlot && !Equal(first_[slots_[slot]], m)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    if (slots_[slot] == kEmptySlot) {
      slots_[slot] = first_.size();
      first_.push_back(m);
    }
    return slots_[slot];
  }
  const std::vector<size_t>& first() const { return first_; }

 private:
  uint64_t Hash(size_t m) const {
    uint64_t hash = std::bit_cast<uint64_t>(jobs_.accelerators[m]);
    for (size_t j = 0; j < jobs_.types; ++j) {
      hash ^= std::bit_cast<uint64_t>(jobs_.Throughput(m, j));
      hash *= 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: spreads the bits
      hash ^= hash >> 29;
    }
    return hash;
  }
  bool Equal(size_t a, size_t b) const {
    bool equal = jobs_.accelerators[a] == jobs_.accelerators[b];
    for (size_t j = 0; equal && j < jobs_.types; ++j) {
      equal = jobs_.Throughput(a, j) == jobs_.Throughput(b, j);
    }
    return equal;
  }

  const PriceJobs& jobs_;
  std::vector<size_t> slots_;
  std::vector<size_t> first_;  // by number
};

// `demands` ascending without `gone` and with `come`, both ascending; false:
// one of `gone` is not there.
bool Merge(std::span<const double> demands,
           std::span<const PriceClasses::Member> gone,
           std::span<const PriceClasses::Member> come,
           std::vector<double>* merged) {
  merged->reserve(demands.size() + come.size());
  auto leaving = gone.begin();
  auto coming = come.begin();
  for (const double demand : demands) {
    if (leaving != gone.end() && leaving->a == demand) {
      ++leaving;
      continue;
    }
    while (coming != come.end() && coming->a <= demand) {
      merged->push_back((coming++)->a);
    }
    merged->push_back(demand);
  }
  for (; coming != come.end(); ++coming) merged->push_back(coming->a);
  return leaving == gone.end();
}

std::vector<double> SumsOf(std::span<const double> demands) {
  std::vector<double> sums;
  sums.reserve(demands.size() + 1);
  double sum = 0;
  sums.push_back(0);
  for (const double demand : demands) sums.push_back(sum += demand);
  return sums;
}

// Those of class `index`: members are sorted by class.
std::span<const PriceClasses::Member> OfClass(
    std::span<const PriceClasses::Member> members, size_t index) {
  const auto begin = std::ranges::lower_bound(members, index, {},
                                              &PriceClasses::Member::index);
  const auto end = std::ranges::upper_bound(members, index, {},
                                            &PriceClasses::Member::index);
  return {begin, end};
}

}  // namespace

std::optional<PriceClasses> PriceClasses::Of(const PriceJobs& jobs,
                                             std::span<const double> a,
                                             size_t classes_max) {
  PriceClasses out(jobs.types);
  RowTable table(jobs, classes_max);
  out.class_of_.reserve(jobs.size);
  for (size_t m = 0; m < jobs.size; ++m) {
    out.class_of_.push_back(table.Number(m));
    if (table.first().size() > classes_max) return std::nullopt;
  }
  std::vector<double> row(jobs.types);
  for (const size_t m : table.first()) {
    for (size_t j = 0; j < jobs.types; ++j) row[j] = jobs.Throughput(m, j);
    out.AddClass(row, jobs.accelerators[m]);
  }
  for (size_t m = 0; m < jobs.size; ++m) {
    out.classes_[out.class_of_[m]].demands.push_back(a[m]);
  }
  for (Class& one : out.classes_) {
    std::sort(one.demands.begin(), one.demands.end());
    one.sums = SumsOf(one.demands);
  }
  out.jobs_ = jobs.size;
  return out;
}

size_t PriceClasses::AddClass(std::span<const double> throughputs,
                              double accelerators) {
  classes_.push_back(
      {{throughputs.begin(), throughputs.end()}, accelerators, {}, {0}});
  return classes_.size() - 1;
}

bool PriceClasses::Change(std::vector<Member> gone, std::vector<Member> come) {
  const auto by_class = [](const Member& x, const Member& y) {
    return std::tie(x.index, x.a) < std::tie(y.index, y.a);
  };
  std::sort(gone.begin(), gone.end(), by_class);
  std::sort(come.begin(), come.end(), by_class);
  std::vector<std::pair<size_t, std::vector<double>>> changed;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const std::span<const Member> leaving = OfClass(gone, i);
    const std::span<const Member> coming = OfClass(come, i);
    if (leaving.empty() && coming.empty()) continue;
    changed.emplace_back(i, std::vector<double>());
    if (!Merge(classes_[i].demands, leaving, coming, &changed.back().second)) {
      return false;
    }
  }
  for (auto& [index, demands] : changed) {
    classes_[index].sums = SumsOf(demands);
    classes_[index].demands = std::move(demands);
  }
  jobs_ += come.size();
  jobs_ -= gone.size();
  class_of_.clear();
  return true;
}

// Where the flattest edge from `from` leads, the longest of those; `from`
// itself at the end. As in price_pass_body.h.
PriceClasses::Corner PriceClasses::Next(const Class& one, const Corner& from,
                                        std::span<const double> prices) const {
  Corner best = from;
  for (size_t j = 0; j < types_; ++j) {
    const double rate = one.throughputs[j] - from.rate;
    if (!(rate > 0)) continue;
    const double left = (prices[j] - from.cost) * (best.rate - from.rate);
    const double right = (best.cost - from.cost) * rate;
    const bool longer = one.throughputs[j] > best.rate;
    if (best.type == from.type || left < right || (left == right && longer)) {
      best = {static_cast<int>(j), one.throughputs[j], prices[j]};
    }
  }
  return best;
}

void PriceClasses::AddSums(const Class& one, double level,
                           std::span<const double> prices,
                           PriceSums* sums) const {
  size_t first = 0;
  Corner from;
  double cost_per_step = 0;  // of the last edge
  while (first < one.demands.size()) {
    const Corner to = Next(one, from, prices);
    const bool last = to.type == from.type;
    if (last && from.type < 0) return;  // it can run nowhere
    const auto begin = one.demands.begin();
    const size_t end =
        last ? one.demands.size()
             : static_cast<size_t>(
                   std::upper_bound(begin + static_cast<long>(first),
                                    one.demands.end(), to.rate / level) -
                   begin);
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

PriceSums PriceClasses::operator()(double level,
                                   std::span<const double> prices) const {
  PriceSums sums;
  for (const Class& one : classes_) AddSums(one, level, prices, &sums);
  return sums;
}

std::vector<double> PriceClasses::Shares(
    const Member& member, std::span<const PriceColumn> mixture) const {
  const Class& one = classes_[member.index];
  std::vector<double> shares(types_, 0.0);
  for (const PriceColumn& column : mixture) {
    const double demand = column.level * member.a;
    Corner from;
    Corner to = Next(one, from, column.prices);
    while (to.rate < demand && to.type != from.type) {
      from = to;
      to = Next(one, from, column.prices);
    }
    if (to.type < 0 || !(demand > 0)) continue;
    const double part =
        to.type == from.type
            ? 1
            : std::min(1.0, (demand - from.rate) / (to.rate - from.rate));
    shares[static_cast<size_t>(to.type)] += column.weight * part;
    if (from.type >= 0) {
      shares[static_cast<size_t>(from.type)] += column.weight * (1 - part);
    }
  }
  return shares;
}

PriceEvaluator PriceClasses::Evaluator() const {
  return {[this](double level, std::span<const double> prices) {
            return (*this)(level, prices);
          },
          /*idle_at_zero=*/true};
}

}  // namespace gavel
