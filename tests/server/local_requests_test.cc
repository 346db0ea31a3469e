#include "coordinator/server/local_requests.h"

#include <atomic>
#include <thread>

#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

QueryRequest Query(uint64_t number) {
  QueryRequest query;
  query.request = number;
  return query;
}

TEST(LocalRequests, GetTheAnswerToTheirOwnPeer) {
  std::atomic<int> woken{0};
  LocalRequests requests([&] { ++woken; });
  std::vector<std::thread> askers;
  for (uint64_t number = 1; number <= 3; ++number) {
    askers.emplace_back([&, number] {
      const auto reply =
          requests.Ask<QueryReply>("key", "http", Query(number), kPatience_s);
      ASSERT_OK(reply);
      EXPECT_EQ(reply->next_cursor, 10 * number);
    });
  }
  for (int answered = 0; answered < 3;) {
    std::optional<Incoming> incoming = requests.Next();
    if (!incoming) continue;
    EXPECT_EQ(incoming->public_key, "key");
    EXPECT_EQ(incoming->address, "http");
    EXPECT_TRUE(LocalRequests::IsLocal(*incoming));
    const uint64_t number = std::get<QueryRequest>(incoming->message).request;
    Message reply = QueryReply{number, "", 10 * number, ""};
    EXPECT_TRUE(requests.Answer(incoming->peer, &reply));
    ++answered;
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(woken, 3);
  EXPECT_FALSE(requests.has_waiting());
}

TEST(LocalRequests, LeaveAnswersToConnectionsAlone) {
  LocalRequests requests([] {});
  Message reply = QueryReply{};
  for (const std::string& peer :
       {std::string("local1"), std::string("local"), std::string(),
        std::string("\0\1\2\3\4", 5)}) {
    EXPECT_FALSE(requests.Answer(peer, &reply));
  }
}

TEST(LocalRequests, GiveUpAfterTheirTime) {
  LocalRequests requests([] {});
  EXPECT_THAT(requests.Ask<QueryReply>("", "", Query(1), 0.01),
              StatusIs(kUnavailable, "did not answer in 0.01 s"));
  // Nobody waits for it any more, so nobody works on it.
  EXPECT_FALSE(requests.Next().has_value());
}

TEST(LocalRequests, MayBeAnsweredTooLate) {
  std::optional<Incoming> taken;
  LocalRequests* all = nullptr;
  std::thread loop;
  LocalRequests requests(
      [&] { loop = std::thread([&] { taken = all->Next(); }); });
  all = &requests;
  EXPECT_THAT(requests.Ask<QueryReply>("", "", Query(1), 0.2),
              StatusIs(kUnavailable, "did not answer"));
  loop.join();
  ASSERT_TRUE(taken.has_value());
  Message reply = QueryReply{};
  EXPECT_TRUE(requests.Answer(taken->peer, &reply));
}

TEST(LocalRequests, SayWhereACommandMayStillBeDone) {
  std::optional<Incoming> taken;
  LocalRequests* all = nullptr;
  std::thread loop;
  LocalRequests requests(
      [&] { loop = std::thread([&] { taken = all->Next(); }); });
  all = &requests;
  EXPECT_THAT(requests.Ask<CommandReply>("", "", CommandRequest{}, 0.2),
              StatusIs(kDeadlineExceeded, "see whether it was done"));
  loop.join();
  LocalRequests asleep([] {});
  EXPECT_THAT(asleep.Ask<CommandReply>("", "", CommandRequest{}, 0.01),
              StatusIs(kUnavailable, "did not answer"));
}

TEST(LocalRequests, GetTheReasonOfARefusal) {
  LocalRequests requests([] {});
  std::thread asker([&] {
    EXPECT_THAT(requests.Ask<QueryReply>("", "", Query(1), kPatience_s),
                StatusIs(kPermissionDenied, "not yours"));
  });
  std::optional<Incoming> incoming;
  while (!incoming.has_value()) incoming = requests.Next();
  requests.Refuse(incoming->peer, absl::PermissionDeniedError("not yours"));
  asker.join();
}

TEST(LocalRequests, AreBoundedInNumber) {
  LocalRequests requests([] {});
  std::vector<std::thread> askers;
  std::atomic<size_t> ended{0};
  for (size_t i = 0; i < LocalRequests::kWaitingMax; ++i) {
    askers.emplace_back([&] {
      EXPECT_THAT(requests.Ask<QueryReply>("", "", Query(1), kPatience_s),
                  StatusIs(kUnavailable, "stopped"));
      ++ended;
    });
  }
  size_t taken = 0;
  EXPECT_TRUE(Eventually([&] {
    while (requests.Next().has_value()) ++taken;
    return taken == LocalRequests::kWaitingMax;
  }));
  EXPECT_THAT(requests.Ask<QueryReply>("", "", Query(1), 0),
              StatusIs(kUnavailable, "too many requests"));
  EXPECT_EQ(ended, 0);
  requests.Close();
  for (std::thread& asker : askers) asker.join();
  EXPECT_THAT(requests.Ask<QueryReply>("", "", Query(1), kPatience_s),
              StatusIs(kUnavailable, "has stopped"));
}

TEST(LocalRequests, HaveAKeyThatNoHandshakeProves) {
  EXPECT_NE(LocalRequests::kReaderKey.size(), 40);
  Incoming incoming;
  incoming.public_key = std::string(LocalRequests::kReaderKey);
  EXPECT_TRUE(LocalRequests::IsReader(incoming));
  incoming.public_key = "";
  EXPECT_FALSE(LocalRequests::IsReader(incoming));
}

}  // namespace
}  // namespace gavel::testing
