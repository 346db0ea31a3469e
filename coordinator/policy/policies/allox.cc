// AlloX (Le et al., EuroSys'20), as in Gavel section 7: the least mean
// completion time, by a min-cost matching of jobs to (accelerator, position).
//
// A job at position k from the end of an accelerator's queue delays itself and
// k - 1 others, so it costs k steps_remaining / T; the jobs at the heads of the
// queues of free accelerators run now. The objective is the cost of the
// matching. Jobs that run keep their accelerators; those have queues, too,
// which each job in them waits longer for by what the running job still takes.
// (The original knows free accelerators only, and so starts the last job on
// the slowest type when that happens to become free.) Of the jobs that wait
// only the max(A n, free accelerators) earliest take part: "allox_alpha=A", A
// in (0, 1], holds back the youngest, so that old long jobs are not overtaken
// for ever. A job of unknown length counts as long as the longest known one.
//
// What is cheapest for the jobs that are here is not for a stream of them: long
// ones would wait for fast accelerators, behind short ones that come, beside
// idle slow ones. So a second on a type costs each job the type's price, too:
// what those that are still to come lose by it (type_prices.h), the more the
// more jobs wait and accelerators are busy. It sends each job where it is fast
// in comparison with the others. On an empty cluster all prices are 0.
//
// Gangs are outside of AlloX. They take what the matching leaves, in order of
// arrival, each its best type with room. So that they are not starved, the
// earliest of the jobs that wait takes accelerators before the matching if it
// is a gang, and where it does not fit yet the type that lacks least for it is
// held back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/position_matching.h"
#include "coordinator/policy/share/type_prices.h"

namespace gavel::policy {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// So many jobs come behind each one that waits. Measured: of 10, 20, 30 and 60,
// 30 gave the least mean JCT near the load that a cluster can carry.
constexpr double kJobsToCome = 30;

double BestThroughput(const Assigner& assigner, size_t job) {
  double best = 0;
  for (size_t j = 0; j < assigner.types(); ++j) {
    best = std::max(best, assigner.Throughput(job, j));
  }
  return best;
}

// How long jobs take: those of unknown length as long as the longest.
class Durations {
 public:
  explicit Durations(const Assigner& assigner) : assigner_(assigner) {
    for (const size_t job : assigner.queue()) {
      longest_s_ = std::max(longest_s_, assigner.Job(job).steps_remaining /
                                            BestThroughput(assigner, job));
    }
    if (longest_s_ == 0) longest_s_ = 1;
  }

  double Of(size_t job, size_t type) const {
    const double throughput = assigner_.Throughput(job, type);
    if (throughput <= 0) return kNever;
    double steps = assigner_.Job(job).steps_remaining;
    if (steps <= 0) steps = longest_s_ * BestThroughput(assigner_, job);
    return steps / throughput;
  }

