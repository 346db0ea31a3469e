// The parties that control.cc and queue.cc measure: a coordinator, a client of
// its protocol, and bare ZeroMQ and SQLite. Only one thread may use each.
#ifndef GAVEL_BENCH_CONTROL_PEERS_H_
#define GAVEL_BENCH_CONTROL_PEERS_H_

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "bench/program.h"
#include "coordinator/server/coordinator_server.h"
#include "core/codec.h"
#include "runtime/database/sqlite.h"
#include "zmq.hpp"

namespace gavel::bench {

inline constexpr double kPatience_s = 120;

inline double MicrosecondsSince(Clock::time_point start) {
  return SecondsSince(start) * 1e6;
}

// A coordinator on a thread of this process.
class Server {
 public:
  explicit Server(CoordinatorServerOptions options) {
    auto server = CoordinatorServer::Create(std::move(options));
    Demand(server.ok(), server.status().ToString());
    server_ = *std::move(server);
    thread_ = std::thread([this] { server_->Run().IgnoreError(); });
  }
  ~Server() {
    server_->Stop();
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  const std::string& endpoint() const { return server_->endpoint(); }

 private:
  std::unique_ptr<CoordinatorServer> server_;
  std::thread thread_;
};

// A DEALER that sends frames and waits for the answers.
class Client {
 public:
  explicit Client(const std::string& endpoint)
      : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(kPatience_s * 1000));
    socket_.connect(endpoint);
  }
  std::string RoundTrip(const std::string& frame) {
    socket_.send(zmq::buffer(frame), zmq::send_flags::none);
    zmq::message_t reply;
    Demand(socket_.recv(reply).has_value(), "no answer came");
    return reply.to_string();
  }
  void Send(const Message& message) {
    socket_.send(zmq::buffer(*EncodeMessage(message)), zmq::send_flags::none);
  }
  // Sends the message, and ignores all answers before the first T.
  template <class T>
  T Ask(const Message& message) {
    Send(message);
    while (true) {
      Message answer = Receive();
      if (auto* wanted = std::get_if<T>(&answer)) return *std::move(wanted);
    }
  }
  Message Receive() {
    zmq::message_t reply;
    Demand(socket_.recv(reply).has_value(), "no answer came");
    auto decoded = DecodeMessage(reply.to_string_view());
    Demand(decoded.ok(), decoded.status().ToString());
    return *std::move(decoded);
  }
  // Drops all messages that arrive within 200 ms.
  void Drain() {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    zmq::message_t ignored;
    while (socket_.recv(ignored, zmq::recv_flags::dontwait)) continue;
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
};

// A bare ROUTER on a thread, which answers each message with `reply`.
class Echo {
 public:
  explicit Echo(std::string reply)
      : reply_(std::move(reply)), socket_(context_, zmq::socket_type::router) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.bind("tcp://127.0.0.1:*");
    endpoint_ = socket_.get(zmq::sockopt::last_endpoint);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Echo() {
    context_.shutdown();
    thread_.join();
    socket_.close();
  }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;
  const std::string& endpoint() const { return endpoint_; }

 private:
  void Serve() {
    try {
      while (true) {
        zmq::message_t id;
        zmq::message_t frame;
        if (!socket_.recv(id) || !socket_.recv(frame)) continue;
        socket_.send(id, zmq::send_flags::sndmore);
        socket_.send(zmq::buffer(reply_), zmq::send_flags::none);
      }
    } catch (const zmq::error_t&) {  // the context is shut down
    }
  }

  std::string reply_;
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::string endpoint_;
  std::thread thread_;
};

// The least that a commit of the journal has to do: write a row to disk.
class BareJournal {
 public:
  explicit BareJournal(const std::string& path)
      : database_(SqliteDatabase::Open(path).value()) {
    for (const char* statement :
         {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
          "CREATE TABLE rows (seq INTEGER PRIMARY KEY, row BLOB)"}) {
      const absl::Status done = database_.Execute(statement);
      Demand(done.ok(), done.ToString());
    }
  }
  double TimeCommit(const std::string& row) {
    const Clock::time_point start = Clock::now();
    auto insert = database_.Prepare("INSERT INTO rows (row) VALUES (?)");
    Demand(insert.ok(), insert.status().ToString());
    insert->BindBlob(1, row);
    Demand(insert->Step().ok(), "a bare commit failed");
    return MicrosecondsSince(start);
  }

 private:
  SqliteDatabase database_;
};

// The rate of messages that arrive together, from the first to the last.
class Burst {
 public:
  void Heard() {
    const Clock::time_point now = Clock::now();
    if (count_++ == 0) first_ = now;
    last_ = now;
  }
  int count() const { return count_; }
  Clock::time_point last() const { return last_; }
  double PerSecond() const {
    const std::chrono::duration<double> span = last_ - first_;
    return (count_ - 1) / span.count();
  }

 private:
  int count_ = 0;
  Clock::time_point first_;
  Clock::time_point last_;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_CONTROL_PEERS_H_
