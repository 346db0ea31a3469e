#include "runtime/transport/dealer.h"

#include <sys/random.h>

#include <string>
#include <utility>

#include "core/codec.h"
#include "core/text.h"
#include "runtime/transport/connection_guard.h"
#include "runtime/transport/socket_options.h"

namespace gavel {

namespace {

constexpr size_t kRoutingIdBytes = 16;

// Fresh for each Dealer, and nothing to guess: whoever connects with the id of
// another takes its place. Ids that begin with a zero byte are ZeroMQ's own.
std::string NewRoutingId() {
  std::string id(kRoutingIdBytes, '\0');
  // At most 256 bytes from an initialised pool: never short, never fails.
  [[maybe_unused]] const ssize_t got = getrandom(id.data(), id.size(), 0);
  id[0] = 'w';
  return id;
}

}  // namespace

struct Dealer::Impl {
  transport::Channel channel;

  void Connect(const transport::Endpoint& endpoint,
               const DealerOptions& options) {
    channel.Open(zmq::socket_type::dealer, endpoint);
    if (options.keys.has_value()) {
      transport::SetCurveClient(channel.socket, *options.keys);
    }
    channel.socket.set(zmq::sockopt::routing_id, NewRoutingId());
    channel.endpoint = endpoint.Text();
    channel.socket.connect(channel.endpoint);
  }
};

Dealer::Dealer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Dealer::~Dealer() = default;

absl::StatusOr<std::unique_ptr<Dealer>> Dealer::Connect(
    const std::string& endpoint, const DealerOptions& options) {
  const absl::StatusOr<transport::Endpoint> where =
      transport::ParseEndpoint(endpoint);
  if (!where.ok()) return where.status();
  if (where->port == 0) {
    return absl::InvalidArgumentError(
        StrCat("endpoint \"", endpoint,
               "\": port 0 can't be connected "
               "to; give the port that the coordinator printed"));
  }
  if (!where->loopback && !options.keys.has_value()) {
    return absl::PermissionDeniedError(
        StrCat("endpoint \"", endpoint,
               "\" is not a loopback address, and without keys nothing is "
               "sent beyond this machine; make a key with `gavel keygen` "
               "and have it allowed with `gavel user add`"));
  }
  std::unique_ptr<Impl> impl;
  absl::Status status =
      transport::CatchZmq(StrCat("connect to ", endpoint), [&] {
        impl = std::make_unique<Impl>();
        impl->Connect(*where, options);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return std::unique_ptr<Dealer>(new Dealer(std::move(impl)));
}

bool Dealer::WaitUntilConnected(double timeout_s) {
  bool connected = false;
  // With IMMEDIATE on, there is room to send only once the peer is there.
  transport::CatchZmq("wait", [&] {
    connected = transport::WaitFor(impl_->channel.socket, ZMQ_POLLOUT,
                                   impl_->channel.waker,
                                   transport::DeadlineAfter(timeout_s));
    return absl::OkStatus();
  }).IgnoreError();
  return connected;
}

absl::Status Dealer::Send(const Message& message) {
  const absl::StatusOr<std::string> frame = EncodeMessage(message);
  if (!frame.ok()) return frame.status();
  return transport::CatchZmq("send", [&] {
    if (impl_->channel.socket.send(zmq::buffer(*frame),
                                   zmq::send_flags::dontwait)) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(
        StrCat("no connection to the coordinator at ", impl_->channel.endpoint,
               " (or its queue is full); is it running?"));
  });
}

absl::StatusOr<std::optional<Message>> Dealer::Receive(double timeout_s) {
  return impl_->channel.Receive(timeout_s, nullptr, {});
}

bool IsLoopback(const std::string& endpoint) {
  const absl::StatusOr<transport::Endpoint> parsed =
      transport::ParseEndpoint(endpoint);
  return parsed.ok() && parsed->loopback;
}

Waker& Dealer::waker() { return impl_->channel.waker; }
uint64_t Dealer::frames_dropped() const {
  return impl_->channel.frames_dropped;
}

}  // namespace gavel
