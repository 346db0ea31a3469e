#include "runtime/transport/socket_options.h"

#include <arpa/inet.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "core/codec.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel::transport {

namespace {

constexpr int kSocketsMax = 65536;
// Shorter ones lock out many encrypted clients at once: measured, see design
// section 7.
constexpr int kHandshake_ms_max = 15'000;
constexpr int kHeartbeatInterval_ms = 5'000;
constexpr int kHeartbeatTimeout_ms = 15'000;
constexpr int kKeepAliveIdle_s = 15;
constexpr int kKeepAliveInterval_s = 5;
constexpr int kKeepAliveProbes = 3;
// Connections that wait to be accepted: all workers come back at once when the
// coordinator has been away. The kernel's own limit (somaxconn) is below it.
constexpr int kBacklog = 65'535;
// One thread accepts, and has its turn of the processor among all others of a
// busy machine; handshakes, which cost most, are shared by all of these.
constexpr int kRouterThreads = 3;
constexpr int kReconnectInterval_ms_min = 200;
constexpr int kReconnectInterval_ms_max = 10'000;
// On one machine a refused connection costs nothing, and a restarted
// coordinator is to be found at once.
constexpr int kReconnectIntervalLoopback_ms_max = 1'000;
// Longer waits end early; callers loop anyway.
constexpr double kWait_s_max = 24 * 3600;
// Frames that one Receive drops before it returns to its caller, who has other
// things to do than to count rubbish.
constexpr int kDropsPerReceiveMax = 1000;

bool IsLoopbackV4(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 &&
         (ntohl(address.s_addr) >> 24) == 127;
}

bool IsLoopbackV6(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&address);
}

// Whether nothing, one frame (after the routing id) or several have come.
enum class Received : uint8_t { kNothing, kFrame, kMultipart };

// A property of the connection that a frame came by; "" without one.
std::string Property(zmq::message_t& frame, const char* name) {
  const char* const value = zmq_msg_gets(frame.handle(), name);
  return value == nullptr ? "" : value;
}

// Takes one whole message without waiting. `sender`: null on a DEALER.
Received ReceiveFrame(zmq::socket_t& socket, Sender* sender,
                      zmq::message_t& frame) {
  if (!socket.recv(frame, zmq::recv_flags::dontwait)) return Received::kNothing;
  if (sender != nullptr) {
    *sender = Sender();
    sender->peer = frame.to_string();
    if (!frame.more()) return Received::kMultipart;  // an id and nothing else
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) {
      return Received::kNothing;
    }
    sender->public_key = Property(frame, "User-Id");
    sender->address = Property(frame, "Peer-Address");
    sender->descriptor = zmq_msg_get(frame.handle(), ZMQ_SRCFD);
  }
  if (sender != nullptr) sender->bytes = frame.size();
  if (!frame.more()) return Received::kFrame;
  // All parts of a message arrive together, so this does not wait.
  while (frame.more()) {
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) break;
    if (sender != nullptr) sender->bytes += frame.size();
  }
  return Received::kMultipart;
}

}  // namespace

std::string Endpoint::Text() const {
  const std::string shown = ipv6 ? StrCat("[", host, "]") : host;
  return StrCat("tcp://", shown, ":",
                port == 0 ? std::string("*") : StrCat(port));
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(
        StrCat("endpoint \"", text, "\": ", why,
               "; write HOST:PORT, for example 127.0.0.1:7077"));
  };
  absl::string_view rest = absl::StripPrefix(ToAbsl(text), "tcp://");
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) return refuse("the port is missing");
  Endpoint endpoint;
  if (!absl::SimpleAtoi(rest.substr(colon + 1), &endpoint.port) ||
      endpoint.port < 0 || endpoint.port > 65535) {
    return refuse("the port is not a number from 0 to 65535");
  }
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]")) {
    endpoint.ipv6 = true;
  }
  if (host.empty()) return refuse("the host is missing");
  if (host.find_first_of(" /;[]") != absl::string_view::npos) {
    return refuse("this is no host");
  }
  endpoint.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  endpoint.loopback =
      endpoint.ipv6 ? IsLoopbackV6(endpoint.host) : IsLoopbackV4(endpoint.host);
  return endpoint;
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void SetSocketOptions(zmq::socket_t& socket, const SocketLimits& limits,
                      bool ipv6) {
  namespace option = zmq::sockopt;
  socket.set(option::linger, 0);
  socket.set(option::immediate, true);
  socket.set(option::sndhwm, limits.queued_frames_max);
  socket.set(option::rcvhwm, limits.queued_frames_max);
  socket.set(option::maxmsgsize, limits.frame_bytes_max);
  socket.set(option::handshake_ivl, kHandshake_ms_max);
  socket.set(option::reconnect_ivl, limits.reconnect_interval_ms_min);
  socket.set(option::reconnect_ivl_max, limits.reconnect_interval_ms_max);
  socket.set(option::ipv6, ipv6);
}

void SetHeartbeats(zmq::socket_t& socket, int interval_ms, int timeout_ms) {
  namespace option = zmq::sockopt;
  socket.set(option::heartbeat_ivl, interval_ms);
  socket.set(option::heartbeat_timeout, timeout_ms);
}

void SetHeartbeats(zmq::socket_t& socket) {
  SetHeartbeats(socket, kHeartbeatInterval_ms, kHeartbeatTimeout_ms);
}

