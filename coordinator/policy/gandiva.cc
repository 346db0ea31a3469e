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
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
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

// The reactive mode of Gandiva (Xiao et al., OSDI'18, section 4.1): jobs go to
// servers at once when they come, and share them by turns when there are too
// many.
//
// - A job without a place is new, or its server failed. New jobs are placed by
//   arrival, each at the first of these that exists:
//   1. room on hosts of its own affinity: of the type where it is fastest, and
//      with jobs of the same scale factor;
//   2. a host without jobs, which has no affinity;
//   3. room on a host of another affinity;
//   4. the least loaded host, beyond its capacity: jobs there take turns;
//   else it waits in the queue.
//   Among equals the least loaded host goes first.
// - A job that has a place stays on its host, whether it runs or is suspended,
//   until it ends or the host fails. (Moving jobs is the introspective mode's.)
// - On each host the jobs take turns, one round long: those with the least time
//   received per weight run first, and a gang that does not fit is passed over.
//
// The mode keeps no state: a problem's places say where jobs are. A gang that
// is larger than every host it can use has its parts on several hosts.

namespace {

// A host takes new jobs until they ask for more than this many times its
// accelerators. The paper has such a threshold and gives no value.
constexpr int kHeightMax = 4;

// Accelerators of a host, as a part of a job's place.
struct Part {
  size_t host = 0;
  int count = 0;
};

class Hosts {
 public:
  explicit Hosts(const PolicyProblem& problem) : hosts_(problem.hosts) {
    const bool by_type = hosts_.empty();
    for (size_t type = 0; by_type && type < problem.types.size(); ++type) {
      if (problem.capacity[type] == 0) continue;
      hosts_.push_back({AcceleratorId(), type, problem.capacity[type]});
    }
    demand_.assign(hosts_.size(), 0);
    gang_.assign(hosts_.size(), 0);
    room_.assign(hosts_.size(), 0);
    for (size_t h = 0; h < hosts_.size(); ++h) room_[h] = hosts_[h].capacity;
  }

  const PolicyHost& at(size_t host) const { return hosts_[host]; }

  // The job is there: its parts count, and its scale factor is the affinity.
  void Add(const std::vector<Part>& parts, int scale_factor) {
    for (const Part& part : parts) {
      demand_[part.host] += part.count;
      gang_[part.host] = std::max(gang_[part.host], scale_factor);
    }
  }

  // Where a new job goes; empty: nowhere.
  std::vector<Part> Find(const Assigner& assigner, size_t job) const {
    const int wanted = assigner.Job(job).scale_factor;
    double fastest = 0;
    for (size_t type = 0; type < assigner.types(); ++type) {
      fastest = std::max(fastest, assigner.Throughput(job, type));
    }
    // Lower is better: stage, slowness, load.
    using Rank = std::tuple<int, double, double>;
    std::optional<std::pair<Rank, size_t>> best;
    bool wide = true;  // it is larger than every host that it can use
    for (size_t h = 0; h < hosts_.size(); ++h) {
      const double speed = assigner.Throughput(job, hosts_[h].type);
      if (!(speed > 0) || hosts_[h].capacity < wanted) continue;
      wide = false;
      if (demand_[h] + wanted > kHeightMax * hosts_[h].capacity) continue;
      const double load = static_cast<double>(demand_[h]) / hosts_[h].capacity;
      int stage = 4;
      if (demand_[h] + wanted <= hosts_[h].capacity) {
        stage = demand_[h] == 0                          ? 2
                : speed == fastest && gang_[h] == wanted ? 1
                                                         : 3;
      }
      // Where all are beyond their capacity, the load decides.
      const Rank rank =
          stage < 4 ? Rank(stage, -speed, load) : Rank(stage, load, -speed);
      if (!best || rank < best->first) best = {rank, h};
    }
    if (wide) return FindWide(assigner, job);
    if (!best) return {};
    return {{best->second, wanted}};
  }

