// Which jobs of a problem are equal in all that max-min fairness looks at:
// their throughputs, scale factor and weight. Kept beside a problem it is
// carried from one solve to the next (PolicyProblem::rows): a job that comes,
// goes or changes is one look at a table. What numbers rows got depends on that
// history, so nothing may depend on the numbers. Called by ClassesOf
// (job_classes.h) and the engine. A value without locks.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_JOB_ROWS_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_JOB_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "coordinator/policy/share/row_table.h"

namespace gavel {

struct PolicyJob;
struct PolicyProblem;

class JobRows {
 public:
  JobRows() = default;
  // Ends at the first row above `rows_max` different ones: row_of is empty.
  explicit JobRows(const PolicyProblem& problem,
                   size_t rows_max = std::numeric_limits<size_t>::max());

  // Of a job with these `throughputs` [columns], steps/s.
  uint32_t Number(const PolicyJob& job, std::span<const double> throughputs);
  // How many different ones, those of jobs that have gone included.
  size_t size() const { return table_.size(); }

  std::vector<uint32_t> row_of;  // [n] by job; empty: not known

 private:
  // Of a row of the table: its job's scale factor, weight and throughputs.
  std::vector<double> values_;  // [rows x (2 + columns)]
  RowTable table_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_JOB_ROWS_H_
