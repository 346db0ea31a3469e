// The coordinator over real sockets and a real journal, with a fake agent and a
// fake worker.
#include "coordinator/server/coordinator_server.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "coordinator/server/history.h"
#include "core/text.h"
#include "tests/server/fake_peers.h"
#include "tests/server/faulty_disk.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class CoordinatorServerTest : public Test {
 protected:
  void SetUp() override { Start(); }
  void Start() {
    CoordinatorServerOptions options = QuietOptions(folder_.path() + "/state");
    options.notify = notify_;
    options.engine.entities = entities_;
    coordinator_ = std::make_unique<RunningCoordinator>(std::move(options));
    ASSERT_OK(coordinator_->created());
    client_ = std::make_unique<FakeClient>(coordinator_->endpoint());
  }
  void Restart() {
    EXPECT_OK(coordinator_->Stop());
    Start();
  }

  // Submits a job, launches and joins its worker, gets it a lease.
  struct Running {
    JobId job;
    WorkerKey key;
    std::unique_ptr<FakeWorker> worker;
    LeaseGrant grant;
  };
  Running RunOne(FakeAgent& agent, const std::string& name) {
    Running running;
    running.job = client_->SubmitNamed(name).job;
    const auto launch = agent.Receive<LaunchWorker>();
    EXPECT_TRUE(launch.has_value());
    if (!launch) return running;
    running.key = launch->worker;
    running.worker =
        std::make_unique<FakeWorker>(coordinator_->endpoint(), running.key);
    EXPECT_TRUE(running.worker->Hello());
    const auto grant = running.worker->AskForLease();
    EXPECT_TRUE(grant.has_value());
    running.grant = grant.value_or(LeaseGrant{});
    return running;
  }

  TemporaryFolder folder_;
  NotifySpec notify_;  // from the next start on
  std::vector<PolicyEntity> entities_;
  std::unique_ptr<RunningCoordinator> coordinator_;
  std::unique_ptr<FakeClient> client_;
};

TEST_F(CoordinatorServerTest, LeadsAJobFromSubmissionToItsEnd) {
  FakeAgent agent(coordinator_->endpoint(), "here");
  const auto welcome = agent.Join(1);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->position.term, 1u);

  const SubmitReply submitted = client_->Submit(
      "name = \"digits\"\ncommand = [\"./train\", \"--quick\"]\n"
      "steps_total = 1000\n");
  EXPECT_EQ(submitted.error, "");
  EXPECT_EQ(submitted.job, JobId(1));

  const auto launch = agent.Receive<LaunchWorker>();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->worker, (WorkerKey{JobId(1), 0, 1}));
  EXPECT_EQ(launch->argv, (std::vector<std::string>{"./train", "--quick"}));
  EXPECT_EQ(launch->working_directory, "/jobs");
  EXPECT_THAT(launch->checkpoint_directory,
              MatchesRegex(folder_.path() +
                           "/state/checkpoints/[0-9a-f]{16}-1-digits"));

  FakeWorker worker(coordinator_->endpoint(), launch->worker);
  ASSERT_TRUE(worker.Hello());
  const auto grant = worker.AskForLease();
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->accelerator.uuid, "here-0");
  EXPECT_GT(grant->duration_s, 0);
  EXPECT_GT(grant->position.seq, 0u);

  worker.Report(grant->epoch, 400, 25.0);
  const json row = client_->WaitForRow(
      JobId(1), [](const json& r) { return r["steps_done"] == 400; });
  EXPECT_EQ(row["state"], "R");
  EXPECT_EQ(row["steps_total"], 1000);
  EXPECT_EQ(row["steps_per_s"], 25.0);
  EXPECT_EQ(row["scalars"]["loss"], 0.5);
  EXPECT_EQ(row["accelerators"][0]["uuid"], "here-0");
  const json nodes = client_->Query(QueryKind::kNodes);
  EXPECT_EQ(nodes[0]["state"], "allocated");
  EXPECT_EQ(nodes[0]["accelerators"][0]["jobs"], json({1}));

  // More in a second than its own count has gone on by.
  worker.Report(grant->epoch, 410, 1e8);
  const json same = client_->WaitForRow(
      JobId(1), [](const json& r) { return r["steps_done"] == 410; });
  EXPECT_EQ(same["steps_per_s"], 0);

  worker.Release(grant->epoch, 1000);
  agent.Exited(launch->worker, 0);
  const auto acknowledged = agent.Receive<ExitAcknowledged>();
  ASSERT_TRUE(acknowledged.has_value());
  EXPECT_EQ(acknowledged->worker, launch->worker);
  client_->WaitForRow(JobId(1),
                      [](const json& r) { return r["state"] == "CD"; });
  EXPECT_EQ(client_->Query(QueryKind::kStatus)["jobs"]["CD"], 1);
}

