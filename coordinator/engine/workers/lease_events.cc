#include "coordinator/engine/workers/lease_events.h"

#include <algorithm>

#include "coordinator/engine/process_places.h"
#include "coordinator/engine/worker_limits.h"

namespace gavel::engine {

void LeaseEvents::On(Time now, const event::WorkerJoined& e) {
  Worker* worker = jobs_.Find(e.hello.worker);
  Job* job = jobs_.Find(e.hello.worker.job);
  if (worker == nullptr) return;
  changes_.Touch(*job);
  worker->spoke = true;
  job->hung_launches = 0;
  processes_.EndSilence(now, e.hello.worker, *worker);
  if (!e.hello.ready) {
    worker->launch_sent_at = now;  // its limit counts from here
    return agenda_.Due(now + StartTimeout(*job, options_));
  }
  worker->process = ProcessState::kJoined;
  worker->launch_sent_at = kNever;
  worker->stop_sent_at = kNever;
  worker->asked_at = now;
  agenda_.Due(now + StartTimeout(*job, options_));
  worker->progress = e.hello.progress;
  worker->progress_at = now;
  worker->Know(now, e.hello.progress);
  checkpoints_.NoteRestored(*job, worker->server);
  checkpoints_.EndFetch(e.hello.worker);
  // It got somewhere since the last start. An eviction alone makes a newer
  // generation of the same step.
  const Generation& start = e.hello.progress.last_generation;
  if (start.step > job->restored.step) job->failures_in_a_row = 0;
  job->restored = std::max(job->restored, start);
  // Its gang may have come to its end without it.
  processes_.ReviveDone(now, *job);
  processes_.NotifyReady(*job);
}

void LeaseEvents::On(Time now, const event::LeaseStarted& e) {
  Job* job = jobs_.Find(e.worker.job);
  Worker* worker = jobs_.Find(e.worker);
  if (worker == nullptr) return;
  changes_.Touch(*job);
  ledger_.BookStart(now, *job, *worker);
  worker->held_epoch = e.epoch;
  worker->held = e.accelerator;
  worker->world_size = job->world_size;
  worker->held_with = job->partner;
  worker->lease_seq = outbox_.seq();
  worker->leased_at = now;
  worker->accrued_at = now;
  worker->lease_expires = now;    // until it is granted
  worker->reported_at = -kNever;  // the first report of each lease is journaled
  worker->unjournaled = {};
  worker->stepped_at = now;
  worker->hung_s = 0;
  job->failure_counted = false;
  worker->pause_tier = PauseTier::kPark;
  worker->parked_at = kNever;
  worker->kept_on = AcceleratorId();
  worker->left_on = AcceleratorId();
  if (CountsContexts(cluster_.accelerator(worker->held).info) &&
      worker->contexts.insert(worker->held).second) {
    leases_.AddContext(worker->held, e.worker);
  }
  leases_.Begin(worker->held, e.worker);
  if (e.worker.rank == 0) job->stays.Begin(e.accelerator);
  checkpoints_.NoteWriter(*job, worker->server, e.epoch);
  trials_.NoteTried(*job, *worker);
  assignments_.NoteResized(now, *job);
  if (job->spec.opaque() && worker->launch_sent_at == kNever) {
    worker->lease_expires = kNever;
    processes_.BeginLaunch(now, *job, e.worker.rank);
  }
}

void LeaseEvents::On(Time now, const event::LeaseEnded& e) {
  Worker* worker = jobs_.Find(e.worker);
  Job* job = jobs_.Find(e.worker.job);
  if (worker == nullptr || worker->held_epoch != e.epoch) return;
  changes_.Touch(*job);
  // It ran there. Judged by this row alone, as in StepsReported.
  if (e.cause == ReleaseCause::kPaused && !e.finished &&
      e.progress.steps_done > 0) {
    accusations_.NoteGoodEnd(e.worker.job, worker->held);
  }
  worker->progress = e.progress;
  worker->progress_at = now;
  worker->Know(now, e.progress);
  if (e.worker.rank == 0 && e.progress.window_s > 0) {
    measurements_.Measure(now, *job, e.progress);
  }
  worker->finished |= e.finished;
  if (e.finished_code) worker->finished_code = e.finished_code;
  if (e.worker.rank == 0) {
    job->stays.End(e.cause == ReleaseCause::kPaused && !e.finished,
                   e.worker.incarnation, e.progress.pausing_s);
  }
  worker->need_bytes = std::max(worker->need_bytes, e.progress.state_bytes);
  const bool given_up = worker->held_epoch == job->epoch;
  const AcceleratorId held = worker->held;
  const JobId held_with = worker->held_with;
  const bool kept = worker->pause_tier == PauseTier::kKeep &&
                    e.cause == ReleaseCause::kPaused && !e.finished;
  endings_.EndLease(now, *job, *worker);
  worker->parked_at = now;
  worker->kept_on = kept ? held : AcceleratorId();
  worker->left_on = held;
  if (e.cause == ReleaseCause::kOutOfMemory ||
      e.cause == ReleaseCause::kNoRoom) {
    worker->out_of_memory = e.finished;
    endings_.OutOfMemory(*job, held, held_with, e.cause, now);
  } else if (given_up && !e.finished && job->active() &&
             !job->assigned.empty()) {
    endings_.GiveUpEpoch(now, *job, e.cause);
  }
  processes_.ReviveDone(now, *job);
  processes_.NotifyReady(*job);
}

void LeaseEvents::On(Time now, const event::StepsReported& e) {
  Worker* worker = jobs_.Find(e.worker);
  if (worker == nullptr) return;
  // It runs. Judged by this row alone: others are not there at a replay.
  if (e.progress.throughput_steps_per_s > 0) {
    jobs_.at(e.worker.job).failed_starts = 0;
    if (worker->held_epoch != 0) {
      accusations_.NoteGoodEnd(e.worker.job, worker->held);
    }
  }
  worker->need_bytes = std::max(worker->need_bytes, e.progress.device_bytes);
  Job& job = jobs_.at(e.worker.job);
  changes_.Touch(job);
  hang_.NoteSteps(now, *worker, e.progress);
  worker->Know(now, e.progress);
  if (e.worker.rank != 0 || worker->held_epoch == 0) return;
  measurements_.Measure(now, job, e.progress);
}

}  // namespace gavel::engine
