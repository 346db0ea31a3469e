// Dealer and Router over real sockets on loopback.
#include "runtime/transport/dealer_router.h"

#include <chrono>
#include <thread>

#include "core/units.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

Message Numbered(uint64_t request) {
  QueryRequest query;
  query.request = request;
  return query;
}
uint64_t NumberOf(const Message& message) {
  return std::get<QueryRequest>(message).request;
}

std::unique_ptr<Router> NewRouter(const std::string& where = "127.0.0.1:0") {
  auto router = Router::Bind(where);
  EXPECT_OK(router.status());
  return *std::move(router);
}
std::unique_ptr<Dealer> NewDealer(const Router& router) {
  auto dealer = Dealer::Connect(router.endpoint());
  EXPECT_OK(dealer.status());
  EXPECT_TRUE((*dealer)->WaitUntilConnected(kPatience_s));
  return *std::move(dealer);
}

TEST(DealerRouter, EchoAMessageBothWays) {
  const auto router = NewRouter();
  const auto dealer = NewDealer(*router);
  ASSERT_OK(dealer->Send(Numbered(42)));
  const std::optional<Incoming> incoming = router->Receive(kPatience_s);
  ASSERT_TRUE(incoming.has_value());
  EXPECT_EQ(NumberOf(incoming->message), 42u);
  ASSERT_OK(router->Send(incoming->peer, Numbered(43)));
  ASSERT_OK_AND_ASSIGN(const auto answer, dealer->Receive(kPatience_s));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(NumberOf(*answer), 43u);
}

TEST(DealerRouter, MessagesOfOnePeerStayInOrder) {
  const auto router = NewRouter();
  const auto dealer = NewDealer(*router);
  for (uint64_t i = 0; i < 500; ++i) ASSERT_OK(dealer->Send(Numbered(i)));
  for (uint64_t i = 0; i < 500; ++i) {
    const auto incoming = router->Receive(kPatience_s);
    ASSERT_TRUE(incoming.has_value());
    ASSERT_EQ(NumberOf(incoming->message), i);
  }
}

TEST(DealerRouter, AHundredDealersAreEachAnswered) {
  const auto router = NewRouter();
  std::vector<std::unique_ptr<Dealer>> dealers;
  for (uint64_t i = 0; i < 100; ++i) {
    dealers.push_back(NewDealer(*router));
    ASSERT_OK(dealers.back()->Send(Numbered(i)));
  }
  std::set<std::string> peers;
  for (size_t i = 0; i < dealers.size(); ++i) {
    const auto incoming = router->Receive(kPatience_s);
    ASSERT_TRUE(incoming.has_value());
    peers.insert(incoming->peer);
    ASSERT_OK(router->Send(incoming->peer, incoming->message));
  }
  EXPECT_EQ(peers.size(), dealers.size());
  for (uint64_t i = 0; i < dealers.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const auto answer, dealers[i]->Receive(kPatience_s));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(NumberOf(*answer), i);
  }
}

// A Router that is busy for longer than a peer needs to connect again hears of
// both at once, with messages of the old connection still unread.
TEST(DealerRouter, WhoIsBackBeforeItsOldConnectionIsForgottenIsHeard) {
  const auto router = NewRouter();
  const auto dealer = NewDealer(*router);
  ASSERT_OK(dealer->Send(Numbered(1)));
  const std::optional<Incoming> first = router->Receive(kPatience_s);
  ASSERT_TRUE(first.has_value());
  for (uint64_t i = 2; i < 10; ++i) ASSERT_OK(dealer->Send(Numbered(i)));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  router->Cut(*first);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  ASSERT_TRUE(dealer->WaitUntilConnected(kPatience_s));
  constexpr uint64_t kLast = 10;
  ASSERT_OK(dealer->Send(Numbered(kLast)));
  std::optional<Incoming> heard;
  do {
    heard = router->Receive(kPatience_s);
    ASSERT_TRUE(heard.has_value()) << "the last message did not come";
  } while (NumberOf(heard->message) != kLast);
  ASSERT_OK(router->Send(heard->peer, Numbered(kLast)));
  ASSERT_OK_AND_ASSIGN(const auto answer, dealer->Receive(kPatience_s));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(NumberOf(*answer), kLast);
}

TEST(DealerRouter, APeerThatIsGoneIsNotFound) {
  const auto router = NewRouter();
  EXPECT_THAT(router->Send("nobody", Numbered(1)), StatusIs(kNotFound, ""));
  auto dealer = NewDealer(*router);
  ASSERT_OK(dealer->Send(Numbered(1)));
  const auto incoming = router->Receive(kPatience_s);
  ASSERT_TRUE(incoming.has_value());
  dealer.reset();
  absl::Status status;
  EXPECT_TRUE(Eventually([&] {
    router->Receive(0.01);  // until the connection's end has come through
    status = router->Send(incoming->peer, Numbered(2));
    return !status.ok();
  }));
  EXPECT_THAT(status, StatusIs(kNotFound, ""));
}

