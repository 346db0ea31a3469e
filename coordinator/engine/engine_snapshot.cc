// Writes the whole engine to a snapshot, and reads it back.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/engine_core.h"
#include "coordinator/engine/fields.h"
#include "coordinator/engine/operators.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::engine {

// All state except the options and the actions that are still to be done, in
// the order of the snapshot. Each part lists its own fields.
auto Core::State(auto& p) {
  auto [jobs, names, ended, next_job, numbers_from] = JobTable::State(p.jobs);
  auto [term, seq, persisted, halted, term_seq, term_began_at, term_starts] =
      Outbox::State(p.outbox);
  auto [round_duration, lease_duration, mechanism, queue, memory_rounds,
        wall_offset] = Terms::State(p.terms);
  auto [fill_due, unsolved, unsolved_seq, throughputs_moved, next_sweep,
        memory_due] = Agenda::State(p.agenda);
  auto [agents, has_budgets] = Agents::State(p.agents);
  auto [quarantined, holders, contexts, leases_until, lost_leases_until,
        silent] = LeaseBook::State(p.leases);
  auto [assigned] = AssignedAccelerators::State(p.assigned);
  auto [changed, all_changed] = Changes::State(p.changes);
  auto [result, prices] = AllocationTable::State(p.allocation);
  auto [time_received, failure_rate, booked_at, ended_ahead] =
      Ledger::State(p.ledger);
  auto [isolated_clock, counted_at, isolated_version] =
      IsolatedTime::State(p.isolated);
  auto [tried, tried_pairs, trials, planned_trials, profiling] =
      TrialBook::State(p.trials);
  auto [rounds, round_ends_at, planned, replanned] = RoundClock::State(p.round);
  auto [launches] = Processes::State(p.processes);
  auto [accused, seconded] = Accusations::State(p.accusations);
  auto [avoided] = Avoidance::State(p.avoidance);
  auto [solve_epoch, solving, solved_placement, solved_at, solve_retry_at] =
      Solver::State(p.solver);
  auto [policy, drains] = Operators::State(p.operators);
  const auto before =
      std::tie(jobs, names, ended, p.cluster, agents, quarantined, tried,
               holders, assigned, time_received, p.throughputs, result);
  const auto after = std::tie(
      prices, term, seq, next_job, rounds, round_duration, lease_duration,
      mechanism, queue, memory_rounds, round_ends_at, planned, booked_at,
      persisted, halted, fill_due, unsolved, unsolved_seq, throughputs_moved,
      solve_epoch, solving, solved_placement, solved_at, solve_retry_at,
      term_seq, next_sweep, term_began_at, tried_pairs, contexts, has_budgets,
      memory_due, accused, replanned, isolated_clock, counted_at, changed,
      all_changed, p.speeds, profiling, leases_until, trials, planned_trials,
      failure_rate, term_starts, launches, policy, drains, numbers_from,
      lost_leases_until, seconded, avoided, isolated_version, ended_ahead,
      wall_offset, silent);
  return std::tuple_cat(before, std::tuple(RowsAgain{&result.allocation}),
                        after);
}

absl::StatusOr<std::string> Core::Snapshot() const {
  if (!parts_.outbox.empty()) {
    return absl::FailedPreconditionError(
        "the engine has actions that are not yet done; take the snapshot when "
        "everything journaled is on disk");
  }
  Packer packer(kJournalLimits);
  packer.Array(3);
  PutField(packer, parts_.jobs.LiveIds());
  const auto state = State(parts_);
  packer.Array(std::tuple_size_v<decltype(state)>);
  std::apply([&](const auto&... field) { (PutField(packer, field), ...); },
             state);
  PutField(packer, parts_.terms.settings());
  GAVEL_RETURN_IF_ERROR(packer.status());
  return packer.Take();
}

absl::Status Core::Restore(std::string_view snapshot) {
  Unpacker unpacker(snapshot, kJournalLimits);
  std::vector<JobId> live;
  GetField(unpacker, live);
  unpacker.Enter();
  std::apply([&](auto&&... field) { (GetField(unpacker, field), ...); },
             State(parts_));
  unpacker.Leave();
  if (unpacker.ok()) parts_.cluster.CountUsable();
  const uint64_t version = parts_.throughputs.version();
  event::Settings settings;
  GetField(unpacker, settings);
  GAVEL_RETURN_IF_ERROR(Rebuild(live));
  if (!unpacker.ok()) {
    return absl::DataLossError(StrCat("the snapshot is damaged: ",
                                      ToStd(unpacker.status().message())));
  }
  settings.told ? TakeSettings(settings) : parts_.measurements.FindTableRows();
  // Looking up table rows and barred types again has raised the version, but no
  // throughput has changed.
  std::get<4>(ThroughputMatrix::State(parts_.throughputs)) = version;
  const bool all = parts_.changes.all(Changes::kIsolated);
  parts_.assigned.Recount();
  parts_.changes.SetAll(Changes::kIsolated, all);
  if (unpacker.passed_over()) {
    return absl::FailedPreconditionError(
        "the snapshot has fields that this version of gavel does not know; use "
        "the version that wrote it, or a newer one");
  }
  return absl::OkStatus();
}

// Lets the parts derive the state that snapshots lack. The state that was read
// may be damaged.
absl::Status Core::Rebuild(const std::vector<JobId>& live) {
  Parts& p = parts_;
  p.changes.Rebuild();
  p.agents.Rebuild();
  GAVEL_RETURN_IF_ERROR(p.jobs.Rebuild(live));
  p.allocation.Rebuild();
  for (const auto& [id, job] : p.jobs.live()) {
    for (Worker& worker : job->workers) {
      // Older snapshots have one progress for both.
      if (worker.known.at == 0) {
        worker.Know(worker.progress_at, worker.progress);
      }
    }
    p.measurements.BarTypes(*job);
  }
  return absl::OkStatus();
}

}  // namespace gavel::engine
