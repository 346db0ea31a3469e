// Fills in the unknown cells of a matrix that is about of low rank. Called by
// ThroughputEstimator. Pure and deterministic; thread-safe.
#ifndef GAVEL_COORDINATOR_THROUGHPUT_MATRIX_COMPLETION_H_
#define GAVEL_COORDINATOR_THROUGHPUT_MATRIX_COMPLETION_H_

#include <cstddef>
#include <span>
#include <vector>

namespace gavel {

struct CompletionOptions {
  int rank = 6;                  // >= 1; cut to the matrix's size
  double regularization = 0.03;  // > 0, per known cell; 1: the cells' spread
  int iterations_max = 40;       // >= 1
  // Done when no cell has moved by more than this part of the largest one.
  double change_max = 1e-6;
};

// Alternating least squares with weighted regularisation (Zhou et al. 2008,
// Large-Scale Parallel Collaborative Filtering for the Netflix Prize, section
// 3.1), from strong to weak, on what is left of each column without its mean.
// `values`: [rows x columns], row-major; NaN: not known, and so is what is
// infinite. Known cells come back as they are; a row without any as the
// columns' means, a column without any as 0. Never NaN.
std::vector<double> CompleteMatrix(std::span<const double> values,
                                   size_t columns,
                                   const CompletionOptions& options = {});

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_THROUGHPUT_MATRIX_COMPLETION_H_