// More at once than go out between two turns.
TEST_F(CoordinatorServerTest, HundredsAreToldAtOnceAndNobodyIsLeftOut) {
  constexpr int kJobs = 300;
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_EQ(client_->SubmitNamed(StrCat("job-", i)).error, "");
  }
  FakeAgent agent(coordinator_->endpoint(), "here");
  ASSERT_TRUE(agent.Join(kJobs).has_value());
  std::set<WorkerKey> launched;
  while (launched.size() < kJobs) {
    const auto launch = agent.Receive<LaunchWorker>();
    ASSERT_TRUE(launch.has_value()) << launched.size();
    launched.insert(launch->worker);
  }
}

TEST_F(CoordinatorServerTest, GoesOnFromItsJournalWithAHigherTerm) {
  FakeAgent agent(coordinator_->endpoint(), "here");
  ASSERT_TRUE(agent.Join(1).has_value());
  Running running = RunOne(agent, "a");
  EXPECT_EQ(client_->SubmitNamed("b").job, JobId(2));

  Restart();
  const json status = client_->Query(QueryKind::kStatus);
  EXPECT_EQ(status["term"], 2);
  EXPECT_EQ(client_->Query(QueryKind::kQueue).size(), 2u);

  // The same worker, to the new coordinator: its lease is adopted.
  FakeAgent same_agent(coordinator_->endpoint(), "here");
  const auto welcome = same_agent.Join(1, {{running.key, 4711}});
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->position.term, 2u);
  FakeWorker same(coordinator_->endpoint(), running.key);
  same.set_highest_seen(running.worker->highest_seen());
  same.set_nonce(100);
  const auto renewed = same.AskForLease(true, running.grant.epoch);
  ASSERT_TRUE(renewed.has_value());
  EXPECT_EQ(renewed->epoch, running.grant.epoch);
  EXPECT_EQ(renewed->position.term, 2u);
}

TEST_F(CoordinatorServerTest, ItsClockGoesOnFromTheJournal) {
  // The journal's last row is later than this, far from 0.
  constexpr double kBefore = 0.3;
  std::this_thread::sleep_for(std::chrono::duration<double>(kBefore));
  client_->SubmitNamed("a");
  Restart();
  const json rows = client_->Query(QueryKind::kQueue);
  EXPECT_GT(rows[0]["submitted_at_s"], 0);
  EXPECT_GE(rows[0]["age_s"], 0);
  // Neither from 0 nor from 1970.
  EXPECT_GE(client_->Query(QueryKind::kStatus)["now_s"], kBefore);
  EXPECT_LT(client_->Query(QueryKind::kStatus)["now_s"], kBefore + 600);
}

TEST_F(CoordinatorServerTest, GoesOnAndTellsOfADamagedRowBehindItsSnapshot) {
  CoordinatorServerOptions options = QuietOptions(folder_.path() + "/state");
  options.snapshots.rows = 5;
  EXPECT_OK(coordinator_->Stop());
  {
    RunningCoordinator writes(options);
    ASSERT_OK(writes.created());
    FakeClient client(writes.endpoint());
    for (int i = 0; i < 10; ++i) client.SubmitNamed(StrCat("job-", i));
    EXPECT_EQ(client.Query(QueryKind::kStatus)["troubles"], json::array());
    auto database =
        SqliteDatabase::OpenReadOnly(options.state_directory + "/journal.db");
    ASSERT_OK(database);
    ASSERT_TRUE(Eventually([&] { return !ListSnapshots(*database)->empty(); }));
    EXPECT_OK(writes.Stop());
  }
  {
    auto database =
        SqliteDatabase::Open(options.state_directory + "/journal.db");
    ASSERT_OK(database);
    ASSERT_OK(database->Execute(
        "UPDATE journal SET event = zeroblob(9) WHERE seq = 2"));
  }
  Start();
  EXPECT_EQ(client_->Query(QueryKind::kQueue).size(), 10u);
  json troubles;
  EXPECT_TRUE(Eventually([&] {
    troubles = client_->Query(QueryKind::kStatus)["troubles"];
    return !troubles.empty();
  }));
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_THAT(troubles[0], AllOf(HasSubstr("row 2 is damaged"),
                                 HasSubstr("copy its state directory")));
  EXPECT_EQ(client_->SubmitNamed("more").error, "");
}

TEST_F(CoordinatorServerTest, HaltsWhenAWorkerHasSeenALaterJournal) {
  FakeAgent agent(coordinator_->endpoint(), "here");
  ASSERT_TRUE(agent.Join(1).has_value());
  Running running = RunOne(agent, "a");
  LeaseRequest request;
  request.worker = running.key;
  request.highest_seen = {99, 1};
  request.nonce = 1000;
  running.worker->Send(request);
  EXPECT_THAT(coordinator_->Wait(), StatusIs(kAborted, "term 99"));
  EXPECT_FALSE(running.worker->Receive<LeaseGrant>(0.1).has_value());
}

