#include "runtime/transport/router.h"

#include <chrono>
#include <map>
#include <utility>

#include "core/codec.h"
#include "core/text.h"
#include "runtime/transport/connection_guard.h"
#include "runtime/transport/socket_options.h"

namespace gavel {

namespace {

// Connections that may have offences at once; beyond, all are forgiven, so that
// the table does not grow.
constexpr size_t kOffendersMax = 4096;

// Counts each connection's offences within a window of time.
class Offences {
 public:
  // True when `peer` has had its fill.
  bool Add(const std::string& peer) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> age = now - since_;
    if (age.count() > Router::kOffenceWindow_s ||
        counts_.size() >= kOffendersMax) {
      counts_.clear();
      since_ = now;
    }
    return ++counts_[peer] > Router::kOffencesMax;
  }

 private:
  std::chrono::steady_clock::time_point since_;
  std::map<std::string, int> counts_;
};

}  // namespace

struct Router::Impl {
  transport::Channel channel;
  bool encrypted = false;
  Offences offences;
  // Last: it ends while its socket is still there.
  std::unique_ptr<transport::ConnectionGuard> guard;

  void Bind(const transport::Endpoint& endpoint, RouterOptions options) {
    channel.Open(zmq::socket_type::router, endpoint);
    zmq::socket_t& socket = channel.socket;
    // Else what is sent to a peer that is gone or stalled is lost in silence.
    socket.set(zmq::sockopt::router_mandatory, true);
    // A stranger that guesses a routing id must not take over its connection.
    socket.set(zmq::sockopt::router_handover, false);
    encrypted = options.keys.has_value();
    guard = std::make_unique<transport::ConnectionGuard>(
        channel.context, socket, options.keys, std::move(options.may_connect),
        options.connections_per_address_max);
    socket.bind(endpoint.Text());
    channel.endpoint = socket.get(zmq::sockopt::last_endpoint);
  }
};

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

absl::StatusOr<std::unique_ptr<Router>> Router::Bind(
    const std::string& endpoint, RouterOptions options) {
  const absl::StatusOr<transport::Endpoint> where =
      transport::ParseEndpoint(endpoint);
  if (!where.ok()) return where.status();
  if (!where->loopback && !options.keys.has_value()) {
    return absl::PermissionDeniedError(
        StrCat("endpoint \"", endpoint,
               "\" is not a loopback address, and without keys anybody could "
               "run commands here; make them with `gavel keygen "
               "--coordinator`, or use 127.0.0.1:",
               where->port));
  }
  transport::RaiseDescriptorLimit();
  std::unique_ptr<Impl> impl;
  absl::Status status = transport::CatchZmq(StrCat("bind ", endpoint), [&] {
    impl = std::make_unique<Impl>();
    impl->Bind(*where, std::move(options));
    return absl::OkStatus();
  });
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(
        StrCat("port ", where->port, " of ", where->host,
               " is taken (endpoint \"", endpoint,
               "\"); stop the coordinator that runs there, or choose "
               "another port (0: any that is free)"));
  }
  if (!status.ok()) return status;
  return std::unique_ptr<Router>(new Router(std::move(impl)));
}

const std::string& Router::endpoint() const { return impl_->channel.endpoint; }

std::optional<Incoming> Router::Receive(double timeout_s) {
  transport::Sender sender;
  absl::StatusOr<std::optional<Message>> message = impl_->channel.Receive(
      timeout_s, &sender, [this](const transport::Sender& dropped) {
        if (impl_->offences.Add(dropped.peer)) {
          transport::CutConnection(dropped.descriptor, dropped.address);
        }
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

void Router::Offend(const Incoming& incoming) {
  if (impl_->offences.Add(incoming.peer)) Cut(incoming);
}

void Router::Cut(const Incoming& incoming) {
  transport::CutConnection(incoming.descriptor, incoming.address);
}

absl::Status Router::Send(const std::string& peer, const Message& message) {
  const absl::StatusOr<std::string> frame = EncodeMessage(message);
  if (!frame.ok()) return frame.status();
  return transport::CatchZmq("send to a peer", [&] {
    const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    // MANDATORY: the id is refused when the peer is gone (EHOSTUNREACH) or has
    // no room; once it is taken, the frame is too.
    if (impl_->channel.socket.send(zmq::buffer(peer), more) &&
        impl_->channel.socket.send(zmq::buffer(*frame),
                                   zmq::send_flags::dontwait)) {
      return absl::OkStatus();
    }
    return absl::UnavailableError("the peer's queue is full; it is too slow");
  });
}

Waker& Router::waker() { return impl_->channel.waker; }
uint64_t Router::frames_dropped() const {
  return impl_->channel.frames_dropped;
}

uint64_t Router::connections_refused() const {
  return impl_->guard->connections_refused();
}

}  // namespace gavel
