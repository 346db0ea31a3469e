#include "coordinator/policy/price_water.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/column_master.h"
#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_pass.h"

namespace gavel::policy {

namespace {

// A job this close to its cap has all it can have.
constexpr double kCapSlack = 1e-12;

}  // namespace

Demands::Demands(std::vector<double> rates, std::vector<double> caps,
                 std::vector<DemandGroup> groups)
    : rates_(std::move(rates)),
      caps_(std::move(caps)),
      groups_(std::move(groups)),
      base_(caps_.size(), 0.0),
      floors_(caps_.size(), 0.0),
      frozen_(caps_.size(), false),
      unfrozen_(caps_.size()) {
  assert(rates_.size() == caps_.size());
  Sort();
}

Demands Demands::Flat(std::vector<double> rates, std::vector<double> caps,
                      std::vector<double> floors) {
  std::vector<DemandGroup> groups(caps.size());
  for (size_t m = 0; m < groups.size(); ++m) {
    groups[m].weight = rates[m];
    groups[m].tiers = {{m}};
  }
  Demands demands(std::move(rates), std::move(caps), std::move(groups));
  assert(floors.empty() || floors.size() == demands.caps_.size());
  if (!floors.empty()) demands.floors_ = std::move(floors);
  return demands;
}

// Within tiers by when they reach their caps, so that At is one pass.
void Demands::Sort() {
  for (DemandGroup& group : groups_) {
    for (std::vector<size_t>& tier : group.tiers) {
      std::sort(tier.begin(), tier.end(), [&](size_t a, size_t b) {
        return std::pair(Room(a) / rates_[a], a) <
               std::pair(Room(b) / rates_[b], b);
      });
    }
  }
}

double Demands::TopLevel() const {
  double top = 0;
  for (const DemandGroup& group : groups_) {
    double room = 0;
    for (const std::vector<size_t>& tier : group.tiers) {
      for (const size_t m : tier) room += Room(m);
    }
    top = std::max(top, room / group.weight);
  }
  // Rounding must not leave anybody below the cap.
  return top * (1 + kCapSlack);
}

void Demands::At(double level, std::span<double> amounts) const {
  RisenTo(level, amounts);
  for (size_t m = 0; m < floors_.size(); ++m) {
    amounts[m] = std::max(amounts[m], floors_[m]);
  }
}

void Demands::RisenTo(double level, std::span<double> amounts) const {
  std::copy(base_.begin(), base_.end(), amounts.begin());
  for (const DemandGroup& group : groups_) {
    double left = group.weight * level;
    for (const std::vector<size_t>& tier : group.tiers) {
      if (left <= 0) break;
      double rate = 0;  // of those in the tier that are not at their caps
      for (const size_t m : tier) rate += rates_[m];
      for (const size_t m : tier) {
        const double part = std::min(Room(m), left * (rates_[m] / rate));
        amounts[m] = part < Room(m) ? base_[m] + part : caps_[m];
        left -= part;
        rate -= rates_[m];
      }
    }
  }
}

void Demands::Advance(double level, std::span<const double> amounts,
                      const std::vector<bool>& to_freeze) {
  std::vector<double> risen(amounts.size());
  RisenTo(level, risen);
  for (size_t m = 0; m < base_.size(); ++m) {
    const bool at_floor = !to_freeze[m] && risen[m] < floors_[m];
    base_[m] = at_floor ? risen[m] : amounts[m];
    if (!at_floor) floors_[m] = 0;
  }
  const auto settle = [&](size_t m) {
    if (!to_freeze[m] && Room(m) > kCapSlack * caps_[m]) return false;
    frozen_[m] = true;
    --unfrozen_;
    return true;
  };
  for (DemandGroup& group : groups_) {
    for (std::vector<size_t>& tier : group.tiers) {
      tier.erase(std::remove_if(tier.begin(), tier.end(), settle), tier.end());
    }
  }
  Sort();
}

namespace {

// A job that could have this much less than it has still rises: rounding.
constexpr double kMoreMin = 1e-9;
// Columns of which less than this part is left are full.
constexpr double kLeftMin = 1e-9;

}  // namespace

std::vector<bool> FreeTypes(const PriceJobs& jobs,
                            std::span<const double> scarcity) {
  std::vector<bool> free(jobs.types);
  for (size_t j = 0; j < jobs.types; ++j) {
    free[j] = scarcity[j] <= 0 && scarcity[jobs.Within(j)] <= 0;
  }
  return free;
}

double FastestFree(const PriceJobs& jobs, const std::vector<bool>& free,
                   size_t job) {
  double most = 0;
  for (size_t j = 0; j < jobs.types; ++j) {
    if (free[j]) most = std::max(most, jobs.Throughput(job, j));
  }
  return most;
}

bool RisesOn(double has, double most) { return most >= has * (1 - kMoreMin); }

PriceRest::PriceRest(const PriceJobs& jobs)
    : jobs_(jobs),
      members_(jobs.size),
      columns_(jobs.types),
      free_(jobs.types),
      left_(jobs.capacity),
      shares_(jobs.size * jobs.types, 0.0) {
  for (size_t m = 0; m < jobs.size; ++m) members_[m].job = m;
  std::iota(columns_.begin(), columns_.end(), size_t{0});
}

double PriceRest::Speed(const RestMember& member, size_t column) const {
  const double throughput = jobs_.Throughput(member.job, column);
  if (!member.tied) return throughput;
  return throughput == member.speed ? 1 : 0;
}

PriceJobs PriceRest::Jobs() const {
  std::vector<double> capacity;
  for (const size_t j : columns_) capacity.push_back(left_[j]);
  PriceJobs jobs = MakePriceJobs(members_.size(), std::move(capacity));
  if (!jobs_.within.empty()) {
    for (const size_t j : columns_) {
      const auto at = std::ranges::find(columns_, jobs_.within[j]);
      jobs.within.push_back(static_cast<size_t>(at - columns_.begin()));
    }
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    jobs.accelerators[i] = jobs_.accelerators[members_[i].job];
    for (size_t t = 0; t < columns_.size(); ++t) {
      jobs.Throughput(i, t) = Speed(members_[i], columns_[t]);
    }
  }
  return jobs;
}

// If `but_tied`, not those on free columns, which it can exchange.
void PriceRest::Keep(size_t i, std::span<const double> shares, bool but_tied) {
  const size_t m = members_[i].job;
  for (size_t t = 0; t < columns_.size(); ++t) {
    const size_t j = columns_[t];
    const double share = shares[i * columns_.size() + t];
    if (share <= 0 || (but_tied && free_[j])) continue;
    shares_[m * jobs_.types + j] += share;
    const double held = jobs_.accelerators[m] * share;
    left_[j] -= held;
    if (jobs_.Within(j) != j) left_[jobs_.Within(j)] -= held;
  }
}

void PriceRest::FreezeAll(std::span<const double> shares) {
  for (size_t i = 0; i < members_.size(); ++i) Keep(i, shares, false);
  members_.clear();
}

void PriceRest::Freeze(std::span<const double> shares,
                       const std::vector<bool>& free,
                       const std::vector<bool>& rises) {
  free_.assign(jobs_.types, false);
  for (size_t t = 0; t < columns_.size(); ++t) free_[columns_[t]] = free[t];
  std::vector<RestMember> rising;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (rises[i]) {
      rising.push_back(members_[i]);
      continue;
    }
    const RestMember tied = TiedPart(i, shares);
    Keep(i, shares, tied.time > 0);
    if (tied.time > 0) rising.push_back(tied);
  }
  members_ = std::move(rising);
  const auto is_full = [&](size_t j) {
    return left_[j] <= kLeftMin * jobs_.capacity[j];
  };
  std::erase_if(columns_, [&](size_t j) {
    return !free_[j] || is_full(j) || is_full(jobs_.Within(j));
  });
  // Removes members that can no longer use any column, having been left next to
  // nothing.
  std::erase_if(members_, [&](const RestMember& member) {
    return std::ranges::none_of(columns_,
                                [&](size_t j) { return Speed(member, j) > 0; });
  });
}

