#include "coordinator/policy/lp/price_water.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "coordinator/policy/lp/price_proof.h"
#include "coordinator/policy/lp/price_water_spare.h"
#include "coordinator/policy/lp/price_water_stage.h"
#include "coordinator/policy/lp/price_water_ties.h"
#include "coordinator/policy/lp/price_zoom.h"

namespace gavel {
namespace {

// The part by which a level may be below the one before.
constexpr double kFallMax = 1e-8;
// Types of which less than this part is left are full.
constexpr double kLeftMin = 1e-9;
// How often a stage is run again without what it can spare.
constexpr int kSpareRunsMax = 16;
// Who is held but for where has all but this part of what he had: the columns
// that are full of them stay so otherwise, to the last bit.
constexpr double kWhereSlack = 1e-13;
// As in price_levels.cc.
constexpr size_t kWaterSampleFrom = 20000;
constexpr size_t kWaterSampleSize = 4096;

// A job of a stage. Some are settled but for where: those that may exchange
// scarce types with others (price_water_ties.h), and those that divide their
// time between scarce types and several others, all equally fast: `tied` jobs
// ask for time there, at a speed of 1.
struct WaterMember {
  size_t job = 0;
  double rate = 0;  // infinite: settled, has its cap at any level
  double cap = 0;
  bool tied = false;
  double speed = 0;  // of a tied one, where it is tied

  bool settled() const { return std::isinf(rate); }
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
      if (curves_ == nullptr) {
        RunStage();
      } else {
        RunCurveStage();
      }
    }
    return std::move(answer_);
  }

 private:
  // Whose accelerators the column's are.
  size_t TypeOf(size_t column) const {
    return jobs_.within.empty() ? column : jobs_.within[column];
  }

