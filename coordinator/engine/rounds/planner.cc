#include "coordinator/engine/rounds/planner.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace gavel::engine {

bool Planner::PlansWhole() const {
  const std::vector<int>& capacity = cluster_.Capacity();
  const int usable = std::accumulate(capacity.begin(), capacity.end(), 0);
  return !allocation_.result().is_assignment || options_.packing ||
         jobs_.elastic() || static_cast<size_t>(usable) != cluster_.size() ||
         agents_.any_own_checkpoints();
}

// It is where it is to be in the next round, and runs there or waits.
bool Planner::IsSettled(const Job& job) const {
  if (job.pinned()) return true;
  const uint32_t chosen =
      candidates_.MayRun(job) ? allocation_.Chosen(job) : kNoIndex;
  if (job.assigned.empty()) return chosen == kNoIndex;
  return chosen != kNoIndex && job.HoldsAny() &&
         !jobs_.Together(job, job.partner) &&
         chosen ==
             static_cast<uint32_t>(cluster_.TypeOf(job.assigned.front())) &&
         static_cast<int>(job.assigned.size()) == job.scale_factor;
}

// Those of jobs_.live() that are not settled, ascending; nullopt: all are
// planned.
std::optional<std::vector<JobId>> Planner::Unsettled() {
  const bool whole = PlansWhole();
  const bool all = changes_.all(Changes::kPlan);
  const std::vector<JobId> changed = changes_.Take(Changes::kPlan, jobs_);
  changes_.SetAll(Changes::kPlan, whole);
  if (all) {
    unsettled_.clear();
    if (!whole) {
      for (const auto& [id, job] : jobs_.live()) unsettled_.push_back(id);
    }
  } else {
    unsettled_.insert(unsettled_.end(), changed.begin(), changed.end());
  }
  if (whole) return std::nullopt;
  std::sort(unsettled_.begin(), unsettled_.end());
  unsettled_.erase(std::unique(unsettled_.begin(), unsettled_.end()),
                   unsettled_.end());
  std::erase_if(unsettled_, [&](JobId id) {
    const Job* job = jobs_.FindLive(id);
    return job == nullptr || IsSettled(*job);
  });
  return unsettled_;
}

RoundPlan Planner::PlanAll(Time at, bool keep_running,
                           const std::vector<bool>& types) {
  RoundPlan plan{Unsettled(), {}};
  if (plan.jobs.has_value()) {
    plan.places = PlaceJobs(at, *plan.jobs, keep_running, types);
  } else {
    RoundTable units = rows_.RoundUnits(at, !keep_running);
    units.SetSlow(speeds_.slow());
    units.SetAvoided(avoidance_.At(at));
    if (allocation_.result().is_assignment) {
      std::vector<uint32_t> chosen(units.size());
      for (size_t u = 0; u < chosen.size(); ++u) {
        chosen[u] = allocation_.Chosen(units.unit(u));
      }
      plan.places = PlaceAssignment(cluster_, units, chosen);
    } else {
      RoundOptions options;
      options.mechanism = terms_.mechanism();
      options.queue = terms_.queue();
      options.round_duration_s = terms_.round_duration_s();
      options.keep_running = keep_running;
      options.leftovers_by_worth =
          allocation_.result().worth >= TypeWorth::kThroughput;
      plan.places = PlanRound(cluster_, units, options);
      plan.trials = trials_.TrialsOf(units, plan.places);
    }
  }
  plan.places.EraseIf([&](const auto& entry) {
    return !checkpoints_.ShareCheckpoints(entry.second);
  });
  return plan;
}

