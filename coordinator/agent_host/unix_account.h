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

// The account that the agent changes to for a job of user `name`. Nothing when
// no change is needed: it is this process's user, or `name` is empty
// (connections have no keys). NOT_FOUND: this machine has no such user.
// PERMISSION_DENIED: it is root, or this agent is not root and so runs only its
// own user's jobs.
absl::StatusOr<std::optional<UnixAccount>> AccountOfJob(
    const std::string& name);

// While it lives, this thread accesses files as another user of the machine
// (setfsuid(2)). Without an account, or when this process is not root, nothing
// changes. To be destroyed on the thread that made it.
class FileUser {
 public:
  explicit FileUser(const std::optional<UnixAccount>& account);
  ~FileUser();
  FileUser(const FileUser&) = delete;
  FileUser& operator=(const FileUser&) = delete;

 private:
  bool changed_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_UNIX_ACCOUNT_H_
