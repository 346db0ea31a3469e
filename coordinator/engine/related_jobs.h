// Jobs that wait for other jobs: the elements of an array for their turn, and
// jobs whose files name parents for the end of these. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_RELATED_JOBS_H_
#define GAVEL_COORDINATOR_ENGINE_RELATED_JOBS_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/reason.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// Job arrays and sweeps: one submission, several jobs (job_array.h). Each
// element is a job with an id of its own; the array has the id before that of
// its first element, and is no job. An element is in the queue from when it is
// its turn: at most as many as the array may run at once, and no more than the
// cluster could run. The others wait behind the queue (reason::ArrayLimit):
// they are held, and no problem or plan contains them.
//
// Functions on State and on the table of jobs, and the counts that follow from
// the jobs (ArrayBook). Not thread-safe.

// The first element of the array that is still known; null: there is no such
// array.
const Job* FirstElement(const std::map<JobId, Job>& jobs, JobId array);
// The elements of the array that are still known, ascending; none: there is no
// such array.
std::vector<JobId> ElementsOf(const std::map<JobId, Job>& jobs, JobId array);
// The jobs that the last submission has made.
std::vector<JobId> LastSubmitted(const std::map<JobId, Job>& jobs);
// The job that the command names, or the elements of its array that it names,
// ascending.
std::vector<JobId> NamedJobs(const std::map<JobId, Job>& jobs,
                             const event::JobCommanded& e);

// The id by which people know the job: "42_7" of an element, else "12".
std::string ShownId(const Job& job);

// Says that the number is an array's, where the id of one job is needed.
std::string ArrayInstead(const std::map<JobId, Job>& jobs, JobId array);

}  // namespace gavel

namespace gavel::engine {

struct State;

// For each array with elements that have not ended: the number of these, how
// many of them are in the queue, and which ones are still to join it. Derived
// from the jobs.
class ArrayBook {
 public:
  struct Counts {
    size_t present = 0;
    size_t queued = 0;
    std::set<JobId> waiting;  // the first one is the next
  };

  void NoteSubmitted(const Job& element);
  void NoteQueued(const Job& element);
  void NoteWaiting(const Job& element);
  // An element that was in the queue, or waited, or was held, is held or has
  // ended.
  void NoteGone(const Job& element, bool was_queued);
  // Whether some element of the array waits.
  bool AnyWaits(JobId array) const;
  // The array's counts; null: all of its elements have ended.
  const Counts* Find(JobId array) const;
  void Clear();

  // The arrays that may have room for further elements, since the last call or
  // since the cluster had another number of accelerators.
  std::set<JobId> TakeDue(size_t accelerators);

 private:
  std::map<JobId, Counts> counts_;
  std::set<JobId> due_;
  size_t accelerators_ = 0;  // at the last TakeDue
};

// Whether the element waits behind the queue.
bool WaitsForArray(const Job& job);

// Makes the elements of a submission, all of which wait.
void SubmitArray(State& s, Time now, const event::JobSubmitted& e);
// Makes the one element that JobSubmitted::element describes. The first one of
// its array makes the array, too.
void SubmitElement(State& s, Time now, const event::JobSubmitted& e);
// The element waits for its turn.
void WaitForTurn(State& s, Job& element);
// Lets the next elements into the queue, as many as there is room for: a row of
// the journal for each. Not while a caller looks through the live jobs.
void FillArrays(State& s, Time now);

// Why the command can be carried out on no element of the array; empty: it can.
std::string WhyNoElement(const State& s, const event::JobCommanded& e);
// The indices of those elements that it names and can be carried out on.
std::string FittingElements(const State& s, const event::JobCommanded& e);

// Counts again, in a state that was read.
void RebuildArrays(State& s);

// Dependencies between jobs. A job whose file names parents (after_success,
// after_any) is held until these have ended as it says, and is then released;
// it is cancelled if a parent of after_success ends without success. A parent
// may be an array, which has ended once all of its elements have, and has
// failed once one of them has. The names are resolved to ids when the job is
// submitted: after_by_index to one element of an array for each element of the
// submission. Not thread-safe.

// Index of Job::parents, by parent.
struct Dependencies {
  // A parent, which is a job or an array that has not ended, and a job that
  // waits for it. The failure of a parent cancels its children in if_finished;
  // those in however_ended do not depend on how it ends. So the failure of an
  // element looks at no child that it does not concern.
  using Pairs = std::set<std::pair<JobId, JobId>>;
  Pairs if_finished;
  Pairs however_ended;
  // Jobs for which ParentsEnded is to be recorded.
  std::set<JobId> settled;
};

// Whether the job is held for its parents, and for nothing else.
bool AwaitsJobs(const Job& job);
// "waiting: for job 12 prepare (running), job 13 a (waiting), job 14 b
// (waiting) and 2 more". Held parents come first, with the reason why they are
// held.
Reason WhyAwaiting(const State& s, const Job& job);

bool NamesParents(const JobUpdate& update);
// The parents that a new job has yet to wait for, or that failed.
// INVALID_ARGUMENT: a name or id stands for no job or array of the job's owner,
// or an array lacks an index that after_by_index needs.
absl::StatusOr<std::vector<Parent>> FindParents(const State& s,
                                                const JobSpec& spec);
// The parents of the element with that index, of those of its submission: the
// element of the same index in place of an array that is named by index.
std::vector<Parent> ParentsOfElement(const State& s,
                                     const std::vector<Parent>& parents,
                                     int index);
// Sets `e->parents`. Returns why the job can't wait for these; empty if it can.
// Beside what a new job may not do, it may not wait for itself, whether at once
// or through other jobs, and may not have started.
std::string FindNewParents(const State& s, const Job& job,
                           event::JobUpdated* e);

// The job waits for exactly these from now on.
void SetParents(State& s, Time now, Job& job, std::vector<Parent> parents);
// The same of a new job that is held and was never in the queue.
void HoldForParents(State& s, Job& job, std::vector<Parent> parents);
void ForgetParents(State& s, Job& job);
// Lets a job that was held for another reason wait for its parents again.
// False: it has none, or waits for them already.
bool AwaitAgain(State& s, Time now, Job& job);
// The job has ended: notes that for the jobs that wait for it.
void TellChildren(State& s, Job& job);
// How many jobs wait for it, or for all of its array.
size_t CountChildren(const State& s, const Job& job);
// Finds the children again, in a state that was read.
void RebuildDependencies(State& s);

// Releases or cancels jobs that need not wait any longer, a bounded number a
// step.
void SettleChildren(State& s, Time now);
void On(State& s, Time now, const event::ParentsEnded& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_RELATED_JOBS_H_
