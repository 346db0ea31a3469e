// Tenants that speak to a coordinator with keys of their own, in messages and
// in bytes. Not thread-safe.
#ifndef GAVEL_TESTS_RELIABILITY_TENANT_H_
#define GAVEL_TESTS_RELIABILITY_TENANT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/messages.h"
#include "runtime/transport/curve.h"
#include "tests/server/fake_peers.h"
#include "zmq.hpp"

namespace gavel::testing {

// A client or a worker.
class Tenant : public FakePeer {
 public:
  Tenant(const std::string& endpoint, const CurveClient& keys)
      : FakePeer(endpoint, keys) {}
  // Sends the request with a new number and returns its answer. When none
  // comes, the returned error says so.
  template <class Reply, class Request>
  Reply Ask(Request request) {
    request.request = ++request_;
    Send(request);
    while (auto reply = Receive<Reply>(kAnswer_s)) {
      if (reply->request == request_) return *std::move(reply);
    }
    Reply none;
    none.error = "no answer came";
    return none;
  }

 private:
  static constexpr double kAnswer_s = 10;

  uint64_t request_ = 0;
};

// Speaks for a worker with the key that the worker's agent made for it,
// whatever the worker's own process does.
class WorkerVoice {
 public:
  WorkerVoice(const std::string& endpoint, const CurveClient& keys,
              const WorkerKey& worker)
      : tenant_(endpoint, keys), worker_(worker) {}
  const WorkerKey& worker() const { return worker_; }
  bool Send(const Message& message) { return tenant_.Send(message); }
  // Says hello again until it is answered, because the coordinator may not have
  // heard of the key yet.
  bool Hello(bool ready = true);
  // Nothing when no grant comes.
  std::optional<LeaseGrant> AskForLease(uint64_t epoch, bool holding);
  void set_nonce(uint64_t nonce) { nonce_ = nonce; }

 private:
  Tenant tenant_;
  WorkerKey worker_;
  uint64_t nonce_ = 0;
};

// Connections that send bytes as fast as they are taken.
class Flood {
 public:
  // `reads`: also reads the answers, which otherwise wait in the sockets.
  Flood(const std::string& endpoint, const CurveClient& keys,
        size_t connections, bool reads);
  // `frame` makes the parts of the next message.
  using Frame = std::function<std::vector<std::string>(size_t number)>;
  // Returns the number of messages that were sent.
  size_t Run(double seconds, const Frame& frame);

 private:
  bool SendNext(zmq::socket_t& socket, const std::vector<std::string>& parts);

  zmq::context_t context_;
  std::vector<zmq::socket_t> sockets_;
  const bool reads_;
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_RELIABILITY_TENANT_H_
