#include "tests/reliability/tenant.h"

#include <thread>

#include "runtime/transport/connection_guard.h"

namespace gavel::testing {

bool WorkerVoice::Hello(bool ready) {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    Send(WorkerHello{worker_, {}, 1, {}, ready});
    if (tenant_.Receive<LeaseNotice>(1).has_value()) return true;
  }
  return false;
}

std::optional<LeaseGrant> WorkerVoice::AskForLease(uint64_t epoch,
                                                   bool holding) {
  LeaseRequest request;
  request.worker = worker_;
  request.epoch = epoch;
  request.nonce = ++nonce_;
  request.holding = holding;
  Send(request);
  while (auto grant = tenant_.Receive<LeaseGrant>(1)) {
    if (grant->nonce == nonce_) return grant;
  }
  return std::nullopt;
}

Flood::Flood(const std::string& endpoint, const CurveClient& keys,
             size_t connections, bool reads)
    : reads_(reads) {
  for (size_t i = 0; i < connections; ++i) {
    zmq::socket_t& socket =
        sockets_.emplace_back(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::reconnect_ivl, 10);
    transport::SetCurveClient(socket, keys);
    socket.connect(endpoint);
  }
}

bool Flood::SendNext(zmq::socket_t& socket,
                     const std::vector<std::string>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto more =
        i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
    if (!socket.send(zmq::buffer(parts[i]), more | zmq::send_flags::dontwait)) {
      return false;
    }
  }
  return true;
}

size_t Flood::Run(double seconds, const Frame& frame) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  size_t sent = 0;
  while (std::chrono::steady_clock::now() < end) {
    const size_t before = sent;
    for (zmq::socket_t& socket : sockets_) {
      if (SendNext(socket, frame(sent))) ++sent;
      zmq::message_t ignored;
      while (reads_ && socket.recv(ignored, zmq::recv_flags::dontwait)) {
      }
    }
    if (sent == before) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return sent;
}

}  // namespace gavel::testing
