// The table of all jobs, with indexes by id and by name, of live jobs, and of
// waiting jobs. Other parts change the fields of a job; only the table adds,
// ends and removes jobs.
//
// Pointers and references to jobs stay valid until the job is pruned. Not
// thread-safe. Snapshot fields: the jobs, names, ended jobs, and the next
// numbers; the list of live jobs begins a snapshot.
#ifndef GAVEL_COORDINATOR_ENGINE_JOB_TABLE_H_
#define GAVEL_COORDINATOR_ENGINE_JOB_TABLE_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "coordinator/engine/job.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel::engine {

class JobTable {
 public:
  using Live = absl::btree_map<JobId, Job*>;

  // Null if there is no such job; FindLive: also if it is not live.
  Job* Find(JobId id) const;
  Job* FindLive(JobId id) const;
  // The worker of exactly this incarnation; null: there is none.
  Worker* Find(const WorkerKey& key) const;
  Job& at(JobId id) const;                             // there is one
  const Worker& WorkerOf(const WorkerKey& key) const;  // there is one
  const std::map<JobId, Job>& all() const { return jobs_; }
  std::map<JobId, Job>& all() { return jobs_; }
  // The jobs that are active or have a process, ascending.
  const Live& live() const { return live_; }
  const Live& waiting() const { return waiting_; }  // with nothing assigned
  const Live& interactive() const { return interactive_; }  // of live()
  // The accelerators that the interactive jobs of the owner have.
  int InteractiveHeld(const std::string& owner) const;
  size_t active() const { return active_; }  // of live()
  bool elastic() const { return elastic_; }  // some job is elastic, or was
  JobId next_id() const { return JobId(next_job_); }
  // The least number for new epochs and incarnations
  // (CoordinatorStarted::numbers_from).
  uint64_t numbers_from() const { return numbers_from_; }
  // The job that has the name of `spec`; invalid if there is none.
  JobId Named(const JobSpec& spec) const;
  // The latest job or array of this name (NameOf), which may have ended;
  // invalid if there is none.
  JobId LatestNamed(const std::string& name) const;
  // The job that has the checkpoint directory of `spec`; invalid if there is
  // none.
  JobId SavingIn(const JobSpec& spec) const;

  // Whether the two jobs run as a packed pair, or are about to.
  bool Together(const Job& job, JobId other) const;
  ShareUnit UnitOf(const Job& job) const;
  // Whether several users have active jobs.
  bool HasSeveralUsers() const;
  // Whether these are two different jobs, and of two users if several users
  // have active jobs.
  bool AreIndependent(const Job& a, const Job& b) const;
  // Whether the job already has the accelerators `next` with that partner.
  bool Unchanged(const Job& job, const std::vector<AcceleratorId>& next,
                 JobId partner) const;

  // A new job, active and waiting.
  Job& Add(Time now, const JobSpec& spec);
  // A new job that is held from the beginning. It has no workers before it is
  // released.
  Job& AddHeld(Time now, JobSpec spec);
  // An id for an array of this spec's name, which no job gets.
  JobId TakeArrayId(const JobSpec& spec);
  // Leaves out `count` ids, which no job gets.
  void SkipIds(uint64_t count) { next_job_ += count; }
  // Rows were lost that may have given out numbers below `from`: they are not
  // given again.
  void PassLostNumbers(uint64_t from);
  // Gives the job these accelerators; none: it waits.
  void SetAssigned(Job& job, const std::vector<AcceleratorId>& next);
  // Call this after the spec changed.
  void NoteElastic(const Job& job) { elastic_ |= job.spec.elastic(); }
  // The job leaves kActive or kHeld for `state`. It stays live as long as one
  // of its processes does.
  void End(Job& job, JobState state);
  void Release(Job& job);  // from kHeld, or once more
  // A process of the job has ended, so the next Prune looks at it.
  void MayBeOver(const Job& job) { over_.push_back(job.id); }
  // Removes jobs that are over from live(). The table keeps the last
  // `ended_kept` elements of arrays that have ended, and as many other jobs: a
  // large array drives out no other job.
  void Prune(size_t ended_kept);
  // The jobs that were added or released since the last call. Their shares do
  // not count yet (Job::counted_since).
  std::vector<JobId> TakeUncounted();

  static auto State(auto& t) {
    return std::tie(t.jobs_, t.names_, t.ended_, t.next_job_, t.numbers_from_,
                    t.ended_elements_);
  }
  std::vector<JobId> LiveIds() const;
  // Call this after State was read, with the ids of the live jobs. DATA_LOSS if
  // one of them is unknown.
  absl::Status Rebuild(const std::vector<JobId>& live);