TEST(DealerRouter, APeerThatDoesNotReadIsUnavailableAndMemoryBounded) {
  const auto router = NewRouter();
  const auto dealer = NewDealer(*router);
  ASSERT_OK(dealer->Send(Numbered(1)));
  const auto incoming = router->Receive(kPatience_s);
  ASSERT_TRUE(incoming.has_value());
  LogReply bulky;
  bulky.data.assign(32 * 1024, 'x');
  absl::Status status;
  for (int i = 0; i < 100'000 && status.ok(); ++i) {
    status = router->Send(incoming->peer, bulky);
  }
  EXPECT_THAT(status, StatusIs(kUnavailable, "queue is full"));
}

TEST(DealerRouter, WithoutAPeerSendIsUnavailableAtOnce) {
  std::string endpoint = NewRouter()->endpoint();  // nobody is there any more
  ASSERT_OK_AND_ASSIGN(const auto dealer, Dealer::Connect(endpoint));
  EXPECT_FALSE(dealer->WaitUntilConnected(0.05));
  EXPECT_THAT(dealer->Send(Numbered(1)), StatusIs(kUnavailable, endpoint));
}

TEST(DealerRouter, AMessageBeyondTheFrameIsRefusedBeforeItIsSent) {
  const auto router = NewRouter();
  const auto dealer = NewDealer(*router);
  LogReply reply;
  reply.data.assign(100 * 1024, 'x');
  EXPECT_THAT(dealer->Send(reply), StatusIs(kResourceExhausted, ""));
}

TEST(DealerRouter, ReceiveWaitsForItsTimeOutAndNoLonger) {
  const auto router = NewRouter();
  const auto dealer = NewDealer(*router);
  const double watch = Seconds();
  EXPECT_FALSE(router->Receive(0.1).has_value());
  EXPECT_GE(Seconds() - watch, 0.1);
  EXPECT_FALSE(router->Receive(0).has_value());
  EXPECT_FALSE(router->Receive(-1).has_value());
  ASSERT_OK_AND_ASSIGN(const auto nothing, dealer->Receive(0.1));
  EXPECT_FALSE(nothing.has_value());
  EXPECT_LT(Seconds() - watch, kPatience_s);
}

TEST(DealerRouter, AnotherThreadWakesAReceiveThatWaitsForEver) {
  const auto router = NewRouter();
  const auto dealer = NewDealer(*router);
  std::thread waker([&] {
    router->waker().Wake();
    dealer->waker().Wake();
  });
  EXPECT_FALSE(router->Receive(kNever).has_value());
  ASSERT_OK_AND_ASSIGN(const auto nothing, dealer->Receive(kNever));
  EXPECT_FALSE(nothing.has_value());
  waker.join();
  // One Wake is for one wait.
  const double watch = Seconds();
  EXPECT_FALSE(router->Receive(0.05).has_value());
  EXPECT_GE(Seconds() - watch, 0.05);
}

TEST(DealerRouter, ARestartedRouterIsFoundAgainAndHearsNothingOld) {
  auto router = NewRouter();
  const std::string endpoint = router->endpoint();
  const auto dealer = NewDealer(*router);
  ASSERT_OK(dealer->Send(Numbered(1)));
  ASSERT_TRUE(router->Receive(kPatience_s).has_value());

  router.reset();
  // Said to nobody: it must not reach the next coordinator.
  const double away = Seconds();
  absl::Status status;
  while (Seconds() - away < 0.5) status = dealer->Send(Numbered(666));
  EXPECT_THAT(status, StatusIs(kUnavailable, ""));

  router = NewRouter(endpoint);
  const double watch = Seconds();
  ASSERT_TRUE(dealer->WaitUntilConnected(kPatience_s));
  ASSERT_OK(dealer->Send(Numbered(2)));
  const auto incoming = router->Receive(kPatience_s);
  ASSERT_TRUE(incoming.has_value());
  EXPECT_EQ(NumberOf(incoming->message), 2u);
  EXPECT_LT(Seconds() - watch, 3);
  ASSERT_OK(router->Send(incoming->peer, Numbered(3)));
  ASSERT_OK_AND_ASSIGN(const auto answer, dealer->Receive(kPatience_s));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(NumberOf(*answer), 3u);
}

}  // namespace
}  // namespace gavel
