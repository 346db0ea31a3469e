// Shortest remaining time first (the "shortest job first" of Gavel section
// 4.2), aware of throughputs. Of all waiting jobs and free types the pair of
// least steps_remaining / (T w) is assigned, until nothing fits; w is the
// priority weight, as in Smith's rule for weighted completion times. Jobs whose
// remaining steps are not known come last, by arrival.
//
// A gang that does not fit is passed over, and not starved by that: all is
// decided anew each time, so it is only ever waiting for shorter jobs.
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

double WeightedTime(const Assigner& assigner, size_t job, size_t type) {
  const PolicyJob& of = assigner.Job(job);
  if (of.steps_remaining <= 0) return std::numeric_limits<double>::infinity();
  return of.steps_remaining / (assigner.Throughput(job, type) * of.weight);
}

}  // namespace

PolicyResult SolveSjf(const PolicyProblem& problem) {
  Assigner assigner(problem);
  // (time on its best free type, place in the queue). As types fill up a job's
  // time only grows: an entry whose time is out of date is put back.
  using Entry = std::tuple<double, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  for (size_t i = 0; i < assigner.queue().size(); ++i) next.push({0, i});
  while (!next.empty()) {
    const auto [time, i] = next.top();
    next.pop();
    const size_t job = assigner.queue()[i];
    const std::optional<size_t> type = assigner.BestFit(job);
    if (!type) continue;
    const double time_now = WeightedTime(assigner, job, *type);
    if (time_now > time) {
      next.push({time_now, i});
    } else {
      assigner.Assign(job, *type);
    }
  }
  return assigner.Result("greedy");
}

}  // namespace gavel::policy
