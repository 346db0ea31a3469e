// The dashboard of a real coordinator, with and without keys.
#include "coordinator/cli/dashboard.h"

#include <thread>

#include "coordinator/http/http_server.h"
#include "coordinator/server/client_requests.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"
#include "tests/http/raw_http.h"
#include "tests/server/encrypted_coordinator_fixture.h"
#include "tests/server/fake_peers.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

constexpr Page kPages[] = {{"index.html", "<p>Gavel</p>"}};

// The HTTP side of a coordinator that runs already.
class DashboardOf {
 public:
  DashboardOf(LocalRequests& requests, DashboardTokens& tokens, bool has_keys) {
    documents_.Attach(requests);
    HttpServerOptions options;
    options.address = "127.0.0.1:0";
    options.has_keys = has_keys;
    options.pages = kPages;
    auto server = HttpServer::Listen(options, documents_, tokens);
    EXPECT_OK(server);
    server_ = *std::move(server);
    server_->Serve();
  }
  int port() const { return server_->port(); }
  json Document(const std::string& path) const {
    const RawAnswer answer = Get(port(), path);
    EXPECT_EQ(answer.code, 200) << path << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
  // The same, once `done` accepts it.
  json WaitFor(const std::string& path,
               const std::function<bool(const json&)>& done) const {
    json document;
    EXPECT_TRUE(Eventually([&] {
      document = Document(path);
      return done(document);
    })) << document.dump();
    return document;
  }

 private:
  CoordinatorDocuments documents_{/*sample_s=*/1};
  std::unique_ptr<HttpServer> server_;
};

auto TokensFrom(DashboardTokens& tokens) {
  return [&tokens](const Requester& from) {
    return absl::StatusOr<std::string>(
        json({{"token", tokens.Make(MonotonicNow(), from.public_key)}}).dump());
  };
}

CoordinatorServerOptions WithTokens(CoordinatorServerOptions options,
                                    DashboardTokens& tokens) {
  options.dashboard = TokensFrom(tokens);
  return options;
}

class DashboardTest : public Test {
 protected:
  DashboardTest()
      : coordinator_(
            WithTokens(QuietOptions(folder_.path() + "/state"), tokens_)) {
    EXPECT_OK(coordinator_.created());
    client_ = std::make_unique<FakeClient>(coordinator_.endpoint());
    dashboard_ =
        std::make_unique<DashboardOf>(coordinator_.local(), tokens_, false);
  }
  std::string Token() { return client_->Query(QueryKind::kDashboard)["token"]; }
  // Job 1, "lm", has a lease.
  void RunJob() {
    agent_ = std::make_unique<FakeAgent>(coordinator_.endpoint(), "here");
    ASSERT_TRUE(agent_->Join(1).has_value());
    ASSERT_EQ(client_->SubmitNamed("lm").error, "");
    const auto launch = agent_->Receive<LaunchWorker>();
    ASSERT_TRUE(launch.has_value());
    worker_ =
        std::make_unique<FakeWorker>(coordinator_.endpoint(), launch->worker);
    ASSERT_TRUE(worker_->Hello());
    const auto grant = worker_->AskForLease();
    ASSERT_TRUE(grant.has_value());
    epoch_ = grant->epoch;
  }

