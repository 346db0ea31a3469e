// Strict priorities: the job of the highest weight first, then the earliest;
// each takes the type with its highest throughput among those with room. One
// that does not fit is passed over, and not starved by that: all is decided
// anew each time, so it only ever waits for jobs of a higher priority and for
// earlier ones of its own.
#include <algorithm>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {

PolicyResult SolvePriority(const PolicyProblem& problem) {
  Assigner assigner(problem);
  std::vector<size_t> order = assigner.queue();
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return assigner.Job(a).weight > assigner.Job(b).weight;
  });
  for (const size_t job : order) {
    if (const auto type = assigner.BestFit(job)) assigner.Assign(job, *type);
  }
  return assigner.Result("greedy");
}

}  // namespace gavel::policy
