#include "coordinator/server/coordinator_server.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/policy/policy.h"
#include "coordinator/server/coordinator_impl.h"
#include "coordinator/server/engine_setup.h"
#include "coordinator/server/journal/journal.h"
#include "coordinator/server/wall_clock.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/private_directory.h"
#include "spdlog/sinks/null_sink.h"
#include "spdlog/spdlog.h"

namespace gavel {
namespace {

// Between two looks at deadlines and finished commits.
constexpr int kMessagesPerTurnMax = 64;
constexpr double kWaitMax_s = 1;
// So long a revoked key may still be used, and so long a coordinator that was
// replaced speaks at most.
constexpr double kLookInterval_s = 1;
// After a client's shutdown, for the answer to leave.
constexpr double kFarewell_s = 0.1;

// Above any that the lost end of a journal may have begun, also where two
// losses follow on each other: terms rise by one with each start, and those
// after a loss are seconds since 1970.
uint64_t TermAfterLoss() { return static_cast<uint64_t>(WallClockNow()); }

}  // namespace

CoordinatorServer::Impl::Impl(CoordinatorServerOptions given,
                              std::string cluster,
                              std::unique_ptr<Gatekeeper> keeper,
                              std::unique_ptr<Router> bound)
    : options(std::move(given)),
      cluster_id(std::move(cluster)),
      gatekeeper(std::move(keeper)),
      router(std::move(bound)),
      engine(options.engine),
      clients(
          engine, agents,
          [this](const std::string& peer, Message message) {
            Send(peer, std::move(message));
          },
          {options.state_directory, cluster_id, options.policy, options.quota,
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
      recorder.Start(std::move(journal), options.engine, &engine, note, wake,
                     options.accept_loss ? TermAfterLoss() : 0));
  options.log->info("journal {}: row {}, term {}; {} rows replayed in {:.3f} s",
                    path, recovered.position.seq, recovered.position.term,
                    recovered.rows_replayed, recovery.Now());
  clock = EngineClock(recovered.time);
  persisted_seq = recovered.position.seq;
  solver = std::make_unique<SolverThread>(std::move(policy), wake);
  event::CoordinatorStarted started{recovered.term};
  const DecidingPolicy& set = engine.operated().policy;
  const bool stays =
      !set.instead_of.empty() && set.instead_of == options.policy;
  started.policy = stays ? set.name : options.policy;
  if (stays) {
    options.log->info("policy {}: set by `gavel policy` in place of {}",
                      set.name, set.instead_of);
  }
  started.wall_s = WallClockNow();
  started.after_loss = options.accept_loss;
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
  if (options.abandon_solves) solve_abandoned = !solver->Stop();
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
  TakeSettings();
  if (clients.shutdown_requested() && stop_at == kNever) {
    options.log->info("a client asked to stop");
    stop_at = clock.Now() + kFarewell_s;
  }
}

double CoordinatorServer::Impl::WaitTime() const {
  if (!outbox.empty()) return 0;
  const Time next =
      std::min({engine.NextDeadline(), clients.NextDeadline(), stop_at});
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
  if (std::vector<std::string> now = recorder.Troubles(); now != troubles) {
    troubles = std::move(now);
    for (const std::string& trouble : troubles)
      options.log->warn("{}", trouble);
  }
  clients.SendAnswers(clock.Now());
  if (std::optional<event::AllocationReady> answer = solver->TakeAnswer()) {
    if (answer->result.outcome == SolveOutcome::kFailed) {
      options.log->error("policy {}: {}", engine.operated().policy.name,
                         answer->result.detail);
    }
    Step(*std::move(answer));
  }
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
  for (const std::string& line : gatekeeper->RefusedHandshakes(clock.Now())) {
    options.log->warn("{}", line);
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

void CoordinatorServer::Impl::TakeSettings() {
  const std::lock_guard lock(settings_mutex);
  if (!new_quota.has_value()) return;
  clients.SetQuota(*new_quota);
  gatekeeper->SetRequestRate(new_quota->requests_per_s_max);
  new_quota.reset();
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

const std::string& CoordinatorServer::endpoint() const {
  return impl_->router->endpoint();
}

}  // namespace gavel
