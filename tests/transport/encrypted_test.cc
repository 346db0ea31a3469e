// Tests which encrypted connections are let in, and which are not.
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "runtime/files/files.h"
#include "runtime/transport/connection_guard.h"
#include "runtime/transport/dealer_router.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr double kSoon_s = kPatience_s;
// How long the tests wait for events that must not happen.
constexpr double kNever_s = 0.4;

// Long enough to renew a connection.
constexpr double kIdle_s = 2.5;

Message Request(uint64_t number) {
  QueryRequest request;
  request.request = number;
  return request;
}

Message Reply(uint64_t number) {
  QueryReply reply;
  reply.request = number;
  return reply;
}

CurveKeyPair NewKeys() { return NewCurveKeyPair().value(); }

class Encrypted : public Test {
 protected:
  void SetUp() override {
    RouterOptions options;
    options.keys = server_;
    options.may_connect = [this](const std::string& key, const std::string&) {
      ++asked_;
      const bool allowed = open_ && key == known_.public_key;
      return allowed ? Admission::kAllowed : refusal_.load();
    };
    auto router = Router::Bind("tcp://0.0.0.0:0", std::move(options));
    ASSERT_OK(router.status());
    router_ = *std::move(router);
  }
  std::string Endpoint() const {
    const std::string& bound = router_->endpoint();
    return "127.0.0.1" + bound.substr(bound.rfind(':'));
  }
  std::unique_ptr<Dealer> Connect(const CurveKeyPair& own,
                                  const std::string& server_key) const {
    return Dealer::Connect(Endpoint(), {CurveClient{own, server_key}}).value();
  }

  const CurveKeyPair server_ = NewKeys();
  const CurveKeyPair known_ = NewKeys();
  std::atomic<bool> open_{true};
  std::atomic<int> asked_{0};
  std::atomic<Admission> refusal_{Admission::kNotYet};
  std::unique_ptr<Router> router_;
};

TEST_F(Encrypted, AKnownKeyGetsThroughAndIsTheIdentityOfEveryMessage) {
  const auto dealer = Connect(known_, server_.public_key);
  ASSERT_TRUE(dealer->WaitUntilConnected(kSoon_s));
  for (uint64_t request = 1; request <= 3; ++request) {
    ASSERT_OK(dealer->Send(Request(request)));
    const std::optional<Incoming> incoming = router_->Receive(kSoon_s);
    ASSERT_TRUE(incoming.has_value());
    EXPECT_EQ(incoming->public_key, known_.public_key);
    EXPECT_EQ(incoming->address, "127.0.0.1");
    ASSERT_OK(router_->Send(incoming->peer, Reply(request)));
    ASSERT_OK_AND_ASSIGN(const auto reply, dealer->Receive(kSoon_s));
    ASSERT_TRUE(reply.has_value());
  }
}

TEST_F(Encrypted, AnUnknownKeyDoesNot) {
  const auto dealer = Connect(NewKeys(), server_.public_key);
  EXPECT_FALSE(dealer->WaitUntilConnected(kNever_s));
  EXPECT_FALSE(router_->Receive(0).has_value());
  EXPECT_GE(asked_, 1);
  EXPECT_GE(router_->connections_refused(), 1U);
}

// Such a handshake fails before the router asks whether its key may connect.
TEST_F(Encrypted, HandshakesThatAreNotForThisCoordinatorAreCounted) {
  const auto dealer = Connect(known_, NewKeys().public_key);
  EXPECT_TRUE(Eventually([&] {
    dealer->Receive(0.01).IgnoreError();
    return router_->handshakes_failed() > 0;
  }));
  EXPECT_EQ(router_->connections_refused(), 0U);
  EXPECT_EQ(asked_, 0);
}

