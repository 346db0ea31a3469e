#include "coordinator/policy/lp/price_water.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "coordinator/policy/lp/price_proof.h"
#include "coordinator/policy/lp/price_water_stage.h"
#include "coordinator/policy/lp/price_water_ties.h"

namespace gavel::policy {
namespace {

// The part by which a level may be below the one before.
constexpr double kFallMax = 1e-8;
// Types of which less than this part is left are full.
constexpr double kLeftMin = 1e-9;
// As in price_levels.cc.
constexpr size_t kWaterSampleFrom = 20000;
constexpr size_t kWaterSampleSize = 4096;

// A job of a stage. A frozen job that divides its time between scarce types and
// several others, all equally fast, stays as a `tied` one: it demands that time
// on those others, at a speed of 1 and at any level.
struct WaterMember {
  size_t job = 0;
  double rate = 0;  // infinite: has its cap at any level
  double cap = 0;
  bool tied = false;
  double speed = 0;  // of a tied one, where it is tied
};

class PriceFilling {
 public:
  PriceFilling(const PriceJobs& jobs, const WaterCurves* curves,
               const PriceOptions& options)
      : jobs_(jobs), curves_(curves), options_(options), left_(jobs.capacity) {
    answer_.shares.assign(jobs.size * jobs.types, 0.0);
    for (size_t j = 0; j < jobs.types; ++j) types_.push_back(j);
    rates_.resize(jobs.size);
  }

  PriceWater Run(std::vector<WaterMember> members) {
    members_ = std::move(members);
    answer_.converged = true;
    while (!members_.empty() && !types_.empty()) {
      Finish(curves_ == nullptr ? RunRamps() : RunCurves());
    }
    return std::move(answer_);
  }

 private:
  double Speed(const WaterMember& member, size_t type) const {
    const double throughput = jobs_.Throughput(member.job, type);
    if (!member.tied) return throughput;
    return throughput == member.speed ? 1 : 0;
  }

  PriceJobs StageJobs() const {
    std::vector<double> capacity;
    for (const size_t j : types_) capacity.push_back(left_[j]);
    PriceJobs jobs = MakePriceJobs(members_.size(), std::move(capacity));
    if (!jobs_.within.empty()) {
      for (const size_t j : types_) {
        const auto at = std::ranges::find(types_, jobs_.within[j]);
        jobs.within.push_back(static_cast<size_t>(at - types_.begin()));
      }
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      jobs.accelerators[i] = jobs_.accelerators[members_[i].job];
      for (size_t t = 0; t < types_.size(); ++t) {
        jobs.Throughput(i, t) = Speed(members_[i], types_[t]);
      }
    }
    return jobs;
  }

  WaterEnd RunRamps() {
    PriceJobs jobs = StageJobs();
    PriceDemand demand;
    double top = 0;
    for (const WaterMember& member : members_) {
      demand.a.push_back(member.rate);
      demand.c.push_back(member.cap);
      top = std::max(top, member.cap / member.rate);
    }
    PadDemand(jobs, &demand);
    // All have their caps there, to rounding; any level where all are tied.
    top = top > 0 ? top * (1 + 1e-12) : 1;
    const PricePass pass = PassOf(jobs, demand);
    WaterStage stage(SumsOf(jobs, pass), jobs.capacity, top, options_);
    if (jobs.size >= kWaterSampleFrom) {
      const PriceSample sample =
          SampleJobs(jobs, demand, jobs.size / kWaterSampleSize);
      const PricePass sample_pass = PassOf(sample.jobs, sample.demand);
      WaterStage first(SumsOf(sample.jobs, sample_pass), sample.jobs.capacity,
                       top, options_);
      first.Run();
      stage.StartFrom(first.prices());
    }
    stage.Run();
    const std::vector<double> prices = PricesOfColumns(jobs, stage.prices());
    WaterEnd end = EndOf(stage, top, [&](double level) {
      return LeastCostOf(pass, level, prices).cost;
    });
    for (const WaterMember& member : members_) {
      end.has.push_back(std::min(end.level * member.rate, member.cap));
    }
    end.shares = SharesOf(jobs, pass, stage.Mixture());
    end.jobs = std::move(jobs);
    return end;
  }

