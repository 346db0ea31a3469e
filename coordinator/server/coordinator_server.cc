#include "coordinator/server/coordinator_server.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/engine/engine.h"
#include "coordinator/policy/policy.h"
#include "coordinator/server/client_requests.h"
#include "coordinator/server/engine_runner.h"
#include "coordinator/server/gatekeeper.h"
#include "coordinator/server/incoming.h"
#include "coordinator/server/journal.h"
#include "coordinator/server/local_requests.h"
#include "coordinator/server/notifier.h"
#include "coordinator/server/peer_links.h"
#include "core/codec.h"
#include "core/messages.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "runtime/files/stopwatch.h"
#include "runtime/transport/dealer_router.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/null_sink.h"
#include "spdlog/spdlog.h"

namespace gavel {

// ---- The way of a message

namespace {

// The way of one received message through the coordinator: authenticate,
// authorise, validate, step, send. The event loop calls Handle for each message
// that the router has received. Not thread-safe; borrows all its parts.
class MessagePipeline {
 public:
  struct Parts {
    const Engine& engine;
    Gatekeeper& gatekeeper;
    Router& router;
    PeerLinks& peers;
    ClientRequests& clients;
    EngineRunner& runner;
    LocalRequests& local;
    spdlog::logger& log;
  };
  explicit MessagePipeline(const Parts& parts) : parts_(parts) {}

  void Handle(Incoming incoming);

  // Messages which their senders may not send.
  uint64_t refused() const { return refused_; }

 private:
  // An agent's message, for what follows once the engine has judged it.
  struct AgentMessage {
    std::string server;
    Message message;
    // Where the server's agent was heard from before; empty: nowhere.
    std::string peer_before;
  };

  // The ends of a message which does not reach the engine. Refuse: its sender
  // may not send it. Drop: its content is impossible.
  void Refuse(const Incoming& incoming, const absl::Status& why);
  void Drop(const Incoming& incoming, const absl::Status& why);

  // Stores where the sender is to be answered. Nothing: not from an agent.
  std::optional<AgentMessage> NoteSender(Incoming& incoming);
  // The event that the engine has to decide; nothing when the message is
  // answered without the engine.
  std::optional<Event> EventFor(const Identity& sender, Incoming incoming);
  std::optional<Event> EventForClient(const Identity& sender,
                                      const Incoming& incoming);
  // The engine has accepted the agent's message, or refused it.
  void Settle(const AgentMessage& message, bool accepted);

  const Parts parts_;
  ReportCheck reports_;
  uint64_t dropped_ = 0;
  uint64_t refused_ = 0;
};

// The processor time of this thread alone, so that a busy machine does not
// raise the cost of a request.
double ProcessorSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) +
         static_cast<double>(used.tv_nsec) / 1e9;
}

bool RejectAgent(const Actions& actions) {
  return std::ranges::any_of(actions, [](const Action& action) {
    const auto* const sent = std::get_if<action::SendToAgent>(&action);
    return sent != nullptr &&
           std::holds_alternative<AgentRejected>(sent->message);
  });
}

}  // namespace

// A message is authorised before it is validated, so that a sender which may
// not send it gets that answer, and an entry in the audit log, whatever the
// message contains.
void MessagePipeline::Handle(Incoming incoming) {
  const Time now = parts_.runner.Now();
  const absl::StatusOr<Identity> sender =
      parts_.gatekeeper.Authenticate(now, incoming);
  if (!sender.ok()) return Refuse(incoming, sender.status());
  BidderKey* const bidder = SendingBidder(incoming.message);
  if (bidder != nullptr && bidder->owner.empty()) bidder->owner = sender->name;

  const absl::Status authorized =
      parts_.gatekeeper.Authorize(now, *sender, incoming, parts_.engine);
  if (!authorized.ok()) return Refuse(incoming, authorized);

  const absl::Status valid = CheckMessage(incoming.message);
  if (!valid.ok()) return Drop(incoming, valid);

  const std::optional<AgentMessage> of_agent = NoteSender(incoming);
  const std::optional<Event> event = EventFor(*sender, std::move(incoming));
  Actions actions = event ? parts_.runner.Step(*event) : Actions{};

  const bool accepted = !RejectAgent(actions);
  parts_.runner.CarryOut(std::move(actions));
  if (of_agent) Settle(*of_agent, accepted);
}

