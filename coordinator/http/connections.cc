#include "coordinator/http/connections.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "runtime/files/stopwatch.h"

namespace gavel {
namespace {

thread_local bool refusing = false;

// Between two looks at whether others wait, or the server ends.
constexpr int kLookInterval_ms = 100;
constexpr int kLingerTurns = 4;
constexpr int kLingerTurn_ms = 50;

void AddressOf(int (*get)(int, sockaddr*, socklen_t*), int socket,
               std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (get(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
  char host[NI_MAXHOST] = {};
  char service[NI_MAXSERV] = {};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host,
                  sizeof host, service, sizeof service,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host;
  port = std::atoi(service);
}

}  // namespace

bool ConnectionPool::is_refusing() { return refusing; }

bool ConnectionPool::is_busy() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

void ConnectionPool::enqueue(std::function<void()> connection) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < waiting_max_ && !stopping_ && HaveThread()) {
      waiting_.push_back(std::move(connection));
      changed_.notify_one();
      return;
    }
  }
  refusing = true;
  connection();
  refusing = false;
}

bool ConnectionPool::HaveThread() {
  if (idle_ <= waiting_.size() && threads_.size() < threads_max_) {
    try {
      threads_.push_back(StartThread());
    } catch (const std::system_error&) {
      // A limit on processes. The threads that there are take what waits.
    }
  }
  return !threads_.empty();
}

void ConnectionPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;
    const std::function<void()> connection = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    connection();
    lock.lock();
  }
}

void ConnectionPool::shutdown() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

BoundedStream::BoundedStream(int socket, Limits limits)
    : socket_(socket), limits_(std::move(limits)), begun_(MonotonicNow()) {}

bool BoundedStream::Wait(short events, const std::function<Time()>& end) const {
  while (!limits_.is_stopping() && MonotonicNow() < end()) {
    pollfd one{socket_, events, 0};
    if (poll(&one, 1, kLookInterval_ms) > 0) return true;
  }
  return false;
}

ssize_t BoundedStream::read(char* to, size_t size) {
  if (next_ == end_) {
    const auto deadline = [this] {
      return begun_ + (limits_.is_busy() ? limits_.times.request_s_max_busy
                                         : limits_.times.request_s_max);
    };
    if (bytes_read_ >= limits_.request_bytes_max) return -1;
    if (!Wait(POLLIN, deadline)) return -1;
    const size_t left = limits_.request_bytes_max - bytes_read_;
    const ssize_t got = recv(socket_, buffer_.data(),
                             std::min(buffer_.size(), left), MSG_DONTWAIT);
    if (got <= 0) return got;
    next_ = 0;
    end_ = static_cast<size_t>(got);
    bytes_read_ += end_;
  }
  const size_t taken = std::min(size, end_ - next_);
  std::memcpy(to, buffer_.data() + next_, taken);
  next_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t BoundedStream::write(const char* from, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    const Time end = MonotonicNow() + limits_.times.stalled_s_max;
    if (!Wait(POLLOUT, [end] { return end; })) return -1;
    const ssize_t put =
        send(socket_, from + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put > 0) {
      sent += static_cast<size_t>(put);
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(size);
}

bool BoundedStream::is_readable() const {
  if (next_ < end_) return true;
  pollfd one{socket_, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

bool BoundedStream::is_writable() const {
  if (limits_.is_stopping()) return false;
  char byte = 0;
  const ssize_t got =
      recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

void BoundedStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  AddressOf(getpeername, socket_, ip, port);
}

void BoundedStream::get_local_ip_and_port(std::string& ip, int& port) const {
  AddressOf(getsockname, socket_, ip, port);
}

void BoundedStream::Linger() const {
  ::shutdown(socket_, SHUT_WR);
  std::array<char, 4096> unread;
  for (int turn = 0; turn < kLingerTurns && !limits_.is_stopping(); ++turn) {
    pollfd one{socket_, POLLIN, 0};
    if (poll(&one, 1, kLingerTurn_ms) <= 0) continue;
    if (recv(socket_, unread.data(), unread.size(), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace gavel
