#include "coordinator/agent/agent_machine.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "core/error_line.h"

namespace gavel {

namespace {

constexpr double kHelloInterval_s = 1;
constexpr double kExitReportInterval_s = 1;
constexpr double kLeavingInterval_s = 1;
// Bounds of the heartbeat interval that a coordinator may ask for.
constexpr double kHeartbeatInterval_s_min = 0.1;
constexpr double kHeartbeatInterval_s_max = 60;
// A grace beyond a day is as good as a day.
constexpr double kGrace_s_max = 24 * 3600;
// Workers whose incarnation is remembered after they are gone. Job ids rise
// with time, so the lowest ones are forgotten first.
constexpr size_t kIncarnationsRemembered_max = 65536;

}  // namespace

AgentMachine::AgentMachine(AgentOptions options)
    : options_(std::move(options)) {}

AgentActions AgentMachine::Step(Time now, const AgentEvent& event) {
  now_ = now;
  std::visit([this](const auto& e) { On(e); }, event);
  for (auto& [worker, process] : processes_) {
    if (now_ >= process.kill_at) Kill(worker, process);
  }
  if (started_ && !quitting_) TellWhatIsDue();
  return std::exchange(actions_, {});
}

void AgentMachine::TellWhatIsDue() {
  // Exits go before a hello: its list of who runs would otherwise say that a
  // worker is gone before anyone knows how it ended.
  if (!unacknowledged_.empty() && now_ >= next_exit_report_) {
    next_exit_report_ = now_ + kExitReportInterval_s;
    for (const auto& [worker, exit] : unacknowledged_) Send(exit);
  }
  if (!welcomed_ && now_ >= next_hello_) SayHello();
  if (welcomed_ && leaving_ && now_ >= next_leaving_) SayLeaving(false);
  if (welcomed_ && now_ >= next_heartbeat_) {
    next_heartbeat_ = now_ + heartbeat_interval_s_;
    Send(AgentHeartbeat{options_.server, options_.incarnation, highest_seen_,
                        std::exchange(health_, {})});
  }
}

Time AgentMachine::NextDeadline() const {
  Time next = kNever;
  for (const auto& [worker, process] : processes_) {
    next = std::min(next, process.kill_at);
  }
  if (!started_ || quitting_) return next;
  if (!unacknowledged_.empty()) next = std::min(next, next_exit_report_);
  if (welcomed_ && leaving_) next = std::min(next, next_leaving_);
  return std::min(next, welcomed_ ? next_heartbeat_ : next_hello_);
}

std::vector<RunningWorker> AgentMachine::Running() const {
  std::vector<RunningWorker> running;
  for (const auto& [worker, process] : processes_) {
    if (process.pid != 0) running.push_back({worker, process.pid});
  }
  return running;
}

void AgentMachine::On(const agent_event::Started& e) {
  if (started_) return;
  started_ = true;
  next_hello_ = now_;
  next_exit_report_ = now_;
  for (const RunningWorker& swept : e.swept) {
    NoteIncarnation(swept.worker);
    WorkerExited exit = ExitOf(swept.worker);
    exit.signal = SIGKILL;
    exit.no_failure = true;
    unacknowledged_.emplace(swept.worker, std::move(exit));
  }
  Record();
}

void AgentMachine::On(const agent_event::MessageReceived& e) {
  const auto take = [&]<class T>(const T* message) {
    if (message == nullptr) return;
    constexpr bool kIsWelcome = std::is_same_v<T, AgentWelcome>;
    if (Listens(message->server, message->position, kIsWelcome)) {
      Take(*message);
    }
  };
  take(std::get_if<AgentWelcome>(&e.message));
  take(std::get_if<AgentRejected>(&e.message));
  take(std::get_if<LaunchWorker>(&e.message));
  take(std::get_if<StopWorker>(&e.message));
  take(std::get_if<PrefetchCheckpoint>(&e.message));
  take(std::get_if<ServeCheckpoint>(&e.message));
  if (const auto* exit = std::get_if<ExitAcknowledged>(&e.message)) {
    if (exit->server == options_.server) unacknowledged_.erase(exit->worker);
  }
}

void AgentMachine::On(const agent_event::ProcessStarted& e) {
  const auto found = processes_.find(e.worker);
  if (found == processes_.end() || found->second.pid != 0) return;
  Process& process = found->second;
  process.pid = e.pid;
  Record();
  Send(WorkerLaunched{options_.server, e.worker, e.pid});
  if (process.stopping) {
    process.stopping = false;
    Stop(e.worker, process, process.grace_s);
  }
}

void AgentMachine::On(const agent_event::ProcessNotStarted& e) {
  if (processes_.erase(e.worker) == 0) return;
  WorkerExited exit = ExitOf(e.worker);
  exit.launch_error = e.error;
  exit.launch_hung = e.hung;
  TellExit(std::move(exit));
  StartWaiting(e.worker.worker());
}

void AgentMachine::On(const agent_event::ProcessExited& e) {
  const auto process = processes_.find(e.worker);
  if (process == processes_.end()) return;
  WorkerExited exit = ExitOf(e.worker);
  exit.stopped = process->second.stopping;
  processes_.erase(process);
  Record();
  exit.exit_code = e.exit_code;
  exit.signal = e.signal;
  exit.finished_code = e.finished_code;
  const bool failed = exit.signal != 0 ||
                      (exit.exit_code != 0 && exit.exit_code != kExitEvicted);
  if (failed) exit.error_line = e.error_line;
  TellExit(std::move(exit));
  StartWaiting(e.worker.worker());
}

void AgentMachine::On(const agent_event::CheckpointFetched& e) {
  // Only what waits now: the end of one may bring the start of another.
  std::vector<LaunchWorker> launches;
  for (auto it = fetching_.begin(); it != fetching_.end();) {
    const bool of_job = it->first.job == e.job;
    if (of_job) launches.push_back(std::move(it->second));
    it = of_job ? fetching_.erase(it) : std::next(it);
  }
  for (LaunchWorker& launch : launches) {
    if (e.error.empty()) {
      actions_.emplace_back(agent_action::Spawn{std::move(launch)});
    } else {
      On(agent_event::ProcessNotStarted{launch.worker, e.error});
    }
  }
}

void AgentMachine::On(const agent_event::CheckpointComing& e) {
  for (const auto& [worker, launch] : fetching_) {
    if (worker.job != e.job) continue;
    Send(FetchProgress{options_.server, worker, highest_seen_, e.source,
                       e.bytes_done, e.bytes_total, e.waits_for});
  }
}

void AgentMachine::On(const agent_event::Leaving& e) {
  leaving_ = !e.gone;
  next_leaving_ = now_;
  if (e.gone && welcomed_) SayLeaving(true);
}

void AgentMachine::SayLeaving(bool gone) {
  next_leaving_ = now_ + kLeavingInterval_s;
  Send(
      AgentLeaving{options_.server, options_.incarnation, highest_seen_, gone});
}

void AgentMachine::On(const agent_event::HealthRead& e) { health_ = e.health; }

void AgentMachine::On(const agent_event::TerminalUsed& e) {
  if (welcomed_) Send(TerminalActive{options_.server, e.worker, highest_seen_});
}

void AgentMachine::On(const agent_event::Tick&) {}

void AgentMachine::Take(const AgentWelcome& welcome) {
  const double interval_s = welcome.heartbeat_interval_s;
  if (interval_s == interval_s) {  // not NaN
    heartbeat_interval_s_ = std::clamp(interval_s, kHeartbeatInterval_s_min,
                                       kHeartbeatInterval_s_max);
  }
  welcomed_ = welcome.incarnation == options_.incarnation &&
              welcome.state_id == options_.state_id;
  if (welcomed_) {
    if (!known_) known_at_ = welcome.position;
    known_ = true;
    cluster_id_ = welcome.cluster_id;
    next_heartbeat_ = now_ + heartbeat_interval_s_;
  } else {
    next_hello_ = std::max(next_hello_, now_);
  }
}

void AgentMachine::Take(const AgentRejected& rejected) {
  // An older agent's hello may have been late: its answer is not for this one.
  const bool meant = rejected.incarnation == options_.incarnation &&
                     rejected.state_id == options_.state_id;
  if (!meant) return;
  quitting_ = true;
  waiting_.clear();
  while (!fetching_.empty()) {
    const WorkerKey worker = fetching_.begin()->first;
    StopFetching(worker);
    processes_.erase(worker);
  }
  for (auto& [worker, process] : processes_) Kill(worker, process);
  actions_.emplace_back(agent_action::Quit{rejected.reason});
}

void AgentMachine::Take(const LaunchWorker& launch) {
  // Meant for the agent before this one: a first hello of this one that is
  // still on its way would say that what starts now does not run. The same goes
  // for a launch that its welcome has overtaken: on that hello the coordinator
  // took the process for gone. The coordinator launches again the processes
  // that it still wants.
  if (!known_ || launch.position < known_at_) return;
  if (const auto fetching = fetching_.find(launch.worker);
      fetching != fetching_.end() && fetching->second.source != launch.source) {
    fetching->second.source = launch.source;
    Fetch(launch);
  }
  if (TellWhatIsKnown(launch.worker) || !MayStart(launch.worker)) return;
  NoteIncarnation(launch.worker);
  const WorkerId worker = launch.worker.worker();
  if (const auto older = waiting_.find(worker); older != waiting_.end()) {
    TellExit(NotStarted(older->second.worker,
                        "a newer incarnation was launched before it started"));
    older->second = launch;
  } else if (KillOlder(worker)) {
    waiting_.emplace(worker, launch);
  } else {
    Start(launch);
  }
}

void AgentMachine::Take(const StopWorker& stop) {
  const WorkerKey& worker = stop.worker;
  if (fetching_.contains(worker)) {
    StopFetching(worker);
    processes_.erase(worker);
    TellExit(NotStarted(worker, kStoppedWhileFetching));
    return StartWaiting(worker.worker());
  }
  if (const auto found = processes_.find(worker); found != processes_.end()) {
    return Stop(worker, found->second, stop.grace_s);
  }
  if (TellWhatIsKnown(worker)) return;
  // Meant for the agent before this one, whose processes only a sweep by its
  // own record finds: no answer says that they are gone.
  if (!known_) return;
  // Nothing runs. Should its launch be late, it must not start any more.
  NoteIncarnation(worker);
  const auto waiting = waiting_.find(worker.worker());
  if (waiting != waiting_.end() && waiting->second.worker == worker) {
    waiting_.erase(waiting);
    TellExit(NotStarted(worker, "stopped before it started"));
  } else {
    Send(NotStarted(worker, "not running on this server"));
  }
}

// Nothing to fetch for where the job runs here already, or is about to.
void AgentMachine::Take(const PrefetchCheckpoint& prefetch) {
  const auto of_job = [&](const auto& entry) {
    return entry.first.job == prefetch.job;
  };
  if (prefetch.source.endpoint.empty() ||
      std::ranges::any_of(processes_, of_job)) {
    return;
  }
  actions_.emplace_back(
      agent_action::FetchCheckpoint{prefetch.job, prefetch.checkpoint_directory,
                                    prefetch.source, prefetch.unix_user});
}

void AgentMachine::Take(const ServeCheckpoint& serve) {
  actions_.emplace_back(
      agent_action::OfferCheckpoint{serve.job, serve.checkpoint_directory,
                                    serve.reader_public_key, serve.unix_user});
}

// Repeats the last word about a worker that runs or has exited. False when
// there is none.
bool AgentMachine::TellWhatIsKnown(const WorkerKey& worker) {
  if (const auto found = unacknowledged_.find(worker);
      found != unacknowledged_.end()) {
    Send(found->second);
    return true;
  }
  const auto found = processes_.find(worker);
  if (found == processes_.end()) return false;
  if (const int64_t pid = found->second.pid; pid != 0) {
    Send(WorkerLaunched{options_.server, worker, pid});
  }
  return true;
}

bool AgentMachine::Listens(const std::string& server,
                           const JournalPosition& position, bool is_welcome) {
  if (!started_ || quitting_ || server != options_.server) return false;
  if (position.term < highest_seen_.term) return false;
  const bool risen = position.term > highest_seen_.term;
  highest_seen_ = std::max(highest_seen_, position);
  // A new coordinator must hear who runs here. Take(AgentWelcome) sees to it
  // itself, for it may be the answer to a hello.
  if (risen && welcomed_ && !is_welcome) {
    welcomed_ = false;
    next_hello_ = now_;
  }
  return true;
}

bool AgentMachine::MayStart(const WorkerKey& worker) const {
  const auto found = highest_incarnation_.find(worker.worker());
  return found == highest_incarnation_.end() ||
         worker.incarnation > found->second;
}

void AgentMachine::NoteIncarnation(const WorkerKey& worker) {
  uint64_t& highest = highest_incarnation_[worker.worker()];
  highest = std::max(highest, worker.incarnation);
  if (highest_incarnation_.size() > kIncarnationsRemembered_max) {
    highest_incarnation_.erase(highest_incarnation_.begin());
  }
}

// The caller is about to launch a newer one than any. True when one is still
// here, and now on its way out.
bool AgentMachine::KillOlder(const WorkerId& worker) {
  bool any = false;
  for (auto it = processes_.begin(); it != processes_.end();) {
    const WorkerKey key = it->first;
    const bool fetching = key.worker() == worker && fetching_.contains(key);
    if (fetching) {
      StopFetching(key);
    } else if (key.worker() == worker) {
      Kill(key, it->second);
      any = true;
    }
    it = fetching ? processes_.erase(it) : std::next(it);
  }
  return any;
}

void AgentMachine::Start(const LaunchWorker& launch) {
  processes_.emplace(launch.worker, Process());
  if (launch.source.server.empty()) {
    actions_.emplace_back(agent_action::Spawn{launch});
    return;
  }
  fetching_.emplace(launch.worker, launch);
  Fetch(launch);
}

// Without an endpoint the source can't be reached now; the launch is repeated
// with one when it can.
void AgentMachine::Fetch(const LaunchWorker& launch) {
  if (launch.source.endpoint.empty()) return;
  actions_.emplace_back(agent_action::FetchCheckpoint{
      launch.worker.job, launch.checkpoint_directory, launch.source,
      launch.unix_user});
}

// A worker that waits for its checkpoint has no process that could end.
void AgentMachine::StopFetching(const WorkerKey& worker) {
  fetching_.erase(worker);
  const bool shared = std::ranges::any_of(fetching_, [&](const auto& entry) {
    return entry.first.job == worker.job;
  });
  if (!shared) actions_.emplace_back(agent_action::CancelFetch{worker.job});
}

void AgentMachine::StartWaiting(const WorkerId& worker) {
  const auto found = waiting_.find(worker);
  if (found == waiting_.end()) return;
  const LaunchWorker launch = std::move(found->second);
  waiting_.erase(found);
  Start(launch);
}

// Repeated stops shorten the grace, never lengthen it.
void AgentMachine::Stop(const WorkerKey& worker, Process& process,
                        double grace_s) {
  if (!(grace_s > 0)) return Kill(worker, process);
  grace_s = std::min(grace_s, kGrace_s_max);
  const bool first = !process.stopping;
  process.stopping = true;
  if (process.pid == 0) {
    process.grace_s = first ? grace_s : std::min(process.grace_s, grace_s);
    return;
  }
  if (process.killed) return;
  process.kill_at = std::min(process.kill_at, now_ + grace_s);
  if (first) {
    actions_.emplace_back(
        agent_action::SignalProcess{worker, process.pid, SIGTERM});
  }
}

void AgentMachine::Kill(const WorkerKey& worker, Process& process) {
  process.stopping = true;
  process.grace_s = 0;
  process.kill_at = kNever;
  if (process.pid == 0 || process.killed) return;
  process.killed = true;
  actions_.emplace_back(
      agent_action::SignalProcess{worker, process.pid, SIGKILL});
}

WorkerExited AgentMachine::ExitOf(const WorkerKey& worker) const {
  WorkerExited exit;
  exit.server = options_.server;
  exit.worker = worker;
  exit.highest_seen = highest_seen_;
  return exit;
}

WorkerExited AgentMachine::NotStarted(const WorkerKey& worker,
                                      std::string_view why) const {
  WorkerExited exit = ExitOf(worker);
  exit.launch_error = why;
  exit.no_failure = true;
  return exit;
}

// Now, and again until it is acknowledged.
void AgentMachine::TellExit(WorkerExited exit) {
  if (quitting_) return;
  Send(exit);
  if (unacknowledged_.empty()) next_exit_report_ = now_ + kExitReportInterval_s;
  unacknowledged_.insert_or_assign(exit.worker, std::move(exit));
}

void AgentMachine::SayHello() {
  next_hello_ = now_ + kHelloInterval_s;
  AgentHello hello;
  hello.server = options_.server;
  hello.incarnation = options_.incarnation;
  hello.highest_seen = highest_seen_;
  hello.address = options_.address;
  hello.accelerators = options_.accelerators;
  hello.running = Running();
  hello.host_memory_bytes = options_.host_memory_bytes;
  hello.state_id = options_.state_id;
  hello.own_checkpoints = options_.own_checkpoints;
  hello.stream_endpoint = options_.stream_endpoint;
  hello.stream_public_key = options_.stream_public_key;
  hello.rack = options_.rack;
  Send(std::move(hello));
}

void AgentMachine::Record() {
  actions_.emplace_back(agent_action::RecordRunning{Running()});
}

void AgentMachine::Send(Message message) {
  actions_.emplace_back(agent_action::Send{std::move(message)});
}

}  // namespace gavel
