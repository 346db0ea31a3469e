#include "coordinator/engine/rounds/round_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/engine/type_worth.h"

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
void RoundRows::AddPairTrials(RoundTable& units, Time at,
                              const std::vector<int>& left) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  const std::vector<int> half =
      trials_.TrialBudgets(options_.profiling_percentage / 2);
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
      const Job& a = jobs_.at(alone[i]);
      if (taken.contains(a.id) || a.pair_trials >= TrialBook::kPairTrialsMax)
        continue;
      for (size_t j = i + 1; j < alone.size(); ++j) {
        const Job& b = jobs_.at(alone[j]);
        if (taken.contains(b.id) || a.spec.scale_factor > budget ||
            !trials_.IsPairTrial(a, b, type)) {
          continue;
        }
        MakeUnit({a.id, b.id}, *jobs_.live().at(a.id), at, row);
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

RoundTable RoundRows::RoundUnits(Time at, bool with_trials) const {
  RoundTable units(cluster_.types().size());
  units.Reserve(jobs_.live().size());
  RoundUnit row;
  for (const auto& [id, job] : jobs_.live())
    AddUnits(*job, at, with_trials, row, units);
  const auto add_pair = [&](const ShareUnit& unit) {
    if (!unit.packed() || !candidates_.MayRun(unit)) return;
    MakeUnit(unit, *jobs_.live().at(unit.job), at, row);
    units.Add(row);
  };
  for (const TypeAssignment& entry : allocation_.result().assignment)
    add_pair(entry.unit);
  const std::span<const ShareUnit> allocated =
      allocation_.result().allocation.units();
  for (size_t u = 0; u < allocated.size(); ++u) {
    if (allocated[u].packed() &&
        IsShare(allocation_.result().allocation.RowAt(u))) {
      add_pair(allocated[u]);
    }
  }
  if (!options_.entities.empty() && !allocation_.result().is_assignment) {
    WeighEntities(units);
  }
  if (with_trials && !allocation_.result().is_assignment) {
    const std::vector<int> left = trials_.AddTrials(units);
    if (options_.packing && options_.pair_trials) {
      AddPairTrials(units, at, left);
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
void RoundRows::WeighEntities(RoundTable& units) const {
  const size_t types = units.types();
  const std::vector<PolicyEntity>& entities = options_.entities;
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
    const auto found = number_of.find(jobs_.at(id).spec.entity);
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
  const bool by_debt = terms_.mechanism() == MechanismKind::kMoveAware;
  for (size_t e = 0; e < entities.size(); ++e) {
    const std::span<const double> ended = ledger_.EndedAhead(entities[e].name);
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
  const double round_s = terms_.round_duration_s();
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

void RoundRows::AddUnits(const Job& job, std::optional<Time> at,
                         bool with_trials, RoundUnit& row,
                         RoundTable& units) const {
  if (!candidates_.MayRun(job) || job.pinned() ||
      (job.assigned.empty() && !allocation_.IsAllocated(job)))
    return;
  const auto make = [&](const ShareUnit& unit) {
    at.has_value() ? MakeUnit(unit, job, *at, row) : MakePlace(unit, job, row);
  };
  make({job.id, JobId()});
  // Who is not to be disturbed keeps the size that it runs with.
  if (!with_trials && !job.assigned.empty()) {
    row.scale_factor = static_cast<int>(job.assigned.size());
  }
  units.Add(row);
  const ShareUnit running = jobs_.UnitOf(job);
  if (running.packed() && running.job == job.id &&
      !allocation_.HasShare(running)) {
    make(running);
    units.Add(row);
  }
}

// What tells where it goes, into a row that may have been another unit's.
void RoundRows::MakePlace(const ShareUnit& unit, const Job& job,
                          RoundUnit& row) const {
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
  if (jobs_.UnitOf(job) == unit) row.holds = job.assigned;
}

void RoundRows::MakeUnit(const ShareUnit& unit, const Job& job, Time at,
                         RoundUnit& row) const {
  MakePlace(unit, job, row);
  const size_t types = cluster_.types().size();
  const std::span<const double> allocated = allocation_.Allocated(unit);
  row.share.assign(allocated.begin(), allocated.end());
  row.share.resize(types, 0);
  const uint32_t chosen =
      unit.packed() ? allocation_.Chosen(unit) : allocation_.Chosen(job);
  if (chosen != kNoIndex) row.share[chosen] = 1;
  ledger_.time_received().Rows(unit, types, row.time_received_s, row.deficit_s);
  if (unit.packed()) {
    row.usable.clear();
    for (const double share : row.share) row.usable.push_back(share > 0);
  } else {
    row.usable = figures_.UsableTypes(job);
  }
  row.worth.clear();
  if (!allocation_.result().is_assignment) {
    AddWorth(allocation_.result().worth,
             {throughputs_, cluster_.types(), allocation_.prices()}, unit, job,
             row);
  }
  row.preempt_cost_s = row.move_cost_s = row.owed_part = 0;
  AddCosts(job, row);
  if (unit.packed()) AddCosts(jobs_.at(unit.partner), row);
  if (row.holds.empty()) return;
  const auto type = static_cast<size_t>(cluster_.TypeOf(row.holds.front()));
  row.usable[type] = true;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    const double seconds =
        std::max(0.0, at - worker.accrued_at) / worker.world_size;
    const size_t booked = job.BookedType(cluster_.TypeOf(worker.held), types);
    row.time_received_s[booked] += seconds;
    if (allocation_.result().is_assignment) continue;  // see Book
    row.deficit_s[booked] -= seconds;
  }
}

}  // namespace gavel::engine
