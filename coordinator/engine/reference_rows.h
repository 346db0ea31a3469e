// The rows of a throughput table that stand for jobs which are not in it: of
// each scale factor those that differ most, taken as profiled in full. The
// engine asks it which of them a job is most like, the simulator beside which
// of them jobs are profiled. Not changed once made: thread-safe. Gavel sections
// 3.3 and 6.
#ifndef GAVEL_COORDINATOR_ENGINE_REFERENCE_ROWS_H_
#define GAVEL_COORDINATOR_ENGINE_REFERENCE_ROWS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/engine/throughput_estimator.h"
#include "coordinator/workload/throughput_table.h"

namespace gavel {

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

#endif  // GAVEL_COORDINATOR_ENGINE_REFERENCE_ROWS_H_
