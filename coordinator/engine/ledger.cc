#include "coordinator/engine/ledger.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace gavel::engine {

void Ledger::TakeReceived(JobId id, const event::Received& received) {
  jobs_.at(id).received_s = received.total_s;
  for (const event::Received::OnType& on : received.types) {
    const auto type = std::ranges::find(cluster_.types(), on.type);
    if (type == cluster_.types().end()) continue;
    const auto index = static_cast<size_t>(type - cluster_.types().begin());
    time_received_.Begin(id, index, on.since_reset_s, on.deficit_s);
  }
}

// Books the time since the last booking in which the worker ran or started: its
// part of the gang's time, and of the pair's.
void Ledger::Book(Time now, Job& job, Worker& worker,
                  TimeReceived::Booking& booking) {
  const bool leased = worker.held_epoch != 0;
  const AcceleratorId occupied = Occupied(job, worker);
  const double busy_s = std::max(0.0, now - worker.accrued_at);
  if (!occupied.valid() || (!leased && busy_s == 0)) return;
  const uint32_t held_type = cluster_.TypeOf(occupied);
  if (!leased && held_type >= cluster_.types().size()) return;
  const double seconds = busy_s / (leased ? worker.world_size : job.world_size);
  if (leased) failure_rate_.AddBusy(busy_s);
  worker.accrued_at = now;
  job.received_s += seconds;
  const ShareUnit unit = jobs_.UnitOf(job);
  const size_t type = job.BookedType(held_type, cluster_.types().size());
  const double part_s = unit.packed() ? seconds / 2 : seconds;
  booking.Add(unit, type, part_s);
  // Under an assignment a job is meant to have exactly the time that it runs.
  if (allocation_.result().is_assignment) booking.Owe(unit, type, part_s);
}

void Ledger::BookStart(Time now, Job& job, Worker& worker) {
  if (worker.held_epoch != 0) return;
  BookWorker(now, job, worker);
  worker.accrued_at = now;
}

void Ledger::BookAll(Time now) {
  if (now == booked_at_ || allocation_.result().is_assignment) return;
  TimeReceived::Booking received(time_received_);
  for (auto& [id, job] : jobs_.live()) {
    if (!job->active()) continue;
    for (Worker& worker : job->workers) Book(now, *job, worker, received);
    BookTarget(now, *job);
  }
  const double elapsed = std::max(0.0, now - booked_at_);
  booked_at_ = now;
  if (elapsed == 0) return;
  TimeReceived::Booking owed(time_received_);
  auto live = jobs_.live().begin();
  const Allocation& allocation = allocation_.result().allocation;
  for (size_t u = 0; u < allocation.units().size(); ++u) {
    const ShareUnit& unit = allocation.units()[u];
    const std::span<const double> row = allocation.RowAt(u);
    if (!IsShare(row)) continue;
    while (live != jobs_.live().end() && live->first < unit.job) ++live;
    if (live == jobs_.live().end()) return;
    if (live->first != unit.job || !candidates_.MayRun(*live->second)) continue;
    if (unit.packed() && !candidates_.MayRun(unit)) continue;
    for (size_t type = 0; type < row.size(); ++type) {
      if (row[type] > 0) owed.Owe(unit, type, row[type] * elapsed);
    }
  }
}

void Ledger::BookJob(Time now, Job& job) {
  TimeReceived::Booking booking(time_received_);
  for (Worker& worker : job.workers) Book(now, job, worker, booking);
}

double Ledger::TargetSince(const Job& job, Time now) const {
  const Time since =
      std::max({booked_at_, job.target_booked_at, job.counted_since});
  return job.target_share * std::max(0.0, now - since);
}

void Ledger::BookTarget(Time now, Job& job) {
  if (job.counted_since == kNever || !job.active()) return;
  job.target_s += TargetSince(job, now);
  job.target_booked_at = now;
}

double Ledger::SecondsReceived(const Job& job, Time now) const {
  double received = job.received_s;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    received += std::max(0.0, now - worker.accrued_at) / worker.world_size;
  }
  return received;
}

