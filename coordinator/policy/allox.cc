#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
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
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

constexpr int kSteps = 60;
// A type that no job wants must not be free: it would never be tried again.
constexpr double kPriceMin = 1e-3;

// Accelerator-seconds on each type when every job is where it costs least.
std::vector<double> Loads(std::span<const double> time_s,
                          std::span<const double> prices) {
  const size_t types = prices.size();
  std::vector<double> load_s(types, 0.0);
  for (size_t row = 0; row < time_s.size(); row += types) {
    double least = std::numeric_limits<double>::infinity();
    size_t where = types;
    for (size_t j = 0; j < types; ++j) {
      if (prices[j] <= 0 || prices[j] * time_s[row + j] >= least) continue;
      least = prices[j] * time_s[row + j];
      where = j;
    }
    if (where < types) load_s[where] += time_s[row + where];
  }
  return load_s;
}

void ScaleToOne(std::vector<double>& prices) {
  const double most = *std::max_element(prices.begin(), prices.end());
  if (most <= 0) return;
  for (double& price : prices) price /= most;
}

// Dearer where the load of an accelerator is above the mean of types.
void Raise(std::span<const double> load_s, std::span<const int> capacity,
           double step, std::vector<double>& prices) {
  double mean_s = 0;
  double types = 0;
  for (size_t j = 0; j < prices.size(); ++j) {
    if (capacity[j] <= 0) continue;
    mean_s += load_s[j] / capacity[j];
    ++types;
  }
  if (mean_s <= 0) return;
  mean_s /= types;
  for (size_t j = 0; j < prices.size(); ++j) {
    if (capacity[j] <= 0) continue;
    const double excess = load_s[j] / capacity[j] / mean_s - 1;
    prices[j] *= std::exp(step * std::min(1.0, excess));
  }
  ScaleToOne(prices);
  for (size_t j = 0; j < prices.size(); ++j) {
    if (capacity[j] > 0) prices[j] = std::max(prices[j], kPriceMin);
  }
}

}  // namespace

std::vector<double> TypePrices(std::span<const double> time_s,
                               std::span<const int> capacity) {
  assert(capacity.empty() || time_s.size() % capacity.size() == 0);
  std::vector<double> prices;
  for (const int count : capacity) prices.push_back(count > 0 ? 1 : 0);
  std::vector<double> sum(prices.size(), 0.0);
  for (int i = 0; i < kSteps; ++i) {
    // Long steps first; the mean of the later, short ones is the answer.
    Raise(Loads(time_s, prices), capacity, 1 / (1 + 0.2 * i), prices);
    if (i < kSteps / 2) continue;
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += prices[j];
  }
  if (!sum.empty()) ScaleToOne(sum);
  return sum;
}

namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// A position of a group: as many places as it has machines.
struct Slot {
  size_t group = 0;
  int from_end = 1;
  std::vector<size_t> jobs;  // that have it
  double price = 0;          // dual, <= 0; below 0 only when full
  // The state of the present search:
  double distance = kFar;
  size_t from = kNone;  // the job that reaches it
  bool done = false;
};

class Matcher {
 public:
  explicit Matcher(const MatchingProblem& problem)
      : problem_(problem),
        value_(problem.jobs(), 0),
        slot_(problem.jobs(), kNone),
        deepest_(problem.groups.size(), 0),
        full_(problem.groups.size(), 0) {
    for (size_t g = 0; g < problem.groups.size(); ++g) {
      if (FirstOfType(g)) AddSlot(g);
    }
  }

  void Insert(size_t job);
  Matching Result() const;

 private:
  double Cost(size_t job, const Slot& slot) const {
    const MachineGroup& group = problem_.groups[slot.group];
    const double price =
        problem_.price.empty() ? 0 : problem_.price[group.type];
    return (slot.from_end + price) *
               problem_.time_s[job * problem_.types + group.type] +
           group.ready_s;
  }
  bool Full(const Slot& slot) const {
    return static_cast<int>(slot.jobs.size()) ==
           problem_.groups[slot.group].machines;
  }
  bool FirstOfType(size_t group) const {
    return group == 0 ||
           problem_.groups[group - 1].type != problem_.groups[group].type;
  }
  void AddSlot(size_t group) {
    slots_.push_back({});
    slots_.back().group = group;
    slots_.back().from_end = ++deepest_[group];
  }
  void Extend(size_t group);
  void Reach(size_t job, double distance);
  size_t Nearest() const;
  void MoveAlong(size_t job, size_t slot);
  void Occupy(size_t job, size_t slot);

  const MatchingProblem& problem_;
  std::vector<Slot> slots_;
  std::vector<double> value_;  // dual of each job
  std::vector<size_t> slot_;   // that each job has
  // By group: slots there are, and how many of them are full: the first ones.
  std::vector<int> deepest_;
  std::vector<int> full_;
};

// Looks at all slots from a job that the search has come to.
void Matcher::Reach(size_t job, double distance) {
  for (Slot& slot : slots_) {
    if (slot.done) continue;
    const double cost = Cost(job, slot);
    if (cost == kFar) continue;
    const double there = distance + cost - value_[job] - slot.price;
    if (there >= slot.distance) continue;
    slot.distance = there;
    slot.from = job;
  }
}