 private:
  JobId TakeId() { return JobId(next_job_++); }
  void KeepDirectory(const Job& job);
  void ForgetEnded(size_t ended_kept, std::deque<JobId>& ended);
  void AddLive(Job& job);
  // Job::assigned changed, by so many accelerators.
  void NoteAssigned(Job& job, int change);

  std::map<JobId, Job> jobs_;  // by_id_: only to look up
  absl::flat_hash_map<JobId, std::map<JobId, Job>::iterator> by_id_;
  Live live_;
  Live waiting_;
  Live interactive_;
  absl::flat_hash_map<std::string, int> interactive_held_;  // by owner
  size_t active_ = 0;
  bool elastic_ = false;
  absl::flat_hash_map<std::string, JobId> names_;   // of jobs not over
  absl::flat_hash_map<std::string, JobId> latest_;  // of all jobs_ and arrays
  // The job that saves in a directory, by owner and path. Jobs of two owners
  // may name the same path: the file system says which of them can write there.
  absl::flat_hash_map<std::pair<std::string, std::string>, JobId> directories_;
  std::deque<JobId> ended_;
  std::deque<JobId> ended_elements_;  // of arrays
  uint64_t next_job_ = 1;
  uint64_t numbers_from_ = 0;
  std::vector<JobId> over_;  // live jobs that may be over
  std::vector<JobId> uncounted_;
};

// Whether the accelerator that the worker of that rank holds is not assigned to
// that rank, or no longer.
bool MustGo(const Job& job, int rank);

}  // namespace gavel::engine

namespace gavel {

// Plain values: the engine's state of agents and plans, and facts about jobs
// that it reports.

// An agent as the engine knows it.
struct Agent {
  uint64_t incarnation = 0;
  bool reachable = false;
  Time heard_at = 0;
  uint64_t host_memory_bytes = 0;  // for parked jobs; 0: no budget
  std::string state_id = "";       // of its state directory
  // Before this time, leases may still run of processes that were started here
  // under another state directory, which the agent does not know.
  Time swept_at = 0;
  // See AgentHello.
  bool own_checkpoints = false;
  std::string stream_endpoint = "";
  std::string stream_public_key = "";
  bool left = false;  // not reachable, for it ended in order
  // The last health report of each of its accelerators, by uuid. Forgotten by a
  // restart.
  std::map<std::string, AcceleratorHealth> health = {};
};

// Fractions of the time since a job's first allocation, in [0, 1]. `target`:
// the policy's intention; `received`: the time that the job ran.
struct JobShares {
  double target = 0;
  double received = 0;
};

// A rank whose loop makes no steps.
struct Standstill {
  int rank = 0;
  double seconds = 0;
  double allowed_s = 0;
};

// How a failed process ended. Its loop had stood still for `hung_s` (as
// sweeper.cc finds). Or it was stopped while it started, because it never sent
// a hello (`silent`) or was not ready `unready_s` after its hello.
struct FailedEnd {
  const WorkerExited& exit;
  double hung_s = 0;
  bool silent = false;
  double unready_s = 0;
};

// Accelerators that run jobs now because they are on trial, and the
// accelerator-seconds that trials have taken in all.
struct TrialCost {
  int accelerators = 0;
  double accelerator_s = 0;
};

// The accelerators of `jobs`, which ascend, in a round. A job of these without
// a place waits; all other jobs stay as they are. If `jobs` is nullopt, the
// plan is of all jobs.
struct RoundPlan {
  std::optional<std::vector<JobId>> jobs;
  RoundAssignment places;
  std::vector<ShareUnit> trials = {};  // of `places`, ascending
};

// The units that could run in the next round, and the priority of each by type.
struct WaitingUnits {
  RoundTable units;
  std::vector<std::vector<double>> priorities;
};

// The deficit of a unit on trial. It is larger than any that a job can have, so
// trials are placed first.
inline constexpr double kTrialDebt_s = 1e9;
// The deficit of a unit whose process starts or is about to be measured. Such a
// unit keeps its accelerators, unless others are tried there.
inline constexpr double kStartDebt_s = kTrialDebt_s / 2;

// Types that were planned for the waiting jobs, and on which nothing has
// changed since. Another plan of them would be the same.
class FilledTypes {
 public:
  bool any() const { return !is_filled_.empty(); }
  bool Has(size_t type) const {
    return type < is_filled_.size() && is_filled_[type];
  }
  // `types`: by type, those that have been planned now.
  void Note(const std::vector<bool>& types) {
    is_filled_.resize(types.size(), false);
    for (size_t type = 0; type < types.size(); ++type) {
      if (types[type]) is_filled_[type] = true;
    }
  }
  void Forget(size_t type) {
    if (type < is_filled_.size()) is_filled_[type] = false;
  }
  void Forget() { is_filled_.clear(); }

