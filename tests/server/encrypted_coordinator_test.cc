// A coordinator with keys, over real sockets: which user may do what.
#include <filesystem>

#include "coordinator/server/audit_log.h"
#include "coordinator/server/principals.h"
#include "core/codec.h"
#include "core/text.h"
#include "runtime/transport/dealer_router.h"
#include "tests/server/encrypted_coordinator_fixture.h"
#include "tests/support/files.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr double kShort_s = 0.5;

TEST_F(EncryptedCoordinator, AUserSubmitsAndCancelsItsOwnButNotAnothers) {
  FakeClient alice = Client("alice");
  FakeClient bob = Client("bob");
  const SubmitReply submitted = alice.SubmitNamed("a");
  EXPECT_EQ(submitted.error, "");
  EXPECT_THAT(bob.Command(CommandKind::kCancel, submitted.job).error,
              HasSubstr("job 1 is not yours"));
  EXPECT_THAT(bob.Command(CommandKind::kShutdown).error,
              HasSubstr("only an operator"));
  EXPECT_EQ(alice.Command(CommandKind::kCancel, submitted.job).error, "");
  const SubmitReply second = alice.SubmitNamed("b");
  EXPECT_EQ(Client("olga").Command(CommandKind::kCancel, second.job).error, "");
  const std::string audit = Audit();
  EXPECT_THAT(audit, HasSubstr(R"("who":"alice","role":"user")"));
  EXPECT_THAT(audit, HasSubstr(R"("action":"submit","object":"job 1 a")"));
  EXPECT_THAT(audit, HasSubstr(R"("who":"bob","role":"user")"));
  EXPECT_THAT(audit, HasSubstr("refused: user bob: job 1 is not yours"));
  EXPECT_THAT(audit, HasSubstr(R"("who":"olga","role":"operator")"));
}

// The program prints a password as it fails.
TEST_F(EncryptedCoordinator, WhatAProgramWroteIsShownToItsOwnerAndOperators) {
  FakeAgent agent(Endpoint(), "here", 1, As("here"));
  ASSERT_TRUE(agent.Join(1).has_value());
  const SubmitReply submitted = Client("alice").Submit(
      "name = \"a\"\ncommand = [\"./train\"]\nretries_max = 1\n"
      "checkpoint_directory = \"/home/hunter2\"\n");
  ASSERT_EQ(submitted.error, "");
  const auto launch = agent.Receive<LaunchWorker>();
  ASSERT_TRUE(launch.has_value());
  WorkerExited exit;
  exit.server = "here";
  exit.worker = launch->worker;
  exit.exit_code = 3;
  exit.error_line = "Error: password=hunter2";
  agent.Send(exit);
  FakeClient alice = Client("alice");
  const nlohmann::json held = alice.WaitForRow(
      submitted.job,
      [](const nlohmann::json& row) { return row["state"] == "F"; });
  ASSERT_TRUE(held.is_object());
  const auto history = [&](FakeClient& reader) {
    QueryRequest asked{7, QueryKind::kHistory, submitted.job};
    asked.filter = "{}";
    reader.Send(asked);
    return reader.Receive<QueryReply>().value_or(QueryReply{}).json;
  };
  EXPECT_TRUE(Eventually([&] {
    return history(alice).find(R"("state":"F")") != std::string::npos;
  }));
  for (const char* name : {"alice", "olga", "bob", "vera"}) {
    SCOPED_TRACE(name);
    const bool may_read =
        name == std::string("alice") || name == std::string("olga");
    FakeClient reader = Client(name);
    const std::string queue = reader.Query(QueryKind::kQueue).dump();
    for (const std::string& seen :
         {queue, reader.Query(QueryKind::kQueue, submitted.job).dump(),
          reader.Query(QueryKind::kWhy, submitted.job).dump(),
          history(reader)}) {
      EXPECT_EQ(seen.find("hunter2") != std::string::npos, may_read) << seen;
    }
    EXPECT_THAT(queue, HasSubstr(R"("exit_code":3)"));
  }
}

