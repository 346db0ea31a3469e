// Rounds: from the allocation to who has which accelerators (Gavel section 5),
// and what a job is told about its place.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/operator_rules.h"
#include "coordinator/engine/type_worth.h"
#include "coordinator/engine/waiting_line.h"
#include "coordinator/engine/worker_limits.h"
#include "core/text.h"

namespace gavel {

Time Engine::LeaseHorizon(const Job& job) const {
  const bool continues = planned_ && !PlannedFor(job).empty() && GoesOn(job);
  return continues ? round_ends_at_ + round_duration_s_ : round_ends_at_;
}

// What was received and what was meant, up to now: before either changes. Under
// an assignment nobody compares what jobs have received, and each is booked by
// itself, when it changes.
void Engine::BookAll(Time now) {
  if (now == booked_at_ || result_.is_assignment) return;
  TimeReceived::Booking received(time_received_);
  for (auto& [id, job] : live_) {
    if (!job->active()) continue;
    for (Worker& worker : job->workers) Book(now, *job, worker, received);
    BookTarget(now, *job);
  }
  const double elapsed = std::max(0.0, now - booked_at_);
  booked_at_ = now;
  if (elapsed == 0) return;
  TimeReceived::Booking owed(time_received_);
  auto live = live_.begin();
  const Allocation& allocation = result_.allocation;
  for (size_t u = 0; u < allocation.units().size(); ++u) {
    const ShareUnit& unit = allocation.units()[u];
    const std::span<const double> row = allocation.RowAt(u);
    if (!IsShare(row)) continue;
    while (live != live_.end() && live->first < unit.job) ++live;
    if (live == live_.end()) return;
    if (live->first != unit.job || !MayRun(*live->second)) continue;
    if (unit.packed() && !MayRun(unit)) continue;
    for (size_t type = 0; type < row.size(); ++type) {
      if (row[type] > 0) owed.Owe(unit, type, row[type] * elapsed);
    }
  }
}

void Engine::BookJob(Time now, Job& job) {
  TimeReceived::Booking booking(time_received_);
  for (Worker& worker : job.workers) Book(now, job, worker, booking);
}

double Engine::TargetSince(const Job& job, Time now) const {
  const Time since =
      std::max({booked_at_, job.target_booked_at, job.counted_since});
  return job.target_share * std::max(0.0, now - since);
}

void Engine::BookTarget(Time now, Job& job) {
  if (job.counted_since == kNever || !job.active()) return;
  job.target_s += TargetSince(job, now);
  job.target_booked_at = now;
}

double Engine::SecondsReceived(const Job& job, Time now) const {
  double received = job.received_s;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    received += std::max(0.0, now - worker.accrued_at) / worker.world_size;
  }
  return received;
}

JobShares Engine::SharesOf(JobId id, Time now) const {
  const Job& job = *Find(id);
  const Time until = job.active() ? now : job.ended_at;
  const double elapsed = until - job.counted_since;
  if (!(elapsed > 0)) return {};
  double target = job.target_s;
  double received = job.received_s;
  if (job.active()) {
    target += TargetSince(job, now);
    received = SecondsReceived(job, now);
  }
  return {std::min(1.0, target / elapsed), std::min(1.0, received / elapsed)};
}

event::Received Engine::ReceivedOf(JobId id, Time now) const {
  const Job& job = jobs_.at(id);
  RoundUnit row;
  MakeUnit({id, JobId()}, job, now, row);
  event::Received received{SecondsReceived(job, now), {}};
  for (size_t type = 0; type < row.time_received_s.size(); ++type) {
    received.types.push_back({cluster_.types()[type], row.time_received_s[type],
                              row.deficit_s[type]});
  }
  return received;
}

// One whose loops are over only has to exit: its accelerators are free.
bool Engine::MayRun(const Job& job) const {
  return job.active() && !IsStranded(job) &&
         std::ranges::any_of(job.gang(), [](const Worker& worker) {
           return !worker.finished && worker.process != ProcessState::kDone;
         });
}

