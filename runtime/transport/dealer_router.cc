#include "runtime/transport/dealer_router.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/random.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/codec.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/files/files.h"
#include "runtime/transport/connection_guard.h"
#include "runtime/transport/socket_options.h"

namespace gavel {

std::string LinkText(const Link& link, const std::string& endpoint,
                     const std::string& public_key) {
  if (link.revoked()) {
    return StrCat("key revoked: the coordinator at ", endpoint,
                  " does not allow the key ", public_key,
                  " any more; ask an operator, who can allow it, or another "
                  "one, with `gavel user add`");
  }
  const bool closed =
      link.state == LinkState::kWrongKey || link.state == LinkState::kOtherMode;
  if (closed && public_key.empty()) {
    return StrCat("keys wanted: what listens at ", endpoint,
                  " talks to nobody without a key; name yours with --key, make "
                  "one with `gavel keygen`, or correct the address");
  }
  switch (link.state) {
    case LinkState::kRefused:
    case LinkState::kRevoked:
      return StrCat("key refused: the coordinator at ", endpoint,
                    " does not know the key ", public_key,
                    "; an operator sees with `gavel user list` there who is "
                    "allowed, and allows it with `gavel user add`");
    case LinkState::kWrongKey:
      return StrCat("wrong coordinator key: what listens at ", endpoint,
                    " does not have the public key that is given here for it; "
                    "compare with its coordinator.pub, and name that with "
                    "--coordinator-key, or correct the address");
    case LinkState::kKeptOut:
      return StrCat("kept out: the coordinator at ", endpoint,
                    " closes each connection of the key ", public_key,
                    " once it has seen the key: it has as many of this key, or "
                    "from this address, as it takes (end programs here that "
                    "keep theirs open), or it has not yet heard whose the key "
                    "is (then it takes a minute at most)");
    case LinkState::kOtherMode:
      return StrCat("no keys there: what listens at ", endpoint,
                    " has no keys, and nothing is sent to it unencrypted; "
                    "leave --key out, or correct the address");
    case LinkState::kSilent:
      return StrCat("no coordinator answers at ", endpoint,
                    ": it is connected, or was, and silent; is the "
                    "coordinator stopped, or something else there?");
    case LinkState::kUnknown:
    case LinkState::kNobody:
    case LinkState::kConnected:
      break;
  }
  return StrCat("no coordinator answers at ", endpoint,
                ": nobody listens there; start one with `gavel coordinator`, "
                "or correct the address (--coordinator, GAVEL_COORDINATOR)");
}

namespace {

constexpr size_t kRoutingIdBytes = 16;
constexpr char kLinkEvents[] = "inproc://gavel.link";
constexpr int kEventsWatched =
    ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |
    ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
    ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
// After a refusal that ZeroMQ takes for the last word.
constexpr double kConnectAgain_s = 1;
// A coordinator also closes the first handshakes of a key that it does not know
// yet, and refuses that key explicitly a second after the first one. A
// coordinator that still closes them after this long has another key, or does
// not admit us.
constexpr std::chrono::seconds kClosedAfter(2);
// The size of ZMTP's greeting. Only the owner of the coordinator key that
// this client was given can write the rest of CURVE's handshake. The kernel
// counts the end of a connection as a byte, too.
constexpr uint64_t kGreetingBytes = 64;

// Each Dealer has a new, unguessable id: a peer that connects with the id of
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
  zmq::socket_t events;  // of the connection
  Link link;
  bool shaking = false;            // connected, and the handshake has not ended
  transport::Deadline connect_at;  // again, where ZeroMQ does not
  // The first of the handshakes that were closed without a word, and followed
  // by nothing else; and whether any went on behind the greeting.
  transport::Deadline closed_since;
  bool welcomed = false;
  // A copy of the descriptor of the connection whose handshake runs, to learn
  // how much came by it once ZeroMQ has closed its own.
  Descriptor handshake;

  ~Impl() {
    if (events) zmq_socket_monitor(channel.socket.handle(), nullptr, 0);
  }