TEST_F(EncryptedCoordinator, AQuotaIsKeptAndNamed) {
  FakeClient alice = Client("alice");
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(alice.SubmitNamed(name).error, "");
  }
  EXPECT_THAT(alice.SubmitNamed("d").error, HasSubstr("the quota is 3"));
  EXPECT_EQ(Client("bob").SubmitNamed("d").error, "");
  EXPECT_EQ(Client("olga").SubmitNamed("e").error, "");
}

TEST_F(EncryptedCoordinator, ASubmissionIsCheckedWithoutBeingMade) {
  FakeClient alice = Client("alice");
  ASSERT_EQ(Client("bob").SubmitNamed("prepare").error, "");
  ASSERT_EQ(alice.SubmitNamed("a").error, "");
  const std::string plain = "name = \"n\"\ncommand = [\"./train\"]\n";
  EXPECT_EQ(alice.WhyNotAdmitted(plain), "");
  const auto expect_same = [&](const std::string& toml, const char* error) {
    EXPECT_THAT(alice.WhyNotAdmitted(toml), HasSubstr(error));
    EXPECT_EQ(alice.WhyNotAdmitted(toml), alice.Submit(toml).error);
  };
  expect_same(plain + "after = [\"1\"]\n", "which is another user's");
  expect_same("name = \"a\"\ncommand = [\"./train\"]\n", "the name is taken");
  expect_same("name = 1", "job.toml");
  for (const char* name : {"b", "c"}) {
    EXPECT_EQ(alice.SubmitNamed(name).error, "");
  }
  expect_same(plain, "the quota is 3");
  EXPECT_EQ(Client("olga").WhyNotAdmitted(plain), "");
  EXPECT_EQ(Client("vera").Query(QueryKind::kQueue).size(), 4u);
}

TEST_F(EncryptedCoordinator, TheAuditLogSaysWhyACommandWasNotDone) {
  const std::string error =
      Client("olga").Command(CommandKind::kCancel, JobId(99)).error;
  EXPECT_NE(error, "");
  EXPECT_THAT(Audit(), HasSubstr(StrCat(R"("result":"not done: )",
                                        error.substr(0, 10))));
}

TEST_F(EncryptedCoordinator, WhoFailsWithoutEndDoesNotFillTheAuditLog) {
  FakeClient alice = Client("alice");
  for (int i = 0; i < 200; ++i) {
    EXPECT_NE(alice.Command(CommandKind::kCancel, JobId(99)).error, "");
    EXPECT_NE(alice.Submit("name = 1").error, "");
  }
  EXPECT_EQ(alice.SubmitNamed("a").error, "");
  EXPECT_EQ(Client("olga").Command(CommandKind::kCancel, JobId(1)).error, "");
  const std::string audit = Audit();
  // Every command that was carried out is in the log, and so is the number of
  // refusals that were left out.
  EXPECT_THAT(audit, HasSubstr(R"("object":"job 1 a","result":"done")"));
  EXPECT_THAT(audit, HasSubstr(R"("left_out":)"));
  EXPECT_LE(std::ranges::count(audit, '\n'),
            AuditLog::kRefusalsPerMinuteMax + 2);
}

