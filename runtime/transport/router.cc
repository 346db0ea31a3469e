#include "runtime/transport/router.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "core/codec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/connection_guard.h"
#include "runtime/transport/socket_options.h"

namespace gavel {

namespace {

// Connections that may be remembered at once; beyond, all are forgiven, so that
// the table does not grow.
constexpr size_t kOffendersMax = 4096;
// Of one connection, in ZeroMQ.
constexpr uint64_t kUntakenBytesMax =
    uint64_t{transport::kUnreadMessagesMax} * kFrameBytesMax +
    transport::kUntakenBytesSlack;

// What is remembered of connections that do not keep the protocol.
class Offenders {
 public:
  // True when `peer` has had its fill.
  bool Record(const std::string& peer) {
    const auto now = std::chrono::steady_clock::now();
    Offender& offender = Of(peer);
    const std::chrono::duration<double> age = now - offender.since;
    if (age.count() > Router::kOffenceWindow_s) {
      offender.since = now;
      offender.offences = 0;
    }
    return ++offender.offences > Router::kOffencesMax;
  }
  // Each true once: what a connection has left behind is still read after its
  // end.
  bool MayCut(const std::string& peer) {
    return !std::exchange(Of(peer).cut, true);
  }
  bool MayTell(const std::string& peer) {
    return !std::exchange(Of(peer).told, true);
  }

 private:
  struct Offender {
    std::chrono::steady_clock::time_point since;
    int offences = 0;  // since then
    bool cut = false;
    bool told = false;
  };
  Offender& Of(const std::string& peer) {
    const auto found = offenders_.find(peer);
    if (found != offenders_.end()) return found->second;
    if (offenders_.size() >= kOffendersMax) offenders_.clear();
    return offenders_[peer];
  }

  std::map<std::string, Offender> offenders_;
};

}  // namespace

struct Router::Impl {
  transport::Channel channel;
  bool encrypted = false;
  Offenders offenders;
  // Last: it ends while its socket is still there.
  std::unique_ptr<transport::ConnectionGuard> guard;

  void Bind(const transport::Endpoint& endpoint, RouterOptions options) {
    channel.Open(zmq::socket_type::router, endpoint);
    zmq::socket_t& socket = channel.socket;
    // Else what is sent to a peer that is gone or stalled is lost in silence.
    socket.set(zmq::sockopt::router_mandatory, true);
    // Who connects again may be back before the old connection is forgotten,
    // and would never be heard else. Nobody guesses the id of another: those of
    // Dealers are random.
    socket.set(zmq::sockopt::router_handover, true);
    encrypted = options.keys.has_value();
    const transport::GuardLimits limits = {
        options.connections_per_address_max, options.connections_per_key_max,
        options.silent_s_max, kUntakenBytesMax, options.unsent_s_max};
    guard = std::make_unique<transport::ConnectionGuard>(
        channel.context, socket, options.keys, std::move(options.may_connect),
        limits);
    socket.bind(endpoint.Text());
    channel.endpoint = socket.get(zmq::sockopt::last_endpoint);
  }

  // Queues one frame; never blocks. MANDATORY: the id is refused when the peer
  // is gone (EHOSTUNREACH) or has no room; once it is taken, the frame is too.
  absl::Status Send(const std::string& peer, std::string_view frame) {
    return transport::CatchZmq("send to a peer", [&] {
      const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
      if (channel.socket.send(zmq::buffer(peer), more) &&
          channel.socket.send(zmq::buffer(frame), zmq::send_flags::dontwait)) {
        return absl::OkStatus();
      }
      return absl::UnavailableError("the peer's queue is full; it is too slow");
    });
  }

  // Whether ZeroMQ still has the connection: it forgets it before it gives its
  // descriptor back. An empty frame says nothing to the peer.
  bool IsThere(const std::string& peer) {
    // Has ZeroMQ look at what its threads have told.
    (void)channel.socket.get(zmq::sockopt::events);
    return !absl::IsNotFound(Send(peer, ""));
  }

