// Who may connect to a bound socket, decided while the handshake runs: the ZAP
// handler of a context (rfc.zeromq.org/spec/27), and a limit of connections per
// address. Whatever binds an encrypted socket owns one: a Router, or the socket
// of agents among themselves.
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
#include <optional>
#include <string>
#include <thread>

#include "runtime/transport/curve.h"
#include "runtime/transport/waker.h"
#include "zmq.hpp"

namespace gavel::transport {

// Whether the holder of this public key (Z85, proven by the handshake) may
// connect. What it may do is asked again for each of its messages.
using MayConnect = std::function<bool(const std::string& public_key)>;

// Makes `socket`, not yet connected, the client's end of an encrypted
// connection.
void SetCurveClient(zmq::socket_t& socket, const CurveClient& client);

class ConnectionGuard {
 public:
  // Guards `socket`, of `context` and not yet bound: with `keys` it speaks
  // CURVE with those alone that `may_connect` allows, without it is not
  // encrypted. At most one guard with keys in a context. Throws what cppzmq
  // throws.
  ConnectionGuard(zmq::context_t& context, zmq::socket_t& socket,
                  const std::optional<CurveKeyPair>& keys,
                  MayConnect may_connect, int connections_per_address_max);
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

  // Connections closed for too many of one address, handshakes refused.
  // Thread-safe.
  uint64_t connections_refused() const { return refused_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A ZAP handler. ZeroMQ joins each connection to the one that answered its
  // handshake by two queues, 20 KB, for as long as both live. So a handler is
  // replaced once it has answered some, and closed soon after: the connections
  // stay, their queues go.
  struct Handler {
    zmq::socket_t socket;
    int answered = 0;
    Clock::time_point over = Clock::time_point::max();  // replaced, or closed
  };
  void Serve();
  void Wait();
  void BindHandler();
  void ReplaceHandlers();
  void AnswerHandshake(Handler& handler);
  void TakeEvent();
  void Accepted(int descriptor);
  void Closed(int descriptor);

  zmq::context_t& context_;
  zmq::socket_t& guarded_;
  const MayConnect may_connect_;
  const int connections_per_address_max_;
  // The last one is bound, the others are about to be closed. None without
  // keys.
  std::deque<Handler> handlers_;
  // Handshakes of those that were closed; when what they left is given back.
  int released_ = 0;
  Clock::time_point trim_at_ = Clock::time_point::max();
  zmq::socket_t events_;
  Waker stop_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> refused_{0};
  // Of the thread alone.
  std::map<int, std::string> address_of_;  // by descriptor of a connection
  std::map<std::string, int> connections_of_;
  std::thread thread_;
};

// Address of the peer of a connected socket, without port; "" when it is gone.
std::string PeerAddress(int descriptor);

// Ends a connection of ZeroMQ's by its descriptor, if it (still) is one to
// `address`: its thread sees the end, and closes it. Descriptors are used
// again; one of the same peer that is cut in error reconnects.
void CutConnection(int descriptor, const std::string& address);

}  // namespace gavel::transport

#endif  // GAVEL_RUNTIME_TRANSPORT_CONNECTION_GUARD_H_