TEST_F(EncryptedCoordinator, RefusedHandshakesAreInTheAuditLog) {
  const CurveKeyPair stranger = NewCurveKeyPair().value();
  const auto unknown = Dealer::Connect(Endpoint(), {As(stranger)}).value();
  EXPECT_FALSE(unknown->WaitForLink(kPatience_s));
  EXPECT_EQ(unknown->link().state, LinkState::kRefused);
  const auto alice = Dealer::Connect(Endpoint(), {As("alice")}).value();
  ASSERT_TRUE(alice->WaitForLink(kPatience_s));
  Revoke("alice");
  // The coordinator reads the list of keys again and cuts the connection at her
  // next message.
  EXPECT_TRUE(Eventually([&] {
    alice->Send(QueryRequest{}).IgnoreError();
    alice->Receive(0.1).IgnoreError();
    alice->WaitForLink(0);
    return alice->link().revoked();
  }));
  EXPECT_EQ(alice->link().state, LinkState::kRevoked);
  EXPECT_TRUE(IsAudited("the key of alice (user) was revoked"));
  const std::string audit = Audit();
  EXPECT_THAT(audit, HasSubstr(StrCat("key ", stranger.public_key)));
  EXPECT_THAT(audit, HasSubstr("no principal and no worker has this key"));
}

// The limit also counts requests that are refused or that only read, and it
// applies to no other user.
TEST_F(EncryptedCoordinator, WhoAsksTooOftenIsToldSoThenCut) {
  EXPECT_OK(coordinator_->Stop());
  requests_per_s_max_ = 5;  // and fifty at once
  Start();
  FakeClient vera = Client("vera");
  for (int i = 0; i < 5; ++i) vera.Query(QueryKind::kStatus);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(vera.SubmitNamed("a").error, HasSubstr("may not send"));
  }
  std::string error;
  EXPECT_TRUE(Eventually([&] {
    error = vera.SubmitNamed("a").error;
    return error.find("--quota-requests") != std::string::npos;
  }));
  EXPECT_THAT(error, HasSubstr("viewer vera asks for more than its requests"));
  // vera sends without a pause and does not read the answers.
  for (int i = 0; i < 2 * Router::kOffencesMax; ++i) {
    QueryRequest query;
    query.kind = QueryKind::kForecast;
    vera.Send(query);
  }
  FakeClient olga = Client("olga");
  const auto kept_out = [&](const char* what) {
    return olga.Query(QueryKind::kStatus)["kept_out"][what].get<int>();
  };
  EXPECT_TRUE(Eventually([&] { return kept_out("connections_cut") > 0; }));
  EXPECT_GT(kept_out("messages_refused"), Router::kOffencesMax);
  // Operators and all other users are still served.
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(olga.Query(QueryKind::kStatus).is_object());
  }
  EXPECT_EQ(Client("alice").SubmitNamed("a").error, "");
}

TEST_F(EncryptedCoordinator, ANewKeyIsKnownAndARevokedOneRefusedLive) {
  FakeClient alice = Client("alice");
  EXPECT_TRUE(alice.Query(QueryKind::kStatus).is_object());
  Revoke("alice");
  Allow("carol", Role::kViewer);
  EXPECT_TRUE(Client("carol").Query(QueryKind::kStatus).is_object());
  EXPECT_TRUE(IsAudited("carol (viewer) added"));
  EXPECT_TRUE(IsAudited("alice (user) revoked"));
  // The revocation alone does not cut her open connection, but the coordinator
  // does nothing for it.
  alice.Send(SubmitRequest{7, "job.toml", "name = \"x\"\ncommand = [\"./x\"]\n",
                           "/jobs"});
  const auto reply = alice.Receive<SubmitReply>(kShort_s);
  EXPECT_TRUE(!reply.has_value() || !reply->error.empty());
  EXPECT_TRUE(Client("olga").Query(QueryKind::kQueue).empty());
  FakePeer again(Endpoint(), As("alice"));
  EXPECT_FALSE(again.Connects(kShort_s));
}

