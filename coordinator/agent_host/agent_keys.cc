#include "coordinator/agent_host/agent_keys.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/curve.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

// Others may reach their own file by its name, but not list the names.
constexpr mode_t kDirectoryMode = 0711;

}  // namespace

absl::Status MakeOwnersDirectory(const std::string& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (mkdir(directory.c_str(), kDirectoryMode) != 0 ||
      chmod(directory.c_str(), kDirectoryMode) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("directory ", directory)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WorkerKeys>> WorkerKeys::Open(
    const std::string& directory) {
  GAVEL_RETURN_IF_ERROR(MakeOwnersDirectory(directory));
  return std::unique_ptr<WorkerKeys>(new WorkerKeys(directory));
}

absl::StatusOr<std::string> WorkerKeys::Mint(
    const WorkerKey& worker, const std::optional<UnixAccount>& account) {
  GAVEL_ASSIGN_OR_RETURN(const CurveKeyPair keys, NewCurveKeyPair());
  const std::string path = StrCat(directory_, "/", worker.job.value(), "-",
                                  worker.rank, "-", worker.incarnation, ".key");
  GAVEL_RETURN_IF_ERROR(WriteKeyFile(path, keys));
  {
    const std::lock_guard lock(mutex_);
    keys_[worker] = {path, keys.public_key};
  }
  if (account.has_value() &&
      lchown(path.c_str(), account->uid, account->gid) != 0) {
    const int chown_error = errno;
    Forget(worker);
    return absl::ErrnoToStatus(chown_error, ToAbsl(path));
  }
  return path;
}

void WorkerKeys::Forget(const WorkerKey& worker) {
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    const auto found = keys_.find(worker);
    if (found == keys_.end()) return;
    path = std::move(found->second.path);
    keys_.erase(found);
  }
  unlink(path.c_str());
}

std::string WorkerKeys::PublicKeyOf(const WorkerKey& worker) const {
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(worker);
  return found == keys_.end() ? "" : found->second.public_key;
}

void WorkerKeys::FillIn(Message* message) const {
  if (auto* launched = std::get_if<WorkerLaunched>(message)) {
    launched->public_key = PublicKeyOf(launched->worker);
  } else if (auto* hello = std::get_if<AgentHello>(message)) {
    for (RunningWorker& running : hello->running) {
      running.public_key = PublicKeyOf(running.worker);
    }
  }
}

}  // namespace gavel
