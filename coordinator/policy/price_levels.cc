#include "coordinator/policy/price_levels.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "coordinator/policy/column_master.h"
#include "coordinator/policy/policy.h"
#include "core/radix_sort.h"

namespace gavel::policy {
namespace {

// Steps of Newton's method that find a level to start from.
constexpr int kNewtonMax = 10;
// Where the next level is between the bounds: near the upper one, which is soon
// the better of the two, but not on it: a level that fits moves the lower one.
constexpr double kBelowPart = 0.01;
constexpr double kLevelReach = 0.1;
// Far enough below a level that is nearly right.
constexpr double kGuess = 1;
// Prices that prove the bound to this relative gap show which columns are
// scarce.
constexpr double kScarceGap = 1e-8;
// A type of which more than this part is left is not scarce.
constexpr double kFullPart = 1e-6;
// Nor is one with accelerators that are worth less than this part of all.
constexpr double kPricePart = 1e-8;
// Passes in which neither bound moved: it won't any more.
constexpr int kLevelStallMax = 60;
// More jobs than this are first solved for a sample, one job of so many. Its
// prices are this far off, in 1 / sqrt(size), and found to this gap.
constexpr size_t kSampleFrom = 20000;
constexpr size_t kSampleStride = 16;
constexpr double kSampleRoom = 3;
constexpr double kSampleGap = 1e-5;

// Fewer jobs are not worth a look for equal ones, nor are fewer in a class.
constexpr size_t kClassesFrom = 64;
constexpr size_t kJobsPerClass = 8;

class LevelSearch {
 public:
  LevelSearch(const PriceEvaluator& evaluate, std::span<const double> capacity,
              double level_max, double gap_max)
      : evaluate_(evaluate),
        capacity_(capacity),
        level_max_(level_max),
        gap_max_(gap_max),
        master_(capacity.size(), /*convex=*/true),
        usage_(capacity.size()) {
    answer_.bound = level_max;
    answer_.level = -std::numeric_limits<double>::infinity();
  }

  PriceLevel Run(PriceStart start) {
    if (start.prices.empty()) {
      const double all =
          std::accumulate(capacity_.begin(), capacity_.end(), 0.0);
      start.prices.assign(capacity_.size(), 1 / all);
      start.level = answer_.bound;
    }
    answer_.prices = start.prices;
    StartFrom(start);
    int stall = 0;
    while (!Done() && answer_.passes < kPassesMax && stall < kLevelStallMax) {
      const bool moved = Round();
      stall = moved ? 0 : stall + 1;
    }
    answer_.converged = Done();
    SetScarcity();
    answer_.mixture = NormalizedMixture(columns_, mixture_);
    return std::move(answer_);
  }

 private:
  bool Done() const {
    return answer_.bound - answer_.level <= gap_max_ * std::abs(answer_.bound);
  }

  // Evaluates, and takes the bound that it proves.
  PriceSums Pass(double level, std::span<const double> prices) {
    ++answer_.passes;
    const PriceSums sums = evaluate_.sums(level, prices);
    if (sums.slope > 0) {
      const double root = level - (sums.cost - 1) / sums.slope;
      if (root < answer_.bound) {
        answer_.bound = root;
        answer_.prices.assign(prices.begin(), prices.end());
      }
    }
    return sums;
  }

  // The largest part of a type that is used.
  double SetUsage(const PriceSums& sums) {
    double most = 0;
    for (size_t j = 0; j < usage_.size(); ++j) {
      usage_[j] = sums.usage[j] / capacity_[j];
      most = std::max(most, usage_[j]);
    }
    return most;
  }

  void AddColumn(double level, std::span<const double> prices) {
    master_.Add(level, usage_);
    usages_.insert(usages_.end(), usage_.begin(), usage_.end());
    columns_.push_back({level, 0, {prices.begin(), prices.end()}});
  }