 private:
  const Assigner& assigner_;
  double longest_s_ = 0;  // on its best type
};

// Accelerators that are taken, by type and by when they become free.
using Busy = std::map<std::pair<size_t, double>, int>;

// Those that run stay; the others, in order of arrival.
std::vector<size_t> KeepRunning(Assigner& assigner, const Durations& durations,
                                Busy* busy) {
  std::vector<size_t> waiting;
  for (const size_t job : assigner.queue()) {
    if (const auto type = assigner.FitWhereItRuns(job)) {
      assigner.Assign(job, *type);
      (*busy)[{*type, durations.Of(job, *type)}] +=
          assigner.Job(job).scale_factor;
    } else {
      waiting.push_back(job);
    }
  }
  return waiting;
}

bool IsGang(const Assigner& assigner, size_t job) {
  return assigner.Job(job).scale_factor > 1;
}

// Accelerators for a gang, or those that it will get.
void Reserve(Assigner& assigner, size_t gang) {
  if (const auto type = assigner.BestFit(gang)) {
    assigner.Assign(gang, *type);
    return;
  }
  // (accelerators free, throughput), of the types that can hold the gang.
  std::pair most(-1, 0.0);
  size_t where = 0;
  for (size_t j = 0; j < assigner.types(); ++j) {
    const double throughput = assigner.Throughput(gang, j);
    if (throughput <= 0) continue;
    if (std::pair(assigner.room(j), throughput) <= most) continue;
    most = {assigner.room(j), throughput};
    where = j;
  }
  assigner.HoldBack(where, assigner.Job(gang).scale_factor);
}

// By type, in jobs that wait for an accelerator of it. Of all jobs that are
// here, as those to come will be like them. Busy accelerators are the sign
// that more will come.
std::vector<double> Prices(const Assigner& assigner, const Durations& durations,
                           const Busy& busy, size_t waiting) {
  std::vector<int> capacity = assigner.rooms();
  for (const auto& [at, count] : busy) capacity[at.first] += count;
  const double all = std::accumulate(capacity.begin(), capacity.end(), 0.0);
  const double busy_part = 1 - assigner.room() / std::max(1.0, all);
  const double scale = kJobsToCome * busy_part * static_cast<double>(waiting) /
                       std::max(1.0, all);
  if (scale <= 0) return {};
  std::vector<double> time_s;
  for (const size_t job : assigner.queue()) {
    for (size_t j = 0; j < capacity.size(); ++j) {
      time_s.push_back(durations.Of(job, j) * assigner.Job(job).scale_factor);
    }
  }
  std::vector<double> prices = TypePrices(time_s, capacity);
  for (double& price : prices) price *= scale;
  return prices;
}

// The queues, of free accelerators first, and what `jobs` take in them.
MatchingProblem Queues(const Assigner& assigner, const Durations& durations,
                       Busy accelerators, std::span<const size_t> jobs) {
  MatchingProblem matching;
  matching.types = assigner.types();
  matching.price = Prices(assigner, durations, accelerators, jobs.size());
  for (size_t j = 0; j < assigner.types(); ++j) {
    if (assigner.room(j) > 0) accelerators[{j, 0.0}] += assigner.room(j);
  }
  for (const auto& [at, count] : accelerators) {
    matching.groups.push_back({at.first, at.second, count});
  }
  for (const size_t job : jobs) {
    for (size_t j = 0; j < assigner.types(); ++j) {
      matching.time_s.push_back(durations.Of(job, j));
    }
  }
  return matching;
}

// One job for each free machine: those at its deepest position, then, on the
// machines that no job is as deep on, the shortest of the position before.
void AssignHeads(Assigner& assigner, std::span<const size_t> jobs,
                 const MatchingProblem& problem, const Matching& matching) {
  // By group: (-position, time, job).
  std::map<size_t, std::vector<std::tuple<int, double, size_t>>> queues;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Position& at = matching.positions[i];
    if (at.from_end == 0 || problem.groups[at.group].ready_s > 0) continue;
    const size_t type = problem.groups[at.group].type;
    queues[at.group].push_back(
        {-at.from_end, problem.time_s[i * problem.types + type], jobs[i]});
  }
  for (auto& [group, queue] : queues) {
    std::sort(queue.begin(), queue.end());
    const auto machines = static_cast<size_t>(problem.groups[group].machines);
    for (size_t i = 0; i < std::min(machines, queue.size()); ++i) {
      assigner.Assign(std::get<2>(queue[i]), problem.groups[group].type);
    }
  }
}

}  // namespace

PolicyResult SolveAllox(const PolicyProblem& problem, double alpha) {
  Assigner assigner(problem);
  const Durations durations(assigner);
  Busy busy;
  std::vector<size_t> waiting = KeepRunning(assigner, durations, &busy);
  const double share = alpha * static_cast<double>(waiting.size());
  const auto considered = std::max(static_cast<size_t>(share),
                                   static_cast<size_t>(assigner.room()));
  waiting.resize(std::min(waiting.size(), considered));
  if (!waiting.empty() && IsGang(assigner, waiting[0])) {
    Reserve(assigner, waiting[0]);
    waiting.erase(waiting.begin());
  }
  const auto gangs =
      std::stable_partition(waiting.begin(), waiting.end(),
                            [&](size_t job) { return !IsGang(assigner, job); });
  const std::span<const size_t> singles(waiting.begin(), gangs);
  const MatchingProblem queues =
      Queues(assigner, durations, std::move(busy), singles);
  const Matching matching = MatchPositions(queues);
  AssignHeads(assigner, singles, queues, matching);
  for (const size_t job : std::span<const size_t>(gangs, waiting.end())) {
    if (const auto type = assigner.BestFit(job)) assigner.Assign(job, *type);
  }
  PolicyResult result = assigner.Result("shortest-augmenting-paths");
  result.objective = matching.cost;
  result.bound = matching.bound;
  Certify(Sense::kMinimum, &result);
  return result;
}

}  // namespace gavel::policy
