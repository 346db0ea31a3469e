// Identities: the roles, which role may send which message, and the file of
// principals, which gives each public key its role.
#ifndef GAVEL_COORDINATOR_SERVER_PRINCIPALS_H_
#define GAVEL_COORDINATOR_SERVER_PRINCIPALS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/job.h"
#include "coordinator/server/limits.h"
#include "core/ids.h"
#include "core/messages.h"

namespace gavel {

// Which role may send which message. A message that the table does not allow is
// refused. The coordinator's event loop asks for every message. Pure;
// stateless, thread-safe.

// kUser: submits jobs and controls its own. kOperator: controls all jobs and
// the coordinator. kViewer: reads the queue. kNode: the agent of the server of
// that name. kWorker: one process of a job while it runs; never in a file of
// principals.
enum class Role : uint8_t { kUser, kOperator, kViewer, kNode, kWorker };
inline constexpr std::array<std::string_view, 5> kRoleNames = {
    "user", "operator", "viewer", "node", "worker"};  // in the order of Role

inline constexpr std::string_view RoleName(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}
// Whether the role needs an account on the servers, for its jobs.
inline constexpr bool RunsJobs(Role role) {
  return role == Role::kUser || role == Role::kOperator;
}
// Finds a role that a principal may have: any but kWorker.
std::optional<Role> FindRole(std::string_view name);

// The sender of a message, proven by its key.
struct Identity {
  std::string name;  // of the principal; of a worker: "job 3 rank 0"
  Role role = Role::kViewer;
  std::string unix_user;     // that its jobs run as; of users and operators
  WorkerKey worker;          // of a worker
  Allowance allowance = {};  // of a user's jobs
};

// Whether a job of that owner is the sender's to control and to read: what its
// program wrote, and what its file says.
inline bool MayTouch(const Identity& sender, std::string_view owner) {
  return sender.role == Role::kOperator || sender.name == owner;
}

// Whether a role may send this message at all.
bool MaySend(Role role, const Message& message);

// Returns OK, or PERMISSION_DENIED with the forbidden action and those who may
// do it. A user touches its own jobs, an agent speaks for its own server and
// its workers, and a worker speaks for itself. `jobs` has all jobs.
absl::Status Authorize(const Identity& sender, const Message& message,
                       const std::map<JobId, Job>& jobs);

inline constexpr size_t kPrincipalsBytesMax = 4 * 1024 * 1024;

// The file of principals, one table each, which `gavel user` writes and a
// coordinator with keys reads.
//
//   [alice]
//   role = "user"          # user, operator, viewer or node
//   unix_user = "alice"    # that the jobs run as
//   public_key = "..."     # of `gavel keygen`
//   entities = ["vision"]  # that the jobs may count for
//   weight = 2             # that the active jobs divide
//   weight_max = 10        # of one of the jobs
//
// Values, thread-safe.
struct Principal {
  Role role = Role::kViewer;
  std::string unix_user;     // of users and operators; never root
  std::string public_key;    // Z85
  Allowance allowance = {};  // of users
  friend bool operator==(const Principal&, const Principal&) = default;
};

// Whether jobs may run as that account: not as root.
inline bool MayRunJobs(std::string_view unix_user) {
  return unix_user != "root" && unix_user != "0";
}

// By name: [A-Za-z0-9_-]{1,64}, of a node its server's.
using Principals = std::map<std::string, Principal>;

// INVALID_ARGUMENT as "SOURCE:LINE:COLUMN: what; remedy", also for one key of
// two principals, and for a user without a Unix user or with root as one.
absl::StatusOr<Principals> ParsePrincipals(std::string_view toml,
                                           std::string_view source);
std::string FormatPrincipals(const Principals& principals);

// The file; NOT_FOUND: there is none. PERMISSION_DENIED: others than root and
// this user may write it.
absl::StatusOr<Principals> ReadPrincipals(const std::string& path);
// All or nothing, mode 0600, on disk when it returns.
absl::Status WritePrincipals(const std::string& path,
                             const Principals& principals);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_PRINCIPALS_H_
