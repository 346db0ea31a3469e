#include "coordinator/engine/assignments.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "coordinator/engine/job.h"
#include "coordinator/engine/state.h"

namespace gavel::engine {

// Changes the size of a gang that is assigned anew. If it grows, all processes
// end with a checkpoint and start again; if it shrinks, those of the ranks
// beyond the new size end. A worker that was done, though its gang had not come
// to its end, starts again with the new gang.
static void ChangeWorldSize(State& s, Time now, Job& job, int world_size);

void ChangeWorldSize(State& s, Time now, Job& job, int world_size) {
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
    Pause(s, now, job, rank, PauseTier::kEvict);
  }
}

void NoteResized(Time now, Job& job) {
  if (job.resizing_since == kNever) return;
  const bool all = std::ranges::all_of(job.gang(), [&](const Worker& worker) {
    return worker.held_epoch == job.epoch;
  });
  if (!all) return;
  job.resize_s = now - job.resizing_since;
  job.resizing_since = kNever;
}

void Assign(State& s, Time now, Job& job,
            const std::vector<AcceleratorId>& next, JobId partner,
            PauseTier tier) {
  if (s.jobs.Unchanged(job, next, partner)) return;
  s.agenda.MakeRoomSoon();
  s.changes.Touch(job);
  Job* const other = s.jobs.FindLive(job.partner);
  if (other != nullptr) s.changes.Touch(*other);
  if (s.allocation.result().is_assignment) {
    // Books the job and its partner as the unit that they were until now.
    s.ledger.BookJob(now, job);
    if (other != nullptr) s.ledger.BookJob(now, *other);
  }
  for (Worker& worker : job.workers) s.ledger.BookStart(now, job, worker);
  for (AcceleratorId old : job.assigned) {
    s.assigned.Remove(old, job.id);
    if (job.spec.opaque()) s.cluster.SetReserved(old, false);
  }
  const bool resized =
      !next.empty() && static_cast<int>(next.size()) != job.world_size;
  if (next.empty()) job.resizing_since = kNever;
  if (resized) ChangeWorldSize(s, now, job, static_cast<int>(next.size()));
  job.assigned = next;
  s.jobs.NoteWaiting(job);
  job.partner = next.empty() ? JobId() : partner;
  for (AcceleratorId accelerator : next) {
    s.assigned.Add(accelerator, job.id);
    if (job.spec.opaque()) s.cluster.SetReserved(accelerator, true);
  }
  if (job.spec.opaque()) {
    s.assigned.Recount();
    s.agenda.SolveSoon();
  }
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    const Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.held_epoch == 0 || (resized && worker.leaving)) continue;
    const bool goes = static_cast<size_t>(rank) < next.size();
    const bool stays =
        next.empty() ? MayStayParked(worker, s.cluster)
                     : goes && MayMove(worker, next[static_cast<size_t>(rank)],
                                       s.cluster);
    Pause(s, now, job, rank, stays ? tier : PauseTier::kEvict);
  }
  EndMisplaced(s, now, job);
  HoldLaunches(s, now, job);
  if (other != nullptr) HoldLaunches(s, now, *other);
  if (next.empty()) return;
  ++job.epoch;
  EnsureProcesses(s, now, job, next);
  NotifyReady(s, job);
}

}  // namespace gavel::engine
