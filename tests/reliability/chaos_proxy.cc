#include "tests/reliability/chaos_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/text.h"

namespace gavel::testing {
namespace {

constexpr int kTurn_ms = 5;
constexpr size_t kPieceBytesMax = 4096;
constexpr size_t kHeldBytesMax = 64 * 1024;

void Demand(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::exit(1);
}

sockaddr_in AddressOf(const std::string& address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<uint16_t>(port));
  Demand(inet_pton(AF_INET, address.c_str(), &result.sin_addr) == 1, "address");
  return result;
}

std::chrono::nanoseconds Nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

}  // namespace

ChaosProxy::ChaosProxy(const std::string& target_address, int target_port,
                       uint64_t seed, const std::string& listen_address,
                       int listen_port)
    : target_address_(target_address),
      target_port_(target_port),
      random_(seed) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  Demand(listener_ >= 0, "socket");
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = AddressOf(listen_address, listen_port);
  socklen_t size = sizeof address;
  Demand(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0,
         "bind");
  Demand(listen(listener_, SOMAXCONN) == 0, "listen");
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

ChaosProxy::~ChaosProxy() {
  stopping_ = true;
  thread_.join();
  for (Connection& connection : open_) Reset(connection);
  close(listener_);
}

std::string ChaosProxy::endpoint() const {
  return StrCat("tcp://127.0.0.1:", port_);
}

void ChaosProxy::Set(const Chaos& chaos) {
  const std::lock_guard lock(mutex_);
  chaos_ = chaos;
}

bool ChaosProxy::Happens(double per_s, double span_s) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < per_s * span_s;
}

void ChaosProxy::Serve() {
  Clock::time_point last = Clock::now();
  while (!stopping_) {
    std::vector<pollfd> items = {{listener_, POLLIN, 0}};
    for (const Connection& connection : open_) {
      for (const Way* way : {&connection.up, &connection.down}) {
        const bool takes = !connection.silent && way->bytes.empty();
        items.push_back({way->from, static_cast<short>(takes ? POLLIN : 0), 0});
      }
    }
    poll(items.data(), items.size(), kTurn_ms);
    Accept();
    Chaos chaos;
    {
      const std::lock_guard lock(mutex_);
      chaos = chaos_;
    }
    const bool cut_all = cut_all_.exchange(false);
    const Clock::time_point now = Clock::now();
    const double span_s = std::chrono::duration<double>(now - last).count();
    last = now;
    for (auto it = open_.begin(); it != open_.end();) {
      if (!cut_all && Turn(*it, chaos, span_s)) {
        ++it;
        continue;
      }
      Reset(*it);
      it = open_.erase(it);
    }
  }
}

void ChaosProxy::Accept() {
  const int near =
      accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (near < 0) return;
  const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in target = AddressOf(target_address_, target_port_);
  // On this machine a connection succeeds or is refused at once.
  if (connect(far, reinterpret_cast<const sockaddr*>(&target), sizeof target) !=
      0) {
    close(near);
    close(far);
    return;
  }
  const int on = 1;
  for (const int end : {near, far}) {
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  fcntl(far, F_SETFL, O_NONBLOCK);
  ++connections_;
  open_.push_back({.up = {near, far}, .down = {far, near}});
}

bool ChaosProxy::Turn(Connection& connection, const Chaos& chaos,
                      double span_s) {
  const Clock::time_point now = Clock::now();
  if (now >= connection.reset_at) return false;
  if (connection.silent) return true;
  if (Happens(chaos.silences_per_s, span_s)) {
    ++silences_;
    connection.silent = true;
    connection.reset_at = now + Nanoseconds(chaos.silence_s);
    return true;
  }
  if (Happens(chaos.cuts_per_s, span_s)) {
    ++cuts_;
    // Half of the bytes on their way still arrive, so a frame ends in its
    // middle.
    for (Way* way : {&connection.up, &connection.down}) {
      Take(*way, chaos, now);
      way->bytes.resize(way->bytes.size() / 2);
      way->not_before = now;
      Pass(*way, Chaos{}, now);
    }
    return false;
  }
  for (Way* way : {&connection.up, &connection.down}) {
    if (!Take(*way, chaos, now) || !Pass(*way, chaos, now)) return false;
  }
  return true;
}

bool ChaosProxy::Take(Way& way, const Chaos& chaos, Clock::time_point now) {
  if (!way.bytes.empty()) return true;
  std::array<char, kHeldBytesMax> buffer{};
  const ssize_t got = read(way.from, buffer.data(), buffer.size());
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  way.bytes.assign(buffer.data(), static_cast<size_t>(got));
  const double delay_s =
      std::uniform_real_distribution<double>(0, 1)(random_) * chaos.delay_s_max;
  way.not_before = now + Nanoseconds(delay_s);
  return true;
}

bool ChaosProxy::Pass(Way& way, const Chaos& chaos, Clock::time_point now) {
  while (!way.bytes.empty() && now >= way.not_before) {
    const size_t size = std::min(way.bytes.size(), kPieceBytesMax);
    const size_t piece =
        chaos.bytes_per_s > 0
            ? std::min<size_t>(size,
                               1 + static_cast<size_t>(chaos.bytes_per_s / 100))
            : size;
    const ssize_t put = send(way.to, way.bytes.data(), piece, MSG_NOSIGNAL);
    if (put < 0) return errno == EAGAIN || errno == EINTR;
    way.bytes.erase(0, static_cast<size_t>(put));
    if (chaos.bytes_per_s > 0) {
      way.not_before =
          now + Nanoseconds(static_cast<double>(put) / chaos.bytes_per_s);
    }
  }
  return true;
}

// Ends the connection with a RST, as a router that has forgotten it would.
void ChaosProxy::Reset(Connection& connection) {
  const linger at_once{1, 0};
  for (const int end : {connection.up.from, connection.up.to}) {
    setsockopt(end, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(end);
  }
}

}  // namespace gavel::testing
