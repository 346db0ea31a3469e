// Decides about each message who sent it and whether that sender may send it
// (Gatekeeper), and proves the journal positions that this coordinator has
// given out (PositionProofs).
#ifndef GAVEL_COORDINATOR_SERVER_GATEKEEPER_H_
#define GAVEL_COORDINATOR_SERVER_GATEKEEPER_H_

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/server/access_list.h"
#include "coordinator/server/audit_log.h"
#include "coordinator/server/limits.h"
#include "coordinator/server/principals.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/transport/dealer_router.h"

namespace gavel {

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