bool Engine::MayRun(const ShareUnit& unit) const {
  const auto may_run = [&](JobId id) {
    const Job* job = FindLive(id);
    return job != nullptr && MayRun(*job);
  };
  return may_run(unit.job) && (!unit.packed() || may_run(unit.partner));
}

// The units that may run, as of `at`.
RoundTable Engine::RoundUnits(Time at, bool with_trials) const {
  RoundTable units(cluster_.types().size());
  units.Reserve(live_.size());
  RoundUnit row;
  for (const auto& [id, job] : live_)
    AddUnits(*job, at, with_trials, row, units);
  const auto add_pair = [&](const ShareUnit& unit) {
    if (!unit.packed() || !MayRun(unit)) return;
    MakeUnit(unit, *live_.at(unit.job), at, row);
    units.Add(row);
  };
  for (const TypeAssignment& entry : result_.assignment) add_pair(entry.unit);
  const std::span<const ShareUnit> allocated = result_.allocation.units();
  for (size_t u = 0; u < allocated.size(); ++u) {
    if (allocated[u].packed() && IsShare(result_.allocation.RowAt(u))) {
      add_pair(allocated[u]);
    }
  }
  if (with_trials && !result_.is_assignment) {
    const std::vector<int> left = AddTrials(units);
    if (options_.packing && options_.pair_trials) {
      AddPairTrials(units, at, left);
    }
  }
  return units;
}

// The job alone, and the pair that it runs in where that has no share. No `at`:
// only what tells where they go.
void Engine::AddUnits(const Job& job, std::optional<Time> at, bool with_trials,
                      RoundUnit& row, RoundTable& units) const {
  if (!MayRun(job) || (job.assigned.empty() && !IsAllocated(job))) return;
  const auto make = [&](const ShareUnit& unit) {
    at.has_value() ? MakeUnit(unit, job, *at, row) : MakePlace(unit, job, row);
  };
  make({job.id, JobId()});
  // Who is not to be disturbed keeps the size that it runs with.
  if (!with_trials && !job.assigned.empty()) {
    row.scale_factor = static_cast<int>(job.assigned.size());
  }
  units.Add(row);
  const ShareUnit running = UnitOf(job);
  if (running.packed() && running.job == job.id && !HasShare(running)) {
    make(running);
    units.Add(row);
  }
}

// Between two allocations that are far apart, a job that came since takes what
// is left over.
bool Engine::IsAllocated(const Job& job) const {
  if (result_.is_assignment) return job.target_share > 0;
  return options_.reset_interval_s > 0 || result_.allocation.Contains(job.id);
}

// Its row of the allocation; empty: it has no share.
std::span<const double> Engine::Allocated(const ShareUnit& unit) const {
  const std::optional<size_t> position = result_.allocation.Find(unit);
  if (!position.has_value()) return {};
  const std::span<const double> row = result_.allocation.RowAt(*position);
  return IsShare(row) ? row : std::span<const double>();
}

// The type that an assignment gives it; kNoIndex: none.
uint32_t Engine::Chosen(const Job& job) const {
  return job.chosen < cluster_.types().size() ? job.chosen : kNoIndex;
}

uint32_t Engine::Chosen(const ShareUnit& unit) const {
  if (!unit.packed()) {
    const Job* job = Find(unit.job);
    return job == nullptr ? kNoIndex : Chosen(*job);
  }
  const auto found =
      std::lower_bound(result_.assignment.begin(), result_.assignment.end(),
                       unit, [](const TypeAssignment& a, const ShareUnit& key) {
                         return a.unit < key;
                       });
  return found != result_.assignment.end() && found->unit == unit &&
                 found->type < cluster_.types().size()
             ? static_cast<uint32_t>(found->type)
             : kNoIndex;
}

