// Refused handshakes by key, for the audit log: each key at most once in an
// interval, with the number of attempts. A worker may connect before its agent
// has announced it, so an unknown key is reported only when it stays unknown
// for a moment, and not before agents had time to return after a restart of the
// coordinator. Bounded; not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_REFUSED_KEYS_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_REFUSED_KEYS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gavel {

struct RefusedKey {
  std::string key;
  std::string address;    // that it tried from last
  std::string was;        // "alice (user)", whose it was; empty: unknown
  uint64_t attempts = 0;  // since it was told of last
};

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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_REFUSED_KEYS_H_