// A ROUTER sends no heartbeats of its own: with them anybody could end the
// process, for libzmq (4.3.4, its issue 4364) has an assertion fail when a
// connection breaks whose queue is full, and the next heartbeat is due before
// the queue is read. Nor do its peers' carry a time to live: libzmq looks for a
// timer among all of them, which takes a ROUTER with 10,000 peers longer than
// their messages. The kernel finds out who is gone.
void KeepAlive(zmq::socket_t& socket) {
  namespace option = zmq::sockopt;
  socket.set(option::tcp_keepalive, 1);
  socket.set(option::tcp_keepalive_idle, kKeepAliveIdle_s);
  socket.set(option::tcp_keepalive_intvl, kKeepAliveInterval_s);
  socket.set(option::tcp_keepalive_cnt, kKeepAliveProbes);
}

Deadline DeadlineAfter(double timeout_s) {
  if (std::isinf(timeout_s) && timeout_s > 0) return std::nullopt;
  if (!(timeout_s > 0)) timeout_s = 0;
  const std::chrono::duration<double> wait(std::min(timeout_s, kWait_s_max));
  return std::chrono::steady_clock::now() +
         std::chrono::ceil<std::chrono::nanoseconds>(wait);
}

bool WaitForAny(std::span<zmq::pollitem_t> items, Waker& waker,
                const Deadline& deadline) {
  std::chrono::milliseconds wait(-1);
  if (deadline.has_value()) {
    wait = std::chrono::ceil<std::chrono::milliseconds>(
        *deadline - std::chrono::steady_clock::now());
    wait = std::max(wait, std::chrono::milliseconds(0));
  }
  items.front() = {nullptr, waker.descriptor(), ZMQ_POLLIN, 0};
  try {
    zmq::poll(items.data(), items.size(), wait);
  } catch (const zmq::error_t& error) {
    if (error.num() == EINTR) return false;
    throw;
  }
  for (const zmq::pollitem_t& item : items.subspan(1)) {
    if ((item.revents & item.events) != 0) return true;
  }
  if (items.front().revents != 0) waker.Clear();
  return false;
}

bool WaitFor(zmq::socket_t& socket, short events, Waker& waker,
             const Deadline& deadline) {
  std::array<zmq::pollitem_t, 2> items = {
      {{}, {socket.handle(), 0, events, 0}}};
  return WaitForAny(items, waker, deadline);
}

std::optional<SocketEvent> TakeSocketEvent(zmq::socket_t& monitor) {
  zmq::message_t part;
  if (!monitor.recv(part, zmq::recv_flags::dontwait)) return std::nullopt;
  SocketEvent told;
  if (part.size() >= sizeof told.event + sizeof told.value) {
    std::memcpy(&told.event, part.data(), sizeof told.event);
    std::memcpy(&told.value, part.data<char>() + sizeof told.event,
                sizeof told.value);
  }
  // Behind it is the endpoint.
  while (part.more() && monitor.recv(part, zmq::recv_flags::dontwait)) {
  }
  return told;
}

void Channel::Open(zmq::socket_type type, const Endpoint& where) {
  context.set(zmq::ctxopt::max_sockets,
              std::min(kSocketsMax, context.get(zmq::ctxopt::socket_limit)));
  if (type == zmq::socket_type::router) {
    context.set(zmq::ctxopt::io_threads, kRouterThreads);
  }
  socket = zmq::socket_t(context, type);
  SetSocketOptions(
      socket,
      {kQueuedMessagesMax, int64_t{kFrameBytesMax}, kReconnectInterval_ms_min,
       where.loopback ? kReconnectIntervalLoopback_ms_max
                      : kReconnectInterval_ms_max},
      where.ipv6);
  if (type == zmq::socket_type::router) {
    socket.set(zmq::sockopt::backlog, kBacklog);
    socket.set(zmq::sockopt::rcvhwm, kUnreadMessagesMax);
    KeepAlive(socket);
  } else {
    SetHeartbeats(socket);
  }
}

absl::StatusOr<std::optional<Message>> Channel::Receive(
    double timeout_s, Sender* sender, const OnFrame& on_frame) {
  const Deadline deadline = DeadlineAfter(timeout_s);
  std::optional<Message> received;
  const absl::Status status = CatchZmq("receive", [&] {
    zmq::message_t frame;
    int drops = 0;
    while (drops < kDropsPerReceiveMax) {
      const Received got = ReceiveFrame(socket, sender, frame);
      if (got == Received::kNothing) {
        const bool ready = wait ? wait(deadline)
                                : WaitFor(socket, ZMQ_POLLIN, waker, deadline);
        if (ready) continue;
        break;
      }
      absl::StatusOr<Message> message =
          got == Received::kFrame
              ? DecodeMessage(frame.to_string_view())
              : absl::InvalidArgumentError("a message of several parts");
      if (sender != nullptr) on_frame(*sender, message.status());
      if (message.ok()) {
        received = *std::move(message);
        break;
      }
      const bool other_version = absl::IsFailedPrecondition(message.status());
      if (sender == nullptr && other_version) return message.status();
      ++frames_dropped;
      ++drops;
    }
    return absl::OkStatus();
  });
  GAVEL_RETURN_IF_ERROR(status);
  return received;
}

absl::Status ZmqStatus(std::string_view what, int error) {
  const std::string text = StrCat(what, ": ", zmq_strerror(error));
  switch (error) {
    case EHOSTUNREACH:
      return absl::NotFoundError(text);
    case EAGAIN:
    case EINTR:
      return absl::UnavailableError(text);
    case EADDRINUSE:
      return absl::AlreadyExistsError(text);
    case EACCES:
      return absl::PermissionDeniedError(text);
    case EADDRNOTAVAIL:
    case ENODEV:
    case EINVAL:
      return absl::InvalidArgumentError(text);
    case EMFILE:
      return absl::ResourceExhaustedError(
          StrCat(text, "; raise the limit of open files (ulimit -n)"));
    default:
      return absl::InternalError(text);
  }
}

}  // namespace gavel::transport
