#include "coordinator/server/coordinator_server.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/policy/policy.h"
#include "coordinator/server/client_requests.h"
#include "coordinator/server/engine_clock.h"
#include "coordinator/server/engine_setup.h"
#include "coordinator/server/gatekeeper.h"
#include "coordinator/server/incoming.h"
#include "coordinator/server/journal.h"
#include "coordinator/server/outbox.h"
#include "coordinator/server/peer_table.h"
#include "coordinator/server/private_directory.h"
#include "coordinator/server/recorder.h"
#include "coordinator/server/report_check.h"
#include "coordinator/server/solver_thread.h"
#include "coordinator/server/wall_clock.h"
#include "coordinator/server/wire_counts.h"
#include "core/codec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/router.h"
#include "spdlog/sinks/null_sink.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

constexpr size_t kWorkerPeersMax = 64 * 1024;
constexpr size_t kAgentPeersMax = 4096;
// Between two looks at deadlines and finished commits.
constexpr int kMessagesPerTurnMax = 64;
constexpr double kWaitMax_s = 1;
// So long a revoked key may still be used, and so long a coordinator that was
// replaced speaks at most.
constexpr double kLookInterval_s = 1;
// After a client's shutdown, for the answer to leave.
constexpr double kFarewell_s = 0.1;

}  // namespace

struct CoordinatorServer::Impl {
  Impl(CoordinatorServerOptions given, std::unique_ptr<Gatekeeper> keeper,
       std::unique_ptr<Router> bound);

  absl::Status Start(std::unique_ptr<Journal> journal,
                     std::unique_ptr<Policy> policy);
  absl::Status Run();

  // One turn of the loop: messages, what the threads have done, deadlines.
  void Turn();
  void ReceiveSome();
  void SendSome();
  void TakeCompletions();
  double WaitTime() const;
  bool Over() const;

  void Handle(Incoming incoming);
  void Drop(const Incoming& incoming, const absl::Status& why);
  void Refuse(const Incoming& incoming, const absl::Status& why);
  bool IsOwner();  // false: it has halted
  void LookAround();
  std::optional<Event> TakeClientMessage(const Incoming& incoming,
                                         const Identity& sender);

  void Step(const Event& event);
  void Carry(action::Persist&& action);
  void Carry(action::SolvePolicy&& action);
  void Carry(action::SendToWorker&& action);
  void Carry(action::SendToAgent&& action);
  void Carry(action::Reply&& action);
  void Carry(action::Halt&& action);
  void Halt(absl::Status why);
  // What may be told at once: who saw what is then lost would halt us.
  JournalPosition PersistedPosition() const {
    return {engine.position().term, persisted_seq};
  }
  // False: that peer is gone.
  bool Send(const std::string& peer, Message message);

  CoordinatorServerOptions options;
  std::unique_ptr<Gatekeeper> gatekeeper;  // the router's thread asks it
  std::unique_ptr<Router> router;
  Engine engine;
  EngineClock clock{0};
  PeerTable<WorkerKey> workers{kWorkerPeersMax};
  PeerTable<std::string> agents{kAgentPeersMax};
  ClientRequests clients;
  ReportCheck reports;
  Outbox outbox;
  uint64_t persisted_seq = 0;         // that the engine was told
  std::vector<std::string> troubles;  // that the log was told
  uint64_t dropped = 0;               // messages that can't be what they say
  uint64_t refused = 0;               // that their senders may not send
  WireReport wire_report;
  absl::Status halted;
  Time stop_at = kNever;
  Time look_at = 0;
  bool agent_rejected = false;  // in the present step
  std::atomic<bool> stop_requested{false};
  // Last, so that they end before the router that they wake.
  std::unique_ptr<SolverThread> solver;
  Recorder recorder;
};

CoordinatorServer::Impl::Impl(CoordinatorServerOptions given,
                              std::unique_ptr<Gatekeeper> keeper,
                              std::unique_ptr<Router> bound)
    : options(std::move(given)),
      gatekeeper(std::move(keeper)),
      router(std::move(bound)),
      engine(options.engine),
      clients(
          engine, agents,
          [this](const std::string& peer, Message message) {
            Send(peer, std::move(message));
          },
          {options.state_directory, options.policy, options.quota,
           [this](bool done, const AuditEntry& entry) {
             gatekeeper->Audit(clock.Now(), done, entry);
           },
           [this] { return CountsOf(*router, refused); },
           [this] { return troubles; }, [this] { router->waker().Wake(); }}),
      recorder(options.snapshots) {
  if (options.log == nullptr) {
    options.log = std::make_shared<spdlog::logger>(
        "gavel", std::make_shared<spdlog::sinks::null_sink_mt>());
  }
}

