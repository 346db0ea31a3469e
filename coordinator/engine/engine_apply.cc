// What durable events do to the engine. Everything here is a function of the
// journal alone: it is run again, event by event, at a restart.
#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/operator_rules.h"
#include "coordinator/engine/type_names.h"
#include "coordinator/engine/worker_limits.h"
#include "core/rules.h"

namespace gavel {
namespace {

// Submissions behind a copy of the journal that is started on in its place.
constexpr uint64_t kLostIdsMax = 10'000;

// A peer can have been away for so many starts of the coordinator.
constexpr size_t kTermsKept = 1024;

// As far as anybody can tell: its agent is gone, or can't be asked. Perhaps
// over the launch of this worker.
WorkerExited EndedWithAgent(const std::string& server, const Worker& worker,
                            const WorkerKey& key) {
  WorkerExited exit;
  exit.launch_hung = worker.process == ProcessState::kLaunching &&
                     !worker.spoke && !worker.leaving;
  exit.server = server;
  exit.worker = key;
  exit.signal = 9;
  exit.no_failure = true;
  return exit;
}

bool IsNewAgent(const AgentHello& hello, const Agent& before) {
  return before.incarnation != hello.incarnation ||
         before.state_id != hello.state_id;
}

// With another state directory.
bool IsAnother(const AgentHello& hello, const Agent& before) {
  return before.incarnation != 0 && before.state_id != hello.state_id &&
         Rules::Hold(Rule::kOtherAgentHasNotSwept);
}

}  // namespace

// When whatever was granted until now is over by every clock.
Time Engine::LeasesOver(Time now) const {
  return now + lease_duration_s_ * (1 + options_.drift);
}

// Every lease in the journal is taken as running, for a lease's length by
// every clock; workers that still hold theirs ask to renew and are adopted.
void Engine::On(Time now, const event::CoordinatorStarted& e) {
  term_ = e.term;
  // Of terms before a loss every row counts as known, also where one of them
  // was begun on the copy before the loss was accepted.
  if (e.after_loss) term_starts_.clear();
  term_starts_[term_] =
      e.after_loss ? std::numeric_limits<uint64_t>::max() : seq_;
  // Ids that were given to jobs that are lost are given to no others: their
  // workers may still run.
  if (e.after_loss) next_job_ += kLostIdsMax;
  if (e.numbers_from > 0) PassLostNumbers(now, e.numbers_from);
  if (term_starts_.size() > kTermsKept) {
    term_starts_.erase(term_starts_.begin());
  }
  term_began_at_ = now;
  // By the duration that they were given with, not by the one from now on.
  if (seq_ > 1) leases_until_ = std::max(leases_until_, LeasesOver(now));
  if (e.round_duration_s > 0) round_duration_s_ = e.round_duration_s;
  if (e.lease_duration_s > 0) lease_duration_s_ = e.lease_duration_s;
  if (!Rules::Hold(Rule::kGraceAsLeasesWereGiven)) {
    leases_until_ = LeasesOver(now);
  }
  mechanism_ = e.mechanism;
  queue_ = e.queue;
  memory_rounds_ = e.memory_rounds;
  Apply(e.settings);
  TakePolicyOf(e);
  for (auto& [name, agent] : agents_) {
    if (agent.reachable) agent.heard_at = now;
  }
  bool assigned = false;
  ForgetPlans();
  TouchAll();
  launches_ = {};  // whoever waited for its launch is set down anew
  for (auto& [id, live] : live_) {
    Job& job = *live;
    job.gang_address.clear();
    job.gang_epoch = 0;
    assigned |= !job.assigned.empty();
    for (size_t rank = 0; rank < job.workers.size(); ++rank) {
      Worker& worker = job.workers[rank];
      const bool goes =
          worker.leaving ||
          (worker.held_epoch != 0 && (worker.held_epoch != job.epoch ||
                                      MustGo(job, static_cast<int>(rank))));
      worker.asked_at = now;
      worker.lease_seq = 0;
      worker.lease_expires =
          Rules::Hold(Rule::kGraceAfterRestart) ? leases_until_ : now;
      worker.pause_sent_at = goes ? now : kNever;
      worker.stop_sent_at = kNever;
      worker.launch_repeated_at = kNever;
      worker.launch_sent_at = worker.process == ProcessState::kLaunching
                                  ? launches_.Next(now, options_.launches_per_s)
                                  : kNever;
      worker.reported_at = -kNever;
      worker.last_nonce = 0;
      worker.stepped_at = now;
      worker.hung_s = 0;
    }
  }
  strangers_.clear();  // every agent says hello again
  planned_ = false;
  planned_trials_.clear();
  round_ends_at_ = assigned ? now + round_duration_s_ : kNever;
  solving_ = false;
  unsolved_ = true;
  memory_due_ = true;
  Due(now);
}

// Agents start no incarnation, workers take no grant and checkpoint directories
// take no generation below the highest number that they have seen, which may be
// in a row that is lost. The term after a loss is the time of the day in
// seconds: numbers rise more slowly, and are below it also where the same copy
// was restored before. A lost row may have granted a lease, of any job and any
// accelerator: none is granted until all of them are over.
void Engine::PassLostNumbers(Time now, uint64_t from) {
  numbers_from_ = std::max(numbers_from_, from);
  lost_leases_until_ = LeasesOver(now);
  for (auto& [id, job] : jobs_) job.epoch = std::max(job.epoch + 1, from);
}

void Engine::On(Time now, const event::JobSubmitted& e) {
  const JobId id(next_job_++);
  const auto entry = jobs_.try_emplace(jobs_.end(), id);
  by_id_[id] = entry;
  Job& job = entry->second;
  live_.emplace_hint(live_.end(), id, &job);
  job.live = true;
  job.id = id;
  job.spec = e.spec;
  job.submitted_at = now;
  job.epoch = numbers_from_;
  job.scale_factor = job.world_size = e.spec.scale_factor;
  job.workers.resize(static_cast<size_t>(e.spec.scale_factor));
  throughputs_.AddJob(id, e.spec.throughputs, e.spec.scale_factor);
  BarTypes(job);
  job.profile = e.profile;
  FindTableRow(job);
  Emit(action::Reply{e.reply_to, id, ""});
  names_.emplace(NameOf(e.spec), id);
  if (options_.reset_interval_s > 0) fill_due_ = true;
  ++active_jobs_;
  uncounted_.push_back(id);
  Touch(job);
  NoteWaiting(job);
  elastic_ |= job.spec.elastic();
  unsolved_ = true;
  TakeReceived(id, e.received);
}

void Engine::TakeReceived(JobId id, const event::Received& received) {
  jobs_.at(id).received_s = received.total_s;
  for (const event::Received::OnType& on : received.types) {
    const auto type = std::ranges::find(cluster_.types(), on.type);
    if (type == cluster_.types().end()) continue;
    const auto index = static_cast<size_t>(type - cluster_.types().begin());
    time_received_.Begin(id, index, on.since_reset_s, on.deficit_s);
  }
}

void Engine::On(Time now, const event::ServerJoined& e) {
  const AgentHello& hello = e.hello;
  Agent& agent = agents_[hello.server];
  const Agent known = agent;
  const std::vector<int> before = cluster_.Capacity();
  const size_t types_before = cluster_.types().size();
  if (IsNewAgent(hello, known)) ForgetLost(hello.server);
  if (!cluster_.Join(hello.server, hello.accelerators).ok()) return;
  if (cluster_.types().size() > types_before) {
    for (auto& [id, job] : live_) {
      BarTypes(*job);
      NameInFull(cluster_.types(), &job->spec.throughputs);
      throughputs_.AddGiven(id, job->spec.throughputs);
    }
  }
  agent = {hello.incarnation, true, now, hello.host_memory_bytes,
           hello.state_id};
  agent.swept_at = known.swept_at;
  if (IsAnother(hello, known)) {
    agent.swept_at =
        std::max(leases_until_, LeasesOver(now)) + options_.pause_grace_s;
  }
  agent.own_checkpoints = hello.own_checkpoints;
  own_checkpoints_ |= hello.own_checkpoints;
  agent.stream_endpoint = hello.stream_endpoint;
  agent.stream_public_key = hello.stream_public_key;
  has_budgets_ |= hello.host_memory_bytes > 0;
  for (const AcceleratorInfo& info : hello.accelerators) {
    has_budgets_ |= info.memory_bytes > 0;
  }
  // Whoever mends a slow machine starts its agent anew.
  if (known.incarnation != hello.incarnation) {
    for (const AcceleratorId id : cluster_.servers().at(hello.server)) {
      speeds_.Forget(id);
    }
  }
  Due(now + options_.agent_timeout_s);
  Emit(action::SendToAgent{
      hello.server,
      AgentWelcome{hello.server, position(), options_.heartbeat_interval_s,
                   hello.incarnation, hello.state_id}});
  CountAssigned();
  Reconcile(now, hello, known);
  if (cluster_.Capacity() != before) unsolved_ = true;
  fill_due_ = true;
}

// A new agent has swept what its predecessor recorded, so its list of processes
// is complete: what is missing in it is gone. One with another state directory
// has swept nothing: what it does not list may run until its lease is over.
// What is in any agent's list and not known here must go.
void Engine::Reconcile(Time now, const AgentHello& hello, const Agent& before) {
  const bool starts =
      IsNewAgent(hello, before) || !Rules::Hold(Rule::kOnlyNewAgentHasSwept);
  const bool stranger_agent = IsAnother(hello, before);
  const bool swept = starts && !stranger_agent;
  std::set<WorkerKey> running;
  for (const RunningWorker& worker : hello.running) {
    running.insert(worker.worker);
  }
  for (auto& [id, live_job] : live_) {
    Job& job = *live_job;
    for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
      Worker& worker = job.workers[static_cast<size_t>(rank)];
      const WorkerKey key{id, rank, worker.incarnation};
      const bool live = worker.process == ProcessState::kLaunching ||
                        worker.process == ProcessState::kJoined;
      // The row of its end is lost, and acknowledged: nobody repeats it. A
      // process that has started since has a higher incarnation.
      const bool lost = worker.incarnation < numbers_from_;
      if (!live || worker.server != hello.server || running.erase(key) > 0) {
        continue;
      }
      if (stranger_agent && worker.held_epoch != 0) {
        // Never renewed again.
        worker.unswept = true;
        Pause(now, job, rank, PauseTier::kEvict);
        Due(now);
      } else if (stranger_agent) {
        // It holds no lease and gets none: its successor has another number.
        Quarantine(worker, key);
        ProcessEnded(now, job, rank, EndedWithAgent(hello.server, worker, key));
      } else if ((swept || lost) && !worker.unswept &&
                 (worker.process == ProcessState::kJoined || lost ||
                  Rules::Hold(Rule::kNewAgentEndsLaunches))) {
        // Also one that is only being launched: the agent before may have
        // started it, and its word of the end may be on its way yet. A process
        // of the same key would be taken for that one.
        WorkerExited exit = EndedWithAgent(hello.server, worker, key);
        exit.launch_hung &= !lost;
        ProcessEnded(now, job, rank, exit);
      } else if (worker.process == ProcessState::kLaunching &&
                 worker.launch_repeated_at != kNever) {
        // The launch was lost, or is on its way: once more, by the same key.
        SendLaunch(now, job, rank);
      }
      // A joined one that has ended: the agent repeats its exit.
    }
  }
  // A hello may be late, and its list older than a process that was abandoned
  // since. Only an agent that starts has swept: another one is asked, and says
  // that it ended.
  std::erase_if(quarantined_, [&](const auto& entry) {
    if (cluster_.accelerator(entry.first).server != hello.server) return false;
    const bool gone = swept && !running.contains(entry.second);
    const bool ends = gone || !Rules::Hold(Rule::kQuarantineEndsWithProcess);
    if (!ends) running.insert(entry.second);
    return ends;
  });
  std::erase_if(strangers_, [&](const auto& entry) {
    return entry.second == hello.server;
  });
  for (const WorkerKey& stranger : running) {
    strangers_[stranger] = hello.server;
    Due(now + options_.heartbeat_interval_s);
    Emit(action::SendToAgent{
        hello.server, StopWorker{hello.server, stranger, position(), 0}});
  }
}

