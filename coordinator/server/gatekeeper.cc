#include "coordinator/server/gatekeeper.h"

#include <sys/stat.h>

#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "coordinator/server/incoming.h"
#include "coordinator/server/local_requests.h"
#include "core/codec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/curve.h"
#include "sodium.h"

namespace gavel {

// ---- Keys

namespace {

std::string WithRole(const std::string& name, const Principal& principal) {
  return StrCat(name, " (", RoleName(principal.role), ")");
}

std::string Change(const std::string& name, const Principal& before,
                   const Principal& now) {
  std::string change = StrCat(WithRole(name, now), " changed:");
  if (now.role != before.role) {
    change += StrCat(" was ", RoleName(before.role), ",");
  }
  if (now.unix_user != before.unix_user) {
    change +=
        StrCat(" runs as ", now.unix_user.empty() ? "nobody" : now.unix_user,
               " instead of ",
               before.unix_user.empty() ? "nobody" : before.unix_user, ",");
  }
  if (now.public_key != before.public_key) change += " has another key,";
  if (now.allowance != before.allowance) {
    change += " has other entities or weights,";
  }
  change.pop_back();
  return change;
}

std::vector<std::string> Changes(const Principals& before,
                                 const Principals& now) {
  std::vector<std::string> changes;
  for (const auto& [name, principal] : before) {
    if (!now.contains(name)) {
      changes.push_back(WithRole(name, principal) + " revoked");
    }
  }
  for (const auto& [name, principal] : now) {
    const auto known = before.find(name);
    if (known == before.end()) {
      changes.push_back(WithRole(name, principal) + " added");
    } else if (known->second != principal) {
      changes.push_back(Change(name, known->second, principal));
    }
  }
  return changes;
}

}  // namespace

bool RefusedKeys::Note(Clock::time_point now, const std::string& key,
                       const std::string& address, const std::string& was) {
  if (!keys_.contains(key) && keys_.size() >= kKeysMax) {
    keys_.erase(keys_.begin());
  }
  const auto [it, added] =
      keys_.try_emplace(key, Entry{{key, "", "", 0}, now, now, now + kMoment});
  Entry& entry = it->second;
  entry.last = now;
  entry.refused.address = address;
  entry.refused.was = was;
  ++entry.refused.attempts;
  return now - entry.first >= kMoment && now >= unknown_from_;
}

std::vector<RefusedKey> RefusedKeys::Take(
    Clock::time_point now,
    const std::function<bool(const std::string&)>& known) {
  std::vector<RefusedKey> due;
  for (auto it = keys_.begin(); it != keys_.end();) {
    Entry& entry = it->second;
    if (known(it->first) || now - entry.last >= kInterval) {
      it = keys_.erase(it);
      continue;
    }
    const bool early = entry.refused.was.empty() && now < unknown_from_;
    if (!early && now >= entry.tell_at && entry.refused.attempts > 0) {
      due.push_back(entry.refused);
      entry.refused.attempts = 0;
      entry.tell_at = now + kInterval;
    }
    ++it;
  }
  return due;
}

absl::StatusOr<std::unique_ptr<AccessList>> AccessList::Open(std::string path) {
  std::unique_ptr<AccessList> list(new AccessList(std::move(path)));
  list->version_ = list->Look();
  GAVEL_RETURN_IF_ERROR(list->Read().status());
  return list;
}

AccessList::Version AccessList::Look() const {
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
          info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

absl::StatusOr<std::vector<std::string>> AccessList::Read() {
  GAVEL_ASSIGN_OR_RETURN(Principals principals, ReadPrincipals(path_));
  std::vector<std::string> changes = Changes(principals_, principals);
  std::map<std::string, Identity> by_key;
  for (const auto& [name, principal] : principals) {
    by_key[principal.public_key] = {name, principal.role, principal.unix_user,
                                    WorkerKey(), principal.allowance};
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [name, principal] : principals_) {
    if (!by_key.contains(principal.public_key)) {
      Revoke(principal.public_key, WithRole(name, principal));
    }
  }
  by_key_ = std::move(by_key);
  // A server's workers are known by its word alone.
  std::erase_if(workers_, [&](const auto& entry) {
    const auto& [server, worker] = entry.second;
    if (principals.contains(server)) return false;
    Revoke(entry.first,
           StrCat("job ", worker.job.value(), " rank ", worker.rank));
    by_server_.erase({server, worker, entry.first});
    return true;
  });
  principals_ = std::move(principals);
  return changes;
}

std::optional<absl::StatusOr<std::vector<std::string>>> AccessList::Reload() {
  const Version now = Look();
  if (now == version_) return std::nullopt;
  version_ = now;
  return Read();
}

bool AccessList::Knows(const std::string& public_key) const {
  const std::lock_guard lock(mutex_);
  return IsKnown(public_key);
}

// Under the mutex, as the next.
bool AccessList::IsKnown(const std::string& public_key) const {
  return by_key_.contains(public_key) || workers_.contains(public_key);
}

void AccessList::Revoke(const std::string& public_key, std::string whose) {
  if (revoked_.size() >= kRevokedMax) revoked_.erase(revoked_.begin());
  revoked_[public_key] = std::move(whose);
}

Admission AccessList::Admit(const std::string& public_key,
                            const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (IsKnown(public_key)) return Admission::kAllowed;
  const auto revoked = revoked_.find(public_key);
  const bool was_known = revoked != revoked_.end();
  const bool stays = refused_.Note(RefusedKeys::Clock::now(), public_key,
                                   address, was_known ? revoked->second : "");
  if (was_known) return Admission::kRevoked;
  return stays ? Admission::kRefused : Admission::kNotYet;
}

void AccessList::ExpectWorkers() {
  const std::lock_guard lock(mutex_);
  refused_.ExpectWorkersUntil(RefusedKeys::Clock::now() +
                              RefusedKeys::kAgentsReturn);
}

std::vector<RefusedKey> AccessList::TakeRefused() {
  const std::lock_guard lock(mutex_);
  return refused_.Take(RefusedKeys::Clock::now(),
                       [this](const std::string& key) { return IsKnown(key); });
}

std::optional<Identity> AccessList::Find(const std::string& public_key) const {
  const std::lock_guard lock(mutex_);
  if (const auto it = by_key_.find(public_key); it != by_key_.end()) {
    return it->second;
  }
  const auto it = workers_.find(public_key);
  if (it == workers_.end()) return std::nullopt;
  const WorkerKey& worker = it->second.worker;
  return Identity{StrCat("job ", worker.job.value(), " rank ", worker.rank),
                  Role::kWorker, "", worker};
}

size_t AccessList::principals() const {
  const std::lock_guard lock(mutex_);
  return by_key_.size();
}

void AccessList::AddWorker(const std::string& server, const WorkerKey& worker,
                           const std::string& public_key) {
  if (!IsCurveKey(public_key)) return;
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(public_key)) return;
  if (workers_.try_emplace(public_key, RunningKey{server, worker}).second) {
    by_server_.emplace(server, worker, public_key);
  }
}

void AccessList::RemoveWorker(const std::string& server,
                              const WorkerKey& worker) {
  Remove(server, &worker);
}

void AccessList::RemoveWorkersOf(const std::string& server) {
  Remove(server, nullptr);
}

void AccessList::Remove(const std::string& server, const WorkerKey* worker) {
  const std::lock_guard lock(mutex_);
  auto it = by_server_.lower_bound(
      {server, worker == nullptr ? WorkerKey() : *worker, ""});
  while (it != by_server_.end() && std::get<0>(*it) == server &&
         (worker == nullptr || std::get<1>(*it) == *worker)) {
    workers_.erase(std::get<2>(*it));
    it = by_server_.erase(it);
  }
}

// ---- Messages

namespace {

constexpr std::string_view kPurpose = "gavel journal position 1";

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// The same on every machine.
void Put(uint64_t value, unsigned char* bytes) {
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<unsigned char>(value >> 8 * i);
  }
}

uint64_t Get(const unsigned char* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

// Changes named in one line of the audit log; the coordinator's log has all.
constexpr size_t kChangesInAuditMax = 20;

bool RunsOn(const std::string& server, const WorkerKey& key,
            const std::map<JobId, Job>& jobs) {
  const auto job = jobs.find(key.job);
  if (job == jobs.end() || key.rank < 0) return false;
  const auto rank = static_cast<size_t>(key.rank);
  if (rank >= job->second.workers.size()) return false;
  const Worker& worker = job->second.workers[rank];
  return worker.incarnation == key.incarnation && worker.server == server;
}

// A second of the event loop costs as much as this many requests: 200 requests
// a second then take at most a fifteenth of the loop.
constexpr double kRequestsPerLoopSecond = 3000;

bool HasQuota(const Identity& sender) {
  return sender.role == Role::kUser || sender.role == Role::kViewer;
}

// In requests. The next page of a listing is paid for by its bytes
// (QueryThread).
double CostOf(const Message& message) {
  constexpr double kNextPage = 0.05;
  // It is written to the journal, and may start a solve.
  constexpr double kCommand = 5;
  if (std::holds_alternative<CommandRequest>(message) ||
      std::holds_alternative<AppGoalRequest>(message)) {
    return kCommand;
  }
  // It is only passed on, and a person types many.
  constexpr double kTerminal = 0.1;
  if (std::holds_alternative<TerminalRequest>(message)) return kTerminal;
  const auto* query = std::get_if<QueryRequest>(&message);
  return query != nullptr && query->cursor != 0 ? kNextPage : 1;
}

// Answers the sender of a message that is refused.
struct Refusal {
  std::optional<Message> operator()(const SubmitRequest& m) const {
    return SubmitReply{m.request, JobId(), error};
  }
  std::optional<Message> operator()(const CommandRequest& m) const {
    return CommandReply{m.request, error};
  }
  std::optional<Message> operator()(const AppGoalRequest& m) const {
    return CommandReply{m.request, error};
  }
  std::optional<Message> operator()(const QueryRequest& m) const {
    return QueryReply{m.request, "", 0, error};
  }
  std::optional<Message> operator()(const LogRequest& m) const {
    return LogReply{m.request, "", m.offset, true, error};
  }
  std::optional<Message> operator()(const TerminalRequest& m) const {
    TerminalReply reply{m.request, m.worker};
    reply.error = error;
    reply.refused = for_ever;
    return reply;
  }
  std::optional<Message> operator()(const BidderHello& m) const {
    return BidderNotice{m.bidder, BidderNoticeKind::kRefused, 0, error};
  }
  std::optional<Message> operator()(const AgentHello& m) const {
    return AgentRejected{m.server, position, error, m.incarnation, m.state_id};
  }
  // These two are answers of agents.
  std::optional<Message> operator()(const LogReply&) const { return {}; }
  std::optional<Message> operator()(const TerminalReply&) const { return {}; }
  template <class T>
  std::optional<Message> operator()(const T&) const {
    static_assert(!ForClients<T>, "its client waits for an answer");
    return std::nullopt;
  }

  std::string error;
  bool for_ever = true;  // asking again is in vain
  JournalPosition position;
};

}  // namespace

absl::StatusOr<PositionProofs> PositionProofs::Make(
    const std::string& secret_key) {
  Key key{};
  if (sodium_init() < 0 ||
      crypto_generichash(key.data(), key.size(), Bytes(kPurpose),
                         kPurpose.size(), Bytes(secret_key),
                         secret_key.size()) != 0) {
    return absl::InternalError(
        "libsodium can't make a key for journal positions; is it that of this "
        "system, and the coordinator's key whole?");
  }
  return PositionProofs(key);
}

PositionProof PositionProofs::Compute(const JournalPosition& position) const {
  std::array<unsigned char, 16> text{};
  Put(position.term, text.data());
  Put(position.seq, text.data() + 8);
  std::array<unsigned char, 16> proof{};
  // Fails for lengths out of range only.
  crypto_generichash(proof.data(), proof.size(), text.data(), text.size(),
                     key_.data(), key_.size());
  return {Get(proof.data()), Get(proof.data() + 8)};
}

PositionProof PositionProofs::Of(const JournalPosition& position) {
  if (last_ != position || last_.proof == PositionProof()) {
    last_ = position;
    last_.proof = Compute(position);
  }
  return last_.proof;
}

bool PositionProofs::Holds(const JournalPosition& position) const {
  const PositionProof proof = Compute(position);
  // Takes as long whatever is wrong.
  return ((proof.first ^ position.proof.first) |
          (proof.second ^ position.proof.second)) == 0;
}

absl::Status Gatekeeper::CheckPosition(const Identity& sender,
                                       const Message& message,
                                       const Engine& engine) const {
  const std::optional<JournalPosition> seen = HighestSeen(message);
  if (!seen.has_value() || engine.Knows(*seen) || keys_->proofs.Holds(*seen)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      StrCat(RoleName(sender.role), " ", sender.name, ": it shows term ",
             seen->term, " seq ", seen->seq,
             " of the journal without proof that a coordinator of this key "
             "gave it out, and the journal is at term ",
             engine.position().term, " seq ", engine.position().seq,
             "; if the coordinator's key was replaced, start it again"));
}

absl::Status Gatekeeper::CheckRate(Time now, const Identity& sender,
                                   const Message& message) {
  if (!HasQuota(sender) ||
      keys_->rates.Take(now, sender.name, CostOf(message))) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      StrCat(RoleName(sender.role), " ", sender.name, kTooOften,
             "; wait ten seconds, ask less often, or have an operator raise "
             "--quota-requests"));
}