void Engine::NoteChosen(std::span<const TypeAssignment> entries) {
  for (const TypeAssignment& entry : entries) {
    Job* job = entry.unit.packed() ? nullptr : Find(entry.unit.job);
    if (job != nullptr) job->chosen = static_cast<uint32_t>(entry.type);
  }
}

bool Engine::HasShare(const ShareUnit& unit) const {
  return !Allocated(unit).empty() || Chosen(unit) != kNoIndex;
}

const std::vector<bool>& Engine::UsableTypes(const Job& job) const {
  const std::vector<std::string>& types = cluster_.types();
  if (job.usable_version == throughputs_.version() &&
      job.usable.size() == types.size()) {
    return job.usable;
  }
  job.usable.clear();
  job.steps_per_s.clear();
  job.guessed = false;
  for (const std::string& type : types) {
    const Throughput throughput = throughputs_.Get(job.id, type);
    job.usable.push_back(throughput.steps_per_s > 0);
    job.steps_per_s.push_back(throughput.steps_per_s);
    job.guessed |= throughput.source == ThroughputSource::kGuessed;
  }
  job.usable_version = throughputs_.version();
  return job.usable;
}

// What tells where it goes, into a row that may have been another unit's.
void Engine::MakePlace(const ShareUnit& unit, const Job& job,
                       RoundUnit& row) const {
  row.unit = unit;
  row.scale_factor = job.scale_factor;
  row.holds.clear();
  row.home_server.clear();
  row.claimed = job.claimed < 0 ? kNoIndex : static_cast<uint32_t>(job.claimed);
  if (job.workers.front().process == ProcessState::kJoined) {
    row.home_server = job.workers.front().server;
  }
  if (UnitOf(job) == unit) row.holds = job.assigned;
}

// And what tells whose turn it is.
void Engine::MakeUnit(const ShareUnit& unit, const Job& job, Time at,
                      RoundUnit& row) const {
  MakePlace(unit, job, row);
  const size_t types = cluster_.types().size();
  const std::span<const double> allocated = Allocated(unit);
  row.share.assign(allocated.begin(), allocated.end());
  row.share.resize(types, 0);
  const uint32_t chosen = unit.packed() ? Chosen(unit) : Chosen(job);
  if (chosen != kNoIndex) row.share[chosen] = 1;
  time_received_.Rows(unit, types, row.time_received_s, row.deficit_s);
  if (unit.packed()) {
    row.usable.clear();
    for (const double share : row.share) row.usable.push_back(share > 0);
  } else {
    row.usable = UsableTypes(job);
  }
  row.worth.clear();
  if (!result_.is_assignment) {
    AddWorth(result_.worth, {throughputs_, cluster_.types(), prices_}, unit,
             job, row);
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
    if (result_.is_assignment) continue;  // see Book
    row.deficit_s[booked] -= seconds;
  }
}

void Engine::StartRounds(Time now) {
  if (round_ends_at_ != kNever) return;
  round_ends_at_ = now + round_duration_s_;
  planned_ = false;
  ++rounds_;
}

// No accelerator is left idle while a job waits: in the middle of a round the
// ones that are free go to whoever is next; nobody is interrupted.
void Engine::Fill(Time now) {
  fill_due_ = false;
  if (round_ends_at_ == kNever) return;
  ResizeJobs(now, now, /*keep_running=*/true);
  event::UnitsAssigned fill;
  RoundPlan plan;
  if (const std::vector<bool> types = FillableTypes(); !types.empty()) {
    plan = PlanAll(now, /*keep_running=*/true, types);
    if (plan.jobs.has_value()) filled_.Note(types);
  }
  for (auto& [unit, places] : plan.places.Release()) {
    const Job& job = *Find(unit.job);
    if (!job.assigned.empty()) continue;
    if (unit.packed() && !jobs_.at(unit.partner).assigned.empty()) continue;
    // Not what another job is still assigned to (it is not to be disturbed).
    const bool free = std::ranges::all_of(
        places, [&](AcceleratorId a) { return assigned_[a.value() - 1] == 0; });
    if (free) fill.places.emplace_back(unit, std::move(places));
  }
  fill.claims = plan.places.ReleaseClaims();
  std::erase_if(fill.claims, [&](const RoundAssignment::Claim& claim) {
    return !jobs_.at(claim.first).assigned.empty();
  });
  if (!fill.places.empty()) Record(now, std::move(fill));
  if (planned_) PlanRoundAhead(now);
}