void MessagePipeline::Refuse(const Incoming& incoming,
                             const absl::Status& why) {
  // Logged ever more rarely: no sender can fill the disk.
  if (std::has_single_bit(++refused_)) {
    parts_.log.warn("{} refused ({} messages so far): {}",
                    MessageName(incoming.message), refused_,
                    ToStd(why.message()));
  }
  if (LocalRequests::IsLocal(incoming)) {  // has no connection to cut
    return parts_.local.Refuse(incoming.peer, why);
  }
  std::optional<Message> answer =
      RefusalOf(incoming.message, why, parts_.runner.PersistedPosition());
  if (answer) parts_.peers.Send(incoming.peer, *std::move(answer));
  if (absl::IsUnauthenticated(why)) return parts_.router.Cut(incoming);
  parts_.router.RecordOffence(incoming);
}

void MessagePipeline::Drop(const Incoming& incoming, const absl::Status& why) {
  if (std::has_single_bit(++dropped_)) {
    parts_.log.warn("{} dropped ({} messages so far): {}",
                    MessageName(incoming.message), dropped_,
                    ToStd(why.message()));
  }
  if (LocalRequests::IsLocal(incoming)) {
    return parts_.local.Refuse(incoming.peer, why);
  }
  if (!std::holds_alternative<AgentHello>(incoming.message)) return;
  parts_.peers.Send(
      incoming.peer,
      *RefusalOf(incoming.message, why, parts_.runner.PersistedPosition()));
}

std::optional<MessagePipeline::AgentMessage> MessagePipeline::NoteSender(
    Incoming& incoming) {
  if (const BidderKey* bidder = SendingBidder(incoming.message)) {
    // Only the latest process of an app has an address.
    parts_.peers.bidders().ForgetBefore({bidder->owner, bidder->app, 0},
                                        *bidder);
    parts_.peers.bidders().Saw(*bidder, incoming.peer);
  }
  const Message& message = incoming.message;
  PeerTable<WorkerKey>& workers = parts_.peers.workers();
  if (const auto worker = SendingWorker(message)) {
    workers.Saw(*worker, incoming.peer);
    if (std::holds_alternative<LeaseRequest>(message)) {
      parts_.router.MayRenew(incoming);
    }
  }
  if (const auto* exited = std::get_if<WorkerExited>(&message)) {
    workers.Forget(exited->worker);
  }
  const std::optional<std::string> server = SendingAgent(message);
  if (!server) return std::nullopt;
  PeerTable<std::string>& agents = parts_.peers.agents();
  const std::string* const before = agents.Find(*server);
  AgentMessage of_agent{*server, message, before == nullptr ? "" : *before};
  agents.Saw(*server, incoming.peer);
  return of_agent;
}

std::optional<Event> MessagePipeline::EventFor(const Identity& sender,
                                               Incoming incoming) {
  if (const auto* launched = std::get_if<WorkerLaunched>(&incoming.message)) {
    parts_.runner.NoteLaunch(*launched);
  }
  if (const auto line = reports_.Take(parts_.runner.Now(), &incoming.message)) {
    parts_.log.warn("{}", *line);
  }
  std::optional<Event> event = EventForClient(sender, incoming);
  return event ? std::move(event) : EventOf(std::move(incoming.message));
}

std::optional<Event> MessagePipeline::EventForClient(const Identity& sender,
                                                     const Incoming& incoming) {
  const Time now = parts_.runner.Now();
  const Requester from{incoming.peer, incoming.address, sender,
                       incoming.public_key};
  return std::visit(
      [&]<class T>(const T& message) -> std::optional<Event> {
        if constexpr (ForClients<T>) {
          const double before_s = ProcessorSeconds();
          std::optional<Event> event = parts_.clients.Take(now, from, message);
          parts_.gatekeeper.Charge(now, sender, ProcessorSeconds() - before_s);
          return event;
        }
        return std::nullopt;
      },
      incoming.message);
}