absl::StatusOr<Identity> Gatekeeper::Authenticate(Time now,
                                                  const Incoming& incoming) {
  if (!keys_.has_value()) {
    return Identity{"", Role::kOperator, "", WorkerKey()};
  }
  if (LocalRequests::IsReader(incoming)) {
    return Identity{"(dashboard)", Role::kViewer, "", WorkerKey()};
  }
  std::optional<Identity> sender = keys_->access->Find(incoming.public_key);
  if (sender.has_value()) return *std::move(sender);
  return Refuse(now, incoming, StrCat("key ", incoming.public_key), "",
                absl::UnauthenticatedError(
                    "this key is not allowed any more; an operator can have it "
                    "allowed with `gavel user add`"));
}

absl::Status Gatekeeper::Authorize(Time now, const Identity& sender,
                                   const Incoming& incoming,
                                   const Engine& engine) {
  if (!keys_.has_value()) return absl::OkStatus();
  absl::Status allowed = CheckRate(now, sender, incoming.message);
  if (allowed.ok()) {
    allowed = gavel::Authorize(sender, incoming.message, engine.jobs());
  }
  if (allowed.ok()) allowed = CheckPosition(sender, incoming.message, engine);
  if (allowed.ok()) return allowed;
  return Refuse(now, incoming, sender.name, RoleName(sender.role),
                std::move(allowed));
}

