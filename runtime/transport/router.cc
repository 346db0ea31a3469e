#include "runtime/transport/router.h"

#include <utility>

#include "core/codec.h"
#include "core/text.h"
#include "runtime/transport/socket_options.h"

namespace gavel {

struct Router::Impl {
  transport::Channel channel;

  void Bind(const transport::Endpoint& endpoint) {
    channel.Open(zmq::socket_type::router, endpoint);
    zmq::socket_t& socket = channel.socket;
    // Else what is sent to a peer that is gone or stalled is lost in silence.
    socket.set(zmq::sockopt::router_mandatory, true);
    // A stranger that guesses a routing id must not take over its connection.
    socket.set(zmq::sockopt::router_handover, false);
    socket.bind(endpoint.Text());
    channel.endpoint = socket.get(zmq::sockopt::last_endpoint);
  }
};

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

absl::StatusOr<std::unique_ptr<Router>> Router::Bind(
    const std::string& endpoint) {
  const absl::StatusOr<transport::Endpoint> where =
      transport::ParseEndpoint(endpoint);
  if (!where.ok()) return where.status();
  if (!where->loopback) {
    return absl::PermissionDeniedError(
        StrCat("endpoint \"", endpoint,
               "\" is not a loopback address, and "
               "connections are not encrypted yet; use 127.0.0.1:",
               where->port));
  }
  transport::RaiseDescriptorLimit();
  std::unique_ptr<Impl> impl;
  absl::Status status = transport::CatchZmq(StrCat("bind ", endpoint), [&] {
    impl = std::make_unique<Impl>();
    impl->Bind(*where);
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
  std::string peer;
  absl::StatusOr<std::optional<Message>> message =
      impl_->channel.Receive(timeout_s, &peer);
  if (!message.ok() || !message->has_value()) return std::nullopt;
  return Incoming{std::move(peer), **std::move(message)};
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

}  // namespace gavel
