// Decides during the handshake which peers may connect to a bound socket. It is
// the ZAP handler of a context (rfc.zeromq.org/spec/27) and limits the
// connections per address and per key. A Router owns one, and so does the
// socket by which agents talk to each other (stream_sockets.h).
//
// ZeroMQ tells the key of a connection only with a message. So a connection
// counts for its key from its handshake on: for silent_s_max if it brings no
// message in that time, and until its end once it has brought one. Connections
// that are silent for longer than silent_s_max are limited per address: an
// address keeps at most connections_per_key_max of them.
//
// The guard also ends connections that fill the memory. ZeroMQ limits the size
// of a frame and the number of complete messages that wait. But it delivers a
// message of several parts only with the last part, which need not arrive, and
// it does not limit the parts before. So the guard compares the bytes that the
// kernel has received on each connection with those that the owner has taken
// from the socket.
//
// Likewise it ends a connection whose peer does not read its messages. Up to
// kQueuedMessagesMax messages would wait for such a peer in ZeroMQ for as long
// as it stays connected.
//
// Finally it renews connections, by closing them while their peers wait for
// nothing, to free memory. ZeroMQ's queues are blocks of 256 messages, two in
// each direction, whose pages stay in use once messages have passed through
// them. That comes to 64 KB per connection in the long run, which are freed
// when it ends.
//
// The guard runs a thread of its own and calls `may_connect` on it. The socket
// and its context must outlive the guard. Destroy it on the socket's thread.
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
#include "runtime/files/files.h"
#include "runtime/transport/curve.h"
#include "zmq.hpp"

struct tcp_info;  // <linux/tcp.h>

namespace gavel::transport {

// Returns whether the holder of this public key (Z85, proven by the handshake)
// may connect from that address. This grants no other rights: they are checked
// for each message.
using MayConnect = std::function<Admission(const std::string& public_key,
                                           const std::string& address)>;

// The status by which the handshake tells a peer that its key was revoked.
inline constexpr char kRevokedStatus[] = "500";

// Makes `socket`, not yet connected, the client's end of an encrypted
// connection.
void SetCurveClient(zmq::socket_t& socket, const CurveClient& client);

// How much ZeroMQ may hold of a connection beside the complete messages that
// wait.
inline constexpr uint64_t kUntakenBytesSlack = uint64_t{1} << 20;

struct GuardLimits {
  int connections_per_address_max = 0;
  int connections_per_key_max = 0;
  double silent_s_max = 0;
  // How many bytes ZeroMQ may hold of one connection that the owner has not
  // taken. The overhead of each message is allowed for; heartbeats without
  // messages are not. A connection that sends nothing but heartbeats reaches a
  // limit of 7 MiB within nine days; it is then cut, and its peer connects
  // anew.
  uint64_t untaken_bytes_max = 0;
  // A connection is cut if every check for this long finds unsent bytes in the
  // kernel because the peer makes no room for them. kNever: no limit, for
  // sockets that send without a pause.
  double unsent_s_max = kNever;
};

// A connection may be renewed once it has brought kMessagesPerConnection
// messages, which fill three pages of a queue. The number varies by connection
// down to half of that, so that peers that connected together do not reconnect
// together. It is renewed after MayRenew(), when nothing has moved on it for
// kIdleBeforeRenewal, and at most kRenewalAllowed after that call.
inline constexpr uint64_t kMessagesPerConnection = 192;
inline constexpr std::chrono::milliseconds kIdleBeforeRenewal(300);
inline constexpr std::chrono::milliseconds kRenewalAllowed(3000);

class ConnectionGuard {
 public:
  // Guards `socket`, which belongs to `context` and is not yet bound. With
  // `keys` the socket uses CURVE and admits only peers that `may_connect`
  // allows; without `keys` it is not encrypted. A context may have at most one
  // guard with keys. Throws what cppzmq throws.
  ConnectionGuard(zmq::context_t& context, zmq::socket_t& socket,
                  const std::optional<CurveKeyPair>& keys,
                  MayConnect may_connect, const GuardLimits& limits);
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

