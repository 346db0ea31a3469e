// How often and how long a worker may try to start, how long to leave
// (workers/sweeper.h), and how often to begin a lease. The times count from the
// last sign of work: as long as bytes of its data, state or checkpoint move, a
// process is busy, and not stuck. Pure functions.
#ifndef GAVEL_COORDINATOR_ENGINE_WORKER_LIMITS_H_
#define GAVEL_COORDINATOR_ENGINE_WORKER_LIMITS_H_

#include <algorithm>
#include <cmath>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// A worker is the only witness of its bytes, so they buy it this much time and
// no more: 400 GB at 30 MB/s.
inline constexpr double kBusy_s_max = 4 * 3600;

// Each lease is a row of the journal and of the history, and a worker may give
// it back at once.
inline constexpr int kLeaseStartsMax = 100;
inline constexpr double kLeaseStartsWindow_s = 10;

inline double StartTimeout(const Job& job, const EngineOptions& options) {
  return job.spec.start_timeout_s.value_or(options.launch_timeout_s);
}

// A cancelled job has nothing to save, so its own limit does not count.
inline double PauseGrace(const Job& job, const EngineOptions& options) {
  if (job.state == JobState::kCancelled) return options.pause_grace_s;
  return job.spec.pause_grace_s.value_or(options.pause_grace_s);
}

// A job whose process failed starts again at once. After each further failure
// in a row it waits twice as long, up to the limit: one that fails fast would
// else keep its server busy with starting it.
inline double RetryDelay(const Job& job) {
  constexpr double kFirst_s = 2;
  constexpr double kMax_s = 60;
  if (job.failures_in_a_row < 2) return 0;
  return std::min(kMax_s, std::ldexp(kFirst_s, job.failures_in_a_row - 2));
}

// Of a worker that gives its lease back: only its reports tell of speeds.
inline Progress WithoutSpeed(Progress progress) {
  progress.throughput_steps_per_s = progress.window_s = 0;
  return progress;
}

// Starts in a row that may come to nothing.
inline int StartsMax(const Job& job) {
  return std::max(1, job.spec.retries_max);
}

// When what began at `since` is overdue: `limit_s` after its bytes last moved.
inline Time OverdueAt(Time since, double limit_s, const Worker& worker) {
  const Time busy_until = std::min(worker.bytes_at, since + kBusy_s_max);
  return std::max(since, busy_until) + limit_s;
}

// False: they have not risen, which is no sign of work.
inline bool NoteBytes(Time now, const BytesMoved& moved, Worker& worker) {
  if (!worker.is_live() || moved.bytes <= worker.bytes_moved) return false;
  worker.bytes_moved = moved.bytes;
  worker.bytes_at = now;
  return true;
}

// Seconds that a process which starts has neither spoken nor moved a byte.
inline double IdleStart(Time now, const Worker& worker) {
  if (worker.launch_sent_at == kNever) return 0;
  return std::max(0.0, now - std::max(worker.launch_sent_at, worker.bytes_at));
}

// Whether one more lease may begin now, which counts then.
inline bool TakeLeaseStart(Time now, Worker& worker) {
  if (now - worker.lease_starts_since >= kLeaseStartsWindow_s) {
    worker.lease_starts_since = now;
    worker.lease_starts = 0;
  }
  return ++worker.lease_starts <= kLeaseStartsMax;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_WORKER_LIMITS_H_
