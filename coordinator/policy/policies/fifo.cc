// First in, first out; heterogeneity-agnostic (the baseline of Gavel section
// 7). In order of arrival each job takes the first type, in the problem's
// order, that it can use and that still has room for its whole gang.
//
// The first job that fits nowhere blocks all behind it, however small they are:
// that is what keeps a gang from waiting for ever. Jobs that run are not
// preempted: they keep their type ahead of the queue. Only when no job waits do
// they move, in order of arrival, to accelerators that are idle on a type
// earlier in the order: else the last jobs of a trace would end on the slowest
// type beside an empty cluster.
#include <optional>
#include <utility>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

std::optional<size_t> FirstFit(const Assigner& assigner, size_t job) {
  for (size_t type = 0; type < assigner.types(); ++type) {
    if (assigner.Fits(job, type)) return type;
  }
  return std::nullopt;
}

// Those that run now, on what they have; the others, by arrival.
struct Split {
  std::vector<std::pair<size_t, size_t>> running;  // (job, type)
  std::vector<size_t> waiting;
};

Split SplitQueue(const Assigner& assigner) {
  Split split;
  std::vector<int> room = assigner.rooms();
  for (const size_t job : assigner.queue()) {
    const std::optional<size_t> type = assigner.FitWhereItRuns(job);
    if (type && room[*type] >= assigner.Job(job).scale_factor) {
      room[*type] -= assigner.Job(job).scale_factor;
      split.running.emplace_back(job, *type);
    } else {
      split.waiting.push_back(job);
    }
  }
  return split;
}

// Each on the earliest type that has room beside all that run.
void AssignEarliest(Assigner& assigner,
                    const std::vector<std::pair<size_t, size_t>>& running) {
  std::vector<int> room = assigner.rooms();  // beside all that run
  for (const auto& [job, type] : running) {
    room[type] -= assigner.Job(job).scale_factor;
  }
  for (const auto& [job, type] : running) {
    const int needed = assigner.Job(job).scale_factor;
    size_t best = 0;
    while (best < type &&
           (assigner.Throughput(job, best) <= 0 || room[best] < needed)) {
      ++best;
    }
    room[type] += needed;
    room[best] -= needed;
    assigner.Assign(job, best);
  }
}

}  // namespace

PolicyResult SolveFifo(const PolicyProblem& problem) {
  Assigner assigner(problem);
  const Split split = SplitQueue(assigner);
  if (split.waiting.empty()) {
    AssignEarliest(assigner, split.running);
    return assigner.Result("greedy");
  }
  for (const auto& [job, type] : split.running) assigner.Assign(job, type);
  for (const size_t job : split.waiting) {
    const std::optional<size_t> type = FirstFit(assigner, job);
    if (!type) break;
    assigner.Assign(job, *type);
  }
  return assigner.Result("greedy");
}

}  // namespace gavel::policy
