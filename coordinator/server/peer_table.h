// Where to answer whom: the latest routing id that each worker or agent was
// heard from. The coordinator's event loop owns one of each. Not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_PEER_TABLE_H_
#define GAVEL_COORDINATOR_SERVER_PEER_TABLE_H_

#include <cstddef>
#include <map>
#include <string>

namespace gavel {

template <class Key>
class PeerTable {
 public:
  // Holds at most `entries_max` > 0. Beyond that the lowest key (of a worker:
  // the oldest job) gives way; whoever is forgotten sends again and is back.
  explicit PeerTable(size_t entries_max) : entries_max_(entries_max) {}

  void Saw(const Key& key, const std::string& peer) {
    if (auto it = peers_.find(key); it != peers_.end()) {
      it->second = peer;
      return;
    }
    if (peers_.size() >= entries_max_) peers_.erase(peers_.begin());
    peers_.emplace(key, peer);
  }

  // Null when it was not heard from. Valid until the next call.
  const std::string* Find(const Key& key) const {
    const auto it = peers_.find(key);
    return it == peers_.end() ? nullptr : &it->second;
  }

  void Forget(const Key& key) { peers_.erase(key); }
  size_t size() const { return peers_.size(); }

 private:
  size_t entries_max_;
  std::map<Key, std::string> peers_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_PEER_TABLE_H_