  // Gives the job its accelerators in this round, if all are free.
  bool Take(const std::vector<Part>& parts) {
    const bool fits = std::ranges::all_of(parts, [&](const Part& part) {
      return room_[part.host] >= part.count;
    });
    if (!fits) return false;
    for (const Part& part : parts) room_[part.host] -= part.count;
    return true;
  }

 private:
  // The least loaded hosts of the type where the job is fastest, among the
  // types that have enough accelerators.
  std::vector<Part> FindWide(const Assigner& assigner, size_t job) const {
    std::optional<size_t> type;
    for (size_t j = 0; j < assigner.types(); ++j) {
      const double speed = assigner.Throughput(job, j);
      if (!(speed > 0)) continue;
      if (!type || speed > assigner.Throughput(job, *type)) type = j;
    }
    std::vector<size_t> order;
    for (size_t h = 0; h < hosts_.size(); ++h) {
      const bool open = demand_[h] < kHeightMax * hosts_[h].capacity;
      if (type == hosts_[h].type && open) order.push_back(h);
    }
    std::ranges::stable_sort(order, {}, [&](size_t h) {
      return static_cast<double>(demand_[h]) / hosts_[h].capacity;
    });
    std::vector<Part> parts;
    int left = assigner.Job(job).scale_factor;
    for (const size_t h : order) {
      if (left == 0) break;
      parts.push_back({h, std::min(left, hosts_[h].capacity)});
      left -= parts.back().count;
    }
    if (left > 0) parts.clear();
    return parts;
  }

  std::vector<PolicyHost> hosts_;
  std::vector<int> demand_;  // accelerators that the jobs of a host ask for
  std::vector<int> gang_;    // the largest scale factor of its jobs
  std::vector<int> room_;    // accelerators that are free in this round
};

// The place of each job in the problem, and the hosts that have them. A job
// with another number of accelerators than it asks for has no place, unless it
// was resized on one host that is large enough.
std::vector<std::vector<Part>> PlacesOf(const PolicyProblem& problem,
                                        const Assigner& assigner,
                                        const Hosts& hosts) {
  std::vector<std::vector<Part>> places(problem.jobs.size());
  for (const PolicyPlace& place : problem.places) {
    places[place.job].push_back({place.host, place.count});
  }
  for (size_t job = 0; job < places.size(); ++job) {
    std::vector<Part>& parts = places[job];
    if (parts.empty()) continue;
    const int wanted = problem.jobs[job].scale_factor;
    if (parts.size() == 1) parts.front().count = wanted;
    int sum = 0;
    const size_t type = hosts.at(parts.front().host).type;
    bool fits = assigner.Throughput(job, type) > 0;
    for (const Part& part : parts) {
      sum += part.count;
      fits &= part.count <= hosts.at(part.host).capacity;
    }
    if (!fits || sum != wanted) parts.clear();
  }
  return places;
}

}  // namespace

PolicyResult SolveGandivaReactive(const PolicyProblem& problem) {
  Assigner assigner(problem);
  Hosts hosts(problem);
  std::vector<std::vector<Part>> places = PlacesOf(problem, assigner, hosts);
  for (const size_t job : assigner.queue()) {
    hosts.Add(places[job], assigner.Job(job).scale_factor);
  }
  std::vector<size_t> placed;
  for (const size_t job : assigner.queue()) {  // by arrival
    if (places[job].empty()) {
      places[job] = hosts.Find(assigner, job);
      hosts.Add(places[job], assigner.Job(job).scale_factor);
    }
    if (!places[job].empty()) placed.push_back(job);
  }
  std::ranges::stable_sort(placed, {}, [&](size_t job) {
    return assigner.Job(job).time_received_s / assigner.Job(job).weight;
  });
  for (const size_t job : placed) {
    const PolicyHost& first = hosts.at(places[job].front().host);
    const bool has_room = assigner.HasRoom(job, first.type);
    if (has_room && hosts.Take(places[job])) {
      assigner.Assign(job, first.type, first.id);
    }
  }
  PolicyResult result = assigner.Result("greedy");
  result.each_round = true;
  return result;
}

}  // namespace gavel::policy
