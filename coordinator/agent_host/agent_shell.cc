#include "coordinator/agent_host/agent_shell.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "coordinator/agent/agent_machine.h"
#include "coordinator/agent_host/agent_accelerators.h"
#include "coordinator/agent_host/agent_checkpoints.h"
#include "coordinator/agent_host/agent_environment.h"
#include "coordinator/agent_host/agent_record.h"
#include "coordinator/agent_host/agent_workers.h"
#include "coordinator/workload/job_spec.h"
#include "core/codec.h"
#include "core/error_line.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "runtime/transport/dealer_router.h"
#include "spdlog/sinks/null_sink.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

constexpr double kShellWaitMax_s = 1;
// Without a connection to the coordinator for this long, the log says so.
constexpr double kSilence_s = 5;
// At the end: for exits to be told and acknowledged.
constexpr double kShellFarewell_s = 1;
// At the end: for the last message to be sent.
constexpr double kShellLastWord_s = 0.1;

absl::Status CheckOptions(const AgentShellOptions& options) {
  if (!IsValidName(options.server)) {
    return absl::InvalidArgumentError(
        StrCat("server name \"", options.server,
               "\": use 1 to 64 letters, digits, '-' and '_'"));
  }
  if (options.accelerators.empty()) {
    return absl::InvalidArgumentError(
        StrCat("server \"", options.server,
               "\" has no accelerators; declare some in the cluster file"));
  }
  if (options.state_directory.empty()) {
    return absl::InvalidArgumentError(
        "no state directory given; name one with --state");
  }
  return absl::OkStatus();
}

// The agent's own directories. The paths are absolute, since workers run in
// directories of their own.
struct OwnDirectories {
  PrivateDirectory state, run;
};

absl::StatusOr<OwnDirectories> MakeDirectories(AgentShellOptions* options) {
  GAVEL_ASSIGN_OR_RETURN(
      PrivateDirectory state,
      PrivateDirectory::Make(options->state_directory, "--state"));
  options->state_directory = state.path();
  GAVEL_RETURN_IF_ERROR(
      PrivateDirectory::Make(options->state_directory + "/logs", "--state")
          .status());
  if (options->run_directory.empty()) {
    options->run_directory = options->state_directory + "/run";
  }
  GAVEL_ASSIGN_OR_RETURN(
      PrivateDirectory run,
      PrivateDirectory::Make(options->run_directory, "--run-directory"));
  options->run_directory = run.path();
  return OwnDirectories{std::move(state), std::move(run)};
}

std::string EndsDirectory(const AgentShellOptions& options) {
  return StrCat(options.state_directory, "/ends-", options.server);
}

// With keys and as root, jobs run as their owners. Their processes pass through
// the state directory to their locks and keys, and see nothing else. Workers of
// every user may open the lock files but not remove them: root owns their
// directory, since a user who may write it could replace them.
absl::StatusOr<std::unique_ptr<WorkerKeys>> OpenToOwners(
    const AgentShellOptions& options, const OwnDirectories& directories) {
  if (!options.keys.has_value()) return nullptr;
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<WorkerKeys> keys,
                         WorkerKeys::Open(StrCat(options.state_directory,
                                                 "/keys-", options.server)));
  if (geteuid() != 0) return keys;
  for (const AcceleratorInfo& info : options.accelerators) {
    for (const char* slot : {".0", ".1"}) {
      GAVEL_RETURN_IF_ERROR(
          directories.run.MakeFile(StrCat(info.uuid, slot), 0644));
    }
  }
  GAVEL_RETURN_IF_ERROR(directories.state.SetMode(0711));
  GAVEL_RETURN_IF_ERROR(directories.run.SetMode(0711));
  return keys;
}

bool IsGpu(const AcceleratorInfo& info) { return info.device != "cpu"; }

AgentOptions MachineOptions(const AgentShellOptions& options,
                            const AgentRecord& record,
                            const AgentCheckpoints* checkpoints) {
  AgentOptions machine;
  machine.server = options.server;
  machine.incarnation = record.incarnation();
  machine.address = options.address;
  machine.accelerators = options.accelerators;
  machine.host_memory_bytes = options.host_memory_bytes;
  machine.state_id = record.state_id();
  machine.rack = options.rack;
  if (checkpoints != nullptr) {
    machine.own_checkpoints = true;
    machine.stream_endpoint = checkpoints->endpoint();
    machine.stream_public_key = checkpoints->public_key();
  }
  return machine;
}