  // A level near the root of the cost at the first prices, and a column that
  // fits alone below it.
  void StartFrom(const PriceStart& start) {
    double level = std::min(start.level, answer_.bound);
    PriceSums sums = Pass(level, start.prices);
    for (int i = 0; i < kNewtonMax && sums.cost > 1 + 1e-6; ++i) {
      level = std::min(level - (sums.cost - 1) / sums.slope, answer_.bound);
      sums = Pass(level, start.prices);
    }
    reach_ = start.reach;
    if (!AddFirst(level, sums, start)) return;
    for (const PriceColumn& column : start.mixture) {
      const double near = std::min(column.level, answer_.bound);
      SetUsage(Pass(near, column.prices));
      AddColumn(near, column.prices);
    }
    SolveMaster();
  }

  // The column at (level, first prices) and before it one that fits alone.
  // False: there is none.
  bool AddFirst(double level, const PriceSums& sums, const PriceStart& start) {
    double overload = SetUsage(sums);
    const std::vector<double> usage = usage_;
    double fits = level;
    guessed_ = !evaluate_.idle_at_zero && !start.mixture.empty();
    if (evaluate_.idle_at_zero || guessed_) {
      fits = guessed_ ? level - kGuess * std::abs(level) : 0;
      std::fill(usage_.begin(), usage_.end(), 0.0);
    } else {
      // Demands fall at least in proportion to the level: for kFinish it is the
      // reciprocal that does.
      for (int i = 0; i < kFitMax && overload > 1; ++i) {
        const double factor = overload * (1 + 1e-9) * std::exp2(i / 4);
        fits = fits > 0 ? fits / factor : fits * factor;
        overload = SetUsage(Pass(fits, start.prices));
      }
      if (overload > 1) return false;
    }
    AddColumn(fits, start.prices);
    if (fits != level) {
      usage_ = usage;
      AddColumn(level, start.prices);
    }
    return true;
  }
  static constexpr int kFitMax = 200;

  // Both bounds; false: neither has moved.
  bool SolveMaster() {
    master_.Solve();
    double level = 0;
    double all = 0;
    for (const auto& [k, weight] : master_.mixture()) {
      level += weight * columns_[k].level;
      all += weight;
    }
    level /= all;
    if (level <= answer_.level ||
        (guessed_ && master_.mixture().front().first == 0))
      return false;
    answer_.level = level;
    mixture_ = master_.mixture();
    return true;
  }

  bool Round() {
    if (columns_.empty()) return false;  // nothing fits: Run gives up
    const double bound = answer_.bound;
    std::vector<double> prices = master_.PricesOf(capacity_);
    double level = answer_.bound - kBelowPart * (answer_.bound - answer_.level);
    level = std::max(
        level, answer_.bound - kLevelReach * reach_ * std::abs(answer_.bound));
    if (prices.empty()) {
      prices = answer_.prices;
      level = answer_.bound;
    } else {
      double step = moved_ ? 1 - kBestPart : 1;
      double way = 0;
      for (size_t j = 0; j < prices.size(); ++j) {
        way += std::abs(prices[j] - answer_.prices[j]) * capacity_[j];
      }
      if (step * way > reach_) step = reach_ / way;
      for (size_t j = 0; j < prices.size(); ++j) {
        prices[j] = (1 - step) * answer_.prices[j] + step * prices[j];
      }
      far_ = step * way >= reach_;
    }
    SetUsage(Pass(level, prices));
    if (far_ && answer_.bound < bound) reach_ *= 2;
    AddColumn(level, prices);
    moved_ = SolveMaster() || answer_.bound < bound;
    return moved_;
  }

