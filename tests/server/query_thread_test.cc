#include "coordinator/server/query.h"
#include "core/text.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

// Writes an answer of `bytes` bytes to the request of that number.
QueryThread::Write Answer(uint64_t request, size_t bytes) {
  return [=] {
    QueryReply reply;
    reply.request = request;
    reply.json = std::string(bytes, 'x');
    return reply;
  };
}

QueryThread::Answer Wait(QueryThread& thread) {
  std::optional<QueryThread::Answer> answer;
  EXPECT_TRUE(testing::Eventually([&] {
    answer = thread.TakeAnswer();
    return answer.has_value();
  }));
  return answer.value_or(QueryThread::Answer{});
}

TEST(QueryThread, AnswersInTheOrderOfTheQuestions) {
  QueryThread thread(QueryThread::kListings, [] {});
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(thread.Ask(StrCat("peer-", i), "ann", Answer(i, 10)));
  }
  for (uint64_t i = 0; i < 20; ++i) {
    const QueryThread::Answer answer = Wait(thread);
    EXPECT_EQ(answer.peer, StrCat("peer-", i));
    EXPECT_EQ(answer.reply.request, i);
  }
}

// A reader that has used up its allowance of bytes waits, and delays no other
// reader.
TEST(QueryThread, AGreedyReaderWaitsAndNobodyElse) {
  QueryThread thread(QueryThread::kListings, [] {});
  const auto burst = static_cast<size_t>(QueryThread::kListings.bytes_per_s *
                                         RequestRates::kBurst_s);
  EXPECT_TRUE(thread.Ask("greedy", "ann", Answer(1, burst * 3 / 2)));
  EXPECT_EQ(Wait(thread).reply.request, 1u);
  EXPECT_TRUE(thread.Ask("greedy", "ann", Answer(2, 10)));
  EXPECT_TRUE(thread.Ask("modest", "bob", Answer(3, 10)));
  EXPECT_EQ(Wait(thread).peer, "modest");
  EXPECT_FALSE(thread.TakeAnswer().has_value());
}

TEST(QueryThread, OneReaderFillsNoQueue) {
  QueryThread thread(QueryThread::kListings, [] {});
  const auto owes =
      static_cast<size_t>(QueryThread::kListings.bytes_per_s * 60);
  EXPECT_TRUE(thread.Ask("greedy", "ann", Answer(1, owes)));
  Wait(thread);
  for (size_t i = 0; i < QueryThread::kListings.of_one_max; ++i) {
    EXPECT_TRUE(thread.Ask("greedy", "ann", Answer(2, 1)));
  }
  EXPECT_FALSE(thread.Ask("greedy", "ann", Answer(2, 1)));
  EXPECT_TRUE(thread.Ask("modest", "bob", Answer(3, 1)));
  EXPECT_EQ(Wait(thread).peer, "modest");
}

// Answers that nobody has taken count as well, so that they don't fill the
// memory.
TEST(QueryThread, RefusesWhenTooManyWait) {
  QueryThread thread(QueryThread::kHistory, [] {});
  const auto ask = [&](size_t reader) {
    return thread.Ask("peer", StrCat("reader-", reader), Answer(1, 10));
  };
  for (size_t i = 0; i < QueryThread::kHistory.of_all_max; ++i) {
    EXPECT_TRUE(ask(i / QueryThread::kHistory.of_one_max));
  }
  EXPECT_FALSE(ask(99));
  Wait(thread);
  EXPECT_TRUE(ask(99));
}

}  // namespace
}  // namespace gavel
