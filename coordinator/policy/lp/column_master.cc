#include "coordinator/policy/lp/column_master.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "coordinator/policy/lp/small_system.h"

namespace gavel {
namespace {

// Pivots between two factorisations from nothing. Where throughputs differ by
// many powers of ten, the rounding of some pivots is more than limits leave, so
// that a weight would have to be below 0 by more than kLostMax: from the start
// once more then, and each pivot from nothing.
constexpr int kRefactorAfter = 20;
constexpr double kLostMax = 1e-12;
// Reduced costs up to this part of the values are rounding.
constexpr double kReducedMin = 1e-13;
constexpr double kPivotMin = 1e-11;
// After so many pivots that change nothing the first candidate enters and
// leaves (Bland's rule), which can't cycle.
constexpr int kStallPivotsMax = 40;

constexpr int kNone = std::numeric_limits<int>::min();

}  // namespace

ColumnMaster::ColumnMaster(size_t rows, bool convex)
    : rows_(rows),
      convex_(convex),
      size_(rows + (convex ? 1 : 0)),
      inverse_(size_ * size_, 0.0),
      basic_(size_, 1.0),
      duals_(size_, 0.0),
      step_(size_, 0.0),
      prices_(rows, 0.0) {
  for (size_t r = 0; r < rows; ++r) basis_.push_back(-1 - static_cast<int>(r));
}

size_t ColumnMaster::Add(double value, std::span<const double> usage) {
  assert(usage.size() == rows_);
  const size_t index = values_.size();
  values_.push_back(value);
  usage_.insert(usage_.end(), usage.begin(), usage.end());
  if (convex_) usage_.push_back(1);
  const bool first = convex_ && index == 0;
  in_basis_.push_back(first);
  if (first) basis_.push_back(0);
  return index;
}

void ColumnMaster::Refactor() {
  SmallSystem system(size_);
  for (size_t i = 0; i < size_; ++i) {
    if (basis_[i] < 0) {
      system.At(static_cast<size_t>(-1 - basis_[i]), i) = 1;
      continue;
    }
    const double* column = &usage_[static_cast<size_t>(basis_[i]) * size_];
    for (size_t r = 0; r < size_; ++r) system.At(r, i) = column[r];
  }
  system.Factor();
  std::vector<double> unit(size_);
  for (size_t r = 0; r < size_; ++r) {
    std::fill(unit.begin(), unit.end(), 0.0);
    unit[r] = 1;
    system.Solve(unit);
    for (size_t i = 0; i < size_; ++i) inverse_[i * size_ + r] = unit[i];
  }
  // Solved for, not the inverse's sums: these fit to its rounding only.
  std::fill(basic_.begin(), basic_.end(), 1.0);
  system.Solve(basic_);
  for (double& weight : basic_) {
    lost_ = std::max(lost_, -weight);
    weight = std::max(0.0, weight);
  }
  pivots_ = 0;
}

void ColumnMaster::SetDuals() {
  std::fill(duals_.begin(), duals_.end(), 0.0);
  for (size_t i = 0; i < size_; ++i) {
    if (basis_[i] < 0) continue;
    const double value = values_[static_cast<size_t>(basis_[i])];
    for (size_t r = 0; r < size_; ++r) {
      duals_[r] += value * inverse_[i * size_ + r];
    }
  }
}

// The one that gains most (or the first one that gains); kNone: optimal.
int ColumnMaster::Entering(bool first) {
  SetDuals();
  double scale = 0;
  for (const double dual : duals_) scale = std::max(scale, std::abs(dual));
  const double least = kReducedMin * std::max(scale, 1e-300);
  double best = least;
  int entering = kNone;
  const auto consider = [&](double reduced, int column) {
    if (reduced <= best || (first && entering != kNone)) return;
    best = reduced;
    entering = column;
  };
  for (size_t r = 0; r < rows_; ++r) {
    const int slack = -1 - static_cast<int>(r);
    if (duals_[r] >= -least) continue;
    if (std::find(basis_.begin(), basis_.end(), slack) == basis_.end()) {
      consider(-duals_[r], slack);
    }
  }
  for (size_t k = 0; k < values_.size(); ++k) {
    if (in_basis_[k]) continue;
    double reduced = values_[k];
    const double* column = &usage_[k * size_];
    for (size_t r = 0; r < size_; ++r) reduced -= duals_[r] * column[r];
    consider(reduced, static_cast<int>(k));
  }
  return entering;
}

// Where step_ first reaches 0; of several the largest pivot. size_: nowhere.
size_t ColumnMaster::Leaving() const {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < size_; ++i) {
    if (step_[i] > kPivotMin) least = std::min(least, basic_[i] / step_[i]);
  }
  size_t leaving = size_;
  for (size_t i = 0; i < size_; ++i) {
    if (step_[i] <= kPivotMin) continue;
    if (basic_[i] / step_[i] > least + 1e-15) continue;
    if (leaving == size_ || step_[i] > step_[leaving]) leaving = i;
  }
  return leaving;
}