// The four reasons why no answer comes can be told apart, and a refused peer
// connects once its key is allowed.
TEST_F(Encrypted, ARefusedARevokedAndAWrongKeyAndNobodyAreToldApart) {
  const auto expect = [&](Dealer& dealer, const std::string& text,
                          const std::string& key = "KEY") {
    const auto told = [&] { return LinkText(dealer.link(), Endpoint(), key); };
    EXPECT_TRUE(Eventually([&] {
      EXPECT_FALSE(dealer.WaitUntilConnected(0.1));
      return told().starts_with(text);
    })) << told();
  };
  open_ = false;
  refusal_ = Admission::kRefused;
  const auto refused = Connect(known_, server_.public_key);
  EXPECT_FALSE(refused->WaitForLink(kSoon_s));
  expect(*refused, "key refused: ");
  refusal_ = Admission::kRevoked;
  expect(*refused, "key revoked: ");
  const auto wrong = Connect(known_, NewKeys().public_key);
  expect(*wrong, "wrong coordinator key: ");
  const auto nobody =
      Dealer::Connect("127.0.0.1:1", {CurveClient{known_, server_.public_key}})
          .value();
  expect(*nobody, "no coordinator answers at ");
  const auto keyless = Dealer::Connect(Endpoint()).value();
  expect(*keyless, "keys wanted: ", "");
  const auto open = Router::Bind("127.0.0.1:0").value();
  const auto keyed = Dealer::Connect(open->endpoint(),
                                     {CurveClient{known_, server_.public_key}})
                         .value();
  expect(*keyed, "no keys there: ");
  open_ = true;
  EXPECT_TRUE(refused->WaitUntilConnected(kSoon_s));
}

// A coordinator that was just started closes the handshakes of an unknown key,
// since the agent may still announce the key; later it refuses the key.
TEST_F(Encrypted, AKeyThatIsUnknownForAMomentMeetsNoWrongCoordinator) {
  open_ = false;
  const auto dealer = Connect(known_, server_.public_key);
  for (const double end = Seconds() + 1; Seconds() < end;) {
    EXPECT_FALSE(dealer->WaitForLink(0.02));
    EXPECT_NE(dealer->link().state, LinkState::kWrongKey);
  }
  EXPECT_GE(asked_, 2);
  refusal_ = Admission::kRefused;
  EXPECT_FALSE(dealer->WaitForLink(kSoon_s));
  EXPECT_EQ(dealer->link().state, LinkState::kRefused);
}

TEST(Endpoint, ANameThatDoesNotResolveIsTold) {
  const absl::Status status = CheckResolves("nohost.invalid:7077");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message().find("the name nohost.invalid does not resolve"),
            0U);
  EXPECT_OK(CheckResolves("127.0.0.1:7077"));
  EXPECT_OK(CheckResolves("[::1]:7077"));
  EXPECT_OK(CheckResolves("localhost:7077"));
}

TEST_F(Encrypted, AKeyThatIsRefusedAfterItWasAllowedCountsAsRevoked) {
  const auto dealer = Connect(known_, server_.public_key);
  ASSERT_TRUE(dealer->WaitUntilConnected(kSoon_s));
  ASSERT_OK(dealer->Send(Request(1)));
  const std::optional<Incoming> incoming = router_->Receive(kSoon_s);
  ASSERT_TRUE(incoming.has_value());
  dealer->Receive(0.01).IgnoreError();
  EXPECT_TRUE(dealer->link().connected());
  open_ = false;
  refusal_ = Admission::kRefused;
  router_->Cut(*incoming);
  EXPECT_TRUE(Eventually([&] {
    dealer->Receive(0.01).IgnoreError();
    return dealer->link().refused();
  }));
  EXPECT_TRUE(dealer->link().revoked());
}

TEST_F(Encrypted, AConnectionThatMayBeIsRenewedWhenItIsIdleAndGoesOn) {
  const auto dealer = Connect(known_, server_.public_key);
  ASSERT_TRUE(dealer->WaitUntilConnected(kSoon_s));
  const auto ask = [&](bool may_renew) {
    ASSERT_OK(dealer->Send(Request(1)));
    const std::optional<Incoming> incoming = router_->Receive(kSoon_s);
    ASSERT_TRUE(incoming.has_value());
    if (may_renew) router_->MayRenew(*incoming);
    ASSERT_OK(router_->Send(incoming->peer, Reply(1)));
    ASSERT_OK_AND_ASSIGN(const auto reply, dealer->Receive(kSoon_s));
    ASSERT_TRUE(reply.has_value());
  };
  // ZeroMQ does its own part on its threads, when the socket is polled.
  const auto handshakes_after = [&](double wait_s) {
    for (int i = 0; i < 50; ++i) {
      EXPECT_FALSE(router_->Receive(wait_s / 50).has_value());
    }
    return asked_.load();
  };
  const int first = asked_;
  for (uint64_t i = 0; i < 2 * transport::kMessagesPerConnection; ++i) {
    ask(false);
  }
  EXPECT_EQ(handshakes_after(kIdle_s), first) << "nobody said that it may be";
  for (int renewal = 1; renewal <= 2; ++renewal) {
    // The first time, the connection has already carried enough messages.
    for (uint64_t i = 0; i < transport::kMessagesPerConnection; ++i) {
      EXPECT_EQ(asked_, first + renewal - 1) << i;
      ask(true);
    }
    EXPECT_EQ(handshakes_after(kIdle_s), first + renewal);
    ASSERT_TRUE(dealer->WaitUntilConnected(kSoon_s));
  }
  EXPECT_EQ(router_->connections_cut(), 0U);
  EXPECT_EQ(router_->connections_refused(), 0U);
}

