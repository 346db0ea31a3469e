// Who may connect to a bound socket, decided while the handshake runs: the ZAP
// handler of a context (rfc.zeromq.org/spec/27), and limits of connections per
// address and per key. Whatever binds an encrypted socket owns one: a Router,
// or the socket of agents among themselves.
//
// Which connection is of which key, ZeroMQ tells with a message only. So a
// connection counts for its key from its handshake on: until its end once it
// has brought a message, for silent_s_max before that. Of those that are silent
// for longer an address has no more than a key may have of any.
//
// It also ends connections that fill the memory. ZeroMQ bounds what waits in
// frames and whole messages, but hands a message of several parts over only
// with its last one, which need not come: nothing bounds those parts. So what
// the kernel has received by each connection is compared with what its owner
// has taken from the socket.
//
// Likewise it ends a connection whose peer does not take what is sent to it: up
// to kQueuedMessagesMax messages would wait for it in ZeroMQ, for as long as it
// stays.
//
// And it renews connections while their peers wait for nothing. ZeroMQ's queues
// are blocks of 256 messages, two in each direction, whose pages stay in use
// once messages went through: 64 KB of a connection in the long run, which end
// with it.
//
// One thread inside; `may_connect` is called on it. The socket and its context
// outlive the guard, which is to be destroyed on the socket's thread.
#ifndef GAVEL_RUNTIME_TRANSPORT_CONNECTION_GUARD_H_
#define GAVEL_RUNTIME_TRANSPORT_CONNECTION_GUARD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/units.h"
#include "runtime/transport/curve.h"
#include "runtime/transport/waker.h"
#include "zmq.hpp"

struct tcp_info;  // <linux/tcp.h>

namespace gavel::transport {

// Whether the holder of this public key (Z85, proven by the handshake) may
// connect from that address. What it may do is asked again for each of its
// messages.
using MayConnect = std::function<Admission(const std::string& public_key,
                                           const std::string& address)>;

// Of a key that was revoked, as its owner hears it in a handshake.
inline constexpr char kRevokedStatus[] = "500";

// Makes `socket`, not yet connected, the client's end of an encrypted
// connection.
void SetCurveClient(zmq::socket_t& socket, const CurveClient& client);

// What a connection may have in ZeroMQ beside the messages that wait there
// whole.
inline constexpr uint64_t kUntakenBytesSlack = uint64_t{1} << 20;

struct GuardLimits {
  int connections_per_address_max = 0;
  int connections_per_key_max = 0;
  double silent_s_max = 0;
  // That ZeroMQ may hold of one connection and its owner has not taken. What
  // each message costs beside its own bytes is allowed for, a heartbeat is not:
  // a connection that says nothing at all but those reaches a limit of 7 MiB
  // within nine days, and connects anew.
  uint64_t untaken_bytes_max = 0;
  // So long may the kernel have something to send to a peer at each look, and
  // no room with the peer for it. kNever: as long as it likes, for those that
  // send without a pause.
  double unsent_s_max = kNever;
};

// A connection is renewed that has brought so many messages, three pages of a
// queue, or down to half as many, so that not all who came together come
// together again; once it was allowed and nothing has moved on it for so long,
// and no later than so long after it was allowed.
inline constexpr uint64_t kMessagesPerConnection = 192;
inline constexpr std::chrono::milliseconds kIdleBeforeRenewal(300);
inline constexpr std::chrono::milliseconds kRenewalAllowed(3000);

class ConnectionGuard {
 public:
  // Guards `socket`, of `context` and not yet bound: with `keys` it speaks
  // CURVE with those alone that `may_connect` allows, without it is not
  // encrypted. At most one guard with keys in a context. Throws what cppzmq
  // throws.
  ConnectionGuard(zmq::context_t& context, zmq::socket_t& socket,
                  const std::optional<CurveKeyPair>& keys,
                  MayConnect may_connect, const GuardLimits& limits);
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

  // A message was taken from the socket: the bytes of all its parts, the
  // connection that it came by (-1: not known), and the key of that (empty: not
  // known). Thread-safe.
  void Taken(int descriptor, size_t bytes, const std::string& public_key = "");

