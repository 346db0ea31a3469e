#include "coordinator/policy/lp/price_water.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include "coordinator/policy/lp/price_proof.h"
#include "coordinator/policy/lp/price_rest.h"
#include "coordinator/policy/lp/price_water_stage.h"

namespace gavel::policy {
namespace {

// The part by which a level may be below the one before.
constexpr double kFallMax = 1e-8;
// As in price_levels.cc.
constexpr size_t kWaterSampleFrom = 20000;
constexpr size_t kWaterSampleSize = 4096;

// A column that is too dear by this part only is as good as the others.
constexpr double kTieSlack = 1e-9;

// How a stage ended, of n jobs on J columns.
struct WaterEnd {
  PriceJobs jobs;
  std::vector<double> has;  // [n] steps/s at the level
  double level = 0;
  double bound = 0;  // no higher level can be had
  bool met = false;
  bool proved = false;
  bool at_caps = false;          // all jobs: none rises any more
  std::vector<double> shares;    // [n x J]
  std::vector<double> scarcity;  // [J] prices that prove it, if any do
};

// The columns that are equally good for one job.
struct JobTies {
  uint64_t free = 0;         // those that cost nothing (bit j)
  int freedom = 0;           // dimensions of what it can choose
  std::vector<double> kind;  // those that are equal here exchange nothing
};

JobTies TiesOf(const WaterEnd& end, std::span<const double> prices, size_t job,
               std::vector<Choice>& choices) {
  const PriceJobs& jobs = end.jobs;
  choices.assign(1, Choice{});
  for (size_t j = 0; j < jobs.types; ++j) {
    choices.push_back(
        {jobs.Throughput(job, j), jobs.accelerators[job] * prices[j]});
  }
  JobTies ties;
  // What it has is worth `earned_here` to it, its time what it does not pay:
  // the supporting line of its choices there.
  const LeastCost least = LeastCostOf(choices, end.has[job]);
  if (std::isinf(least.cost)) return ties;
  const double earned_here = least.slope * end.has[job];
  const double time = earned_here - least.cost;
  int points = time <= kTieSlack * earned_here ? 1 : 0;
  std::set<double> speeds;
  if (points > 0) speeds.insert(0);
  for (size_t j = 0; j < jobs.types; ++j) {
    const auto& [speed, cost] = choices[j + 1];
    const double paid = cost + time;
    const double earned = least.slope * speed;
    if (speed <= 0 || paid - earned > kTieSlack * (paid + earned)) continue;
    // Of free columns only the fastest are among them: any of those.
    const bool another = cost > 0 || ties.free == 0;
    if (cost <= 0) ties.free |= uint64_t{1} << j;
    points += another ? 1 : 0;
    speeds.insert(speed);
    ties.kind.insert(ties.kind.end(), {static_cast<double>(j), speed});
  }
  ties.kind.insert(ties.kind.end(), {jobs.accelerators[job], end.has[job]});
  ties.freedom = points - (speeds.size() > 1 ? 2 : 1);
  return ties;
}

// Frozen jobs with several choices at the same cost may exchange what they have
// of scarce columns, and so leave more or less of the free ones to the jobs
// that rise: the stage's shares are then not the only ones to continue from,
// and others may be better. False: what is full leaves each of them one choice,
// or they all use the same free columns.
bool ExchangeMatters(const WaterEnd& end) {
  const std::vector<double> prices = PricesOfColumns(end.jobs, end.scarcity);
  const std::vector<bool> free = FreeTypes(end.jobs, end.scarcity);
  std::vector<Choice> choices;
  std::set<uint64_t> left;  // free columns of frozen jobs that have a choice
  std::set<std::vector<double>> kinds;
  int freedom = 0;
  for (size_t m = 0; m < end.has.size(); ++m) {
    if (RisesOn(end.has[m], FastestFree(end.jobs, free, m))) continue;
    const JobTies ties = TiesOf(end, prices, m, choices);
    if (ties.freedom <= 0) continue;
    left.insert(ties.free);
    if (kinds.insert(ties.kind).second) freedom += ties.freedom;
  }
  const auto scarce = std::ranges::count_if(
      end.scarcity, [](double price) { return price > 0; });
  return freedom >= scarce && left.size() >= 2;
}

class PriceFilling {
 public:
  // `demands`: null for ramps, which rise with `rates`; else these are factors.
  PriceFilling(const PriceJobs& jobs, Demands* demands,
               std::span<const double> rates, std::span<const double> caps)
      : demands_(demands),
        rates_(rates),
        caps_(caps.begin(), caps.end()),
        amounts_(jobs.size),
        rest_(jobs) {}

  PriceWater Run() {
    answer_.converged = true;
    while (!rest_.empty()) Finish(RunStage());
    answer_.shares = rest_.TakeShares();
    return std::move(answer_);
  }