  static WaterSums SumsOf(const PriceJobs& jobs, const PricePass& pass) {
    const auto sums = [&pass](double level, std::span<const double> prices) {
      return SumPass(pass, level, prices);
    };
    return OfCapacities(jobs, {sums}).sums;
  }

  // A stage of demands that are no ramps: levels count from the last one.
  WaterEnd RunCurves() {
    PriceJobs jobs = StageJobs();
    PriceDemand demand;
    demand.a.assign(members_.size(), 0.0);
    demand.b.assign(members_.size(), 0.0);
    PadDemand(jobs, &demand);
    const PricePass pass = PassOf(jobs, demand);
    const auto set = [&](double level) {
      curves_->at(level, rates_);
      for (size_t i = 0; i < members_.size(); ++i) {
        const WaterMember& member = members_[i];
        demand.b[i] = member.tied ? member.cap : rates_[member.job];
      }
    };
    const double top = curves_->top();
    const auto sums = [&](double level, std::span<const double> prices) {
      set(level);
      return SumPass(pass, 0, prices);
    };
    WaterStage stage(OfCapacities(jobs, {sums}).sums, jobs.capacity, top,
                     options_);
    stage.Run();
    const std::vector<double> prices = PricesOfColumns(jobs, stage.prices());
    const auto cost_at = [&](double level) {
      set(level);
      return LeastCostOf(pass, 0, prices).cost;
    };
    WaterEnd end = EndOf(stage, top, cost_at);
    end.shares.assign(jobs.blocks() * kPriceLanes * jobs.types, 0.0);
    for (const PriceColumn& column : stage.Mixture()) {
      set(column.level);
      const std::vector<double> paid = PricesOfColumns(jobs, column.prices);
      const PricePoint point = {0, column.weight, paid.data()};
      AddShares(pass, {&point, 1}, end.shares);
    }
    set(stage.level());
    end.has.assign(demand.b.begin(),
                   demand.b.begin() + static_cast<ptrdiff_t>(members_.size()));
    end.jobs = std::move(jobs);
    return end;
  }

  // `cost_at` a level: of the stage's demands at its prices, by price_proof.h.
  template <class Cost>
  WaterEnd EndOf(WaterStage& stage, double top, Cost cost_at) {
    WaterEnd end;
    end.level = stage.level();
    end.met = stage.met();
    end.at_caps = end.level >= top;
    end.proved =  // nothing to prove where all are at their caps
        end.at_caps || cost_at(end.level) >= 1 - kProofSlack;
    // Asked for of the first stage only.
    if (answer_.stages == 0) {
      end.bound = end.proved ? ProvedLevel(cost_at, end.level, top) : top;
    }
    if (end.met && !end.at_caps) end.scarcity = stage.Scarcity();
    answer_.passes += stage.passes();
    // No job that rises has less than before: the columns that were called free
    // are. (All jobs may be at their caps, below the last level.)
    const bool fell = curves_ == nullptr &&
                      end.level < std::min(level_, top) * (1 - kFallMax);
    end.proved = end.proved && !fell;
    return end;
  }

  void Finish(WaterEnd end) {
    if (++answer_.stages == 1) answer_.first_bound = end.bound;
    if (!end.met || !end.proved) answer_.converged = false;
    level_ = end.level;
    if (end.at_caps || !end.met) {
      SettleAll(end.shares);
      return;
    }
    EndStage(end);
  }

  // The member keeps its shares; if `but_tied`, not those on free types that it
  // can exchange.
  void Settle(size_t i, std::span<const double> shares, bool but_tied) {
    const WaterMember& member = members_[i];
    double* row = &answer_.shares[member.job * jobs_.types];
    for (size_t t = 0; t < types_.size(); ++t) {
      const size_t j = types_[t];
      const double share = shares[i * types_.size() + t];
      if (share <= 0 || (but_tied && free_[j])) continue;
      row[j] += share;
      const double held = jobs_.accelerators[member.job] * share;
      left_[j] -= held;
      if (jobs_.Within(j) != j) left_[jobs_.Within(j)] -= held;
    }
  }

  void SettleAll(std::span<const double> shares) {
    for (size_t i = 0; i < members_.size(); ++i) Settle(i, shares, false);
    members_.clear();
  }

