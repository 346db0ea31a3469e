// The sockets by which agents stream checkpoints to each other, apart from the
// coordinator's: frames of up to some megabytes, always encrypted. One ROUTER
// that other agents connect to, and any number of links to others.
//
// Belongs to one thread; only Waker::Wake and `may_connect` (see there) run on
// others.
#ifndef GAVEL_RUNTIME_TRANSPORT_STREAM_SOCKETS_H_
#define GAVEL_RUNTIME_TRANSPORT_STREAM_SOCKETS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files/files.h"
#include "runtime/transport/curve.h"

namespace gavel {

struct StreamSocketsOptions {
  std::string address = "127.0.0.1";  // to listen on, at a free port
  CurveKeyPair keys;                  // of both roles
  // Asked in handshakes, on another thread: whether the owner of this public
  // key may connect.
  std::function<bool(const std::string& public_key)> may_connect;
  size_t frame_bytes_max = size_t{64} << 10;
  // Queued for one peer in one direction; beyond, sends are refused.
  int queued_frames_max = 16;
};

class StreamSockets {
 public:
  // INVALID_ARGUMENT: no address. ALREADY_EXISTS, ...: of ZeroMQ, naming it.
  static absl::StatusOr<std::unique_ptr<StreamSockets>> Bind(
      StreamSocketsOptions options);
  ~StreamSockets();

  // "tcp://ADDRESS:PORT", as others reach it.
  const std::string& endpoint() const;

  // A link to another's endpoint, by a number above 0 of the caller's choice;
  // reconnects for ever. One of the same number is replaced.
  absl::Status Connect(uint64_t link, const std::string& endpoint,
                       const std::string& server_public_key);
  void Disconnect(uint64_t link);

  struct Frame {
    uint64_t link = 0;       // that it came by; 0: the ROUTER
    std::string peer;        // for Reply, on the ROUTER
    std::string public_key;  // of its sender, on the ROUTER
    std::string bytes;
  };
  // The next one, or nothing after `timeout_s`, at a Wake or at a signal.
  std::optional<Frame> Receive(double timeout_s);

  // False: not connected, gone, or its queue is full; the frame is dropped.
  bool Send(uint64_t link, std::string_view bytes);
  bool Reply(const std::string& peer, std::string_view bytes);

  Waker& waker();

 private:
  struct Impl;
  explicit StreamSockets(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_STREAM_SOCKETS_H_