 private:
  // Ramps rise with the level; other demands are set anew for each, and levels
  // count from the last stage.
  WaterEnd RunStage() {
    const std::span<const RestMember> members = rest_.members();
    PriceJobs jobs = rest_.Jobs();
    PriceDemand demand;
    double top = 0;
    if (demands_ == nullptr) {
      for (const RestMember& member : members) {
        const double rate = member.tied
                                ? std::numeric_limits<double>::infinity()
                                : rates_[member.job];
        const double cap = member.tied ? member.time : caps_[member.job];
        demand.a.push_back(rate);
        demand.c.push_back(cap);
        top = std::max(top, cap / rate);
      }
      // All have their caps there, to rounding; any level where all are tied.
      top = top > 0 ? top * (1 + 1e-12) : 1;
    } else {
      demand.a.assign(members.size(), 0.0);
      demand.b.assign(members.size(), 0.0);
      top = demands_->TopLevel();
    }
    PadDemand(jobs, &demand);
    const PricePass pass = PassOf(jobs, demand);
    const auto set = [&](double level) {
      if (demands_ == nullptr) return;
      demands_->At(level, amounts_);
      for (size_t i = 0; i < members.size(); ++i) {
        const size_t m = members[i].job;
        demand.b[i] =
            members[i].tied ? members[i].time : amounts_[m] / rates_[m];
      }
    };
    const auto sums = [&](double level, std::span<const double> prices) {
      set(level);
      return SumPass(pass, level, prices);
    };
    WaterStage stage(OfCapacities(jobs, {sums}).sums, jobs.capacity, top);
    if (demands_ == nullptr && jobs.size >= kWaterSampleFrom) {
      stage.StartFrom(PricesOfSample(jobs, demand, top));
    }
    stage.Run();
    const std::vector<double> prices = PricesOfColumns(jobs, stage.prices());
    WaterEnd end = EndOf(stage, top, [&](double level) {
      set(level);
      return LeastCostOf(pass, level, prices).cost;
    });
    end.shares.assign(jobs.blocks() * kPriceLanes * jobs.types, 0.0);
    for (const PriceColumn& column : stage.Mixture()) {
      set(column.level);
      const std::vector<double> paid = PricesOfColumns(jobs, column.prices);
      const PricePoint point = {column.level, column.weight, paid.data()};
      AddShares(pass, {&point, 1}, end.shares);
    }
    set(end.level);  // amounts_ stay there until the stage has ended
    for (size_t i = 0; i < members.size(); ++i) {
      end.has.push_back(demands_ == nullptr
                            ? std::min(end.level * demand.a[i], demand.c[i])
                            : demand.b[i]);
    }
    end.jobs = std::move(jobs);
    return end;
  }

  std::vector<double> PricesOfSample(const PriceJobs& jobs,
                                     const PriceDemand& demand,
                                     double top) const {
    const PriceSample sample =
        SampleJobs(jobs, demand, jobs.size / kWaterSampleSize);
    const PricePass pass = PassOf(sample.jobs, sample.demand);
    const auto sums = [&](double level, std::span<const double> prices) {
      return SumPass(pass, level, prices);
    };
    WaterStage stage(OfCapacities(sample.jobs, {sums}).sums,
                     sample.jobs.capacity, top);
    stage.Run();
    return stage.prices();
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
    const bool fell = demands_ == nullptr &&
                      end.level < std::min(level_, top) * (1 - kFallMax);
    end.proved = end.proved && !fell;
    return end;
  }

  void Finish(WaterEnd end) {
    if (++answer_.stages == 1) answer_.first_bound = end.bound;
    if (!end.met || !end.proved) answer_.converged = false;
    level_ = end.level;
    if (end.at_caps || !end.met) return rest_.FreezeAll(end.shares);
    EndStage(end);
  }

  void EndStage(const WaterEnd& end) {
    const bool none_scarce = std::ranges::all_of(
        end.scarcity, [](double price) { return price <= 0; });
    if (none_scarce || ExchangeMatters(end)) {
      // No job to freeze, or too many ways to: another solver's problem.
      answer_.converged = false;
      return rest_.FreezeAll(end.shares);
    }
    const std::vector<bool> free = FreeTypes(end.jobs, end.scarcity);
    std::vector<bool> rises;
    std::vector<bool> frozen(caps_.size(), true);
    for (size_t i = 0; i < end.has.size(); ++i) {
      const double most = FastestFree(end.jobs, free, i);
      rises.push_back(RisesOn(end.has[i], most));
      const RestMember& member = rest_.members()[i];
      if (!rises[i] || member.tied) continue;
      double& cap = caps_[member.job];
      cap = std::min(cap, most);
      frozen[member.job] = false;
      if (demands_ == nullptr) continue;
      demands_->LowerCap(member.job, cap * rates_[member.job]);
    }
    if (demands_ != nullptr) demands_->Advance(end.level, amounts_, frozen);
    rest_.Freeze(end.shares, free, rises);
  }

  Demands* demands_;               // null: ramps
  std::span<const double> rates_;  // [n] or the factors of demands_
  std::vector<double> caps_;       // [n] steps/s
  std::vector<double> amounts_;    // [n] of demands_, reused
  PriceRest rest_;
  double level_ = 0;  // of the last stage
  PriceWater answer_;
};

}  // namespace

PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> rates,
                        std::span<const double> caps) {
  return PriceFilling(jobs, nullptr, rates, caps).Run();
}

PriceWater FillByPrices(const PriceJobs& jobs, std::span<const double> factor,
                        Demands demands, std::span<const double> caps) {
  return PriceFilling(jobs, &demands, factor, caps).Run();
}

}  // namespace gavel::policy