JobShares Ledger::SharesOf(JobId id, Time now) const {
  const Job& job = *jobs_.Find(id);
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

void Ledger::BookWorker(Time now, Job& job, Worker& worker) {
  TimeReceived::Booking booking(time_received_);
  Book(now, job, worker, booking);
}

// The time that an ended job received beyond its share stays with its entity.
// Otherwise the entity would begin anew with each job, and one with many short
// jobs would get more than its share.
void Ledger::RemoveJob(JobId id) {
  const std::vector<PolicyEntity>& entities = terms_.options().entities;
  const size_t types = cluster_.types().size();
  std::vector<double> since_reset_s;
  std::vector<double> deficit_s;
  for (const ShareUnit& unit : entities.empty() ? std::vector<ShareUnit>()
                                                : time_received_.UnitsOf(id)) {
    time_received_.Rows(unit, types, since_reset_s, deficit_s);
    for (const JobId one : {unit.job, unit.partner}) {
      const Job* job = jobs_.Find(one);
      if (job == nullptr) continue;
      const std::string& entity = job->spec.entity;
      if (std::ranges::find(entities, entity, &PolicyEntity::name) ==
          entities.end()) {
        continue;
      }
      std::vector<double>& ahead_s = ended_ahead_s_[entity];
      ahead_s.resize(std::max(types, ahead_s.size()));
      const double accelerators = job->scale_factor / (unit.packed() ? 2.0 : 1);
      for (size_t type = 0; type < types; ++type) {
        ahead_s[type] -= deficit_s[type] * accelerators;
      }
    }
  }
  time_received_.Remove(id);
}

std::span<const double> Ledger::EndedAhead(const std::string& entity) const {
  const auto found = ended_ahead_s_.find(entity);
  if (found == ended_ahead_s_.end()) return {};
  return found->second;
}

void Ledger::BeginAllocation() {
  // Under an assignment no job is ahead or behind: the assignment says which
  // jobs run.
  if (allocation_.result().is_assignment) return;
  if (terms_.memory_rounds() > 0) {
    const double factor =
        time_received_.Age(terms_.memory_rounds() * terms_.round_duration_s());
    for (auto& [entity, ahead_s] : ended_ahead_s_) {
      for (double& seconds : ahead_s) seconds *= factor;
    }
  } else {
    time_received_.Reset();
  }
}

void IsolatedTime::CountChanged(Time now) {
  const bool all = changes_.all(Changes::kIsolated);
  std::vector<Job*> jobs;
  for (const JobId id : changes_.Take(Changes::kIsolated, jobs_)) {
    if (Job* job = jobs_.FindLive(id)) jobs.push_back(job);
  }
  changes_.SetAll(Changes::kIsolated, all);
  Count(now, jobs);
}

void IsolatedTime::CountAll(Time now) {
  const bool all = changes_.all(Changes::kIsolated) ||
                   isolated_version_ != throughputs_.version();
  isolated_version_ = throughputs_.version();
  if (!all) return CountChanged(now);
  changes_.Take(Changes::kIsolated, jobs_);
  std::vector<Job*> jobs;
  for (const auto& [id, job] : jobs_.live()) jobs.push_back(job);
  Count(now, jobs);
}

void IsolatedTime::End(Time now, Job& job) {
  changes_.Touch(job);
  CountChanged(now);
  job.pace = Job::Pace();
}

void IsolatedTime::Count(Time now, const std::vector<Job*>& jobs) {
  for (Job* job : jobs) {
    const Sum sum = SumOf(*job, now);
    job->isolated_s = sum.seconds;
    job->isolated_steps = sum.steps;
  }
  for (auto& [scale_factor, clock] : isolated_clock_) {
    clock += (now - counted_at_) * Parts(scale_factor);
  }
  counted_at_ = now;
  for (Job* job : jobs) SetPace(now, *job);
}

// Up to the last count the job is taken to have run at its pace. Since then its
// steps are counted.
IsolatedTime::Sum IsolatedTime::SumOf(const Job& job, Time now) const {
  Sum sum{job.isolated_s, job.isolated_steps};
  if (!job.active()) return sum;
  if (job.pace.steps_per_s > 0) {
    const auto clock = isolated_clock_.find(job.spec.scale_factor);
    if (clock != isolated_clock_.end()) {
      sum.seconds +=
          job.pace.isolated_per_clock * (clock->second - job.pace.clock);
    }
    const auto total = static_cast<double>(job.spec.steps_total);
    const double done =
        sum.steps + job.pace.steps_per_s * (counted_at_ - job.pace.at);
    sum.steps = total > 0 ? std::min(total, done) : done;
  }
  const double done = figures_.StepsDone(job, now);
  if (done <= sum.steps) return sum;
  const double speed = WholeSpeed(job);
  if (speed > 0) {
    sum.seconds += (done - sum.steps) * Parts(job.spec.scale_factor) / speed;
  }
  sum.steps = done;
  return sum;
}

void IsolatedTime::SetPace(Time now, Job& job) {
  const double done = figures_.StepsDone(job, now);  // by its pace until now
  job.pace = Job::Pace();
  const uint64_t epoch = job.workers.front().held_epoch;
  if (!job.active() || epoch == 0) return;
  const double speed = WholeSpeed(job);
  if (!(speed > 0)) return;
  // After a failure nothing counts until the job has made up for lost steps.
  if (done < job.isolated_steps) return changes_.Touch(job);
  const double pace = figures_.Pace(job);
  job.pace = {pace, pace / speed, now, isolated_clock_[job.spec.scale_factor],
              epoch};
}

double IsolatedTime::Parts(int scale_factor) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  return std::max(static_cast<double>(jobs_.active()) * scale_factor,
                  std::accumulate(capacity.begin(), capacity.end(), 0.0));
}

double IsolatedTime::WholeSpeed(const Job& job) const {
  const std::vector<int>& capacity = cluster_.Capacity();
  double steps_per_s = 0;
  for (size_t type = 0; type < capacity.size(); ++type) {
    steps_per_s += capacity[type] *
                   throughputs_.Get(job.id, cluster_.types()[type]).steps_per_s;
  }
  return steps_per_s;
}

}  // namespace gavel::engine
