// Throughputs of a job of which little was measured: a few of its cells
// (accelerator type, partner) are enough to find the reference job that it is
// most like, whose row it then gets. Gavel sections 3.3 and 6, after Paragon
// and Quasar. ThroughputEstimator does this for one scale factor, ReferenceRows
// for all of those in a throughput table. Not changed once made: thread-safe.
// Deterministic.
#ifndef GAVEL_COORDINATOR_ENGINE_THROUGHPUT_ESTIMATOR_H_
#define GAVEL_COORDINATOR_ENGINE_THROUGHPUT_ESTIMATOR_H_

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/workload/throughput_table.h"

namespace gavel {

// Fills in the unknown cells of a matrix that is about of low rank. Called by
// ThroughputEstimator. Pure and deterministic; thread-safe.
struct CompletionOptions {
  int rank = 6;                  // >= 1; cut to the matrix's size
  double regularization = 0.03;  // > 0, per known cell; 1: the cells' spread
  int iterations_max = 40;       // >= 1
  // Done when no cell has moved by more than this part of the largest one.
  double change_max = 1e-6;
};

// Alternating least squares with weighted regularisation (Zhou et al. 2008,
// Large-Scale Parallel Collaborative Filtering for the Netflix Prize, section
// 3.1), from strong to weak, on the residuals of each column without its mean.
// `values`: [rows x columns], row-major; NaN and infinite cells are unknown.
// Known cells come back as they are; a row without any as the columns' means, a
// column without any as 0. The result has no NaN.
std::vector<double> CompleteMatrix(std::span<const double> values,
                                   size_t columns,
                                   const CompletionOptions& options = {});

// A job type that was profiled in full, on J types and beside n others.
struct ReferenceJob {
  // [J] steps/s, > 0; 0: cannot run there; NaN: not known.
  std::vector<double> alone;
  // [J x n] the part of its steps/s alone that it keeps beside each other one,
  // >= 0; 0: they can't share; NaN: not known.
  std::vector<double> kept;
};

// `count` (at least 1) of the candidates that differ most: first the one
// nearest to the mean, then always the one farthest from those that were chosen
// (Gonzalez 1985). As many as there are different ones, at most. Ascending.
std::vector<size_t> ChooseReferences(
    const std::vector<ReferenceJob>& candidates, size_t count);

class ThroughputEstimator {
 public:
  // All of `references` have as many types, and cells of `kept` for each other
  // in their order.
  ThroughputEstimator(size_t types, std::vector<ReferenceJob> references);

  static constexpr size_t kAlone = std::numeric_limits<size_t>::max();
  // A measured cell of a job, as in ReferenceJob. Others are ignored.
  struct Cell {
    size_t type = 0;
    size_t partner = kAlone;  // a reference
    double value = 0;
  };
  struct Match {
    size_t reference = 0;
    // The root mean square by which the rows differ; cells alone count as
    // natural logarithms after the job's own speed is taken off. Cells that
    // were not measured are completed, and count for kCompletedWeight.
    double distance = 0;
    // How many times as fast as the reference it is: the geometric mean over
    // the types that it was measured on alone; 0: on none.
    double speed = 0;
  };
  // The nearest reference; the first one of several. nullopt: without
  // references, or without a cell that tells them apart.
  std::optional<Match> Find(std::span<const Cell> cells) const;

  const std::vector<ReferenceJob>& references() const { return references_; }

  // On Gavel's published table at 20 % of the cells, 5 % noise: the parts kept
  // are off by 0.087 on average for job types that are no reference, and by
  // 0.005 for those that are (26 references); by the cosine distance over the
  // completed rows, as the original measures it, 0.110 and 0.041.
  static constexpr double kCompletedWeight = 0.05;

 private:
  double SpeedAgainst(const ReferenceJob& reference,
                      const std::vector<double>& alone) const;

  size_t types_;
  std::vector<ReferenceJob> references_;
  std::vector<double> type_speeds_;  // [J] mean logarithm, of a row without own
  std::vector<double> rows_;         // [references x columns]
};

// The rows of a throughput table that stand for jobs which are not in it: of
// each scale factor those that differ most, taken as profiled in full. The
// engine asks it which of them a job is most like, the simulator beside which
// of them jobs are profiled. Not changed once made: thread-safe. Gavel sections
// 3.3 and 6.
class ReferenceRows {
 public:
  // At most `models` >= 1 of each scale factor.
  ReferenceRows(std::shared_ptr<const ThroughputTable> table, int models);

  struct Match {
    ThroughputTable::Row row = 0;
    double speed = 0;  // as in ThroughputEstimator::Match
  };
  // Cells of types and partners that it does not know are ignored.
  std::optional<Match> Find(int scale_factor,
                            const std::vector<ProfiledCell>& cells) const;
  // Ascending; empty: the table has no row of that scale factor.
  const std::vector<ThroughputTable::Row>& RowsOf(int scale_factor) const;
  // Some reference of that scale factor can share an accelerator with one.
  bool CanShare(int scale_factor) const;

 private:
  struct Scale {
    std::vector<ThroughputTable::Row> rows;
    ThroughputEstimator estimator;
  };
  std::vector<ReferenceJob> JobsOf(
      const std::vector<ThroughputTable::Row>& rows) const;

  std::shared_ptr<const ThroughputTable> table_;
  std::map<int, Scale> scales_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_THROUGHPUT_ESTIMATOR_H_