TEST_F(EncryptedCoordinator, AWorkerProvesItselfByTheKeyThatItsAgentTold) {
  FakeAgent agent(Endpoint(), "here", 1, As("here"));
  ASSERT_TRUE(agent.Join(1).has_value());
  FakeClient alice = Client("alice");
  ASSERT_EQ(alice.SubmitNamed("a").error, "");
  const auto launch = agent.Receive<LaunchWorker>();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->unix_user, "alice");
  EXPECT_THAT(launch->checkpoint_directory,
              MatchesRegex("/jobs/gavel-state/checkpoints/[0-9a-f]{16}-1-a"));

  const CurveKeyPair keys = NewCurveKeyPair().value();
  // Another server can't vouch for it.
  FakeAgent other(Endpoint(), "there", 1, As("there"));
  ASSERT_TRUE(other.Join(1).has_value());
  other.Send(WorkerLaunched{"there", launch->worker, 5, keys.public_key});
  FakeWorker worker(Endpoint(), launch->worker, As(keys));
  EXPECT_FALSE(worker.Connects(kShort_s));
  agent.Send(WorkerLaunched{"here", launch->worker, 5, keys.public_key});
  EXPECT_TRUE(worker.Hello());
  EXPECT_TRUE(worker.AskForLease().has_value());

  // A peer with the same key is neither a user nor another worker.
  FakeClient thief(Endpoint(), As(keys));
  EXPECT_THAT(thief.Command(CommandKind::kCancel, launch->worker.job).error,
              HasSubstr("may not send CommandRequest"));
  FakePeer liar(Endpoint(), As(keys));
  WorkerHello hello;
  hello.worker = {launch->worker.job, 0, launch->worker.incarnation + 1};
  liar.Send(hello);
  EXPECT_FALSE(liar.Receive<WorkerRejected>(kShort_s).has_value());
  EXPECT_TRUE(IsAudited("may not speak for another worker"));

  agent.Exited(launch->worker, 0);
  EXPECT_TRUE(Eventually(  // once the coordinator has heard of the end
      [&] { return !FakePeer(Endpoint(), As(keys)).Connects(kShort_s); }));
}

TEST_F(EncryptedCoordinator, AMadeUpJournalPositionIsRefusedAndWrittenDown) {
  FakeAgent agent(Endpoint(), "here", 1, As("here"));
  ASSERT_TRUE(agent.Join(1).has_value());
  const Launched launched = LaunchOne(agent);
  const LaunchWorker* const launch = &launched.launch;
  FakeWorker& worker = *launched.worker;
  const auto grant = worker.AskForLease();
  ASSERT_TRUE(grant.has_value());
  EXPECT_NE(grant->position.proof, PositionProof());

  LeaseRequest forged;
  forged.worker = launch->worker;
  forged.nonce = 1000;
  // The first request has no proof, the second has the proof of another
  // position.
  forged.highest_seen = {uint64_t{1} << 60, 1};
  worker.Send(forged);
  forged.highest_seen.proof = grant->position.proof;
  worker.Send(forged);
  AgentHeartbeat beat{"here", 1, {launch->position.term, 1'000'000}};
  agent.Send(beat);
  // This position is in an earlier term, which had no such row.
  agent.Send(AgentHeartbeat{"here", 1, {0, launch->position.seq}});
  // The same connections are still heard when they show true positions.
  EXPECT_TRUE(worker.AskForLease(/*holding=*/true, grant->epoch).has_value());
  agent.Send(AgentHeartbeat{"here", 1, launch->position});
  EXPECT_TRUE(Client("vera").Query(QueryKind::kStatus).is_object());
  const std::string audit = Audit();
  EXPECT_THAT(audit, HasSubstr(R"("who":"job 1 rank 0","role":"worker")"));
  EXPECT_THAT(audit, HasSubstr("shows term 1152921504606846976 seq 1"));
  EXPECT_THAT(audit, HasSubstr("node here: it shows term 1 seq 1000000"));
  EXPECT_THAT(audit, HasSubstr("node here: it shows term 0 seq"));
}

