#include "coordinator/policy/price_program.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/column_master.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/price_levels.h"
#include "coordinator/policy/price_pass.h"
#include "coordinator/policy/price_water.h"

namespace gavel::policy {
namespace {

// Finds the highest total gain of all jobs with a floor under each one's rate,
// by prices. It serves maximum throughput with service-level objectives (Gavel
// section 4.2), and gives out the accelerators that a fair allocation leaves.
//
// At prices p each job solves its own small problem (price_pass.h): what it
// gains less its cost, with its floor. sum_j p_j N_j plus all of that
// bounds the total (the Lagrangian); their choices are columns of the same
// master as in price_levels.h. Pure function, thread-safe.
struct PriceSum {
  double value = 0;
  double bound = 0;            // no allocation that keeps the floors has more
  std::vector<double> prices;  // [J] that prove it
  std::vector<PriceColumn> mixture;  // the rest of the weight is the known one
  double known_weight = 0;
  int passes = 0;
  bool converged = false;  // relative to the value without rent
};

// An allocation that fits and keeps all floors.
struct KnownShares {
  double value = 0;           // less rent
  std::vector<double> usage;  // [J] of the capacities
};

// `pass` with demands that do not depend on the level, and gains per
// accelerator: [jobs] g, value of a step over the accelerators held. `rent` [J]
// is taken off the value for each accelerator that is used.
PriceSum HighestSum(const PriceJobs& jobs, const PricePass& pass,
                    std::span<const double> rent, const KnownShares& known,
                    double gap_max);

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

