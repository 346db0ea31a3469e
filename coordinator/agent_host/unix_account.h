// The Unix account that a job runs as. An agent looks it up before it starts a
// process for it. Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_UNIX_ACCOUNT_H_
#define GAVEL_COORDINATOR_AGENT_HOST_UNIX_ACCOUNT_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel {

struct UnixAccount {
  std::string name;
  std::string home;
  std::string shell;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary
};

// The account that an agent of this process's user changes to for a job of
// `name`; nothing when no change is needed: it is this user's own, or (empty
// name: connections have no keys) nobody's. NOT_FOUND: this machine has no such
// user. PERMISSION_DENIED: it is root, or this agent is not and so runs its own
// user's jobs only.
absl::StatusOr<std::optional<UnixAccount>> AccountOfJob(
    const std::string& name);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_UNIX_ACCOUNT_H_
