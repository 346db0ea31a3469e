// Writes the whole engine to a snapshot, and reads it back.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/dependencies.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/fields.h"
#include "coordinator/engine/job_times.h"
#include "coordinator/engine/measurements.h"
#include "coordinator/engine/state.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::engine {

// All state except the options and the actions that are still to be done, in
// the order of the snapshot. Each class lists its own fields.
static auto FieldsOf(auto& s) {
  auto [jobs, names, ended, next_job, numbers_from] = JobTable::State(s.jobs);
  auto [term, seq, persisted, halted, term_seq, term_began_at, term_starts] =
      Outbox::State(s.outbox);
  auto [round_duration, lease_duration, mechanism, queue, memory_rounds,
        wall_offset] = Terms::State(s.terms);
  auto [fill_due, unsolved, unsolved_seq, throughputs_moved, next_sweep,
        memory_due] = Agenda::State(s.agenda);
  auto [agents, has_budgets] = Agents::State(s.agents);
  auto [quarantined, holders, contexts, leases_until, lost_leases_until,
        silent] = LeaseBook::State(s.leases);
  auto [assigned] = AssignedAccelerators::State(s.assigned);
  auto [changed, all_changed] = Changes::State(s.changes);
  auto [result, prices] = AllocationTable::State(s.allocation);
  auto [time_received, failure_rate, booked_at, ended_ahead] =
      Ledger::State(s.ledger);
  auto [isolated_clock, counted_at, isolated_version] =
      IsolatedTime::State(s.isolated);
  auto [tried, tried_pairs, trials, planned_trials, profiling] =
      TrialBook::State(s.trials);
  auto [rounds, round_ends_at, planned, replanned] = RoundClock::State(s.round);
  auto [accused, seconded] = Accusations::State(s.accusations);
  auto [avoided] = Avoidance::State(s.avoidance);
  auto [apps, present, presence, presence_at] = AppTable::State(s.apps);
  auto [pairs_tried, moves_tried, moving, attempts, lessons, trial_debt,
        trial_debt_at] = IntrospectionBook::State(s.introspection);
  auto& [problem, problem_version, problem_guesses, groups, solve_epoch,
         problem_seq, solving, solved_placement, solved_at, solve_retry_at] =
      s.solving;
  auto& [policy, drains] = s.operated;
  const auto before =
      std::tie(jobs, names, ended, s.cluster, agents, quarantined, tried,
               holders, assigned, time_received, s.throughputs, result);
  const auto after = std::tie(
      prices, term, seq, next_job, rounds, round_duration, lease_duration,
      mechanism, queue, memory_rounds, round_ends_at, planned, booked_at,
      persisted, halted, fill_due, unsolved, unsolved_seq, throughputs_moved,
      solve_epoch, solving, solved_placement, solved_at, solve_retry_at,
      term_seq, next_sweep, term_began_at, tried_pairs, contexts, has_budgets,
      memory_due, accused, replanned, isolated_clock, counted_at, changed,
      all_changed, s.speeds, profiling, leases_until, trials, planned_trials,
      failure_rate, term_starts, s.launches, policy, drains, numbers_from,
      lost_leases_until, seconded, avoided, isolated_version, ended_ahead,
      wall_offset, silent, apps, present, presence, presence_at, pairs_tried,
      moves_tried, moving, attempts, lessons, trial_debt, trial_debt_at);
  return std::tuple_cat(before, std::tuple(RowsAgain{&result.allocation}),
                        after);
}

// Derives the state that snapshots lack. The state that was read may be
// damaged.
static absl::Status Rebuild(State& s, const std::vector<JobId>& live) {
  s.changes.Rebuild();
  s.agents.Rebuild();
  GAVEL_RETURN_IF_ERROR(s.jobs.Rebuild(live));
  s.apps.Rebuild(s.jobs);
  s.allocation.Rebuild();
  s.introspection.Rebuild();
  RebuildTimes(s);
  RebuildDependencies(s);
  RebuildArrays(s);
  for (const auto& [id, job] : s.jobs.live()) {
    for (Worker& worker : job->workers) {
      // Older snapshots have one progress for both.
      if (worker.known.at == 0) {
        worker.Know(worker.progress_at, worker.progress);
      }
    }
    BarTypes(s, *job);
    BarServers(s, *job);
  }
  return absl::OkStatus();
}

}  // namespace gavel::engine

namespace gavel {

absl::StatusOr<std::string> Engine::Snapshot() const {
  if (!state_->outbox.empty()) {
    return absl::FailedPreconditionError(
        "the engine has actions that are not yet done; take the snapshot when "
        "everything journaled is on disk");
  }
  Packer packer(kJournalLimits);
  packer.Array(3);
  PutField(packer, state_->jobs.LiveIds());
  const auto state = engine::FieldsOf(*state_);
  packer.Array(std::tuple_size_v<decltype(state)>);
  std::apply([&](const auto&... field) { (PutField(packer, field), ...); },
             state);
  PutField(packer, state_->terms.settings());
  GAVEL_RETURN_IF_ERROR(packer.status());
  return packer.Take();
}

absl::Status Engine::Restore(std::string_view snapshot) {
  Unpacker unpacker(snapshot, kJournalLimits);
  std::vector<JobId> live;
  GetField(unpacker, live);
  unpacker.Enter();
  std::apply([&](auto&&... field) { (GetField(unpacker, field), ...); },
             engine::FieldsOf(*state_));
  unpacker.Leave();
  if (unpacker.ok()) state_->cluster.CountUsable();
  const uint64_t version = state_->throughputs.version();
  event::Settings settings;
  GetField(unpacker, settings);
  GAVEL_RETURN_IF_ERROR(engine::Rebuild(*state_, live));
  if (!unpacker.ok()) {
    return absl::DataLossError(StrCat("the snapshot is damaged: ",
                                      ToStd(unpacker.status().message())));
  }
  if (settings.told) state_->terms.TakeSettings(settings);
  engine::FindTableRows(*state_);
  // Looking up table rows and barred types again has raised the version, but no
  // throughput has changed.
  std::get<4>(ThroughputMatrix::State(state_->throughputs)) = version;
  const bool all = state_->changes.all(engine::Changes::kIsolated);
  state_->assigned.Recount();
  state_->changes.SetAll(engine::Changes::kIsolated, all);
  if (unpacker.passed_over()) {
    return absl::FailedPreconditionError(
        "the snapshot has fields that this version of gavel does not know; use "
        "the version that wrote it, or a newer one");
  }
  return absl::OkStatus();
}

}  // namespace gavel
