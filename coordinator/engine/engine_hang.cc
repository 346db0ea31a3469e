// Workers whose loop stands still: no step, no boundary, while their lease
// thread goes on and renews. Without this, one that nobody asks to pause would
// keep its accelerator for ever.
//
// Judged by what the worker itself reports, about once a second: that its
// counts have not changed. Silence is no proof; where nothing is heard the
// lease ends.
#include <algorithm>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/worker_limits.h"
#include "core/rules.h"
#include "core/text.h"

namespace gavel {
namespace {

// A loop may stand still for so many of its steps, however long they take.
constexpr double kHangSteps = 100;
// What `gavel why` and `gavel nodes` tell: a standstill of this much of what is
// allowed.
constexpr double kToldFraction = 0.25;
// Where the last report is older, another look at it.
constexpr double kLookAgain_s = 5;

double StandsStill(const Worker& worker) {
  if (worker.held_epoch == 0) return 0;
  // Its loop may wait for a checkpoint that is being written.
  const Time since = OverdueAt(worker.stepped_at, 0, worker);
  return std::max(0.0, worker.progress_at - since);
}

}  // namespace

// Forgotten by a restart, like all that the worker tells again.
void Engine::NoteSteps(Time now, Worker& worker, const Progress& told) {
  const Progress& before = worker.progress;
  if (told.steps_done != before.steps_done ||
      told.boundaries != before.boundaries ||
      told.last_generation != before.last_generation) {
    worker.stepped_at = now;
  }
  worker.progress = told;
  worker.progress_at = now;
}

double Engine::HangTimeout(const Job& job, const Worker& worker) const {
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

// One that is asked to pause has the grace of that. Its process is ended, which
// counts as a failure of the job; meanwhile its lease is not renewed.
void Engine::SweepHung(Time now, const Job& job, int rank, Worker& worker) {
  if (worker.held_epoch == 0 || worker.pause_sent_at != kNever ||
      !Rules::Hold(Rule::kHungIsEnded)) {
    return;
  }
  const double allowed_s = HangTimeout(job, worker);
  if (allowed_s == kNever) return;
  if (StandsStill(worker) < allowed_s && worker.hung_s == 0) {
    return Due(std::max(worker.stepped_at + allowed_s, now + kLookAgain_s));
  }
  worker.hung_s = std::max(worker.hung_s, StandsStill(worker));
  Stop(now, worker, {job.id, rank, worker.incarnation}, options_.stop_grace_s);
}

std::optional<Standstill> Engine::StandstillOf(const Job& job) const {
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

}  // namespace gavel