absl::Status Gatekeeper::Refuse(Time now, const Incoming& incoming,
                                std::string who, std::string_view role,
                                absl::Status why) {
  AuditEntry entry;
  entry.who = std::move(who);
  entry.role = std::string(role);
  entry.from = incoming.address;
  entry.action = MessageName(incoming.message);
  entry.result = StrCat("refused: ", why.message());
  audit_.Refusal(now, entry);
  return why;
}

void Gatekeeper::Charge(Time now, const Identity& sender, double loop_s) {
  if (!keys_.has_value() || !HasQuota(sender)) return;
  keys_->rates.Spend(now, sender.name, loop_s * kRequestsPerLoopSecond);
}

void Gatekeeper::Seal(Message* message) {
  if (!keys_.has_value()) return;
  std::visit(
      [this](auto& m) {
        if constexpr (requires { m.position.proof; }) {
          m.position.proof = keys_->proofs.Of(m.position);
        }
      },
      *message);
}

void Gatekeeper::NoteWorkers(const Message& message,
                             const std::map<JobId, Job>& jobs) {
  if (!keys_.has_value()) return;
  if (const auto* hello = std::get_if<AgentHello>(&message)) {
    keys_->access->RemoveWorkersOf(hello->server);
    for (const RunningWorker& running : hello->running) {
      if (!RunsOn(hello->server, running.worker, jobs)) continue;
      keys_->access->AddWorker(hello->server, running.worker,
                               running.public_key);
    }
  } else if (const auto* launched = std::get_if<WorkerLaunched>(&message)) {
    if (!RunsOn(launched->server, launched->worker, jobs)) return;
    keys_->access->AddWorker(launched->server, launched->worker,
                             launched->public_key);
  } else if (const auto* exited = std::get_if<WorkerExited>(&message)) {
    keys_->access->RemoveWorker(exited->server, exited->worker);
  }
}

