// A Router whose peers fill its memory, or leave while it still reads their
// messages. The peers speak plain TCP, because no ZeroMQ socket sends such
// bytes.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "core/codec.h"
#include "runtime/transport/dealer_router.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using std::chrono::milliseconds;

// A DEALER written by hand: ZMTP 3.0 without encryption
// (rfc.zeromq.org/spec/23).
class PlainPeer {
 public:
  explicit PlainPeer(const std::string& endpoint)
      : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(descriptor_, reinterpret_cast<sockaddr*>(&address),
                      sizeof address),
              0);
  }
  PlainPeer(const PlainPeer&) = delete;
  PlainPeer& operator=(const PlainPeer&) = delete;
  ~PlainPeer() { close(descriptor_); }

  // Returns once the router has answered; before that, it takes no messages.
  bool Greet() {
    using namespace std::string_literals;
    const std::string greeting = "\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"s;
    const std::string ready =
        "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
        "DEALER"s;
    if (!Write(greeting + std::string(48, '\0')) || !Write(ready)) return false;
    const std::string head = Read(64 + 2);
    return head.size() == 66 &&
           !Read(static_cast<unsigned char>(head[65])).empty();
  }
  bool SendPart(std::string_view part, bool more) {
    std::string head(1, static_cast<char>(2 | (more ? 1 : 0)));
    for (int shift = 56; shift >= 0; shift -= 8) {
      head += static_cast<char>(part.size() >> shift);
    }
    return Write(head) && Write(part);
  }
  // Writes all bytes. False when the connection has ended or nobody reads.
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd writable = {descriptor_, POLLOUT | POLLRDHUP, 0};
      if (poll(&writable, 1, 10'000) != 1) return false;
      if ((writable.revents & POLLRDHUP) != 0) return false;
      const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Whether the connection has ended. Discards the bytes that have come so far.
  bool Ended() {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = recv(descriptor_, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    return got == 0 || (errno != EAGAIN && errno != EINTR);
  }

 private:
  // Reads `size` bytes, or fewer when the connection ends or stays silent.
  std::string Read(size_t size) {
    std::string bytes;
    char byte = 0;
    pollfd readable = {descriptor_, POLLIN, 0};
    while (bytes.size() < size && poll(&readable, 1, 10'000) == 1 &&
           recv(descriptor_, &byte, 1, 0) == 1) {
      bytes += byte;
    }
    return bytes;
  }

  int descriptor_;
};

class FloodTest : public Test {
 protected:
  FloodTest() {
    auto router = Router::Bind("127.0.0.1:0");
    EXPECT_OK(router.status());
    router_ = *std::move(router);
  }
  // Takes all messages that have come.
  void Drain() {
    while (router_->Receive(0).has_value()) {
    }
  }
  // Runs `send` on a thread and takes messages meanwhile, because a peer that
  // fills the buffers of the kernel waits until somebody reads.
  void DrainWhile(const std::function<void()>& send) {
    std::atomic<bool> sending = true;
    std::thread sender([&] {
      send();
      sending = false;
    });
    while (sending) (void)router_->Receive(0.01);
    sender.join();
    Drain();
  }

  std::unique_ptr<Router> router_;
};

TEST_F(FloodTest, AMessageThatDoesNotEndIsCut) {
  PlainPeer peer(router_->endpoint());
  ASSERT_TRUE(peer.Greet());
  const std::string part(kFrameBytesMax - 1024, 'x');
  constexpr uint64_t kSentMax = uint64_t{512} << 20;
  uint64_t sent = 0;
  DrainWhile([&] {
    while (sent < kSentMax && peer.SendPart(part, /*more=*/true)) {
      sent += part.size();
    }
  });
  std::printf("cut after %.1f MiB\n", static_cast<double>(sent) / (1 << 20));
  EXPECT_LT(sent, kSentMax);
  EXPECT_TRUE(peer.Ended());
  EXPECT_EQ(router_->connections_cut(), 1U);
  // Other peers are still served.
  auto dealer = Dealer::Connect(router_->endpoint());
  ASSERT_OK(dealer.status());
  ASSERT_TRUE((*dealer)->WaitUntilConnected(10));
  ASSERT_OK((*dealer)->Send(QueryRequest{}));
  EXPECT_TRUE(router_->Receive(10).has_value());
}

// Neither the small size of its parts nor the allowance from earlier, complete
// messages hides the endless message.
TEST_F(FloodTest, AMessageThatDoesNotEndIsCutAfterManyThatDid) {
  PlainPeer peer(router_->endpoint());
  ASSERT_TRUE(peer.Greet());
  const std::string frame = *EncodeMessage(QueryRequest{});
  const std::string part(100, 'x');
  constexpr uint64_t kSentMax = uint64_t{256} << 20;
  uint64_t sent = 0;
  DrainWhile([&] {
    for (int i = 0; i < 200'000; ++i) {
      ASSERT_TRUE(peer.SendPart(frame, /*more=*/false));
    }
    while (sent < kSentMax && peer.SendPart(part, /*more=*/true)) {
      sent += part.size();
    }
  });
  EXPECT_LT(sent, kSentMax);
  EXPECT_EQ(router_->connections_cut(), 1U);
}

TEST_F(FloodTest, ABurstUpToTheHighWaterMarkAndWhatTheKernelHoldsAreNotCut) {
  PlainPeer peer(router_->endpoint());
  ASSERT_TRUE(peer.Greet());
  const std::string frame = *EncodeMessage(SubmitRequest{
      1, std::string(5000, 's'), std::string(59 * 1024, 'x'), "/jobs"});
  ASSERT_GT(frame.size(), kFrameBytesMax - 1024);
  // Nobody reads: ZeroMQ takes a hundred messages, and the rest waits in the
  // kernel.
  std::thread sender([&] {
    for (int i = 0; i < 500; ++i) {
      ASSERT_TRUE(peer.SendPart(frame, /*more=*/false));
    }
  });
  std::this_thread::sleep_for(milliseconds(600));
  int taken = 0;
  EXPECT_TRUE(Eventually([&] {
    while (router_->Receive(0.1).has_value()) ++taken;
    return taken == 500;
  }));
  sender.join();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(router_->connections_cut(), 0U);
  EXPECT_FALSE(peer.Ended());
}

// The next connection gets the descriptor of one that has ended, while the
// router still reads what the first one left behind.
TEST_F(FloodTest, OffencesOfOneThatLeftDoNotEndAnothersConnection) {
  auto peer = std::make_unique<PlainPeer>(router_->endpoint());
  ASSERT_TRUE(peer->Greet());
  const auto offend = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(peer->SendPart("rubbish", /*more=*/false));
    }
  };
  offend(90);
  ASSERT_TRUE(Eventually([&] {
    Drain();
    return router_->frames_dropped() == 90;
  }));
  // ZeroMQ's count of waiting messages lags behind. These are few enough for it
  // to read them all and to see the end.
  offend(50);
  std::this_thread::sleep_for(milliseconds(300));
  peer.reset();
  std::this_thread::sleep_for(milliseconds(300));
  PlainPeer innocent(router_->endpoint());
  ASSERT_TRUE(innocent.Greet());
  EXPECT_TRUE(Eventually([&] {
    Drain();
    return router_->frames_dropped() == 140;
  }));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(innocent.Ended());
  EXPECT_EQ(router_->connections_cut(), 0U);
}

TEST_F(FloodTest, OneThatIsThereIsCutOnceForItsOffences) {
  PlainPeer peer(router_->endpoint());
  ASSERT_TRUE(peer.Greet());
  for (int i = 0; i < 190; ++i) peer.SendPart("rubbish", /*more=*/false);
  EXPECT_TRUE(Eventually([&] {
    Drain();
    return peer.Ended();
  }));
  Drain();
  EXPECT_EQ(router_->connections_cut(), 1U);
}

// Otherwise up to 64 MB, the length of its queue, would wait for such a peer
// for as long as it likes.
TEST_F(FloodTest, OneThatTakesNothingOfWhatIsSentToItIsCut) {
  RouterOptions options;
  options.unsent_s_max = 0.5;
  router_ = *Router::Bind("127.0.0.1:0", options);
  PlainPeer peer(router_->endpoint());
  ASSERT_TRUE(peer.Greet());
  const auto reader = *Dealer::Connect(router_->endpoint());
  ASSERT_TRUE(reader->WaitUntilConnected(10));
  ASSERT_TRUE(peer.SendPart(*EncodeMessage(QueryRequest{}), /*more=*/false));
  EXPECT_OK(reader->Send(QueryRequest{}));
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) ids.push_back(router_->Receive(10)->peer);
  QueryReply answer;
  answer.json = std::string(kFrameBytesMax / 2, 'x');
  EXPECT_TRUE(Eventually([&] {
    for (const std::string& id : ids) {
      router_->Send(id, answer).IgnoreError();
    }
    while (reader->Receive(0)->has_value()) {
    }
    return router_->connections_cut() > 0;
  }));
  EXPECT_TRUE(Eventually([&] { return peer.Ended(); }));
  EXPECT_EQ(router_->connections_cut(), 1U);
}

}  // namespace
}  // namespace gavel
