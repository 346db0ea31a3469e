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
#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// How often workers are lost, from what the coordinator has seen: the mean time
// between failures that intervals of checkpoints are tuned by. Kept by the
// engine. Values; not thread-safe.

class FailureRate {
 public:
  // What is believed before anything was seen, with the weight of one loss.
  static constexpr double kPrior_s = 6 * 3600;
  static constexpr double kInterval_s_min = 600;
  static constexpr double kInterval_s_max = 30 * 24 * 3600.0;

  // A worker held an accelerator for so long, >= 0.
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

// `worker`, as it was before it ended so, was lost: it held an accelerator,
// and died or vanished with its agent, though nobody had told it to end. So is
// one that was killed because it stood still. Not so: a program that says that
// it has failed (Finish), one that ran out of memory, cancellations, evictions.
bool IsLoss(const Worker& worker, const WorkerExited& exit);

}  // namespace gavel

namespace gavel::engine {

// Accelerators on which jobs fail one after the other that run elsewhere: the
// accelerator is at fault, and not they. Told by the lease desk, which drains
// what this finds. Not thread-safe; forgotten by a restart.

class FailureStreaks {
 public:
  // So many different jobs in a row are no chance.
  static constexpr size_t kJobs = 3;

  // A lease of the job there ended well, after steps.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  // A process of the job failed there. The jobs of the streak when there are
  // enough, of two users at least where several have active jobs, else none:
  // then it begins anew.
  std::set<JobId> NoteFailure(JobId job, AcceleratorId where,
                              const std::string& owner = "",
                              bool several_users = false);
  // It has ended.
  void Forget(JobId job) { good_on_.erase(job); }

 private:
  std::map<JobId, AcceleratorId> good_on_;  // where it ran well last
  // Jobs with their owners.
  std::map<AcceleratorId, std::map<JobId, std::string>> failed_;
};

// The accelerators that a job avoids: where its process failed or found no room
// it goes again only where there is no other of the type, for some time; what
// it could not use it does not get again. Told by the parts that apply what
// workers said; the planner of rounds hands it to the mechanism.
//
// Not thread-safe. Snapshot fields: all.

class Avoidance {
 public:
  // What made a job avoid an accelerator may be over by then.
  static constexpr double kAvoid_s = 600;

  // Borrowed, and outlives this.
  explicit Avoidance(const Cluster& cluster) : cluster_(cluster) {}

  void Avoid(Time now, JobId job, AcceleratorId where);
  // It is not to have it any more.
  void KeepOut(JobId job, AcceleratorId where) { until_[job][where] = kNever; }
  // It ran there: it may again, unless it is kept out.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  void Forget(JobId job) { until_.erase(job); }
  void Forget(AcceleratorId accelerator);

  bool any() const { return !until_.empty(); }
  // Of some accelerator; and of which.
  bool IsKeptOut(JobId job) const { return !KeptOutOf(job).empty(); }
  std::vector<AcceleratorId> KeptOutOf(JobId job) const;
  bool Avoids(Time now, JobId job, AcceleratorId where) const;
  // How many usable ones of the type it is not kept out of.
  int CountLeft(JobId job, size_t type) const;
  // As the mechanism takes it.
  std::map<JobId, RoundTable::Avoided> At(Time now) const;

  static auto State(auto& part) { return std::tie(part.until_); }

 private:
  using Until = std::map<AcceleratorId, Time>;  // kNever: it is kept out

  const Cluster& cluster_;
  std::map<JobId, Until> until_;
};

// Accelerators of which jobs say that they can't use them. A job does not get
// such a one again. For all others it is lost when a second job says the same,
// another user's where several have jobs, and none ran there in between: the
// first one's program may be at fault, or its owner.
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

  // True: it is lost for all.
  bool Accuse(AcceleratorId where, const Job& accuser);
  // The job ran there.
  void NoteGoodEnd(JobId job, AcceleratorId where);
  // What is lost on the word of that job is in use again.
  void WithdrawAccusations(JobId job);
  // By a new agent, which says anew what is there.
  void ForgetLost(const std::string& server);
  // It is gone.
  void Forget(AcceleratorId accelerator);
  // Who said first that it can't use it; invalid: nobody.
  JobId AccuserOf(AcceleratorId lost) const;

  // It may have again what it could not use, or failed on.
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
  std::map<AcceleratorId, JobId> accused_;   // by this job first
  std::map<AcceleratorId, JobId> seconded_;  // lost, as this one said the same
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_FAILURES_H_