std::optional<absl::StatusOr<std::vector<std::string>>> Gatekeeper::Reload() {
  if (!keys_.has_value()) return std::nullopt;
  auto read = keys_->access->Reload();
  if (!read.has_value()) return std::nullopt;
  std::string result =
      read->ok() ? "done" : std::string(read->status().message());
  if (read->ok()) {
    for (size_t i = 0; i < (*read)->size() && i < kChangesInAuditMax; ++i) {
      result += StrCat(i == 0 ? ": " : ", ", (**read)[i]);
    }
    if ((*read)->size() > kChangesInAuditMax) {
      result += StrCat(" and ", (*read)->size() - kChangesInAuditMax, " more");
    }
  }
  audit_.Action({"", "", "", "reload principals", "", std::move(result)});
  return read;
}

std::vector<std::string> Gatekeeper::RefusedHandshakes(Time now) {
  std::vector<std::string> lines;
  if (!keys_.has_value()) return lines;
  for (const RefusedKey& refused : keys_->access->TakeRefused()) {
    const std::string why =
        refused.was.empty()
            ? "no principal and no worker has this key"
            : StrCat("the key of ", refused.was, " was revoked");
    AuditEntry entry;
    entry.who = StrCat("key ", refused.key);
    entry.from = refused.address;
    entry.action = "connect";
    entry.result =
        StrCat("refused: ", why, " (", refused.attempts, " attempts)");
    audit_.Refusal(now, entry);
    lines.push_back(StrCat("connection refused: key ", refused.key, " from ",
                           refused.address, ": ", why, "; ", refused.attempts,
                           " attempts"));
  }
  return lines;
}

std::optional<Message> RefusalOf(const Message& message,
                                 const absl::Status& why,
                                 JournalPosition position) {
  return std::visit(Refusal{std::string(why.message()),
                            !absl::IsResourceExhausted(why), position},
                    message);
}

}  // namespace gavel