// Time of the member on free columns that it could have on another one as well;
// none: 0.
RestMember PriceRest::TiedPart(size_t i, std::span<const double> shares) const {
  RestMember tied{members_[i].job, true};
  double time = 0;  // whatever it has on free columns is at one speed
  for (size_t t = 0; t < columns_.size(); ++t) {
    const double share = shares[i * columns_.size() + t];
    if (!free_[columns_[t]] || share <= 0) continue;
    time += share;
    const double speed = Speed(members_[i], columns_[t]);
    const auto as_fast = std::ranges::count_if(columns_, [&](size_t j) {
      return free_[j] && Speed(members_[i], j) == speed;
    });
    if (as_fast > 1) tied.speed = jobs_.Throughput(tied.job, columns_[t]);
  }
  if (tied.speed > 0) tied.time = time;
  return tied;
}

namespace {

// One stage of water filling by prices (price_water.h): finds the highest level
// that the rising jobs can have on the remaining capacity. A filling owns it
// for as long as the stage lasts. Not thread-safe.

// Prices at which the demands cost this little less than 1 prove the level.
constexpr double kProofSlack = 1e-11;

using WaterSums =
    std::function<PriceSums(double level, std::span<const double> prices)>;

class WaterStage {
 public:
  // `sums` of all jobs at (level, prices of capacities); their demands rise
  // with the level, up to `top`.
  WaterStage(WaterSums sums, std::span<const double> capacity, double top);