size_t Matcher::Nearest() const {
  size_t nearest = kNone;
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].done || slots_[s].distance == kFar) continue;
    if (nearest == kNone || slots_[s].distance < slots_[nearest].distance) {
      nearest = s;
    }
  }
  return nearest;
}

// A position is no use while one before it is free that is not deeper in the
// queue, on machines of the type that are not free later: it costs every job
// more. So the next one of a group is there when the one above it is full, and
// the same one of the group before.
void Matcher::Extend(size_t group) {
  const int next = deepest_[group] + 1;
  if (full_[group] < next - 1) return;
  if (!FirstOfType(group) && full_[group - 1] < next) return;
  AddSlot(group);
}

void Matcher::Occupy(size_t job, size_t slot) {
  slot_[job] = slot;
  slots_[slot].jobs.push_back(job);
  const size_t group = slots_[slot].group;
  if (!Full(slots_[slot]) || slots_[slot].from_end <= full_[group]) return;
  full_[group] = slots_[slot].from_end;
  Extend(group);
  const size_t after = group + 1;
  if (after < full_.size() && !FirstOfType(after)) Extend(after);
}

// Each job on the path takes the slot that it reaches from the one before.
void Matcher::MoveAlong(size_t job, size_t slot) {
  while (true) {
    const size_t mover = slots_[slot].from;
    const size_t left = slot_[mover];
    if (left != kNone) std::erase(slots_[left].jobs, mover);
    Occupy(mover, slot);
    if (mover == job) return;
    slot = left;
  }
}

void Matcher::Insert(size_t job) {
  for (Slot& slot : slots_) {
    slot.distance = kFar;
    slot.from = kNone;
    slot.done = false;
  }
  Reach(job, 0);
  size_t end = Nearest();
  while (end != kNone && Full(slots_[end])) {
    slots_[end].done = true;
    for (const size_t other : slots_[end].jobs) {
      Reach(other, slots_[end].distance);
    }
    end = Nearest();
  }
  if (end == kNone) return;  // it can run nowhere
  const double length = slots_[end].distance;
  value_[job] += length;
  for (Slot& slot : slots_) {
    if (!slot.done) continue;
    for (const size_t other : slot.jobs)
      value_[other] += length - slot.distance;
    slot.price -= length - slot.distance;
  }
  MoveAlong(job, end);
}

Matching Matcher::Result() const {
  Matching matching;
  matching.positions.resize(problem_.jobs());
  for (size_t job = 0; job < problem_.jobs(); ++job) {
    if (slot_[job] == kNone) continue;
    const Slot& slot = slots_[slot_[job]];
    matching.positions[job] = {slot.group, slot.from_end};
    matching.cost += Cost(job, slot);
    matching.bound += value_[job];
  }
  for (const Slot& slot : slots_) {
    matching.bound += slot.price * problem_.groups[slot.group].machines;
  }
  return matching;
}

}  // namespace

Matching MatchPositions(const MatchingProblem& problem) {
  assert(problem.types == 0 || problem.time_s.size() % problem.types == 0);
  assert(problem.price.empty() || problem.price.size() == problem.types);
  Matcher matcher(problem);
  for (size_t job = 0; job < problem.jobs(); ++job) matcher.Insert(job);
  return matcher.Result();
}

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
// what those that are still to come lose by it (TypePrices), the more the
// more jobs wait and accelerators are busy. It sends each job where it is fast
// in comparison with the others. On an empty cluster all prices are 0.
//
// Gangs are outside of AlloX. They take what the matching leaves, in order of
// arrival, each its best type with room. So that they are not starved, the
// earliest of the jobs that wait takes accelerators before the matching if it
// is a gang, and where it does not fit yet the type that lacks least for it is
// held back.

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The number of jobs that are expected to arrive behind each one that waits: 30
// gave the least mean JCT of 10, 20, 30 and 60 near the load that a cluster can
// carry.
constexpr double kJobsToCome = 30;

// How long jobs take: those of unknown length as long as the longest.
class Durations {
 public:
  explicit Durations(const Assigner& assigner) : assigner_(assigner) {
    for (const size_t job : assigner.queue()) {
      longest_s_ = std::max(longest_s_, assigner.Job(job).steps_remaining /
                                            assigner.BestThroughput(job));
    }
    if (longest_s_ == 0) longest_s_ = 1;
  }

  double Of(size_t job, size_t type) const {
    const double throughput = assigner_.Throughput(job, type);
    if (throughput <= 0) return kNever;
    double steps = assigner_.Job(job).steps_remaining;
    if (steps <= 0) steps = longest_s_ * assigner_.BestThroughput(job);
    return steps / throughput;
  }

 private:
  const Assigner& assigner_;
  double longest_s_ = 0;  // on its best type
};

// Accelerators that are taken, by type and by when they become free.
using Busy = std::map<std::pair<size_t, double>, int>;

// Running jobs stay where they are. Returns the others, in order of arrival.
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

// Returns the price of each type, in jobs that wait for an accelerator of it.
// It is taken over all present jobs, as those to come will be like them. Busy
// accelerators are the sign that more will come.
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
