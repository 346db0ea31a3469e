// The restricted master problem of the price method (Dantzig and Wolfe 1960):
// the best convex combination of the columns found so far that fits,
//
//   max sum_k value_k weight_k,  sum_k usage_kr weight_k <= 1 for each row r,
//   sum_k weight_k = 1 (if it is convex),  weight >= 0,
//
// by the primal simplex method on a dense basis of a dozen rows. After columns
// are added it starts from the last basis. Called by the price method only. A
// value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_COLUMN_MASTER_H_
#define GAVEL_COORDINATOR_POLICY_COLUMN_MASTER_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "Eigen/Core"

namespace gavel::policy {

class ColumnMaster {
 public:
  // The first column of a convex one fits alone: usage <= 1.
  ColumnMaster(size_t rows, bool convex);

  // `usage` [rows], >= 0, as parts of what there is (rows that are not scaled
  // cost digits). Returns its index, from 0.
  size_t Add(double value, std::span<const double> usage);
  size_t columns() const { return values_.size(); }

  // To an optimal basis, to rounding; after kPivotsMax pivots it stops at a
  // feasible one.
  void Solve();
  static constexpr int kPivotsMax = 2000;

  // After Solve. Indices of columns with a weight above 0, with the weight.
  const std::vector<std::pair<size_t, double>>& mixture() const {
    return mixture_;
  }
  // [rows], >= 0.
  std::span<const double> prices() const { return prices_; }
  // [rows] the same for each unit of a row's `capacity`, at which all of it is
  // worth 1. Empty: all prices are 0.
  std::vector<double> PricesOf(std::span<const double> capacity) const;

 private:
  // Basis entries: columns are >= 0, the slack of row r is -1 - r.
  void Refactor();
  int Entering(bool first);
  size_t Leaving() const;
  void Pivot(size_t row);
  void Finish();
  void SetDuals();
  Eigen::Map<const Eigen::VectorXd> ColumnOf(size_t column) const {
    return {&usage_[column * size_], static_cast<Eigen::Index>(size_)};
  }

  size_t rows_;
  bool convex_;
  size_t size_;                 // of the basis
  std::vector<double> values_;  // [columns]
  std::vector<double> usage_;   // [columns x size_]
  std::vector<char> in_basis_;  // [columns]
  std::vector<int> basis_;      // [size_]
  Eigen::MatrixXd inverse_;     // of the basis
  Eigen::VectorXd basic_;       // [size_] values of the basis
  Eigen::VectorXd duals_;       // [size_]
  Eigen::VectorXd step_;        // [size_] the entering column in the basis
  int entering_ = 0;
  int pivots_ = 0;  // since the last Refactor
  std::vector<std::pair<size_t, double>> mixture_;
  std::vector<double> prices_;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_COLUMN_MASTER_H_