  void Run();

  // A mixture of the jobs' choices fits at the level, to rounding.
  bool met() const { return fits_ >= 1 - kOverloadMax; }
  double level() const { return level_; }
  int passes() const { return passes_; }

  // [J] prices that prove the level, of as few capacities as they can be: what
  // is left out is not scarce. From the master's duals, or the last ones that
  // did.
  std::vector<double> Scarcity();

  // To start from on a problem like this one.
  const std::vector<double>& prices() const { return prices_; }
  void StartFrom(std::vector<double> prices) { prices_ = std::move(prices); }

  std::vector<PriceColumn> Mixture() const {
    return NormalizedMixture(columns_, mixture_);
  }

 private:
  // A mixture fits that is this part too large, and scaled down.
  static constexpr double kOverloadMax = 1e-9;

  PriceSums Pass(double level, std::span<const double> prices) {
    ++passes_;
    return sums_(level, prices);
  }
  std::vector<double> MasterPrices() const;
  bool Proves(std::span<const double> prices, double slack) {
    return Pass(level_, prices).cost >= 1 - slack;
  }
  void Tighten(std::span<const double> prices);

  WaterSums sums_;
  std::span<const double> capacity_;
  ColumnMaster master_;
  double level_;                // no higher one can be had
  std::vector<double> prices_;  // that proved it last
  double fits_ = 0;  // the part of the demands that the mixture can be had of
  std::vector<std::pair<size_t, double>> mixture_;
  std::vector<PriceColumn> columns_;
  std::vector<double> usage_;  // [J] parts of the capacity; reused
  int passes_ = 0;
};

// As in price_levels.cc.
constexpr int kWaterStallMax = 60;
// Evaluations of one search for a root, and where it ends: the cost above 1.
constexpr int kRootStepsMax = 30;
constexpr double kCostSlack = 1e-12;
// The search continues for some passes for a mixture that fits as well as
// rounding allows: where throughputs differ by many powers of ten, a later
// stage has only the capacity that this one leaves.
constexpr double kOverloadAim = 1e-13;
constexpr int kAimStallMax = 8;

// Prices that prove the level to this relative slack show which columns are
// scarce; those of the master may be off by a rounding where nothing is scarce.
constexpr double kScarceSlack = 1e-9;

double Newton(const PriceSums& sums, double level) {
  return sums.slope > 0 ? level - (sums.cost - 1) / sums.slope : 0;
}

// False position, and every third time the middle.
double Between(double low, double low_cost, double high, double high_cost,
               int i) {
  if (i % 3 == 2) return (low + high) / 2;
  return low + (high - low) * (1 - low_cost) / (high_cost - low_cost);
}

WaterStage::WaterStage(WaterSums sums, std::span<const double> capacity,
                       double top)
    : sums_(std::move(sums)),
      capacity_(capacity),
      master_(capacity.size(), /*convex=*/false),
      level_(top),
      usage_(capacity.size()) {
  const double all = std::accumulate(capacity.begin(), capacity.end(), 0.0);
  prices_.assign(capacity.size(), 1 / all);
}

void WaterStage::Run() {
  int stall = 0;
  double before = level_;
  Tighten(std::vector<double>(prices_));
  while (true) {
    master_.Solve();
    double fits = 0;
    for (const auto& [k, weight] : master_.mixture()) fits += weight;
    // Either bound has moved: the next prices are between.
    stall = fits > fits_ || level_ < before ? 0 : stall + 1;
    if (fits > fits_) {
      fits_ = fits;
      mixture_ = master_.mixture();
    }
    if (fits_ >= 1 - kOverloadAim || passes_ >= kPassesMax ||
        stall > (met() ? kAimStallMax : kWaterStallMax)) {
      break;
    }
    before = level_;
    std::vector<double> prices = MasterPrices();
    if (stall == 0) {
      for (size_t j = 0; j < prices.size(); ++j) {
        prices[j] = kBestPart * prices_[j] + (1 - kBestPart) * prices[j];
      }
    }
    Tighten(prices);
  }
}

std::vector<double> WaterStage::Scarcity() {
  std::vector<double> prices = MasterPrices();
  if (!Proves(prices, kProofSlack)) prices = prices_;
  std::vector<size_t> order(prices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return prices[a] * capacity_[a] < prices[b] * capacity_[b];
  });
  // Without as many of the cheapest ones as can be.
  for (size_t cheap = order.size() - 1; cheap > 0; --cheap) {
    std::vector<double> fewer = prices;
    for (size_t i = 0; i < cheap; ++i) fewer[order[i]] = 0;
    const double all =
        std::inner_product(fewer.begin(), fewer.end(), capacity_.begin(), 0.0);
    if (!(all > 0)) continue;
    for (double& price : fewer) price /= all;
    if (Proves(fewer, kScarceSlack)) return fewer;
  }
  return prices;
}

