// Failures of workers and accelerators: how often workers are lost, which
// accelerators a job avoids, and which ones are drained because jobs failed on
// them. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_FAILURES_H_
#define GAVEL_COORDINATOR_ENGINE_FAILURES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/engine/agents.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/terms.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// Estimates the mean time between losses of a worker, from what the coordinator
// has seen. Checkpoint intervals are tuned by it. Plain values; not
// thread-safe.

class FailureRate {
 public:
  // The mean time that is assumed at first. It weighs as much as one loss.
  static constexpr double kPrior_s = 6 * 3600;
  static constexpr double kInterval_s_min = 600;
  static constexpr double kInterval_s_max = 30 * 24 * 3600.0;

  // A worker held an accelerator for `seconds`, >= 0.
  void AddBusy(double seconds) { busy_s_ += seconds; }
  void AddLoss() { ++losses_; }

  double busy_s() const { return busy_s_; }
  uint64_t losses() const { return losses_; }
  // Mean time between two losses of one worker: (6 h + busy time) / (1 +
  // losses), within the bounds above. In seconds.
  double Interval_s() const;

  static auto State(auto& r) { return std::tie(r.busy_s_, r.losses_); }

 private:
  double busy_s_ = 0;
  uint64_t losses_ = 0;
};

// Whether `worker`, as it was before `exit`, was lost: it held an accelerator,
// and died or vanished with its agent although nobody had told it to end. A
// worker that was killed because it stood still counts as lost too. A program
// that reports its own failure (Finish), one that ran out of memory,
// cancellations and evictions do not count.
bool IsLoss(const Worker& worker, const WorkerExited& exit);

}  // namespace gavel

namespace gavel::engine {

// Finds accelerators on which several jobs in a row fail although they ran well
// elsewhere: then the accelerator is at fault, and not the jobs. leases.cc
// reports the ends of leases, and drains the accelerators that this finds. Not
// thread-safe; forgotten by a restart.

class FailureStreaks {
 public:
  // The failures of this many different jobs in a row are no coincidence.
  static constexpr size_t kJobs = 3;

  // The job ran well there: it made steps and was paused, or an opaque job
  // ended with exit code 0. Ends the streak of that accelerator.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  // A process of the job failed there, which counts if the job ran well on
  // another accelerator last. Returns the jobs of the streak once it has kJobs
  // of them, from at least two users if several users have active jobs; the
  // streak then begins anew. Otherwise returns no jobs.
  std::set<JobId> NoteFailure(JobId job, AcceleratorId where,
                              const std::string& owner = "",
                              bool several_users = false);
  // The job has ended.
  void Forget(JobId job) { good_on_.erase(job); }

 private:
  std::map<JobId, AcceleratorId> good_on_;  // where it ran well last
  // The streak of each accelerator: its jobs, with their owners.
  std::map<AcceleratorId, std::map<JobId, std::string>> failed_;
};

// The accelerators that a job avoids. Where its process failed or found no
// room, it is placed again for some time only if no other accelerator of the
// type is left. Accelerators that it could not use are never given to it again,
// nor those of servers that its file excludes. The parts that apply workers'
// messages fill this in, and the planner hands it to the mechanism.
//
// Not thread-safe. Snapshot fields: all but the barred accelerators, which
// follow from the job files.

class Avoidance {
 public:
  // How long a job avoids an accelerator. The cause may have passed by then.
  static constexpr double kAvoid_s = 600;

  // Borrowed, and outlives this.
  explicit Avoidance(const Cluster& cluster) : cluster_(cluster) {}

  void Avoid(Time now, JobId job, AcceleratorId where);
  // The job does not get the accelerator again, until Forget is called.
  void KeepOut(JobId job, AcceleratorId where) { until_[job][where] = kNever; }
  // The job ran there, so it need not avoid the accelerator. If it is kept out,
  // it stays so.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  // Its file excludes exactly these.
  void SetBarred(JobId job, std::set<AcceleratorId> barred);
  // Keeps the accelerators of SetBarred.
  void Forget(JobId job) { until_.erase(job); }
  void Forget(AcceleratorId accelerator);

