#include "coordinator/engine/assignments.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "coordinator/engine/job.h"

namespace gavel::engine {

// Changes the size of a gang that is assigned anew. If it grows, all processes
// end with a checkpoint and start again; if it shrinks, those of the ranks
// beyond the new size end. A worker that was done, though its gang had not come
// to its end, starts again with the new gang.
void Assignments::ChangeWorldSize(Time now, Job& job, int world_size) {
  const bool grows = world_size > job.world_size;
  job.world_size = world_size;
  job.resizing_since = job.HoldsAny() ? now : kNever;
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.process == ProcessState::kDone) {
      worker.process = ProcessState::kNone;
    }
    if (!worker.is_live()) continue;
    if (!grows && rank < world_size) continue;
    worker.restarting |= grows;
    processes_.Pause(now, job, rank, PauseTier::kEvict);
  }
}

void Assignments::NoteResized(Time now, Job& job) {
  if (job.resizing_since == kNever) return;
  const bool all = std::ranges::all_of(job.gang(), [&](const Worker& worker) {
    return worker.held_epoch == job.epoch;
  });
  if (!all) return;
  job.resize_s = now - job.resizing_since;
  job.resizing_since = kNever;
}

void Assignments::Assign(Time now, Job& job,
                         const std::vector<AcceleratorId>& next, JobId partner,
                         PauseTier tier) {
  if (jobs_.Unchanged(job, next, partner)) return;
  agenda_.MakeRoomSoon();
  changes_.Touch(job);
  Job* const other = jobs_.FindLive(job.partner);
  if (other != nullptr) changes_.Touch(*other);
  if (allocation_.result().is_assignment) {
    // Books the job and its partner as the unit that they were until now.
    ledger_.BookJob(now, job);
    if (other != nullptr) ledger_.BookJob(now, *other);
  }
  for (Worker& worker : job.workers) ledger_.BookStart(now, job, worker);
  for (AcceleratorId old : job.assigned) {
    assigned_.Remove(old, job.id);
    if (job.spec.opaque()) cluster_.SetReserved(old, false);
  }
  const bool resized =
      !next.empty() && static_cast<int>(next.size()) != job.world_size;
  if (next.empty()) job.resizing_since = kNever;
  if (resized) ChangeWorldSize(now, job, static_cast<int>(next.size()));
  job.assigned = next;
  jobs_.NoteWaiting(job);
  job.partner = next.empty() ? JobId() : partner;
  for (AcceleratorId accelerator : next) {
    assigned_.Add(accelerator, job.id);
    if (job.spec.opaque()) cluster_.SetReserved(accelerator, true);
  }
  if (job.spec.opaque()) {
    assigned_.Recount();
    agenda_.SolveSoon();
  }
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    const Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.held_epoch == 0 || (resized && worker.leaving)) continue;
    const bool goes = static_cast<size_t>(rank) < next.size();
    const bool stays =
        next.empty() ? MayStayParked(worker, cluster_)
                     : goes && MayMove(worker, next[static_cast<size_t>(rank)],
                                       cluster_);
    processes_.Pause(now, job, rank, stays ? tier : PauseTier::kEvict);
  }
  processes_.EndMisplaced(now, job);
  processes_.HoldLaunches(now, job);
  if (other != nullptr) processes_.HoldLaunches(now, *other);
  if (next.empty()) return;
  ++job.epoch;
  processes_.EnsureProcesses(now, job, next);
  processes_.NotifyReady(job);
}

}  // namespace gavel::engine