  double Speed(const WaterMember& member, size_t type) const {
    const size_t at = member.job * jobs_.types + type;
    if (!spared_.empty() && spared_[at]) return 0;
    if (!closed_.empty() && closed_[at]) return 0;
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

  // Again without what can be spared, as long as that leaves the level: of all
  // who can at once, then, where that took too much, of one at a time.
  void RunStage() {
    WaterEnd end = RunRamps();
    const double level_min = end.level * (1 - 2 * kGivenUpMax);
    const double bound = end.bound;
    bool all = true;
    std::vector<size_t> refused;  // jobs whose prices did not tell all
    for (int i = 0; i < kSpareRunsMax; ++i) {
      const std::vector<bool> before = spared_;
      const std::vector<size_t> who = Spare(end, all, refused);
      if (who.empty()) break;
      WaterEnd again = RunRamps();
      if (again.met && again.proved && again.level >= level_min) {
        end = std::move(again);
        continue;
      }
      spared_ = before;
      if (who.size() == 1) refused.push_back(who.front());
      all = false;
    }
    spared_.clear();
    end.bound = bound;
    Finish(std::move(end));
  }

  // Keeps `all` who can do without off the wanted types, as far as their costs
  // together may be, or the one whom it costs least. Returns who.
  std::vector<size_t> Spare(const WaterEnd& end, bool all,
                            std::span<const size_t> refused) {
    std::vector<size_t> who;
    double cost = 0;
    for (const WaterSpare& one : end.spare) {
      const size_t job = members_[one.job].job;
      if (std::ranges::find(refused, job) != refused.end()) continue;
      cost += one.cost;
      if (cost > kGivenUpMax) break;
      who.push_back(job);
      spared_.resize(jobs_.size * jobs_.types);
      for (size_t t = 0; t < types_.size(); ++t) {
        if (end.wanted[t]) spared_[job * jobs_.types + types_[t]] = true;
      }
      if (!all) break;
    }
    return who;
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
    PriceZoom zoom(pass, jobs.capacity, options_.version);
    WaterStage stage(OfCapacities(jobs, {std::ref(zoom)}).sums, jobs.capacity,
                     top, options_);
    if (jobs.size >= kWaterSampleFrom) {
      const PriceSample sample =
          SampleJobs(jobs, demand, jobs.size / kWaterSampleSize);
      const PricePass sample_pass = PassOf(sample.jobs, sample.demand);
      PriceZoom sample_zoom(sample_pass, sample.jobs.capacity,
                            options_.version);
      WaterStage first(OfCapacities(sample.jobs, {std::ref(sample_zoom)}).sums,
                       sample.jobs.capacity, top, options_);
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
    end.shares = SharesOf(jobs, pass, stage.Mixture(), options_.version);
    end.jobs = std::move(jobs);
    if (!end.scarcity.empty()) FindSpare(pass, &end);
    return end;
  }

  // A stage of demands that are no ramps: levels count from the last one.
  void RunCurveStage() {
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
        demand.b[i] = member.settled() ? member.cap : rates_[member.job];
      }
    };
    const double top = curves_->top();
    const auto sums = [&](double level, std::span<const double> prices) {
      set(level);
      return SumPass(pass, 0, prices, options_.version);
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
      AddShares(pass, {&point, 1}, end.shares, options_.version);
    }
    set(stage.level());
    end.has.assign(demand.b.begin(),
                   demand.b.begin() + static_cast<ptrdiff_t>(members_.size()));
    end.jobs = std::move(jobs);
    Finish(std::move(end));
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
    // Nobody who rises on has less than before: what was called free was. (All
    // may be at their caps, below the last level.)
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
      if (TypeOf(j) != j) left_[TypeOf(j)] -= held;
    }
  }

  void SettleAll(std::span<const double> shares) {
    for (size_t i = 0; i < members_.size(); ++i) Settle(i, shares, false);
    members_.clear();
  }

  void EndStage(const WaterEnd& end) {
    if (std::all_of(end.scarcity.begin(), end.scarcity.end(),
                    [](double price) { return price <= 0; })) {
      // Nothing proved scarce: it would go on for ever.
      answer_.converged = false;
      SettleAll(end.shares);
      return;
    }
    const std::vector<bool> free = FreeTypes(end.jobs, end.scarcity);
    free_.assign(jobs_.types, false);
    for (size_t t = 0; t < types_.size(); ++t) free_[types_[t]] = free[t];
    if (!kept_.empty() && !AnyHeld(end, free)) {
      // What who is settled asks for does not fit any more.
      answer_.converged = false;
      SettleAll(end.shares);
      return;
    }
    const std::vector<uint64_t> ties = TiesOf(end);
    std::vector<WaterMember> rising;
    std::vector<bool> held(jobs_.size, true);
    std::vector<double> caps(jobs_.size, 0.0);
    for (size_t i = 0; i < members_.size(); ++i) {
      WaterMember member = members_[i];
      const double most = FastestFree(end.jobs, free, i);
      if (RisesOn(end.has[i], most)) {
        member.cap = std::min(member.cap, most);
        if (!member.settled()) {
          held[member.job] = false;
          caps[member.job] = member.cap;
        }
        rising.push_back(member);
        if (!ties.empty()) CloseBut(member.job, free);
        continue;
      }
      if (!ties.empty() && ties[i] != 0) {
        if (!member.settled()) member.cap = end.has[i] * (1 - kWhereSlack);
        member.rate = std::numeric_limits<double>::infinity();
        rising.push_back(member);
        std::vector<bool> open;
        for (size_t t = 0; t < types_.size(); ++t) {
          open.push_back((ties[i] >> t & 1) != 0);
        }
        CloseBut(member.job, open);
      } else if (const WaterMember tied = TiedPart(i, end.shares);
                 tied.cap > 0) {
        Settle(i, end.shares, true);
        rising.push_back(tied);
        if (!ties.empty()) CloseBut(tied.job, free);
      } else {
        Settle(i, end.shares, false);
      }
    }
    if (curves_ != nullptr) curves_->end(end.level, held, caps);
    members_ = std::move(rising);
    for (size_t j = 0; j < kept_.size(); ++j) {
      if (kept_[j] > 0 && !free_[j]) left_[j] = kept_[j];
    }
    const auto is_full = [&](size_t j) {
      return left_[j] <= kLeftMin * jobs_.capacity[j];
    };
    std::erase_if(types_, [&](size_t j) {
      const bool kept = !kept_.empty() && kept_[j] > 0;
      return (!free_[j] && !kept) || is_full(j) || is_full(TypeOf(j));
    });
    DropTheStuck();
  }

  // Somebody whom no stage before did.
  bool AnyHeld(const WaterEnd& end, const std::vector<bool>& free) const {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].settled()) continue;
      if (!RisesOn(end.has[i], FastestFree(end.jobs, free, i))) return true;
    }
    return false;
  }

  // [members] columns (bit t) of those who may exchange what they have of types
  // that are full; or empty, also where next to nothing of one is exchanged.
  std::vector<uint64_t> TiesOf(const WaterEnd& end) {
    kept_.clear();
    std::vector<uint64_t> ties = FindTies(end);
    if (ties.empty()) return ties;
    kept_.assign(jobs_.types, 0.0);
    for (size_t i = 0; i < members_.size(); ++i) {
      if (ties[i] == 0) continue;
      for (size_t t = 0; t < types_.size(); ++t) {
        const double share = end.shares[i * types_.size() + t];
        if (share <= 0) continue;
        ties[i] |= uint64_t{1} << t;
        const size_t j = types_[t];
        const double held = jobs_.accelerators[members_[i].job] * share;
        kept_[j] += held;
        if (TypeOf(j) != j) kept_[TypeOf(j)] += held;
      }
    }
    return ties;
  }

  // The job may use these of the stage's types only, [types_], from now on.
  void CloseBut(size_t job, const std::vector<bool>& open) {
    closed_.resize(jobs_.size * jobs_.types);
    for (size_t t = 0; t < types_.size(); ++t) {
      if (!open[t]) closed_[job * jobs_.types + types_[t]] = true;
    }
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

  // Members whose types are gone: only where next to nothing of those was left.
  void DropTheStuck() {
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
  std::vector<bool> spared_;   // [n x J] whom the stage keeps off; or empty
  std::vector<bool>
      closed_;  // [n x J] whom all stages from now on do; or empty
  std::vector<double> kept_;  // [J] exchanged after the stage; or empty
  std::vector<double> left_;  // [J]
  double level_ = 0;          // of the last stage
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

}  // namespace gavel