  bool any() const { return !until_.empty(); }
  // Whether the job is kept out of any accelerator, and out of which ones.
  bool IsKeptOut(JobId job) const { return !KeptOutOf(job).empty(); }
  std::vector<AcceleratorId> KeptOutOf(JobId job) const;
  // Whether it may not have some accelerator: its file excludes that one, or it
  // is kept out of it.
  bool IsRestricted(JobId job) const {
    return barred_.contains(job) || IsKeptOut(job);
  }
  bool IsBarred(JobId job) const { return barred_.contains(job); }
  bool Bars(JobId job, AcceleratorId where) const {
    const auto barred = barred_.find(job);
    return barred != barred_.end() && barred->second.contains(where);
  }
  bool Avoids(Time now, JobId job, AcceleratorId where) const;
  // The number of usable accelerators of the type that the job may have, and
  // that its file alone lets it have.
  int CountLeft(JobId job, size_t type) const;
  int CountUnbarred(JobId job, size_t type) const;
  // The number of those of CountLeft that no job has.
  int CountFree(JobId job, size_t type,
                const AssignedAccelerators& assigned) const;
  // The accelerators that each job avoids at `now`, as the mechanism takes
  // them.
  std::map<JobId, RoundTable::Avoided> At(Time now) const;

  static auto State(auto& part) { return std::tie(part.until_); }

 private:
  using Until = std::map<AcceleratorId, Time>;  // kNever: kept out

  const Cluster& cluster_;
  std::map<JobId, Until> until_;
  std::map<JobId, std::set<AcceleratorId>> barred_;  // none is empty
};

// Accelerators that jobs report as unusable. Such a job does not get the
// accelerator again. It is lost for all jobs once a second job reports the same
// and no job ran there in between. If several users have active jobs, the
// second job has to be another user's, since the first report may be the fault
// of its program or its owner.
//
// Not thread-safe. Snapshot fields: all.

class Accusations {
 public:
  // Borrowed, and outlive this.
  Accusations(Agenda& agenda, Cluster& cluster, AssignedAccelerators& assigned,
              const Agents& agents, const JobTable& jobs, Avoidance& avoidance)
      : agenda_(agenda),
        cluster_(cluster),
        assigned_(assigned),
        agents_(agents),
        jobs_(jobs),
        avoidance_(avoidance) {}

  // `accuser` can't use the accelerator, and is kept out of it. Returns true if
  // the accelerator is now lost for all jobs.
  bool Accuse(AcceleratorId where, const Job& accuser);
  // The job ran there.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  // Takes back the reports of that job. Accelerators that were lost because of
  // one are in use again.
  void WithdrawAccusations(JobId job);
  // A new agent has joined, which lists its accelerators anew. Forgets all
  // reports about them, and that some of them were lost.
  void ForgetLost(const std::string& server);
  // The accelerator is gone.
  void Forget(AcceleratorId accelerator);
  // The first job that reported the accelerator; invalid if there is none.
  JobId AccuserOf(AcceleratorId lost) const;

  // The job may again get the accelerators that it could not use or failed on.
  void Forgive(JobId job);
  bool IsKeptOut(JobId job) const { return avoidance_.IsKeptOut(job); }

  static auto State(auto& part) {
    return std::tie(part.accused_, part.seconded_);
  }

 private:
  Agenda& agenda_;
  Cluster& cluster_;
  AssignedAccelerators& assigned_;
  const Agents& agents_;
  const JobTable& jobs_;
  Avoidance& avoidance_;
  std::map<AcceleratorId, JobId> accused_;   // the job that did so first
  std::map<AcceleratorId, JobId> seconded_;  // lost; the second job
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_FAILURES_H_