void Engine::On(Time now, const event::ServerLost& e) {
  Agent& agent = agents_[e.server];
  agent.reachable = false;
  agent.left = e.left;
  agent.heard_at = now;
  cluster_.MarkUnreachable(e.server);
  CountAssigned();
  unsolved_ = true;
  GiveUpFetches(now);
  Due(now);  // its workers
}

void Engine::On(Time now, const event::WorkerJoined& e) {
  Worker* worker = Find(e.hello.worker);
  Job* job = Find(e.hello.worker.job);
  if (worker == nullptr) return;
  Touch(*job);
  worker->spoke = true;
  job->hung_launches = 0;
  if (!e.hello.ready) {
    worker->launch_sent_at = now;  // its limit counts from here
    return Due(now + StartTimeout(*job, options_));
  }
  worker->process = ProcessState::kJoined;
  worker->launch_sent_at = kNever;
  worker->stop_sent_at = kNever;
  worker->asked_at = now;
  Due(now + StartTimeout(*job, options_));
  worker->progress = e.hello.progress;
  worker->progress_at = now;
  worker->Know(now, e.hello.progress);
  NoteRestored(*job, worker->server);
  fetching_.erase(e.hello.worker);
  // A newer generation than the last start had: it got somewhere in between.
  if (e.hello.progress.last_generation > job->restored) {
    job->restored = e.hello.progress.last_generation;
    job->failures_in_a_row = 0;
  }
  // Its gang may have come to its end without it.
  ReviveDone(now, *job);
  NotifyReady(*job);
}