  // Notes that the owner took a message from the socket: the bytes of all its
  // parts, the descriptor of its connection (-1: not known), and the
  // connection's key (empty: not known). Thread-safe.
  void Taken(int descriptor, size_t bytes, const std::string& public_key = "");

  // Ends the connection with this descriptor if its peer is at `address`.
  // ZeroMQ's thread notices the end and closes the descriptor. Descriptors are
  // reused, so the caller must make sure that the connection still exists.
  // Thread-safe.
  void Cut(int descriptor, const std::string& address);

  // Allows the guard to renew the connection within kRenewalAllowed. The peer
  // gets its answer right after this call and sends no request in this time.
  // Thread-safe.
  void MayRenew(int descriptor);

  // The number of connections closed because their address had too many, plus
  // handshakes refused. Thread-safe.
  uint64_t connections_refused() const { return refused_; }
  // The number of handshakes that failed or were broken off before the handler
  // was asked about a key. Thread-safe.
  uint64_t handshakes_failed() const { return failed_; }
  // The number of connections cut, by the guard's checks or by Cut(). Renewals
  // do not count. Thread-safe.
  uint64_t connections_cut() const { return cut_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A ZAP handler. ZeroMQ links each connection to the handler that answered
  // its handshake by two queues of 33 KB in total, for as long as both live. So
  // a handler is replaced after some handshakes and closed soon after. That
  // frees the queues but keeps the connections.
  struct Handler {
    zmq::socket_t socket;
    int answered = 0;
    // When it is replaced or, once replaced, closed.
    Clock::time_point over = Clock::time_point::max();
  };
  struct Connection {
    std::string address;
    // Received bytes that are accounted for: those that the owner has taken,
    // and those received before the guard knew the connection.
    std::atomic<uint64_t> accounted = 0;
    std::atomic<uint64_t> messages = 0;  // taken by the owner
    std::atomic<Clock::time_point> answered_at = Clock::time_point::min();
    const Clock::time_point accepted_at = Clock::now();
    Clock::time_point all_sent_at = Clock::now();
    std::string public_key;  // whose count includes it; empty: not yet known
    bool cut = false;
  };
  // The connections of one key.
  struct KeyUse {
    int connections = 0;  // those that have brought a message
    // The handshake times of connections that have not brought a message yet,
    // no older than silent_s_max.
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
  // Returns true if one more connection of that key or address would be too
  // many. Otherwise counts it.
  bool IsFull(const std::string& public_key, const std::string& address);
  size_t CountOf(KeyUse& use, Clock::time_point now) const;
  bool IsSilent(Clock::time_point since, Clock::time_point now) const;
  void CheckConnections();
  void CutSilent(Clock::time_point now);
  // `accounted` is that of the connection, read before `info`.
  bool Floods(int descriptor, const tcp_info& info, uint64_t accounted,
              Connection& connection) const;
  bool TakesNothing(const tcp_info& info, Connection& connection) const;
  static bool IsToRenew(int descriptor, const tcp_info& info,
                        const Connection& connection);

  zmq::context_t& context_;
  zmq::socket_t& guarded_;
  const MayConnect may_connect_;
  const GuardLimits limits_;
  // The last handler is bound, the others are about to be closed. Empty without
  // keys.
  std::deque<Handler> handlers_;
  zmq::socket_t events_;
  Waker stop_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> failed_{0};
  std::atomic<uint64_t> cut_{0};
  // By descriptor. Only the guard's thread adds and removes entries, and holds
  // mutex_ for that. Other threads hold it for lookups.
  std::map<int, Connection> connections_;
  std::map<std::string, KeyUse> keys_;
  std::mutex mutex_;  // guards both
  // Used by the guard's thread only.
  std::map<std::string, int> connections_of_;
  Clock::time_point look_at_ = Clock::time_point::max();
  std::thread thread_;
};

// Returns the address of a connected socket's peer, without the port; "" if the
// connection is gone.
std::string PeerAddress(int descriptor);
// Returns how many bytes a connection has received so far; nullopt if it is
// gone or the kernel does not tell.
std::optional<uint64_t> BytesReceived(int descriptor);

}  // namespace gavel::transport

#endif  // GAVEL_RUNTIME_TRANSPORT_CONNECTION_GUARD_H_
