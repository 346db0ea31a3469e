// Dependencies between jobs. A job whose file names parents (after_success,
// after_any) is held until these have ended as it says, and is then released;
// it is cancelled if a parent of after_success ends without success. The names
// are resolved to ids when the job is submitted. Not thread-safe.
#ifndef GAVEL_COORDINATOR_ENGINE_DEPENDENCIES_H_
#define GAVEL_COORDINATOR_ENGINE_DEPENDENCIES_H_

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

namespace gavel::engine {

struct State;

// Index of Job::parents, by parent.
struct Dependencies {
  // A parent that has not ended, and a job that waits for it.
  std::set<std::pair<JobId, JobId>> children;
  // Jobs for which ParentsEnded is to be recorded.
  std::set<JobId> settled;
};

// Whether the job is held for its parents, and for nothing else.
bool AwaitsJobs(const Job& job);
// "waiting: for job 12 prepare (running) and 2 more".
Reason WhyAwaiting(const State& s, const Job& job);

bool NamesParents(const JobUpdate& update);
// The parents that a new job has yet to wait for, or that failed.
// INVALID_ARGUMENT: a name or id stands for no job of the job's owner.
absl::StatusOr<std::vector<Parent>> FindParents(const State& s,
                                                const JobSpec& spec);
// Sets `e->parents`. Returns why the job can't wait for these; empty if it can.
// Beside what a new job may not do, it may not wait for itself, whether at once
// or through other jobs, and may not have started.
std::string FindNewParents(const State& s, const Job& job,
                           event::JobUpdated* e);

// The job waits for exactly these from now on.
void SetParents(State& s, Time now, Job& job, std::vector<Parent> parents);
// The same of a new job that is held and was never in the queue.
void HoldForParents(State& s, Job& job, const std::vector<Parent>& parents);
void ForgetParents(State& s, Job& job);
// Lets a job that was held for another reason wait for its parents again.
// False: it has none, or waits for them already.
bool AwaitAgain(State& s, Time now, Job& job);
// The job has ended: notes that for the jobs that wait for it.
void TellChildren(State& s, Job& job);
// Finds the children again, in a state that was read.
void RebuildDependencies(State& s);

// Releases or cancels jobs that need not wait any longer, a bounded number a
// step.
void SettleChildren(State& s, Time now);
void On(State& s, Time now, const event::ParentsEnded& e);

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_DEPENDENCIES_H_
