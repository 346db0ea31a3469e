#include "runtime/transport/connection_guard.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/transport/socket_options.h"

namespace gavel::transport {
namespace {

constexpr char kHandshakes[] = "inproc://zeromq.zap.01";
constexpr char kEvents[] = "inproc://gavel.connections";
constexpr char kDomain[] = "gavel";
constexpr size_t kKeyBytes = 32;
// Pause after a ZeroMQ error, which may recur at once.
constexpr std::chrono::milliseconds kErrorPause(10);
// A handler is replaced after kHandshakesPerHandler handshakes, or kHandlerAge
// after its first one. It is closed kHandlerGrace later, when its answers have
// long arrived.
constexpr int kHandshakesPerHandler = 512;
constexpr std::chrono::seconds kHandlerAge(5);
constexpr std::chrono::seconds kHandlerGrace(2);
// Allowance for the bytes of a message on the wire beside its parts: lengths,
// encryption, and the heartbeats between two messages.
constexpr uint64_t kMessageOverheadBytes = 256;
// While any peer is connected, all connections are checked every kLookInterval,
// or after kLookShare times the duration of the last check if that is longer,
// so that checks of thousands of connections cost little.
constexpr std::chrono::milliseconds kLookInterval(50);
constexpr int kLookShare = 50;
// How many keys without a connection are remembered before idle ones are
// dropped; see IsFull().
constexpr size_t kKeysSpare = 1024;
// ZMQ_ZAP_ENFORCE_DOMAIN, which zmq.h declares only with its draft API. It
// refuses connections that arrive while no handler is bound. Without it they
// are let in without a user id, and the Router ignores messages without one.
constexpr int kEnforceDomain = 93;

// The handshakes that the monitor reports as failed. A refusal of a key is not
// among them: the handler counts it.
constexpr int kHandshakeFailures =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
// How many of ZeroMQ's events are read at a time. ZeroMQ's thread blocks when
// too many events wait.
constexpr int kEventsAtOnceMax = 256;

// The frames of a ZAP request, in the order of the specification.
enum RequestFrame : size_t {
  kVersion,
  kRequestId,
  kDomainFrame,
  kAddress,
  kIdentity,
  kMechanism,
  kCredential
};

// Receives all parts of the next message; none if no message waits.
std::vector<zmq::message_t> ReceiveParts(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  do {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) break;
    parts.push_back(std::move(part));
  } while (parts.back().more());
  return parts;
}

// Returns the client's key (Z85) from a CURVE request of our domain; nullopt
// for any other request.
std::optional<std::string> KeyOf(const std::vector<zmq::message_t>& request) {
  if (request.size() <= kCredential) return std::nullopt;
  if (request[kDomainFrame].to_string_view() != kDomain ||
      request[kMechanism].to_string_view() != "CURVE" ||
      request[kCredential].size() != kKeyBytes) {
    return std::nullopt;
  }
  std::array<char, kCurveKeyChars + 1> text{};
  if (zmq_z85_encode(text.data(), request[kCredential].data<uint8_t>(),
                     kKeyBytes) == nullptr) {
    return std::nullopt;
  }
  return std::string(text.data());
}

// The ZAP status of an admission. After 400 or 500 our Dealer reconnects by
// itself, but libzmq does not, so a Dealer of an earlier version stays away.
// kNotYet is answered with an invalid status, after which libzmq 4.3.4 closes
// the connection at once and silently, and the peer tries again. The status
// 300, which is meant for this case, leaves the connection idle until the
// handshake times out.
const char* StatusOf(Admission admission) {
  switch (admission) {
    case Admission::kAllowed:
      return "200";
    case Admission::kNotYet:
      return "none";
    case Admission::kRefused:
      return "400";
    case Admission::kRevoked:
      break;
  }
  return kRevokedStatus;
}

// Returns nullopt if the connection is gone, or if the kernel's tcp_info lacks
// a field that is used here.
std::optional<tcp_info> InfoOf(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_received) +
                 sizeof info.tcpi_bytes_received) {
    return std::nullopt;
  }
  return info;
}

uint64_t MessagesOf(int descriptor) {
  return kMessagesPerConnection -
         static_cast<uint64_t>(descriptor) % (kMessagesPerConnection / 2);
}

bool IsIdle(const tcp_info& info) {
  const auto idle_ms = static_cast<uint32_t>(kIdleBeforeRenewal.count());
  return info.tcpi_last_data_sent >= idle_ms &&
         info.tcpi_last_data_recv >= idle_ms;
}

