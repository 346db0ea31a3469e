// The policies that give out accelerators in the order of a queue: FIFO, FIFO
// by throughput with and without packing, shortest remaining time, priority,
// and Tiresias.

#include <algorithm>
#include <array>
#include <cstddef>
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

// Tiresias (Gu et al., NSDI'19): preemptive scheduling by the service that a
// job has attained, which is its accelerators times the time that it ran.
//
// `tiresias` is the paper's discretised least attained service (section 3.2.3):
// jobs are in queues by thresholds of attained service, a job of an earlier
// queue goes before one of a later queue, and inside a queue the earlier
// arrival goes first. So a job is preempted when it crosses a threshold, and
// not over and over by jobs of nearly the same service. A job that has waited
// for many times the time that it ran is promoted to the first queue.
//
// `tiresias_gittins` uses the Gittins index (section 3.2.2) inside the paper's
// discretised queues: the largest ratio, over horizons, of the chance that the
// job ends within the horizon to the service that it is expected to take until
// then. The distribution of total service is that of the jobs present whose
// steps are known; without any it is `tiresias`.
//
// A gang that has no room is passed over. Each job takes the type with its
// highest throughput among those with room. The mechanism places gangs on one
// server where it can; Tiresias spreads gangs of models that do not mind.

namespace {

// Upper ends of the queues but the last, in accelerator-seconds. The paper
// tunes them to its traces; these are an hour and half a day of one
// accelerator.
constexpr std::array<double, 2> kThresholds = {3'600, 43'200};
// The paper's promote knob, for which it gives no value.
constexpr double kWaitsPerRun = 8;
// Sizes that stand for the distribution of total service.
constexpr size_t kSizesMax = 256;

double Attained(const PolicyJob& job) {
  return job.time_received_s * job.scale_factor;
}

size_t QueueOf(const PolicyJob& job) {
  const double waited_s = job.time_since_start_s - job.time_received_s;
  const bool starves =
      job.time_received_s > 0 && waited_s > kWaitsPerRun * job.time_received_s;
  if (starves) return 0;
  const auto* const end =
      std::upper_bound(kThresholds.begin(), kThresholds.end(), Attained(job));
  return static_cast<size_t>(end - kThresholds.begin());
}

// The distribution of the jobs' total service in accelerator-seconds.
class ServiceSizes {
 public:
  explicit ServiceSizes(const Assigner& assigner) {
    std::vector<double> all;
    for (const size_t job : assigner.queue()) {
      const PolicyJob& of = assigner.Job(job);
      const auto type = assigner.BestFit(job);
      if (of.steps_remaining <= 0 || !type) continue;
      const double left_s =
          of.steps_remaining / assigner.Throughput(job, *type);
      all.push_back(Attained(of) + left_s * of.scale_factor);
    }
    std::sort(all.begin(), all.end());
    const size_t count = std::min(all.size(), kSizesMax);
    for (size_t i = 0; i < count; ++i) {
      sizes_.push_back(all[(2 * i + 1) * all.size() / (2 * count)]);
    }
  }
  bool empty() const { return sizes_.empty(); }

  // 0: no job of the distribution is larger than `attained`.
  double GittinsIndex(double attained) const {
    const auto first = std::upper_bound(sizes_.begin(), sizes_.end(), attained);
    const auto larger = static_cast<double>(sizes_.end() - first);
    double best = 0;
    double sum = 0;    // of the service that jobs within the horizon still take
    double ended = 0;  // jobs within the horizon
    for (auto size = first; size != sizes_.end(); ++size) {
      const double horizon = *size - attained;
      sum += horizon;
      ended += 1;
      best = std::max(best, ended / (sum + (larger - ended) * horizon));
    }
    return best;
  }

 private:
  std::vector<double> sizes_;  // ascending
};

}  // namespace

PolicyResult SolveTiresias(const PolicyProblem& problem, bool gittins) {
  Assigner assigner(problem);
  const ServiceSizes sizes(assigner);
  struct Entry {
    size_t queue;
    double index;  // the smaller one goes first
    size_t job;
  };
  std::vector<Entry> entries;
  for (const size_t job : assigner.queue()) {  // by arrival
    const PolicyJob& of = assigner.Job(job);
    const double index = gittins ? -sizes.GittinsIndex(Attained(of)) : 0;
    entries.push_back({QueueOf(of), index, job});
  }
  std::stable_sort(
      entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return std::tie(a.queue, a.index) < std::tie(b.queue, b.index);
      });
  for (const Entry& entry : entries) {
    const auto stays = assigner.FitWhereItRuns(entry.job);
    const auto type = stays ? stays : assigner.BestFit(entry.job);
    if (type) assigner.Assign(entry.job, *type);
  }
  PolicyResult result = assigner.Result("greedy");
  result.each_round = true;
  return result;
}

}  // namespace gavel::policy
