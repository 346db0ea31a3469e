// Dense linear systems of a few rows. Called by solvers that policies have of
// their own. A value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_SMALL_SYSTEM_H_
#define GAVEL_COORDINATOR_POLICY_LP_SMALL_SYSTEM_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace gavel {

// A x = b by Gaussian elimination with partial pivoting: fill in A, Factor(),
// then Solve() for as many right-hand sides as there are. Where the rest of a
// column is below `dependent` times its largest value, it is taken for rounding
// and its unknown stays 0.
class SmallSystem {
 public:
  explicit SmallSystem(size_t size = 0) { Reset(size); }
  void Reset(size_t size) {
    size_ = size;
    values_.assign(size * size, 0.0);
    pivots_.resize(size);
  }
  size_t size() const { return size_; }
  double& At(size_t i, size_t j) { return values_[i * size_ + j]; }

  void Factor(double dependent = 0) {
    std::vector<double> largest(size_, 0.0);
    for (size_t i = 0; i < values_.size(); ++i) {
      largest[i % size_] = std::max(largest[i % size_], std::abs(values_[i]));
    }
    for (size_t j = 0; j < size_; ++j) {
      size_t pivot = j;
      for (size_t i = j + 1; i < size_; ++i) {
        if (std::abs(At(i, j)) > std::abs(At(pivot, j))) pivot = i;
      }
      pivots_[j] = pivot;
      if (pivot != j) {
        for (size_t k = 0; k < size_; ++k) std::swap(At(j, k), At(pivot, k));
      }
      if (std::abs(At(j, j)) <= dependent * largest[j]) {
        At(j, j) = std::numeric_limits<double>::infinity();
      }
      for (size_t i = j + 1; i < size_; ++i) {
        const double factor = At(i, j) /= At(j, j);
        if (factor == 0) continue;
        for (size_t k = j + 1; k < size_; ++k) At(i, k) -= factor * At(j, k);
      }
    }
  }
  // x of the right-hand side x, in place.
  void Solve(std::span<double> x) {
    for (size_t i = 0; i < size_; ++i) std::swap(x[i], x[pivots_[i]]);
    for (size_t i = 0; i < size_; ++i) {
      for (size_t k = 0; k < i; ++k) x[i] -= At(i, k) * x[k];
    }
    for (size_t i = size_; i-- > 0;) {
      for (size_t k = i + 1; k < size_; ++k) x[i] -= At(i, k) * x[k];
      x[i] /= At(i, i);
    }
  }

 private:
  size_t size_ = 0;
  std::vector<double> values_;
  std::vector<size_t> pivots_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_SMALL_SYSTEM_H_