// On what nobody has, and on what these jobs have.
RoundAssignment Planner::PlaceJobs(Time at, const std::vector<JobId>& jobs,
                                   bool keep_running,
                                   const std::vector<bool>& types) {
  const auto is_meant = [&](size_t type) {
    return types.empty() || types[type];
  };
  RoundTable units(/*types=*/0);
  units.Reserve(jobs.size());
  units.SetSlow(speeds_.slow());
  units.SetAvoided(avoidance_.At(at));
  RoundUnit row;
  std::vector<uint32_t> chosen;
  std::vector<AcceleratorId> own;
  for (const JobId id : jobs) {
    const Job& job = *jobs_.FindLive(id);
    for (const AcceleratorId place : job.assigned) {
      if (is_meant(static_cast<size_t>(cluster_.TypeOf(place))))
        own.push_back(place);
    }
    const uint32_t type = allocation_.Chosen(job);
    if (type != kNoIndex && !is_meant(type)) continue;
    rows_.AddUnits(job, std::nullopt, !keep_running, row, units);
    while (chosen.size() < units.size()) {
      const ShareUnit& unit = units.unit(chosen.size());
      chosen.push_back(unit.packed() ? allocation_.Chosen(unit) : type);
    }
  }
  // Two that ran as a pair have the same.
  std::ranges::sort(own);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  FreePlaces& free = assigned_.Places();
  for (const AcceleratorId place : own) free.Release(place);
  RoundAssignment plan = PlaceAssignment(cluster_, units, chosen, &free);
  for (const auto& [unit, places] : plan) {
    for (const AcceleratorId place : places) free.Release(place);
  }
  for (const AcceleratorId place : own) free.Claim(place);
  return plan;
}

void Planner::PlaceElsewhere(Time at,
                             const std::optional<std::vector<JobId>>& jobs,
                             std::vector<RoundAssignment::Entry>& places) {
  if (!allocation_.result().is_assignment) return;
  const std::vector<int>& free_now = assigned_.free();
  if (std::ranges::all_of(free_now, [](int free) { return free == 0; })) return;
  FreePlaces& free = assigned_.Places();
  std::vector<int> left = free_now;
  std::set<JobId> placed;
  for (const auto& [unit, taken] : places) {
    placed.insert({unit.job, unit.partner});
    left[static_cast<size_t>(cluster_.TypeOf(taken.front()))] -=
        static_cast<int>(taken.size());
  }
  RoundTable units(/*types=*/0);
  units.SetSlow(speeds_.slow());
  units.SetAvoided(avoidance_.At(at));
  RoundUnit row;
  std::vector<uint32_t> types;
  const auto add = [&](const Job& job) {
    if (!job.assigned.empty() || allocation_.Chosen(job) == kNoIndex ||
        placed.contains(job.id) || !candidates_.MayRun(job)) {
      return;
    }
    uint32_t best = kNoIndex;
    const std::vector<bool>& usable = figures_.UsableTypes(job);
    for (uint32_t type = 0; type < left.size(); ++type) {
      if (!usable[type] || left[type] < job.scale_factor) continue;
      if (best == kNoIndex || job.steps_per_s[type] > job.steps_per_s[best]) {
        best = type;
      }
    }
    if (best == kNoIndex) return;
    rows_.AddUnits(job, std::nullopt, /*with_trials=*/false, row, units);
    if (types.size() == units.size()) return;
    types.resize(units.size(), best);
    left[best] -= job.scale_factor;
  };
  if (jobs.has_value()) {
    for (const JobId id : *jobs) add(*jobs_.FindLive(id));
  } else {
    for (const auto& [id, job] : jobs_.live()) add(*job);
  }
  if (types.empty()) return;
  for (const auto& [unit, taken] : places) {
    for (const AcceleratorId place : taken) free.Claim(place);
  }
  RoundAssignment elsewhere = PlaceAssignment(cluster_, units, types, &free);
  for (RoundAssignment::Entry& entry : elsewhere.Release()) {
    places.push_back(std::move(entry));
  }
  for (const auto& [unit, taken] : places) {
    for (const AcceleratorId place : taken) free.Release(place);
  }
  std::erase_if(places, [&](const RoundAssignment::Entry& entry) {
    return !checkpoints_.ShareCheckpoints(entry.second);
  });
  std::ranges::sort(places);
}

}  // namespace gavel::engine