// Its lock file is removed, and another one starts on its journal: what needs
// no row is fenced, too.
TEST_F(CoordinatorServerTest, GrantsNothingOnceAnotherHasTakenOver) {
  FakeAgent agent(coordinator_->endpoint(), "here");
  ASSERT_TRUE(agent.Join(1).has_value());
  Running running = RunOne(agent, "a");
  std::filesystem::remove(folder_.path() + "/state/journal.db.lock");
  RunningCoordinator successor(QuietOptions(folder_.path() + "/state"));
  ASSERT_OK(successor.created());
  LeaseRequest request;
  request.worker = running.key;
  request.highest_seen = running.grant.position;
  request.epoch = running.grant.epoch;
  request.nonce = running.grant.nonce + 1;
  request.holding = true;
  running.worker->Send(request);
  EXPECT_THAT(coordinator_->Wait(), StatusIs(kAborted, "taken over"));
  EXPECT_FALSE(running.worker->Receive<LeaseGrant>(0.1).has_value());
  FakeAgent again(successor.endpoint(), "here");
  const auto welcome = again.Join(1);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->position.term, 2u);
}

// Nobody asks it for anything.
TEST_F(CoordinatorServerTest, FindsByItselfThatItWasReplaced) {
  std::filesystem::remove(folder_.path() + "/state/journal.db.lock");
  EXPECT_THAT(coordinator_->Wait(), StatusIs(kAborted, "lock file"));
}

TEST_F(CoordinatorServerTest, HaltsWhenTheDiskIsFull) {
  absl::Status ended;
  {
    const FullDisk full(100'000);
    for (int i = 0; i < 60; ++i) {
      client_->Send(
          SubmitRequest{1000, "job.toml",
                        StrCat("name = \"job-", i, "\"\ncommand = [\"",
                               std::string(9000, 'x'), "\"]\n"),
                        "/jobs"});
    }
    ended = coordinator_->Wait();
  }
  EXPECT_THAT(ended, StatusIs(ended.code(), "nothing may be granted"));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("journal.db"));
  // Every submission that was answered is there again.
  int accepted = 0;
  while (const auto reply = client_->Receive<SubmitReply>(0.2)) {
    accepted += reply->job.valid();
  }
  Start();
  EXPECT_GE(client_->Query(QueryKind::kQueue).size(),
            static_cast<size_t>(accepted));
}

TEST_F(CoordinatorServerTest, AClientCanShutItDown) {
  EXPECT_EQ(client_->Command(CommandKind::kShutdown).error, "");
  EXPECT_OK(coordinator_->Wait());
}

// The program fails while the file "broken" is there.
TEST_F(CoordinatorServerTest, TellsPeopleWhatItHasJournaled) {
  const std::string told = folder_.path() + "/told";
  const std::string broken = folder_.path() + "/broken";
  const std::string script = folder_.path() + "/tell";
  std::ofstream(script) << "#!/bin/sh\ntest ! -e " << broken
                        << " || { echo no route >&2; exit 4; }\ncat >> " << told
                        << "\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_THAT(client_->Command(CommandKind::kNotify).error,
              HasSubstr("[notify]"));
  ASSERT_EQ(client_->SubmitNamed("unheard").error, "");
  notify_.command = {script};
  Restart();
  EXPECT_EQ(client_->Command(CommandKind::kNotify).error, "");
  const JobId job = client_->SubmitNamed("a").job;
  EXPECT_EQ(client_->Command(CommandKind::kCancel, job).error, "");
  EXPECT_TRUE(Eventually([&] {
    const std::string text = ReadText(told);
    return text.find("\"event\":\"cancelled\"") != std::string::npos;
  }));
  EXPECT_THAT(ReadText(told),
              AllOf(HasSubstr("\"event\":\"test\""),
                    HasSubstr("\"name\":\"a\""), Not(HasSubstr("unheard"))));
  EXPECT_EQ(client_->Query(QueryKind::kStatus)["troubles"], json::array());

  std::ofstream(broken) << "";
  EXPECT_THAT(client_->Command(CommandKind::kNotify).error,
              HasSubstr("exit code 4: no route"));
  EXPECT_EQ(client_->Command(CommandKind::kCancel, JobId(1)).error, "");
  EXPECT_TRUE(Eventually([&] {
    const json troubles = client_->Query(QueryKind::kStatus)["troubles"];
    return troubles.dump().find("exit code 4: no route (try 1 of 5") !=
           std::string::npos;
  }));
  std::filesystem::remove(broken);
  Restart();
  EXPECT_TRUE(Eventually([&] {
    return ReadText(told).find("\"name\":\"unheard\"") != std::string::npos;
  }));
}