  // Sets the bound that the prices prove. If it is below the value by more than
  // rounding, the answer has not converged.
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

PriceSum HighestSum(const PriceJobs& jobs, const PricePass& pass,
                    std::span<const double> rent, const KnownShares& known,
                    double gap_max) {
  assert(pass.gain != nullptr && pass.worth != nullptr);
  return SumSearch(jobs, pass, rent, known, gap_max).Run();
}

// The relative gap to which the leftovers of the total are optimised.
constexpr double kRestGap = 1e-9;

}  // namespace

std::vector<double> CellValues(const ShareProblem& problem,
                               const SumObjective& objective) {
  std::vector<double> values(problem.cells.size(), 0.0);
  for (size_t m = 0; m < problem.size(); ++m) {
    for (const JobCell& entry : problem.Cells(m)) {
      const auto i = entry.cell;
      const auto type = problem.cells[i].type;
      values[i] += objective.gain[m] * objective.worth[type] * entry.throughput;
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const ShareCell& cell = problem.cells[i];
    values[i] -= objective.rent[cell.type] * cell.scale_factor;
  }
  return values;
}

bool PriceProgram::Serves(const ShareProblem& problem) {
  return problem.pairs == nullptr && problem.units.size() == problem.size() &&
         problem.limits.size() <= kPriceTypesMax;
}

PriceProgram::PriceProgram(const ShareProblem& problem)
    : problem_(problem), position_(problem.limits.size(), 0) {
  assert(Serves(problem) && problem.size() > 0);
  constexpr size_t kUnused = std::numeric_limits<size_t>::max();
  std::vector<size_t> type_of(problem.limits.size(), kUnused);
  for (const ShareCell& cell : problem.cells) {
    const auto type = cell.type;
    type_of[type] = type_of[LimitOf(cell)] = type;
  }
  std::vector<double> capacity;
  for (size_t r = 0; r < type_of.size(); ++r) {
    if (type_of[r] == kUnused) continue;
    position_[r] = limit_.size();
    limit_.push_back(r);
    capacity.push_back(problem.limits[r]);
  }
  jobs_ = MakePriceJobs(problem.size(), std::move(capacity));
  if (problem.limits.size() > problem.types) {
    for (const size_t r : limit_) {
      jobs_.within.push_back(position_[type_of[r]]);
    }
  }
  for (size_t m = 0; m < problem.size(); ++m) {
    const std::span<const JobCell> cells = problem.Cells(m);
    // For a class of equal jobs: all that they hold.
    jobs_.accelerators[m] = problem.cells[cells.front().cell].scale_factor;
    for (const JobCell& cell : cells) {
      const ShareCell& at = problem.cells[cell.cell];
      double& throughput = jobs_.Throughput(m, ColumnOf(at));
      throughput = std::max(throughput, cell.throughput);
    }
  }
}

std::vector<double> PriceProgram::CellsOf(std::span<const double> rows) const {
  std::vector<double> shares(problem_.cells.size());
  std::vector<double> left(rows.begin(), rows.end());
  for (size_t m = 0; m < problem_.size(); ++m) {
    for (const JobCell& entry : problem_.Cells(m)) {
      const auto i = entry.cell;
      const size_t j = ColumnOf(problem_.cells[i]);
      // Takes the faster of two columns of a type, the first if they are equal.
      if (entry.throughput < jobs_.Throughput(m, j)) continue;
      shares[i] = std::exchange(left[m * jobs_.types + j], 0);
    }
  }
  RepairShares(problem_, shares);
  return shares;
}

std::vector<double> PriceProgram::ByLimit(
    std::span<const double> values) const {
  std::vector<double> out(problem_.limits.size(), 0.0);
  for (size_t i = 0; i < values.size(); ++i) out[limit_[i]] = values[i];
  return out;
}

PriceProgram::Answer PriceProgram::Highest(PriceDemand demand, double level_max,
                                           double gap_max) {
  PadDemand(jobs_, &demand);
  const PriceLevel level = HighestLevel(jobs_, demand, level_max, gap_max);
  Answer answer;
  answer.bound = level.bound;
  answer.passes = level.passes;
  answer.converged = level.converged;
  if (level.mixture.empty()) return answer;
  answer.shares =
      CellsOf(SharesOf(jobs_, PassOf(jobs_, demand), level.mixture));
  answer.prices = ByLimit(level.prices);
  answer.scarcity = ByLimit(level.scarcity);
  return answer;
}

PriceProgram::Answer PriceProgram::FillWater(std::span<const double> rates,
                                             std::span<const double> caps) {
  return AnswerOf(FillByPrices(jobs_, rates, caps));
}

PriceProgram::Answer PriceProgram::FillWater(std::span<const double> factor,
                                             Demands demands) {
  return AnswerOf(FillByPrices(jobs_, factor, std::move(demands),
                               LargestThroughputs(problem_)));
}

PriceProgram::Answer PriceProgram::AnswerOf(const PriceWater& water) const {
  Answer answer;
  answer.shares = CellsOf(water.shares);
  answer.bound = water.first_bound;
  answer.passes = water.passes;
  answer.converged = water.converged;
  return answer;
}

std::vector<double> PriceProgram::RowsOf(std::span<const double> shares) const {
  std::vector<double> rows(jobs_.size * jobs_.types);
  for (size_t m = 0; m < jobs_.size; ++m) {
    for (const JobCell& entry : problem_.Cells(m)) {
      rows[m * jobs_.types + ColumnOf(problem_.cells[entry.cell])] +=
          shares[entry.cell];
    }
  }
  return rows;
}

namespace {

// Maximises the gain by `gain` and `worth`, less `rent`, of jobs that have
// `floors`, as SumObjective defines it by column. On entry `rows` [n x J] keep
// the floors; on return they have the highest gain found.
PriceSum RaiseGain(const PriceJobs& jobs, std::vector<double> floors,
                   std::vector<double> gain, const std::vector<double>& worth,
                   const std::vector<double>& rent, double gap_max,
                   std::vector<double>* rows) {
  KnownShares known;
  known.usage.assign(jobs.types, 0.0);
  for (size_t m = 0; m < jobs.size; ++m) {
    for (size_t j = 0; j < jobs.types; ++j) {
      const double share = (*rows)[m * jobs.types + j];
      known.value += gain[m] * worth[j] * jobs.Throughput(m, j) * share;
      known.usage[j] += jobs.accelerators[m] * share;
    }
    gain[m] /= jobs.accelerators[m];
  }
  AddParts(jobs, known.usage);
  for (size_t j = 0; j < jobs.types; ++j) {
    known.value -= rent[j] * known.usage[j];
  }
  PriceDemand demand;
  demand.a.assign(jobs.size, 0.0);
  demand.b = std::move(floors);
  PadDemand(jobs, &demand);
  gain.resize(jobs.accelerators.size(), 0.0);
  PricePass pass = PassOf(jobs, demand);
  pass.gain = gain.data();
  pass.worth = worth.data();
  PriceSum sum = HighestSum(jobs, pass, rent, known, gap_max);
  std::vector<double> raised = SharesOf(jobs, pass, sum.mixture);
  for (size_t k = 0; k < rows->size(); ++k) {
    raised[k] += sum.known_weight * (*rows)[k];
  }
  *rows = std::move(raised);
  return sum;
}

}  // namespace

PriceProgram::Answer PriceProgram::MostGain(std::span<const double> floors,
                                            const SumObjective& objective,
                                            std::span<const double> known,
                                            double gap_max) {
  std::vector<double> worth;
  std::vector<double> rent;
  for (const size_t r : limit_) {
    const size_t type = limit_[jobs_.Within(position_[r])];
    worth.push_back(objective.worth[type]);
    // The rent of a part is paid with that of its type.
    rent.push_back(r == type ? objective.rent[type] : 0);
  }
  std::vector<double> rows = RowsOf(known);
  const PriceSum sum = RaiseGain(jobs_, {floors.begin(), floors.end()},
                                 objective.gain, worth, rent, gap_max, &rows);
  Answer answer;
  answer.bound = sum.bound;
  answer.passes = sum.passes;
  answer.converged = sum.converged;
  answer.shares = CellsOf(rows);
  answer.prices = ByLimit(sum.prices);
  return answer;
}

std::vector<double> PriceProgram::SpendTheRest(const Answer& answer,
                                               std::span<const double> wanted,
                                               std::span<const double> gain) {
  std::vector<double> scarcity;
  for (const size_t r : limit_) scarcity.push_back(answer.scarcity[r]);
  const std::vector<bool> free = FreeTypes(jobs_, scarcity);
  std::vector<bool> rises;
  for (size_t m = 0; m < jobs_.size; ++m) {
    rises.push_back(RisesOn(wanted[m], FastestFree(jobs_, free, m)));
  }
  const std::vector<double> had = RowsOf(answer.shares);
  PriceRest rest(jobs_);
  rest.Freeze(had, free, rises);
  if (rest.empty()) return answer.shares;
  const PriceJobs jobs = rest.Jobs();
  const std::vector<bool> all(jobs.types, true);
  std::vector<double> floors;
  std::vector<double> gains;
  std::vector<double> rows;
  for (size_t i = 0; i < jobs.size; ++i) {
    const RestMember& member = rest.members()[i];
    const double floor = member.tied ? member.time : wanted[member.job];
    floors.push_back(std::min(floor, FastestFree(jobs, all, i)));
    gains.push_back(member.tied ? 0 : gain[member.job]);
    for (const size_t j : rest.columns()) {
      rows.push_back(had[member.job * jobs_.types + j]);
    }
  }
  RaiseGain(jobs, std::move(floors), std::move(gains),
            std::vector<double>(jobs.types, 1.0),
            std::vector<double>(jobs.types, 0.0), kRestGap, &rows);
  rest.FreezeAll(rows);
  return CellsOf(rest.TakeShares());
}

}  // namespace gavel::policy
