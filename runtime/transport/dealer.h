// The client's end of the wire: one DEALER socket to a coordinator. The session
// of a worker, an agent and the command line each own one, on one thread; only
// Waker::Wake may be called from others. Reconnects for ever by itself.
#ifndef GAVEL_RUNTIME_TRANSPORT_DEALER_H_
#define GAVEL_RUNTIME_TRANSPORT_DEALER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"
#include "runtime/transport/curve.h"
#include "runtime/transport/link.h"
#include "runtime/transport/waker.h"

namespace gavel {

struct DealerOptions {
  // Encrypted with these keys; none: only to a loopback address (127.x.y.z,
  // [::1] or localhost).
  std::optional<CurveClient> keys;
};

class Dealer {
 public:
  // `endpoint`: "tcp://127.0.0.1:PORT" or "HOST:PORT"; INVALID_ARGUMENT for
  // anything else. PERMISSION_DENIED for an address that is not loopback when
  // there are no keys. Does not wait for the peer; link() tells of one that
  // does not accept the keys, or has not this public key.
  static absl::StatusOr<std::unique_ptr<Dealer>> Connect(
      const std::string& endpoint, const DealerOptions& options = {});
  ~Dealer();

  // How the connection stands, as of the last wait.
  const Link& link() const;
  // Waits until it is there (true) or refused, or for `timeout_s`.
  bool WaitForLink(double timeout_s);

  // True once the peer has answered the handshake; false after `timeout_s` (or
  // at a Wake). Before that, Send drops.
  bool WaitUntilConnected(double timeout_s);

  // Queues one message; never blocks. UNAVAILABLE when the peer is not
  // connected or its queue is full: the message is dropped, as on a bad line.
  absl::Status Send(const Message& message);

  // The next message, or nothing after `timeout_s` (0: don't wait, kNever: for
  // ever), at a Wake or at a signal. Frames that can't be decoded are counted
  // and skipped; one of another protocol version is FAILED_PRECONDITION.
  absl::StatusOr<std::optional<Message>> Receive(double timeout_s);

  // Makes a waiting Receive return. Thread-safe, lives as long as the Dealer.
  Waker& waker();
  uint64_t frames_dropped() const;

 private:
  struct Impl;
  explicit Dealer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether it is an endpoint of this machine alone, which needs no keys.
bool IsLoopback(const std::string& endpoint);

// INVALID_ARGUMENT for what is no endpoint, as Dealer::Connect.
absl::Status CheckEndpoint(const std::string& endpoint);
// NOT_FOUND: its host is a name that does not resolve. Waits for the name
// service, which an event loop must not.
absl::Status CheckResolves(const std::string& endpoint);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_DEALER_H_
