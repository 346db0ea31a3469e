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
// After an error of ZeroMQ that may come again at once.
constexpr std::chrono::milliseconds kErrorPause(10);
// A handler is replaced after so many handshakes, or so long after the first,
// and closed when those that it answered have long heard it.
constexpr int kHandshakesPerHandler = 512;
constexpr std::chrono::seconds kHandlerAge(5);
constexpr std::chrono::seconds kHandlerGrace(2);
// What a message may take on the wire beside its parts: lengths, encryption,
// the heartbeats between two.
constexpr uint64_t kMessageOverheadBytes = 256;
// Between two looks at all connections, while anybody is connected; and as many
// times what one takes, so that those with thousands of connections cost
// little.
constexpr std::chrono::milliseconds kLookInterval(50);
constexpr int kLookShare = 50;
// Keys without a connection that are remembered beside those with one.
constexpr size_t kKeysSpare = 1024;
// ZMQ_ZAP_ENFORCE_DOMAIN, which zmq.h names for drafts of its API only: who
// comes while no handler is bound is refused. Without it such a one gets in,
// with no name, and the Router hears nobody without a name.
constexpr int kEnforceDomain = 93;

// Whoever is refused by key is counted by the handler.
constexpr int kHandshakeFailures =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
// Taken at once of what ZeroMQ tells; its thread waits for room when too much
// is there.
constexpr int kEventsAtOnceMax = 256;

// Frames of a ZAP request, in the order of the specification.
enum RequestFrame : size_t {
  kVersion,
  kRequestId,
  kDomainFrame,
  kAddress,
  kIdentity,
  kMechanism,
  kCredential
};

// The whole multipart message that is there.
std::vector<zmq::message_t> ReceiveParts(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  do {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) break;
    parts.push_back(std::move(part));
  } while (parts.back().more());
  return parts;
}

// The key of a request of ours; nothing when it is anything else.
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

// A Dealer that is told 400 or 500 tries again by itself; libzmq does not, so
// that a Dealer of earlier versions stays away. Of 300 libzmq 4.3.4 makes a
// connection that idles to the handshake's time-out; it closes one at once,
// without a word, and its peer tries again, for a status that is none.
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

// Nothing when the connection is gone, or the kernel does not tell all that is
// asked for here.
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

// Of those, what ZeroMQ has not read yet: the kernel holds it, and bounds it.
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
    // Before the socket is bound: a handshake without a handler would pass.
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
  // First, and while the thread still reads: ZeroMQ waits for room to tell.
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
      // One peer less; without this thread nobody could connect any more.
      std::this_thread::sleep_for(kErrorPause);
    }
  }
}

// For whatever is to be done, and does it.
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
  if ((items[0].revents & ZMQ_POLLIN) != 0) {
    for (int i = 0; i < kEventsAtOnceMax && TakeEvent();) ++i;
  }
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
  // Refused when an attempt before this one came so far.
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
  // Like one that may be let in later: there is no word for it (StatusOf).
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
    // Some of that may be taken already, without having been counted.
    connection.accounted = BytesReceived(descriptor).value_or(0);
  }
  if (look_at_ == Clock::time_point::max()) {
    look_at_ = Clock::now() + kLookInterval;
  }
  // With keys, those beyond the limit may say whose they are, and are refused
  // in the handshake: so their peers learn that this is the right coordinator.
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
  // Keys of connections that went without a message stay, up to a bound.
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
    // What is taken from here on is not mistaken for credit.
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
    // Nobody saves up what was allowed for.
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
