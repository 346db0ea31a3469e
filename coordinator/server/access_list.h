// The keys that may connect at present (AccessList), and the keys whose
// handshakes were refused (RefusedKeys).
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_LIST_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_LIST_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "coordinator/server/principals.h"
#include "core/ids.h"
#include "core/messages.h"
#include "runtime/transport/curve.h"

namespace gavel {

struct RefusedKey {
  std::string key;
  std::string address;    // that it tried from last
  std::string was;        // "alice (user)", whose it was; empty: unknown
  uint64_t attempts = 0;  // since it was told of last
};

// Refused handshakes by key, for the audit log: each key at most once in an
// interval, with the number of attempts. A worker may connect before its agent
// has announced it, so an unknown key is reported only when it stays unknown
// for a moment, and not before agents had time to return after a restart of the
// coordinator. Bounded; not thread-safe.
class RefusedKeys {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMoment{1};
  // Between two reports of one key, and before it is forgotten.
  static constexpr std::chrono::seconds kInterval{60};
  // Beyond, some are forgotten untold.
  static constexpr size_t kKeysMax = 4096;

  // At a start with running workers: they connect at once, and their agents,
  // which announce their keys, within this time.
  static constexpr std::chrono::seconds kAgentsReturn{20};

  // Until then unknown keys may belong to such workers, and are not reported.
  void ExpectWorkersUntil(Clock::time_point until) { unknown_from_ = until; }

  // One attempt. True: the key has been unknown for longer than a moment, and
  // is not that of a worker whose agent is yet to return.
  bool Note(Clock::time_point now, const std::string& key,
            const std::string& address, const std::string& was);
  // The keys to report now. `known`: the key is allowed by now.
  std::vector<RefusedKey> Take(
      Clock::time_point now,
      const std::function<bool(const std::string&)>& known);

 private:
  struct Entry {
    RefusedKey refused;
    Clock::time_point first;
    Clock::time_point last;
    Clock::time_point tell_at;
  };
  Clock::time_point unknown_from_{};
  std::map<std::string, Entry> keys_;
};

// The keys that may connect at present: those of the principals in the file,
// and of each worker that an agent has started. The coordinator's event loop
// owns one. Any thread may call Admit and Knows (the transport's does so during
// handshakes); the rest belongs to the loop.
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
  // Decides on a handshake, and keeps refused ones for TakeRefused.
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
  // Distinguishes a new file from the one that was read.
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

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_LIST_H_
