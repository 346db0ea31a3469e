#include "coordinator/agent_host/file_user.h"

#include <sys/fsuid.h>
#include <unistd.h>

namespace gavel {

// Neither call can fail for root; the group first, while it is still root's to
// change.
FileUser::FileUser(const std::optional<UnixAccount>& account)
    : changed_(account.has_value() && geteuid() == 0) {
  if (!changed_) return;
  setfsgid(account->gid);
  setfsuid(account->uid);
}

FileUser::~FileUser() {
  if (!changed_) return;
  setfsuid(geteuid());
  setfsgid(getegid());
}

}  // namespace gavel