  void Watch() {
    if (zmq_socket_monitor(channel.socket.handle(), kLinkEvents,
                           kEventsWatched) != 0) {
      throw zmq::error_t();
    }
    events = zmq::socket_t(channel.context, zmq::socket_type::pair);
    events.set(zmq::sockopt::linger, 0);
    // ZeroMQ waits for room to tell, and must not.
    events.set(zmq::sockopt::rcvhwm, 0);
    events.connect(kLinkEvents);
    channel.wait = [this](const transport::Deadline& deadline) {
      return Wait(ZMQ_POLLIN, deadline, [] { return false; });
    };
  }

  // Until the socket is ready (true) or `done`; false at the deadline, at a
  // Wake or at a signal.
  template <class Done>
  bool Wait(short ready, const transport::Deadline& deadline,
            const Done& done) {
    while (true) {
      TakeEvents();
      if (done()) return false;
      const auto now = std::chrono::steady_clock::now();
      if (connect_at && now >= *connect_at) ConnectAgain();
      const bool sooner = connect_at && (!deadline || *connect_at < *deadline);
      std::array<zmq::pollitem_t, 3> items = {
          {{},
           {channel.socket.handle(), 0, ready, 0},
           {events.handle(), 0, ZMQ_POLLIN, 0}}};
      const bool any = transport::WaitForAny(items, channel.waker,
                                             sooner ? connect_at : deadline);
      if ((items[1].revents & ready) != 0) return true;
      const bool due =
          sooner && std::chrono::steady_clock::now() >= *connect_at;
      const bool woken = items[0].revents != 0;
      if (!any && (woken || !due)) return false;
    }
  }

  // With IMMEDIATE on, there is room to send only once the peer is there.
  template <class Done>
  bool WaitToSend(double timeout_s, const Done& done) {
    bool connected = false;
    transport::CatchZmq("wait", [&] {
      connected = Wait(ZMQ_POLLOUT, transport::DeadlineAfter(timeout_s), done);
      return absl::OkStatus();
    }).IgnoreError();
    return connected;
  }

  void ConnectAgain() {
    connect_at.reset();
    zmq_disconnect(channel.socket.handle(), channel.endpoint.c_str());
    channel.socket.connect(channel.endpoint);
  }

  void TakeEvents() {
    while (const auto told = transport::TakeSocketEvent(events)) {
      Take(told->event, told->value);
    }
  }

  void NoteClosedHandshake() {
    const std::optional<uint64_t> heard =
        transport::BytesReceived(handshake.get());
    handshake.Close();
    if (heard.has_value() && *heard < kGreetingBytes) {
      // Also one that is stopped, whose kernel still takes connections.
      link.state = LinkState::kSilent;
      closed_since.reset();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!closed_since) {
      closed_since = now;
      welcomed = false;
    }
    welcomed |= heard.has_value() && *heard > kGreetingBytes + 1;
    if (now - *closed_since >= kClosedAfter) {
      link.state = welcomed ? LinkState::kKeptOut : LinkState::kWrongKey;
    } else if (link.state < LinkState::kSilent) {
      link.state = LinkState::kSilent;
    }
  }

  void Take(uint16_t event, int32_t value) {
    const bool was_shaking = shaking;
    shaking = event == ZMQ_EVENT_CONNECTED;
    const bool says_nothing = event == ZMQ_EVENT_CONNECTED ||
                              event == ZMQ_EVENT_DISCONNECTED ||
                              event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
    if (!says_nothing) closed_since.reset();
    if (shaking) {
      handshake = Descriptor(fcntl(value, F_DUPFD_CLOEXEC, 0));
    } else if (!says_nothing || !was_shaking) {
      handshake.Close();
    }
    switch (event) {
      case ZMQ_EVENT_CONNECTED:
        if (link.state < LinkState::kSilent) link.state = LinkState::kSilent;
        return;
      case ZMQ_EVENT_CLOSED:
        link.state = LinkState::kNobody;
        return;
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        link = {LinkState::kConnected, true};
        return;
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        NoteClosedHandshake();
        return;
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        link.state = value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
                         ? LinkState::kOtherMode
                         : LinkState::kWrongKey;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        link.state = std::to_string(value) == transport::kRevokedStatus
                         ? LinkState::kRevoked
                         : LinkState::kRefused;
        break;
      case ZMQ_EVENT_DISCONNECTED:
        if (link.connected()) link.state = LinkState::kSilent;
        if (was_shaking) NoteClosedHandshake();
        return;
      default:
        return;
    }
    connect_at = transport::DeadlineAfter(kConnectAgain_s);
  }

