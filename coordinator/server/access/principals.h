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
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_PRINCIPALS_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_PRINCIPALS_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/server/access/allowance.h"
#include "coordinator/server/access/roles.h"

namespace gavel {

inline constexpr size_t kPrincipalsBytesMax = 4 * 1024 * 1024;

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

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_PRINCIPALS_H_