void MessagePipeline::Settle(const AgentMessage& of_agent, bool accepted) {
  if (accepted) {
    // Only an agent that the engine knows vouches for the keys of workers.
    parts_.gatekeeper.NoteWorkers(of_agent.message, parts_.engine.jobs());
  } else if (!of_agent.peer_before.empty()) {
    // When two agents have one name, the first one gets the messages to that
    // name.
    parts_.peers.agents().Saw(of_agent.server, of_agent.peer_before);
  }
}

// ---- The event loop

namespace {

// Between two checks of deadlines and finished commits.
constexpr int kMessagesPerTurnMax = 64;
constexpr int kLocalPerTurnMax = 8;
constexpr double kWaitMax_s = 1;
// At most so long a revoked key is still accepted, and a coordinator that was
// replaced still sends.
constexpr double kCheckInterval_s = 1;
// After a client's shutdown, for the answer to leave.
constexpr double kFarewell_s = 0.1;

// Above each term that the lost end of a journal may have begun, also after
// several losses: terms rise by one with each start, and one after a loss is
// the seconds since 1970.
uint64_t TermAfterLoss() { return static_cast<uint64_t>(WallClockNow()); }

CoordinatorServerOptions WithLog(CoordinatorServerOptions options) {
  if (options.log == nullptr) {
    options.log = std::make_shared<spdlog::logger>(
        "gavel", std::make_shared<spdlog::sinks::null_sink_mt>());
  }
  return options;
}

bool AnyWorkerRuns(const Engine& recovered) {
  return std::ranges::any_of(recovered.jobs(), [](const auto& entry) {
    return std::ranges::any_of(entry.second.workers, [](const Worker& worker) {
      return worker.process != ProcessState::kNone;
    });
  });
}

}  // namespace

// The coordinator's parts, in the order in which they depend on each other, and
// the event loop. One thread owns it.
struct CoordinatorServer::Impl {
  Impl(CoordinatorServerOptions given, const std::string& cluster_id,
       std::unique_ptr<Gatekeeper> keeper, std::unique_ptr<Router> bound)
      : options(WithLog(std::move(given))),
        gatekeeper(std::move(keeper)),
        router(std::move(bound)),
        local([this] { router->waker().Wake(); }),
        engine(options.engine),
        peers(*gatekeeper, *router, local, *options.log),
        clients(
            engine, peers.agents(),
            [this](const std::string& peer, Message message) {
              peers.Send(peer, std::move(message));
            },
            ClientOptions(cluster_id)),
        runner({engine, peers, clients, *options.log,
                [this] { router->waker().Wake(); },
                [this] {
                  return notifier == nullptr ? std::vector<std::string>()
                                             : notifier->Troubles();
                }},
               cluster_id, options.snapshots),
        pipeline({engine, *gatekeeper, *router, peers, clients, runner, local,
                  *options.log}) {}

  ClientRequests::Options ClientOptions(const std::string& cluster_id) {
    ClientRequests::Options client_options;
    client_options.state_directory = options.state_directory;
    client_options.cluster_id = cluster_id;
    client_options.policy = options.policy;
    client_options.introspection = options.engine.introspection;
    client_options.quota = options.quota;
    client_options.audit = [this](bool done, const AuditEntry& entry) {
      gatekeeper->Audit(runner.Now(), done, entry);
    };
    client_options.wire = [this] {
      return CountsOf(*router, pipeline.refused());
    };
    client_options.troubles = [this] { return runner.troubles(); };
    client_options.threads = [this] { return runner.threads(); };
    client_options.dashboard = options.dashboard;
    client_options.wake = [this] { router->waker().Wake(); };
    client_options.test_notices = [this](uint64_t handle) {
      return TestNotices(handle);
    };
    return client_options;
  }