// By type: somebody waits, and may go there, for enough of it is nobody's.
// Empty: all of it is false.
std::vector<bool> Engine::FillableTypes() {
  const uint64_t version = throughputs_.version();
  if (changes_[kFill].all || idle_.version != version) idle_.types.Forget();
  idle_.version = version;
  const std::vector<JobId> changed = TakeChanges(kFill);
  const bool whole = PlansWhole();
  std::vector<bool> open(free_.size());  // nobody has been found yet
  for (size_t type = 0; type < open.size(); ++type) {
    open[type] = free_[type] > 0 && (whole || !filled_.Has(type));
  }
  std::vector<bool> found(free_.size(), false);
  const auto look = [&](const Job& job) {
    if (!job.assigned.empty() || !IsAllocated(job)) return;
    const uint32_t chosen = Chosen(job);
    for (size_t type = 0; type < open.size(); ++type) {
      if (!open[type] || free_[type] < job.scale_factor) continue;
      if (chosen == kNoIndex ? !UsableTypes(job)[type] : type != chosen) {
        continue;
      }
      if (!MayRun(job)) break;
      found[type] = true;
      open[type] = false;
    }
  };
  for (const JobId id : changed) {
    if (const Job* job = FindLive(id)) look(*job);
  }
  for (size_t type = 0; type < open.size(); ++type) {
    if (idle_.types.Has(type)) open[type] = false;
  }
  // There may be a million who wait.
  for (const auto& [id, job] : waiting_) {
    if (std::ranges::find(open, true) == open.end()) break;
    look(*job);
  }
  idle_.types.Note(open);
  if (std::ranges::find(found, true) == found.end()) found.clear();
  return found;
}

void Engine::On(Time now, const event::UnitsAssigned& e) {
  for (const auto& [unit, places] : e.places) {
    jobs_.at(unit.job).claimed = -1;
    Assign(now, jobs_.at(unit.job), places, unit.partner);
    if (unit.packed()) Assign(now, jobs_.at(unit.partner), places, unit.job);
  }
  for (const auto& [id, type] : e.claims) {
    if (Job* job = FindLive(id)) job->claimed = type;
  }
}

Reason Engine::Why(JobId id, Time now) const {
  Reason reason = WhyUnranked(id, now);
  if (reason.code == ReasonCode::kPriority) {
    WaitingLine(LineRows(now), cluster_.types(), round_duration_s_)
        .Tell(id, &reason);
  }
  return reason;
}

