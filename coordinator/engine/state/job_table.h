// All jobs: by id, by name, those that are alive, those that wait. Other parts
// change a job's own fields; what says which jobs there are is changed here.
//
// Pointers and references to jobs stay valid until the job is pruned. Not
// thread-safe. Snapshot fields: the jobs, names, ended jobs, and the next
// numbers; the list of live jobs begins a snapshot.
#ifndef GAVEL_COORDINATOR_ENGINE_STATE_JOB_TABLE_H_
#define GAVEL_COORDINATOR_ENGINE_STATE_JOB_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "coordinator/engine/job.h"
#include "core/ids.h"
#include "core/share_unit.h"
#include "core/units.h"

namespace gavel::engine {

class JobTable {
 public:
  using Live = absl::btree_map<JobId, Job*>;

  // Null: not there, or not live.
  Job* Find(JobId id) const;
  Job* FindLive(JobId id) const;
  // The worker of exactly this incarnation; null: there is none.
  Worker* Find(const WorkerKey& key) const;
  Job& at(JobId id) const;                             // there is one
  const Worker& WorkerOf(const WorkerKey& key) const;  // there is one
  const std::map<JobId, Job>& all() const { return jobs_; }
  std::map<JobId, Job>& all() { return jobs_; }
  // Those active, or with a process, ascending.
  const Live& live() const { return live_; }
  const Live& waiting() const { return waiting_; }  // with nothing assigned
  size_t active() const { return active_; }         // of live()
  bool elastic() const { return elastic_; }  // some job is elastic, or was
  JobId next_id() const { return JobId(next_job_); }
  // Epochs and incarnations that are given are at least this
  // (CoordinatorStarted::numbers_from).
  uint64_t numbers_from() const { return numbers_from_; }
  // The job that has the name of `spec`; invalid: nobody.
  JobId Named(const JobSpec& spec) const;
  // The job that has the checkpoint directory of `spec`; invalid: nobody.
  JobId SavingIn(const JobSpec& spec) const;

  // Both run there as a packed pair, or are about to.
  bool Together(const Job& job, JobId other) const;
  ShareUnit UnitOf(const Job& job) const;
  // Several users have active jobs.
  bool HasSeveralUsers() const;
  // Two jobs: of two users, where several have active ones.
  bool AreIndependent(const Job& a, const Job& b) const;
  // It has `next`, with that partner, already.
  bool Unchanged(const Job& job, const std::vector<AcceleratorId>& next,
                 JobId partner) const;

  // A new job, active and waiting.
  Job& Add(Time now, const JobSpec& spec);
  // So many ids are given to nobody.
  void SkipIds(uint64_t count) { next_job_ += count; }
  // Rows are lost, and may have given numbers below `from`.
  void PassLostNumbers(uint64_t from);
  // After Job::assigned or the spec changed.
  void NoteWaiting(Job& job);
  void NoteElastic(const Job& job) { elastic_ |= job.spec.elastic(); }
  // The job leaves `state` kActive or kHeld for this one. It stays live while a
  // process of it is.
  void End(Job& job, JobState state);
  void Release(Job& job);  // from kHeld, or once more
  // Looked at by the next Prune: a process of it has ended.
  void MayBeOver(const Job& job) { over_.push_back(job.id); }
  // Jobs that are over leave live(), and beyond `ended_kept` the table.
  void Prune(size_t ended_kept);
  // Ids of those added or released since the last call: their shares do not
  // count yet (Job::counted_since).
  std::vector<JobId> TakeUncounted();

  static auto State(auto& t) {
    return std::tie(t.jobs_, t.names_, t.ended_, t.next_job_, t.numbers_from_);
  }
  std::vector<JobId> LiveIds() const;
  // After State was read: `live` are the live ones. DATA_LOSS: one is unknown.
  absl::Status Rebuild(const std::vector<JobId>& live);

 private:
  void KeepDirectory(const Job& job);

  std::map<JobId, Job> jobs_;  // by_id_: only to look up
  absl::flat_hash_map<JobId, std::map<JobId, Job>::iterator> by_id_;
  Live live_;
  Live waiting_;
  size_t active_ = 0;
  bool elastic_ = false;
  absl::flat_hash_map<std::string, JobId> names_;  // of jobs not over
  // The job that saves in a directory, by owner and path. Jobs of two owners
  // may name the same path: the file system says which of them can write there.
  absl::flat_hash_map<std::pair<std::string, std::string>, JobId> directories_;
  std::deque<JobId> ended_;
  uint64_t next_job_ = 1;
  uint64_t numbers_from_ = 0;
  std::vector<JobId> over_;  // jobs that may be, of live_
  std::vector<JobId> uncounted_;
};

// What the worker of that rank holds is not (or no longer) what the job is
// assigned.
bool MustGo(const Job& job, int rank);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_STATE_JOB_TABLE_H_
