// Whose keys may connect at present: the principals of the file, and each
// worker that an agent has started. The coordinator's event loop owns one;
// Admit and Knows may be called from any thread (the transport's asks it during
// handshakes), all else belongs to the loop's.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_ACCESS_LIST_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_ACCESS_LIST_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/server/access/principals.h"
#include "coordinator/server/access/refused_keys.h"
#include "coordinator/server/access/roles.h"
#include "core/ids.h"
#include "core/messages.h"
#include "runtime/transport/admission.h"

namespace gavel {

class AccessList {
 public:
  // Errors as those of ReadPrincipals.
  static absl::StatusOr<std::unique_ptr<AccessList>> Open(std::string path);

  // Reads the file again when it has changed: then who came, went or changed
  // ("alice (user) added"), by name, or why it can't be read; then the list is
  // as it was.
  std::optional<absl::StatusOr<std::vector<std::string>>> Reload();

  // Keys that were revoked while it lived, in case they come again; beyond, the
  // first are taken for unknown ones.
  static constexpr size_t kRevokedMax = 16 * 1024;

  bool Knows(const std::string& public_key) const;
  // A handshake's: keeps what is refused for TakeRefused.
  Admission Admit(const std::string& public_key, const std::string& address);
  // Workers ran when the coordinator was started; their agents come back within
  // RefusedKeys::kAgentsReturn.
  void ExpectWorkers();
  // Refused handshakes that are to be told of now.
  std::vector<RefusedKey> TakeRefused();
  std::optional<Identity> Find(const std::string& public_key) const;
  size_t principals() const;

  // A worker that runs on `server`; one whose key is empty or a principal's is
  // passed over.
  void AddWorker(const std::string& server, const WorkerKey& worker,
                 const std::string& public_key);
  void RemoveWorker(const std::string& server, const WorkerKey& worker);
  void RemoveWorkersOf(const std::string& server);

 private:
  // What tells a new file from the one that was read.
  struct Version {
    uint64_t device = 0, inode = 0, size = 0;
    int64_t seconds = 0, nanoseconds = 0;
    friend bool operator==(const Version&, const Version&) = default;
  };
  struct RunningKey {
    std::string server;
    WorkerKey worker;
  };
  explicit AccessList(std::string path) : path_(std::move(path)) {}
  Version Look() const;
  absl::StatusOr<std::vector<std::string>> Read();
  bool IsKnown(const std::string& public_key) const;
  void Revoke(const std::string& public_key, std::string whose);
  // Takes the running keys of this server away, of one worker or of all.
  void Remove(const std::string& server, const WorkerKey* worker);

  const std::string path_;
  Version version_;
  Principals principals_;
  mutable std::mutex mutex_;                   // guards what follows
  std::map<std::string, Identity> by_key_;     // of `principals_`
  std::map<std::string, RunningKey> workers_;  // by key
  // The same as server, worker and key, so that an end costs no walk over all.
  std::set<std::tuple<std::string, WorkerKey, std::string>> by_server_;
  std::map<std::string, std::string> revoked_;  // whose, by key
  RefusedKeys refused_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_ACCESS_LIST_H_