Reason Engine::WhyUnranked(JobId id, Time now) const {
  const Job& job = jobs_.at(id);
  if (!job.active()) return job.reason;
  if (job.assigned.empty()) {
    if (job.HoldsAny()) return {ReasonCode::kPausing, "", 0, 0};
    return WhyWaiting(job, now);
  }
  const Accelerator& first = cluster_.accelerator(job.assigned.front());
  for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    if (worker.held_epoch != 0 && worker.held_epoch != job.epoch) {
      return {ReasonCode::kPausing, "", 0, 0};
    }
    if (worker.finished || worker.process == ProcessState::kDone) {
      return {ReasonCode::kEnding, "", 0, 0};
    }
    if (worker.process == ProcessState::kLaunching &&
        !SourceFor(job, worker.server).server.empty()) {
      return WhyMoving(job, static_cast<int>(rank));
    }
    if (worker.process != ProcessState::kJoined) {
      return {ReasonCode::kStarting, first.server, IdleStart(now, worker),
              StartTimeout(job, options_)};
    }
    if (const WorkerKey* holder = HeldByOther(job.assigned[rank], job)) {
      return {ReasonCode::kWaitsForRelease, first.info.type,
              static_cast<double>(holder->job.value()), 0};
    }
    const WorkerKey* parked = LeavingMemory(job.assigned[rank], job);
    if (parked != nullptr && worker.held_epoch == 0) {
      return {ReasonCode::kWaitsForRelease,
              StrCat("memory of its ", first.info.type),
              static_cast<double>(parked->job.value()), 0};
    }
    if (worker.held_epoch != 0) continue;
    if (job.failed_starts > 0) {
      return {ReasonCode::kGangStarting, first.server,
              static_cast<double>(job.failed_starts),
              static_cast<double>(StartsMax(job))};
    }
    return {ReasonCode::kStarting, first.server, 0, 0};
  }
  if (const auto still = StandstillOf(job)) {
    return {ReasonCode::kStandsStill,
            StrCat("rank ", still->rank, " on ", first.info.type),
            still->seconds, still->allowed_s};
  }
  const JobShares shares = SharesOf(id, now);
  if (!Together(job, job.partner)) {
    return {ReasonCode::kRunning, first.info.type, shares.received,
            shares.target};
  }
  std::string beside =
      StrCat(first.info.type, " beside job ", job.partner.value());
  const double alone = throughputs_.Get(id, first.info.type).steps_per_s;
  const std::optional<double> together =
      throughputs_.Together(id, job.partner, first.info.type);
  if (together.has_value() && alone > 0) {
    StrAppend(&beside, " at ", std::lround(100 * *together / alone),
              " % of its speed alone");
  }
  return {ReasonCode::kRunningPacked, std::move(beside), shares.received,
          shares.target};
}

Reason Engine::WhyWaiting(const Job& job, Time now) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  if (std::all_of(capacity.begin(), capacity.end(),
                  [](int count) { return count == 0; })) {
    const Reason drained = WhyDrained(job, *this);
    return drained.code == ReasonCode::kDrained
               ? drained
               : Reason{ReasonCode::kNoServer, "", 0, 0};
  }
  if (IsStranded(job)) return WhyStranded(job);
  if (IsTooWideForOneServer(job)) {
    return {ReasonCode::kTooWide, "", static_cast<double>(job.scale_factor), 0};
  }
  const std::vector<bool>& usable_types = UsableTypes(job);
  bool usable = false;
  for (size_t type = 0; type < capacity.size(); ++type) {
    usable |= capacity[type] >= job.spec.LeastWorkers() && usable_types[type];
  }
  std::vector<std::string> too_small;
  for (const std::string& type : cluster_.types()) {
    if (!usable && throughputs_.IsExcluded(job.id, type)) {
      too_small.push_back(type);
    }
  }
  if (!too_small.empty()) {
    return {ReasonCode::kOutOfMemory, absl::StrJoin(too_small, ", "),
            static_cast<double>(job.id.value()), 0};
  }
  if (!usable) {
    if (Reason drained = WhyDrained(job, *this);
        drained.code == ReasonCode::kDrained)
      return drained;
    return {ReasonCode::kUnusable, "",
            static_cast<double>(job.spec.LeastWorkers()), 0};
  }
  if (job.counted_since == kNever) return {ReasonCode::kSubmitted, "", 0, 0};
  if (std::ranges::binary_search(result_.too_extreme, job.id)) {
    return {ReasonCode::kTooExtreme, ExtremesOf(job.spec),
            static_cast<double>(job.id.value()), 0};
  }
  const JobShares shares = SharesOf(job.id, now);
  const double ratio = shares.target > 0 ? shares.received / shares.target : 0;
  return {ReasonCode::kPriority, "", 0, ratio};
}

}  // namespace gavel
