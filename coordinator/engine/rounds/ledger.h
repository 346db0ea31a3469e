// The time that jobs received, and what the allocation meant them to have: for
// priorities in rounds and for the shares that people are told. Also how often
// workers are lost.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUNDS_LEDGER_H_
#define GAVEL_COORDINATOR_ENGINE_ROUNDS_LEDGER_H_

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/engine_values.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failure_rate.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/rounds/allocation_table.h"
#include "coordinator/engine/rounds/candidates.h"
#include "coordinator/engine/state/job_table.h"
#include "coordinator/engine/state/terms.h"
#include "coordinator/jobs/cluster.h"
#include "coordinator/jobs/time_received.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

class Ledger {
 public:
  // Borrowed, and outlive this.
  Ledger(const Terms& terms, const JobTable& jobs, const Cluster& cluster,
         const AllocationTable& allocation, const Candidates& candidates)
      : terms_(terms),
        jobs_(jobs),
        cluster_(cluster),
        allocation_(allocation),
        candidates_(candidates) {}

  // What a job has received under another engine.
  void TakeReceived(JobId id, const event::Received& received);
  // The time that a worker without a lease took to start, up to now.
  void BookStart(Time now, Job& job, Worker& worker);
  // What was received and what was meant, up to now: before either changes.
  // Under an assignment nobody compares what jobs have received, and each is
  // booked by itself, when it changes.
  void BookAll(Time now);
  // All workers of the job.
  void BookJob(Time now, Job& job);
  // What the allocation meant the job to have, up to now.
  void BookTarget(Time now, Job& job);
  // In all, booked or not.
  double SecondsReceived(const Job& job, Time now) const;
  // Of a job that is there.
  JobShares SharesOf(JobId job, Time now) const;

  // Of one worker, up to now.
  void BookWorker(Time now, Job& job, Worker& worker);
  const TimeReceived& time_received() const { return time_received_; }
  const FailureRate& failure_rate() const { return failure_rate_; }
  // A worker was lost.
  void AddLoss() { failure_rate_.AddLoss(); }
  // It has ended.
  void RemoveJob(JobId job);
  // [J] What jobs of the entity that have ended had received beyond their
  // shares, in accelerator-seconds; empty: nothing. The entity's other jobs are
  // ahead by that.
  std::span<const double> EndedAhead(const std::string& entity) const;
  // All targets are booked up to now.
  void SetBookedAt(Time now) { booked_at_ = now; }
  // A new allocation: time received counts on, as far as Terms says.
  void BeginAllocation();

  static auto State(auto& part) {
    return std::tie(part.time_received_, part.failure_rate_, part.booked_at_,
                    part.ended_ahead_s_);
  }

 private:
  void Book(Time now, Job& job, Worker& worker, TimeReceived::Booking& booking);
  double TargetSince(const Job& job, Time now) const;

  const Terms& terms_;
  const JobTable& jobs_;
  const Cluster& cluster_;
  const AllocationTable& allocation_;
  const Candidates& candidates_;
  TimeReceived time_received_;
  FailureRate failure_rate_;
  // By entity, and type. Entities are those of the cluster file.
  std::map<std::string, std::vector<double>> ended_ahead_s_;
  Time booked_at_ = 0;  // Job::target_s counts up to here at least
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUNDS_LEDGER_H_
