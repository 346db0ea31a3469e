// The key pairs of an agent's workers, one for each process. The secret key is
// in a file that only the process's user can read, and is removed at its end;
// the public key goes to the coordinator with the messages about the process.
// Thread-safe: no file is touched under the lock.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_KEYS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_KEYS_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_host/unix_account.h"
#include "core/ids.h"
#include "core/messages.h"

namespace gavel {

// Makes `directory` anew, empty: each job's user reaches the files there that
// are the user's own, and can neither list nor replace any.
absl::Status MakeOwnersDirectory(const std::string& directory);

class WorkerKeys {
 public:
  // Files go to this directory, which is made anew, of mode 0711.
  static absl::StatusOr<std::unique_ptr<WorkerKeys>> Open(
      const std::string& directory);

  // The path of a new key file, owned by `account` or by this user.
  absl::StatusOr<std::string> Mint(const WorkerKey& worker,
                                   const std::optional<UnixAccount>& account);
  void Forget(const WorkerKey& worker);

  // Puts public keys into an AgentHello and a WorkerLaunched.
  void FillIn(Message* message) const;

 private:
  struct Key {
    std::string path;
    std::string public_key;
  };
  explicit WorkerKeys(std::string directory)
      : directory_(std::move(directory)) {}
  std::string PublicKeyOf(const WorkerKey& worker) const;

  const std::string directory_;
  mutable std::mutex mutex_;  // guards keys_
  std::map<WorkerKey, Key> keys_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_KEYS_H_