  // By the master's duals, which are 0 where there is something left, if they
  // prove the level; else by the prices of the bound.
  void SetScarcity() {
    answer_.scarcity.assign(capacity_.size(), 0.0);
    if (columns_.empty()) return;
    // Some job has all that it can alone, whatever the others do.
    if (level_max_ - answer_.level <= gap_max_ * std::abs(level_max_)) {
      return;
    }
    std::vector<double> prices = master_.PricesOf(capacity_);
    if (prices.empty()) return;
    const PriceSums sums = Pass(answer_.level, prices);
    const double root = answer_.level - (sums.cost - 1) / sums.slope;
    if (!(root - answer_.level <= kScarceGap * std::abs(answer_.level))) {
      prices = answer_.prices;
    }
    // A column is not scarce if the mixture leaves some of it, or if it is
    // worth next to nothing.
    std::vector<double> used(capacity_.size(), 0.0);
    double all = 0;
    for (const auto& [k, weight] : mixture_) {
      for (size_t j = 0; j < used.size(); ++j) {
        used[j] += weight * usages_[k * used.size() + j];
      }
      all += weight;
    }
    for (size_t j = 0; j < used.size(); ++j) {
      const bool full = used[j] >= all * (1 - kFullPart);
      const bool dear = prices[j] * capacity_[j] > kPricePart;
      if (full && dear) answer_.scarcity[j] = prices[j];
    }
  }

