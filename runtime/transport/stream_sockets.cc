#include "runtime/transport/stream_sockets.h"

#include <map>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/text.h"
#include "runtime/transport/connection_guard.h"
#include "runtime/transport/socket_options.h"

namespace gavel {
namespace {

// Short, so that a broken connection is noticed soon. Data that was on its way
// is then requested again on the next connection.
constexpr int kHeartbeatInterval_ms = 2'000;
constexpr int kHeartbeatTimeout_ms = 6'000;
constexpr int kReconnectInterval_ms_min = 100;
constexpr int kReconnectInterval_ms_max = 2'000;
constexpr int kConnectionsPerAddressMax = 64;
constexpr double kSilent_s_max = 30;

}  // namespace

struct StreamSockets::Impl {
  explicit Impl(StreamSocketsOptions given) : options(std::move(given)) {}

  void SetOptions(zmq::socket_t& socket, bool ipv6) const {
    transport::SetSocketOptions(
        socket,
        {options.queued_frames_max,
         static_cast<int64_t>(options.frame_bytes_max),
         kReconnectInterval_ms_min, kReconnectInterval_ms_max},
        ipv6);
  }

  void Bind(const transport::Endpoint& where) {
    router = zmq::socket_t(context, zmq::socket_type::router);
    SetOptions(router, where.ipv6);
    transport::KeepAlive(router);
    router.set(zmq::sockopt::router_mandatory, true);
    router.set(zmq::sockopt::router_handover, false);
    const transport::GuardLimits limits = {
        kConnectionsPerAddressMax, kConnectionsPerAddressMax, kSilent_s_max,
        static_cast<uint64_t>(options.queued_frames_max) *
                options.frame_bytes_max +
            transport::kUntakenBytesSlack};
    guard = std::make_unique<transport::ConnectionGuard>(
        context, router, options.keys,
        [may_connect = options.may_connect](const std::string& key,
                                            const std::string&) {
          return may_connect(key) ? Admission::kAllowed : Admission::kNotYet;
        },
        limits);
    router.bind(where.Text());
    endpoint = router.get(zmq::sockopt::last_endpoint);
  }

  // A frame that is here already. Frames of several parts are nobody's of ours.
  std::optional<Frame> Take() {
    zmq::message_t part;
    Frame frame;
    if (router.recv(part, zmq::recv_flags::dontwait)) {
      frame.peer = part.to_string();
      size_t bytes = 0;
      while (part.more() && router.recv(part, zmq::recv_flags::dontwait)) {
        frame.bytes.assign(part.data<char>(), part.size());
        bytes += part.size();
      }
      guard->Taken(zmq_msg_get(part.handle(), ZMQ_SRCFD), bytes);
      const char* const key = zmq_msg_gets(part.handle(), "User-Id");
      frame.public_key = key == nullptr ? "" : key;
      return frame;
    }
    for (int pass = 0; pass < 2; ++pass) {
      for (auto& [link, socket] : links) {
        if ((link > turn) != (pass == 0)) continue;
        if (!socket.recv(part, zmq::recv_flags::dontwait)) continue;
        frame.link = link;
        frame.bytes.assign(part.data<char>(), part.size());
        while (part.more() && socket.recv(part, zmq::recv_flags::dontwait)) {
        }
        turn = link;
        return frame;
      }
    }
    return std::nullopt;
  }

  bool Wait(const transport::Deadline& deadline) {
    std::vector<zmq::pollitem_t> items = {{},
                                          {router.handle(), 0, ZMQ_POLLIN, 0}};
    for (auto& [link, socket] : links) {
      items.push_back({socket.handle(), 0, ZMQ_POLLIN, 0});
    }
    return transport::WaitForAny(items, waker, deadline);
  }

  StreamSocketsOptions options;
  Waker waker;
  zmq::context_t context;
  zmq::socket_t router;
  std::string endpoint;
  std::map<uint64_t, zmq::socket_t> links;
  uint64_t turn = 0;  // the link that is looked at first, so that none starves
  // Last: it ends while its socket is still there.
  std::unique_ptr<transport::ConnectionGuard> guard;
};

StreamSockets::StreamSockets(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
StreamSockets::~StreamSockets() = default;

absl::StatusOr<std::unique_ptr<StreamSockets>> StreamSockets::Bind(
    StreamSocketsOptions options) {
  const bool ipv6 = options.address.find(':') != std::string::npos;
  GAVEL_ASSIGN_OR_RETURN(
      const transport::Endpoint where,
      transport::ParseEndpoint(ipv6 ? StrCat("[", options.address, "]:0")
                                    : StrCat(options.address, ":0")));
  auto impl = std::make_unique<Impl>(std::move(options));
  GAVEL_RETURN_IF_ERROR(transport::CatchZmq(
      StrCat("listen for streams on ", impl->options.address), [&] {
        impl->Bind(where);
        return absl::OkStatus();
      }));
  return std::unique_ptr<StreamSockets>(new StreamSockets(std::move(impl)));
}

const std::string& StreamSockets::endpoint() const { return impl_->endpoint; }
Waker& StreamSockets::waker() { return impl_->waker; }

absl::Status StreamSockets::Connect(uint64_t link, const std::string& endpoint,
                                    const std::string& server_public_key) {
  GAVEL_ASSIGN_OR_RETURN(const transport::Endpoint where,
                         transport::ParseEndpoint(endpoint));
  if (!IsCurveKey(server_public_key)) {
    return absl::InvalidArgumentError(
        StrCat("stream from ", endpoint, ": its public key is none"));
  }
  Disconnect(link);
  return transport::CatchZmq(StrCat("stream from ", endpoint), [&] {
    zmq::socket_t socket(impl_->context, zmq::socket_type::dealer);
    impl_->SetOptions(socket, where.ipv6);
    transport::SetCurveClient(socket, {impl_->options.keys, server_public_key});
    transport::SetHeartbeats(socket, kHeartbeatInterval_ms,
                             kHeartbeatTimeout_ms);
    socket.connect(where.Text());
    impl_->links.emplace(link, std::move(socket));
    return absl::OkStatus();
  });
}

void StreamSockets::Disconnect(uint64_t link) { impl_->links.erase(link); }

std::optional<StreamSockets::Frame> StreamSockets::Receive(double timeout_s) {
  const transport::Deadline deadline = transport::DeadlineAfter(timeout_s);
  std::optional<Frame> frame;
  // Its errors are those of a closing context: there is nothing to receive.
  transport::CatchZmq("receive", [&] {
    while (!(frame = impl_->Take()) && impl_->Wait(deadline)) {
    }
    return absl::OkStatus();
  }).IgnoreError();
  return frame;
}

bool StreamSockets::Send(uint64_t link, std::string_view bytes) {
  const auto found = impl_->links.find(link);
  if (found == impl_->links.end()) return false;
  bool sent = false;
  transport::CatchZmq("send", [&] {
    sent = found->second
               .send(zmq::buffer(bytes.data(), bytes.size()),
                     zmq::send_flags::dontwait)
               .has_value();
    return absl::OkStatus();
  }).IgnoreError();
  return sent;
}

bool StreamSockets::Reply(const std::string& peer, std::string_view bytes) {
  bool sent = false;
  transport::CatchZmq("send", [&] {
    const auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    if (!impl_->router.send(zmq::buffer(peer), more)) return absl::OkStatus();
    impl_->router.send(zmq::buffer(bytes.data(), bytes.size()),
                       zmq::send_flags::dontwait);
    sent = true;
    return absl::OkStatus();
  }).IgnoreError();
  return sent;
}

}  // namespace gavel