  void EndStage(const WaterEnd& end) {
    const bool none_scarce = std::ranges::all_of(
        end.scarcity, [](double price) { return price <= 0; });
    if (none_scarce || ExchangeMatters(end)) {
      // No job to freeze, or too many ways to: another solver's problem.
      answer_.converged = false;
      SettleAll(end.shares);
      return;
    }
    const std::vector<bool> free = FreeTypes(end.jobs, end.scarcity);
    free_.assign(jobs_.types, false);
    for (size_t t = 0; t < types_.size(); ++t) free_[types_[t]] = free[t];
    std::vector<WaterMember> rising;
    std::vector<bool> frozen(jobs_.size, true);
    std::vector<double> caps(jobs_.size, 0.0);
    for (size_t i = 0; i < members_.size(); ++i) {
      WaterMember member = members_[i];
      const double most = FastestFree(end.jobs, free, i);
      if (RisesOn(end.has[i], most)) {
        member.cap = std::min(member.cap, most);
        if (!member.tied) {
          frozen[member.job] = false;
          caps[member.job] = member.cap;
        }
        rising.push_back(member);
        continue;
      }
      const WaterMember tied = TiedPart(i, end.shares);
      Settle(i, end.shares, tied.cap > 0);
      if (tied.cap > 0) rising.push_back(tied);
    }
    if (curves_ != nullptr) curves_->end(end.level, frozen, caps);
    members_ = std::move(rising);
    const auto is_full = [&](size_t j) {
      return left_[j] <= kLeftMin * jobs_.capacity[j];
    };
    std::erase_if(types_, [&](size_t j) {
      return !free_[j] || is_full(j) || is_full(jobs_.Within(j));
    });
    DropMembersWithoutType();
  }

  // Time of the member on free types that it could have on another one as well;
  // cap 0: none.
  WaterMember TiedPart(size_t i, std::span<const double> shares) const {
    WaterMember tied = members_[i];
    tied.cap = 0;
    for (size_t t = 0; t < types_.size(); ++t) {
      const double share = shares[i * types_.size() + t];
      if (!free_[types_[t]] || share <= 0) continue;
      const double speed = Speed(members_[i], types_[t]);
      for (size_t other = 0; other < types_.size(); ++other) {
        if (other == t || !free_[types_[other]]) continue;
        if (Speed(members_[i], types_[other]) != speed) continue;
        tied.speed = jobs_.Throughput(members_[i].job, types_[t]);
        tied.cap = share;
      }
    }
    if (tied.cap <= 0) return tied;
    // Whatever it has on free types is at this speed.
    tied.cap = 0;
    for (size_t t = 0; t < types_.size(); ++t) {
      if (free_[types_[t]]) tied.cap += shares[i * types_.size() + t];
    }
    tied.rate = std::numeric_limits<double>::infinity();
    tied.tied = true;
    return tied;
  }

  // Members that can use none of the types left, of which next to nothing was.
  void DropMembersWithoutType() {
    std::erase_if(members_, [&](const WaterMember& member) {
      return std::none_of(types_.begin(), types_.end(),
                          [&](size_t j) { return Speed(member, j) > 0; });
    });
  }

  const PriceJobs& jobs_;
  const WaterCurves* curves_;  // null: ramps
  std::vector<double> rates_;  // [n] of curves_, reused
  PriceOptions options_;
  std::vector<size_t> types_;  // columns of jobs_ that are not full
  std::vector<bool> free_;     // [J] after the stage
  std::vector<double> left_;   // [J]
  double level_ = 0;           // of the last stage
  std::vector<WaterMember> members_;
  PriceWater answer_;
};

}  // namespace

PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> rates,
                        std::span<const double> caps,
                        const PriceOptions& options) {
  std::vector<WaterMember> members(jobs.size);
  for (size_t m = 0; m < members.size(); ++m) {
    members[m] = {m, rates[m], caps[m], false, 0};
  }
  return PriceFilling(jobs, nullptr, options).Run(std::move(members));
}

PriceWater FillByPrices(const PriceJobs& jobs, const WaterCurves& curves,
                        std::span<const double> caps,
                        const PriceOptions& options) {
  std::vector<WaterMember> members(jobs.size);
  for (size_t m = 0; m < members.size(); ++m) members[m] = {m, 0, caps[m]};
  return PriceFilling(jobs, &curves, options).Run(std::move(members));
}

}  // namespace gavel::policy