// 0 where nothing is scarce.
std::vector<double> WaterStage::MasterPrices() const {
  std::vector<double> prices = master_.PricesOf(capacity_);
  prices.resize(capacity_.size(), 0.0);
  return prices;
}

// Lowers the level to the root of the cost at `prices`, if that is below it,
// and adds the column there. Only levels with a cost of at least 1 are
// bounds, to kCostSlack.
void WaterStage::Tighten(std::span<const double> prices) {
  PriceSums sums = Pass(level_, prices);
  if (sums.cost > 1) {
    prices_.assign(prices.begin(), prices.end());
    double low = 0;
    double low_cost = 0;
    double high = level_;
    double step = Newton(sums, high);
    for (int i = 0; i < kRootStepsMax && sums.cost > 1 + kCostSlack; ++i) {
      if (!(step > low && step < high))
        step = Between(low, low_cost, high, sums.cost, i);
      if (!(step > low && step < high)) break;
      const PriceSums at = Pass(step, prices);
      // Or a rounding below: that is the root.
      if (at.cost >= 1 - kCostSlack) {
        sums = at;
        high = step;
        step = Newton(sums, high);
      } else {
        low = step;
        low_cost = at.cost;
        step = Between(low, low_cost, high, sums.cost, i);
      }
    }
    level_ = high;
  }
  for (size_t j = 0; j < usage_.size(); ++j) {
    usage_[j] = sums.usage[j] / capacity_[j];
  }
  master_.Add(1, usage_);
  columns_.push_back({level_, 0, {prices.begin(), prices.end()}});
}

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
  // The supporting line of the job's choices at its rate: the rate is worth
  // `earned_here` to it, and its time the part that it does not pay.
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
    // Only the fastest free columns are among them, and the job may have any of
    // those.
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

// Frozen jobs with several choices at the same cost may exchange their shares
// of scarce columns, and so leave more or less of the free ones to the rising
// jobs. Then the stage's shares are not the only ones to continue from, and
// others may be better. Returns false if the full columns leave each frozen job
// one choice, or if they all use the same free columns.
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

  // `cost_at` a level: of the stage's demands at its prices, by price_levels.h.
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
