// Connections of the HTTP server: their threads (ConnectionPool), and a socket
// with limits on bytes and time (BoundedStream).
#ifndef GAVEL_COORDINATOR_HTTP_CONNECTIONS_H_
#define GAVEL_COORDINATOR_HTTP_CONNECTIONS_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/http/http_server.h"
#include "core/units.h"
#include "httplib.h"

namespace gavel {

// Runs each connection on a thread, started when it is first needed. A
// connection beyond the limit, or for which the machine gives no thread, is run
// by the caller with is_refusing() true, and must only be refused.
class ConnectionPool : public httplib::TaskQueue {
 public:
  ConnectionPool(size_t threads_max, size_t waiting_max)
      : threads_max_(threads_max), waiting_max_(waiting_max) {}

  void enqueue(std::function<void()> connection) override;
  // Waits for all connections, those that wait included.
  void shutdown() override;

  // Whether the calling thread runs a connection that is to be refused.
  static bool is_refusing();
  // Whether connections wait for a thread.
  bool is_busy() const;

 protected:
  // Throws std::system_error if the machine gives no thread.
  virtual std::thread StartThread() {
    return std::thread([this] { Run(); });
  }

 private:
  void Run();
  // Starts a thread if all are busy. False: there is none at all.
  bool HaveThread();

  const size_t threads_max_;
  const size_t waiting_max_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

// One request and its answer on a socket. httplib waits anew for each byte, so
// that a slow client would hold a thread for as long as it likes: here all of a
// request has one deadline and one allowance of bytes. Not thread-safe.
class BoundedStream : public httplib::Stream {
 public:
  struct Limits {
    HttpTimes times;
    size_t request_bytes_max = HttpServer::kRequestBytesMax;
    std::function<bool()> is_busy;      // others wait
    std::function<bool()> is_stopping;  // the server ends
  };
  // Borrows the socket.
  BoundedStream(int socket, Limits limits);

  // Negative: the request is too long or too late, or the peer is gone.
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  bool is_readable() const override;
  // False: the peer has closed its end, or the server ends.
  bool is_writable() const override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

  // Reads on for a moment, so that the peer gets the answer to a request that
  // was not read to its end.
  void Linger() const;

 private:
  // Waits for the event until `end`; false: it has passed, or the server ends.
  bool Wait(short events, const std::function<Time()>& end) const;

  const int socket_;
  const Limits limits_;
  const Time begun_;
  size_t bytes_read_ = 0;
  std::array<char, 4096> buffer_;
  size_t next_ = 0;  // in the buffer
  size_t end_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_HTTP_CONNECTIONS_H_
