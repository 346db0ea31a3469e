// What the coordinator's event loop asks before it does anything with a
// message: who sent it, and whether he may; it writes the audit log of both,
// and seals the journal positions that leave (position_proofs.h).
// Without keys everything is allowed, from this machine. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_GATEKEEPER_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_GATEKEEPER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/server/access/access_list.h"
#include "coordinator/server/access/audit_log.h"
#include "coordinator/server/access/position_proofs.h"
#include "coordinator/server/access/request_rates.h"
#include "coordinator/server/access/roles.h"
#include "core/messages.h"
#include "core/units.h"
#include "runtime/transport/router.h"

namespace gavel {

class Gatekeeper {
 public:
  // With keys: who they belong to, and the proofs of the coordinator's own.
  struct Keys {
    std::unique_ptr<AccessList> access;
    PositionProofs proofs;
    RequestRates rates;
  };
  // `keys` nothing: connections have none.
  Gatekeeper(std::optional<Keys> keys, AuditLog audit)
      : keys_(std::move(keys)), audit_(std::move(audit)) {}

  // The sender, if it may send this. UNAUTHENTICATED: its key is not (any
  // more) on the list; cut the connection. PERMISSION_DENIED: see Authorize, or
  // it shows a journal position that the engine does not know without the proof
  // that a coordinator of this key gave it out. RESOURCE_EXHAUSTED: a user or
  // viewer asks too often. Refusals are in the audit log. Without keys: an
  // operator without a name.
  absl::StatusOr<Identity> Admit(Time now, const Incoming& incoming,
                                 const Engine& engine);

  // A request of a user or viewer took so much of the event loop's time: it is
  // on the account of its requests.
  void Charge(Time now, const Identity& sender, double loop_s);

  // Puts its proof to the position that the message carries, if any. Without
  // keys there are none.
  void Seal(Message* message);

  // Keys of workers that start and end, of an agent's message that was
  // admitted and that the engine did not refuse; those alone that the engine
  // has on that agent's server.
  void NoteWorkers(const Message& message, const std::map<JobId, Job>& jobs);

  // What came of an action that was admitted. One that failed counts as a
  // refusal: nobody fills the disk with those, nor hides an operator's.
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

  // The list of principals, if it has changed: what has, a line each, or why it
  // can't be read. In the audit log, too.
  std::optional<absl::StatusOr<std::vector<std::string>>> Reload();
  // Handshakes that were refused lately, a line each; in the audit log, too.
  std::vector<std::string> RefusedHandshakes(Time now);
  size_t principals() const {
    return keys_.has_value() ? keys_->access->principals() : 0;
  }

 private:
  absl::Status Check(Time now, const Identity& sender, const Message& message,
                     const Engine& engine);
  absl::Status CheckPosition(const Identity& sender, const Message& message,
                             const Engine& engine) const;

  std::optional<Keys> keys_;
  AuditLog audit_;
};

// The answer that tells a client or an agent that its message was refused;
// nothing for those that are not answered.
std::optional<Message> RefusalOf(const Message& message,
                                 const absl::Status& why,
                                 JournalPosition position);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_GATEKEEPER_H_
