#include "coordinator/engine/workers/explanations.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/engine/operator_rules.h"
#include "coordinator/engine/waiting_line.h"
#include "coordinator/engine/worker_limits.h"
#include "core/text.h"

namespace gavel::engine {

event::Received Explanations::ReceivedOf(JobId id, Time now) const {
  const Job& job = jobs_.at(id);
  RoundUnit row;
  rows_.MakeUnit({id, JobId()}, job, now, row);
  event::Received received{ledger_.SecondsReceived(job, now), {}};
  for (size_t type = 0; type < row.time_received_s.size(); ++type) {
    received.types.push_back({cluster_.types()[type], row.time_received_s[type],
                              row.deficit_s[type]});
  }
  return received;
}

Reason Explanations::Why(JobId id, Time now) const {
  Reason reason = WhyUnranked(id, now);
  if (reason.code == ReasonCode::kPriority) {
    WaitingLine(rows_.RoundUnits(now, /*with_trials=*/false), cluster_.types(),
                terms_.round_duration_s())
        .Tell(id, &reason);
  }
  return reason;
}

Reason Explanations::WhyUnranked(JobId id, Time now) const {
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
        !checkpoints_.SourceFor(job, worker.server).server.empty()) {
      return checkpoints_.WhyMoving(job, static_cast<int>(rank));
    }
    if (worker.process != ProcessState::kJoined) {
      return {ReasonCode::kStarting, first.server, IdleStart(now, worker),
              StartTimeout(job, options_)};
    }
    if (const WorkerKey* holder =
            leases_.HeldByOther(job.assigned[rank], job)) {
      return {ReasonCode::kWaitsForRelease, first.info.type,
              static_cast<double>(holder->job.value()), 0};
    }
    const WorkerKey* parked = leases_.LeavingMemory(job.assigned[rank], job);
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
  if (const auto still = hang_.StandstillOf(job)) {
    return {ReasonCode::kStandsStill,
            StrCat("rank ", still->rank, " on ", first.info.type),
            still->seconds, still->allowed_s};
  }
  const JobShares shares = ledger_.SharesOf(id, now);
  if (!jobs_.Together(job, job.partner)) {
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

Reason Explanations::WhyWaiting(const Job& job, Time now) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  if (std::all_of(capacity.begin(), capacity.end(),
                  [](int count) { return count == 0; })) {
    const Reason drained = WhyDrained(job, cluster_, throughputs_);
    return drained.code == ReasonCode::kDrained
               ? drained
               : Reason{ReasonCode::kNoServer, "", 0, 0};
  }
  if (checkpoints_.IsStranded(job)) return checkpoints_.WhyStranded(job);
  if (checkpoints_.IsTooWideForOneServer(job)) {
    return {ReasonCode::kTooWide, "", static_cast<double>(job.scale_factor), 0};
  }
  const std::vector<bool>& usable_types = figures_.UsableTypes(job);
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
    if (Reason drained = WhyDrained(job, cluster_, throughputs_);
        drained.code == ReasonCode::kDrained)
      return drained;
    return {ReasonCode::kUnusable, "",
            static_cast<double>(job.spec.LeastWorkers()), 0};
  }
  if (job.counted_since == kNever) return {ReasonCode::kSubmitted, "", 0, 0};
  if (std::ranges::binary_search(allocation_.result().too_extreme, job.id)) {
    return {ReasonCode::kTooExtreme, ExtremesOf(job.spec),
            static_cast<double>(job.id.value()), 0};
  }
  const JobShares shares = ledger_.SharesOf(job.id, now);
  const double ratio = shares.target > 0 ? shares.received / shares.target : 0;
  return {ReasonCode::kPriority, "", 0, ratio};
}

}  // namespace gavel::engine
