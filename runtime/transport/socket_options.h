// What Dealer, Router and StreamSockets share: endpoints, the options of design
// section 7, and the one place where exceptions of cppzmq end. Internal to this
// folder.
#ifndef GAVEL_RUNTIME_TRANSPORT_SOCKET_OPTIONS_H_
#define GAVEL_RUNTIME_TRANSPORT_SOCKET_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"
#include "runtime/transport/waker.h"
#include "zmq.hpp"

namespace gavel::transport {

struct Endpoint {
  std::string host;  // without brackets; "localhost" is 127.0.0.1
  int port = 0;
  bool loopback = false;
  bool ipv6 = false;
  // "tcp://127.0.0.1:7077", as ZeroMQ wants it.
  std::string Text() const;
};

// "tcp://HOST:PORT" or "HOST:PORT". INVALID_ARGUMENT otherwise. Resolves no
// names: only loopback addresses can be known to be such.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);

// The process's soft limit of open files becomes its hard one.
void RaiseDescriptorLimit();

// What differs between the sockets of messages and those of streams.
struct SocketLimits {
  int queued_frames_max = 0;  // for one peer in one direction
  int64_t frame_bytes_max = 0;
  int reconnect_interval_ms_min = 0;
  int reconnect_interval_ms_max = 0;
};

// The options of every socket of ours.
void SetSocketOptions(zmq::socket_t& socket, const SocketLimits& limits,
                      bool ipv6);
// Of the end that connects: notices a dead peer.
void SetHeartbeats(zmq::socket_t& socket, int interval_ms, int timeout_ms);
// The same, as often as a Dealer.
void SetHeartbeats(zmq::socket_t& socket);
// Of the end that binds.
void KeepAlive(zmq::socket_t& socket);

// When a wait is over; nullopt: never.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;
Deadline DeadlineAfter(double timeout_s);

// Waits until one of `items` but the first, which is overwritten, is ready;
// false at the deadline, at a Wake (which is cleared) or at a signal. Throws
// what cppzmq throws.
bool WaitForAny(std::span<zmq::pollitem_t> items, Waker& waker,
                const Deadline& deadline);
// The same, until `socket` is ready for `events`.
bool WaitFor(zmq::socket_t& socket, short events, Waker& waker,
             const Deadline& deadline);

// What zmq_socket_monitor tells of a socket.
struct SocketEvent {
  uint16_t event = 0;
  int32_t value = 0;
};
// The next one, if `monitor` has one.
std::optional<SocketEvent> TakeSocketEvent(zmq::socket_t& monitor);

// By which connection a frame came, on a ROUTER.
struct Sender {
  std::string peer;        // routing id
  std::string public_key;  // proven by the handshake; empty: not encrypted
  std::string address;     // without port
  int descriptor = -1;     // of the connection
  size_t bytes = 0;        // of all parts
};

// Messages queued for one peer in one direction, at most kFrameBytesMax each.
inline constexpr int kQueuedMessagesMax = 1000;
// Those that a ROUTER has from one peer and has not looked at: more wait with
// the peer. What one that was cut has left behind is kept until it is read.
inline constexpr int kUnreadMessagesMax = 100;

// One end's own things, and the loop that both receive with.
struct Channel {
  Waker waker;
  zmq::context_t context;
  zmq::socket_t socket;
  std::string endpoint;
  uint64_t frames_dropped = 0;
  // Waits for a message, as WaitFor; not set: that.
  std::function<bool(const Deadline& deadline)> wait;

  // A socket with the options of both sides, not yet bound or connected.
  void Open(zmq::socket_type type, const Endpoint& endpoint);

  // The next message of one frame that decodes; all others are dropped and
  // counted. `sender` is filled in on a ROUTER, and `on_frame` told of each
  // message that came, with OK or why it was dropped; on a DEALER both are
  // null, and a frame of another protocol version ends the call with
  // FAILED_PRECONDITION.
  using OnFrame = std::function<void(const Sender&, const absl::Status&)>;
  absl::StatusOr<std::optional<Message>> Receive(double timeout_s,
                                                 Sender* sender,
                                                 const OnFrame& on_frame);
};

// The status for an errno of ZeroMQ. `what`: "send to coordinator".
absl::Status ZmqStatus(std::string_view what, int error);

// Runs `action`; an exception of cppzmq becomes a Status.
template <class Action>
absl::Status CatchZmq(std::string_view what, Action&& action) {
  try {
    return std::forward<Action>(action)();
  } catch (const zmq::error_t& error) {
    return ZmqStatus(what, error.num());
  }
}

}  // namespace gavel::transport

#endif  // GAVEL_RUNTIME_TRANSPORT_SOCKET_OPTIONS_H_