TEST_F(CoordinatorServerTest, PassesLogsThroughToTheAgentAndBack) {
  FakeAgent agent(coordinator_->endpoint(), "here");
  ASSERT_TRUE(agent.Join(1).has_value());
  Running running = RunOne(agent, "a");
  client_->Send(LogRequest{42, {running.job, 0}, 100});
  const auto asked = agent.Receive<LogRequest>();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->offset, 100u);
  EXPECT_EQ(asked->worker.job, running.job);
  // Somebody else may not answer for the agent.
  LogReply reply{asked->request, "forged", 106, false, ""};
  FakeClient(coordinator_->endpoint()).Send(reply);
  client_->Query(QueryKind::kStatus);
  reply.data = "step 1";
  agent.Send(reply);
  const auto answer = client_->Receive<LogReply>();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->request, 42u);
  EXPECT_EQ(answer->data, "step 1");
  EXPECT_EQ(answer->next_offset, 106u);
}

// A client of its terminal would ask for ever.
TEST_F(CoordinatorServerTest, ATerminalOfAJobThatIsOverHasEnded) {
  const SubmitReply shell = client_->Submit(
      "name = \"shell\"\ncommand = [\"sh\"]\nclass = \"interactive\"\n");
  ASSERT_EQ(shell.error, "");
  TerminalRequest request;
  request.worker = {shell.job, 0, 0};
  request.request = 1;
  client_->Send(request);
  auto reply = client_->Receive<TerminalReply>();
  ASSERT_TRUE(reply.has_value());
  EXPECT_THAT(reply->error, HasSubstr("has not started yet"));
  CommandRequest cancel;
  cancel.request = 2;
  cancel.kind = CommandKind::kCancel;
  cancel.job = shell.job;
  client_->Send(cancel);
  ASSERT_TRUE(client_->Receive<CommandReply>().has_value());
  request.request = 3;
  client_->Send(request);
  reply = client_->Receive<TerminalReply>();
  ASSERT_TRUE(reply.has_value());
  EXPECT_TRUE(reply->ended) << reply->error;
}

TEST_F(CoordinatorServerTest, AnUpdateToAnUnknownEntityIsRefused) {
  entities_ = {{"vision"}};
  Restart();
  CommandRequest update;
  update.kind = CommandKind::kUpdate;
  update.job = client_->SubmitNamed("a").job;
  const auto error = [&](const std::string& entity) {
    ++update.request;
    update.update.entity = entity;
    client_->Send(update);
    const auto reply = client_->Receive<CommandReply>();
    return reply ? reply->error : "no reply";
  };
  EXPECT_THAT(error("nosuch"), HasSubstr("there is no entity \"nosuch\""));
  EXPECT_EQ(error("vision"), "");
}

TEST_F(CoordinatorServerTest, AGoalIsOfAnAppOfTheSenderAndWithinBounds) {
  AppGoal goal;
  goal.app = "search";
  const auto set = [&] {
    client_->Send(AppGoalRequest{9, goal});
    const auto reply = client_->Receive<CommandReply>();
    return reply && reply->request == 9 ? reply->error : "no reply";
  };
  EXPECT_THAT(set(), HasSubstr("you have no app \"search\" now"));
  ASSERT_EQ(client_
                ->Submit("name = \"a\"\ncommand = [\"./train\"]\n"
                         "app = \"search\"\n")
                .error,
            "");
  for (const double wrong : {-1.0, 1e16, std::nan("")}) {
    goal.steps_to_come = wrong;
    EXPECT_THAT(set(), HasSubstr("steps; give a number from 0 to 1e+15"));
  }
  goal.steps_to_come = 5;
  EXPECT_EQ(set(), "");
  Restart();
  EXPECT_EQ(set(), "");
  goal.ended = true;
  EXPECT_EQ(set(), "");
}

TEST_F(CoordinatorServerTest, LogsOfWhatDidNotStartAreRefused) {
  const JobId job = client_->SubmitNamed("a").job;
  const auto error_of = [&](WorkerId worker) {
    client_->Send(LogRequest{1, worker, 0});
    const auto reply = client_->Receive<LogReply>();
    return reply ? reply->error : "no reply";
  };
  EXPECT_THAT(error_of({job, 0}), HasSubstr("has not started"));
  EXPECT_THAT(error_of({job, 3}), HasSubstr("no rank 3"));
  EXPECT_THAT(error_of({JobId(9), 0}), HasSubstr("no job 9"));
}

}  // namespace
}  // namespace gavel::testing