absl::Status CoordinatorServer::Impl::Start(std::unique_ptr<Journal> journal,
                                            std::unique_ptr<Policy> policy) {
  const std::string path = journal->path();
  const EngineClock recovery(0);
  const auto wake = [this] { router->waker().Wake(); };
  const auto note = [&](const std::string& what) {
    options.log->warn("journal {}: {}", path, what);
  };
  GAVEL_ASSIGN_OR_RETURN(
      const Recorder::Recovered recovered,
      recorder.Start(std::move(journal), options.engine, &engine, note, wake));
  options.log->info("journal {}: row {}, term {}; {} rows replayed in {:.3f} s",
                    path, recovered.position.seq, recovered.position.term,
                    recovered.rows_replayed, recovery.Now());
  clock = EngineClock(recovered.time);
  persisted_seq = recovered.position.seq;
  solver = std::make_unique<SolverThread>(std::move(policy), wake);
  event::CoordinatorStarted started{recovered.term};
  started.policy = options.policy;
  started.wall_s = WallClockNow();
  Step(started);
  if (!options.prices.empty()) {
    Step(event::PricesChanged{{options.prices.begin(), options.prices.end()}});
  }
  return halted;
}

absl::Status CoordinatorServer::Impl::Run() {
  options.log->info("listening on {}, term {}", router->endpoint(),
                    engine.position().term);
  if (options.announce != nullptr) {
    std::fprintf(options.announce, "gavel: listening on %s\n",
                 router->endpoint().c_str());
    std::fflush(options.announce);
  }
  while (!Over()) Turn();
  if (halted.ok()) options.log->info("stopped");
  return halted;
}

bool CoordinatorServer::Impl::Over() const {
  return !halted.ok() || stop_requested || clock.Now() >= stop_at;
}

void CoordinatorServer::Impl::Turn() {
  ReceiveSome();
  SendSome();
  TakeCompletions();
  if (clock.Now() >= engine.NextDeadline()) Step(event::Tick{});
  clients.Expire(clock.Now());
  LookAround();
  if (clients.shutdown_requested() && stop_at == kNever) {
    options.log->info("a client asked to stop");
    stop_at = clock.Now() + kFarewell_s;
  }
}

double CoordinatorServer::Impl::WaitTime() const {
  if (!outbox.empty()) return 0;
  const Time next = std::min(engine.NextDeadline(), stop_at);
  return std::clamp(next - clock.Now(), 0.0, kWaitMax_s);
}

void CoordinatorServer::Impl::ReceiveSome() {
  double wait_s = WaitTime();
  for (int count = 0; count < kMessagesPerTurnMax && halted.ok(); ++count) {
    std::optional<Incoming> incoming = router->Receive(wait_s);
    if (!incoming) return;
    Handle(*std::move(incoming));
    wait_s = 0;
  }
}

void CoordinatorServer::Impl::SendSome() {
  const size_t due = outbox.DueNow();
  for (size_t count = 0; count < due && halted.ok(); ++count) {
    std::optional<Action> next = outbox.Next();
    if (!next) return;
    std::visit([this](auto& a) { Carry(std::move(a)); }, *next);
  }
}

void CoordinatorServer::Impl::TakeCompletions() {
  const CommitThread::State state = recorder.state();
  if (state.persisted_seq > persisted_seq) {
    persisted_seq = state.persisted_seq;
    Step(event::Persisted{persisted_seq});
  }
  if (absl::IsAborted(state.status)) return Halt(state.status);
  if (!state.status.ok()) {
    return Halt(absl::Status(
        state.status.code(),
        ToAbsl(StrCat(state.status.message(),
                      ": a commit failed, and without the journal nothing may "
                      "be granted; make room or replace the disk, then start "
                      "the coordinator again. Jobs run on to the end of their "
                      "leases"))));
  }
  recorder.MaybeSnapshot(engine);
  if (std::vector<std::string> now = state.Troubles(); now != troubles) {
    troubles = std::move(now);
    for (const std::string& trouble : troubles)
      options.log->warn("{}", trouble);
  }
  clients.SendHistory();
  if (std::optional<event::AllocationReady> answer = solver->TakeAnswer()) {
    if (answer->result.outcome == SolveOutcome::kFailed) {
      options.log->error("policy {}: {}", options.policy,
                         answer->result.detail);
    }
    Step(*std::move(answer));
  }
}

