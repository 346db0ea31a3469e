#include "coordinator/policy/column_master.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>

#include "Eigen/LU"

namespace gavel::policy {
namespace {

// Pivots between two factorisations of the basis.
constexpr int kRefactorAfter = 20;
// Reduced costs up to this part of the values are rounding.
constexpr double kReducedMin = 1e-13;
constexpr double kPivotMin = 1e-11;
// After so many pivots that change nothing the first candidate enters and
// leaves (Bland's rule), which can't cycle.
constexpr int kStallPivotsMax = 40;

constexpr int kNoColumn = std::numeric_limits<int>::min();

Eigen::Index Index(size_t i) { return static_cast<Eigen::Index>(i); }
Eigen::Index RowOfSlack(int slack) { return -1 - slack; }

}  // namespace

ColumnMaster::ColumnMaster(size_t rows, bool convex)
    : rows_(rows),
      convex_(convex),
      size_(rows + (convex ? 1 : 0)),
      inverse_(Eigen::MatrixXd::Zero(Index(size_), Index(size_))),
      basic_(Eigen::VectorXd::Ones(Index(size_))),
      duals_(Eigen::VectorXd::Zero(Index(size_))),
      step_(Eigen::VectorXd::Zero(Index(size_))),
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
  Eigen::MatrixXd basis = Eigen::MatrixXd::Zero(Index(size_), Index(size_));
  for (size_t i = 0; i < size_; ++i) {
    if (basis_[i] < 0) {
      basis(RowOfSlack(basis_[i]), Index(i)) = 1;
    } else {
      basis.col(Index(i)) = ColumnOf(static_cast<size_t>(basis_[i]));
    }
  }
  const Eigen::PartialPivLU<Eigen::MatrixXd> factors(basis);
  inverse_ = factors.inverse();
  // Solved for, not the inverse's sums: these fit to its rounding only.
  basic_ = factors.solve(Eigen::VectorXd::Ones(Index(size_))).cwiseMax(0);
  pivots_ = 0;
}

void ColumnMaster::SetDuals() {
  Eigen::VectorXd values = Eigen::VectorXd::Zero(Index(size_));
  for (size_t i = 0; i < size_; ++i) {
    if (basis_[i] >= 0) {
      values(Index(i)) = values_[static_cast<size_t>(basis_[i])];
    }
  }
  duals_ = inverse_.transpose() * values;
}

// The one that gains most (or the first one that gains); kNoColumn: optimal.
int ColumnMaster::Entering(bool first) {
  SetDuals();
  const double scale = duals_.cwiseAbs().maxCoeff();
  const double least = kReducedMin * std::max(scale, 1e-300);
  double best = least;
  int entering = kNoColumn;
  const auto consider = [&](double reduced, int column) {
    if (reduced <= best || (first && entering != kNoColumn)) return;
    best = reduced;
    entering = column;
  };
  for (size_t r = 0; r < rows_; ++r) {
    const int slack = -1 - static_cast<int>(r);
    if (std::find(basis_.begin(), basis_.end(), slack) == basis_.end()) {
      consider(-duals_(Index(r)), slack);
    }
  }
  for (size_t k = 0; k < values_.size(); ++k) {
    if (in_basis_[k]) continue;
    consider(values_[k] - duals_.dot(ColumnOf(k)), static_cast<int>(k));
  }
  return entering;
}

// Where step_ first reaches 0; of several the largest pivot. size_: nowhere.
size_t ColumnMaster::Leaving() const {
  double least = std::numeric_limits<double>::infinity();
  for (Eigen::Index i = 0; i < step_.size(); ++i) {
    if (step_(i) > kPivotMin) least = std::min(least, basic_(i) / step_(i));
  }
  size_t leaving = size_;
  for (size_t i = 0; i < size_; ++i) {
    const double step = step_(Index(i));
    if (step <= kPivotMin || basic_(Index(i)) / step > least + 1e-15) continue;
    if (leaving == size_ || step > step_(Index(leaving))) leaving = i;
  }
  return leaving;
}

void ColumnMaster::Pivot(size_t row) {
  if (basis_[row] >= 0) in_basis_[static_cast<size_t>(basis_[row])] = 0;
  if (entering_ >= 0) in_basis_[static_cast<size_t>(entering_)] = 1;
  basis_[row] = entering_;
  if (++pivots_ >= kRefactorAfter) return Refactor();
  const Eigen::Index at = Index(row);
  const Eigen::RowVectorXd pivot_row = inverse_.row(at) / step_(at);
  const double weight = basic_(at) / step_(at);
  inverse_ -= step_ * pivot_row;
  inverse_.row(at) = pivot_row;
  basic_ = (basic_ - step_ * weight).cwiseMax(0);
  basic_(at) = weight;
}

void ColumnMaster::Solve() {
  assert(basis_.size() == size_);
  Refactor();
  int stall = 0;
  for (int i = 0; i < kPivotsMax; ++i) {
    entering_ = Entering(/*first=*/stall > kStallPivotsMax);
    if (entering_ == kNoColumn) break;
    if (entering_ < 0) {
      step_ = inverse_.col(RowOfSlack(entering_));
    } else {
      step_ = inverse_ * ColumnOf(static_cast<size_t>(entering_));
    }
    const size_t row = Leaving();
    if (row == size_) break;  // rounding: a column that helps uses something
    stall = basic_(Index(row)) > 0 ? 0 : stall + 1;
    Pivot(row);
  }
  if (pivots_ > 0) Refactor();
  Finish();
}

void ColumnMaster::Finish() {
  SetDuals();
  for (size_t r = 0; r < rows_; ++r) {
    prices_[r] = std::max(0.0, duals_(Index(r)));
  }
  // A slack in the basis has no price at all.
  for (const int column : basis_) {
    if (column < 0) prices_[static_cast<size_t>(RowOfSlack(column))] = 0;
  }
  mixture_.clear();
  for (size_t i = 0; i < size_; ++i) {
    const double weight = basic_(Index(i));
    if (basis_[i] < 0 || weight <= 0) continue;
    mixture_.emplace_back(static_cast<size_t>(basis_[i]), weight);
  }
  std::sort(mixture_.begin(), mixture_.end());
}

std::vector<double> ColumnMaster::PricesOf(
    std::span<const double> capacity) const {
  assert(capacity.size() == rows_);
  const double all = std::accumulate(prices_.begin(), prices_.end(), 0.0);
  if (!(all > 0)) return {};
  std::vector<double> prices = prices_;
  for (size_t r = 0; r < rows_; ++r) prices[r] /= all * capacity[r];
  return prices;
}

}  // namespace gavel::policy
