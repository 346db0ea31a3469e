// The fields of the engine's structs, in the order in which they are written to
// the journal (event.cc) and to snapshots (engine.cc). New fields are only
// appended. tests/engine/journal_fields_test.cc fails if a member of a struct
// is not listed, or if the bytes of a row change. Only these two files and
// tests include this header.
#ifndef GAVEL_COORDINATOR_ENGINE_FIELDS_H_
#define GAVEL_COORDINATOR_ENGINE_FIELDS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/apps.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/introspection.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/reason.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/policy/policy.h"
#include "core/ids.h"
#include "core/message_fields.h"
#include "core/packer.h"

namespace gavel {

// An allocation as it is written to the journal at every solve, and to
// snapshots. Units with equal shares have one row, and consecutive jobs with
// equal shares have one entry. So 10,000 jobs of a few kinds take some tens of
// kilobytes, and 10,000 equal jobs a few bytes. Pure, thread-safe.

struct AllocationRows {
  uint64_t columns = 0;
  // The form that older coordinators wrote: `shares` is then [units x columns].
  // Empty if `alone` or `pairs` is used.
  std::vector<ShareUnit> units;
  // [rows x columns]: each distinct row once, in the order of the units.
  std::vector<double> shares;
  // Three numbers for each entry, in ascending order of jobs: the distance of
  // its first job from the last job of the previous entry, the number of
  // consecutive jobs, and their row.
  std::vector<uint64_t> alone;
  // Three numbers for each pair: both jobs, and their row.
  std::vector<uint64_t> pairs;
};

auto Fields(As<AllocationRows> auto& r) {
  return std::tie(r.columns, r.units, r.shares, r.alone, r.pairs);
}

// Allocations with the same shares give the same rows, bit for bit, however
// they store the shares.
AllocationRows ToAllocationRows(const Allocation& allocation);

// Whether these are valid jobs, or pairs of jobs, in ascending order.
bool AreUnits(const std::vector<ShareUnit>& units);

// The allocation that `alone` and `pairs` describe; nullopt if they contradict
// each other, or name more units than kAllocationUnitsMax.
inline constexpr uint64_t kAllocationUnitsMax = uint64_t{1} << 22;
std::optional<Allocation> FromAllocationRows(const AllocationRows& rows);

constexpr SolveOutcome LastOf(SolveOutcome) { return SolveOutcome::kFailed; }
constexpr MechanismKind LastOf(MechanismKind) {
  return MechanismKind::kMoveAware;
}
constexpr QueueKind LastOf(QueueKind) { return QueueKind::kPerType; }
constexpr TypeWorth LastOf(TypeWorth) { return TypeWorth::kThroughputPerCost; }
constexpr JobState LastOf(JobState) { return JobState::kHeld; }
constexpr ProcessState LastOf(ProcessState) { return ProcessState::kDone; }
constexpr AcceleratorState LastOf(AcceleratorState) {
  return AcceleratorState::kLost;
}

// A class is written as its value, except kInteractive. Earlier versions wrote
// the values of kInteractive and kInference for classes that they scheduled as
// kTraining, so such a job is read as kTraining.
inline constexpr uint64_t kInteractiveNumber = 4;

inline void PutField(Packer& packer, JobClass job_class) {
  packer.Put(job_class == JobClass::kInteractive
                 ? kInteractiveNumber
                 : static_cast<uint64_t>(job_class));
}

inline void GetField(Unpacker& unpacker, JobClass& out) {
  auto number = static_cast<uint64_t>(JobClass::kTraining);
  unpacker.Get(number);
  if (number > kInteractiveNumber) {
    return unpacker.Fail("is a class that this version does not know");
  }
  out = number == kInteractiveNumber ? JobClass::kInteractive
        : number == static_cast<uint64_t>(JobClass::kOpaque)
            ? JobClass::kOpaque
            : JobClass::kTraining;
}

auto Fields(As<ShareUnit> auto& u) { return std::tie(u.job, u.partner); }

auto Fields(As<JobSpec> auto& s) {
  return std::tie(s.name, s.argv, s.working_directory, s.checkpoint_directory,
                  s.environment, s.app, s.entity, s.job_class, s.scale_factor,
                  s.scale_factor_min, s.scale_factor_max, s.weight,
                  s.steps_total, s.deadline_s, s.budget, s.throughputs,
                  s.retries_max, s.pause_s, s.resume_s, s.move_s, s.owner,
                  s.unix_user, s.hang_timeout_s, s.start_timeout_s,
                  s.pause_grace_s, s.owner_weight, s.types, s.leased_visibility,
                  s.time_limit_s, s.workload, s.servers, s.exclude_servers,
                  s.not_before_s, s.env_file, s.after_success, s.after_any,
                  s.array, s.sweep, s.at_once, s.idle_limit_s, s.notify,
                  s.after_by_index);
}

// ---- settings

namespace event {

auto Fields(As<Settings> auto& s) {
  return std::tie(s.told, s.reset_interval_s, s.packing, s.pair_trials,
                  s.placement_sensitive, s.keep_absence_s_max,
                  s.park_absence_s_max, s.plan_lead_s, s.resize_rounds,
                  s.entities, s.throughputs, s.reference_models,
                  s.profiling_percentage, s.solve_gap_s_per_job, s.progress,
                  s.user_shares, s.app_shares, s.introspection,
                  s.trial_backoff_s, s.interactive_max);
}

}  // namespace event

auto Fields(As<PolicyEntity> auto& e) {
  return std::tie(e.name, e.weight, e.policy);
}

auto Fields(As<ThroughputTable::Figures> auto& f) {
  return std::tie(f.types, f.names, f.alone, f.partners, f.has_unconsolidated,
                  f.alone_at);
}

using SharedTable = std::shared_ptr<const ThroughputTable>;

inline void PutField(Packer& packer, const SharedTable& table) {
  std::optional<ThroughputTable::Figures> figures;
  if (table != nullptr) figures = table->ToFigures();
  PutField(packer, figures);
}

inline void GetField(Unpacker& unpacker, SharedTable& out) {
  std::optional<ThroughputTable::Figures> figures;
  GetField(unpacker, figures);
  out = nullptr;
  if (!figures.has_value() || !unpacker.ok()) return;
  auto table = ThroughputTable::FromFigures(*std::move(figures));
  if (!table.ok()) return unpacker.Fail(std::string(table.status().message()));
  out = std::make_shared<const ThroughputTable>(*std::move(table));
}

// ---- results of policies

inline void PutField(Packer& packer, const Allocation& allocation) {
  PutField(packer, ToAllocationRows(allocation));
}

inline void GetField(Unpacker& unpacker, Allocation& out) {
  AllocationRows rows;
  GetField(unpacker, rows);
  if (!rows.alone.empty() || !rows.pairs.empty()) {
    std::optional<Allocation> allocation = FromAllocationRows(rows);
    if (!allocation.has_value()) {
      return unpacker.Fail("is an allocation that names what is not there");
    }
    out = *std::move(allocation);
    return;
  }
  // Divided, not multiplied: columns of a damaged row may be any number.
  const bool match =
      rows.units.empty()
          ? rows.shares.empty()
          : rows.shares.size() % rows.units.size() == 0 &&
                rows.shares.size() / rows.units.size() == rows.columns;
  if (!match) {
    return unpacker.Fail(
        "is an allocation whose shares do not match its units");
  }
  if (rows.columns == 0) return;
  if (!AreUnits(rows.units)) {
    return unpacker.Fail("is an allocation whose units are not in order");
  }
  out = Allocation::FromRows(std::move(rows.units), rows.columns,
                             std::move(rows.shares));
}

// Older snapshots repeat the rows of units with a share after the allocation.
// This keeps their place, and is written empty.
struct RowsAgain {
  const Allocation* allocation;
};

inline void PutField(Packer& packer, const RowsAgain&) { packer.Array(0); }

inline void GetField(Unpacker& unpacker, const RowsAgain&) {
  std::vector<std::pair<ShareUnit, std::vector<double>>> again;
  GetField(unpacker, again);
}

// ByAccelerator is written as a list of pairs.
template <class T>
void PutField(Packer& packer, const ByAccelerator<T>& values) {
  PutField(packer, values.ToEntries());
}

template <class T>
void GetField(Unpacker& unpacker, ByAccelerator<T>& out) {
  typename ByAccelerator<T>::Entries entries;
  GetField(unpacker, entries);
  if (!out.TakeEntries(std::move(entries))) {
    unpacker.Fail("names an accelerator that can't be");
  }
}

auto Fields(As<TypeAssignment> auto& a) {
  return std::tie(a.unit, a.type, a.host, a.workers);
}

auto Fields(As<AppBid> auto& b) {
  return std::tie(b.app, b.rho, b.offered, b.bid, b.type, b.kept, b.given,
                  b.own);
}

auto Fields(As<PolicyResult> auto& r) {
  return std::tie(r.outcome, r.detail, r.is_assignment, r.allocation,
                  r.assignment, r.left_out, r.objective, r.bound, r.gap,
                  r.solver, r.each_round, r.too_extreme, r.worth, r.bids);
}

// ---- jobs, servers and accelerators

auto Fields(As<ReasonRow> auto& r) {
  return std::tie(r.code, r.text, r.first, r.second, r.detail);
}

inline void PutField(Packer& packer, const Reason& reason) {
  PutField(packer, ToReasonRow(reason));
}

inline void GetField(Unpacker& unpacker, Reason& out) {
  ReasonRow row;
  GetField(unpacker, row);
  std::optional<Reason> reason = FromReasonRow(row);
  if (!reason) {
    return unpacker.Fail("is a choice that this version does not know");
  }
  out = *std::move(reason);
}

auto Fields(As<Resize> auto& r) {
  return std::tie(r.job, r.scale_factor, r.reason);
}

auto Fields(As<OwnAnswer> auto& a) { return std::tie(a.app, a.bid, a.places); }

constexpr TrialKind LastOf(TrialKind) { return TrialKind::kDefragment; }
constexpr TrialStage LastOf(TrialStage) { return TrialStage::kOver; }

auto Fields(As<TrialNote> auto& t) {
  return std::tie(t.kind, t.stage, t.job, t.other, t.value, t.cost_s, t.places);
}

auto Fields(As<ProfiledCell> auto& c) {
  return std::tie(c.type, c.beside, c.value);
}

auto Fields(As<Worker::Known> auto& k) {
  return std::tie(k.steps_done, k.at, k.pauses, k.pausing_s);
}

auto Fields(As<Worker> auto& w) {
  return std::tie(
      w.incarnation, w.process, w.server, w.held_epoch, w.held, w.held_with,
      w.leased_at, w.accrued_at, w.finished, w.leaving, w.progress,
      w.progress_at, w.lease_expires, w.pause_sent_at, w.stop_sent_at,
      w.launch_sent_at, w.launch_repeated_at, w.asked_at, w.lease_seq,
      w.reported_at, w.last_nonce, w.restarting, w.pause_tier, w.parked_at,
      w.kept_on, w.need_bytes, w.contexts, w.out_of_memory, w.world_size,
      w.unswept, w.stepped_at, w.hung_s, w.profiles, w.spoke, w.known,
      w.left_on, w.sees_only, w.finished_code, w.launched_on);
}

auto Fields(As<Parent> auto& p) {
  return std::tie(p.job, p.must_finish, p.any_end, p.failed, p.by_index);
}

auto Fields(As<Job::Pace> auto& p) {
  return std::tie(p.steps_per_s, p.isolated_per_clock, p.at, p.clock, p.epoch);
}

auto Fields(As<Job> auto& j) {
  return std::tie(j.id, j.spec, j.state, j.reason, j.submitted_at, j.ended_at,
                  j.epoch, j.workers, j.assigned, j.partner, j.planned,
                  j.planned_partner, j.failures_in_a_row, j.restored,
                  j.target_share, j.target_s, j.received_s, j.counted_since,
                  j.isolated_s, j.isolated_steps, j.table_row, j.failed_starts,
                  j.failure_counted, j.gang_address, j.gang_epoch,
                  j.pair_trials, j.scale_factor, j.world_size, j.resized_at,
                  j.resize_reason, j.resizing_since, j.resize_s, j.left_out,
                  j.checkpoint_epochs, j.forgone, j.target_booked_at, j.pace,
                  j.row_speed, j.profile, j.last_error, j.hung_launches,
                  j.stays, j.claimed, j.planned_claim, j.left_unasked,
                  j.last_end, j.submitted_wall_s, j.ended_wall_s, j.presence,
                  j.limited_from_s, j.losses, j.parents, j.array, j.array_index,
                  j.array_at_once, j.unqueued, j.queued_at, j.array_failed);
}

auto Fields(As<Agent> auto& a) {
  return std::tie(a.incarnation, a.reachable, a.heard_at, a.host_memory_bytes,
                  a.state_id, a.own_checkpoints, a.stream_endpoint,
                  a.stream_public_key, a.swept_at, a.left);
}

auto Fields(As<DecidingPolicy> auto& p) {
  return std::tie(p.name, p.instead_of, p.packing, p.progress, p.introspection);
}

auto Fields(As<Accelerator> auto& a) {
  return std::tie(a.id, a.server, a.index, a.info, a.state, a.drained,
                  a.leaving, a.forgotten, a.drained_for, a.errors_known,
                  a.drained_alone, a.reserved, a.rack);
}

namespace engine {

auto Fields(As<IntrospectionBook::Pair> auto& p) {
  return std::tie(p.began_at, p.kept, p.cost_s, p.first);
}
auto Fields(As<IntrospectionBook::Move> auto& m) {
  return std::tie(m.kind, m.other, m.began_at, m.before_steps_per_s, m.cost_s);
}
auto Fields(As<IntrospectionBook::Attempt> auto& a) {
  return std::tie(a.next_at, a.failures, a.last);
}
auto Fields(As<IntrospectionBook::Lesson> auto& l) {
  return std::tie(l.sum, l.at);
}

auto Fields(As<App> auto& a) {
  return std::tie(a.began_at, a.presence, a.jobs, a.ended_longest_s,
                  a.ended_area_s, a.goal, a.idle_since);
}

}  // namespace engine

auto Fields(As<Cluster> auto& c) { return Cluster::State(c); }
auto Fields(As<TimeReceived::Seconds> auto& s) {
  return std::tie(s.since_reset, s.owed, s.received);
}
// Two fields are no longer used and only keep their places.
inline void PutField(Packer& packer, const TimeReceived& time) {
  const auto [seconds, pairs] = TimeReceived::State(time);
  packer.Array(4);
  PutField(packer, seconds);
  PutField(packer, std::map<JobId, double>());
  PutField(packer, pairs);
  PutField(packer, double{0});
}
inline void GetField(Unpacker& unpacker, TimeReceived& time) {
  const auto [seconds, pairs] = TimeReceived::State(time);
  std::map<JobId, double> unread;
  double also_unread = 0;
  unpacker.Enter();
  GetField(unpacker, seconds);
  GetField(unpacker, unread);
  GetField(unpacker, pairs);
  GetField(unpacker, also_unread);
  unpacker.Leave();
}
auto Fields(As<ThroughputMatrix> auto& t) { return ThroughputMatrix::State(t); }
auto Fields(As<AcceleratorSpeeds> auto& s) {
  return AcceleratorSpeeds::State(s);
}
auto Fields(As<Stays> auto& s) { return Stays::State(s); }
auto Fields(As<LossHistory> auto& h) { return LossHistory::State(h); }
auto Fields(As<FailureRate> auto& r) { return FailureRate::State(r); }
auto Fields(As<LaunchPace> auto& p) { return LaunchPace::State(p); }
auto Fields(As<AcceleratorSpeeds::Rate> auto& r) {
  return std::tie(r.steps_per_s, r.weight_s);
}
auto Fields(As<ThroughputMatrix::Figure> auto& f) {
  return std::tie(f.given, f.measured, f.announced, f.measured_weight_s,
                  f.out_of_memory, f.seen_s, f.usual, f.measured_at);
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_FIELDS_H_
