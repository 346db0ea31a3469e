#include "coordinator/agent/agent_machine.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "core/launch_errors.h"

namespace gavel {

namespace {

constexpr double kHelloInterval_s = 1;
constexpr double kExitReportInterval_s = 1;
constexpr double kLeavingInterval_s = 1;
// What a coordinator may ask for as its heartbeat.
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
  AgentActions actions;
  std::visit([&](const auto& e) { On(now, e, actions); }, event);
  for (auto& [worker, process] : processes_) {
    if (now >= process.kill_at) Kill(worker, process, actions);
  }
  if (!started_ || quitting_) return actions;
  // Exits go before a hello: its list of who runs would otherwise say that a
  // worker is gone before anyone knows how it ended.
  if (!unacknowledged_.empty() && now >= next_exit_report_) {
    next_exit_report_ = now + kExitReportInterval_s;
    for (const auto& [worker, exit] : unacknowledged_) {
      actions.emplace_back(agent_action::Send{exit});
    }
  }
  if (!welcomed_ && now >= next_hello_) SayHello(now, actions);
  if (welcomed_ && leaving_ && now >= next_leaving_) {
    SayLeaving(now, /*gone=*/false, actions);
  }
  if (welcomed_ && now >= next_heartbeat_) {
    next_heartbeat_ = now + heartbeat_interval_s_;
    actions.emplace_back(agent_action::Send{
        AgentHeartbeat{options_.server, options_.incarnation, highest_seen_}});
  }
  return actions;
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

void AgentMachine::On(Time now, const agent_event::Started& e,
                      AgentActions& actions) {
  if (started_) return;
  started_ = true;
  next_hello_ = now;
  next_exit_report_ = now;
  for (const RunningWorker& swept : e.swept) {
    NoteIncarnation(swept.worker);
    WorkerExited exit = ExitOf(swept.worker);
    exit.signal = SIGKILL;
    exit.no_failure = true;
    unacknowledged_.emplace(swept.worker, std::move(exit));
  }
  Record(actions);
}

void AgentMachine::On(Time now, const agent_event::MessageReceived& e,
                      AgentActions& actions) {
  const auto take = [&]<class T>(const T* message) {
    if (message == nullptr) return;
    constexpr bool kIsWelcome = std::is_same_v<T, AgentWelcome>;
    if (Listens(now, message->server, message->position, kIsWelcome)) {
      Take(now, *message, actions);
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

void AgentMachine::On(Time now, const agent_event::ProcessStarted& e,
                      AgentActions& actions) {
  const auto found = processes_.find(e.worker);
  if (found == processes_.end() || found->second.pid != 0) return;
  Process& process = found->second;
  process.pid = e.pid;
  Record(actions);
  actions.emplace_back(
      agent_action::Send{WorkerLaunched{options_.server, e.worker, e.pid}});
  if (process.stopping) {
    process.stopping = false;
    Stop(now, e.worker, process, process.grace_s, actions);
  }
}

void AgentMachine::On(Time now, const agent_event::ProcessNotStarted& e,
                      AgentActions& actions) {
  if (processes_.erase(e.worker) == 0) return;
  WorkerExited exit = ExitOf(e.worker);
  exit.launch_error = e.error;
  exit.launch_hung = e.hung;
  TellExit(now, std::move(exit), actions);
  StartWaiting(e.worker.worker(), actions);
}

void AgentMachine::On(Time now, const agent_event::ProcessExited& e,
                      AgentActions& actions) {
  const auto process = processes_.find(e.worker);
  if (process == processes_.end()) return;
  WorkerExited exit = ExitOf(e.worker);
  exit.stopped = process->second.stopping;
  processes_.erase(process);
  Record(actions);
  exit.exit_code = e.exit_code;
  exit.signal = e.signal;
  const bool failed = exit.signal != 0 ||
                      (exit.exit_code != 0 && exit.exit_code != kExitEvicted);
  if (failed) exit.error_line = e.error_line;
  TellExit(now, std::move(exit), actions);
  StartWaiting(e.worker.worker(), actions);
}

void AgentMachine::On(Time now, const agent_event::CheckpointFetched& e,
                      AgentActions& actions) {
  // Only what waits now: the end of one may bring the start of another.
  std::vector<LaunchWorker> launches;
  for (auto it = fetching_.begin(); it != fetching_.end();) {
    const bool of_job = it->first.job == e.job;
    if (of_job) launches.push_back(std::move(it->second));
    it = of_job ? fetching_.erase(it) : std::next(it);
  }
  for (LaunchWorker& launch : launches) {
    if (e.error.empty()) {
      actions.emplace_back(agent_action::Spawn{std::move(launch)});
    } else {
      On(now, agent_event::ProcessNotStarted{launch.worker, e.error}, actions);
    }
  }
}

void AgentMachine::On(Time, const agent_event::CheckpointComing& e,
                      AgentActions& actions) {
  for (const auto& [worker, launch] : fetching_) {
    if (worker.job != e.job) continue;
    actions.emplace_back(agent_action::Send{
        FetchProgress{options_.server, worker, highest_seen_, e.source,
                      e.bytes_done, e.bytes_total, e.waits_for}});
  }
}

void AgentMachine::On(Time now, const agent_event::Leaving& e,
                      AgentActions& actions) {
  leaving_ = !e.gone;
  next_leaving_ = now;
  if (e.gone && welcomed_) SayLeaving(now, /*gone=*/true, actions);
}

void AgentMachine::SayLeaving(Time now, bool gone, AgentActions& actions) {
  next_leaving_ = now + kLeavingInterval_s;
  actions.emplace_back(agent_action::Send{AgentLeaving{
      options_.server, options_.incarnation, highest_seen_, gone}});
}

void AgentMachine::On(Time, const agent_event::Tick&, AgentActions&) {}

void AgentMachine::Take(Time now, const AgentWelcome& welcome, AgentActions&) {
  const double interval_s = welcome.heartbeat_interval_s;
  if (interval_s == interval_s) {  // not NaN
    heartbeat_interval_s_ = std::clamp(interval_s, kHeartbeatInterval_s_min,
                                       kHeartbeatInterval_s_max);
  }
  welcomed_ = welcome.incarnation == options_.incarnation &&
              welcome.state_id == options_.state_id;
  if (welcomed_) {
    known_ = true;
    cluster_id_ = welcome.cluster_id;
    next_heartbeat_ = now + heartbeat_interval_s_;
  } else {
    next_hello_ = std::max(next_hello_, now);
  }
}

void AgentMachine::Take(Time, const AgentRejected& rejected,
                        AgentActions& actions) {
  // An older agent's hello may have been late: its answer is not for this one.
  const bool meant = rejected.incarnation == options_.incarnation &&
                     rejected.state_id == options_.state_id;
  if (!meant) return;
  quitting_ = true;
  waiting_.clear();
  while (!fetching_.empty()) {
    const WorkerKey worker = fetching_.begin()->first;
    StopFetching(worker, actions);
    processes_.erase(worker);
  }
  for (auto& [worker, process] : processes_) Kill(worker, process, actions);
  actions.emplace_back(agent_action::Quit{rejected.reason});
}

void AgentMachine::Take(Time now, const LaunchWorker& launch,
                        AgentActions& actions) {
  // Meant for the agent before this one: a first hello of this one that is
  // still on its way would say that what starts now does not run. The launch is
  // repeated.
  if (!known_) return;
  if (const auto fetching = fetching_.find(launch.worker);
      fetching != fetching_.end() && fetching->second.source != launch.source) {
    fetching->second.source = launch.source;
    Fetch(launch, actions);
  }
  if (TellWhatIsKnown(launch.worker, actions) || !MayStart(launch.worker)) {
    return;
  }
  NoteIncarnation(launch.worker);
  const WorkerId worker = launch.worker.worker();
  if (const auto older = waiting_.find(worker); older != waiting_.end()) {
    WorkerExited exit = ExitOf(older->second.worker);
    exit.launch_error = "a newer incarnation was launched before it started";
    exit.no_failure = true;
    TellExit(now, std::move(exit), actions);
    older->second = launch;
  } else if (KillOlder(worker, actions)) {
    waiting_.emplace(worker, launch);
  } else {
    Start(launch, actions);
  }
}

void AgentMachine::Take(Time now, const StopWorker& stop,
                        AgentActions& actions) {
  const WorkerKey& worker = stop.worker;
  if (fetching_.contains(worker)) {
    StopFetching(worker, actions);
    processes_.erase(worker);
    WorkerExited exit = ExitOf(worker);
    exit.launch_error = kStoppedWhileFetching;
    exit.no_failure = true;
    TellExit(now, std::move(exit), actions);
    return StartWaiting(worker.worker(), actions);
  }
  if (const auto found = processes_.find(worker); found != processes_.end()) {
    Stop(now, worker, found->second, stop.grace_s, actions);
    return;
  }
  if (TellWhatIsKnown(worker, actions)) return;
  // Meant for the agent before this one, whose processes only a sweep by its
  // own record finds: no answer says that they are gone.
  if (!known_) return;
  // Nothing runs. Should its launch be late, it must not start any more.
  NoteIncarnation(worker);
  WorkerExited exit = ExitOf(worker);
  exit.launch_error = "not running on this server";
  exit.no_failure = true;
  const auto waiting = waiting_.find(worker.worker());
  if (waiting != waiting_.end() && waiting->second.worker == worker) {
    waiting_.erase(waiting);
    exit.launch_error = "stopped before it started";
    TellExit(now, std::move(exit), actions);
  } else {
    actions.emplace_back(agent_action::Send{std::move(exit)});
  }
}

// Nothing to fetch for where the job runs here already, or is about to.
void AgentMachine::Take(Time, const PrefetchCheckpoint& prefetch,
                        AgentActions& actions) {
  const auto of_job = [&](const auto& entry) {
    return entry.first.job == prefetch.job;
  };
  if (prefetch.source.endpoint.empty() ||
      std::any_of(processes_.begin(), processes_.end(), of_job)) {
    return;
  }
  actions.emplace_back(
      agent_action::FetchCheckpoint{prefetch.job, prefetch.checkpoint_directory,
                                    prefetch.source, prefetch.unix_user});
}

void AgentMachine::Take(Time, const ServeCheckpoint& serve,
                        AgentActions& actions) {
  actions.emplace_back(
      agent_action::OfferCheckpoint{serve.job, serve.checkpoint_directory,
                                    serve.reader_public_key, serve.unix_user});
}

// Repeats the last word about a worker that runs or has exited. False when
// there is none.
bool AgentMachine::TellWhatIsKnown(const WorkerKey& worker,
                                   AgentActions& actions) const {
  if (const auto found = unacknowledged_.find(worker);
      found != unacknowledged_.end()) {
    actions.emplace_back(agent_action::Send{found->second});
    return true;
  }
  const auto found = processes_.find(worker);
  if (found == processes_.end()) return false;
  if (const int64_t pid = found->second.pid; pid != 0) {
    actions.emplace_back(
        agent_action::Send{WorkerLaunched{options_.server, worker, pid}});
  }
  return true;
}

bool AgentMachine::Listens(Time now, const std::string& server,
                           const JournalPosition& position, bool is_welcome) {
  if (!started_ || quitting_ || server != options_.server) return false;
  if (position.term < highest_seen_.term) return false;
  const bool risen = position.term > highest_seen_.term;
  highest_seen_ = std::max(highest_seen_, position);
  // A new coordinator must hear who runs here. Take(AgentWelcome) sees to it
  // itself, for it may be the answer to a hello.
  if (risen && welcomed_ && !is_welcome) {
    welcomed_ = false;
    next_hello_ = now;
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
bool AgentMachine::KillOlder(const WorkerId& worker, AgentActions& actions) {
  bool any = false;
  for (auto it = processes_.begin(); it != processes_.end();) {
    const WorkerKey key = it->first;
    const bool fetching = key.worker() == worker && fetching_.contains(key);
    if (fetching) {
      StopFetching(key, actions);
    } else if (key.worker() == worker) {
      Kill(key, it->second, actions);
      any = true;
    }
    it = fetching ? processes_.erase(it) : std::next(it);
  }
  return any;
}

void AgentMachine::Start(const LaunchWorker& launch, AgentActions& actions) {
  processes_.emplace(launch.worker, Process());
  if (launch.source.server.empty()) {
    actions.emplace_back(agent_action::Spawn{launch});
    return;
  }
  fetching_.emplace(launch.worker, launch);
  Fetch(launch, actions);
}

// Without an endpoint the source can't be reached now; the launch is repeated
// with one when it can.
void AgentMachine::Fetch(const LaunchWorker& launch,
                         AgentActions& actions) const {
  if (launch.source.endpoint.empty()) return;
  actions.emplace_back(agent_action::FetchCheckpoint{
      launch.worker.job, launch.checkpoint_directory, launch.source,
      launch.unix_user});
}

// A worker that waits for its checkpoint has no process that could end.
void AgentMachine::StopFetching(const WorkerKey& worker,
                                AgentActions& actions) {
  fetching_.erase(worker);
  const bool shared = std::any_of(
      fetching_.begin(), fetching_.end(),
      [&](const auto& entry) { return entry.first.job == worker.job; });
  if (!shared) actions.emplace_back(agent_action::CancelFetch{worker.job});
}

void AgentMachine::StartWaiting(const WorkerId& worker, AgentActions& actions) {
  const auto found = waiting_.find(worker);
  if (found == waiting_.end()) return;
  const LaunchWorker launch = std::move(found->second);
  waiting_.erase(found);
  Start(launch, actions);
}

// Repeated stops shorten the grace, never lengthen it.
void AgentMachine::Stop(Time now, const WorkerKey& worker, Process& process,
                        double grace_s, AgentActions& actions) {
  if (!(grace_s > 0)) return Kill(worker, process, actions);
  grace_s = std::min(grace_s, kGrace_s_max);
  const bool first = !process.stopping;
  process.stopping = true;
  if (process.pid == 0) {
    process.grace_s = first ? grace_s : std::min(process.grace_s, grace_s);
    return;
  }
  if (process.killed) return;
  process.kill_at = std::min(process.kill_at, now + grace_s);
  if (first) {
    actions.emplace_back(
        agent_action::SignalProcess{worker, process.pid, SIGTERM});
  }
}

void AgentMachine::Kill(const WorkerKey& worker, Process& process,
                        AgentActions& actions) {
  process.stopping = true;
  process.grace_s = 0;
  process.kill_at = kNever;
  if (process.pid == 0 || process.killed) return;
  process.killed = true;
  actions.emplace_back(
      agent_action::SignalProcess{worker, process.pid, SIGKILL});
}

WorkerExited AgentMachine::ExitOf(const WorkerKey& worker) const {
  WorkerExited exit;
  exit.server = options_.server;
  exit.worker = worker;
  exit.highest_seen = highest_seen_;
  return exit;
}

// Now, and again until it is acknowledged.
void AgentMachine::TellExit(Time now, WorkerExited exit,
                            AgentActions& actions) {
  if (quitting_) return;
  actions.emplace_back(agent_action::Send{exit});
  if (unacknowledged_.empty()) next_exit_report_ = now + kExitReportInterval_s;
  unacknowledged_.insert_or_assign(exit.worker, std::move(exit));
}

void AgentMachine::SayHello(Time now, AgentActions& actions) {
  next_hello_ = now + kHelloInterval_s;
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
  actions.emplace_back(agent_action::Send{std::move(hello)});
}

void AgentMachine::Record(AgentActions& actions) const {
  actions.emplace_back(agent_action::RecordRunning{Running()});
}

}  // namespace gavel
