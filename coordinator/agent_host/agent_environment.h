// The account, environment and keys that a worker's process is given.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_ENVIRONMENT_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_ENVIRONMENT_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/messages.h"

namespace gavel {

// The Unix account that a job runs as. An agent looks it up before it starts a
// process for it. Stateless, thread-safe.

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

// The environment of a worker's process: a few variables of the agent, those of
// the job, and those of the protocol (docs/protocol.md). Pure; called at each
// launch. Stateless, thread-safe.

struct WorkerPlace {
  std::string coordinator;    // endpoint that workers connect to
  std::string run_directory;  // of the accelerators' lock files
  bool has_gpus = false;      // among the server's declared accelerators
  // Variables of the agent that workers keep: "NAME", or "PREFIX*".
  std::vector<std::string> keep_environment = {};
  std::string address = "127.0.0.1";  // where other machines reach this server
  std::optional<UnixAccount> account =
      {};                            // that it runs as; none: the agent's
  std::string end_file = "";         // its own, for its last word
  std::string key_file = "";         // its own; empty: connections have no keys
  std::string coordinator_key = "";  // public
  std::string cluster = "";  // its id; empty: the coordinator tells none
};

// "NAME=value", sorted by name. `own`: the agent's environment. A worker sees
// all declared GPUs of the server, since it moves between them without a
// restart, and no others (one whose accelerator is alone_visible: that one);
// and what `keep_environment` names. The job's [environment] may replace all
// variables but the protocol's GAVEL_*, torchrun's, and those that hide others.
std::vector<std::string> WorkerEnvironment(
    const LaunchWorker& launch, const WorkerPlace& place,
    const std::map<std::string, std::string>& own);

// The environment of this process.
std::map<std::string, std::string> OwnEnvironment();

// Makes `directory` anew, empty: each job's user reaches the files there that
// are the user's own, and can neither list nor replace any.
absl::Status MakeOwnersDirectory(const std::string& directory);

// The key pairs of an agent's workers, one for each process. The secret key is
// in a file that only the process's user can read, and is removed at its end;
// the public key goes to the coordinator with the messages about the process.
// Thread-safe: no file is touched under the lock.
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

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_ENVIRONMENT_H_