void Engine::On(Time now, const event::LeaseStarted& e) {
  Job* job = Find(e.worker.job);
  Worker* worker = Find(e.worker);
  if (worker == nullptr) return;
  Touch(*job);
  BookStart(now, *job, *worker);
  worker->held_epoch = e.epoch;
  worker->held = e.accelerator;
  worker->world_size = job->world_size;
  worker->held_with = job->partner;
  worker->lease_seq = seq_;
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
  if (cluster_.accelerator(worker->held).info.memory_bytes > 0 &&
      worker->contexts.insert(worker->held).second) {
    contexts_.emplace(worker->held, e.worker);
  }
  holders_.Add(worker->held, e.worker);
  if (e.worker.rank == 0) job->stays.Begin(e.accelerator);
  NoteWriter(*job, worker->server, e.epoch);
  NoteTried(*job, *worker);
  NoteResized(now, *job);
}

void Engine::On(Time now, const event::LeaseEnded& e) {
  Worker* worker = Find(e.worker);
  Job* job = Find(e.worker.job);
  if (worker == nullptr) return;
  if (worker->held_epoch != e.epoch &&
      (worker->held_epoch == 0 || Rules::Hold(Rule::kReleaseIsOfHeldEpoch))) {
    return;
  }
  Touch(*job);
  // It ran there. Judged by this row alone, as in StepsReported.
  if (e.cause == ReleaseCause::kPaused && e.progress.steps_done > 0) {
    BelieveAccuser(e.worker.job, cluster_.accelerator(worker->held).info.type);
  }
  worker->progress = e.progress;
  worker->progress_at = now;
  worker->Know(now, e.progress);
  if (e.worker.rank == 0 && e.progress.window_s > 0) {
    Measure(now, *job, e.progress);
  }
  worker->finished |= e.finished;
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
  EndLease(now, *job, *worker);
  worker->parked_at = now;
  worker->kept_on = kept ? held : AcceleratorId();
  if (e.cause == ReleaseCause::kOutOfMemory) {
    worker->out_of_memory = e.finished;
    OutOfMemory(*job, held, held_with, now);
  } else if (given_up && !e.finished && job->active() &&
             !job->assigned.empty()) {
    GiveUpEpoch(now, *job, e.cause);
  }
  ReviveDone(now, *job);
  NotifyReady(*job);
}

