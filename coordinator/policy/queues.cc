// The policies that give out accelerators in the order of a queue: FIFO, FIFO
// by throughput with and without packing, shortest remaining time, and
// priority.

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {

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

namespace {

std::optional<size_t> FirstFit(const Assigner& assigner, size_t job) {
  for (size_t type = 0; type < assigner.types(); ++type) {
    if (assigner.Fits(job, type)) return type;
  }
  return std::nullopt;
}

// Running jobs with their types, and the others by arrival.
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

// First in, first out, aware of throughputs (the FIFO of Gavel section 7), and
// the same with packing (space sharing, Gavel section 3.1).
//
// In order of arrival each job takes the type with its highest throughput among
// those with enough free accelerators, ties to the first type. The queue stops
// at the first job that no type has room for. A job that is slow to the point
// of 0 steps/s on all types with room waits for another one without stopping
// the queue. Everything is decided anew each time: when a fast type becomes
// free, the earliest job moves there.
//
// fifo_packed: a job that no type has room for joins the job, alone on its
// accelerators and of the same scale factor, with which the sum of normalised
// throughputs on that type is highest, if above 1.5; the queue stops at the
// first job that can do neither. The original drops the first job that does not
// fit from its queue before it packs the ones behind it; here it is packed
// first, and a job behind it that has room of its own takes it.

namespace {

// Packing must gain this much: the original's threshold.
constexpr double kPackingGainMin = 1.5;

bool SomeTypeHasRoom(const Assigner& assigner, size_t job) {
  for (size_t type = 0; type < assigner.types(); ++type) {
    if (assigner.HasRoom(job, type)) return true;
  }
  return false;
}

// A unit on its accelerators; alone while it has no partner.
struct Placed {
  size_t job = 0;
  size_t type = 0;
  std::optional<size_t> partner;
};

// The unit of one job that is best to join; null where none gains enough.
Placed* BestToJoin(const Assigner& assigner, size_t job,
                   std::vector<Placed>& placed) {
  Placed* best = nullptr;
  double most = kPackingGainMin;
  for (Placed& other : placed) {
    if (other.partner) continue;
    const double sum = assigner.PackedThroughput(other.job, job, other.type);
    if (sum <= most) continue;
    most = sum;
    best = &other;
  }
  return best;
}

// The units that run when the queue stops. Room is taken from `assigner`.
std::vector<Placed> PlaceAndPack(Assigner& assigner) {
  std::vector<Placed> placed;
  for (const size_t job : assigner.queue()) {
    if (SomeTypeHasRoom(assigner, job)) {
      const std::optional<size_t> type = assigner.BestFit(job);
      if (!type) continue;
      assigner.HoldBack(*type, assigner.Job(job).scale_factor);
      placed.push_back({job, *type, std::nullopt});
    } else if (Placed* other = BestToJoin(assigner, job, placed)) {
      other->partner = job;
    } else {
      break;
    }
  }
  return placed;
}

}  // namespace

PolicyResult SolveFifoPerf(const PolicyProblem& problem) {
  Assigner assigner(problem);
  for (const size_t job : assigner.queue()) {
    if (const auto type = assigner.BestFit(job)) {
      assigner.Assign(job, *type);
    } else if (!SomeTypeHasRoom(assigner, job)) {
      break;
    }
  }
  return assigner.Result("greedy");
}

PolicyResult SolveFifoPacked(const PolicyProblem& problem) {
  Assigner planner(problem);
  Assigner assigner(problem);
  for (const Placed& unit : PlaceAndPack(planner)) {
    if (unit.partner) {
      assigner.AssignPair(unit.job, *unit.partner, unit.type);
    } else {
      assigner.Assign(unit.job, unit.type);
    }
  }
  return assigner.Result("greedy");
}

// Shortest remaining time first (the "shortest job first" of Gavel section
// 4.2), aware of throughputs. Among all waiting jobs and free types the pair of
// least steps_remaining / (T w) is assigned, until nothing fits; w is the
// priority weight, as in Smith's rule for weighted completion times. Jobs whose
// remaining steps are not known come last, by arrival.
//
// A gang that does not fit is passed over, and not starved by that: all is
// decided anew each time, so it is only ever waiting for shorter jobs.

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

// Strict priorities: the job of the highest weight first, then the earliest;
// each takes the type with its highest throughput among those with room. One
// that does not fit is passed over, and not starved by that: all is decided
// anew each time, so it only ever waits for jobs of a higher priority and for
// earlier ones of its own.

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
