// How processes and jobs end, and what of it is a failure.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/operator_rules.h"
#include "coordinator/engine/worker_limits.h"
#include "core/launch_errors.h"
#include "core/rules.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr int kHungLaunchesMax = 2;

}  // namespace

void Engine::ProcessEnded(Time now, Job& job, int rank,
                          const WorkerExited& exit) {
  Worker& worker = job.workers[static_cast<size_t>(rank)];
  if (IsLoss(worker, exit)) failure_rate_.AddLoss();
  const bool leaving =
      worker.out_of_memory ||
      (worker.leaving && (job.failure_counted || !DiedByItself(worker, exit)));
  const bool restarts = worker.out_of_memory && job.is_gang();
  const bool fetched_nothing = !worker.leaving &&
                               worker.process == ProcessState::kLaunching &&
                               exit.launch_error == kStoppedWhileFetching;
  // Not that it was quick: it was waited for, and stopped.
  const bool overdue =
      worker.process == ProcessState::kLaunching && exit.stopped;
  const bool silent = overdue && !worker.spoke;
  const double unready_s =
      overdue && worker.spoke ? StartTimeout(job, options_) : 0;
  // One that was stopped and has never asked for a lease was starting all
  // along.
  if (exit.stopped && worker.held_epoch == 0 && worker.parked_at == kNever) {
    worker.process = ProcessState::kLaunching;
  }
  BookStart(now, job, worker);
  fill_due_ |= worker.out_of_memory;  // it may run again, elsewhere
  const std::set<AcceleratorId> contexts = std::move(worker.contexts);
  worker.contexts.clear();
  worker.parked_at = kNever;
  worker.kept_on = AcceleratorId();
  worker.out_of_memory = false;
  over_.push_back(job.id);
  Touch(job);
  worker.process = ProcessState::kNone;
  worker.leaving = false;
  worker.restarting = false;
  worker.finished = false;
  worker.unswept = false;
  const FailedEnd end{exit, std::exchange(worker.hung_s, 0), silent, unready_s};
  EndLease(now, job, worker);
  worker.pause_sent_at = kNever;
  worker.stop_sent_at = kNever;
  worker.launch_sent_at = kNever;
  worker.last_nonce = 0;
  fetching_.erase({job.id, rank, worker.incarnation});
  if (!contexts.empty()) {
    std::erase_if(contexts_, [&](const auto& entry) {
      return entry.second == WorkerKey{job.id, rank, worker.incarnation};
    });
  }
  for (const AcceleratorId freed : contexts) AcceleratorFreed(freed);
  const bool by_itself = exit.signal == 0 && exit.launch_error.empty();
  const bool of_gang = rank < job.world_size;
  if (by_itself && exit.exit_code == 0 && job.active() && of_gang) {
    worker.process = ProcessState::kDone;
    if (job.AllDone()) {
      EndJob(now, job, JobState::kFinished,
             Reason{ReasonCode::kFinished, "", 0, 0});
    }
    ReviveDone(now, job);
    return;
  }
  if (!job.active()) return;
  if (fetched_nothing && GiveUpFetching(now, job, worker.server)) return;
  if (exit.launch_hung && GiveUpLaunching(now, job, exit)) return;
  const bool failed = !leaving && !exit.no_failure && !exit.launch_hung &&
                      !(by_itself && exit.exit_code == kExitEvicted);
  if (failed) {
    CountFailure(now, job, end);
  } else if (restarts || (of_gang && !leaving && job.HoldsAny())) {
    RestartGang(now, job);  // no failure, but the others can't go on alone
  }
  if (job.active() && !job.assigned.empty()) {
    EnsureProcesses(now, job, job.assigned);
  }
}

// A launch that came to nothing: it did not get to exec, or its agent was lost
// over it. One other try, and it is held: a job whose directory hangs does not
// occupy, or take down, one server after the other.
bool Engine::GiveUpLaunching(Time now, Job& job, const WorkerExited& exit) {
  if (++job.hung_launches < kHungLaunchesMax) return false;
  const std::string why = exit.launch_error.empty()
                              ? "its agent was lost meanwhile"
                              : exit.launch_error;
  EndJob(
      now, job, JobState::kHeld,
      Reason{ReasonCode::kHeldHungLaunch, StrCat("on ", exit.server, ": ", why),
             static_cast<double>(job.id.value()),
             static_cast<double>(job.hung_launches)});
  return true;
}

void Engine::CountFailure(Time now, Job& job, const FailedEnd& end) {
  const WorkerExited& exit = end.exit;
  ++job.failures_in_a_row;
  job.failure_counted = true;
  job.last_error = exit.error_line;
  if (!exit.launch_error.empty()) {
    // Trying again would end the same way.
    return EndJob(now, job, JobState::kHeld,
                  Reason{ReasonCode::kHeldLaunch, exit.launch_error, 0, 0});
  }
  if (job.failures_in_a_row < job.spec.retries_max ||
      !Rules::Hold(Rule::kRetriesAreBounded)) {
    return RestartGang(now, job);
  }
  const auto failures = static_cast<double>(job.failures_in_a_row);
  if (end.hung_s > 0) {
    return EndJob(now, job, JobState::kHeld,
                  Reason{ReasonCode::kHeldHung, std::to_string(job.id.value()),
                         failures, end.hung_s});
  }
  if (end.silent) {
    return EndJob(now, job, JobState::kHeld,
                  Reason{ReasonCode::kHeldSilent,
                         std::to_string(job.id.value()), failures, 0});
  }
  if (end.unready_s > 0) {
    return EndJob(
        now, job, JobState::kHeld,
        Reason{ReasonCode::kHeldUnready, std::to_string(job.id.value()),
               failures, end.unready_s});
  }
  EndJob(now, job, JobState::kHeld,
         Reason{ReasonCode::kHeldFailures, std::to_string(job.id.value()),
                static_cast<double>(job.failures_in_a_row),
                static_cast<double>(exit.signal != 0 ? -exit.signal
                                                     : exit.exit_code),
                job.last_error});
}

void Engine::EndJob(Time now, Job& job, JobState state, Reason reason,
                    PauseTier tier) {
  BookAll(now);
  BookTarget(now, job);
  SettleIsolated(job);
  Assign(now, job, {}, JobId());
  ForgetPlan(job);
  over_.push_back(job.id);
  Touch(job);
  if (job.active()) --active_jobs_;
  job.state = state;
  job.reason = std::move(reason);
  job.ended_at = now;
  EndWorkers(now, job, tier);
  WithdrawAccusations(job.id);
  if (state != JobState::kHeld) {
    names_.erase(NameOf(job.spec));
    ended_.push_back(job.id);
    throughputs_.RemoveJob(job.id);
    speeds_.RemoveJob(job.id);
    time_received_.Remove(job.id);
    tried_.erase(tried_.lower_bound({job.id, 0}),
                 tried_.lower_bound({JobId(job.id.value() + 1), 0}));
    std::erase_if(tried_pairs_,
                  [&](const auto& entry) { return entry.first.Holds(job.id); });
  }
  unsolved_ = true;
  fill_due_ = true;
}

}  // namespace gavel
