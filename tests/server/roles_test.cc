// Tests every role with every message of the protocol, and which jobs belong to
// which user.
#include <array>
#include <cstddef>
#include <variant>

#include "coordinator/server/principals.h"
#include "core/codec.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr auto kDenied = absl::StatusCode::kPermissionDenied;

// The messages that each role may send, written down a second time: a letter
// for each role that may, in the order of Role (user, operator, viewer, node,
// worker).
const std::map<std::string, std::string> kExpected = {
    {"WorkerHello", "....w"},       {"LeaseRequest", "....w"},
    {"StepReport", "....w"},        {"LeaseReleased", "....w"},
    {"WorkerFinished", "....w"},    {"BytesMoved", "....w"},
    {"AgentHello", "...n."},        {"AgentHeartbeat", "...n."},
    {"WorkerLaunched", "...n."},    {"WorkerExited", "...n."},
    {"FetchProgress", "...n."},     {"LogReply", "...n."},
    {"SubmitRequest", "uo..."},     {"CommandRequest", "uo..."},
    {"LogRequest", "uo..."},        {"QueryRequest", "uov.."},
    {"LeaseGrant", "....."},        {"LeaseDenied", "....."},
    {"LeaseNotice", "....."},       {"PauseRequest", "....."},
    {"WorkerRejected", "....."},    {"AgentWelcome", "....."},
    {"AgentRejected", "....."},     {"LaunchWorker", "....."},
    {"StopWorker", "....."},        {"ExitAcknowledged", "....."},
    {"SubmitReply", "....."},       {"CommandReply", "....."},
    {"QueryReply", "....."},        {"PrefetchCheckpoint", "....."},
    {"ServeCheckpoint", "....."},   {"AgentLeaving", "...n."},
    {"CheckpointRequest", "....."}, {"BidderHello", "uo..."},
    {"BidReply", "uo..."},          {"DivideReply", "uo..."},
    {"BidRequest", "....."},        {"DivideRequest", "....."},
    {"BidderNotice", "....."},      {"TerminalRequest", "uo..."},
    {"TerminalReply", "...n."},     {"TerminalActive", "...n."},
    {"TerminalNotice", "....."},    {"AppGoalRequest", "uo..."},
};

template <size_t... index>
std::array<Message, sizeof...(index)> OneOfEach(std::index_sequence<index...>) {
  return {Message(std::in_place_index<index>)...};
}

TEST(Roles, EveryRoleSendsExactlyWhatTheTableSays) {
  const auto messages = OneOfEach(
      std::make_index_sequence<std::variant_size_v<MessageVariant>>());
  EXPECT_EQ(kExpected.size(), messages.size());
  for (const Message& message : messages) {
    const std::string name(MessageName(message));
    const auto expected = kExpected.find(name);
    ASSERT_NE(expected, kExpected.end())
        << name << " is new: decide who may send it, here and in principals.cc";
    for (size_t role = 0; role < kRoleNames.size(); ++role) {
      const bool allowed = expected->second[role] != '.';
      EXPECT_EQ(MaySend(static_cast<Role>(role), message), allowed)
          << kRoleNames[role] << " sends " << name;
      // Authorize refuses at least the messages that the table refuses.
      if (allowed) continue;
      Identity sender;
      sender.name = "somebody";
      sender.role = static_cast<Role>(role);
      EXPECT_THAT(Authorize(sender, message, {}), StatusIs(kDenied, name));
    }
  }
}

TEST(Roles, NoFileMakesAWorker) {
  EXPECT_EQ(FindRole("user"), Role::kUser);
  EXPECT_EQ(FindRole("node"), Role::kNode);
  EXPECT_FALSE(FindRole("worker").has_value());
  EXPECT_FALSE(FindRole("").has_value());
  EXPECT_FALSE(FindRole("Operator").has_value());
}

class Authorization : public Test {
 protected:
  Authorization() {
    jobs_[JobId(1)].spec.owner = "alice";
    jobs_[JobId(2)].spec.owner = "bob";
  }
  absl::Status Ask(const Identity& sender, const Message& message) const {
    return Authorize(sender, message, jobs_);
  }
  static Identity User(const std::string& name, Role role = Role::kUser) {
    return {name, role, name, WorkerKey()};
  }
  static Message Command(CommandKind kind, uint64_t job) {
    return CommandRequest{1, kind, JobId(job)};
  }

  std::map<JobId, Job> jobs_;
};

