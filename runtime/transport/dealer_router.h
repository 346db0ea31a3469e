// The two ends of the wire: a Dealer for the client, with how its connection
// stands (Link), and a Router for the coordinator.
#ifndef GAVEL_RUNTIME_TRANSPORT_DEALER_ROUTER_H_
#define GAVEL_RUNTIME_TRANSPORT_DEALER_ROUTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"
#include "runtime/files/files.h"
#include "runtime/transport/curve.h"

namespace gavel {

// How a Dealer's connection to its coordinator stands, and in words why there
// is none: the same sentences for clients, agents and workers. Values.

enum class LinkState : uint8_t {
  kUnknown,    // nothing has come of the first attempt yet
  kNobody,     // nobody listens there, or the network does not lead there
  kSilent,     // somebody listens and says nothing, or the connection broke
  kWrongKey,   // closed in each handshake, for longer than a coordinator of
               // that key takes to refuse ours
  kKeptOut,    // the same, but it proved to have the key that we have of it
  kOtherMode,  // one of both has keys, the other has none
  kRefused,    // the coordinator does not know our key
  kRevoked,    // it knows that our key was revoked
  kConnected,
};

struct Link {
  LinkState state = LinkState::kUnknown;
  bool was_connected = false;  // at some time

  bool connected() const { return state == LinkState::kConnected; }
  // Waiting does not help, but a change elsewhere.
  bool refused() const {
    return state == LinkState::kOtherMode || state == LinkState::kRefused ||
           state == LinkState::kRevoked;
  }
  // Each handshake is closed.
  bool closed() const {
    return state == LinkState::kWrongKey || state == LinkState::kKeptOut;
  }
  // The key was allowed before and is not any more: it was revoked, maybe
  // before the present coordinator was started.
  bool revoked() const {
    return state == LinkState::kRevoked ||
           (state == LinkState::kRefused && was_connected);
  }
};

// Why there is no connection to `endpoint`, and what to do. `public_key`: of
// the caller; empty: it has no keys.
std::string LinkText(const Link& link, const std::string& endpoint,
                     const std::string& public_key);

// The client's end of the wire: one DEALER socket to a coordinator. The session
// of a worker, an agent and the command line each own one, on one thread; only
// Waker::Wake may be called from others. Reconnects for ever by itself.
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

// INVALID_ARGUMENT for a text that is not an endpoint, as Dealer::Connect.
absl::Status CheckEndpoint(const std::string& endpoint);
// NOT_FOUND: its host is a name that does not resolve. Waits for the name
// service, which an event loop must not.
absl::Status CheckResolves(const std::string& endpoint);

// The coordinator's end of the wire: one ROUTER socket, many peers. Owned and
// used by one thread (the event loop); only Waker::Wake may be called from
// others. One more thread inside decides who connects. Socket options: design
// section 7.
struct RouterOptions {
  // Encrypted with these keys; none: only on a loopback address.
  std::optional<CurveKeyPair> keys;
  // With keys, required: whether the holder of this public key may connect
  // from that address. Called on a thread of the router's.
  std::function<Admission(const std::string& public_key,
                          const std::string& address)>
      may_connect;
  int connections_per_address_max = 4096;
  // With keys: so that no key takes all of an address that it shares.
  int connections_per_key_max = 256;
  // A connection that has brought nothing for so long is silent (see
  // ConnectionGuard).
  double silent_s_max = 30;
  // A peer that takes nothing of its messages for so long is cut.
  double unsent_s_max = 10;
};

struct Incoming {
  std::string peer;  // routing id: where to answer, never who it is
  Message message;
  std::string public_key = "";  // who it is: proven; empty: not encrypted
  std::string address = "";     // it comes from, without port
  int descriptor = -1;          // of its connection, for RecordOffence
};

class Router {
 public:
  // The number of malformed frames and of messages that are not its to send
  // that a connection may send within kOffenceWindow_s; then it is cut.
  static constexpr int kOffencesMax = 100;
  static constexpr double kOffenceWindow_s = 10;

  // `endpoint`: "tcp://127.0.0.1:PORT", PORT 0 for a free one.
  // PERMISSION_DENIED for an address that is not loopback when there are no
  // keys, INVALID_ARGUMENT for a text that is not an endpoint; ALREADY_EXISTS
  // when the port is taken, naming it and the remedy. Raises the process's
  // limit of open files as far as it may.
  static absl::StatusOr<std::unique_ptr<Router>> Bind(
      const std::string& endpoint, RouterOptions options = {});
  ~Router();

  // With the port that was really bound.
  const std::string& endpoint() const;

  // The next message, or nothing after `timeout_s` (0: don't wait, kNever: for
  // ever), at a Wake or at a signal. Malformed and multipart frames are dropped
  // and counted. A peer that speaks another version of the protocol gets one
  // message about that per connection. ZeroMQ disconnects a peer that sends a
  // frame of more than kFrameBytesMax, uncounted.
  std::optional<Incoming> Receive(double timeout_s);

  // Never blocks. A peer's id belongs to one connection: a peer that reconnects
  // gets its answer on the connection on which it spoke last. NOT_FOUND: that
  // peer is gone; UNAVAILABLE: its queue is full.
  absl::Status Send(const std::string& peer, const Message& message);

  // Counts a message that its sender had no right to; see kOffencesMax.
  void RecordOffence(const Incoming& incoming);
  // Ends the connection that it came by, unless that has ended: its descriptor
  // may be another's by now.
  void Cut(const Incoming& incoming);

  // The peer asks for nothing more for some seconds once this is answered. Its
  // connection may end meanwhile, because of the memory that it takes
  // (connection_guard.h), and the peer connects again by itself.
  void MayRenew(const Incoming& incoming);

  Waker& waker();
  uint64_t frames_dropped() const;
  // Handshakes refused, and connections closed for too many of one address.
  uint64_t connections_refused() const;
  // Handshakes that failed or were broken off before any key was asked for.
  uint64_t handshakes_failed() const;
  // The connections that were ended for offences, or for parts of a message
  // without an end.
  uint64_t connections_cut() const;

 private:
  struct Impl;
  explicit Router(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_DEALER_ROUTER_H_
