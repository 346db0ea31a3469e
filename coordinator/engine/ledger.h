// The time that jobs have received, and the time that the allocation meant them
// to have: for priorities in rounds and for the shares that people see. Also
// counts how often workers are lost.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_LEDGER_H_
#define GAVEL_COORDINATOR_ENGINE_LEDGER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/allocation.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/failures.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/terms.h"
#include "coordinator/engine/throughput_matrix.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

class Ledger {
 public:
  // The arguments are borrowed, and must outlive this object.
  Ledger(const Terms& terms, const JobTable& jobs, const Cluster& cluster,
         const AllocationTable& allocation, const Candidates& candidates)
      : terms_(terms),
        jobs_(jobs),
        cluster_(cluster),
        allocation_(allocation),
        candidates_(candidates) {}

  // Takes over the time that a job has received under another engine.
  void TakeReceived(JobId id, const event::Received& received);
  // Books the time that a worker without a lease took to start, up to now.
  void BookStart(Time now, Job& job, Worker& worker);
  // Books the time that all jobs have received, and their targets, up to now.
  // Call this before either changes. It does nothing under an assignment, where
  // received time is not compared and each job is booked when it changes.
  void BookAll(Time now);
  // Books the time of all workers of the job, up to now.
  void BookJob(Time now, Job& job);
  // Books the time that the allocation meant the job to have, up to now.
  void BookTarget(Time now, Job& job);
  // All the time that the job has received, booked or not.
  double SecondsReceived(const Job& job, Time now) const;
  // The job must be in the table.
  JobShares SharesOf(JobId job, Time now) const;

  // Books the time of one worker, up to now.
  void BookWorker(Time now, Job& job, Worker& worker);
  const TimeReceived& time_received() const { return time_received_; }
  const FailureRate& failure_rate() const { return failure_rate_; }
  // Counts the loss of a worker.
  void AddLoss() { failure_rate_.AddLoss(); }
  // Call this when the job has ended.
  void RemoveJob(JobId job);
  // [J] The time that ended jobs of the entity had received beyond their
  // shares, in accelerator-seconds by type; empty: none. The entity's other
  // jobs are ahead by that much.
  std::span<const double> EndedAhead(const std::string& entity) const;
  // All targets are booked up to now.
  void SetBookedAt(Time now) { booked_at_ = now; }
  // Call this for a new allocation. Time received before it fades over
  // Terms::memory_rounds(), or is reset if that is 0. Does nothing for an
  // assignment.
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
  // By entity of the cluster file, and by type.
  std::map<std::string, std::vector<double>> ended_ahead_s_;
  Time booked_at_ = 0;  // Job::target_s counts up to here at least
};

// The time that jobs would have taken alone on an equal part of the cluster,
// for finish-time fairness (Gavel's cumulative isolated time).
//
// Not thread-safe. Snapshot fields: the clocks, the time that they are counted
// up to, and the version of the throughputs that they use.

class IsolatedTime {
 public:
  // The arguments are borrowed, and must outlive this object.
  IsolatedTime(const JobTable& jobs, Changes& changes, const Cluster& cluster,
               const ThroughputMatrix& throughputs,
               const EngineOptions& options, const Figures& figures)
      : jobs_(jobs),
        changes_(changes),
        cluster_(cluster),
        throughputs_(throughputs),
        options_(options),
        figures_(figures) {}

  // Counts Gavel's cumulative isolated time: the time in which an equal part of
  // the cluster would have done the steps of each job. The size of an equal
  // part depends on the number of jobs, so the engine calls this before each
  // change of that number, and for each new allocation.
  //
  // Let n be the number of jobs, C the number of accelerators, and W the sum of
  // a job's throughputs on all of them. An equal part does W / max(n s, C)
  // steps/s of a job of scale factor s. So the isolated time of a job that runs
  // at an even pace is its speed over W, times a clock of its scale factor that
  // runs at the rate max(n s, C). Such jobs are visited only when they change.
  void CountChanged(Time now);
  // The same, but visits all jobs if throughputs or the cluster have changed.
  void CountAll(Time now);
  // Counts an ended job up to now, and stops its pace.
  void End(Time now, Job& job);

  // The values that Job::isolated_s and isolated_steps would be counted to now.
  struct Sum {
    double seconds = 0;
    double steps = 0;
  };
  Sum SumOf(const Job& job, Time now) const;

  static auto State(auto& part) {
    return std::tie(part.isolated_clock_, part.counted_at_,
                    part.isolated_version_);
  }

 private:
  void Count(Time now, const std::vector<Job*>& jobs);
  void SetPace(Time now, Job& job);
  double Parts(int scale_factor) const;     // max(n s, C)
  double WholeSpeed(const Job& job) const;  // W

  const JobTable& jobs_;
  Changes& changes_;
  const Cluster& cluster_;
  const ThroughputMatrix& throughputs_;
  const EngineOptions& options_;
  const Figures& figures_;
  std::map<int, double> isolated_clock_;  // by scale factor: CountChanged
  Time counted_at_ = 0;
  uint64_t isolated_version_ = 0;  // of throughputs_
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_LEDGER_H_