void ColumnMaster::Pivot(size_t row, int refactor_after) {
  if (basis_[row] >= 0) in_basis_[static_cast<size_t>(basis_[row])] = 0;
  if (entering_ >= 0) in_basis_[static_cast<size_t>(entering_)] = 1;
  basis_[row] = entering_;
  if (++pivots_ >= refactor_after) return Refactor();
  const double pivot = step_[row];
  for (size_t r = 0; r < size_; ++r) inverse_[row * size_ + r] /= pivot;
  basic_[row] /= pivot;
  for (size_t i = 0; i < size_; ++i) {
    if (i == row || step_[i] == 0) continue;
    for (size_t r = 0; r < size_; ++r) {
      inverse_[i * size_ + r] -= step_[i] * inverse_[row * size_ + r];
    }
    basic_[i] = std::max(0.0, basic_[i] - step_[i] * basic_[row]);
  }
}

void ColumnMaster::Solve() {
  assert(basis_.size() == size_);
  const std::vector<int> start = basis_;
  Iterate(kRefactorAfter);
  if (lost_ > kLostMax) {
    basis_ = start;
    std::fill(in_basis_.begin(), in_basis_.end(), char{0});
    for (const int column : start) {
      if (column >= 0) in_basis_[static_cast<size_t>(column)] = 1;
    }
    Iterate(1);
  }
  Finish();
}

void ColumnMaster::Iterate(int refactor_after) {
  lost_ = 0;
  Refactor();
  int stall = 0;
  for (int i = 0; i < kPivotsMax; ++i) {
    entering_ = Entering(/*first=*/stall > kStallPivotsMax);
    if (entering_ == kNone) break;
    for (size_t b = 0; b < size_; ++b) {
      const double* inverse = &inverse_[b * size_];
      if (entering_ < 0) {
        step_[b] = inverse[-1 - entering_];
        continue;
      }
      const double* column = &usage_[static_cast<size_t>(entering_) * size_];
      step_[b] = 0;
      for (size_t r = 0; r < size_; ++r) step_[b] += inverse[r] * column[r];
    }
    const size_t row = Leaving();
    if (row == size_) break;  // rounding: a column that helps uses something
    stall = basic_[row] > 0 ? 0 : stall + 1;
    Pivot(row, refactor_after);
  }
  if (pivots_ > 0) Refactor();
}

void ColumnMaster::Finish() {
  SetDuals();
  for (size_t r = 0; r < rows_; ++r) prices_[r] = std::max(0.0, duals_[r]);
  // A slack in the basis has no price at all.
  for (size_t i = 0; i < size_; ++i) {
    if (basis_[i] < 0) prices_[static_cast<size_t>(-1 - basis_[i])] = 0;
  }
  mixture_.clear();
  for (size_t i = 0; i < size_; ++i) {
    if (basis_[i] < 0 || basic_[i] <= 0) continue;
    mixture_.emplace_back(static_cast<size_t>(basis_[i]), basic_[i]);
  }
  std::sort(mixture_.begin(), mixture_.end());
}

}  // namespace gavel