TEST_F(EncryptedCoordinator, AProvenLaterPositionHaltsAJournalThatWasSetBack) {
  EXPECT_OK(coordinator_->Stop());
  Copy(StatePath(), folder_.path() + "/before");
  Start();
  JournalPosition seen;
  {
    FakeAgent agent(Endpoint(), "here", 1, As("here"));
    ASSERT_TRUE(agent.Join(1).has_value());
    ASSERT_EQ(Client("alice").SubmitNamed("a").error, "");
    const auto launch = agent.Receive<LaunchWorker>();
    ASSERT_TRUE(launch.has_value());
    seen = launch->position;
  }
  ExpectHaltAfterSetBack(seen, "another coordinator");
}

// The coordinator loses the last rows of one term and then begins another.
TEST_F(EncryptedCoordinator, AProvenPositionOfALostRowOfAnEarlierTermHalts) {
  JournalPosition seen;
  {
    FakeAgent agent(Endpoint(), "here", 1, As("here"));
    ASSERT_TRUE(agent.Join(1).has_value());
    Copy(StatePath(), folder_.path() + "/before");
    ASSERT_EQ(Client("alice").SubmitNamed("a").error, "");
    const auto launch = agent.Receive<LaunchWorker>();
    ASSERT_TRUE(launch.has_value());
    seen = launch->position;
  }
  ExpectHaltAfterSetBack(seen, "term 2 begins at seq");
}

TEST_F(EncryptedCoordinator, AnAgentOfAnotherNameIsToldSo) {
  FakePeer agent(Endpoint(), As("here"));
  AgentHello hello;
  hello.server = "there";
  hello.incarnation = 1;
  agent.Send(hello);
  const auto rejected = agent.Receive<AgentRejected>();
  ASSERT_TRUE(rejected.has_value());
  EXPECT_THAT(rejected->reason, HasSubstr("may not speak for server there"));
}

TEST_F(EncryptedCoordinator, ASecondAgentOfOneNameIsRefusedAndTheFirstGoesOn) {
  const auto hello = [](uint64_t incarnation, const std::string& state_id) {
    AgentHello message;
    message.server = "here";
    message.incarnation = incarnation;
    message.state_id = state_id;
    message.accelerators = {{"v100", "here-0"}, {"v100", "here-1"}};
    return message;
  };
  FakePeer first(Endpoint(), As("here"));
  first.Send(hello(11, "aaaa"));
  ASSERT_TRUE(first.Receive<AgentWelcome>().has_value());
  const Launched launched = LaunchOne(first);
  FakeWorker& worker = *launched.worker;
  const auto grant = worker.AskForLease();
  ASSERT_TRUE(grant.has_value());
  FakePeer second(Endpoint(), As("here"));
  second.Send(hello(12, "bbbb"));
  const auto rejected = second.Receive<AgentRejected>();
  ASSERT_TRUE(rejected.has_value());
  EXPECT_EQ(rejected->incarnation, 12U);
  EXPECT_THAT(rejected->reason, HasSubstr("another state directory"));
  // Messages to that server still go to the first agent, and its worker renews.
  EXPECT_TRUE(worker.AskForLease(/*holding=*/true, grant->epoch).has_value());
  ASSERT_EQ(Client("alice").SubmitNamed("b").error, "");
  EXPECT_TRUE(first.Receive<LaunchWorker>().has_value());
}

TEST_F(EncryptedCoordinator, NoSecretIsWrittenAnywhere) {
  ASSERT_EQ(Client("alice").SubmitNamed("a").error, "");
  Client("bob").Command(CommandKind::kCancel, JobId(1));
  FakePeer(Endpoint(), As("alice")).Send(AgentHello{});
  EXPECT_OK(coordinator_->Stop());
  std::vector<std::string> secrets = {own_.secret_key};
  for (const auto& [name, keys] : keys_) secrets.push_back(keys.secret_key);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           folder_.path() + "/state")) {
    if (!entry.is_regular_file()) continue;
    const std::string text = ReadText(entry.path());
    for (const std::string& secret : secrets) {
      EXPECT_THAT(text, Not(HasSubstr(secret))) << entry.path();
    }
  }
}

}  // namespace
}  // namespace gavel::testing