TEST_F(Encrypted, WhoKeepsSendingWhatIsNotHisToSendIsCut) {
  const auto dealer = Connect(known_, server_.public_key);
  ASSERT_TRUE(dealer->WaitUntilConnected(kSoon_s));
  ASSERT_OK(dealer->Send(Request(1)));
  const std::optional<Incoming> incoming = router_->Receive(kSoon_s);
  ASSERT_TRUE(incoming.has_value());
  const int asked = asked_;
  for (int i = 0; i < Router::kOffencesMax; ++i)
    router_->RecordOffence(*incoming);
  dealer->Receive(kNever_s).IgnoreError();
  EXPECT_EQ(asked_, asked) << "cut too early";
  router_->RecordOffence(*incoming);
  EXPECT_TRUE(Eventually([&] {
    dealer->Receive(0.01).IgnoreError();
    return asked_ > asked;
  })) << "not cut: it did not have to connect again";
}

// A router with limits that a test can reach, and dealers with several keys.
class ConnectionLimits : public Test {
 protected:
  void Bind(int per_key, int per_address, double silent_s_max = 1e6) {
    RouterOptions options;
    options.keys = server_;
    options.may_connect = [](const std::string&, const std::string&) {
      return Admission::kAllowed;
    };
    options.connections_per_key_max = per_key;
    options.connections_per_address_max = per_address;
    options.silent_s_max = silent_s_max;
    router_ = Router::Bind("tcp://127.0.0.1:0", std::move(options)).value();
  }
  std::unique_ptr<Dealer> Connect(const CurveKeyPair& keys) const {
    return Dealer::Connect(router_->endpoint(),
                           {CurveClient{keys, server_.public_key}})
        .value();
  }
  // Whether a message of the dealer arrives.
  bool IsHeard(Dealer& dealer) {
    return Eventually([&] {
      dealer.Send(Request(1)).IgnoreError();
      dealer.Receive(0.01).IgnoreError();
      return router_->Receive(0.01).has_value();
    });
  }
  // The dealer learns that it is kept out, and not that this is another
  // coordinator.
  void ExpectKeptOut(Dealer& dealer) {
    EXPECT_TRUE(Eventually([&] {
      router_->Receive(0);
      EXPECT_FALSE(dealer.WaitForLink(0.1));
      EXPECT_NE(dealer.link().state, LinkState::kWrongKey);
      return dealer.link().state == LinkState::kKeptOut;
    }));
    EXPECT_THAT(
        LinkText(dealer.link(), router_->endpoint(), "KEY"),
        AllOf(StartsWith("kept out: "), HasSubstr("as many of this key")));
  }

  const CurveKeyPair server_ = NewKeys();
  std::unique_ptr<Router> router_;
};

// The connections of one key send nothing, and reconnect again and again.
TEST_F(ConnectionLimits, ManyOfOneKeyKeepNobodyElseOfTheirAddressOut) {
  Bind(/*per_key=*/8, /*per_address=*/400);
  const CurveClient greedy{NewKeys(), server_.public_key};
  zmq::context_t context;
  std::vector<zmq::socket_t> idle;
  for (int i = 0; i < 300; ++i) {
    zmq::socket_t& socket =
        idle.emplace_back(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::reconnect_ivl, 200);
    transport::SetCurveClient(socket, greedy);
    socket.connect(router_->endpoint());
  }
  EXPECT_TRUE(Eventually([&] { return router_->connections_refused() > 300; }));
  EXPECT_TRUE(IsHeard(*Connect(NewKeys())));
  ExpectKeptOut(*Connect(greedy.own));
}

