// Two jobs beside each other on one accelerator, live: how fast they are
// together is measured, first on trial (Gavel sections 3.1 and 6).
#include <algorithm>

#include "coordinator/engine/engine.h"

namespace gavel {
namespace {

// A job runs beside so many others on trial; what it is like beside the rest
// stays unknown, and the policy is not offered it.
constexpr int kPairTrialsMax = 4;
// Of a type's accelerators, at most one of so many at once.
constexpr int kPairTrialPart = 4;

// When both ran together from, under their present leases.
Time TogetherSince(const Job& job, const Job& other) {
  Time since = 0;
  for (const Job* one : {&job, &other}) {
    for (const Worker& worker : one->workers) {
      if (worker.held_epoch != one->epoch) return kNever;
      since = std::max(since, worker.leased_at);
    }
  }
  return since;
}

}  // namespace

// What `job` reports while it runs beside its partner is the pair's figure,
// provided that the partner was there all the while.
void Engine::MeasurePair(Time now, const Job& job, const std::string& type,
                         const Progress& progress) {
  if (!Together(job, job.partner)) return;
  const Time since = TogetherSince(job, jobs_.at(job.partner));
  if (!(now - since >= progress.window_s)) return;
  if (throughputs_.MeasureTogether(job.id, job.partner, type,
                                   progress.throughput_steps_per_s,
                                   progress.window_s)) {
    throughputs_moved_ = true;
  }
}

// Of `a` and of `b` beside each other: as measured, else by the table, whose
// name for the type is `table_type`. nullopt: not known.
std::optional<std::pair<double, double>> Engine::PairThroughput(
    const Job& a, const Job& b, size_t type, std::optional<size_t> table_type,
    bool consolidated) const {
  if (throughputs_.has_pairs()) {
    const std::string& name = cluster_.types()[type];
    const auto first = throughputs_.Together(a.id, b.id, name);
    const auto second = throughputs_.Together(b.id, a.id, name);
    if (first.has_value() && second.has_value()) return {{*first, *second}};
  }
  if (!table_type.has_value() || !a.table_row.has_value() ||
      !b.table_row.has_value()) {
    return std::nullopt;
  }
  return options_.throughputs->Together(*a.table_row, *b.table_row, *table_type,
                                        consolidated);
}

void Engine::NoteTried(Job& job, size_t type) {
  tried_.emplace(job.id, type);
  if (!options_.pair_trials || !Together(job, job.partner)) return;
  if (!tried_pairs_.emplace(UnitOf(job), type).second) return;
  ++job.pair_trials;
  ++jobs_.at(job.partner).pair_trials;
}

// As far as their memory is known, on any of the type's accelerators.
bool Engine::PairFits(const Job& a, const Job& b, size_t type) const {
  const uint64_t need = a.workers.front().need_bytes +  //
                        b.workers.front().need_bytes;
  for (const Accelerator& accelerator : cluster_.accelerators()) {
    const AcceleratorInfo& info = accelerator.info;
    if (static_cast<size_t>(cluster_.TypeOf(accelerator.id)) != type) continue;
    if (info.memory_bytes == 0 ||
        need + 2 * info.context_bytes <= info.memory_bytes) {
      return true;
    }
  }
  return false;
}

// What `rank` of a packed job may take of its accelerator, in bytes without its
// context; 0: no limit. Each has what it was seen to need, and half of the
// rest. Where that is too little for one, it runs out of memory and is not
// packed so again, instead of taking its partner down with it.
uint64_t Engine::PairMemoryLimit(const Job& job, int rank) const {
  if (!job.partner.valid()) return 0;
  const Worker& worker = job.workers[static_cast<size_t>(rank)];
  const AcceleratorInfo& info = cluster_.accelerator(worker.held).info;
  if (info.memory_bytes <= 2 * info.context_bytes) return 0;
  const auto room =
      static_cast<double>(info.memory_bytes - 2 * info.context_bytes);
  const auto own = static_cast<double>(worker.need_bytes);
  double other = 0;
  const Job& partner = jobs_.at(job.partner);
  for (size_t i = 0; i < partner.assigned.size(); ++i) {
    if (partner.assigned[i] != worker.held) continue;
    other = static_cast<double>(partner.workers[i].need_bytes);
  }
  const double needs = own + other;
  const double limit =
      needs > room ? room * own / needs : own + (room - needs) / 2;
  return std::max<uint64_t>(1, static_cast<uint64_t>(limit));
}

// Each must be known alone there first: what they lose is seen against that.
bool Engine::IsPairTrial(const Job& a, const Job& b, size_t type) const {
  const std::string& name = cluster_.types()[type];
  for (const Job* job : {&a, &b}) {
    if (job->pair_trials >= kPairTrialsMax ||
        throughputs_.NeedsTrial(job->id, name) ||
        !(throughputs_.Get(job->id, name).steps_per_s > 0)) {
      return false;
    }
  }
  const ShareUnit unit{a.id, b.id};
  if (a.spec.elastic() || b.spec.elastic() ||
      a.spec.scale_factor != b.spec.scale_factor ||
      tried_pairs_.contains({unit, type}) || Allocated(unit) != nullptr ||
      UnitOf(a) == unit) {
    return false;
  }
  const ThroughputTable* table = options_.throughputs.get();
  const std::optional<size_t> table_type =
      table == nullptr ? std::nullopt : table->FindType(name);
  return !PairThroughput(a, b, type, table_type, true).has_value() &&
         PairFits(a, b, type);
}

// Only while jobs wait: with an accelerator for each, nothing is gained.
void Engine::AddPairTrials(RoundTable& units, Time at) const {
  const std::vector<int> capacity = cluster_.Capacity();
  std::vector<JobId> alone;
  int wanted = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    if (units.unit(u).packed()) continue;
    alone.push_back(units.unit(u).job);
    wanted += units.scale_factor(u);
  }
  for (const int count : capacity) wanted -= count;
  if (wanted <= 0) return;
  std::set<JobId> taken;
  RoundUnit row;
  for (size_t type = 0; type < capacity.size(); ++type) {
    int budget = (capacity[type] + kPairTrialPart - 1) / kPairTrialPart;
    for (size_t i = 0; i < alone.size() && budget > 0; ++i) {
      const Job& a = jobs_.at(alone[i]);
      if (taken.contains(a.id) || a.pair_trials >= kPairTrialsMax) continue;
      for (size_t j = i + 1; j < alone.size(); ++j) {
        const Job& b = jobs_.at(alone[j]);
        if (taken.contains(b.id) || a.spec.scale_factor > budget ||
            !IsPairTrial(a, b, type)) {
          continue;
        }
        MakeUnit({a.id, b.id}, *live_.at(a.id), at, row);
        row.share.assign(capacity.size(), 0);
        row.usable.assign(capacity.size(), false);
        row.share[type] = 1;
        row.usable[type] = true;
        row.time_received_s[type] = 0;
        row.deficit_s[type] = kTrialDebt_s;
        units.Add(row);
        budget -= a.spec.scale_factor;
        taken.insert({a.id, b.id});
        break;
      }
    }
  }
}

}  // namespace gavel