TEST_F(Authorization, AUserTouchesItsOwnJobsOnly) {
  const Identity alice = User("alice");
  for (const CommandKind kind :
       {CommandKind::kCancel, CommandKind::kRelease, CommandKind::kHold,
        CommandKind::kRequeue, CommandKind::kCheckpoint,
        CommandKind::kUpdate}) {
    EXPECT_OK(Ask(alice, Command(kind, 1)));
    EXPECT_THAT(Ask(alice, Command(kind, 2)),
                StatusIs(kDenied, "job 2 is not yours"));
    // The engine reports that there is no such job.
    EXPECT_OK(Ask(alice, Command(kind, 3)));
  }
  EXPECT_OK(Ask(alice, LogRequest{1, {JobId(1), 0}, 0}));
  EXPECT_THAT(Ask(alice, LogRequest{1, {JobId(2), 0}, 0}),
              StatusIs(kDenied, "not yours"));
  EXPECT_THAT(Ask(alice, Command(CommandKind::kShutdown, 0)),
              StatusIs(kDenied, "only an operator"));
  EXPECT_THAT(Ask(alice, Command(CommandKind::kShutdown, 1)),
              StatusIs(kDenied, "only an operator"));
}

TEST_F(Authorization, ATerminalIsForTheOwnerOfTheJobAlone) {
  TerminalRequest request;
  request.worker = {JobId(1), 0, 0};
  EXPECT_OK(Ask(User("alice"), request));
  for (const Identity& other : {User("bob"), User("root", Role::kOperator)}) {
    EXPECT_THAT(Ask(other, request),
                StatusIs(kDenied, "the terminal of job 1 is for its owner"));
  }
}

TEST_F(Authorization, AnArrayIsItsOwnersAsItsElementsAre) {
  for (const uint64_t id : {11, 12}) {
    jobs_[JobId(id)].spec.owner = "bob";
    jobs_[JobId(id)].array = JobId(10);
  }
  EXPECT_THAT(Ask(User("alice"), Command(CommandKind::kCancel, 10)),
              StatusIs(kDenied, "job 10 is not yours"));
  EXPECT_OK(Ask(User("bob"), Command(CommandKind::kCancel, 10)));
  jobs_.erase(JobId(11));
  EXPECT_THAT(Ask(User("alice"), Command(CommandKind::kCancel, 10)),
              StatusIs(kDenied, "job 10 is not yours"));
}

TEST_F(Authorization, OnlyAnOperatorTouchesTheCluster) {
  for (const CommandKind kind :
       {CommandKind::kShutdown, CommandKind::kDrain, CommandKind::kResume,
        CommandKind::kForget, CommandKind::kPolicy, CommandKind::kNotify}) {
    EXPECT_THAT(Ask(User("alice"), Command(kind, 0)),
                StatusIs(kDenied, "only an operator"));
    EXPECT_OK(Ask(User("root", Role::kOperator), Command(kind, 0)));
  }
}

TEST_F(Authorization, AnOperatorTouchesAll) {
  const Identity root = User("root", Role::kOperator);
  EXPECT_OK(Ask(root, Command(CommandKind::kCancel, 1)));
  EXPECT_OK(Ask(root, Command(CommandKind::kCancel, 2)));
  EXPECT_OK(Ask(root, Command(CommandKind::kShutdown, 0)));
  EXPECT_OK(Ask(root, LogRequest{1, {JobId(2), 0}, 0}));
}

TEST_F(Authorization, ANodeSpeaksForItsOwnServerOnly) {
  const Identity node = User("gpu-1", Role::kNode);
  AgentHello hello;
  hello.server = "gpu-1";
  EXPECT_OK(Ask(node, hello));
  hello.server = "gpu-2";
  EXPECT_THAT(Ask(node, hello), StatusIs(kDenied, "server gpu-2"));
  AgentHeartbeat beat;
  beat.server = "gpu-2";
  EXPECT_THAT(Ask(node, beat), StatusIs(kDenied, "server gpu-2"));
  WorkerLaunched launched;
  launched.server = "gpu-2";
  EXPECT_THAT(Ask(node, launched), StatusIs(kDenied, "server gpu-2"));
  WorkerExited exited;
  exited.server = "gpu-2";
  EXPECT_THAT(Ask(node, exited), StatusIs(kDenied, "server gpu-2"));
}

TEST_F(Authorization, AWorkerSpeaksForItselfOnly) {
  Identity worker = User("job 1 rank 0", Role::kWorker);
  worker.worker = {JobId(1), 0, 5};
  LeaseRequest request;
  request.worker = {JobId(1), 0, 5};
  EXPECT_OK(Ask(worker, request));
  for (const WorkerKey& other :
       {WorkerKey{JobId(2), 0, 5}, WorkerKey{JobId(1), 1, 5},
        WorkerKey{JobId(1), 0, 6}}) {
    request.worker = other;
    EXPECT_THAT(Ask(worker, request), StatusIs(kDenied, "another worker"));
    WorkerFinished finished;
    finished.worker = other;
    EXPECT_THAT(Ask(worker, finished), StatusIs(kDenied, "another worker"));
  }
}

}  // namespace
}  // namespace gavel