void CoordinatorServer::Impl::Handle(Incoming incoming) {
  const absl::StatusOr<Identity> sender =
      gatekeeper->Admit(clock.Now(), incoming, engine);
  if (!sender.ok()) return Refuse(incoming, sender.status());
  if (const absl::Status valid = CheckMessage(incoming.message); !valid.ok()) {
    return Drop(incoming, valid);
  }
  if (const auto worker = SendingWorker(incoming.message)) {
    workers.Saw(*worker, incoming.peer);
    if (std::holds_alternative<LeaseRequest>(incoming.message)) {
      router->MayRenew(incoming);
    }
  }
  std::optional<std::string> server = SendingAgent(incoming.message);
  std::string agent_before;
  std::optional<Message> told;
  if (server.has_value()) {
    told = incoming.message;
    const std::string* const before = agents.Find(*server);
    if (before != nullptr) agent_before = *before;
    agents.Saw(*server, incoming.peer);
  }
  agent_rejected = false;
  if (const std::string news = NewsOf(incoming.message); !news.empty()) {
    options.log->info("{}", news);
  }
  if (const auto* exited = std::get_if<WorkerExited>(&incoming.message)) {
    workers.Forget(exited->worker);
  }
  if (const auto line = reports.Take(clock.Now(), &incoming.message)) {
    options.log->warn("{}", *line);
  }
  std::optional<Event> event = TakeClientMessage(incoming, *sender);
  if (!event) event = EventOf(std::move(incoming.message));
  if (event) Step(*event);
  // An agent that the engine refused vouches for nobody.
  if (told && !agent_rejected) gatekeeper->NoteWorkers(*told, engine.jobs());
  // Of two agents with one name, what is for that name goes to the first.
  if (agent_rejected && !agent_before.empty()) {
    agents.Saw(*server, agent_before);
  }
}

void CoordinatorServer::Impl::Refuse(const Incoming& incoming,
                                     const absl::Status& why) {
  if (std::has_single_bit(++refused)) {
    options.log->warn("{} refused ({} messages so far): {}",
                      MessageName(incoming.message), refused,
                      ToStd(why.message()));
  }
  std::optional<Message> answer =
      RefusalOf(incoming.message, why, PersistedPosition());
  if (answer.has_value()) Send(incoming.peer, *std::move(answer));
  if (absl::IsUnauthenticated(why)) return router->Cut(incoming);
  router->Offend(incoming);
}

bool CoordinatorServer::Impl::IsOwner() {
  const absl::Status owner = recorder.CheckLock();
  if (!owner.ok()) Halt(owner);
  return owner.ok();
}

void CoordinatorServer::Impl::LookAround() {
  if (clock.Now() < look_at) return;
  look_at = clock.Now() + kLookInterval_s;
  if (!IsOwner()) return;
  if (const auto line =
          wire_report.Next(clock.Now(), CountsOf(*router, refused))) {
    options.log->warn("{}", *line);
  }
  const auto reloaded = gatekeeper->Reload();
  if (!reloaded.has_value()) return;
  if (reloaded->ok()) {
    for (const std::string& change : **reloaded) {
      options.log->info("principal {}", change);
    }
    options.log->info("principals: {} now", gatekeeper->principals());
    // Nothing more is sent to one that is not on the list any more: whoever is,
    // is heard again within a heartbeat.
    agents = PeerTable<std::string>(kAgentPeersMax);
  } else {
    options.log->error("principals unchanged: {}",
                       ToStd(reloaded->status().message()));
  }
}

void CoordinatorServer::Impl::Drop(const Incoming& incoming,
                                   const absl::Status& why) {
  // Logged ever more rarely, so that nobody fills the disk from outside.
  if (std::has_single_bit(++dropped)) {
    options.log->warn("{} dropped ({} messages so far): {}",
                      MessageName(incoming.message), dropped,
                      ToStd(why.message()));
  }
  if (const auto* hello = std::get_if<AgentHello>(&incoming.message)) {
    Send(incoming.peer, AgentRejected{hello->server, PersistedPosition(),
                                      std::string(why.message()),
                                      hello->incarnation, hello->state_id});
  }
}

std::optional<Event> CoordinatorServer::Impl::TakeClientMessage(
    const Incoming& incoming, const Identity& sender) {
  const Time now = clock.Now();
  const Requester from{incoming.peer, incoming.address, sender};
  return std::visit(
      [&]<class T>(const T& message) -> std::optional<Event> {
        if constexpr (requires { clients.Take(now, from, message); }) {
          return clients.Take(now, from, message);
        }
        return std::nullopt;
      },
      incoming.message);
}

void CoordinatorServer::Impl::Step(const Event& event) {
  Actions actions = engine.Step(clock.Now(), event);
  const bool many = actions.size() > Outbox::kSentAtOnceMax;
  for (Action& action : actions) {
    for (Action& now : outbox.Take(std::move(action), many)) {
      std::visit([this](auto& a) { Carry(std::move(a)); }, now);
    }
  }
}

