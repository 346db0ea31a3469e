#include "coordinator/server/peer_links.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

WorkerKey Key(uint64_t job) { return {JobId(job), 0, 1}; }

Action Notice(uint64_t job, uint64_t epoch = 1) {
  return action::SendToWorker{Key(job), LeaseNotice{Key(job), {1, 1}, epoch}};
}

Action Stop(const std::string& server) {
  return action::SendToAgent{server, StopWorker{server, Key(1), {1, 1}, 0}};
}

// The job and the epoch of a notice.
using JobAndEpoch = std::pair<uint64_t, uint64_t>;

JobAndEpoch NoticeIn(const Action& action) {
  const auto& send = std::get<action::SendToWorker>(action);
  return {send.worker.job.value(), std::get<LeaseNotice>(send.message).epoch};
}

JobAndEpoch NextNotice(SendQueue& outbox) {
  const std::optional<Action> next = outbox.Next();
  return next.has_value() ? NoticeIn(*next) : JobAndEpoch{0, 0};
}

class OutboxTest : public Test {
 protected:
  SendQueue outbox;
};

TEST_F(OutboxTest, AFewMessagesNeedNotWait) {
  const auto now = outbox.Take(Notice(1), /*of_many=*/false);
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(NoticeIn(now[0]), JobAndEpoch(1, 1));
  EXPECT_TRUE(outbox.empty());
  EXPECT_FALSE(outbox.Next().has_value());
}

TEST_F(OutboxTest, ManyWaitInOrder) {
  for (uint64_t job = 1; job <= 200; ++job) {
    EXPECT_TRUE(outbox.Take(Notice(job), /*of_many=*/true).empty());
  }
  for (uint64_t job = 1; job <= 200; ++job) {
    EXPECT_EQ(NextNotice(outbox).first, job);
  }
  EXPECT_TRUE(outbox.empty());
}

// The messages that wait for a receiver go out before the answer to its
// request. They do not wait behind those for all others.
TEST_F(OutboxTest, AnAnswerTakesWithItWhatWaitsForItsReceiver) {
  for (const uint64_t epoch : {1, 2}) {
    for (uint64_t job = 1; job <= 3; ++job) {
      EXPECT_TRUE(outbox.Take(Notice(job, epoch), /*of_many=*/true).empty());
    }
  }
  const auto now = outbox.Take(Notice(2, 3), /*of_many=*/false);
  ASSERT_EQ(now.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(NoticeIn(now[i]), JobAndEpoch(2, i + 1));
  EXPECT_EQ(outbox.Take(Notice(2, 4), /*of_many=*/false).size(), 1u);
  EXPECT_EQ(outbox.Take(Notice(9), /*of_many=*/false).size(), 1u);
  for (const JobAndEpoch& next : {JobAndEpoch(1, 1), JobAndEpoch(3, 1),
                                  JobAndEpoch(1, 2), JobAndEpoch(3, 2)}) {
    EXPECT_EQ(NextNotice(outbox), next);
  }
  EXPECT_TRUE(outbox.empty());
}

TEST_F(OutboxTest, AgentsAreReceiversToo) {
  EXPECT_TRUE(outbox.Take(Stop("a"), /*of_many=*/true).empty());
  EXPECT_TRUE(outbox.Take(Stop("b"), /*of_many=*/true).empty());
  EXPECT_EQ(outbox.Take(Stop("b"), /*of_many=*/false).size(), 2u);
  EXPECT_EQ(outbox.Take(Notice(1), /*of_many=*/false).size(), 1u);
  const std::optional<Action> next = outbox.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(std::get<action::SendToAgent>(*next).server, "a");
  EXPECT_TRUE(outbox.empty());
}

TEST_F(OutboxTest, OnlyMessagesToPeersWait) {
  const auto is_carried = [&](Action action) {
    return outbox.Take(std::move(action), /*of_many=*/true).size() == 1;
  };
  EXPECT_TRUE(is_carried(action::Persist{1, 1, 0, "row"}));
  EXPECT_TRUE(is_carried(action::Reply{1, JobId(1), ""}));
  EXPECT_TRUE(is_carried(action::Halt{"why"}));
  // The rejection is for the agent that has just said hello, not for the agent
  // that has that name.
  EXPECT_TRUE(is_carried(
      action::SendToAgent{"a", AgentRejected{"a", {1, 1}, "no", 1}}));
}

}  // namespace
}  // namespace gavel::testing