TEST_F(ConnectionLimits, OfThoseThatSayNothingAnAddressHasNoMoreThanAKeyMay) {
  Bind(/*per_key=*/4, /*per_address=*/100, /*silent_s_max=*/0.1);
  std::vector<std::unique_ptr<Dealer>> silent;
  const auto speaker = Connect(NewKeys());
  ASSERT_TRUE(IsHeard(*speaker));
  for (int i = 0; i < 4; ++i) silent.push_back(Connect(NewKeys()));
  for (const auto& one : silent) ASSERT_TRUE(one->WaitUntilConnected(kSoon_s));
  EXPECT_FALSE(router_->Receive(kNever_s).has_value());
  EXPECT_EQ(router_->connections_cut(), 0U);
  silent.push_back(Connect(NewKeys()));
  EXPECT_TRUE(Eventually([&] { return router_->connections_cut() > 0; }));
  EXPECT_TRUE(IsHeard(*speaker));
}

TEST_F(ConnectionLimits, AConnectionThatEndsMakesRoomForOneOfItsKey) {
  Bind(/*per_key=*/4, /*per_address=*/100);
  const CurveKeyPair keys = NewKeys();
  std::vector<std::unique_ptr<Dealer>> own;
  for (int i = 0; i < 4; ++i) {
    own.push_back(Connect(keys));
    ASSERT_TRUE(IsHeard(*own.back()));
  }
  const auto one_more = Connect(keys);
  ExpectKeptOut(*one_more);
  own.pop_back();
  EXPECT_TRUE(IsHeard(*one_more));
  // Peers that come and go count only while they are connected.
  for (int i = 0; i < 20; ++i) {
    own.pop_back();
    own.push_back(Connect(keys));
    ASSERT_TRUE(IsHeard(*own.back())) << i;
  }
}

TEST_F(ConnectionLimits, WhoIsKeptOutForItsAddressIsToldSo) {
  Bind(/*per_key=*/100, /*per_address=*/16);
  std::vector<std::unique_ptr<Dealer>> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(Connect(NewKeys()));
    ASSERT_TRUE(IsHeard(*others.back()));
  }
  // ZeroMQ has several threads, so on a busy machine a handshake can overtake
  // the news that its connection was accepted, and one too many is let in.
  auto stranger = Connect(NewKeys());
  for (int i = 0; i < 3 && stranger->WaitForLink(1); ++i) {
    others.push_back(std::exchange(stranger, Connect(NewKeys())));
  }
  ExpectKeptOut(*stranger);
}

// Closes each connection, as the kernel does for a stopped coordinator, but
// sooner.
TEST(Silence, WhoSaysNothingIsNotTakenForACoordinatorOfAnotherKey) {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener.get(), any, size), 0);
  ASSERT_EQ(listen(listener.get(), 16), 0);
  ASSERT_EQ(getsockname(listener.get(), any, &size), 0);
  const std::string endpoint =
      "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const auto dealer =
      Dealer::Connect(endpoint, {CurveClient{NewKeys(), NewKeys().public_key}})
          .value();
  const auto start = std::chrono::steady_clock::now();
  int closed = 0;
  // Longer than a dealer needs to find that the other end has another key.
  while (closed < 4 ||
         std::chrono::steady_clock::now() - start < std::chrono::seconds(3)) {
    const int connection = accept4(listener.get(), nullptr, nullptr, 0);
    ASSERT_GE(connection, 0);
    EXPECT_FALSE(dealer->WaitForLink(0.05));
    close(connection);
    ++closed;
    EXPECT_FALSE(dealer->WaitForLink(0.05));
    EXPECT_NE(dealer->link().state, LinkState::kWrongKey);
  }
  EXPECT_EQ(dealer->link().state, LinkState::kSilent);
}

TEST(ConnectionLimit, ConnectionsOfOneAddressBeyondTheLimitAreClosed) {
  RouterOptions options;
  options.connections_per_address_max = 2;
  const auto router = Router::Bind("127.0.0.1:0", std::move(options)).value();
  auto first = Dealer::Connect(router->endpoint()).value();
  const auto second = Dealer::Connect(router->endpoint()).value();
  ASSERT_TRUE(first->WaitUntilConnected(kSoon_s));
  ASSERT_TRUE(second->WaitUntilConnected(kSoon_s));
  const auto third = Dealer::Connect(router->endpoint()).value();
  // It may seem connected for a moment, but it is closed again each time.
  EXPECT_TRUE(Eventually([&] {
    third->Receive(0.01).IgnoreError();
    return router->connections_refused() > 0;
  }));
  first.reset();
  EXPECT_TRUE(Eventually([&] {
    third->Send(Request(7)).IgnoreError();
    return router->Receive(0.01).has_value();
  })) << "there was room again, but the third did not get through";
}

}  // namespace
}  // namespace gavel