// The received bytes that ZeroMQ has not read yet. The kernel holds and limits
// them.
uint64_t BytesUnread(int descriptor) {
  int bytes = 0;
  if (ioctl(descriptor, FIONREAD, &bytes) != 0 || bytes < 0) return 0;
  return static_cast<uint64_t>(bytes);
}

}  // namespace

void SetCurveClient(zmq::socket_t& socket, const CurveClient& client) {
  socket.set(zmq::sockopt::curve_serverkey, client.server_public_key);
  socket.set(zmq::sockopt::curve_publickey, client.own.public_key);
  socket.set(zmq::sockopt::curve_secretkey, client.own.secret_key);
}

std::optional<uint64_t> BytesReceived(int descriptor) {
  const std::optional<tcp_info> info = InfoOf(descriptor);
  if (!info.has_value()) return std::nullopt;
  return info->tcpi_bytes_received;
}

std::string PeerAddress(int descriptor) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return "";
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes =
      peer.ss_family == AF_INET6
          ? static_cast<const void*>(
                &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
  const char* const written =
      inet_ntop(peer.ss_family, bytes, text.data(), text.size());
  return written == nullptr ? "" : written;
}

namespace {

void CutConnection(int descriptor, const std::string& address) {
  if (descriptor < 0 || address.empty()) return;
  if (PeerAddress(descriptor) == address) shutdown(descriptor, SHUT_RDWR);
}

}  // namespace

ConnectionGuard::ConnectionGuard(zmq::context_t& context, zmq::socket_t& socket,
                                 const std::optional<CurveKeyPair>& keys,
                                 MayConnect may_connect,
                                 const GuardLimits& limits)
    : context_(context),
      guarded_(socket),
      may_connect_(std::move(may_connect)),
      limits_(limits) {
  if (keys.has_value()) {
    // The handler is bound before the socket, as a handshake without a handler
    // would succeed.
    BindHandler();
    const int enforce = 1;
    if (zmq_setsockopt(socket.handle(), kEnforceDomain, &enforce,
                       sizeof enforce) != 0) {
      throw zmq::error_t();
    }
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, keys->secret_key);
    socket.set(zmq::sockopt::zap_domain, kDomain);
  }
  if (zmq_socket_monitor(socket.handle(), kEvents,
                         ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED |
                             kHandshakeFailures) != 0) {
    throw zmq::error_t();
  }
  events_ = zmq::socket_t(context, zmq::socket_type::pair);
  events_.set(zmq::sockopt::linger, 0);
  events_.connect(kEvents);
  thread_ = std::thread([this] { Serve(); });
}

ConnectionGuard::~ConnectionGuard() {
  // Stop the monitor first, while the thread still reads its events: ZeroMQ
  // blocks if there is no room for an event.
  zmq_socket_monitor(guarded_.handle(), nullptr, 0);
  stopping_ = true;
  stop_.Wake();
  thread_.join();
}

void ConnectionGuard::Serve() {
  while (!stopping_) {
    try {
      Wait();
      ReplaceHandlers();
    } catch (const zmq::error_t& error) {
      if (error.num() == ETERM || error.num() == ENOTSOCK) return;
      if (error.num() == EINTR) continue;
      // The error costs at most one peer its connection. Without this thread,
      // no peer could connect any more.
      std::this_thread::sleep_for(kErrorPause);
    }
  }
}

// Waits until there is something to do, and does it.
void ConnectionGuard::Wait() {
  std::vector<zmq::pollitem_t> items = {
      {events_.handle(), 0, ZMQ_POLLIN, 0},
      {nullptr, stop_.descriptor(), ZMQ_POLLIN, 0}};
  const size_t first = items.size();
  Clock::time_point next = look_at_;
  for (Handler& handler : handlers_) {
    items.push_back({handler.socket.handle(), 0, ZMQ_POLLIN, 0});
    next = std::min(next, handler.over);
  }
  std::chrono::milliseconds wait(-1);
  if (next != Clock::time_point::max()) {
    wait = std::max(
        std::chrono::milliseconds(0),
        std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()));
  }
  zmq::poll(items.data(), items.size(), wait);
  // Events come first, whatever the poll saw of them: a handshake is answered
  // by the number of connections, to which its own belongs.
  for (int i = 0; i < kEventsAtOnceMax && TakeEvent();) ++i;
  for (size_t i = 0; i < handlers_.size(); ++i) {
    if ((items[first + i].revents & ZMQ_POLLIN) != 0) {
      AnswerHandshake(handlers_[i]);
    }
  }
  if (Clock::now() >= look_at_) CheckConnections();
}

