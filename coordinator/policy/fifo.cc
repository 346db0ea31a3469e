// First in, first out; heterogeneity-agnostic (the baseline of Gavel section
// 7). In order of arrival each job takes the first type, in the problem's
// order, that it can use and that still has room for its whole gang.
//
// The first job that fits nowhere blocks all behind it, however small they are:
// that is what keeps a gang from waiting for ever. Jobs that run are not
// preempted: they keep their type ahead of the queue.
#include <algorithm>
#include <numeric>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/problem.h"
#include "core/status.h"

namespace gavel {
namespace {

class Fifo : public Policy {
 public:
  std::string_view name() const override { return "fifo"; }
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override;
};

// What is left to give, and what was given.
struct Queue {
  const PolicyProblem& problem;
  const UsableJobs& usable;
  std::vector<int> room;  // accelerators left of each type
  std::vector<TypeAssignment> assignment;

  const PolicyJob& Job(size_t i) const { return problem.jobs[usable.jobs[i]]; }

  bool Fits(size_t i, size_t type) const {
    return usable.Row(i)[type] > 0 && room[type] >= Job(i).scale_factor;
  }

  void Take(size_t i, size_t type) {
    room[type] -= Job(i).scale_factor;
    assignment.push_back({Job(i).id, type});
  }

  // False when the job runs nowhere or can't stay where it is.
  bool Keep(size_t i) {
    const int type = Job(i).running_on;
    if (type < 0 || static_cast<size_t>(type) >= room.size()) return false;
    if (!Fits(i, static_cast<size_t>(type))) return false;
    Take(i, static_cast<size_t>(type));
    return true;
  }

  // False when no type has room.
  bool TakeFirst(size_t i) {
    for (size_t type = 0; type < room.size(); ++type) {
      if (!Fits(i, type)) continue;
      Take(i, type);
      return true;
    }
    return false;
  }
};

// Indices into usable.jobs by arrival, ties by id.
std::vector<size_t> ArrivalOrder(const PolicyProblem& problem,
                                 const UsableJobs& usable) {
  std::vector<size_t> order(usable.jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return problem.jobs[usable.jobs[a]].arrival_s <
           problem.jobs[usable.jobs[b]].arrival_s;
  });
  return order;
}

absl::StatusOr<PolicyResult> Fifo::Solve(const PolicyProblem& problem) const {
  GAVEL_RETURN_IF_ERROR(CheckProblem(problem));
  UsableJobs usable = FindUsableJobs(problem);
  Queue queue{problem, usable, problem.capacity, {}};
  std::vector<size_t> waiting;
  for (const size_t i : ArrivalOrder(problem, usable)) {
    if (!queue.Keep(i)) waiting.push_back(i);
  }
  for (const size_t i : waiting) {
    if (!queue.TakeFirst(i)) break;
  }

  PolicyResult result;
  result.outcome = SolveOutcome::kOptimal;
  result.is_assignment = true;
  result.assignment = std::move(queue.assignment);
  result.left_out = std::move(usable.left_out);
  // FIFO optimises nothing: the objective counts the jobs that run.
  result.objective = static_cast<double>(result.assignment.size());
  result.bound = result.objective;
  result.solver = "greedy";
  return result;
}

}  // namespace

std::unique_ptr<Policy> MakeFifo();
std::unique_ptr<Policy> MakeFifo() { return std::make_unique<Fifo>(); }

}  // namespace gavel
