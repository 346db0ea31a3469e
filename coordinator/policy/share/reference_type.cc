#include "coordinator/policy/share/reference_type.h"

#include <algorithm>
#include <span>

#include "coordinator/policy/share/share_problem.h"
#include "core/reference_type.h"

namespace gavel::policy {
namespace {

// Throughput on the reference type, else the highest. `row`: 0 where the job
// can't run, by column.
double ReferenceThroughput(const PolicyProblem& problem,
                           std::span<const double> row) {
  for (size_t c = 0; c < row.size(); ++c) {
    const bool reference =
        problem.types[problem.TypeOfColumn(c)] == kReferenceType;
    if (reference && row[c] > 0) return row[c];
  }
  return *std::max_element(row.begin(), row.end());
}

}  // namespace

PolicyProblem WithReferenceType(PolicyProblem problem) {
  const ShareProblem shares = MakeShareProblem(problem);
  problem.rows = {};  // of the throughputs that were
  for (size_t m = 0; m < shares.size(); ++m) {
    const std::span<const double> row = shares.Row(m);
    const double reference = ReferenceThroughput(problem, row);
    for (size_t c = 0; c < row.size(); ++c) {
      problem.throughputs[shares.jobs[m] * problem.columns() + c] =
          row[c] > 0 ? reference : 0;
    }
  }
  return problem;
}

}  // namespace gavel::policy
