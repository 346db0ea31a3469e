// Job arrays and sweeps: one submission, several jobs (job_array.h). Each
// element is a job with an id of its own; the array has the id before that of
// its first element, and is no job. An element is in the queue from when it is
// its turn: at most as many as the array may run at once, and no more than the
// cluster could run. The others wait behind the queue (reason::ArrayLimit):
// they are held, and no problem or plan contains them.
//
// Functions on State and on the table of jobs, and the counts that follow from
// the jobs (ArrayBook). Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_ARRAYS_H_
#define GAVEL_COORDINATOR_ENGINE_ARRAYS_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel {

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

// Says that the number is an array's, where the id of one job is needed.
std::string ArrayInstead(const std::map<JobId, Job>& jobs, JobId array);

}  // namespace gavel

namespace gavel::engine {

struct State;

// By array that has any: the elements in the queue, and those that wait behind
// it. Follows from the jobs.
class ArrayBook {
 public:
  struct Counts {
    size_t queued = 0;
    std::set<JobId> waiting;  // the first one is the next
  };

  void NoteQueued(const Job& element);
  void NoteWaiting(const Job& element);
  // An element that was in the queue, or waited, does so no longer.
  void NoteGone(const Job& element, bool was_queued);
  // Whether some element of the array waits.
  bool AnyWaits(JobId array) const;
  // The array's counts; null: nothing is to be counted.
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

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ARRAYS_H_
