#include "coordinator/server/incoming.h"

#include <cmath>
#include <limits>
#include <variant>

#include "tests/support/test.h"

namespace gavel::testing {
namespace {

const WorkerKey kWorker{JobId(3), 1, 2};

template <class T>
T FromWorker(const WorkerKey& worker = kWorker) {
  T message;
  message.worker = worker;
  return message;
}

template <class T>
T FromServer(const std::string& server = "here") {
  T message;
  message.server = server;
  return message;
}

WorkerExited Exited(int exit_code) {
  auto message = FromServer<WorkerExited>();
  message.worker = kWorker;
  message.exit_code = exit_code;
  return message;
}

AgentHello Hello() {
  AgentHello hello;
  hello.server = "here";
  hello.incarnation = 4;
  hello.accelerators = {{"v100", "here-0"}};
  return hello;
}

template <class T>
T EventFrom(Message message) {
  EXPECT_OK(CheckMessage(message));
  const std::optional<Event> event = EventOf(std::move(message));
  EXPECT_TRUE(event.has_value() && std::holds_alternative<T>(*event));
  return std::get<T>(event.value());
}

TEST(Incoming, EachMessageOfAWorkerIsItsEvent) {
  EXPECT_EQ(
      EventFrom<event::WorkerJoined>(FromWorker<WorkerHello>()).hello.worker,
      kWorker);
  EXPECT_EQ(EventFrom<event::LeaseRequested>(FromWorker<LeaseRequest>())
                .request.worker,
            kWorker);
  EXPECT_EQ(EventFrom<event::StepsReported>(FromWorker<StepReport>()).worker,
            kWorker);
  EXPECT_EQ(EventFrom<event::LeaseEnded>(FromWorker<LeaseReleased>()).worker,
            kWorker);
  EXPECT_EQ(EventFrom<event::WorkerSaidFinished>(FromWorker<WorkerFinished>())
                .message.worker,
            kWorker);
}

TEST(Incoming, APositionThatIsShownGoesWithTheEvent) {
  LeaseReleased released = FromWorker<LeaseReleased>();
  released.highest_seen = {2, 300};
  EXPECT_EQ(EventFrom<event::LeaseEnded>(released).highest_seen,
            released.highest_seen);
  StepReport report = FromWorker<StepReport>();
  report.highest_seen = {2, 300};
  EXPECT_EQ(EventFrom<event::StepsReported>(report).highest_seen,
            report.highest_seen);
}

TEST(Incoming, AReleaseKeepsItsCause) {
  LeaseReleased released = FromWorker<LeaseReleased>();
  released.cause = ReleaseCause::kOutOfMemory;
  EXPECT_EQ(EventFrom<event::LeaseEnded>(released).cause,
            ReleaseCause::kOutOfMemory);
}

TEST(Incoming, AGangsAddressThatIsNoNameIsDropped) {
  LeaseRequest request = FromWorker<LeaseRequest>();
  for (const auto& [told, taken] :
       {std::pair<std::string, std::string>{"10.0.0.7:4100", "10.0.0.7:4100"},
        {"10.0.0.7\x1b[2J", ""},
        {std::string(5000, 'a'), ""}}) {
    request.gang_address = told;
    EXPECT_EQ(EventFrom<event::LeaseRequested>(request).request.gang_address,
              taken);
  }
}

TEST(Incoming, EachMessageOfAnAgentIsItsEvent) {
  EXPECT_EQ(EventFrom<event::ServerJoined>(Hello()).hello.incarnation, 4u);
  EXPECT_EQ(EventFrom<event::AgentHeard>(FromServer<AgentHeartbeat>())
                .heartbeat.server,
            "here");
  EXPECT_EQ(EventFrom<event::WorkerGone>(Exited(5)).exit.exit_code, 5);
  EXPECT_EQ(EventFrom<event::ProcessBegan>(FromServer<WorkerLaunched>())
                .launched.server,
            "here");
}

TEST(Incoming, TheEngineDoesNotSeeTheOthers) {
  EXPECT_FALSE(EventOf(SubmitRequest{}).has_value());
  EXPECT_FALSE(EventOf(LeaseGrant{}).has_value());  // of no coordinator
}

TEST(Incoming, KnowsWhoSentIt) {
  EXPECT_EQ(SendingWorker(FromWorker<LeaseRequest>()), kWorker);
  EXPECT_EQ(SendingWorker(Hello()), std::nullopt);
  // Names a worker, but comes from its agent.
  EXPECT_EQ(SendingWorker(Exited(0)), std::nullopt);
  EXPECT_EQ(SendingAgent(Exited(0)), "here");
  EXPECT_EQ(SendingAgent(FromServer<LaunchWorker>()), std::nullopt);
}

TEST(Incoming, NamesThatWouldBePathsAreRefused) {
  AgentHello hello = Hello();
  hello.server = "../etc";
  EXPECT_THAT(CheckMessage(hello), IsInvalid("name"));
  hello = Hello();
  hello.accelerators[0].uuid = "../../lock";
  EXPECT_THAT(CheckMessage(hello), IsInvalid("uuid"));
  hello = Hello();
  hello.accelerators[0].type = "v100\x1b[2J";
  EXPECT_THAT(CheckMessage(hello), IsInvalid("here-0: its type"));
  EXPECT_THAT(CheckMessage(FromServer<AgentHeartbeat>("a b")),
              IsInvalid("name"));
}

TEST(Incoming, FiguresThatCannotBeAreRefused) {
  AgentHello hello = Hello();
  hello.accelerators[0].slow_down_factor =
      std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(CheckMessage(hello), IsInvalid("slow_down_factor"));
  hello = Hello();
  hello.accelerators[0].threads = 0;
  EXPECT_THAT(CheckMessage(hello), IsInvalid("threads"));
  EXPECT_THAT(CheckMessage(FromWorker<WorkerHello>({JobId(1), -1, 1})),
              IsInvalid("no such worker"));
  EXPECT_THAT(CheckMessage(FromWorker<LeaseRequest>({JobId(), 0, 1})),
              IsInvalid("no such worker"));
}

TEST(Incoming, ReportsAreBounded) {
  auto report = FromWorker<StepReport>();
  report.progress.throughput_steps_per_s =
      std::numeric_limits<double>::infinity();
  report.progress.window_s = -1;
  report.progress.pausing_s = std::numeric_limits<double>::quiet_NaN();
  report.progress.scalars.assign(
      1000, {std::string(5000, 'n'), std::numeric_limits<double>::quiet_NaN()});
  const Progress bounded = EventFrom<event::StepsReported>(report).progress;
  EXPECT_EQ(bounded.throughput_steps_per_s, 0);
  EXPECT_EQ(bounded.window_s, 0);
  EXPECT_EQ(bounded.pausing_s, 0);
  ASSERT_EQ(bounded.scalars.size(), kScalarsMax);
  EXPECT_EQ(bounded.scalars[0].first.size(), kNameBytesMax);
  EXPECT_TRUE(std::isnan(bounded.scalars[0].second));  // worth seeing
}

TEST(Incoming, LongErrorsAreCut) {
  WorkerExited exited = Exited(0);
  exited.launch_error = std::string(10'000, 'e');
  EXPECT_EQ(EventFrom<event::WorkerGone>(exited).exit.launch_error.size(),
            kErrorBytesMax);
}

// It is shown on terminals.
TEST(Incoming, ErrorLinesAreMadePrintable) {
  WorkerExited exited = Exited(1);
  exited.error_line = "\x1b[2Jbad\n" + std::string(10'000, 'e');
  const std::string line = EventFrom<event::WorkerGone>(exited).exit.error_line;
  EXPECT_EQ(line.size(), kErrorLineCharactersMax);
  EXPECT_TRUE(line.starts_with("bade"));
}

// A command, a directory, and the name of a figure are what a user likes.
TEST(Incoming, TextsOfUsersAreMadePrintable) {
  WorkerExited exited = Exited(1);
  exited.launch_error = "./\x1b[2Jtrain: no such\nfile";
  EXPECT_EQ(EventFrom<event::WorkerGone>(exited).exit.launch_error,
            "./train: no suchfile");
  StepReport report;
  report.worker = exited.worker;
  report.progress.scalars = {{"lo\x1b]0;x\x07ss", 1}, {"accuracy", 2}};
  const auto scalars = EventFrom<event::StepsReported>(report).progress.scalars;
  EXPECT_EQ(scalars[0].first, "loss");
  EXPECT_EQ(scalars[1].first, "accuracy");
}

}  // namespace
}  // namespace gavel::testing
