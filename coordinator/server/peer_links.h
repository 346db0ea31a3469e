// The way out of the coordinator: where each peer was last heard from
// (PeerTable), sending (PeerLinks), and messages to many peers, which are sent
// in parts (SendQueue).
#ifndef GAVEL_COORDINATOR_SERVER_PEER_LINKS_H_
#define GAVEL_COORDINATOR_SERVER_PEER_LINKS_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/engine/event.h"
#include "coordinator/server/gatekeeper.h"
#include "coordinator/server/local_requests.h"
#include "core/ids.h"
#include "core/messages.h"
#include "runtime/transport/dealer_router.h"

namespace spdlog {
class logger;
}

namespace gavel {

// The latest routing id of each worker or agent that was heard, to which
// answers go. The coordinator's event loop owns one of each. Not thread-safe.
template <class Key>
class PeerTable {
 public:
  // Holds at most `entries_max` > 0 entries. When it is full, the lowest key is
  // removed (of workers: the oldest job). The next message of a removed peer
  // adds it again.
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
  // Those from `first` on and before `key`.
  void ForgetBefore(const Key& first, const Key& key) {
    peers_.erase(peers_.lower_bound(first), peers_.lower_bound(key));
  }
  size_t size() const { return peers_.size(); }

 private:
  size_t entries_max_;
  std::map<Key, std::string> peers_;
};

// The way out to workers, agents and clients: the address from which each
// worker and agent was last heard, and sending. The coordinator's event loop
// owns one. Not thread-safe; borrows all its parts.
class PeerLinks {
 public:
  static constexpr size_t kWorkersMax = 64 * 1024;
  static constexpr size_t kAgentsMax = 4096;
  static constexpr size_t kBiddersMax = 1024;

  PeerLinks(Gatekeeper& gatekeeper, Router& router, LocalRequests& local,
            spdlog::logger& log)
      : gatekeeper_(gatekeeper), router_(router), local_(local), log_(log) {}

  // Seals the message's journal position and sends it. A message that is lost
  // is asked for again; nothing waits for it. False: that peer is gone.
  bool Send(const std::string& peer, Message message);
  // Do nothing if the peer has not spoken yet. Forget a peer whose connection
  // has ended.
  void SendToWorker(const WorkerKey& worker, Message message);
  void SendToAgent(const std::string& server, Message message);
  void SendToBidder(const BidderKey& bidder, Message message);

  PeerTable<WorkerKey>& workers() { return workers_; }
  PeerTable<std::string>& agents() { return agents_; }
  const PeerTable<std::string>& agents() const { return agents_; }
  PeerTable<BidderKey>& bidders() { return bidders_; }
  void ForgetAgents() { agents_ = PeerTable<std::string>(kAgentsMax); }

 private:
  Gatekeeper& gatekeeper_;
  Router& router_;
  LocalRequests& local_;
  spdlog::logger& log_;
  PeerTable<WorkerKey> workers_{kWorkersMax};
  PeerTable<std::string> agents_{kAgentsMax};
  PeerTable<BidderKey> bidders_{kBiddersMax};
};

// Messages that the engine sends to many receivers at once, such as a round's
// notices to thousands of workers. They go out in parts, so that requests are
// answered in between. The order of messages to one receiver is the engine's:
// an answer is sent behind the messages that wait for its receiver. The
// coordinator's event loop owns one. Not thread-safe.
class SendQueue {
 public:
  // A step's actions are many beyond this; so many go out between two turns of
  // receiving, and more when kTurnsMax turns would not carry all that waits:
  // else what comes in by turns of as many would keep it waiting for ever.
  static constexpr size_t kSentAtOnceMax = 64;
  static constexpr size_t kTurnsMax = 64;

  // How many go out now.
  size_t DueNow() const {
    return std::max(kSentAtOnceMax, waiting_.size() / kTurnsMax);
  }

  // The actions to carry out now, in order: those that wait for the receiver of
  // `action`, then `action`. Nothing when `action` itself waits, as one of
  // many.
  std::vector<Action> Take(Action&& action, bool of_many);

  // The next one that waits, in order.
  std::optional<Action> Next();

  bool empty() const { return waiting_.empty(); }

 private:
  using Receiver = std::variant<WorkerKey, std::string>;
  static std::optional<Receiver> ReceiverOf(const Action& action);

  std::list<Action> waiting_;
  // In order; none is empty.
  std::map<Receiver, std::deque<std::list<Action>::iterator>> waiting_for_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_PEER_LINKS_H_