void ConnectionGuard::BindHandler() {
  zmq::socket_t socket(context_, zmq::socket_type::rep);
  socket.set(zmq::sockopt::linger, 0);
  // The result is ignored: unbinding fails if an earlier attempt has already
  // unbound the handler, but failed after that.
  if (!handlers_.empty()) {
    zmq_unbind(handlers_.back().socket.handle(), kHandshakes);
  }
  socket.bind(kHandshakes);
  handlers_.push_back({std::move(socket)});
}

void ConnectionGuard::ReplaceHandlers() {
  if (handlers_.empty()) return;
  const Clock::time_point now = Clock::now();
  Handler& bound = handlers_.back();
  if (bound.answered >= kHandshakesPerHandler || now >= bound.over) {
    bound.over = now + kHandlerGrace;
    BindHandler();
  }
  while (handlers_.size() > 1 && now >= handlers_.front().over)
    handlers_.pop_front();
}

void ConnectionGuard::AnswerHandshake(Handler& handler) {
  const std::vector<zmq::message_t> request = ReceiveParts(handler.socket);
  if (request.empty()) return;
  if (handler.answered++ == 0) {
    handler.over = std::min(handler.over, Clock::now() + kHandlerAge);
  }
  const std::optional<std::string> key = KeyOf(request);
  const std::string address =
      key.has_value() ? request[kAddress].to_string() : "";
  Admission admission =
      key.has_value() ? may_connect_(*key, address) : Admission::kRefused;
  // Answered like a key that may be let in later, as ZAP has no usable status
  // for this (see StatusOf).
  if (admission == Admission::kAllowed && IsFull(*key, address)) {
    admission = Admission::kNotYet;
  }
  const bool allowed = admission == Admission::kAllowed;
  if (!allowed) ++refused_;
  const std::string status = StatusOf(admission);
  const std::string user = allowed ? *key : "";
  const std::string id =
      request.size() > kRequestId ? request[kRequestId].to_string() : "";
  const std::array<std::string, 6> reply = {"1.0", id, status, "", user, ""};
  for (size_t i = 0; i < reply.size(); ++i) {
    handler.socket.send(zmq::buffer(reply[i]), i + 1 < reply.size()
                                                   ? zmq::send_flags::sndmore
                                                   : zmq::send_flags::none);
  }
}

bool ConnectionGuard::TakeEvent() {
  const std::optional<SocketEvent> told = TakeSocketEvent(events_);
  if (!told) return false;
  if (told->event == ZMQ_EVENT_ACCEPTED) Accepted(told->value);
  if (told->event == ZMQ_EVENT_DISCONNECTED) Closed(told->value);
  if ((told->event & kHandshakeFailures) != 0) ++failed_;
  return true;
}

void ConnectionGuard::Accepted(int descriptor) {
  const std::string address = PeerAddress(descriptor);
  if (address.empty()) return;  // gone again
  Closed(descriptor);
  {
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[descriptor];
    connection.address = address;
    // The owner may already have taken some of these bytes, which Taken() did
    // not count.
    connection.accounted = BytesReceived(descriptor).value_or(0);
  }
  if (look_at_ == Clock::time_point::max()) {
    look_at_ = Clock::now() + kLookInterval;
  }
  // With keys, up to a quarter more connections than the limit are accepted,
  // and refused in their handshake instead. This way their peers learn that
  // they have reached the right coordinator.
  const int most = limits_.connections_per_address_max;
  const int accepted_max = handlers_.empty() ? most : most + most / 4;
  if (++connections_of_[address] <= accepted_max) return;
  ++refused_;
  CutConnection(descriptor, address);
}

void ConnectionGuard::Closed(int descriptor) {
  const auto closed = connections_.find(descriptor);
  if (closed == connections_.end()) return;
  const auto counted = connections_of_.find(closed->second.address);
  if (--counted->second == 0) connections_of_.erase(counted);
  const std::lock_guard lock(mutex_);
  const auto use = keys_.find(closed->second.public_key);
  if (use != keys_.end() && --use->second.connections == 0 &&
      use->second.silent.empty()) {
    keys_.erase(use);
  }
  connections_.erase(closed);
}

void ConnectionGuard::Taken(int descriptor, size_t bytes,
                            const std::string& public_key) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(descriptor);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.accounted += bytes + kMessageOverheadBytes;
  ++connection.messages;
  if (public_key.empty() || !connection.public_key.empty()) return;
  connection.public_key = public_key;
  KeyUse& use = keys_[public_key];
  ++use.connections;
  if (!use.silent.empty()) use.silent.pop_front();
}

bool ConnectionGuard::IsSilent(Clock::time_point since,
                               Clock::time_point now) const {
  return std::chrono::duration<double>(now - since).count() >
         limits_.silent_s_max;
}