  void Connect(const transport::Endpoint& endpoint,
               const DealerOptions& options) {
    channel.Open(zmq::socket_type::dealer, endpoint);
    if (options.keys.has_value()) {
      transport::SetCurveClient(channel.socket, *options.keys);
    }
    channel.socket.set(zmq::sockopt::routing_id, NewRoutingId());
    channel.endpoint = endpoint.Text();
    Watch();
    channel.socket.connect(channel.endpoint);
  }
};

Dealer::Dealer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Dealer::~Dealer() = default;

absl::StatusOr<std::unique_ptr<Dealer>> Dealer::Connect(
    const std::string& endpoint, const DealerOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const transport::Endpoint where,
                         transport::ParseEndpoint(endpoint));
  if (where.port == 0) {
    return absl::InvalidArgumentError(
        StrCat("endpoint \"", endpoint,
               "\": port 0 can't be connected "
               "to; give the port that the coordinator printed"));
  }
  if (!where.loopback && !options.keys.has_value()) {
    return absl::PermissionDeniedError(
        StrCat("endpoint \"", endpoint,
               "\" is not a loopback address, and without keys nothing is "
               "sent beyond this machine; make a key with `gavel keygen` "
               "and have it allowed with `gavel user add`"));
  }
  std::unique_ptr<Impl> impl;
  GAVEL_RETURN_IF_ERROR(
      transport::CatchZmq(StrCat("connect to ", endpoint), [&] {
        impl = std::make_unique<Impl>();
        impl->Connect(where, options);
        return absl::OkStatus();
      }));
  return std::unique_ptr<Dealer>(new Dealer(std::move(impl)));
}

bool Dealer::WaitUntilConnected(double timeout_s) {
  return impl_->WaitToSend(timeout_s, [] { return false; });
}

bool Dealer::WaitForLink(double timeout_s) {
  return impl_->WaitToSend(timeout_s, [this] { return impl_->link.refused(); });
}

const Link& Dealer::link() const { return impl_->link; }

absl::Status Dealer::Send(const Message& message) {
  GAVEL_ASSIGN_OR_RETURN(const std::string frame, EncodeMessage(message));
  return transport::CatchZmq("send", [&] {
    if (impl_->channel.socket.send(zmq::buffer(frame),
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

absl::Status CheckEndpoint(const std::string& endpoint) {
  return transport::ParseEndpoint(endpoint).status();
}

absl::Status CheckResolves(const std::string& endpoint) {
  GAVEL_ASSIGN_OR_RETURN(const transport::Endpoint where,
                         transport::ParseEndpoint(endpoint));
  addrinfo* found = nullptr;
  const int error = getaddrinfo(where.host.c_str(), nullptr, nullptr, &found);
  if (error == 0) {
    freeaddrinfo(found);
    return absl::OkStatus();
  }
  return absl::NotFoundError(StrCat(
      "the name ", where.host, " does not resolve (", gai_strerror(error),
      "); correct the address (--coordinator, GAVEL_COORDINATOR)"));
}

Waker& Dealer::waker() { return impl_->channel.waker; }
uint64_t Dealer::frames_dropped() const {
  return impl_->channel.frames_dropped;
}

namespace {

// Connections that may be remembered at once; beyond, all are forgiven, so that
// the table does not grow.
constexpr size_t kOffendersMax = 4096;
// The limit of one connection, in ZeroMQ.
constexpr uint64_t kUntakenBytesMax =
    uint64_t{transport::kUnreadMessagesMax} * kFrameBytesMax +
    transport::kUntakenBytesSlack;

// Remembers connections that do not keep the protocol.
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
    // Else messages to a peer that is gone or stalled are lost in silence.
    socket.set(zmq::sockopt::router_mandatory, true);
    // A peer that connects again may be back before its old connection is
    // forgotten, and would otherwise never be heard. Nobody can guess the id of
    // another: those of Dealers are random.
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

  // Called for each incoming message.
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