void CoordinatorServer::Impl::Carry(action::Persist&& action) {
  recorder.Append(std::move(action), engine);
}

void CoordinatorServer::Impl::Carry(action::SolvePolicy&& action) {
  solver->Solve(std::move(action));
}

// A renewal needs no row in which the journal would notice a successor, and
// this one may have stood still since the worker asked: then the successor may
// take the lease as over. If it has not begun yet, it waits as long as this
// grant, which counts from when it was asked for.
void CoordinatorServer::Impl::Carry(action::SendToWorker&& action) {
  if (std::holds_alternative<LeaseGrant>(action.message) && !IsOwner()) {
    return;
  }
  const std::string* peer = workers.Find(action.worker);
  if (peer == nullptr || Send(*peer, std::move(action.message))) return;
  workers.Forget(action.worker);
}

void CoordinatorServer::Impl::Carry(action::SendToAgent&& action) {
  agent_rejected |= std::holds_alternative<AgentRejected>(action.message);
  const std::string* peer = agents.Find(action.server);
  if (peer == nullptr || Send(*peer, std::move(action.message))) return;
  agents.Forget(action.server);
}

void CoordinatorServer::Impl::Carry(action::Reply&& action) {
  clients.Answer(action);
  if (action.error.empty() && action.job.valid()) {
    options.log->info("job {}: request accepted", action.job.value());
  }
}

void CoordinatorServer::Impl::Carry(action::Halt&& action) {
  Halt(absl::AbortedError(action.reason));
}

void CoordinatorServer::Impl::Halt(absl::Status why) {
  if (!halted.ok()) return;
  options.log->critical("{}", ToStd(why.message()));
  halted = std::move(why);
}

// A message that is lost on the way is asked for again; nothing waits for it.
bool CoordinatorServer::Impl::Send(const std::string& peer, Message message) {
  gatekeeper->Seal(&message);
  const absl::Status sent = router->Send(peer, message);
  if (sent.ok()) return true;
  options.log->debug("{} not sent: {}", MessageName(message),
                     ToStd(sent.message()));
  return !absl::IsNotFound(sent);
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() = default;

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Create(
    CoordinatorServerOptions options) {
  if (options.state_directory.empty()) {
    return absl::InvalidArgumentError(
        "no state directory given; name one with --state");
  }
  GAVEL_RETURN_IF_ERROR(CheckTimes(options.engine));
  GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy,
                         MakePolicy(options.policy));
  SetUpFor(*policy, &options.engine);
  GAVEL_ASSIGN_OR_RETURN(
      const PrivateDirectory state,
      PrivateDirectory::Make(options.state_directory, "--state"));
  options.state_directory = state.path();
  // The journal first: of two reasons to refuse, it is the one that matters.
  GAVEL_ASSIGN_OR_RETURN(
      std::unique_ptr<Journal> journal,
      Journal::Open(options.state_directory + "/journal.db", options.journal));
  std::optional<Gatekeeper::Keys> keys;
  RouterOptions router_options;
  router_options.keys = options.keys;
  if (options.keys.has_value()) {
    GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<AccessList> access,
                           AccessList::Open(options.principals_path));
    GAVEL_ASSIGN_OR_RETURN(const PositionProofs proofs,
                           PositionProofs::Make(options.keys->secret_key));
    router_options.may_connect = [list = access.get()](const std::string& key) {
      return list->Knows(key);
    };
    keys.emplace(
        Gatekeeper::Keys{std::move(access), proofs,
                         RequestRates(options.quota.requests_per_s_max)});
  }
  GAVEL_ASSIGN_OR_RETURN(
      AuditLog audit,
      AuditLog::Open(StrCat(options.state_directory, "/", kAuditFile)));
  GAVEL_ASSIGN_OR_RETURN(
      std::unique_ptr<Router> router,
      Router::Bind(options.endpoint, std::move(router_options)));
  auto impl = std::make_unique<Impl>(
      std::move(options),
      std::make_unique<Gatekeeper>(std::move(keys), std::move(audit)),
      std::move(router));
  GAVEL_RETURN_IF_ERROR(impl->Start(std::move(journal), std::move(policy)));
  return std::unique_ptr<CoordinatorServer>(
      new CoordinatorServer(std::move(impl)));
}

absl::Status CoordinatorServer::Run() { return impl_->Run(); }

void CoordinatorServer::Stop() {
  impl_->stop_requested = true;
  impl_->router->waker().Wake();
}

const std::string& CoordinatorServer::endpoint() const {
  return impl_->router->endpoint();
}

}  // namespace gavel
