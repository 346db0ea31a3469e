// Who may send what: the one table of roles and messages. Whatever is not in it
// is refused. The coordinator's event loop asks it for every message. Pure;
// stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_ROLES_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_ROLES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "coordinator/engine/job.h"
#include "coordinator/server/access/allowance.h"
#include "core/ids.h"
#include "core/messages.h"

namespace gavel {

// kUser: submits jobs, and does with its own what it likes. kOperator: with
// all, and with the coordinator. kViewer: looks at the queue. kNode: the agent
// of the server of that name. kWorker: one process of a job, as long as it
// runs; never in a file of principals.
enum class Role : uint8_t { kUser, kOperator, kViewer, kNode, kWorker };
inline constexpr std::array<std::string_view, 5> kRoleNames = {
    "user", "operator", "viewer", "node", "worker"};  // in the order of Role

inline constexpr std::string_view RoleName(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}
// Who needs an account on the servers, as which its jobs run.
inline constexpr bool RunsJobs(Role role) {
  return role == Role::kUser || role == Role::kOperator;
}
// Those that a principal may have: all but kWorker.
std::optional<Role> FindRole(std::string_view name);

// Who sent a message, as its key proves.
struct Identity {
  std::string name;  // of the principal; of a worker: "job 3 rank 0"
  Role role = Role::kViewer;
  std::string unix_user;     // that its jobs run as; of users and operators
  WorkerKey worker;          // of a worker
  Allowance allowance = {};  // of a user's jobs
};

// Whether a role may send this message at all.
bool MaySend(Role role, const Message& message);

// OK, or PERMISSION_DENIED with what is not allowed and who may: a user touches
// its own jobs, an agent speaks for its own server and its workers, a worker
// for itself. `jobs`: all that there are.
absl::Status Authorize(const Identity& sender, const Message& message,
                       const std::map<JobId, Job>& jobs);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_ROLES_H_
