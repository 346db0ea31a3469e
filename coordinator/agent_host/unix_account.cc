#include "coordinator/agent_host/unix_account.h"

#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kEntryBytesMax = 64 * 1024;
constexpr int kGroupsMax = 4096;

absl::Status NoSuchUser(const std::string& name) {
  return absl::NotFoundError(
      StrCat("this server has no user \"", name,
             "\"; create the account here, or correct unix_user with `gavel "
             "user add`"));
}

}  // namespace

absl::StatusOr<std::optional<UnixAccount>> AccountOfJob(
    const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<char> buffer(kEntryBytesMax);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) !=
          0 ||
      found == nullptr) {
    return NoSuchUser(name);
  }
  if (entry.pw_uid == 0) {
    return absl::PermissionDeniedError(
        StrCat("user \"", name,
               "\" is root here, and no job runs as root; name an ordinary "
               "user with `gavel user add`"));
  }
  if (entry.pw_uid == geteuid()) return std::nullopt;
  if (geteuid() != 0) {
    return absl::PermissionDeniedError(
        StrCat("this agent is not root, so it runs jobs of its own user only, "
               "not of \"",
               name, "\"; start the agent of this server as root"));
  }
  UnixAccount account{name,         entry.pw_dir, entry.pw_shell,
                      entry.pw_uid, entry.pw_gid, {}};
  account.groups.resize(kGroupsMax);
  int count = kGroupsMax;
  if (getgrouplist(name.c_str(), entry.pw_gid, account.groups.data(), &count) <
      0) {
    return absl::InternalError(
        StrCat("user \"", name, "\" is in more than ", kGroupsMax, " groups"));
  }
  account.groups.resize(static_cast<size_t>(count));
  return account;
}

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
