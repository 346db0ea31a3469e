// Access to the coordinator: the keys that may connect at present
// (AccessList), and those whose handshakes were refused (RefusedKeys); who sent
// each message and whether that sender may send it (Gatekeeper), with proofs of
// the journal positions that this coordinator has given out (PositionProofs).
#ifndef GAVEL_COORDINATOR_SERVER_GATEKEEPER_H_
#define GAVEL_COORDINATOR_SERVER_GATEKEEPER_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/server/audit_log.h"
#include "coordinator/server/limits.h"
#include "coordinator/server/principals.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/transport/curve.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {

struct RefusedKey {
  std::string key;
  std::string address;    // that it tried from last
  std::string was;        // "alice (user)", whose it was; empty: unknown
  uint64_t attempts = 0;  // since it was told of last
};

// Refused handshakes by key, for the audit log: each key at most once in an
// interval, with the number of attempts. A worker may connect before its agent
// has announced it, so an unknown key is reported only when it stays unknown
// for a moment, and not before agents had time to return after a restart of the
// coordinator. Bounded; not thread-safe.
class RefusedKeys {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMoment{1};
  // Between two reports of one key, and before it is forgotten.
  static constexpr std::chrono::seconds kInterval{60};
  // Beyond, some are forgotten untold.
  static constexpr size_t kKeysMax = 4096;

  // At a start with running workers: they connect at once, and their agents,
  // which announce their keys, within this time.
  static constexpr std::chrono::seconds kAgentsReturn{20};

  // Until then unknown keys may belong to such workers, and are not reported.
  void ExpectWorkersUntil(Clock::time_point until) { unknown_from_ = until; }

  // One attempt. True: the key has been unknown for longer than a moment, and
  // is not that of a worker whose agent is yet to return.
  bool Note(Clock::time_point now, const std::string& key,
            const std::string& address, const std::string& was);
  // The keys to report now. `known`: the key is allowed by now.
  std::vector<RefusedKey> Take(
      Clock::time_point now,
      const std::function<bool(const std::string&)>& known);

 private:
  struct Entry {
    RefusedKey refused;
    Clock::time_point first;
    Clock::time_point last;
    Clock::time_point tell_at;
  };
  Clock::time_point unknown_from_{};
  std::map<std::string, Entry> keys_;
};

// The keys that may connect at present: those of the principals in the file,
// and of each worker that an agent has started. The coordinator's event loop
// owns one. Any thread may call Admit and Knows (the transport's does so during
// handshakes); the rest belongs to the loop.
class AccessList {
 public:
  // Errors as those of ReadPrincipals.
  static absl::StatusOr<std::unique_ptr<AccessList>> Open(std::string path);

  // Reads the file again when it has changed: then who came, went or changed
  // ("alice (user) added"), by name, or why it can't be read; then the list is
  // as it was.
  std::optional<absl::StatusOr<std::vector<std::string>>> Reload();

  // Keys that were revoked while it lived, in case they come again; beyond, the
  // first are taken for unknown ones.
  static constexpr size_t kRevokedMax = 16 * 1024;

  bool Knows(const std::string& public_key) const;
  // Decides on a handshake, and keeps refused ones for TakeRefused.
  Admission Admit(const std::string& public_key, const std::string& address);
  // Workers ran when the coordinator was started; their agents come back within
  // RefusedKeys::kAgentsReturn.
  void ExpectWorkers();
  // Refused handshakes that are to be told of now.
  std::vector<RefusedKey> TakeRefused();
  std::optional<Identity> Find(const std::string& public_key) const;
  size_t principals() const;

  // A worker that runs on `server`; one whose key is empty or a principal's is
  // passed over.
  void AddWorker(const std::string& server, const WorkerKey& worker,
                 const std::string& public_key);
  void RemoveWorker(const std::string& server, const WorkerKey& worker);
  void RemoveWorkersOf(const std::string& server);

 private:
  // Distinguishes a new file from the one that was read.
  struct Version {
    uint64_t device = 0, inode = 0, size = 0;
    int64_t seconds = 0, nanoseconds = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };
  struct RunningKey {
    std::string server;
    WorkerKey worker;
  };
  explicit AccessList(std::string path) : path_(std::move(path)) {}
  Version Look() const;
  absl::StatusOr<std::vector<std::string>> Read();
  bool IsKnown(const std::string& public_key) const;
  void Revoke(const std::string& public_key, std::string whose);
  // Takes the running keys of this server away, of one worker or of all.
  void Remove(const std::string& server, const WorkerKey* worker);

  const std::string path_;
  Version version_;
  Principals principals_;
  mutable std::mutex mutex_;                   // guards what follows
  std::map<std::string, Identity> by_key_;     // of `principals_`
  std::map<std::string, RunningKey> workers_;  // by key
  // The same as server, worker and key, so that an end costs no walk over all.
  std::set<std::tuple<std::string, WorkerKey, std::string>> by_server_;
  std::map<std::string, std::string> revoked_;  // whose, by key
  RefusedKeys refused_;
};