  TemporaryFolder folder_;
  DashboardTokens tokens_;
  RunningCoordinator coordinator_;
  std::unique_ptr<FakeClient> client_;
  std::unique_ptr<DashboardOf> dashboard_;
  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<FakeWorker> worker_;
  uint64_t epoch_ = 0;  // of its lease
};

TEST_F(DashboardTest, ShowsAJobThatRuns) {
  ASSERT_NO_FATAL_FAILURE(RunJob());
  worker_->Report(epoch_, 400, 25.0);

  const json jobs = dashboard_->WaitFor("/api/jobs", [](const json& document) {
    return document["jobs"].size() == 1 &&
           document["jobs"][0]["steps_done"] == 400;
  });
  // The same document as that of the command line.
  EXPECT_EQ(jobs["jobs"][0]["name"], "lm");
  EXPECT_EQ(jobs["next_cursor"], 0);
  EXPECT_EQ(dashboard_->Document("/api/nodes")[0]["server"], "here");
  const json status = dashboard_->Document("/api/status");
  EXPECT_EQ(status["policy"], "max_min_fairness");
  EXPECT_EQ(status["jobs"]["R"], 1);
  EXPECT_TRUE(status["solve_s"].is_number());
  EXPECT_TRUE(status["rows_unwritten"].is_number());

  const json job = dashboard_->WaitFor("/api/job/1", [](const json& document) {
    return document["leases"].size() == 1;
  });
  EXPECT_EQ(job["job"]["id"], 1);
  EXPECT_EQ(job["why"]["job"], 1);
  EXPECT_EQ(job["history"]["name"], "lm");
  EXPECT_EQ(job["leases"][0]["server"], "here");
  const json loss = dashboard_->WaitFor(
      "/api/job/1/loss",
      [](const json& document) { return document["points"].size() == 1; });
  EXPECT_EQ(loss["points"][0], json({{"steps_done", 400}, {"loss", 0.5}}));

  const json policy = dashboard_->Document("/api/policy");
  EXPECT_EQ(policy["status"]["policy"], "max_min_fairness");
  EXPECT_THAT(policy["policies"], Contains("themis"));
  EXPECT_EQ(policy["throughputs"][0]["job"], 1);
  EXPECT_EQ(policy["throughputs"][0]["throughputs"][0]["type"], "v100");
  EXPECT_THAT(policy["throughputs"][0]["throughputs"][0]["source"],
              AnyOf("guessed", "measured"));
  EXPECT_TRUE(dashboard_->Document("/api/fairness")["apps"].is_array());
  EXPECT_TRUE(dashboard_->Document("/api/apps").is_array());
  const std::string metrics = Get(dashboard_->port(), "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("gavel_jobs{state=\"R\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("gavel_servers_up 1\n"));
}

TEST_F(DashboardTest, SaysWhyALeaseEnded) {
  ASSERT_NO_FATAL_FAILURE(RunJob());
  const RawAnswer held =
      Post(dashboard_->port(), Token(), R"({"action":"hold","target":"1"})");
  ASSERT_EQ(held.code, 200) << held.body;
  worker_->Release(epoch_, 400);
  const json job = dashboard_->WaitFor("/api/job/1", [](const json& document) {
    return document["leases"].size() == 1 &&
           document["leases"][0].contains("why_ended");
  });
  EXPECT_THAT(job["leases"][0].value("why_ended", ""),
              HasSubstr("held: by `gavel hold`"));
  EXPECT_EQ(job["leases"][0]["ended"], "paused");
}

TEST_F(DashboardTest, SamplesSharesWhileNobodyLooks) {
  FakeAgent agent(coordinator_.endpoint(), "here");
  ASSERT_TRUE(agent.Join(1).has_value());
  ASSERT_EQ(client_->SubmitNamed("lm").error, "");
  const json fairness =
      dashboard_->WaitFor("/api/fairness", [](const json& document) {
        return document["samples"]["users"].size() == 1;
      });
  const json& samples = fairness["samples"];
  EXPECT_EQ(samples["users"][0]["name"], "");
  EXPECT_EQ(samples["users"][0]["share"].size(), samples["at_s"].size());
  EXPECT_EQ(samples["users"][0]["rho"].size(), samples["at_s"].size());
  EXPECT_THAT(samples["apps"], IsEmpty());
}

TEST(FairnessRecordTest, KeepsTheLastSamplesOfThoseThatHaveAny) {
  FairnessRecord record;
  JobTotalsRow totals;
  totals.users = {{"ann", "", 2, 1, {}}, {"gone", "", 1, 1, 1.5}};
  totals.apps = {{"search", "ann", 4, 1, 0.5}};
  record.Add(1, totals);
  totals.users.pop_back();
  for (size_t i = 1; i < FairnessRecord::kSamplesMax; ++i) {
    record.Add(1.0 + static_cast<double>(i), totals);
  }
  Json kept = record.ToJson();
  ASSERT_EQ(kept["at_s"].size(), FairnessRecord::kSamplesMax);
  ASSERT_EQ(kept["users"].size(), 2u);
  EXPECT_EQ(kept["users"][0]["share"].front(), 0.5);
  EXPECT_TRUE(kept["users"][0]["rho"].front().is_null());
  EXPECT_EQ(kept["users"][1]["rho"].front(), 1.5);
  EXPECT_TRUE(kept["users"][1]["rho"].back().is_null());
  EXPECT_EQ(kept["apps"][0]["owner"], "ann");
  record.Add(1000, totals);
  kept = record.ToJson();
  EXPECT_EQ(kept["at_s"].size(), FairnessRecord::kSamplesMax);
  EXPECT_EQ(kept["at_s"].front(), 2);
  ASSERT_EQ(kept["users"].size(), 1u) << "its last sample is forgotten";
  EXPECT_EQ(kept["users"][0]["share"].size(), FairnessRecord::kSamplesMax);
  for (size_t i = 0; i < 2 * FairnessRecord::kNamesMax; ++i) {
    totals.users = {{StrCat("user-", i), "", 1, 1, {}}};
    record.Add(2000.0 + static_cast<double>(i), totals);
  }
  EXPECT_EQ(record.ToJson()["users"].size(), FairnessRecord::kNamesMax);
}

TEST_F(DashboardTest, GivesJobsByPages) {
  for (int i = 1; i <= 5; ++i) {
    ASSERT_EQ(client_->SubmitNamed(StrCat("job-", i)).error, "");
  }
  dashboard_->WaitFor("/api/jobs", [](const json& document) {
    return document["jobs"].size() == 5;
  });
  const json first = dashboard_->Document("/api/jobs?limit=2");
  ASSERT_EQ(first["jobs"].size(), 2);
  EXPECT_EQ(first["jobs"][1]["id"], 2);
  EXPECT_EQ(first["next_cursor"], 2);
  const json second = dashboard_->Document("/api/jobs?limit=2&cursor=2");
  EXPECT_EQ(second["jobs"][0]["id"], 3);
  EXPECT_EQ(second["next_cursor"], 4);
  const json last = dashboard_->Document("/api/jobs?limit=2&cursor=4");
  EXPECT_EQ(last["jobs"].size(), 1);
  EXPECT_EQ(last["next_cursor"], 0);
  EXPECT_THAT(dashboard_->Document("/api/jobs?state=R")["jobs"], IsEmpty());
  EXPECT_EQ(dashboard_->Document("/api/jobs?state=waiting")["jobs"].size(), 5);
  EXPECT_EQ(Get(dashboard_->port(), "/api/jobs?state=no").code, 400);
}

TEST_F(DashboardTest, SaysThatAJobIsNotThere) {
  for (const char* path : {"/api/job/7", "/api/job/7/log", "/api/job/7/loss"}) {
    const RawAnswer answer = Get(dashboard_->port(), path);
    EXPECT_EQ(answer.code, 404) << path;
    EXPECT_THAT(answer.body, HasSubstr("there is no job 7")) << path;
  }
}

TEST_F(DashboardTest, KnowsAnElementByItsArray) {
  const SubmitReply array = client_->Submit(
      "name = \"many\"\ncommand = [\"./train\"]\narray = \"3,5\"\n");
  ASSERT_EQ(array.error, "");
  const std::string id = StrCat(array.job.value());
  const json job = dashboard_->WaitFor(
      StrCat("/api/job/", id, "_5"),
      [](const json& document) { return !document["job"].is_null(); });
  EXPECT_EQ(job["job"]["name"], "many_5");
  EXPECT_EQ(dashboard_->Document(StrCat("/api/job/", id, "_5/loss"))["job"],
            job["job"]["id"]);
  const RawAnswer none = Get(dashboard_->port(), StrCat("/api/job/", id, "_4"));
  EXPECT_EQ(none.code, 404);
  EXPECT_THAT(none.body, HasSubstr("has no such element"));
  EXPECT_EQ(Get(dashboard_->port(), "/api/job/1_x").code, 404);
}

TEST_F(DashboardTest, ShowsTheEndOfALongLog) {
  FakeAgent agent(coordinator_.endpoint(), "here");
  ASSERT_TRUE(agent.Join(1).has_value());
  ASSERT_EQ(client_->SubmitNamed("lm").error, "");
  const auto launch = agent.Receive<LaunchWorker>();
  ASSERT_TRUE(launch.has_value());
  FakeWorker worker(coordinator_.endpoint(), launch->worker);
  ASSERT_TRUE(worker.Hello());
  ASSERT_TRUE(worker.AskForLease().has_value());
  std::string output;
  for (int i = 0; i < 400'000; ++i) StrAppend(&output, "line ", i, "\n");
  output += "99 %";  // a progress bar, which ends no line
  std::thread answers([&] {
    // Two pieces of 32 KiB, and the empty one at the end.
    for (int i = 0; i < 3; ++i) {
      const auto asked = agent.Receive<LogRequest>();
      ASSERT_TRUE(asked.has_value());
      const uint64_t begin =
          asked->offset > 0 ? asked->offset : output.size() - asked->tail_bytes;
      LogReply reply;
      reply.request = asked->request;
      reply.data = output.substr(begin, 32 << 10);
      reply.next_offset = begin + reply.data.size();
      agent.Send(reply);
    }
  });
  const json log = dashboard_->Document("/api/job/1/log?tail=3");
  answers.join();
  EXPECT_EQ(log["text"], "line 399998\nline 399999\n99 %");
  EXPECT_EQ(log["complete"], true);
}

TEST_F(DashboardTest, SolvesAPreviewForWhoeverHasAToken) {
  const RawAnswer refused = Get(dashboard_->port(), "/api/policy?preview=fifo");
  EXPECT_EQ(refused.code, 403);
  EXPECT_THAT(refused.body, HasSubstr("`gavel dashboard`"));
  FakeAgent agent(coordinator_.endpoint(), "here");
  ASSERT_TRUE(agent.Join(1).has_value());
  ASSERT_EQ(client_->SubmitNamed("lm").error, "");
  const RawAnswer preview = Exchange(
      dashboard_->port(), "GET /api/policy?preview=fifo",
      StrCat("Host: 127.0.0.1\r\nAuthorization: Bearer ", Token(), "\r\n"));
  EXPECT_EQ(preview.code, 200) << preview.body;
  EXPECT_EQ(json::parse(preview.body)["preview"], "fifo");
}

TEST_F(DashboardTest, ActsAndTellsWatchersAtOnce) {
  RawConnection watcher(dashboard_->port());
  watcher.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  watcher.ReadUntil("}}\n\n");
  ASSERT_EQ(client_->SubmitNamed("lm").error, "");
  EXPECT_THAT(watcher.ReadUntil("\"PD\":1"), HasSubstr("\"PD\":1"));
  const RawAnswer held =
      Post(dashboard_->port(), Token(), R"({"action":"hold","target":"1"})");
  EXPECT_EQ(held.code, 200) << held.body;
  EXPECT_THAT(watcher.ReadUntil("\"F\":1"), HasSubstr("\"F\":1"));
  const RawAnswer unknown =
      Post(dashboard_->port(), Token(), R"({"action":"hold","target":"7"})");
  EXPECT_EQ(unknown.code, 404);
  EXPECT_THAT(unknown.body, HasSubstr("no job 7"));
  const RawAnswer refused =
      Post(dashboard_->port(), Token(), R"({"action":"requeue","target":"1"})");
  EXPECT_EQ(refused.code, 409) << "it is held: " << refused.body;
  const RawAnswer set = Post(dashboard_->port(), Token(),
                             R"({"action":"policy","target":"fifo"})");
  EXPECT_EQ(set.code, 200) << set.body;
  EXPECT_EQ(dashboard_->Document("/api/status")["policy"], "fifo");
}

TEST_F(DashboardTest, GivesUpAtOnceWhenTheCoordinatorHasStopped) {
  const double begun = Seconds();
  // The coordinator's loop has ended, and the requests are still there.
  LocalRequests& requests = coordinator_.local();
  requests.Close();
  EXPECT_EQ(Get(dashboard_->port(), "/api/status").code, 503);
  EXPECT_LT(Seconds() - begun, 4);
}

// ---- With keys

class EncryptedDashboard : public EncryptedCoordinator {
 protected:
  void SetUp() override {
    EncryptedCoordinator::dashboard_ = TokensFrom(tokens_);
    EncryptedCoordinator::SetUp();
    pages_ =
        std::make_unique<DashboardOf>(coordinator_->local(), tokens_, true);
  }
  void TearDown() override { pages_.reset(); }
  std::string TokenOf(const std::string& name) const {
    const json link = Client(name).Query(QueryKind::kDashboard);
    return link.value("token", "");
  }
  RawAnswer Act(const std::string& name, const std::string& action) {
    return Post(pages_->port(), TokenOf(name), action);
  }

  DashboardTokens tokens_;
  std::unique_ptr<DashboardOf> pages_;
};

TEST_F(EncryptedDashboard, GivesEachPrincipalItsOwnRightsAndWritesThemDown) {
  ASSERT_EQ(Client("alice").SubmitNamed("lm").error, "");
  constexpr char kHold[] = R"({"action":"hold","target":"1"})";
  const RawAnswer bobs = Act("bob", kHold);
  EXPECT_EQ(bobs.code, 403);
  EXPECT_THAT(bobs.body, HasSubstr("job 1 is not yours"));
  EXPECT_EQ(Act("vera", kHold).code, 403);
  EXPECT_EQ(Act("alice", R"({"action":"drain","target":"here"})").code, 403);
  const std::string token = TokenOf("alice");
  EXPECT_EQ(Post(pages_->port(), token, kHold).code, 200);
  EXPECT_EQ(Act("olga", R"({"action":"release","target":"1"})").code, 200);
  EXPECT_TRUE(IsAudited("\"action\":\"hold\""));
  const std::string audit = AuditSoFar();
  EXPECT_THAT(audit, HasSubstr("http 127.0.0.1"));
  EXPECT_THAT(audit, HasSubstr("\"action\":\"dashboard\""));
  EXPECT_THAT(audit, HasSubstr("bob"));
  EXPECT_THAT(audit, Not(HasSubstr(token)));
}

TEST_F(EncryptedDashboard, ForgetsATokenWithItsPrincipal) {
  ASSERT_EQ(Client("alice").SubmitNamed("lm").error, "");
  const std::string token = TokenOf("alice");
  Revoke("alice");
  constexpr char kHold[] = R"({"action":"hold","target":"1"})";
  EXPECT_TRUE(Eventually([&] {
    const RawAnswer answer = Post(pages_->port(), token, kHold);
    return answer.code == 401 &&
           answer.body.find("not allowed any more") != std::string::npos;
  }));
}

TEST_F(EncryptedDashboard, ShowsOthersWhatAViewerSees) {
  ASSERT_EQ(Client("alice").SubmitNamed("lm").error, "");
  const json jobs = pages_->WaitFor("/api/jobs", [](const json& document) {
    return document["jobs"].size() == 1;
  });
  EXPECT_EQ(jobs["jobs"][0]["owner"], "alice");
  EXPECT_EQ(jobs["jobs"][0]["checkpoint_directory"], "");
  const RawAnswer log = Get(pages_->port(), "/api/job/1/log");
  EXPECT_EQ(log.code, 403);
  const RawAnswer own =
      Exchange(pages_->port(), "GET /api/jobs",
               StrCat("Host: 127.0.0.1\r\nAuthorization: Bearer ",
                      TokenOf("alice"), "\r\n"));
  ASSERT_EQ(own.code, 200) << own.body;
  const json of_alice = json::parse(own.body)["jobs"];
  ASSERT_EQ(of_alice.size(), 1);
  EXPECT_THAT(of_alice[0].value("checkpoint_directory", ""), HasSubstr("/"));
}

}  // namespace
}  // namespace gavel::testing
