// Rounds: from the allocation to who has which accelerators (Gavel section 5),
// and what a job is told about its place.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "coordinator/engine/engine.h"

namespace gavel {

Time Engine::LeaseHorizon(const Job& job) const {
  const bool continues =
      planned_ && !job.planned.empty() && job.planned == job.assigned;
  return continues ? round_ends_at_ + round_duration_s_ : round_ends_at_;
}

double Engine::TargetShare(JobId job) const {
  double share = 0;
  if (result_.is_assignment) {
    for (const TypeAssignment& entry : result_.assignment) {
      if (entry.job == job) share = 1;
    }
  } else if (result_.allocation.Contains(job)) {
    for (double x : result_.allocation.Row(job)) share += x;
  }
  return std::min(1.0, share);
}

void Engine::BookAll(Time now) {
  for (auto& [id, job] : jobs_) {
    if (!job.active()) continue;
    for (Worker& worker : job.workers) Book(now, job, worker);
    if (job.counted_since == kNever) continue;
    job.target_s +=
        TargetShare(id) *
        std::max(0.0, now - std::max(booked_at_, job.counted_since));
  }
  booked_at_ = now;
}

Engine::Shares Engine::SharesOf(JobId id, Time now) const {
  const Job& job = jobs_.at(id);
  const Time until = job.active() ? now : job.ended_at;
  const double elapsed = until - job.counted_since;
  if (!(elapsed > 0)) return {};
  double target = job.target_s;
  double received = job.received_s;
  if (job.active()) {
    target += TargetShare(id) *
              std::max(0.0, now - std::max(booked_at_, job.counted_since));
    for (const Worker& worker : job.workers) {
      if (worker.held_epoch == 0) continue;
      received +=
          std::max(0.0, now - worker.accrued_at) / job.spec.scale_factor;
    }
  }
  return {std::min(1.0, target / elapsed), std::min(1.0, received / elapsed)};
}

// The jobs that may run, as of `at`. A job that has never run on a type, and
// whose throughput there nobody gave, gets a turn there first: on at most half
// of the type's accelerators in one round (section 6 of the paper measures
// jobs in the same way, as part of running them).
std::vector<RoundJob> Engine::RoundJobs(Time at, bool with_trials) const {
  const std::vector<std::string>& types = cluster_.types();
  std::vector<int> trials = cluster_.Capacity();
  for (int& budget : trials) budget = with_trials ? (budget + 1) / 2 : 0;
  std::vector<RoundJob> rows;
  for (const auto& [id, job] : jobs_) {
    const bool allocated = result_.is_assignment
                               ? TargetShare(id) > 0
                               : result_.allocation.Contains(id);
    // One whose loops are over only has to exit: its accelerators are free.
    const bool over = std::all_of(
        job.workers.begin(), job.workers.end(), [](const Worker& worker) {
          return worker.finished || worker.process == ProcessState::kDone;
        });
    if (!job.active() || over || (!allocated && job.assigned.empty())) continue;
    RoundJob row;
    row.id = id;
    row.scale_factor = job.spec.scale_factor;
    if (allocated && !result_.is_assignment) {
      row.share = result_.allocation.Row(id);
    }
    row.share.resize(types.size(), 0);
    row.time_received_s = time_received_.SinceReset(id, types.size());
    for (const Worker& worker : job.workers) {
      if (worker.held_epoch == 0) continue;
      row.time_received_s[static_cast<size_t>(cluster_.TypeOf(worker.held))] +=
          std::max(0.0, at - worker.accrued_at) / job.spec.scale_factor;
    }
    for (size_t type = 0; type < types.size(); ++type) {
      row.usable.push_back(throughputs_.Get(id, types[type]).steps_per_s > 0);
      if (trials[type] >= job.spec.scale_factor && row.usable[type] &&
          throughputs_.NeedsTrial(id, types[type]) &&
          !tried_.contains({id, type})) {
        trials[type] -= job.spec.scale_factor;
        row.share[type] = 1;
        row.time_received_s[type] = 0;
      }
    }
    row.holds = job.assigned;
    if (job.workers.front().process == ProcessState::kJoined) {
      row.home_server = job.workers.front().server;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

RoundAssignment Engine::PlanAll(Time at, bool keep_running) const {
  const std::vector<RoundJob> rows = RoundJobs(at, !keep_running);
  if (result_.is_assignment) {
    std::map<JobId, size_t> type_of_job;
    for (const TypeAssignment& entry : result_.assignment) {
      type_of_job[entry.job] = entry.type;
    }
    return PlaceAssignment(cluster_, rows, type_of_job);
  }
  RoundOptions options;
  options.keep_running = keep_running;
  return PlanRound(cluster_, rows, options);
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
  if (round_ends_at_ == kNever) return;
  const RoundAssignment plan = PlanAll(now, /*keep_running=*/true);
  for (const auto& [id, accelerators] : plan) {
    Job& job = jobs_.at(id);
    if (!job.assigned.empty()) continue;
    // Not what another job is still assigned to (it is not to be disturbed).
    const bool free =
        std::none_of(accelerators.begin(), accelerators.end(),
                     [&](AcceleratorId a) { return assigned_to_.contains(a); });
    if (free) Assign(now, job, accelerators);
  }
  if (planned_) MakePlan(now);
}

// Decides the next round ahead of its start: who continues may have the lease
// extended without a gap, who is new has its process started in time.
void Engine::MakePlan(Time now) {
  BookAll(now);
  planned_ = true;
  const RoundAssignment plan = PlanAll(round_ends_at_, /*keep_running=*/false);
  for (auto& [id, job] : jobs_) {
    const auto it = plan.find(id);
    job.planned.clear();
    if (!job.active() || it == plan.end()) continue;
    job.planned = it->second;
    if (job.assigned.empty()) {
      const bool no_process = std::all_of(
          job.workers.begin(), job.workers.end(), [](const Worker& worker) {
            return worker.process == ProcessState::kNone;
          });
      if (no_process) EnsureProcesses(now, job, job.planned);
    } else if (job.planned == job.assigned) {
      for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
        const Worker& worker = job.workers[static_cast<size_t>(rank)];
        if (worker.held_epoch == 0) continue;
        const WorkerKey key{id, rank, worker.incarnation};
        Emit(
            action::SendToWorker{key, LeaseNotice{key, position(), job.epoch}});
      }
    }
  }
}

Reason Engine::Why(JobId id, Time now) const {
  const Job& job = jobs_.at(id);
  if (!job.active()) return job.reason;
  if (job.assigned.empty()) {
    if (job.HoldsAny()) return {ReasonCode::kPausing, "", 0, 0};
    return WhyWaiting(job, now);
  }
  const Accelerator& first = cluster_.accelerator(job.assigned.front());
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    if (worker.held_epoch != 0 && worker.held_epoch != job.epoch) {
      return {ReasonCode::kPausing, "", 0, 0};
    }
    if (worker.finished || worker.process == ProcessState::kDone) {
      return {ReasonCode::kEnding, "", 0, 0};
    }
    if (worker.process != ProcessState::kJoined) {
      return {ReasonCode::kStarting, first.server, 0, 0};
    }
    const auto holder = holders_.find(job.assigned[rank]);
    if (holder != holders_.end() && holder->second.job != id) {
      return {ReasonCode::kWaitsForRelease, first.info.type,
              static_cast<double>(holder->second.job.value()), 0};
    }
    if (worker.held_epoch == 0) {
      return {ReasonCode::kStarting, first.server, 0, 0};
    }
  }
  const Shares shares = SharesOf(id, now);
  return {ReasonCode::kRunning, first.info.type, shares.received,
          shares.target};
}

Reason Engine::WhyWaiting(const Job& job, Time now) const {
  const std::vector<int> capacity = cluster_.Capacity();
  if (std::all_of(capacity.begin(), capacity.end(),
                  [](int count) { return count == 0; })) {
    return {ReasonCode::kNoServer, "", 0, 0};
  }
  bool usable = false;
  for (size_t type = 0; type < capacity.size(); ++type) {
    usable |= capacity[type] >= job.spec.scale_factor &&
              throughputs_.Get(job.id, cluster_.types()[type]).steps_per_s > 0;
  }
  if (!usable) {
    return {ReasonCode::kUnusable, "",
            static_cast<double>(job.spec.scale_factor), 0};
  }
  if (job.counted_since == kNever) return {ReasonCode::kSubmitted, "", 0, 0};
  const std::vector<RoundJob> rows = RoundJobs(now, /*with_trials=*/false);
  const auto self =
      std::find_if(rows.begin(), rows.end(),
                   [&](const RoundJob& row) { return row.id == job.id; });
  if (self == rows.end()) return {ReasonCode::kNotInAllocation, "", 0, 0};
  const std::vector<std::vector<double>> priorities = Priorities(rows);
  const auto own = static_cast<size_t>(self - rows.begin());
  const size_t type = static_cast<size_t>(
      std::max_element(priorities[own].begin(), priorities[own].end()) -
      priorities[own].begin());
  double place = 1;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (row == own || !rows[row].holds.empty()) continue;
    if (priorities[row][type] > priorities[own][type]) ++place;
  }
  const Shares shares = SharesOf(job.id, now);
  const double ratio = shares.target > 0 ? shares.received / shares.target : 0;
  return {ReasonCode::kPriority, cluster_.types()[type], place, ratio};
}

}  // namespace gavel