  absl::Status Start(std::unique_ptr<Journal> journal,
                     std::unique_ptr<Policy> policy) {
    GAVEL_ASSIGN_OR_RETURN(
        const JournalWriter::Recovered recovered,
        runner.Recover(std::move(journal), options.engine, std::move(policy),
                       options.accept_loss ? TermAfterLoss() : 0));
    if (AnyWorkerRuns(engine)) gatekeeper->ExpectWorkers();
    const event::CoordinatorStarted started = StartedEvent(recovered.term);
    if (options.accept_loss) {
      options.log->warn(
          "what came behind row {} is given up: term {} begins, all agents and "
          "workers are told, and those of jobs that are lost end",
          recovered.position.seq, recovered.term);
      gatekeeper->Audit(0, true,
                        {"", "", "", "accept loss",
                         StrCat("behind row ", recovered.position.seq),
                         StrCat("done: term ", recovered.term)});
    }
    GAVEL_RETURN_IF_ERROR(StartNotices(recovered.position.seq));
    runner.CarryOut(runner.Step(started));
    if (!options.prices.empty()) {
      runner.CarryOut(runner.Step(event::PricesChanged{
          {options.prices.begin(), options.prices.end()}}));
    }
    return runner.halted();
  }

  // `last_seq`: the journal's last row. Without a notifier its position file is
  // removed: a later notifier would tell everything that happened meanwhile.
  absl::Status StartNotices(uint64_t last_seq) {
    const std::string position = options.state_directory + "/notified";
    if (options.notify.empty()) {
      std::remove(position.c_str());
      return absl::OkStatus();
    }
    Notifier::Options made;
    made.spec = options.notify;
    made.journal = options.state_directory + "/journal.db";
    made.position = position;
    made.coordinator = router->endpoint();
    GAVEL_ASSIGN_OR_RETURN(notifier,
                           Notifier::Start(std::move(made), last_seq,
                                           [this] { router->waker().Wake(); }));
    return absl::OkStatus();
  }

