#include "coordinator/throughput/matrix_completion.h"

#include <algorithm>
#include <cmath>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "Eigen/SVD"

namespace gavel {
namespace {

using Eigen::Index;
using Matrix = Eigen::MatrixXd;
using Mask = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic>;

struct Centered {
  Matrix values;  // 0 where not known
  Mask known;
  Eigen::VectorXd means;  // by column
};

Centered Center(std::span<const double> values, size_t columns) {
  const auto n = static_cast<Index>(values.size() / columns);
  const auto m = static_cast<Index>(columns);
  Centered made{Matrix::Zero(n, m), Mask::Constant(n, m, false),
                Eigen::VectorXd::Zero(m)};
  for (Index j = 0; j < m; ++j) {
    Index count = 0;
    for (Index i = 0; i < n; ++i) {
      const double value = values[static_cast<size_t>(i * m + j)];
      if (!std::isfinite(value)) continue;
      made.known(i, j) = true;
      made.values(i, j) = value;
      made.means(j) += value;
      ++count;
    }
    if (count > 0) made.means(j) /= static_cast<double>(count);
    for (Index i = 0; i < n; ++i) {
      if (made.known(i, j)) made.values(i, j) -= made.means(j);
    }
  }
  return made;
}

constexpr double kDiagonalMin = 1e-30;

// The factors of the rows of `values`, given those of its columns: a ridge
// regression over what is known of each row.
Matrix SolveRows(const Matrix& values, const Mask& known, const Matrix& others,
                 double regularization) {
  const Index rank = others.cols();
  Matrix factors = Matrix::Zero(values.rows(), rank);
  for (Index i = 0; i < values.rows(); ++i) {
    Matrix gram = Matrix::Zero(rank, rank);
    Eigen::VectorXd right = Eigen::VectorXd::Zero(rank);
    double count = 0;
    for (Index j = 0; j < values.cols(); ++j) {
      if (!known(i, j)) continue;
      gram += others.row(j).transpose() * others.row(j);
      right += values(i, j) * others.row(j).transpose();
      ++count;
    }
    if (count == 0) continue;
    // Above 0 even where all known cells are alike.
    gram.diagonal().array() += regularization * count + kDiagonalMin;
    factors.row(i) = gram.ldlt().solve(right).transpose();
  }
  return factors;
}

// Root of the mean square of what is known.
double Spread(const Centered& centered) {
  const auto known = static_cast<double>(centered.known.count());
  return known > 0 ? centered.values.norm() / std::sqrt(known) : 0;
}

// Of the columns, to begin with: the main directions of what is known.
Matrix FirstFactors(const Matrix& values, Index rank) {
  const Eigen::BDCSVD<Matrix> svd(values, Eigen::ComputeThinV);
  return svd.matrixV().leftCols(rank) *
         svd.singularValues().head(rank).cwiseSqrt().asDiagonal();
}

}  // namespace

std::vector<double> CompleteMatrix(std::span<const double> values,
                                   size_t columns,
                                   const CompletionOptions& options) {
  if (columns == 0 || values.size() < columns) return {};
  const Centered centered = Center(values, columns);
  const Index rank =
      std::min<Index>(std::max(options.rank, 1),
                      std::min(centered.values.rows(), centered.values.cols()));
  const Mask transposed = centered.known.transpose();
  const Matrix values_by_column = centered.values.transpose();
  Matrix of_columns = FirstFactors(centered.values, rank);
  Matrix of_rows;
  Matrix product = Matrix::Zero(centered.values.rows(), centered.values.cols());
  const double spread = Spread(centered);
  for (int i = 0; i < options.iterations_max; ++i) {
    // From strong to weak: what the few cells of a row don't tell stays small.
    const double regularization =
        spread * std::max(options.regularization, std::pow(0.5, i));
    of_rows =
        SolveRows(centered.values, centered.known, of_columns, regularization);
    of_columns =
        SolveRows(values_by_column, transposed, of_rows, regularization);
    const Matrix before = product;
    product = of_rows * of_columns.transpose();
    const double change = (product - before).cwiseAbs().maxCoeff();
    if (regularization <= options.regularization * spread &&
        change <= options.change_max * product.cwiseAbs().maxCoeff()) {
      break;
    }
  }
  std::vector<double> complete(values.begin(), values.end());
  complete.resize(static_cast<size_t>(product.size()));
  for (size_t cell = 0; cell < complete.size(); ++cell) {
    const auto i = static_cast<Index>(cell / columns);
    const auto j = static_cast<Index>(cell % columns);
    if (!centered.known(i, j))
      complete[cell] = product(i, j) + centered.means(j);
  }
  return complete;
}

}  // namespace gavel
