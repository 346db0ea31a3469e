#include "coordinator/engine/workers/hang_watch.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "coordinator/engine/worker_limits.h"

namespace gavel::engine {
namespace {

// A loop may stand still for this many of its steps, however long they take.
constexpr double kHangSteps = 100;

// What `gavel why` and `gavel nodes` tell: a standstill of this much of what is
// allowed.
constexpr double kToldFraction = 0.25;

}  // namespace

void HangWatch::NoteSteps(Time now, Worker& worker, const Progress& told) {
  const Progress& before = worker.progress;
  if (told.steps_done != before.steps_done ||
      told.boundaries != before.boundaries ||
      told.last_generation != before.last_generation) {
    worker.stepped_at = now;
  }
  worker.progress = told;
  worker.progress_at = now;
}

double HangWatch::HangTimeout(const Job& job, const Worker& worker) const {
  const double seconds =
      job.spec.hang_timeout_s.value_or(options_.hang_timeout_s);
  if (seconds <= 0 || worker.held_epoch == 0) return kNever;
  if (job.spec.hang_timeout_s.has_value()) return seconds;
  const std::string& type = cluster_.accelerator(worker.held).info.type;
  const Throughput speed = throughputs_.Get(job.id, type);
  const bool known =
      speed.source != ThroughputSource::kGuessed && speed.steps_per_s > 0;
  return known ? std::max(seconds, kHangSteps / speed.steps_per_s) : seconds;
}

std::optional<Standstill> HangWatch::StandstillOf(const Job& job) const {
  std::optional<Standstill> longest;
  for (size_t rank = 0; rank < job.workers.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    const double allowed_s = HangTimeout(job, worker);
    const double seconds = StandsStill(worker);
    if (seconds < kToldFraction * allowed_s) continue;
    if (longest && seconds <= longest->seconds) continue;
    longest = {static_cast<int>(rank), seconds, allowed_s};
  }
  return longest;
}

double HangWatch::StandsStill(const Worker& worker) {
  if (worker.held_epoch == 0) return 0;
  // Its loop may wait for a checkpoint that is being written.
  const Time since = OverdueAt(worker.stepped_at, 0, worker);
  return std::max(0.0, worker.progress_at - since);
}

}  // namespace gavel::engine