size_t ConnectionGuard::CountOf(KeyUse& use, Clock::time_point now) const {
  while (!use.silent.empty() && IsSilent(use.silent.front(), now)) {
    use.silent.pop_front();
  }
  return static_cast<size_t>(use.connections) + use.silent.size();
}

bool ConnectionGuard::IsFull(const std::string& public_key,
                             const std::string& address) {
  const auto of_address = connections_of_.find(address);
  if (of_address != connections_of_.end() &&
      of_address->second > limits_.connections_per_address_max) {
    return true;
  }
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  // Keys of connections that ended without a message stay in keys_. Once there
  // are too many, those without a connection are dropped.
  if (keys_.size() > 2 * connections_.size() + kKeysSpare) {
    for (auto use = keys_.begin(); use != keys_.end();) {
      use = CountOf(use->second, now) == 0 ? keys_.erase(use) : std::next(use);
    }
  }
  KeyUse& use = keys_[public_key];
  if (CountOf(use, now) >=
      static_cast<size_t>(limits_.connections_per_key_max)) {
    return true;
  }
  use.silent.push_back(now);
  return false;
}

void ConnectionGuard::MayRenew(int descriptor) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(descriptor);
  if (found == connections_.end()) return;
  found->second.answered_at = Clock::now();
}

void ConnectionGuard::Cut(int descriptor, const std::string& address) {
  ++cut_;
  CutConnection(descriptor, address);
}

bool ConnectionGuard::IsToRenew(int descriptor, const tcp_info& info,
                                const Connection& connection) {
  if (connection.messages < MessagesOf(descriptor)) return false;
  const Clock::time_point answered_at = connection.answered_at;
  const Clock::time_point now = Clock::now();
  return now >= answered_at + kIdleBeforeRenewal &&
         now < answered_at + kRenewalAllowed && IsIdle(info);
}

void ConnectionGuard::CheckConnections() {
  const Clock::time_point started = Clock::now();
  for (auto& [descriptor, connection] : connections_) {
    if (connection.cut) continue;
    // Read `accounted` before the kernel's count, so that bytes taken in
    // between do not look like credit.
    const uint64_t accounted = connection.accounted;
    const std::optional<tcp_info> info = InfoOf(descriptor);
    if (!info.has_value()) continue;
    if (Floods(descriptor, *info, accounted, connection) ||
        TakesNothing(*info, connection)) {
      connection.cut = true;
      Cut(descriptor, connection.address);
    } else if (IsToRenew(descriptor, *info, connection)) {
      connection.cut = true;
      CutConnection(descriptor, connection.address);
    }
  }
  const Clock::time_point now = Clock::now();
  CutSilent(now);
  look_at_ = connections_.empty()
                 ? Clock::time_point::max()
                 : now + std::max<Clock::duration>(
                             kLookInterval, kLookShare * (now - started));
}

void ConnectionGuard::CutSilent(Clock::time_point now) {
  const auto most = static_cast<size_t>(limits_.connections_per_key_max);
  if (handlers_.empty() || connections_.size() <= most) return;
  std::map<std::string_view, std::vector<int>> silent_of;
  for (const auto& [descriptor, connection] : connections_) {
    if (!connection.cut && connection.messages == 0 &&
        IsSilent(connection.accepted_at, now)) {
      silent_of[connection.address].push_back(descriptor);
    }
  }
  for (const auto& [address, silent] : silent_of) {
    for (size_t i = most; i < silent.size(); ++i) {
      connections_.at(silent[i]).cut = true;
      Cut(silent[i], std::string(address));
    }
  }
}

bool ConnectionGuard::Floods(int descriptor, const tcp_info& info,
                             uint64_t accounted, Connection& connection) const {
  const uint64_t received = info.tcpi_bytes_received;
  if (accounted >= received) {
    // The allowances exceed the bytes received. Drop the surplus, so that a
    // peer can't accumulate it.
    connection.accounted -= accounted - received;
    return false;
  }
  const uint64_t untaken = received - accounted;
  return untaken > limits_.untaken_bytes_max &&
         untaken > limits_.untaken_bytes_max + BytesUnread(descriptor);
}

bool ConnectionGuard::TakesNothing(const tcp_info& info,
                                   Connection& connection) const {
  if (limits_.unsent_s_max == kNever) return false;
  if (info.tcpi_notsent_bytes == 0) {
    connection.all_sent_at = Clock::now();
    return false;
  }
  const std::chrono::duration<double> since =
      Clock::now() - connection.all_sent_at;
  return since.count() > limits_.unsent_s_max;
}

}  // namespace gavel::transport