// MACs showing that this coordinator issued a journal position, in any
// incarnation. A peer that shows a later position than the journal has stops
// the coordinator, and a forged one must not. The MAC is a keyed BLAKE2b (RFC
// 7693) of 128 bits, with a key derived from the coordinator's secret key,
// which outlives the journal. The gatekeeper owns one. Not thread-safe.
class PositionProofs {
 public:
  // `secret_key`: the coordinator's, as in its file. INTERNAL: the library of
  // hashes does not work here.
  static absl::StatusOr<PositionProofs> Make(const std::string& secret_key);

  // Proves the position's term and seq.
  PositionProof Of(const JournalPosition& position);
  // Whether the position carries its proof.
  bool Holds(const JournalPosition& position) const;

 private:
  using Key = std::array<unsigned char, 32>;
  explicit PositionProofs(const Key& key) : key_(key) {}
  PositionProof Compute(const JournalPosition& position) const;

  Key key_;
  // Many messages in a row carry the same.
  JournalPosition last_;
};

// Decides about each message who sent it and whether that sender may send it.
// Writes the audit log, and seals the journal positions of outgoing messages
// (PositionProofs). Without keys everything from this machine is allowed. Not
// thread-safe.
class Gatekeeper {
 public:
  // The known keys, and the proofs of the coordinator's own positions.
  struct Keys {
    std::unique_ptr<AccessList> access;
    PositionProofs proofs;
    RequestRates rates;
  };
  // Without `keys`, connections have none either.
  Gatekeeper(std::optional<Keys> keys, AuditLog audit)
      : keys_(std::move(keys)), audit_(std::move(audit)) {}

  // The sender, by its key. UNAUTHENTICATED: the key is not on the list (any
  // more); cut the connection. Without keys: an operator without a name.
  absl::StatusOr<Identity> Authenticate(Time now, const Incoming& incoming);

  // Whether `sender` may send this. RESOURCE_EXHAUSTED: a user or viewer asks
  // too often. PERMISSION_DENIED: see gavel::Authorize, or the message shows a
  // journal position that the engine does not know, without the proof that a
  // coordinator of this key issued it.
  absl::Status Authorize(Time now, const Identity& sender,
                         const Incoming& incoming, const Engine& engine);
  // Refusals of both are in the audit log.

  // A request took `loop_s` of the event loop's time: a user or viewer pays for
  // it as for further requests.
  void Charge(Time now, const Identity& sender, double loop_s);

  // Adds the proof to the journal position that the message carries, if any.
  // Without keys there are no proofs.
  void Seal(Message* message);

  // Adds and removes the keys of workers of which an agent tells, when they are
  // on that agent's server as the engine has it. `message` was authorised, and
  // the engine has accepted it.
  void NoteWorkers(const Message& message, const std::map<JobId, Job>& jobs);

  // The result of an authorised action. One that failed is limited in rate as a
  // refusal is: no user can fill the disk or hide an operator's actions.
  void Audit(Time now, bool done, const AuditEntry& entry) {
    if (done || entry.role == RoleName(Role::kOperator)) {
      audit_.Action(entry);
    } else {
      audit_.Refusal(now, entry);
    }
  }

  // Requests a second of one user or viewer, from now on; 0: no limit.
  void SetRequestRate(double per_s_max) {
    if (keys_.has_value()) keys_->rates.SetLimit(per_s_max);
  }

  // Reads the list of principals again if it has changed: a line for each
  // change, or why it can't be read. In the audit log, too.
  std::optional<absl::StatusOr<std::vector<std::string>>> Reload();
  // Whether a principal or a worker has this key; true where there are no keys.
  bool Knows(const std::string& public_key) const {
    return !keys_.has_value() || keys_->access->Find(public_key).has_value();
  }
  // At the start, when workers run: see AccessList.
  void ExpectWorkers() {
    if (keys_.has_value()) keys_->access->ExpectWorkers();
  }
  // Handshakes that were refused lately, a line each; in the audit log, too.
  std::vector<std::string> RefusedHandshakes(Time now);
  size_t principals() const {
    return keys_.has_value() ? keys_->access->principals() : 0;
  }

 private:
  absl::Status CheckRate(Time now, const Identity& sender,
                         const Message& message);
  absl::Status CheckPosition(const Identity& sender, const Message& message,
                             const Engine& engine) const;
  absl::Status Refuse(Time now, const Incoming& incoming, std::string who,
                      std::string_view role, absl::Status why);

  std::optional<Keys> keys_;
  AuditLog audit_;
};

// The answer that tells a client or an agent that its message was refused;
// nothing where a refusal has no answer.
std::optional<Message> RefusalOf(const Message& message,
                                 const absl::Status& why,
                                 JournalPosition position);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_GATEKEEPER_H_
