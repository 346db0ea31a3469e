#include "coordinator/policy/share/job_rows.h"

#include <algorithm>

#include "coordinator/policy/policy.h"

namespace gavel {

JobRows::JobRows(const PolicyProblem& problem, size_t rows_max) {
  row_of.reserve(problem.jobs.size());
  for (size_t m = 0; m < problem.jobs.size(); ++m) {
    row_of.push_back(Number(problem.jobs[m], problem.Row(m)));
    if (size() <= rows_max) continue;
    row_of.clear();
    return;
  }
}

uint32_t JobRows::Number(const PolicyJob& job,
                         std::span<const double> throughputs) {
  const size_t width = 2 + throughputs.size();
  const uint64_t hash = AddToHash(
      AddToHash(AddToHash(0, job.scale_factor), job.weight), throughputs);
  const size_t before = table_.size();
  const uint32_t number = table_.Number(hash, [&](uint32_t other) {
    const double* row = values_.data() + other * width;
    return row[0] == job.scale_factor && row[1] == job.weight &&
           std::equal(throughputs.begin(), throughputs.end(), row + 2);
  });
  if (table_.size() > before) {
    values_.push_back(job.scale_factor);
    values_.push_back(job.weight);
    values_.insert(values_.end(), throughputs.begin(), throughputs.end());
  }
  return number;
}

}  // namespace gavel
