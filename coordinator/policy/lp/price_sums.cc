#include "coordinator/policy/lp/price_sums.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "coordinator/policy/lp/column_master.h"
#include "coordinator/policy/lp/price_proof.h"
#include "coordinator/policy/share/bound.h"

namespace gavel::policy {
namespace {

// As in price_levels.cc.
constexpr int kSumStallMax = 100;

class SumSearch {
 public:
  SumSearch(const PriceJobs& jobs, const PricePass& pass,
            std::span<const double> rent, const KnownShares& known,
            double gap_max)
      : jobs_(jobs),
        capacity_(jobs.capacity),
        rent_(rent),
        gap_max_(gap_max),
        pass_(pass),
        master_(capacity_.size(), /*convex=*/true),
        usage_(capacity_.size()) {
    answer_.bound = std::numeric_limits<double>::infinity();
    answer_.value = known.value;
    answer_.known_weight = 1;
    // At prices of 0: what all jobs could have alone.
    const std::vector<double> free(capacity_.size(), 0.0);
    const Column best = Pass(free);
    scale_ = std::max(std::abs(best.value), std::abs(known.value));
    if (scale_ == 0) scale_ = 1;
    gross_ = Gross(known.value, known.usage);
    Add(known.value, known.usage);
    Add(best.value, best.usage);
    columns_ = {{}, {0, 0, free}};
  }

  PriceSum Run() {
    Mix();
    int stall = 0;
    while (!Done() && answer_.passes < kPassesMax && stall < kSumStallMax) {
      stall = Round() ? 0 : stall + 1;
    }
    Prove();
    return std::move(answer_);
  }

 private:
  struct Column {
    double value = 0;
    std::vector<double> usage;
  };

  bool Done() const {
    return answer_.bound - answer_.value <=
           gap_max_ * std::max(std::abs(answer_.bound), gross_);
  }

  // The bound that the prices really prove. Below what is there by more than
  // rounding it is none.
  void Prove() {
    answer_.bound =
        std::max(answer_.bound, ProvedSum(jobs_, pass_, rent_, answer_.prices));
    const double scale = std::max(std::abs(answer_.bound), gross_);
    answer_.converged =
        Done() && answer_.bound >= answer_.value - kBoundRounding * scale;
  }

  double Gross(double value, std::span<const double> usage) const {
    return value +
           std::inner_product(usage.begin(), usage.end(), rent_.begin(), 0.0);
  }

  Column Pass(std::span<const double> prices) {
    ++answer_.passes;
    std::vector<double> paid_prices(prices.begin(), prices.end());
    for (size_t j = 0; j < prices.size(); ++j) paid_prices[j] += rent_[j];
    PriceSums sums = SumPass(pass_, 0, PricesOfColumns(jobs_, paid_prices));
    AddParts(jobs_, sums.usage);
    Column column;
    column.usage.assign(sums.usage, sums.usage + capacity_.size());
    double paid = 0;
    double income = 0;
    for (size_t j = 0; j < prices.size(); ++j) {
      paid += prices[j] * sums.usage[j];
      income += prices[j] * capacity_[j];
    }
    column.value = paid - sums.cost;
    if (income - sums.cost < answer_.bound) {
      answer_.bound = income - sums.cost;
      answer_.prices.assign(prices.begin(), prices.end());
    }
    return column;
  }

  void Add(double value, std::span<const double> usage) {
    for (size_t j = 0; j < usage_.size(); ++j) {
      usage_[j] = usage[j] / capacity_[j];
    }
    master_.Add(value / scale_, usage_);
    values_.push_back(value);
    gross_of_.push_back(Gross(value, usage));
  }

  bool Round() {
    const double bound = answer_.bound;
    std::vector<double> prices(capacity_.size());
    for (size_t j = 0; j < prices.size(); ++j) {
      prices[j] = master_.prices()[j] * scale_ / capacity_[j];
      if (moved_) {
        prices[j] = kBestPart * answer_.prices[j] + (1 - kBestPart) * prices[j];
      }
    }
    const Column column = Pass(prices);
    Add(column.value, column.usage);
    columns_.push_back({0, 0, std::move(prices)});
    moved_ = Mix() || answer_.bound < bound;
    return moved_;
  }

  bool Mix() {
    master_.Solve();
    double value = 0;
    double all = 0;
    for (const auto& [k, weight] : master_.mixture()) {
      value += weight * values_[k];
      all += weight;
    }
    value /= all;
    if (value <= answer_.value) return false;
    answer_.value = value;
    gross_ = 0;
    for (const auto& [k, weight] : master_.mixture()) {
      gross_ += weight / all * gross_of_[k];
    }
    answer_.mixture = NormalizedMixture(columns_, master_.mixture());
    answer_.known_weight = 0;
    if (master_.mixture().front().first == 0) {
      answer_.known_weight = answer_.mixture.front().weight;
      answer_.mixture.erase(answer_.mixture.begin());
    }
    for (PriceColumn& column : answer_.mixture) {
      for (size_t j = 0; j < rent_.size(); ++j) column.prices[j] += rent_[j];
    }
    return true;
  }

  const PriceJobs& jobs_;
  std::span<const double> capacity_;
  std::span<const double> rent_;
  double gap_max_;
  const PricePass& pass_;
  ColumnMaster master_;
  double gross_ = 0;  // of the mixture, before rent
  std::vector<double> gross_of_;
  double scale_ = 1;           // of values in the master
  std::vector<double> usage_;  // reused
  std::vector<double> values_;
  std::vector<PriceColumn> columns_;
  bool moved_ = true;
  PriceSum answer_;
};

}  // namespace

PriceSum HighestSum(const PriceJobs& jobs, const PricePass& pass,
                    std::span<const double> rent, const KnownShares& known,
                    double gap_max) {
  assert(pass.gain != nullptr && pass.worth != nullptr);
  return SumSearch(jobs, pass, rent, known, gap_max).Run();
}

}  // namespace gavel::policy