void Engine::On(Time now, const event::StepsReported& e) {
  Worker* worker = Find(e.worker);
  if (worker == nullptr) return;
  // It runs. Judged by this row alone: others are not there at a replay.
  if (e.progress.throughput_steps_per_s > 0) {
    jobs_.at(e.worker.job).failed_starts = 0;
    if (!accused_.empty() && worker->held_epoch != 0) {
      BelieveAccuser(e.worker.job,
                     cluster_.accelerator(worker->held).info.type);
    }
  }
  worker->need_bytes = std::max(worker->need_bytes, e.progress.device_bytes);
  Job& job = jobs_.at(e.worker.job);
  Touch(job);
  NoteSteps(now, *worker, e.progress);
  worker->Know(now, e.progress);
  if (e.worker.rank != 0 || worker->held_epoch == 0) return;
  Measure(now, job, e.progress);
}

// What rank 0 tells while it holds a lease.
void Engine::Measure(Time now, Job& job, const Progress& progress) {
  // Beside another job it says nothing of how fast it is alone.
  if (WasBeside(now, job, progress.window_s)) {
    return MeasurePair(now, job, progress);
  }
  MeasureAlone(now, job, progress);
}

void Engine::On(Time now, const event::WorkerGone& e) {
  const WorkerKey& key = e.exit.worker;
  for (auto it = quarantined_.begin(); it != quarantined_.end();) {
    if (it->second == key) {
      const AcceleratorId freed = it->first;
      it = quarantined_.erase(it);
      AcceleratorFreed(freed);
    } else {
      ++it;
    }
  }
  if (Worker* worker = Find(key)) {
    worker->hung_s = e.hung_s;
    ProcessEnded(now, *Find(key.job), key.rank, e.exit);
  }
}

// Nobody starts on what it may use yet, or has memory of, until its end is
// confirmed.
void Engine::Quarantine(const Worker& worker, const WorkerKey& key) {
  if (!Rules::Hold(Rule::kAbandonedIsQuarantined)) return;
  std::set<AcceleratorId> used = worker.contexts;
  if (worker.held_epoch != 0) used.insert(worker.held);
  for (const AcceleratorId id : used) quarantined_.emplace(id, key);
}

void Engine::On(Time now, const event::WorkerAbandoned& e) {
  Worker* worker = Find(e.worker);
  Job* job = Find(e.worker.job);
  if (worker == nullptr) return;
  Quarantine(*worker, e.worker);
  const WorkerExited exit = EndedWithAgent(worker->server, *worker, e.worker);
  Assign(now, *job, {}, JobId());
  ProcessEnded(now, *job, e.worker.rank, exit);
  fill_due_ = true;
}

void Engine::On(Time, const event::PricesChanged& e) {
  for (const auto& [type, price] : e.prices) prices_[type] = price;
  TouchAll();
  unsolved_ = true;
}

}  // namespace gavel