  const PriceEvaluator& evaluate_;
  std::span<const double> capacity_;
  double level_max_;
  double gap_max_;
  ColumnMaster master_;
  std::vector<double> usage_;   // reused
  std::vector<double> usages_;  // [columns x J] parts of the capacity
  std::vector<PriceColumn> columns_;
  std::vector<std::pair<size_t, double>> mixture_;  // of the best level
  double reach_ = 0;
  bool far_ = false;      // the last prices were as far as reach_ allows
  bool guessed_ = false;  // that column 0 uses nothing; not part of an answer
  bool moved_ = true;
  PriceLevel answer_;
};

}  // namespace

std::vector<PriceColumn> NormalizedMixture(
    std::span<const PriceColumn> columns,
    std::span<const std::pair<size_t, double>> mixture) {
  double all = 0;
  for (const auto& [k, weight] : mixture) all += weight;
  std::vector<PriceColumn> normalized;
  for (const auto& [k, weight] : mixture) {
    normalized.push_back(columns[k]);
    normalized.back().weight = weight / all;
  }
  return normalized;
}

PriceEvaluator OfCapacities(const PriceJobs& jobs, PriceEvaluator columns) {
  if (jobs.within.empty()) return columns;
  PriceEvaluator evaluate;
  evaluate.idle_at_zero = columns.idle_at_zero;
  evaluate.sums = [&jobs, of_columns = std::move(columns.sums)](
                      double level, std::span<const double> prices) {
    PriceSums sums = of_columns(level, PricesOfColumns(jobs, prices));
    AddParts(jobs, sums.usage);
    return sums;
  };
  return evaluate;
}

PriceLevel HighestLevel(const PriceEvaluator& evaluate,
                        std::span<const double> capacity, double level_max,
                        double gap_max, PriceStart start) {
  return LevelSearch(evaluate, capacity, level_max, gap_max)
      .Run(std::move(start));
}

namespace {

// By classes of equal jobs where there are any; many jobs are first looked at
// by a sample.
PriceLevel SearchJobs(const PriceJobs& jobs, const PriceDemand& demand,
                      double level_max, double gap_max) {
  const bool proportional = demand.curve == DemandCurve::kRamp &&
                            demand.b.empty() && demand.c.empty();
  if (proportional && jobs.size >= kClassesFrom) {
    const auto classes = PriceClasses::Of(
        jobs, std::span(demand.a).first(jobs.size), jobs.size / kJobsPerClass);
    if (classes.has_value()) {
      return HighestLevel(OfCapacities(jobs, classes->Evaluator()),
                          jobs.capacity, level_max, gap_max);
    }
  }
  PriceStart start;
  if (jobs.size >= kSampleFrom) {
    const PriceSample sample = SampleJobs(jobs, demand, kSampleStride);
    const PriceLevel found = SearchJobs(sample.jobs, sample.demand, level_max,
                                        std::max(gap_max, kSampleGap));
    const double part =
        kSampleRoom / std::sqrt(static_cast<double>(sample.jobs.size));
    start = {found.prices, found.level, found.mixture, part / 2};
  }
  const PricePass pass = PassOf(jobs, demand);
  PriceEvaluator evaluate;
  evaluate.sums = [&](double level, std::span<const double> prices) {
    return SumPass(pass, level, prices);
  };
  evaluate.idle_at_zero =
      demand.curve == DemandCurve::kRamp && demand.b.empty();
  evaluate = OfCapacities(jobs, std::move(evaluate));
  PriceLevel answer =
      HighestLevel(evaluate, jobs.capacity, level_max, gap_max, start);
  if (answer.mixture.empty() && !start.mixture.empty()) {
    // The start misled it.
    answer = HighestLevel(evaluate, jobs.capacity, level_max, gap_max);
  }
  return answer;
}

}  // namespace

PriceLevel HighestLevel(const PriceJobs& jobs, const PriceDemand& demand,
                        double level_max, double gap_max) {
  PriceLevel answer = SearchJobs(jobs, demand, level_max, gap_max);
  ProveBound(jobs, PassOf(jobs, demand), level_max, gap_max, &answer);
  return answer;
}

void ProveBound(const PriceJobs& jobs, const PricePass& pass, double level_max,
                double gap_max, PriceLevel* level) {
  level->bound = ProvedLevel(pass, PricesOfColumns(jobs, level->prices),
                             level->bound, level_max);
  const double missing = level->bound - level->level;
  const double scale = std::abs(level->bound);
  level->converged = level->converged && missing <= gap_max * scale &&
                     missing >= -kBoundRounding * scale;
}

std::vector<double> SharesOf(const PriceJobs& jobs, const PricePass& pass,
                             std::span<const PriceColumn> mixture) {
  // No job demands anything at 0, where a search may have begun.
  const bool idle_at_zero = pass.curve == DemandCurve::kRamp &&
                            pass.b == nullptr && pass.gain == nullptr;
  std::vector<PricePoint> points;
  std::vector<std::vector<double>> prices;
  prices.reserve(mixture.size());
  for (const PriceColumn& column : mixture) {
    if (idle_at_zero && column.level == 0) continue;
    prices.push_back(PricesOfColumns(jobs, column.prices));
    points.push_back({column.level, column.weight, prices.back().data()});
  }
  std::vector<double> shares(jobs.blocks() * kPriceLanes * jobs.types, 0.0);
  AddShares(pass, points, shares);
  return shares;
}

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

namespace {

// The relative rounding error of the least cost, which sums up positive terms.
constexpr double kCostRounding = 1e-13;
// Mixtures of two choices whose costs differ by at most this part cost the
// same.
constexpr double kSameCost = 1e-13;

struct DemandPoint {
  double rate = 0;
  double slope = 0;
};

DemandPoint DemandOf(const PricePass& pass, size_t job, double level) {
  const double a = pass.a[job];
  if (pass.curve == DemandCurve::kFinish) {
    const double left = -level * pass.b[job] - pass.c[job];
    return {a / left, a * pass.b[job] / (left * left)};
  }
  const double rate = level * a + (pass.b == nullptr ? 0 : pass.b[job]);
  if (pass.c != nullptr && rate >= pass.c[job]) return {pass.c[job], 0};
  return {rate, a};
}

// Nothing, and all types that the job can use. Returns how many.
size_t ChoicesOf(const PricePass& pass, size_t job,
                 std::span<const double> prices, Choice* choices) {
  const double gain = pass.gain == nullptr ? 0 : pass.gain[job];
  const double* throughputs = pass.throughputs +
                              job / kPriceLanes * pass.types * kPriceLanes +
                              job % kPriceLanes;
  size_t count = 1;
  for (size_t j = 0; j < pass.types; ++j) {
    const double rate = throughputs[j * kPriceLanes];
    if (rate <= 0) continue;
    const double worth = gain == 0 ? 0 : gain * pass.worth[j];
    choices[count++] = {rate, prices[j] - worth * rate};
  }
  return count;
}

}  // namespace

// The cheapest mixture is of two choices, one on each side of the rate, or of
// one choice that is better than free.
LeastCost LeastCostOf(std::span<const Choice> choices, double rate) {
  LeastCost least{std::numeric_limits<double>::infinity(), 0};
  for (const Choice& above : choices) {
    if (above.rate < rate) continue;
    if (above.cost <= 0 && above.cost < least.cost) least = {above.cost, 0};
    for (const Choice& below : choices) {
      if (below.rate >= rate) continue;
      const double slope =
          (above.cost - below.cost) / (above.rate - below.rate);
      const double cost = below.cost + slope * (rate - below.rate);
      const bool steeper =
          cost <= least.cost * (1 + kSameCost) && slope > least.slope;
      if (cost >= least.cost && !steeper) continue;
      least = {std::min(least.cost, cost), slope};
    }
  }
  return least;
}

LeastCost LeastCostOf(const PricePass& pass, double level,
                      std::span<const double> prices) {
  assert(prices.size() == pass.types && pass.types <= kPriceTypesMax);
  Choice choices[kPriceTypesMax + 1];
  LeastCost all;
  for (size_t block = 0; block < pass.blocks; ++block) {
    LeastCost sum;  // apart: less rounding
    for (size_t lane = 0; lane < kPriceLanes; ++lane) {
      const size_t job = block * kPriceLanes + lane;
      const double held = pass.accelerators[job];
      if (held == 0) continue;
      const size_t count = ChoicesOf(pass, job, prices, choices);
      const DemandPoint demand = DemandOf(pass, job, level);
      double fastest = 0;
      for (size_t i = 0; i < count; ++i) {
        fastest = std::max(fastest, choices[i].rate);
      }
      // Above it by rounding only.
      const LeastCost least =
          LeastCostOf({choices, count}, std::min(demand.rate, fastest));
      sum.cost += held * least.cost;
      sum.slope += held * least.slope * demand.slope;
    }
    all.cost += sum.cost;
    all.slope += sum.slope;
  }
  return all;
}

double ProvedLevel(const PricePass& pass, std::span<const double> prices,
                   double bound, double level_max) {
  if (bound >= level_max) return level_max;
  const LeastCost least = LeastCostOf(pass, bound, prices);
  if (least.cost >= 1) return bound;
  if (!(least.slope > 0)) return level_max;
  return std::min(level_max, bound + (1 - least.cost) / least.slope);
}

double ProvedLevel(const std::function<double(double level)>& cost_at,
                   double bound, double level_max) {
  const auto out_of_reach = [&](double level) {
    return cost_at(level) > 1 + kCostRounding;
  };
  if (bound >= level_max) return level_max;
  double low = bound * (1 + kBoundRounding);
  if (out_of_reach(low)) return bound;
  if (!out_of_reach(level_max)) return level_max;
  double high = level_max;
  while (high - low > kBoundRounding * high) {
    const double middle = (low + high) / 2;
    (out_of_reach(middle) ? high : low) = middle;
  }
  return high;
}

double ProvedSum(const PriceJobs& jobs, const PricePass& pass,
                 std::span<const double> rent, std::span<const double> prices) {
  std::vector<double> paid(prices.begin(), prices.end());
  double income = 0;
  for (size_t j = 0; j < paid.size(); ++j) {
    paid[j] += rent[j];
    income += prices[j] * jobs.capacity[j];
  }
  return income - LeastCostOf(pass, 0, PricesOfColumns(jobs, paid)).cost;
}

}  // namespace gavel::policy
