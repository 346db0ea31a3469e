// A Router among peers that do not keep the protocol, on raw ZeroMQ sockets.
#include <string_view>

#include "core/codec.h"
#include "runtime/transport/dealer_router.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"
#include "zmq.hpp"

namespace gavel {
namespace {

class HostilePeerTest : public Test {
 protected:
  HostilePeerTest() {
    auto router = Router::Bind("127.0.0.1:0");
    EXPECT_OK(router.status());
    router_ = *std::move(router);
    raw_ = zmq::socket_t(context_, zmq::socket_type::dealer);
    raw_.set(zmq::sockopt::linger, 0);
    raw_.set(zmq::sockopt::sndtimeo, 10'000);
    raw_.connect(router_->endpoint());
  }

  void SendRaw(std::string_view bytes, bool more = false) {
    EXPECT_TRUE(raw_.send(zmq::buffer(bytes), more ? zmq::send_flags::sndmore
                                                   : zmq::send_flags::none));
  }

  static std::string Frame(uint64_t request) {
    QueryRequest query;
    query.request = request;
    auto frame = EncodeMessage(query);
    EXPECT_OK(frame.status());
    return *frame;
  }

  // Expects that the next message is the request with this number.
  void ExpectNext(uint64_t request) {
    const std::optional<Incoming> incoming = router_->Receive(kPatience_s);
    ASSERT_TRUE(incoming.has_value());
    EXPECT_EQ(std::get<QueryRequest>(incoming->message).request, request);
  }

  std::unique_ptr<Router> router_;
  zmq::context_t context_;
  zmq::socket_t raw_;
};

TEST_F(HostilePeerTest, ARawFrameOfTheProtocolIsHeard) {
  SendRaw(Frame(1));
  ExpectNext(1);
  EXPECT_EQ(router_->frames_dropped(), 0u);
}

TEST_F(HostilePeerTest, GarbageIsDroppedAndCounted) {
  SendRaw("");
  SendRaw("GET / HTTP/1.1\r\n\r\n");
  SendRaw(std::string(kFrameBytesMax, '\xff'));
  SendRaw(Frame(1).substr(0, 7));
  SendRaw(Frame(2));
  ExpectNext(2);
  EXPECT_EQ(router_->frames_dropped(), 4u);
}

TEST_F(HostilePeerTest, MultipartMessagesAreDroppedWholeAndCounted) {
  SendRaw(Frame(1), /*more=*/true);
  SendRaw(Frame(2), /*more=*/true);
  SendRaw(Frame(3));
  SendRaw("", /*more=*/true);  // as a REQ socket would
  SendRaw(Frame(4));
  SendRaw(Frame(5));
  ExpectNext(5);
  EXPECT_EQ(router_->frames_dropped(), 2u);
}

TEST_F(HostilePeerTest, AnOversizedFrameIsDroppedAndOthersAreServed) {
  SendRaw(std::string(kFrameBytesMax + 1, 'x'));
  auto dealer = Dealer::Connect(router_->endpoint());
  ASSERT_OK(dealer.status());
  ASSERT_TRUE((*dealer)->WaitUntilConnected(kPatience_s));
  QueryRequest query;
  query.request = 7;
  ASSERT_OK((*dealer)->Send(query));
  ExpectNext(7);
  // The router disconnected the sender and then serves it like any other peer.
  // A message that the sender sends before it notices is lost with the old
  // connection.
  std::optional<Incoming> incoming;
  for (int i = 0; i < kPatience_s && !incoming; ++i) {
    SendRaw(Frame(8));
    incoming = router_->Receive(1);
  }
  ASSERT_TRUE(incoming.has_value());
  EXPECT_EQ(std::get<QueryRequest>(incoming->message).request, 8u);
  EXPECT_EQ(router_->frames_dropped(), 0u);  // it was never taken in
}

TEST_F(HostilePeerTest, AFloodOfGarbageIsCutAndDoesNotHoldTheLoop) {
  ASSERT_EQ(
      zmq_socket_monitor(raw_.handle(), "inproc://raw", ZMQ_EVENT_DISCONNECTED),
      0);
  zmq::socket_t events(context_, zmq::socket_type::pair);
  events.connect("inproc://raw");
  events.set(zmq::sockopt::rcvtimeo, 10'000);
  auto dealer = Dealer::Connect(router_->endpoint());
  ASSERT_OK(dealer.status());
  ASSERT_TRUE((*dealer)->WaitUntilConnected(kPatience_s));
  raw_.set(zmq::sockopt::sndtimeo, 0);
  for (int i = 0; i < 5000; ++i) {
    // A message that can't be sent at once is dropped: the flood is large
    // enough.
    (void)raw_.send(zmq::str_buffer("garbage"), zmq::send_flags::dontwait);
  }
  QueryRequest query;
  query.request = 7;
  ASSERT_OK((*dealer)->Send(query));
  std::optional<Incoming> incoming;
  for (int calls = 0; !incoming.has_value() && calls < 100; ++calls) {
    incoming = router_->Receive(0.1);
  }
  ASSERT_TRUE(incoming.has_value());
  for (int calls = 0;
       calls < 100 && router_->frames_dropped() <= Router::kOffencesMax;
       ++calls) {
    router_->Receive(0.1);
  }
  EXPECT_GT(router_->frames_dropped(), uint64_t{Router::kOffencesMax});
  zmq::message_t cut;
  EXPECT_TRUE(events.recv(cut).has_value());
}

TEST_F(HostilePeerTest, AnotherVersionIsToldSoOnceAndOthersAreServed) {
  std::string other = Frame(1);
  other[3] = static_cast<char>(kProtocolVersion + 1);
  for (int i = 0; i < 3; ++i) SendRaw(other);
  SendRaw(Frame(2));
  ExpectNext(2);
  EXPECT_EQ(router_->frames_dropped(), 3u);
  raw_.set(zmq::sockopt::rcvtimeo, 10'000);
  zmq::message_t refusal;
  ASSERT_TRUE(raw_.recv(refusal).has_value());
  EXPECT_EQ(refusal.to_string(), EncodeVersionRefusal());
  raw_.set(zmq::sockopt::rcvtimeo, 200);
  EXPECT_FALSE(raw_.recv(refusal).has_value());
}

TEST(HostileCoordinator, ItsRefusalOfOurVersionIsAnErrorThatNamesBoth) {
  zmq::context_t context;
  zmq::socket_t raw(context, zmq::socket_type::dealer);
  raw.set(zmq::sockopt::linger, 0);
  raw.bind("tcp://127.0.0.1:*");
  auto dealer = Dealer::Connect(raw.get(zmq::sockopt::last_endpoint));
  ASSERT_OK(dealer.status());
  ASSERT_TRUE((*dealer)->WaitUntilConnected(kPatience_s));
  using namespace std::string_literals;
  raw.send(zmq::buffer("GVL\x00\x02\x03use 2.0"s), zmq::send_flags::none);
  EXPECT_THAT((*dealer)->Receive(kPatience_s).status(),
              StatusIs(kFailedPrecondition,
                       "the peer speaks protocols 2 to 3, this is 1; update "
                       "this side (it says: use 2.0)"));
}

TEST(HostileCoordinator, AnotherVersionIsAnErrorForTheClientGarbageIsNot) {
  zmq::context_t context;
  zmq::socket_t raw(context, zmq::socket_type::dealer);  // of one peer
  raw.set(zmq::sockopt::linger, 0);
  raw.bind("tcp://127.0.0.1:*");
  auto dealer = Dealer::Connect(raw.get(zmq::sockopt::last_endpoint));
  ASSERT_OK(dealer.status());
  ASSERT_TRUE((*dealer)->WaitUntilConnected(kPatience_s));

  auto good = EncodeMessage(QueryRequest{});
  ASSERT_OK(good.status());
  raw.send(zmq::buffer(std::string_view("garbage")), zmq::send_flags::none);
  raw.send(zmq::buffer(*good), zmq::send_flags::none);
  const auto message = (*dealer)->Receive(kPatience_s);
  ASSERT_OK(message.status());
  EXPECT_TRUE(message->has_value());
  EXPECT_EQ((*dealer)->frames_dropped(), 1u);

  std::string other = *good;
  const size_t version = other.find(static_cast<char>(kProtocolVersion));
  ASSERT_NE(version, std::string::npos);
  other[version] = static_cast<char>(kProtocolVersion + 1);
  raw.send(zmq::buffer(other), zmq::send_flags::none);
  EXPECT_THAT((*dealer)->Receive(kPatience_s).status(),
              StatusIs(kFailedPrecondition, "protocol"));
}

}  // namespace
}  // namespace gavel
