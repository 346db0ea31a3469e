// While it lives, this thread accesses files as another user of the machine
// (setfsuid(2)). Without an account, or when this process is not root, nothing
// changes. To be destroyed on the thread that made it.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_FILE_USER_H_
#define GAVEL_COORDINATOR_AGENT_HOST_FILE_USER_H_

#include <optional>

#include "coordinator/agent_host/unix_account.h"

namespace gavel {

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

#endif  // GAVEL_COORDINATOR_AGENT_HOST_FILE_USER_H_
