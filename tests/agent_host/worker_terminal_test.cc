// The agent's end of a terminal: credit, order and bounds.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "coordinator/agent_host/agent_workers.h"
#include "runtime/files/files.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class WorkerTerminalTest : public testing::Test {
 protected:
  WorkerTerminalTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    program_ = Descriptor(ends[0]);
    agent_ = Descriptor(ends[1]);
  }

  TerminalRequest Request(uint64_t client = 7, bool attach = false) {
    TerminalRequest request;
    request.request = ++last_;
    request.client = client;
    request.attach = attach;
    request.offset = offset_;
    return request;
  }
  std::vector<TerminalReply> Ask(TerminalRequest request) {
    return terminal_.Ask(now_, agent_.get(), std::move(request));
  }
  // The bytes that the program can read.
  std::string Typed() {
    std::array<char, 64 * 1024> data{};
    const ssize_t bytes = read(program_.get(), data.data(), data.size());
    return {data.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }

  Time now_ = 100;
  Descriptor program_, agent_;
  uint64_t last_ = 0;
  uint64_t offset_ = 0;
  WorkerTerminal terminal_{WorkerKey{JobId(3), 0, 2}, 0};
};

TEST_F(WorkerTerminalTest, AnswersOnceThereIsOutputOrAfterASecond) {
  EXPECT_TRUE(Ask(Request(7, true)).empty());
  EXPECT_FALSE(terminal_.Answer(now_).has_value());
  terminal_.Add(now_, "abc");
  std::optional<TerminalReply> reply = terminal_.Answer(now_);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->request, 1u);
  EXPECT_EQ(reply->output, "abc");
  EXPECT_FALSE(terminal_.Answer(now_).has_value()) << "one answer a request";
  offset_ = 3;
  EXPECT_TRUE(Ask(Request()).empty());
  EXPECT_FALSE(terminal_.Answer(now_ + 0.9).has_value());
  reply = terminal_.Answer(now_ + 1);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->output, "");
  EXPECT_EQ(reply->offset, 3u);
}

TEST_F(WorkerTerminalTest, ALaterRequestHasTheEarlierOneAnsweredAtOnce) {
  Ask(Request(7, true));
  const std::vector<TerminalReply> replies = Ask(Request());
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].request, 1u);
  EXPECT_EQ(replies[0].error, "");
  terminal_.Add(now_, "x");
  EXPECT_EQ(terminal_.Answer(now_)->request, 2u);
}

TEST_F(WorkerTerminalTest, InputThatIsSentTwiceIsTypedOnce) {
  TerminalRequest request = Request(7, true);
  request.input = "ls";
  Ask(request);
  EXPECT_EQ(Typed(), "ls");
  request = Request();
  request.input = "ls -l";
  EXPECT_EQ(Ask(request)[0].input_taken, 2u);
  EXPECT_EQ(Typed(), " -l");
  request = Request();
  request.input_offset = 90;  // what came before it is lost
  request.input = "rm";
  Ask(request);
  EXPECT_EQ(Typed(), "");
}

TEST_F(WorkerTerminalTest, TakesNoMoreInputThanItHoldsForTheProgram) {
  fcntl(agent_.get(), F_SETPIPE_SZ, 4096);
  TerminalRequest request = Request(7, true);
  request.input = std::string(kTerminalBytesMax, 'a');
  Ask(request);
  request = Request();
  request.input_offset = kTerminalBytesMax;
  request.input = std::string(kTerminalBytesMax, 'b');
  Ask(request);
  const uint64_t taken = Ask(Request())[0].input_taken;
  EXPECT_LE(taken, kTerminalBytesMax + 4096);
  std::string typed;
  for (std::string more = Typed(); !more.empty(); more = Typed()) {
    typed += more;
    terminal_.WriteInput(agent_.get());
  }
  EXPECT_EQ(typed.size(), taken) << "all that it said it took";
}

