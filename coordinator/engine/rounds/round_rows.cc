#include "coordinator/engine/rounds/round_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "coordinator/engine/type_worth.h"

namespace gavel::engine {

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
  if (with_trials && !allocation_.result().is_assignment) {
    const std::vector<int> left = trials_.AddTrials(units);
    if (options_.packing && options_.pair_trials) {
      AddPairTrials(units, at, left);
    }
  }
  return units;
}

void RoundRows::AddUnits(const Job& job, std::optional<Time> at,
                         bool with_trials, RoundUnit& row,
                         RoundTable& units) const {
  if (!candidates_.MayRun(job) ||
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
