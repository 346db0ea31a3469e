#include "coordinator/server/outbox.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace gavel::testing {
namespace {

WorkerKey Key(uint64_t job) { return {JobId(job), 0, 1}; }

Action Notice(uint64_t job, uint64_t epoch = 1) {
  return action::SendToWorker{Key(job), LeaseNotice{Key(job), {1, 1}, epoch}};
}

Action Stop(const std::string& server) {
  return action::SendToAgent{server, StopWorker{server, Key(1), {1, 1}, 0}};
}

// Of the next message: job and epoch of a notice.
std::pair<uint64_t, uint64_t> NextNotice(Outbox& outbox) {
  const std::optional<Action> next = outbox.Next();
  if (!next.has_value()) return {0, 0};
  const auto& send = std::get<action::SendToWorker>(*next);
  return {send.worker.job.value(), std::get<LeaseNotice>(send.message).epoch};
}

TEST(Outbox, AFewMessagesNeedNotWait) {
  Outbox outbox;
  Action notice = Notice(1);
  EXPECT_FALSE(outbox.Take(notice, /*of_many=*/false));
  // It is as it was.
  EXPECT_EQ(std::get<action::SendToWorker>(notice).worker, Key(1));
  EXPECT_TRUE(outbox.empty());
  EXPECT_FALSE(outbox.Next().has_value());
}

TEST(Outbox, ManyWaitInOrder) {
  Outbox outbox;
  for (uint64_t job = 1; job <= 200; ++job) {
    Action notice = Notice(job);
    EXPECT_TRUE(outbox.Take(notice, /*of_many=*/true));
  }
  for (uint64_t job = 1; job <= 200; ++job) {
    EXPECT_EQ(NextNotice(outbox).first, job);
  }
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, NothingOvertakesWhatWaitsForTheSameReceiver) {
  Outbox outbox;
  for (uint64_t job = 1; job <= 2; ++job) {
    Action notice = Notice(job, 1);
    ASSERT_TRUE(outbox.Take(notice, /*of_many=*/true));
  }
  Action stop = Stop("a");
  ASSERT_TRUE(outbox.Take(stop, /*of_many=*/true));
  Action later = Notice(1, 2);
  EXPECT_TRUE(outbox.Take(later, /*of_many=*/false));
  Action other = Notice(3, 2);
  EXPECT_FALSE(outbox.Take(other, /*of_many=*/false));
  Action same_agent = Stop("a");
  EXPECT_TRUE(outbox.Take(same_agent, /*of_many=*/false));
  Action other_agent = Stop("b");
  EXPECT_FALSE(outbox.Take(other_agent, /*of_many=*/false));

  EXPECT_EQ(NextNotice(outbox), std::make_pair(uint64_t{1}, uint64_t{1}));
  EXPECT_EQ(NextNotice(outbox), std::make_pair(uint64_t{2}, uint64_t{1}));
  // Its turn is over: the next one goes at once.
  Action second = Notice(2, 2);
  EXPECT_FALSE(outbox.Take(second, /*of_many=*/false));
  ASSERT_TRUE(outbox.Next().has_value());
  EXPECT_EQ(NextNotice(outbox), std::make_pair(uint64_t{1}, uint64_t{2}));
  ASSERT_TRUE(outbox.Next().has_value());
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, OnlyMessagesToPeersWait) {
  Outbox outbox;
  Action row = action::Persist{1, 1, 0, "row"};
  EXPECT_FALSE(outbox.Take(row, /*of_many=*/true));
  Action reply = action::Reply{1, JobId(1), ""};
  EXPECT_FALSE(outbox.Take(reply, /*of_many=*/true));
  Action halt = action::Halt{"why"};
  EXPECT_FALSE(outbox.Take(halt, /*of_many=*/true));
  // It is for who has just said hello, not for the agent of that name.
  Action rejected =
      action::SendToAgent{"a", AgentRejected{"a", {1, 1}, "no", 1}};
  EXPECT_FALSE(outbox.Take(rejected, /*of_many=*/true));
}

}  // namespace
}  // namespace gavel::testing