std::shared_ptr<spdlog::logger> LogOrNone(std::shared_ptr<spdlog::logger> log) {
  if (log != nullptr) return log;
  return std::make_shared<spdlog::logger>(
      "gavel", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace

struct AgentShell::Impl {
  Impl(AgentShellOptions given, AgentRecord opened,
       std::unique_ptr<WorkerKeys> opened_keys,
       std::unique_ptr<Dealer> connected,
       std::unique_ptr<AgentCheckpoints> opened_checkpoints)
      : options(std::move(given)),
        record(std::move(opened)),
        worker_keys(std::move(opened_keys)),
        dealer(std::move(connected)),
        checkpoints(std::move(opened_checkpoints)),
        machine(MachineOptions(options, record, checkpoints.get())),
        workers(WorkersOptions()),
        health(options.accelerators, [this] { dealer->waker().Wake(); }) {}

  AgentWorkersOptions WorkersOptions() {
    AgentWorkersOptions made;
    made.server = options.server;
    made.place.coordinator = options.coordinator;
    made.place.run_directory = options.run_directory;
    made.place.address = options.address;
    made.place.keep_environment = options.keep_environment;
    made.place.has_gpus = std::ranges::any_of(options.accelerators, IsGpu);
    if (options.keys) {
      made.place.coordinator_key = options.keys->server_public_key;
    }
    made.logs_directory = options.state_directory + "/logs";
    made.ends_directory = EndsDirectory(options);
    made.log_limits = options.log_limits;
    made.exec_limit_s = options.exec_limit_s;
    made.notify = [this] { dealer->waker().Wake(); };
    made.log = options.log;
    made.record = &record;
    made.keys = worker_keys.get();
    made.checkpoints = checkpoints.get();
    return made;
  }

  Time Now() const { return clock.elapsed_s(); }

  absl::Status Run() {
    GAVEL_ASSIGN_OR_RETURN(AgentRecord::Swept swept, record.Sweep());
    options.log->info("agent {}: {} accelerators, coordinator {}",
                      options.server, options.accelerators.size(),
                      options.coordinator);
    for (const RunningWorker& worker : swept.ended) {
      options.log->warn(
          "agent {}: ended process {} of job {}, left by the last",
          options.server, worker.pid, worker.worker.job.value());
    }
    Step(agent_event::Started{std::move(swept.workers)});
    while (!Over()) Turn();
    options.log->info("agent {}: stopped", options.server);
    return why_ending;
  }

  void Turn() {
    Receive(WaitTime());
    TakeWorkerEvents();
    TakeFetches();
    if (auto read = health.Take(); !read.empty()) {
      Step(agent_event::HealthRead{std::move(read)});
    }
    if (Now() >= machine.NextDeadline()) Step(agent_event::Tick{});
    LookForEnd();
  }

  double WaitTime() const {
    const Time next = std::min(
        {machine.NextDeadline(), workers.NextDeadline(), kill_at, farewell_at,
         leave_until, last_word_until > Now() ? last_word_until : kNever});
    return std::clamp(next - Now(), 0.0, kShellWaitMax_s);
  }

  void Receive(double wait_s) {
    absl::StatusOr<std::optional<Message>> received = dealer->Receive(wait_s);
    if (!received.ok()) {
      if (!ending) BeginEnding(received.status(), options.stop_grace_s);
      return;
    }
    LookAtLink();
    if (received->has_value()) Handle(**received);
  }

  // A quiet connection is not lost. A refused connection is reported at once,
  // and an agent whose key was revoked may run nothing any more.
  void LookAtLink() {
    const Link& link = dealer->link();
    if (link.connected()) {
      linked_at = Now();
      if (told_link) {
        options.log->info("agent {}: connected to the coordinator at {}",
                          options.server, options.coordinator);
      }
      told_link.reset();
      return;
    }
    if (!link.refused() && Now() - linked_at <= kSilence_s) return;
    if (told_link == link.state) return;
    told_link = link.state;
    const std::string why =
        LinkText(link, options.coordinator,
                 options.keys ? options.keys->own.public_key : "");
    if (link.revoked() && !ending) {
      options.log->error("agent {}: {}; ending its workers", options.server,
                         why);
      BeginEnding(absl::AbortedError(ToAbsl(why)), options.stop_grace_s);
    } else {
      options.log->warn("agent {}: {}; trying on", options.server, why);
    }
  }

  void Handle(const Message& message) {
    if (const auto* request = std::get_if<LogRequest>(&message)) {
      return workers.ReadLog(machine.cluster_id(), *request);
    }
    if (const auto* request = std::get_if<TerminalRequest>(&message)) {
      return workers.Ask(*request);
    }
    if (const auto* notice = std::get_if<TerminalNotice>(&message)) {
      return workers.Tell(*notice);
    }
    const auto* acknowledged = std::get_if<ExitAcknowledged>(&message);
    if (acknowledged != nullptr) unacknowledged.erase(acknowledged->worker);
    // At the end nothing is started any more, and all is stopped anyway.
    if (ending && acknowledged == nullptr) return;
    Step(agent_event::MessageReceived{message});
  }

  void TakeWorkerEvents() {
    for (WorkerEvent& event : workers.TakeEvents(Now())) {
      std::visit([this](auto& e) { On(std::move(e)); }, event);
    }
  }

  void On(ChildStarted&& event) {
    options.log->info("agent {}: job {} rank {} is process {}", options.server,
                      event.worker.job.value(), event.worker.rank, event.pid);
    Step(agent_event::ProcessStarted{event.worker, event.pid});
  }

  void On(ChildNotStarted&& event) {
    // It quotes the job's command and directory.
    constexpr size_t kErrorCharactersMax = 1000;
    event.error = PrintableLine(event.error, kErrorCharactersMax);
    options.log->error("agent {}: job {} rank {} not started: {}",
                       options.server, event.worker.job.value(),
                       event.worker.rank, event.error);
    if (ending) unacknowledged.insert(event.worker);
    Step(agent_event::ProcessNotStarted{event.worker, std::move(event.error),
                                        event.hung});
  }

  void On(WorkerEnded&& event) {
    const ChildExit& exit = event.exit;
    options.log->info("agent {}: job {} rank {} ended: {}", options.server,
                      exit.worker.job.value(), exit.worker.rank,
                      ExitText(exit));
    if (ending) unacknowledged.insert(exit.worker);
    Step(agent_event::ProcessExited{exit.worker, exit.exit_code, exit.signal,
                                    std::move(event.error_line),
                                    event.finished_code});
  }

  void On(LogReply&& reply) { Send(std::move(reply)); }
  void On(TerminalReply&& reply) { Send(std::move(reply)); }
  void On(TerminalWasUsed&& event) {
    Step(agent_event::TerminalUsed{event.worker});
  }

  void LookForEnd() {
    if (stops_requested > 0 && !ending) LookForLeaving();
    if (!ending) return;
    if (Now() >= kill_at) {
      kill_at = kNever;
      workers.SignalAll(SIGKILL);
    }
    if (!workers.empty() || farewell_at != kNever) return;
    farewell_at = Now() + kShellFarewell_s;
    if (!why_ending.ok() || !machine.welcomed()) return;
    Step(agent_event::Leaving{/*gone=*/true});
    last_word_until = Now() + kShellLastWord_s;
  }

  // Its jobs go on elsewhere, where somebody is there to see to it.
  void LookForLeaving() {
    if (leave_until == kNever) {
      const bool heard = machine.welcomed() && dealer->WaitUntilConnected(0);
      leave_until = Now() + (heard ? options.drain_timeout_s : 0);
      if (heard && !machine.Idle()) {
        options.log->info(
            "agent {}: its jobs leave, each with a checkpoint, within {} s",
            options.server, options.drain_timeout_s);
        Step(agent_event::Leaving{});
      }
    }
    if (machine.Idle() || stops_requested > 1 || Now() >= leave_until) {
      BeginEnding(absl::OkStatus(), options.stop_grace_s);
    }
  }

  void BeginEnding(absl::Status why, double grace_s) {
    ending = true;
    leave_until = kNever;
    why_ending = std::move(why);
    kill_at = Now() + grace_s;
    workers.End(grace_s > 0 ? SIGTERM : SIGKILL);
  }

  bool Over() const {
    return ending && workers.empty() &&
           (unacknowledged.empty() || Now() >= farewell_at) &&
           Now() >= last_word_until;
  }

  void Step(const AgentEvent& event) {
    for (AgentAction& action : machine.Step(Now(), event)) {
      std::visit([this](auto& a) { Carry(std::move(a)); }, action);
    }
  }

  void Carry(agent_action::Send&& action) {
    auto* exited = std::get_if<WorkerExited>(&action.message);
    // The end of the agent is no failure of the job.
    if (exited != nullptr && unacknowledged.contains(exited->worker)) {
      exited->no_failure = true;
    }
    if (worker_keys) worker_keys->FillIn(&action.message);
    Send(action.message);
  }

  void Carry(agent_action::Spawn&& action) {
    workers.Launch(action.launch, machine.cluster_id());
  }

  void Carry(agent_action::SignalProcess&& action) {
    workers.Signal(action.worker, action.signal);
  }

  void Carry(agent_action::RecordRunning&& action) {
    workers.Record(std::move(action.running));
  }

  // A coordinator that speaks of streams knows of them by this agent's hello.
  void Carry(agent_action::FetchCheckpoint&& action) {
    workers.DoCheckpoints(std::move(action));
  }

  void Carry(agent_action::CancelFetch&& action) {
    workers.DoCheckpoints(action);
  }

  void Carry(agent_action::OfferCheckpoint&& action) {
    workers.DoCheckpoints(std::move(action));
  }

  void TakeFetches() {
    if (!checkpoints || ending) return;
    for (const AgentEvent& event : checkpoints->TakeEvents()) {
      const auto* over = std::get_if<agent_event::CheckpointFetched>(&event);
      if (over != nullptr) {
        options.log->info("agent {}: checkpoint of job {}: {}", options.server,
                          over->job.value(),
                          over->error.empty() ? "is here" : over->error);
      }
      Step(event);
    }
  }

  void Carry(agent_action::Quit&& action) {
    BeginEnding(absl::AbortedError(
                    StrCat("the coordinator at ", options.coordinator,
                           " does not take this agent: ", action.reason)),
                0);
  }

  // A message that is lost is repeated later, by either side.
  void Send(const Message& message) {
    const absl::Status sent = dealer->Send(message);
    if (sent.ok()) return;
    options.log->debug("agent {}: {} not sent: {}", options.server,
                       MessageName(message), ToStd(sent.message()));
  }

  const Stopwatch clock;
  AgentShellOptions options;
  AgentRecord record;
  const std::unique_ptr<WorkerKeys> worker_keys;  // null: no keys
  std::unique_ptr<Dealer> dealer;
  std::unique_ptr<AgentCheckpoints> checkpoints;  // own_checkpoints
  AgentMachine machine;
  AgentWorkers workers;
  HealthWatch health;
  std::atomic<int> stops_requested{0};
  Time linked_at = 0;
  std::optional<LinkState> told_link;  // why there is no connection

  Time leave_until = kNever;  // set while jobs leave
  bool ending = false;
  absl::Status why_ending;
  Time kill_at = kNever;
  Time farewell_at = kNever;           // set once no process is left
  Time last_word_until = 0;            // of that it is gone
  std::set<WorkerKey> unacknowledged;  // exits told since the end began
};

AgentShell::AgentShell(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AgentShell::~AgentShell() = default;

absl::StatusOr<std::unique_ptr<AgentShell>> AgentShell::Create(
    AgentShellOptions options) {
  GAVEL_RETURN_IF_ERROR(CheckOptions(options));
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Dealer> dealer,
                         Dealer::Connect(options.coordinator, {options.keys}));
  GAVEL_ASSIGN_OR_RETURN(const OwnDirectories directories,
                         MakeDirectories(&options));
  GAVEL_ASSIGN_OR_RETURN(
      AgentRecord record,
      AgentRecord::Open(options.state_directory, options.server));
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<WorkerKeys> worker_keys,
                         OpenToOwners(options, directories));
  GAVEL_RETURN_IF_ERROR(MakeOwnersDirectory(EndsDirectory(options)));
  std::unique_ptr<AgentCheckpoints> checkpoints;
  if (options.own_checkpoints) {
    GAVEL_ASSIGN_OR_RETURN(
        checkpoints,
        AgentCheckpoints::Open(options.state_directory, options.address,
                               [waker = &dealer->waker()] { waker->Wake(); }));
  }
  options.log = LogOrNone(std::move(options.log));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(record),
                                     std::move(worker_keys), std::move(dealer),
                                     std::move(checkpoints));
  return std::unique_ptr<AgentShell>(new AgentShell(std::move(impl)));
}

absl::Status AgentShell::Run() { return impl_->Run(); }

void AgentShell::Stop() {
  ++impl_->stops_requested;
  impl_->dealer->waker().Wake();
}

}  // namespace gavel
