#include "coordinator/engine/planner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/engine/solver.h"
#include "coordinator/engine/state.h"

namespace gavel::engine {
namespace {

// The shares of an entity are multiplied by this factor when it is one round
// behind, and by at most the other. Priorities of single units may put an
// entity of many short jobs tens of times ahead of one with a single job.
constexpr double kEntityFactor = 100;
constexpr double kEntityFactorMax = 1000;
constexpr double kServed_s = 1e-9;

}  // namespace

// Only while jobs wait: with an accelerator for each, nothing is gained.
static void WeighEntities(const State& s, RoundTable& units);
static void AddPairTrials(const State& s, RoundTable& units, Time at,
                          const std::vector<int>& left);
static void MakePlace(const State& s, const ShareUnit& unit, const Job& job,
                      RoundUnit& row);

void AddPairTrials(const State& s, RoundTable& units, Time at,
                   const std::vector<int>& left) {
  const std::vector<int>& capacity = s.cluster.Capacity();
  const std::vector<int> half =
      s.trials.TrialBudgets(s.options.profiling_percentage / 2);
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
    int budget = std::min(left[type], half[type]);
    for (size_t i = 0; i < alone.size() && budget > 0; ++i) {
      const Job& a = s.jobs.at(alone[i]);
      if (taken.contains(a.id) || a.pair_trials >= TrialBook::kPairTrialsMax)
        continue;
      for (size_t j = i + 1; j < alone.size(); ++j) {
        const Job& b = s.jobs.at(alone[j]);
        if (taken.contains(b.id) || a.spec.scale_factor > budget ||
            !s.trials.IsPairTrial(a, b, type)) {
          continue;
        }
        MakeUnit(s, {a.id, b.id}, *s.jobs.live().at(a.id), at, row);
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

RoundTable RoundUnits(const State& s, Time at, bool with_trials) {
  RoundTable units(s.cluster.types().size());
  units.Reserve(s.jobs.live().size());
  RoundUnit row;
  for (const auto& [id, job] : s.jobs.live())
    AddUnits(s, *job, at, with_trials, row, units);
  const auto add_pair = [&](const ShareUnit& unit) {
    if (!unit.packed() || !s.candidates.MayRun(unit)) return;
    MakeUnit(s, unit, *s.jobs.live().at(unit.job), at, row);
    units.Add(row);
  };
  for (const TypeAssignment& entry : s.allocation.result().assignment)
    add_pair(entry.unit);
  const std::span<const ShareUnit> allocated =
      s.allocation.result().allocation.units();
  for (size_t u = 0; u < allocated.size(); ++u) {
    if (allocated[u].packed() &&
        IsShare(s.allocation.result().allocation.RowAt(u))) {
      add_pair(allocated[u]);
    }
  }
  if (!s.options.entities.empty() && !s.allocation.result().is_assignment) {
    WeighEntities(s, units);
  }
  if (with_trials && !s.allocation.result().is_assignment) {
    const std::vector<int> left = s.trials.AddTrials(units);
    if (s.options.packing && s.options.pair_trials) {
      AddPairTrials(s, units, at, left);
    }
  }
  return units;
}

// A priority compares units. It does not see the time that an entity had
// through jobs that have ended, or through many short ones. Therefore the
// shares of an entity that is ahead of its own share are lowered, and those of
// one that is behind are raised. One factor for all units of an entity keeps
// their order among each other. An entity is ahead only as far as others are
// behind: time that nobody else could use is free. The move-aware mechanism
// orders by deficits, so it gets a correction of the deficits instead.
void WeighEntities(const State& s, RoundTable& units) {
  const size_t types = units.types();
  const std::vector<PolicyEntity>& entities = s.options.entities;
  std::map<std::string_view, size_t> number_of;
  for (size_t e = 0; e < entities.size(); ++e) number_of[entities[e].name] = e;
  // The last one is of all jobs without an entity.
  struct Standing {
    std::vector<double> ahead_s;  // [J] accelerator-seconds
    std::vector<double> share;    // [J] accelerators
  };
  std::vector<Standing> standings(
      entities.size() + 1,
      {std::vector<double>(types), std::vector<double>(types)});
  const auto entity_of = [&](JobId id) {
    const auto found = number_of.find(s.jobs.at(id).spec.entity);
    return found == number_of.end() ? entities.size() : found->second;
  };
  // Calls visit(entity, part of the unit) for each job of the unit.
  const auto visit = [&](size_t u, const auto& of) {
    const ShareUnit& unit = units.unit(u);
    if (!unit.packed()) return of(entity_of(unit.job), 1.0);
    of(entity_of(unit.job), 0.5);
    of(entity_of(unit.partner), 0.5);
  };
  for (size_t u = 0; u < units.size(); ++u) {
    visit(u, [&](size_t e, double part) {
      for (size_t j = 0; j < types; ++j) {
        const double accelerators = part * units.scale_factor(u);
        standings[e].ahead_s[j] -= accelerators * units.deficit_s(u)[j];
        standings[e].share[j] += accelerators * units.share(u)[j];
      }
    });
  }
  const bool by_debt = s.terms.mechanism() == MechanismKind::kMoveAware;
  for (size_t e = 0; e < entities.size(); ++e) {
    const std::span<const double> ended = s.ledger.EndedAhead(entities[e].name);
    for (size_t j = 0; j < std::min(types, ended.size()); ++j) {
      standings[e].ahead_s[j] += ended[j];
    }
  }
  for (size_t j = 0; j < types; ++j) {
    double ahead_s = 0;
    double behind_s = 0;
    for (const Standing& one : standings) {
      (one.ahead_s[j] > 0 ? ahead_s : behind_s) += std::abs(one.ahead_s[j]);
    }
    for (Standing& one : standings) {
      if (one.ahead_s[j] > 0 && ahead_s > behind_s) {
        one.ahead_s[j] *= behind_s / ahead_s;
      }
    }
  }
  const double round_s = s.terms.round_duration_s();
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t j = 0; j < types; ++j) {
      double ahead_rounds = 0;
      double owed_s = 0;
      double served_s = 0;
      visit(u, [&](size_t e, double part) {
        const double share = standings[e].share[j];
        if (e == entities.size() || !(share > 0)) return;
        ahead_rounds +=
            part * standings[e].ahead_s[j] / (round_s * std::max(1.0, share));
        owed_s -= standings[e].ahead_s[j] * part * units.share(u)[j] / share;
        if (by_debt) served_s = kServed_s;
      });
      if (by_debt) {
        units.deficit_s(u)[j] += owed_s;
        // A new job has a head start there, but its entity is not new.
        units.received_s(u)[j] = std::max(units.received_s(u)[j], served_s);
      } else {
        units.share(u)[j] *= std::clamp(std::pow(kEntityFactor, -ahead_rounds),
                                        1 / kEntityFactorMax, kEntityFactorMax);
      }
    }
  }
}

void AddUnits(const State& s, const Job& job, std::optional<Time> at,
              bool with_trials, RoundUnit& row, RoundTable& units) {
  if (!s.candidates.MayRun(job) || job.pinned() ||
      (job.assigned.empty() && !s.allocation.IsAllocated(job)))
    return;
  const auto make = [&](const ShareUnit& unit) {
    at.has_value() ? MakeUnit(s, unit, job, *at, row)
                   : MakePlace(s, unit, job, row);
  };
  make({job.id, JobId()});
  // Who is not to be disturbed keeps the size that it runs with.
  if (!with_trials && !job.assigned.empty()) {
    row.scale_factor = static_cast<int>(job.assigned.size());
  }
  units.Add(row);
  const ShareUnit running = s.jobs.UnitOf(job);
  if (running.packed() && running.job == job.id &&
      !s.allocation.HasShare(running)) {
    make(running);
    units.Add(row);
  }
}

// What tells where it goes, into a row that may have been another unit's.
void MakePlace(const State& s, const ShareUnit& unit, const Job& job,
               RoundUnit& row) {
  row.unit = unit;
  row.scale_factor = job.scale_factor;
  row.holds.clear();
  row.home_server.clear();
  row.home = AcceleratorId();
  row.claimed = job.claimed < 0 ? kNoIndex : static_cast<uint32_t>(job.claimed);
  if (job.workers.front().process == ProcessState::kJoined) {
    row.home_server = job.workers.front().server;
    row.home = job.workers.front().sees_only;
  }
  if (s.jobs.UnitOf(job) == unit) row.holds = job.assigned;
}

void MakeUnit(const State& s, const ShareUnit& unit, const Job& job, Time at,
              RoundUnit& row) {
  MakePlace(s, unit, job, row);
  const size_t types = s.cluster.types().size();
  const std::span<const double> allocated = s.allocation.Allocated(unit);
  row.share.assign(allocated.begin(), allocated.end());
  row.share.resize(types, 0);
  const uint32_t chosen =
      unit.packed() ? s.allocation.Chosen(unit) : s.allocation.Chosen(job);
  if (chosen != kNoIndex) row.share[chosen] = 1;
  s.ledger.time_received().Rows(unit, types, row.time_received_s,
                                row.deficit_s);
  if (unit.packed()) {
    row.usable.clear();
    for (const double share : row.share) row.usable.push_back(share > 0);
  } else {
    row.usable = s.figures.UsableTypes(job);
  }
  row.worth.clear();
  if (!s.allocation.result().is_assignment) {
    AddWorth(s.allocation.result().worth,
             {s.throughputs, s.cluster.types(), s.allocation.prices()}, unit,
             job, row);
  }
  row.preempt_cost_s = row.move_cost_s = row.owed_part = 0;
  AddCosts(job, row);
  if (unit.packed()) AddCosts(s.jobs.at(unit.partner), row);
  if (row.holds.empty()) return;
  const auto type = static_cast<size_t>(s.cluster.TypeOf(row.holds.front()));
  row.usable[type] = true;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    const double seconds =
        std::max(0.0, at - worker.accrued_at) / worker.world_size;
    const size_t booked = job.BookedType(s.cluster.TypeOf(worker.held), types);
    row.time_received_s[booked] += seconds;
    if (s.allocation.result().is_assignment) continue;  // see Book
    row.deficit_s[booked] -= seconds;
  }
}

static bool IsSettled(const State& s, const Job& job);
static std::optional<std::vector<JobId>> Unsettled(State& s);
static RoundAssignment PlaceJobs(State& s, Time at,
                                 const std::vector<JobId>& jobs,
                                 bool keep_running,
                                 const std::vector<bool>& types);

bool PlansWhole(const State& s) {
  const std::vector<int>& capacity = s.cluster.Capacity();
  const int usable = std::accumulate(capacity.begin(), capacity.end(), 0);
  return !s.allocation.result().is_assignment || s.options.packing ||
         s.jobs.elastic() || static_cast<size_t>(usable) != s.cluster.size() ||
         s.agents.any_own_checkpoints();
}

// It is where it is to be in the next round, and runs there or waits.
bool IsSettled(const State& s, const Job& job) {
  if (job.pinned()) return true;
  const uint32_t chosen =
      s.candidates.MayRun(job) ? s.allocation.Chosen(job) : kNoIndex;
  if (job.assigned.empty()) return chosen == kNoIndex;
  return chosen != kNoIndex && job.HoldsAny() &&
         !s.jobs.Together(job, job.partner) &&
         chosen ==
             static_cast<uint32_t>(s.cluster.TypeOf(job.assigned.front())) &&
         static_cast<int>(job.assigned.size()) == job.scale_factor;
}

// Those of jobs_.live() that are not settled, ascending; nullopt: all are
// planned.
std::optional<std::vector<JobId>> Unsettled(State& s) {
  const bool whole = PlansWhole(s);
  const bool all = s.changes.all(Changes::kPlan);
  const std::vector<JobId> changed = s.changes.Take(Changes::kPlan, s.jobs);
  s.changes.SetAll(Changes::kPlan, whole);
  if (all) {
    s.unsettled.clear();
    if (!whole) {
      for (const auto& [id, job] : s.jobs.live()) s.unsettled.push_back(id);
    }
  } else {
    s.unsettled.insert(s.unsettled.end(), changed.begin(), changed.end());
  }
  if (whole) return std::nullopt;
  std::sort(s.unsettled.begin(), s.unsettled.end());
  s.unsettled.erase(std::unique(s.unsettled.begin(), s.unsettled.end()),
                    s.unsettled.end());
  std::erase_if(s.unsettled, [&](JobId id) {
    const Job* job = s.jobs.FindLive(id);
    return job == nullptr || IsSettled(s, *job);
  });
  return s.unsettled;
}

RoundPlan PlanAll(State& s, Time at, bool keep_running,
                  const std::vector<bool>& types) {
  RoundPlan plan{Unsettled(s), {}};
  if (plan.jobs.has_value()) {
    plan.places = PlaceJobs(s, at, *plan.jobs, keep_running, types);
  } else {
    RoundTable units = RoundUnits(s, at, !keep_running);
    units.SetSlow(s.speeds.slow());
    units.SetAvoided(s.avoidance.At(at));
    if (s.allocation.result().is_assignment) {
      std::vector<uint32_t> chosen(units.size());
      for (size_t u = 0; u < chosen.size(); ++u) {
        chosen[u] = s.allocation.Chosen(units.unit(u));
      }
      plan.places = PlaceAssignment(s.cluster, units, chosen);
    } else {
      RoundOptions options;
      options.mechanism = s.terms.mechanism();
      options.queue = s.terms.queue();
      options.round_duration_s = s.terms.round_duration_s();
      options.keep_running = keep_running;
      options.leftovers_by_worth =
          s.allocation.result().worth >= TypeWorth::kThroughput;
      plan.places = PlanRound(s.cluster, units, options);
      plan.trials = s.trials.TrialsOf(units, plan.places);
    }
  }
  plan.places.EraseIf([&](const auto& entry) {
    return !s.checkpoints.ShareCheckpoints(entry.second);
  });
  return plan;
}

// On what nobody has, and on what these jobs have.
RoundAssignment PlaceJobs(State& s, Time at, const std::vector<JobId>& jobs,
                          bool keep_running, const std::vector<bool>& types) {
  const auto is_meant = [&](size_t type) {
    return types.empty() || types[type];
  };
  RoundTable units(/*types=*/0);
  units.Reserve(jobs.size());
  units.SetSlow(s.speeds.slow());
  units.SetAvoided(s.avoidance.At(at));
  RoundUnit row;
  std::vector<uint32_t> chosen;
  std::vector<AcceleratorId> own;
  for (const JobId id : jobs) {
    const Job& job = *s.jobs.FindLive(id);
    for (const AcceleratorId place : job.assigned) {
      if (is_meant(static_cast<size_t>(s.cluster.TypeOf(place))))
        own.push_back(place);
    }
    const uint32_t type = s.allocation.Chosen(job);
    if (type != kNoIndex && !is_meant(type)) continue;
    AddUnits(s, job, std::nullopt, !keep_running, row, units);
    while (chosen.size() < units.size()) {
      const ShareUnit& unit = units.unit(chosen.size());
      chosen.push_back(unit.packed() ? s.allocation.Chosen(unit) : type);
    }
  }
  // Two that ran as a pair have the same.
  std::ranges::sort(own);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  FreePlaces& free = s.assigned.Places();
  for (const AcceleratorId place : own) free.Release(place);
  RoundAssignment plan = PlaceAssignment(s.cluster, units, chosen, &free);
  for (const auto& [unit, places] : plan) {
    for (const AcceleratorId place : places) free.Release(place);
  }
  for (const AcceleratorId place : own) free.Claim(place);
  return plan;
}

void PlaceElsewhere(State& s, Time at,
                    const std::optional<std::vector<JobId>>& jobs,
                    std::vector<RoundAssignment::Entry>& places) {
  if (!s.allocation.result().is_assignment) return;
  const std::vector<int>& free_now = s.assigned.free();
  if (std::ranges::all_of(free_now, [](int free) { return free == 0; })) return;
  FreePlaces& free = s.assigned.Places();
  std::vector<int> left = free_now;
  std::set<JobId> placed;
  for (const auto& [unit, taken] : places) {
    placed.insert({unit.job, unit.partner});
    left[static_cast<size_t>(s.cluster.TypeOf(taken.front()))] -=
        static_cast<int>(taken.size());
  }
  RoundTable units(/*types=*/0);
  units.SetSlow(s.speeds.slow());
  units.SetAvoided(s.avoidance.At(at));
  RoundUnit row;
  std::vector<uint32_t> types;
  const auto add = [&](const Job& job) {
    if (!job.assigned.empty() || s.allocation.Chosen(job) == kNoIndex ||
        placed.contains(job.id) || !s.candidates.MayRun(job)) {
      return;
    }
    uint32_t best = kNoIndex;
    const std::vector<bool>& usable = s.figures.UsableTypes(job);
    for (uint32_t type = 0; type < left.size(); ++type) {
      if (!usable[type] || left[type] < job.scale_factor) continue;
      if (best == kNoIndex || job.steps_per_s[type] > job.steps_per_s[best]) {
        best = type;
      }
    }
    if (best == kNoIndex) return;
    AddUnits(s, job, std::nullopt, /*with_trials=*/false, row, units);
    if (types.size() == units.size()) return;
    types.resize(units.size(), best);
    left[best] -= job.scale_factor;
  };
  if (jobs.has_value()) {
    for (const JobId id : *jobs) add(*s.jobs.FindLive(id));
  } else {
    for (const auto& [id, job] : s.jobs.live()) add(*job);
  }
  if (types.empty()) return;
  for (const auto& [unit, taken] : places) {
    for (const AcceleratorId place : taken) free.Claim(place);
  }
  RoundAssignment elsewhere = PlaceAssignment(s.cluster, units, types, &free);
  for (RoundAssignment::Entry& entry : elsewhere.Release()) {
    places.push_back(std::move(entry));
  }
  for (const auto& [unit, taken] : places) {
    for (const AcceleratorId place : taken) free.Release(place);
  }
  std::erase_if(places, [&](const RoundAssignment::Entry& entry) {
    return !s.checkpoints.ShareCheckpoints(entry.second);
  });
  std::ranges::sort(places);
}

}  // namespace gavel::engine
