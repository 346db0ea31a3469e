#include "coordinator/policy/lp/price_program.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "coordinator/policy/lp/price_sums.h"

namespace gavel::policy {
namespace {

// A job that lacks less than this part of what it must have lacks nothing.
constexpr double kFreeMin = 1e-9;
// What is left over of the total is worth looking for to this precision.
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

PriceProgram::PriceProgram(const ShareProblem& problem, PriceOptions options)
    : problem_(problem),
      options_(options),
      position_(problem.limits.size(), 0) {
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
    // Of a class of equal jobs: all that they hold.
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
      // Of two columns of a type the faster one, the first if they are equal.
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
  PriceOptions options = options_;
  options.gap_max = gap_max;
  const PriceLevel level = HighestLevel(jobs_, demand, level_max, options);
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
  return AnswerOf(FillByPrices(jobs_, rates, caps, options_));
}

PriceProgram::Answer PriceProgram::FillWater(std::span<const double> factor,
                                             Demands demands) {
  std::vector<double> amounts(factor.size());
  WaterCurves curves;
  curves.top = [&] { return demands.TopLevel(); };
  curves.at = [&](double level, std::span<double> rates) {
    demands.At(level, rates);
    for (size_t m = 0; m < factor.size(); ++m) rates[m] /= factor[m];
  };
  curves.end = [&](double level, const std::vector<bool>& held,
                   std::span<const double> caps) {
    demands.At(level, amounts);
    for (size_t m = 0; m < factor.size(); ++m) {
      if (!held[m]) demands.LowerCap(m, caps[m] * factor[m]);
    }
    demands.Advance(level, amounts, held);
  };
  return AnswerOf(
      FillByPrices(jobs_, curves, LargestThroughputs(problem_), options_));
}

PriceProgram::Answer PriceProgram::AnswerOf(const PriceWater& water) const {
  Answer answer;
  answer.shares = CellsOf(water.shares);
  answer.bound = water.first_bound;
  answer.passes = water.passes;
  answer.converged = water.converged;
  return answer;
}

PriceProgram::Answer PriceProgram::MostGain(std::span<const double> floors,
                                            const SumObjective& objective,
                                            std::span<const double> known,
                                            double gap_max) {
  PriceDemand demand;
  demand.a.assign(floors.size(), 0.0);
  demand.b.assign(floors.begin(), floors.end());
  PadDemand(jobs_, &demand);
  std::vector<double> gains(jobs_.accelerators.size(), 0.0);
  for (size_t m = 0; m < floors.size(); ++m) {
    gains[m] = objective.gain[m] / jobs_.accelerators[m];
  }
  std::vector<double> worth;
  std::vector<double> rent;
  for (const size_t r : limit_) {
    const size_t type = limit_[jobs_.Within(position_[r])];
    worth.push_back(objective.worth[type]);
    // A part's is paid with its type's.
    rent.push_back(r == type ? objective.rent[type] : 0);
  }
  const std::vector<double> values = CellValues(problem_, objective);
  KnownShares start;
  start.usage.assign(jobs_.types, 0.0);
  for (size_t i = 0; i < known.size(); ++i) {
    const ShareCell& cell = problem_.cells[i];
    start.value += values[i] * known[i];
    start.usage[ColumnOf(cell)] += cell.scale_factor * known[i];
  }
  AddParts(jobs_, start.usage);
  PriceOptions options = options_;
  options.gap_max = gap_max;
  PricePass pass = PassOf(jobs_, demand);
  pass.gain = gains.data();
  pass.worth = worth.data();
  const PriceSum sum = HighestSum(jobs_, pass, rent, start, options);
  Answer answer;
  answer.bound = sum.bound;
  answer.passes = sum.passes;
  answer.converged = sum.converged;
  answer.shares = CellsOf(SharesOf(jobs_, pass, sum.mixture));
  for (size_t i = 0; i < known.size(); ++i) {
    answer.shares[i] += sum.known_weight * known[i];
  }
  RepairShares(problem_, answer.shares);
  answer.prices = ByLimit(sum.prices);
  return answer;
}

namespace {

// What is left to the jobs that are free of scarce types.
struct Rest {
  ShareProblem problem;
  std::vector<size_t> job_of;   // by job of it
  std::vector<size_t> cell_of;  // by cell of it
  std::vector<double> shares;   // as they are, by cell of it
  // What a share of it is in shares of the problem: 1, or the time that a tied
  // job, which demands all of it, spends on free types.
  std::vector<double> time;  // by cell of it
};

// Whether a cell takes what is scarce, by limit.
bool TakesScarce(const ShareCell& cell, const std::vector<bool>& scarce) {
  return scarce[cell.type] || scarce[LimitOf(cell)];
}

// The cells of a job on types that are not scarce where it is as fast as where
// it is now; empty unless there are several.
std::vector<JobCell> TiedCells(const ShareProblem& problem, size_t m,
                               std::span<const double> shares,
                               const std::vector<bool>& scarce) {
  const auto is_free = [&](const JobCell& entry) {
    return !TakesScarce(problem.cells[entry.cell], scarce);
  };
  double speed = 0;
  for (const JobCell& entry : problem.Cells(m)) {
    if (!is_free(entry) || shares[entry.cell] <= 0) {
      continue;
    }
    if (speed != 0 && entry.throughput != speed) return {};
    speed = entry.throughput;
  }
  std::vector<JobCell> tied;
  for (const JobCell& entry : problem.Cells(m)) {
    if (is_free(entry) && entry.throughput == speed) tied.push_back(entry);
  }
  return tied.size() > 1 ? tied : std::vector<JobCell>();
}

// [k] the most that the job can have on types that are not scarce.
std::vector<double> FreeThroughputs(const ShareProblem& problem,
                                    const std::vector<bool>& scarce) {
  std::vector<double> most(problem.size(), 0.0);
  for (size_t m = 0; m < most.size(); ++m) {
    for (const JobCell& entry : problem.Cells(m)) {
      const ShareCell& cell = problem.cells[entry.cell];
      if (TakesScarce(cell, scarce)) continue;
      most[m] = std::max(most[m], entry.throughput);
    }
  }
  return most;
}

// Adds a job to the rest that can have these cells for `time`, all of whose
// share on them is up to it.
void AddRest(const ShareProblem& problem, size_t m,
             std::span<const JobCell> cells, double time, bool tied,
             std::span<const double> shares, Rest* rest) {
  ShareProblem& out = rest->problem;
  for (const JobCell& entry : cells) {
    const auto i = entry.cell;
    ShareCell cell = problem.cells[i];
    cell.unit = static_cast<uint32_t>(out.jobs.size());
    cell.scale_factor *= time;
    out.job_cells.push_back({static_cast<uint32_t>(out.cells.size()),
                             tied ? 1.0 : entry.throughput});
    out.cells.push_back(cell);
    rest->cell_of.push_back(i);
    rest->shares.push_back(shares[i] / time);
    rest->time.push_back(time);
  }
  out.jobs.push_back(problem.jobs[m]);
  out.units.emplace_back();
  out.job_start.push_back(out.job_cells.size());
  rest->job_of.push_back(m);
}

Rest RestOf(const ShareProblem& problem, std::span<const double> shares,
            const std::vector<bool>& free, std::vector<bool> scarce) {
  Rest rest;
  ShareProblem& out = rest.problem;
  out.types = out.columns = problem.types;
  out.job_start.push_back(0);
  // What is not up to anyone is gone.
  std::vector<std::vector<JobCell>> tied(problem.size());
  out.limits = problem.limits;
  for (size_t m = 0; m < problem.size(); ++m) {
    if (free[m]) continue;
    tied[m] = TiedCells(problem, m, shares, scarce);
    for (const JobCell& entry : problem.Cells(m)) {
      const auto i = entry.cell;
      const ShareCell& cell = problem.cells[i];
      if (!tied[m].empty() && !TakesScarce(cell, scarce)) continue;
      const double held = cell.scale_factor * shares[i];
      out.limits[cell.type] -= held;
      if (cell.placement != kNoPlacement) out.limits[LimitOf(cell)] -= held;
    }
  }
  for (size_t r = 0; r < out.limits.size(); ++r) {
    if (out.limits[r] <= kFreeMin * problem.limits[r]) scarce[r] = true;
  }
  out.capacity.assign(
      out.limits.begin(),
      out.limits.begin() + static_cast<std::ptrdiff_t>(out.types));
  for (size_t m = 0; m < problem.size(); ++m) {
    if (!free[m]) {
      double time = 0;
      std::erase_if(tied[m], [&](const JobCell& entry) {
        return TakesScarce(problem.cells[entry.cell], scarce);
      });
      for (const JobCell& entry : tied[m]) {
        time += shares[entry.cell];
      }
      if (time > 0) AddRest(problem, m, tied[m], time, true, shares, &rest);
      continue;
    }
    std::vector<JobCell> cells;
    for (const JobCell& entry : problem.Cells(m)) {
      const ShareCell& cell = problem.cells[entry.cell];
      if (!TakesScarce(cell, scarce)) cells.push_back(entry);
    }
    if (!cells.empty()) AddRest(problem, m, cells, 1, false, shares, &rest);
  }
  return rest;
}

}  // namespace

std::vector<double> PriceProgram::SpendTheRest(const Answer& answer,
                                               std::span<const double> wanted,
                                               std::span<const double> gain) {
  std::vector<bool> scarce(problem_.limits.size());
  for (size_t j = 0; j < scarce.size(); ++j) {
    scarce[j] = answer.scarcity[j] > 0;
  }
  const std::vector<double> most = FreeThroughputs(problem_, scarce);
  std::vector<bool> free(problem_.size());
  for (size_t m = 0; m < free.size(); ++m) {
    free[m] = most[m] >= wanted[m] * (1 - kFreeMin);
  }
  Rest rest = RestOf(problem_, answer.shares, free, scarce);
  if (rest.job_of.empty()) return answer.shares;
  RepairShares(rest.problem, rest.shares);
  std::vector<double> floors;
  SumObjective objective;
  objective.worth.assign(problem_.types, 1.0);
  objective.rent.assign(problem_.types, 0.0);
  for (const size_t m : rest.job_of) {
    floors.push_back(free[m] ? std::min(wanted[m], most[m]) : 1);
    objective.gain.push_back(free[m] ? gain[m] : 0);
  }
  const Answer more = PriceProgram(rest.problem, options_)
                          .MostGain(floors, objective, rest.shares, kRestGap);
  std::vector<double> shares = answer.shares;
  for (size_t i = 0; i < shares.size(); ++i) {
    // Free jobs leave scarce types: they had no more than dust there.
    if (free[problem_.cells[i].unit]) shares[i] = 0;
  }
  for (size_t i = 0; i < rest.cell_of.size(); ++i) {
    shares[rest.cell_of[i]] = more.shares[i] * rest.time[i];
  }
  RepairShares(problem_, shares);
  return shares;
}

}  // namespace gavel::policy