  void Cut(const std::string& peer, int descriptor,
           const std::string& address) {
    if (offenders.MayCut(peer) && IsThere(peer))
      guard->Cut(descriptor, address);
  }

  // Of each message that comes.
  void Note(const transport::Sender& sender, const absl::Status& decoded) {
    guard->Taken(sender.descriptor, sender.bytes, sender.public_key);
    if (decoded.ok()) return;
    if (absl::IsFailedPrecondition(decoded) && offenders.MayTell(sender.peer)) {
      Send(sender.peer, EncodeVersionRefusal()).IgnoreError();
    }
    if (offenders.Record(sender.peer)) {
      Cut(sender.peer, sender.descriptor, sender.address);
    }
  }
};

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

absl::StatusOr<std::unique_ptr<Router>> Router::Bind(
    const std::string& endpoint, RouterOptions options) {
  GAVEL_ASSIGN_OR_RETURN(const transport::Endpoint where,
                         transport::ParseEndpoint(endpoint));
  if (!where.loopback && !options.keys.has_value()) {
    return absl::PermissionDeniedError(
        StrCat("endpoint \"", endpoint,
               "\" is not a loopback address, and without keys anybody could "
               "run commands here; make them with `gavel keygen "
               "--coordinator`, or use 127.0.0.1:",
               where.port));
  }
  transport::RaiseDescriptorLimit();
  std::unique_ptr<Impl> impl;
  absl::Status status = transport::CatchZmq(StrCat("bind ", endpoint), [&] {
    impl = std::make_unique<Impl>();
    impl->Bind(where, std::move(options));
    return absl::OkStatus();
  });
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(
        StrCat("port ", where.port, " of ", where.host,
               " is taken (endpoint \"", endpoint,
               "\"); stop the coordinator that runs there, or choose "
               "another port (0: any that is free)"));
  }
  GAVEL_RETURN_IF_ERROR(status);
  return std::unique_ptr<Router>(new Router(std::move(impl)));
}

const std::string& Router::endpoint() const { return impl_->channel.endpoint; }

std::optional<Incoming> Router::Receive(double timeout_s) {
  transport::Sender sender;
  absl::StatusOr<std::optional<Message>> message = impl_->channel.Receive(
      timeout_s, &sender,
      [this](const transport::Sender& from, const absl::Status& decoded) {
        impl_->Note(from, decoded);
      });
  if (!message.ok() || !message->has_value()) return std::nullopt;
  // Without its ZAP handler ZeroMQ would let anybody in, and says so only by
  // the missing identity (the option that enforces it is not yet in its API).
  if (impl_->encrypted && sender.public_key.empty()) {
    ++impl_->channel.frames_dropped;
    return std::nullopt;
  }
  return Incoming{std::move(sender.peer), **std::move(message),
                  std::move(sender.public_key), std::move(sender.address),
                  sender.descriptor};
}

void Router::RecordOffence(const Incoming& incoming) {
  if (impl_->offenders.Record(incoming.peer)) Cut(incoming);
}

void Router::Cut(const Incoming& incoming) {
  transport::CatchZmq("cut a connection", [&] {
    impl_->Cut(incoming.peer, incoming.descriptor, incoming.address);
    return absl::OkStatus();
  }).IgnoreError();
}

void Router::MayRenew(const Incoming& incoming) {
  impl_->guard->MayRenew(incoming.descriptor);
}

absl::Status Router::Send(const std::string& peer, const Message& message) {
  GAVEL_ASSIGN_OR_RETURN(const std::string frame, EncodeMessage(message));
  return impl_->Send(peer, frame);
}

Waker& Router::waker() { return impl_->channel.waker; }
uint64_t Router::frames_dropped() const {
  return impl_->channel.frames_dropped;
}

uint64_t Router::connections_refused() const {
  return impl_->guard->connections_refused();
}

uint64_t Router::handshakes_failed() const {
  return impl_->guard->handshakes_failed();
}

uint64_t Router::connections_cut() const {
  return impl_->guard->connections_cut();
}

}  // namespace gavel