TEST_F(WorkerTerminalTest, AClientThatIsBehindHoldsUpTheProgram) {
  Ask(Request(7, true));
  EXPECT_TRUE(terminal_.MayRead(now_));
  terminal_.Add(now_, std::string(WorkerTerminal::kUnreadBytesMax, 'x'));
  EXPECT_FALSE(terminal_.MayRead(now_));
  const std::optional<TerminalReply> reply = terminal_.Answer(now_);
  EXPECT_EQ(reply->output.size(), kTerminalBytesMax);
  offset_ = kTerminalBytesMax;
  Ask(Request());
  EXPECT_TRUE(terminal_.MayRead(now_));
  // One that is gone does not.
  terminal_.Add(now_, std::string(WorkerTerminal::kUnreadBytesMax, 'x'));
  EXPECT_FALSE(terminal_.MayRead(now_));
  EXPECT_TRUE(terminal_.MayRead(now_ + WorkerTerminal::kClientGone_s));
}

TEST_F(WorkerTerminalTest, TheEndOfTheOutputIsThereForTheNextClient) {
  terminal_.Add(now_, std::string(100'000, 'x') + "last");
  Ask(Request(7, true));
  const std::optional<TerminalReply> reply = terminal_.Answer(now_);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->offset + reply->output.size(), 100'004u);
  EXPECT_EQ(reply->output.size(), WorkerTerminal::kKeptAloneBytesMax);
  EXPECT_TRUE(reply->output.ends_with("xlast"));
}

TEST_F(WorkerTerminalTest, TheBeginningOfTheOutputWaitsForTheFirstClient) {
  terminal_.Add(1, std::string(WorkerTerminal::kUnreadBytesMax, 'x'));
  EXPECT_FALSE(terminal_.MayRead(1));
  EXPECT_TRUE(terminal_.MayRead(WorkerTerminal::kFirstClient_s));
  now_ = 2;
  Ask(Request(7, true));
  EXPECT_EQ(terminal_.Answer(now_)->offset, 0u);
}

TEST_F(WorkerTerminalTest, TheLastClientThatAttachedHasIt) {
  Ask(Request(7, true));
  std::vector<TerminalReply> replies = Ask(Request(8, true));
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_TRUE(replies[0].refused);
  EXPECT_THAT(replies[0].error, HasSubstr("another client has attached"));
  TerminalRequest late = Request(7);
  late.input = "rm";
  replies = Ask(late);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_TRUE(replies[0].refused);
  EXPECT_EQ(Typed(), "");
}

TEST_F(WorkerTerminalTest, TellsOfTheEndBehindTheLastOutput) {
  Ask(Request(7, true));
  terminal_.Add(now_, std::string(kTerminalBytesMax + 1, 'x'));
  terminal_.End();
  EXPECT_FALSE(terminal_.Answer(now_)->ended);
  offset_ = kTerminalBytesMax;
  Ask(Request());
  const std::optional<TerminalReply> reply = terminal_.Answer(now_);
  EXPECT_TRUE(reply->ended);
  EXPECT_EQ(reply->output, "x");
}

TEST_F(WorkerTerminalTest, TellsOfUseAtMostEveryFewSeconds) {
  EXPECT_FALSE(terminal_.TakeActive(now_));
  terminal_.Add(now_, "x");
  EXPECT_TRUE(terminal_.TakeActive(now_));
  terminal_.Add(now_, "y");
  EXPECT_FALSE(terminal_.TakeActive(now_ + 4));
  EXPECT_TRUE(terminal_.TakeActive(now_ + 5));
  EXPECT_FALSE(terminal_.TakeActive(now_ + 20));
  // Neither asking for output nor a notice is use.
  Ask(Request(7, true));
  terminal_.Tell("idle");
  EXPECT_FALSE(terminal_.TakeActive(now_ + 30));
  EXPECT_THAT(terminal_.Answer(now_)->output, HasSubstr("[gavel: idle]"));
}

}  // namespace
}  // namespace gavel