  // Ends a connection by its descriptor, if it (still) is one to `address`:
  // ZeroMQ's thread sees the end, and closes it. Descriptors are used again, so
  // that the caller makes sure that the connection is still there. Thread-safe.
  void Cut(int descriptor, const std::string& address);

  // The connection may be renewed within kRenewalAllowed: its peer has its
  // answer a moment after this, and asks for nothing meanwhile. Thread-safe.
  void MayRenew(int descriptor);

  // Connections closed for too many of one address or key, handshakes refused.
  // Thread-safe.
  uint64_t connections_refused() const { return refused_; }
  // Handshakes that failed or were broken off before any key was asked for.
  // Thread-safe.
  uint64_t handshakes_failed() const { return failed_; }
  // Connections ended for what came by them. Thread-safe.
  uint64_t connections_cut() const { return cut_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A ZAP handler. ZeroMQ joins each connection to the one that answered its
  // handshake by two queues, 33 KB, for as long as both live. So a handler is
  // replaced once it has answered some, and closed soon after: the connections
  // stay, their queues go.
  struct Handler {
    zmq::socket_t socket;
    int answered = 0;
    Clock::time_point over = Clock::time_point::max();  // replaced, or closed
  };
  struct Connection {
    std::string address;
    // Of the bytes that were received by it, those that are accounted for:
    // taken, or of before it was known.
    std::atomic<uint64_t> accounted = 0;
    std::atomic<uint64_t> messages = 0;  // that were taken
    std::atomic<Clock::time_point> answered_at = Clock::time_point::min();
    const Clock::time_point accepted_at = Clock::now();
    Clock::time_point all_sent_at = Clock::now();
    std::string public_key;  // that it counts for; empty: not yet known
    bool cut = false;
  };
  // Connections of a key.
  struct KeyUse {
    int connections = 0;  // that have brought a message
    // When handshakes of others were, no longer ago than silent_s_max.
    std::deque<Clock::time_point> silent;
  };
  void Serve();
  void Wait();
  void BindHandler();
  void ReplaceHandlers();
  void AnswerHandshake(Handler& handler);
  // False: there is none.
  bool TakeEvent();
  void Accepted(int descriptor);
  void Closed(int descriptor);
  // One more of that key would be too many, or of that address. Else it counts.
  bool IsFull(const std::string& public_key, const std::string& address);
  size_t CountOf(KeyUse& use, Clock::time_point now) const;
  bool IsSilent(Clock::time_point since, Clock::time_point now) const;
  void CheckConnections();
  void CutSilent(Clock::time_point now);
  // `accounted` of it, as read before `info`.
  bool Floods(int descriptor, const tcp_info& info, uint64_t accounted,
              Connection& connection) const;
  bool TakesNothing(const tcp_info& info, Connection& connection) const;
  static bool IsToRenew(int descriptor, const tcp_info& info,
                        const Connection& connection);

  zmq::context_t& context_;
  zmq::socket_t& guarded_;
  const MayConnect may_connect_;
  const GuardLimits limits_;
  // The last one is bound, the others are about to be closed. None without
  // keys.
  std::deque<Handler> handlers_;
  zmq::socket_t events_;
  Waker stop_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> failed_{0};
  std::atomic<uint64_t> cut_{0};
  // By descriptor. The thread alone adds and removes, under the mutex; others
  // look up under it.
  std::map<int, Connection> connections_;
  std::map<std::string, KeyUse> keys_;
  std::mutex mutex_;  // guards both
  // Of the thread alone.
  std::map<std::string, int> connections_of_;
  Clock::time_point look_at_ = Clock::time_point::max();
  std::thread thread_;
};

// Address of the peer of a connected socket, without port; "" when it is gone.
std::string PeerAddress(int descriptor);
// All that came by a connection so far. Nothing: it is gone, or the kernel does
// not tell.
std::optional<uint64_t> BytesReceived(int descriptor);

}  // namespace gavel::transport

#endif  // GAVEL_RUNTIME_TRANSPORT_CONNECTION_GUARD_H_
