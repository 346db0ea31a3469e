// The whole engine as bytes, and back.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/engine_fields.h"
#include "coordinator/engine/operator_rules.h"
#include "core/packer.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {

// Everything but what it was made with (options) and what is on its way out.
template <class E>
auto Engine::State(E& e) {
  const auto before =
      std::tie(e.jobs_, e.names_, e.ended_, e.cluster_, e.agents_,
               e.quarantined_, e.tried_, e.holders_, e.assigned_to_,
               e.time_received_, e.throughputs_, e.result_);
  const auto after = std::tie(
      e.prices_, e.term_, e.seq_, e.next_job_, e.rounds_, e.round_duration_s_,
      e.lease_duration_s_, e.mechanism_, e.queue_, e.memory_rounds_,
      e.round_ends_at_, e.planned_, e.booked_at_, e.persisted_, e.halted_,
      e.fill_due_, e.unsolved_, e.unsolved_seq_, e.throughputs_moved_,
      e.solve_epoch_, e.solving_, e.solved_placement_, e.solved_at_,
      e.solve_retry_at_, e.term_seq_, e.next_sweep_, e.term_began_at_,
      e.tried_pairs_, e.contexts_, e.has_budgets_, e.memory_due_, e.accused_,
      e.replanned_, e.isolated_clock_, e.counted_at_,
      e.changes_[kIsolated].jobs, e.changes_[kIsolated].all, e.speeds_,
      e.profiling_s_, e.leases_until_, e.trials_, e.planned_trials_,
      e.failure_rate_, e.term_starts_, e.launches_, e.operated_.policy,
      e.operated_.drains, e.numbers_from_, e.lost_leases_until_);
  return std::tuple_cat(before, std::tuple(RowsAgain{&e.result_.allocation}),
                        after);
}

absl::StatusOr<std::string> Engine::Snapshot() const {
  if (!actions_.empty() || !unpersisted_.empty()) {
    return absl::FailedPreconditionError(
        "the engine has actions that are not yet done; take the snapshot when "
        "everything journaled is on disk");
  }
  Packer packer(kJournalLimits);
  std::vector<JobId> live;
  for (const auto& [id, job] : live_) live.push_back(id);
  packer.Array(3);
  PutField(packer, live);
  const auto state = State(*this);
  packer.Array(std::tuple_size_v<decltype(state)>);
  std::apply([&](const auto&... field) { (PutField(packer, field), ...); },
             state);
  PutField(packer, SettingsNow());
  GAVEL_RETURN_IF_ERROR(packer.status());
  return packer.Take();
}

absl::Status Engine::Restore(std::string_view snapshot) {
  Unpacker unpacker(snapshot, kJournalLimits);
  std::vector<JobId> live;
  GetField(unpacker, live);
  unpacker.Enter();
  std::apply([&](auto&&... field) { (GetField(unpacker, field), ...); },
             State(*this));
  unpacker.Leave();
  if (unpacker.ok()) cluster_.CountUsable();
  changes_[kPlan].all = changes_[kProblem].all = changes_[kFill].all = true;
  for (const auto& [name, agent] : agents_) {
    own_checkpoints_ |= agent.own_checkpoints;
  }
  if (result_.is_assignment) {
    // Older ones have them as they came.
    std::ranges::sort(result_.assignment, {}, &TypeAssignment::unit);
  }
  event::Settings settings;
  GetField(unpacker, settings);
  live_.clear();
  by_id_.clear();
  names_.clear();  // older ones have them by job alone
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    by_id_[job->first] = job;
    if (HasName(job->second)) names_[NameOf(job->second.spec)] = job->first;
  }
  NoteChosen(result_.assignment);
  waiting_.clear();
  active_jobs_ = 0;
  for (const JobId id : live) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
      return absl::DataLossError(StrCat("the snapshot lists job ", id.value(),
                                        " and does not hold it"));
    }
    live_[id] = &found->second;
    found->second.live = true;
    over_.push_back(id);
    uncounted_.push_back(id);
    active_jobs_ += found->second.active() ? 1 : 0;
    NoteWaiting(found->second);
    for (Worker& worker : found->second.workers) {
      // Older snapshots have one progress for all.
      if (worker.known.at == 0)
        worker.Know(worker.progress_at, worker.progress);
    }
    elastic_ |= found->second.spec.elastic();
    BarTypes(found->second);
  }
  if (unpacker.ok()) {
    settings.told ? Apply(settings) : FindTableRows();
  }
  if (unpacker.ok()) {
    const bool all = changes_[kIsolated].all;
    CountAssigned();
    changes_[kIsolated].all = all;
  }
  if (unpacker.ok() && unpacker.passed_over()) {
    return absl::FailedPreconditionError(
        "the snapshot has fields that this version of gavel does not know; use "
        "the version that wrote it, or a newer one");
  }
  if (unpacker.ok()) return absl::OkStatus();
  return absl::DataLossError(
      StrCat("the snapshot is damaged: ", ToStd(unpacker.status().message())));
}

}  // namespace gavel
