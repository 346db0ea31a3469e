#include "coordinator/policy/lp/pair_columns.h"

#include <algorithm>
#include <tuple>

namespace gavel::policy {
namespace {

// A pair that makes less than this of its program's objective, which is near 1,
// goes into the bound instead.
constexpr double kGainMin = 1e-10;
// Of each job that many of the best new cells are listed at a time.
constexpr int kCellsOfJobMax = 3;
// Cells that make less than this part of what another one of the same jobs
// makes wait for the next time.
constexpr double kGainPartMin = 0.3;

}  // namespace

PairColumns::PairColumns(ShareProblem* problem)
    : problem_(*problem), table_(*problem->pairs) {}

PairColumns::Worth PairColumns::WorthOf(const ShareProgram& program,
                                        const SumObjective* objective,
                                        double scale,
                                        std::vector<double>* row_duals) const {
  const size_t k = problem_.size();
  const size_t types = problem_.types;
  const size_t limits = problem_.limits.size();
  Worth worth;
  worth.step.assign(k * types, 0.0);
  for (const ShareProgram::ThroughputRow& row : program.throughput_rows()) {
    const double value = std::max(0.0, -(*row_duals)[row.row]) * row.factor;
    for (size_t j = 0; j < types; ++j) worth.step[row.job * types + j] += value;
  }
  for (size_t r = 0; r < limits + k; ++r) {
    (*row_duals)[r] = std::max(0.0, (*row_duals)[r]);
  }
  for (size_t r = 0; r < limits; ++r) {
    worth.price.push_back((*row_duals)[r] / problem_.limits[r]);
  }
  worth.time.assign(
      row_duals->begin() + static_cast<std::ptrdiff_t>(limits),
      row_duals->begin() + static_cast<std::ptrdiff_t>(limits + k));
  if (objective == nullptr) return worth;
  for (size_t j = 0; j < types; ++j) {
    worth.price[j] += objective->rent[j] / scale;
    for (size_t m = 0; m < k; ++m) {
      worth.step[m * types + j] +=
          objective->gain[m] * objective->worth[j] / scale;
    }
  }
  return worth;
}

// Jobs pay with their time for what their cells are worth beyond their price:
// the same proof as a column's bound, and one that pairs not listed pay, too.
void PairColumns::RaiseTime(Worth* worth) const {
  std::vector<double> reduced(problem_.cells.size());
  for (size_t i = 0; i < reduced.size(); ++i) {
    const ShareCell& cell = problem_.cells[i];
    double price = 0;
    cell.ForEachLimit([&](uint32_t r) { price += worth->price[r]; });
    reduced[i] = -cell.scale_factor * price;
  }
  for (size_t m = 0; m < problem_.size(); ++m) {
    for (const JobCell& entry : problem_.Cells(m)) {
      const auto i = entry.cell;
      const auto type = problem_.cells[i].type;
      reduced[i] += worth->step[m * problem_.types + type] * entry.throughput -
                    worth->time[m] * entry.time;
    }
  }
  for (size_t m = 0; m < problem_.size(); ++m) {
    double raise = 0;
    for (const JobCell& entry : problem_.Cells(m)) {
      if (entry.time < 1) continue;
      raise = std::max(raise, reduced[entry.cell]);
    }
    if (raise == 0) continue;
    worth->time[m] += raise;
    for (const JobCell& entry : problem_.Cells(m)) {
      reduced[entry.cell] -= raise * entry.time;
    }
  }
}

double PairColumns::Price(const ShareProgram& program,
                          const SumObjective* objective, double scale,
                          std::vector<double>* row_duals) {
  if (row_duals->empty()) return 0;
  const size_t limits = problem_.limits.size();
  Worth worth = WorthOf(program, objective, scale, row_duals);
  RaiseTime(&worth);
  std::copy(worth.time.begin(), worth.time.end(),
            row_duals->begin() + static_cast<std::ptrdiff_t>(limits));
  // From here on of one job of each class.
  for (size_t m = 0; m < problem_.size(); ++m) {
    worth.time[m] /= table_.members[m];
    for (size_t j = 0; j < problem_.types; ++j) {
      worth.step[m * problem_.types + j] /= table_.members[m];
    }
  }
  most_.assign(problem_.size(), 0.0);
  excess_.assign(problem_.size(), 0.0);
  for (size_t i = 0; i < table_.cells.size(); ++i) PriceCell(i, worth);
  double rise = 0;
  // Half of it by each of the two.
  for (size_t m = 0; m < excess_.size(); ++m) {
    rise += table_.members[m] * excess_[m] / 2;
  }
  return rise;
}

PairColumns::Side PairColumns::SideOf(uint32_t m, size_t type,
                                      double throughput,
                                      const Worth& worth) const {
  const double step = worth.step[m * problem_.types + type];
  return {m, step * throughput - worth.time[m]};
}

std::vector<PairColumns::Side> PairColumns::SidesOf(const PairCell& cell,
                                                    bool first,
                                                    const Worth& worth) const {
  const double throughput =
      first ? cell.first_throughput : cell.second_throughput;
  const size_t type = cell.column % problem_.types;
  std::vector<Side> sides;
  for (const uint32_t m : table_.jobs[first ? cell.first : cell.second]) {
    sides.push_back(SideOf(m, type, throughput, worth));
  }
  return sides;
}

void PairColumns::PriceCell(size_t index, const Worth& worth) {
  const PairCell& cell = table_.cells[index];
  const size_t type = cell.column % problem_.types;
  double price = worth.price[type];
  if (cell.placement != kNoPlacement) {
    price += worth.price[cell.placement];
  }
  const std::vector<uint32_t>& first = table_.jobs[cell.first];
  const std::vector<uint32_t>& second = table_.jobs[cell.second];
  price *= problem_.scale_factor[first.front()];
  if (first.size() == 1 && second.size() == 1) {
    return Note(
        index, SideOf(first.front(), type, cell.first_throughput, worth),
        SideOf(second.front(), type, cell.second_throughput, worth), price);
  }
  first_ = SidesOf(cell, true, worth);
  if (cell.first != cell.second) second_ = SidesOf(cell, false, worth);
  PriceKinds(index, price);
}

// The best of the one kind beside the best of the other, the second best beside
// the second best: not all beside the same one.
void PairColumns::PriceKinds(size_t index, double price) {
  const PairCell& cell = table_.cells[index];
  std::sort(first_.begin(), first_.end());
  if (cell.first != cell.second) {
    std::sort(second_.begin(), second_.end());
    const size_t most = std::max(first_.size(), second_.size());
    for (size_t i = 0; i < most; ++i) {
      const Side& a = first_[std::min(i, first_.size() - 1)];
      const Side& b = second_[std::min(i, second_.size() - 1)];
      if (a.gain + second_.front().gain <= price &&
          b.gain + first_.front().gain <= price) {
        break;
      }
      Note(index, a, second_.front(), price);
      Note(index, first_.front(), b, price);
      Note(index, a, b, price);
    }
    return;
  }
  for (size_t i = 0; i < first_.size(); ++i) {
    const Side& a = first_[i];
    if (table_.PairsWithItself(a.job)) {
      Note(index, a, a, price);
    }
    if (i == 0) continue;
    if (a.gain + first_.front().gain <= price) break;
    Note(index, first_.front(), a, price);
    Note(index, first_[i - 1], a, price);
  }
}

void PairColumns::Note(size_t index, const Side& a, const Side& b,
                       double price) {
  const double gain = a.gain + b.gain - price;
  if (gain <= 0) return;
  const uint32_t m = a.job;
  const uint32_t n = b.job;
  const double whole = gain * table_.PairsAtATime(m, n);
  if (stopped_ || whole <= kGainMin) {
    excess_[m] = std::max(excess_[m], gain);
    excess_[n] = std::max(excess_[n], gain);
    return;
  }
  if (whole < kGainPartMin * std::min(most_[m], most_[n])) return;
  most_[m] = std::max(most_[m], whole);
  most_[n] = std::max(most_[n], whole);
  found_.push_back({whole, {a.job, b.job, index}});
}

bool PairColumns::List() {
  std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
    return std::tuple(-a.gain, a.cell.cell, a.cell.first, a.cell.second) <
           std::tuple(-b.gain, b.cell.cell, b.cell.first, b.cell.second);
  });
  std::vector<int> count(problem_.size(), 0);
  std::vector<ListedCell> listed;
  for (const Found& found : found_) {
    const auto [first, second, cell] = found.cell;
    int& of_first = count[first];
    int& of_second = count[second];
    if (of_first >= kCellsOfJobMax && of_second >= kCellsOfJobMax) continue;
    if (!listed_.emplace(cell, std::min(first, second), std::max(first, second))
             .second) {
      continue;
    }
    ++of_first;
    ++of_second;
    listed.push_back(found.cell);
  }
  found_.clear();
  if (listed.empty()) return false;
  // Columns of shares come first; new ones are 0 where simplex continues.
  if (!basis_.columns.empty()) {
    basis_.columns.insert(basis_.columns.begin() + static_cast<std::ptrdiff_t>(
                                                       problem_.cells.size()),
                          listed.size(), 0);
  }
  ListCells(listed, &problem_);
  return true;
}

}  // namespace gavel::policy
