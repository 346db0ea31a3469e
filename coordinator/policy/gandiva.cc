// Gandiva (Xiao et al., OSDI'18) as Gavel section 7 compares with it: time
// slices and greedy packing by trial, decided for one round at a time.
//
// - While the cluster has room for all gangs, every job runs alone.
// - Otherwise jobs of equal scale factors are packed in random pairs, until all
//   fit or no more pairs can be made. A pair stays together from round to round
//   (PolicyJob::running_with) until the cluster has room again, or until the
//   sum of both normalised throughputs on the type where they run falls below
//   1, because time slices are better then. The pair does not share that type
//   again, as the problem then has the throughputs that were measured there.
// - Units take turns; the unit with the least time received per weight comes
//   first. Each takes the best type with room, and moves there if it runs on
//   another one.
//
// "Random" is a hash of the jobs' ids: the same problem gives the same pairs.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "coordinator/policy/assigner.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {
namespace {

// The sum of normalised throughputs below which two jobs do better by taking
// turns than by sharing.
constexpr double kTogetherMin = 1;

struct Unit {
  size_t job = 0;
  std::optional<size_t> partner;
};

// SplitMix64 (Steele et al. 2014).
uint64_t Hash(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t HashOfPair(const Assigner& assigner, size_t a, size_t b) {
  return Hash(Hash(assigner.Job(a).id.value()) ^ assigner.Job(b).id.value());
}

bool CanShare(const Assigner& assigner, size_t a, size_t b, size_t type) {
  return assigner.PackedThroughput(a, b, type) >= kTogetherMin;
}

bool CanShareSomewhere(const Assigner& assigner, size_t a, size_t b) {
  for (size_t j = 0; j < assigner.types(); ++j) {
    if (CanShare(assigner, a, b, j)) return true;
  }
  return false;
}

// The number of accelerators that all jobs ask for if none share.
int Demand(const Assigner& assigner) {
  int demand = 0;
  for (const size_t job : assigner.queue()) {
    demand += assigner.Job(job).scale_factor;
  }
  return demand;
}

// Makes pairs while jobs ask for more accelerators than there are.
class Packing {
 public:
  explicit Packing(const Assigner& assigner)
      : assigner_(assigner), excess_(Demand(assigner) - assigner.room()) {
    for (const size_t job : assigner.queue()) single_.push_back(job);
  }

  std::vector<Unit> Run() {
    KeepPairs();
    MakePairs();
    for (const size_t job : single_) units_.push_back({job, std::nullopt});
    return std::move(units_);
  }

 private:
  void Pair(size_t a, size_t b) {
    units_.push_back({a, b});
    std::erase(single_, a);
    std::erase(single_, b);
    excess_ -= assigner_.Job(a).scale_factor;
  }

  // Keeps the pairs that share accelerators now and gain by it.
  void KeepPairs() {
    for (const size_t job : assigner_.queue()) {
      if (excess_ <= 0) return;
      const PolicyJob& of = assigner_.Job(job);
      if (of.running_with <= of.id || of.running_on < 0) continue;
      const std::optional<size_t> other = assigner_.Find(of.running_with);
      const auto type = static_cast<size_t>(of.running_on);
      if (!other || type >= assigner_.types()) continue;
      if (assigner_.Job(*other).running_with != of.id) continue;
      if (CanShare(assigner_, job, *other, type)) Pair(job, *other);
    }
  }

  std::optional<size_t> RandomPartner(size_t job) const {
    std::optional<size_t> partner;
    uint64_t least = 0;
    for (const size_t other : single_) {
      if (other == job) continue;
      const uint64_t hash = HashOfPair(assigner_, job, other);
      if (partner && hash >= least) continue;
      if (!CanShareSomewhere(assigner_, job, other)) continue;
      partner = other;
      least = hash;
    }
    return partner;
  }

  void MakePairs() {
    const std::vector<size_t> unpaired = single_;
    for (const size_t job : unpaired) {
      if (excess_ <= 0) return;
      if (std::find(single_.begin(), single_.end(), job) == single_.end()) {
        continue;
      }
      if (const auto other = RandomPartner(job)) Pair(job, *other);
    }
  }

  const Assigner& assigner_;
  int excess_;  // accelerators
  std::vector<size_t> single_;
  std::vector<Unit> units_;
};

// A pair counts with the time of the job that has received less.
double TimeReceived(const Assigner& assigner, const Unit& unit) {
  const auto of = [&](size_t job) {
    return assigner.Job(job).time_received_s / assigner.Job(job).weight;
  };
  return unit.partner ? std::min(of(unit.job), of(*unit.partner))
                      : of(unit.job);
}

std::optional<size_t> TypeForPair(const Assigner& assigner, const Unit& pair) {
  const auto good = [&](size_t type) {
    return assigner.Fits(pair.job, type) &&
           CanShare(assigner, pair.job, *pair.partner, type);
  };
  std::optional<size_t> best;
  for (size_t j = 0; j < assigner.types(); ++j) {
    if (!good(j)) continue;
    if (!best || assigner.PackedThroughput(pair.job, *pair.partner, j) >
                     assigner.PackedThroughput(pair.job, *pair.partner, *best))
      best = j;
  }
  return best;
}

void Place(Assigner& assigner, const Unit& unit) {
  if (unit.partner) {
    if (const auto type = TypeForPair(assigner, unit)) {
      assigner.AssignPair(unit.job, *unit.partner, *type);
    }
    return;
  }
  if (const auto type = assigner.BestFit(unit.job)) {
    assigner.Assign(unit.job, *type);
  }
}

}  // namespace

PolicyResult SolveGandiva(const PolicyProblem& problem) {
  Assigner assigner(problem);
  std::vector<Unit> units = Packing(assigner).Run();
  std::stable_sort(units.begin(), units.end(),
                   [&](const Unit& a, const Unit& b) {
                     return std::pair(TimeReceived(assigner, a), a.job) <
                            std::pair(TimeReceived(assigner, b), b.job);
                   });
  for (const Unit& unit : units) Place(assigner, unit);
  PolicyResult result = assigner.Result("greedy");
  result.each_round = true;
  return result;
}

}  // namespace gavel::policy