 private:
  std::vector<bool> is_filled_;
};

// Types whose free accelerators no waiting job can use, except jobs that have
// changed since.
struct IdleTypes {
  FilledTypes types;
  uint64_t version = 0;  // of the throughputs
};

// Spreads launches over time that would otherwise be sent at once.
class LaunchPace {
 public:
  // When to launch the next process, not before `now`, if `per_s` launches a
  // second are allowed (<= 0: any number). A few start at once and the rest in
  // steps of time, so that one sweep over all jobs sends many.
  Time Next(Time now, double per_s) {
    if (per_s <= 0) return now;
    const Time at = std::max(at_, now - kAtOnce_s);
    at_ = at + 1 / per_s;
    return at <= now ? now : std::ceil(at / kStep_s) * kStep_s;
  }

  static auto State(auto& p) { return std::tie(p.at_); }

 private:
  static constexpr double kAtOnce_s = 0.2;  // worth of launches
  static constexpr double kStep_s = 0.1;

  Time at_ = -kNever;  // of the next one
};

struct JobChanges {
  std::vector<JobId> jobs;
  bool all = true;
};

}  // namespace gavel

namespace gavel::engine {

// The jobs that have changed since a reader last looked. Parts that keep a
// value for each job (the plan, the problem for the policy, isolated time,
// filling) look only at these again. Also the accelerator types that need no
// new plan, because nothing has changed on them.
//
// Not thread-safe. Snapshot fields: the changes that isolated time reads; after
// a restore the other readers look at all jobs.

class Changes {
 public:
  enum Reader : uint8_t { kPlan, kProblem, kIsolated, kFill, kReaders };

  // Every reader looks at the job again.
  void Touch(Job& job);
  void TouchAll();  // every reader looks at all jobs
  // Whether all jobs may have changed, and not only those of Take.
  bool all(Reader reader) const { return changes_[reader].all; }
  void SetAll(Reader reader, bool all) { changes_[reader].all = all; }
  // The jobs that were touched since the last Take, in that order.
  const std::vector<JobId>& Touched(Reader reader) const {
    return changes_[reader].jobs;
  }
  // Returns the same jobs, ascending, and clears the reader's changes.
  std::vector<JobId> Take(Reader reader, const JobTable& jobs);

  // Something has changed on the type, or on all types.
  void ForgetType(size_t type);
  void ForgetTypes();
  FilledTypes& filled() { return filled_; }
  IdleTypes& idle() { return idle_; }

  static auto State(auto& c) {
    return std::tie(c.changes_[kIsolated].jobs, c.changes_[kIsolated].all);
  }
  // Call this after State was read.
  void Rebuild();

 private:
  std::array<JobChanges, kReaders> changes_;
  FilledTypes filled_;
  IdleTypes idle_;
};

// Which accelerators are assigned to jobs, and how many of each type are not.
//
// Not thread-safe. Snapshot fields: the jobs of each accelerator; the counts
// are made anew.

class AssignedAccelerators {
 public:
  // Borrowed, and outlive this.
  AssignedAccelerators(const Cluster& cluster, Changes& changes)
      : cluster_(cluster), changes_(changes) {}

  // The job gets the accelerator, or gives it up.
  void Add(AcceleratorId accelerator, JobId job);
  void Remove(AcceleratorId accelerator, JobId job);
  // Counts again after accelerators have come or gone. That may change anything
  // for any job, so all jobs count as changed.
  void Recount();

  std::span<const JobId> JobsOn(AcceleratorId accelerator) const {
    return jobs_.At(accelerator);
  }
  bool IsFree(AcceleratorId accelerator) const;
  // By type: the number of usable accelerators that no job is assigned.
  const std::vector<int>& free() const { return free_; }
  // The free accelerators by place, kept up to date from the first call on. A
  // caller that claims or releases some of them has to undo that.
  FreePlaces& Places();

  static auto State(auto& a) { return std::tie(a.jobs_); }

 private:
  void Count(AcceleratorId accelerator, int by);

  const Cluster& cluster_;
  Changes& changes_;
  ByAccelerator<JobId> jobs_;      // Job::assigned
  std::vector<uint8_t> assigned_;  // jobs, by accelerator id - 1
  std::vector<int> free_;
  std::optional<FreePlaces> places_;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_JOB_TABLE_H_
