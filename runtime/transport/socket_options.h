// Code that Dealer, Router and StreamSockets share: endpoints, socket options,
// and the conversion of cppzmq exceptions to Status. Internal to this folder.
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
#include "runtime/files/files.h"
#include "zmq.hpp"

namespace gavel::transport {

struct Endpoint {
  std::string host;  // no brackets; 127.0.0.1 for "localhost"
  int port = 0;
  bool loopback = false;
  bool ipv6 = false;
  // "tcp://127.0.0.1:7077", as ZeroMQ wants it.
  std::string Text() const;
};

// Parses "tcp://HOST:PORT" or "HOST:PORT"; INVALID_ARGUMENT for anything else.
// It resolves no names, because a name might not stand for a loopback address.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);

// Raises the process's soft limit on open files to its hard limit.
void RaiseDescriptorLimit();

// The limits that differ between message sockets and stream sockets.
struct SocketLimits {
  int queued_frames_max = 0;  // for one peer in one direction
  int64_t frame_bytes_max = 0;
  int reconnect_interval_ms_min = 0;
  int reconnect_interval_ms_max = 0;
};

// Sets the options that all of our sockets have.
void SetSocketOptions(zmq::socket_t& socket, const SocketLimits& limits,
                      bool ipv6);
// Makes the connecting end notice a dead peer.
void SetHeartbeats(zmq::socket_t& socket, int interval_ms, int timeout_ms);
// The same with the interval and timeout of a Dealer.
void SetHeartbeats(zmq::socket_t& socket);
// Turns on TCP keep-alive, by which the binding end notices a dead peer.
void KeepAlive(zmq::socket_t& socket);

// The time at which a wait ends; nullopt: never.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;
Deadline DeadlineAfter(double timeout_s);

// Waits until one of `items` is ready, not counting the first, which this
// function overwrites. Returns false at the deadline, at a Wake (which it
// clears) or at a signal. Throws cppzmq's exceptions.
bool WaitForAny(std::span<zmq::pollitem_t> items, Waker& waker,
                const Deadline& deadline);
// The same for one socket, until it is ready for `events`.
bool WaitFor(zmq::socket_t& socket, short events, Waker& waker,
             const Deadline& deadline);

// An event that zmq_socket_monitor reports about a socket.
struct SocketEvent {
  uint16_t event = 0;
  int32_t value = 0;
};
// Returns the next event of `monitor`, or nullopt if there is none now.
std::optional<SocketEvent> TakeSocketEvent(zmq::socket_t& monitor);

// The connection on which a frame came to a ROUTER.
struct Sender {
  std::string peer;        // routing id
  std::string public_key;  // proven by the handshake; empty: not encrypted
  std::string address;     // without port
  int descriptor = -1;     // of the connection
  size_t bytes = 0;        // of all parts
};

// The most messages queued for one peer in one direction. A message has at most
// kFrameBytesMax bytes.
inline constexpr int kQueuedMessagesMax = 1000;
// The most messages from one peer that a ROUTER holds unread; further ones wait
// at the peer. Messages of a connection that was cut are kept until they are
// read.
inline constexpr int kUnreadMessagesMax = 100;

// The socket of one end with its context, and the receive loop that both ends
// use.
struct Channel {
  Waker waker;
  zmq::context_t context;
  zmq::socket_t socket;
  std::string endpoint;
  uint64_t frames_dropped = 0;
  // Waits for a message, with the contract of WaitFor. WaitFor itself is used
  // if this is not set.
  std::function<bool(const Deadline& deadline)> wait;

  // Opens a socket with the options for its end, without binding or connecting
  // it.
  void Open(zmq::socket_type type, const Endpoint& endpoint);

  // Returns the next message that has one frame and decodes; drops and counts
  // all others. On a ROUTER it fills in `sender`, and calls `on_frame` for each
  // message that came, with OK or the reason why it was dropped. On a DEALER
  // both are null, and a frame of another protocol version ends the call with
  // FAILED_PRECONDITION.
  using OnFrame = std::function<void(const Sender&, const absl::Status&)>;
  absl::StatusOr<std::optional<Message>> Receive(double timeout_s,
                                                 Sender* sender,
                                                 const OnFrame& on_frame);
};

// Converts an errno of ZeroMQ to a status. `what` is, for example, "send to
// coordinator".
absl::Status ZmqStatus(std::string_view what, int error);

// Runs `action` and converts an exception of cppzmq to a Status.
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