  absl::Status TestNotices(uint64_t handle) {
    if (notifier == nullptr) {
      return absl::FailedPreconditionError(
          "the coordinator tells nobody; write command or webhook below "
          "[notify] into its cluster file (--cluster), and start it again");
    }
    if (notifier->Test(handle)) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        "the coordinator has too many tests to do; try again");
  }

  void TakeTestedNotices() {
    if (notifier == nullptr) return;
    while (auto tested = notifier->TakeTested()) {
      clients.Answer({tested->first, JobId(), std::move(tested->second)});
    }
  }

  event::CoordinatorStarted StartedEvent(uint64_t term) const {
    event::CoordinatorStarted started{term};
    const DecidingPolicy& set = engine.operated().policy;
    const bool stays =
        !set.instead_of.empty() && set.instead_of == options.policy;
    started.policy = stays ? set.name : options.policy;
    if (stays) {
      options.log->info("policy {}: set by `gavel policy` in place of {}",
                        set.name, set.instead_of);
    }
    if (set.introspection.value_or(options.engine.introspection) !=
        options.engine.introspection) {
      options.log->info("introspection {}: set by `gavel policy`",
                        *set.introspection ? "on" : "off");
    }
    started.wall_s = WallClockNow();
    started.after_loss = options.accept_loss;
    return started;
  }

  absl::Status Run() {
    options.log->info("listening on {}, term {}", router->endpoint(),
                      engine.position().term);
    if (options.announce != nullptr) {
      std::fprintf(options.announce, "gavel: listening on %s\n",
                   router->endpoint().c_str());
      std::fflush(options.announce);
    }
    while (!Over()) Turn();
    local.Close();
    if (options.abandon_solves) solve_abandoned = !runner.StopSolving();
    if (runner.halted().ok()) options.log->info("stopped");
    return runner.halted();
  }

  bool Over() const {
    return !runner.halted().ok() || stop_requested || runner.Now() >= stop_at;
  }

  // One turn of the loop: messages, what the threads have done, deadlines.
  void Turn() {
    ReceiveSome();
    TakeLocal();
    runner.SendSome();
    runner.TakeCompletions();
    TakeTestedNotices();
    runner.TakeDeadline();
    clients.Expire(runner.Now());
    CheckOutside();
    TakeSettings();
    if (clients.shutdown_requested() && stop_at == kNever) {
      options.log->info("a client asked to stop");
      stop_at = runner.Now() + kFarewell_s;
    }
  }

  double WaitTime() const {
    if (runner.has_unsent() || local.has_waiting()) return 0;
    const Time next =
        std::min({engine.NextDeadline(), clients.NextDeadline(), stop_at});
    return std::clamp(next - runner.Now(), 0.0, kWaitMax_s);
  }

  void ReceiveSome() {
    double wait_s = WaitTime();
    for (int count = 0; count < kMessagesPerTurnMax && runner.halted().ok();
         ++count) {
      std::optional<Incoming> incoming = router->Receive(wait_s);
      if (!incoming) return;
      pipeline.Handle(*std::move(incoming));
      wait_s = 0;
    }
  }

  void TakeLocal() {
    for (int count = 0; count < kLocalPerTurnMax && runner.halted().ok();
         ++count) {
      std::optional<Incoming> incoming = local.Next();
      if (!incoming) return;
      pipeline.Handle(*std::move(incoming));
    }
  }

  // Once a second: the journal's lock, and what changed outside.
  void CheckOutside() {
    if (runner.Now() < check_at) return;
    check_at = runner.Now() + kCheckInterval_s;
    if (!runner.IsOwner()) return;
    if (const auto line = wire_report.Next(
            runner.Now(), CountsOf(*router, pipeline.refused()))) {
      options.log->warn("{}", *line);
    }
    for (const std::string& line :
         gatekeeper->RefusedHandshakes(runner.Now())) {
      options.log->warn("{}", line);
    }
    ReloadPrincipals();
  }

  void ReloadPrincipals() {
    const auto reloaded = gatekeeper->Reload();
    if (!reloaded.has_value()) return;
    if (!reloaded->ok()) {
      options.log->error("principals unchanged: {}",
                         ToStd(reloaded->status().message()));
      return;
    }
    for (const std::string& change : **reloaded) {
      options.log->info("principal {}", change);
    }
    options.log->info("principals: {} now", gatekeeper->principals());
    if (options.end_tokens != nullptr) {
      options.end_tokens([this](const std::string& public_key) {
        return gatekeeper->Knows(public_key);
      });
    }
    // An agent that is no longer on the list gets no messages from here on. The
    // others are known again after their next heartbeat.
    peers.ForgetAgents();
  }

  void TakeSettings() {
    const std::lock_guard lock(settings_mutex);
    if (!new_quota.has_value()) return;
    clients.SetQuota(*new_quota);
    gatekeeper->SetRequestRate(new_quota->requests_per_s_max);
    new_quota.reset();
  }

  const CoordinatorServerOptions options;
  std::unique_ptr<Gatekeeper> gatekeeper;  // the router's thread asks it
  std::unique_ptr<Router> router;
  LocalRequests local;
  Engine engine;
  PeerLinks peers;
  ClientRequests clients;
  // Behind the router: its threads wake it.
  EngineRunner runner;
  MessagePipeline pipeline;
  std::unique_ptr<Notifier> notifier;  // null: nobody is told
  WireReport wire_report;
  Time stop_at = kNever;
  Time check_at = 0;
  bool solve_abandoned = false;
  std::atomic<bool> stop_requested{false};
  std::mutex settings_mutex;  // guards the next
  std::optional<QuotaOptions> new_quota;
};

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
  // The journal first: of several reasons to refuse, it is the important one.
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
    router_options.may_connect =
        [list = access.get()](const std::string& key, const std::string& from) {
          return list->Admit(key, from);
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
      std::move(options), journal->cluster_id(),
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

void CoordinatorServer::SetQuota(const QuotaOptions& quota) {
  {
    const std::lock_guard lock(impl_->settings_mutex);
    impl_->new_quota = quota;
  }
  impl_->router->waker().Wake();
}

bool CoordinatorServer::solve_abandoned() const {
  return impl_->solve_abandoned;
}

LocalRequests& CoordinatorServer::local() { return impl_->local; }

const std::string& CoordinatorServer::endpoint() const {
  return impl_->router->endpoint();
}

}  // namespace gavel
