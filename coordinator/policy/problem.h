// What every policy does first: refuse a malformed problem, and leave out the
// jobs that can run nowhere, so that one of them never zeroes all the others.
// Called by the policies. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_PROBLEM_H_
#define GAVEL_COORDINATOR_POLICY_PROBLEM_H_

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/policy/policy.h"

namespace gavel {

// INVALID_ARGUMENT names the job or type: sizes that do not match, jobs not in
// ascending order of ids, scale factor < 1, weight not finite and > 0, a
// throughput that is not finite and >= 0, a negative capacity.
absl::Status CheckProblem(const PolicyProblem& problem);

// The jobs of a problem that can run somewhere. A job cannot use a type with
// fewer accelerators than its scale factor (the original Gavel forgets this).
struct UsableJobs {
  std::vector<size_t> jobs;         // k indices into PolicyProblem::jobs
  std::vector<double> throughputs;  // [k x J], 0 where the job cannot run
  std::vector<JobId> left_out;      // the others
  size_t types = 0;                 // J

  std::span<const double> Row(size_t i) const {
    return {throughputs.data() + i * types, types};
  }
};

// `problem` has passed CheckProblem.
UsableJobs FindUsableJobs(const PolicyProblem& problem);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_PROBLEM_H_
