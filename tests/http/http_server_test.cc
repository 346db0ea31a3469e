// The HTTP server over real sockets, with a fake coordinator behind it.
#include "coordinator/http/http_server.h"

#include <atomic>
#include <mutex>
#include <system_error>

#include "coordinator/http/connections.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"
#include "tests/http/raw_http.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class FakeDocuments : public Documents {
 public:
  absl::StatusOr<std::string> Get(const DocumentRequest& request) override {
    const std::lock_guard lock(mutex_);
    ++asked_;
    last_ = request;
    if (!error_.ok()) return error_;
    if (request.kind == DocumentKind::kMetrics) return "gavel_term 3\n";
    if (request.kind == DocumentKind::kStatus) {
      return StrCat("{\"policy\":\"", policy_, "\",\"now_s\":", asked_, "}");
    }
    return "[]";
  }
  absl::Status Act(const std::string& key, const std::string& address,
                   const CommandRequest& command) override {
    const std::lock_guard lock(mutex_);
    key_ = key;
    from_ = address;
    acted_.push_back(command);
    return refusal_;
  }

  int asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  DocumentRequest last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  std::vector<CommandRequest> acted() const {
    const std::lock_guard lock(mutex_);
    return acted_;
  }
  void SetPolicy(const std::string& policy) {
    const std::lock_guard lock(mutex_);
    policy_ = policy;
  }

  // Set before the first request.
  absl::Status error_;
  absl::Status refusal_;
  std::string key_;
  std::string from_;

 private:
  mutable std::mutex mutex_;
  int asked_ = 0;
  DocumentRequest last_;
  std::string policy_ = "fifo";
  std::vector<CommandRequest> acted_;
};

constexpr Page kPages[] = {
    {"index.html", "<p>Gavel</p>"}, {"app.js", "start();"}, {"empty.css", ""}};

class HttpServerTest : public Test {
 protected:
  void SetUp() override {
    options_.address = "127.0.0.1:0";
    options_.pages = kPages;
    options_.times.update_interval_s = 0.02;
  }
  int Start() {
    auto server = HttpServer::Listen(options_, documents_, tokens_);
    EXPECT_OK(server);
    server_ = *std::move(server);
    server_->Serve();
    return server_->port();
  }
  std::string NewToken(const std::string& key = "key") {
    return tokens_.Make(MonotonicNow(), key);
  }

  HttpServerOptions options_;
  FakeDocuments documents_;
  DashboardTokens tokens_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, GivesPagesWithHeadersThatKeepForeignCodeOut) {
  const int port = Start();
  const RawAnswer page = Get(port, "/");
  EXPECT_EQ(page.code, 200);
  EXPECT_EQ(page.body, "<p>Gavel</p>");
  EXPECT_THAT(page.head, HasSubstr("Content-Type: text/html; charset=utf-8"));
  EXPECT_THAT(page.head, HasSubstr("default-src 'self'"));
  EXPECT_THAT(page.head, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(page.head, HasSubstr("X-Content-Type-Options: nosniff"));
  EXPECT_THAT(page.head, HasSubstr("Referrer-Policy: no-referrer"));
  EXPECT_THAT(page.head, Not(HasSubstr("Access-Control-Allow")));
  EXPECT_EQ(Get(port, "/app.js").body, "start();");
  EXPECT_EQ(Get(port, "/empty.css").code, 200);
  EXPECT_EQ(Exchange(port, "HEAD /app.js").body, "");
}

TEST_F(HttpServerTest, GivesEachDocumentWithItsQuery) {
  const int port = Start();
  for (const char* path :
       {"/api/nodes", "/api/jobs", "/api/job/7", "/api/job/7/log",
        "/api/job/7/loss", "/api/fairness", "/api/policy", "/api/apps"}) {
    const RawAnswer answer = Get(port, path);
    EXPECT_EQ(answer.code, 200) << path;
    EXPECT_EQ(answer.body, "[]") << path;
    EXPECT_THAT(answer.head, HasSubstr("application/json")) << path;
    EXPECT_THAT(answer.head, HasSubstr("Cache-Control: no-store")) << path;
  }
  Get(port, "/api/jobs?state=R,PD&user=ann&app=a%20b&cursor=41&limit=20");
  const DocumentRequest jobs = documents_.last();
  EXPECT_EQ(jobs.kind, DocumentKind::kJobs);
  EXPECT_THAT(jobs.states, ElementsAre("R", "PD"));
  EXPECT_EQ(jobs.user, "ann");
  EXPECT_EQ(jobs.app, "a b");
  EXPECT_EQ(jobs.cursor, 41);
  EXPECT_EQ(jobs.limit, 20);
  EXPECT_EQ(jobs.key, LocalRequests::kReaderKey);
  Get(port, "/api/job/12/log?tail=5");
  EXPECT_EQ(documents_.last().job, JobId(12));
  EXPECT_EQ(documents_.last().tail, 5);
  Exchange(
      port, "GET /api/policy?preview=fifo",
      StrCat("Host: 127.0.0.1\r\nAuthorization: Bearer ", NewToken(), "\r\n"));
  EXPECT_EQ(documents_.last().kind, DocumentKind::kPreview);
  EXPECT_EQ(documents_.last().name, "fifo");
}

TEST_F(HttpServerTest, CompressesByGzipWhereABrowserTakesIt) {
  const int port = Start();
  const auto head_with = [&](const std::string& encodings) {
    return Exchange(port, "GET /",
                    StrCat("Host: 127.0.0.1\r\nAccept-Encoding: ", encodings,
                           "\r\n"))
        .head;
  };
  EXPECT_THAT(head_with("gzip, deflate, br, zstd"),
              HasSubstr("Content-Encoding: gzip"));
  EXPECT_THAT(head_with("br"), Not(HasSubstr("Content-Encoding")));
}

TEST_F(HttpServerTest, AnswersWhatIsNotThereWithAnErrorInJson) {
  const int port = Start();
  for (const char* path :
       {"/nothing", "/api/job/", "/api/job/x", "/api/job/0", "/api/job/7/other",
        "/api/job/99999999999999999999", "/../etc/passwd", "/%2e%2e/etc/passwd",
        "/pages/app.js", "//app.js", "/app.js%00", "/./app.js", "/static/"}) {
    const RawAnswer answer = Get(port, path);
    EXPECT_EQ(answer.code, 404) << path;
    EXPECT_NE(json::parse(answer.body).value("error", ""), "") << path;
  }
  EXPECT_EQ(documents_.asked(), 0);
  EXPECT_EQ(Get(port, "/api/jobs?limit=-1").code, 400);
  EXPECT_EQ(Get(port, "/api/jobs?limit=1000000").code, 400);
  EXPECT_EQ(Get(port, "/api/jobs?limit=0").code, 400);
  EXPECT_EQ(Get(port, "/api/job/7/log?tail=0").code, 400);
  EXPECT_EQ(Get(port, "/api/policy?preview=fifo").code, 403);
  EXPECT_EQ(Get(port, "/api/jobs?user=" + std::string(1000, 'a')).code, 400);
  EXPECT_EQ(Get(port, "/api/job/7/log?tail=many").code, 400);
  EXPECT_EQ(Exchange(port, "DELETE /api/jobs").code, 405);
  EXPECT_EQ(
      Exchange(port, "GET /app.js", "Host: 127.0.0.1\r\nRange: bytes=0-1\r\n")
          .code,
      416);
}

TEST_F(HttpServerTest, RefusesKeysThatADocumentDoesNotHave) {
  const int port = Start();
  const RawAnswer misspelt = Get(port, "/api/jobs?limit=5&stat=R");
  EXPECT_EQ(misspelt.code, 400);
  const std::string error = json::parse(misspelt.body)["error"];
  EXPECT_THAT(error, HasSubstr("\"stat\""));
  EXPECT_THAT(error, HasSubstr("state, user, app, cursor, limit"));
  EXPECT_EQ(Get(port, "/api/job/7/log?tails=5").code, 400);
  EXPECT_EQ(Get(port, "/api/policy?previews=fifo").code, 400);
  EXPECT_EQ(Get(port, "/api/nodes?state=down").code, 400);
  EXPECT_EQ(documents_.asked(), 0);
}

TEST_F(HttpServerTest, PassesTheCoordinatorsRefusalsOn) {
  documents_.error_ = absl::UnavailableError("it does not answer");
  const int port = Start();
  const RawAnswer busy = Get(port, "/api/nodes");
  EXPECT_EQ(busy.code, 503);
  EXPECT_THAT(busy.head, HasSubstr("Retry-After"));
  EXPECT_EQ(json::parse(busy.body)["error"], "it does not answer");
  EXPECT_EQ(Get(port, "/healthz").code, 503);
}

TEST_F(HttpServerTest, AsksOnceForAllWhoWantTheSame) {
  const int port = Start();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Get(port, "/api/nodes").code, 200);
  // A machine that takes longer than an answer holds asks again.
  EXPECT_LE(documents_.asked(), 10);
}

TEST_F(HttpServerTest, TellsPrometheusAndHealthChecks) {
  const int port = Start();
  EXPECT_EQ(Get(port, "/healthz").body, "ok\n");
  const RawAnswer metrics = Get(port, "/metrics");
  EXPECT_THAT(metrics.head, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, StartsWith("gavel_term 3\n"));
  EXPECT_THAT(metrics.body, HasSubstr("\ngavel_http_requests_total 2\n"));
}

// ---- Who may ask

TEST_F(HttpServerTest, RefusesNamesThatAForeignPageCouldLeadHere) {
  options_.url = "https://gavel.example.org/";
  const int port = Start();
  const auto code = [port](const std::string& host) {
    return Exchange(port, "GET /api/nodes", StrCat("Host: ", host, "\r\n"))
        .code;
  };
  for (const char* good : {"127.0.0.1", "127.0.0.1:9000", "localhost:1234",
                           "[::1]:80", "gavel.example.org", "10.0.0.7:8080"}) {
    EXPECT_EQ(code(good), 200) << good;
  }
  for (const char* bad : {"evil.example", "evil.example:8080", "127.0.0.1.evil",
                          "localhost.evil", "", "::1", "xgavel.example.org"}) {
    EXPECT_EQ(code(bad), 403) << bad;
  }
  EXPECT_EQ(Exchange(port, "GET /api/nodes", "X: y\r\n").code, 403);
  EXPECT_EQ(Exchange(port, "GET /api/nodes",
                     "Host: 127.0.0.1\r\nHost: evil.example\r\n")
                .code,
            403);
}

TEST_F(HttpServerTest, ActsInTheNameOfTheTokensHolder) {
  const int port = Start();
  const RawAnswer done = Post(port, NewToken("alices key"),
                              R"({"action": "hold", "target": "12"})");
  EXPECT_EQ(done.code, 200) << done.body;
  EXPECT_EQ(documents_.key_, "alices key");
  EXPECT_EQ(documents_.from_, "http 127.0.0.1");
  ASSERT_EQ(documents_.acted().size(), 1);
  EXPECT_EQ(documents_.acted()[0].kind, CommandKind::kHold);
  EXPECT_EQ(documents_.acted()[0].job, JobId(12));

  EXPECT_EQ(
      Post(port, NewToken(), R"({"action":"undrain","target":"gpu-1"})").code,
      200);
  EXPECT_EQ(documents_.acted()[1].kind, CommandKind::kResume);
  EXPECT_EQ(documents_.acted()[1].target, "gpu-1");
}

TEST_F(HttpServerTest, SaysWhyTheCoordinatorDoesNotAct) {
  documents_.refusal_ = absl::FailedPreconditionError("job 12 is not yours");
  const int port = Start();
  const RawAnswer refused =
      Post(port, NewToken(), R"({"action":"cancel","target":12})");
  EXPECT_EQ(refused.code, 409);
  EXPECT_EQ(json::parse(refused.body)["error"], "job 12 is not yours");
}

TEST_F(HttpServerTest, ActsForNobodyWithoutAValidToken) {
  const int port = Start();
  constexpr char kAction[] = R"({"action":"hold","target":"12"})";
  const std::string late =
      tokens_.Make(MonotonicNow() - DashboardTokens::kValid_s - 1, "key");
  std::string wrong = NewToken();
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  for (const std::string& token :
       {std::string(), std::string("x"), late, wrong, std::string(64, '0')}) {
    const RawAnswer refused = Post(port, token, kAction);
    EXPECT_EQ(refused.code, 401) << token;
    EXPECT_THAT(refused.head, HasSubstr("WWW-Authenticate: Bearer"));
  }
  EXPECT_EQ(Exchange(port, "GET /api/nodes",
                     "Host: 127.0.0.1\r\nAuthorization: Bearer x\r\n")
                .code,
            401);
  EXPECT_THAT(documents_.acted(), IsEmpty());
}

TEST_F(HttpServerTest, ActsForNoPageOfAnotherSite) {
  const int port = Start();
  const std::string token = NewToken();
  constexpr char kAction[] = R"({"action":"hold","target":"12"})";
  for (const std::string& origin :
       {std::string("http://evil.example"), std::string("null"),
        StrCat("http://127.0.0.1:", port + 1)}) {
    EXPECT_EQ(
        Post(port, token, kAction, StrCat("Origin: ", origin, "\r\n")).code,
        403)
        << origin;
  }
  // A form can send these types across sites without asking.
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=x", ""}) {
    const RawAnswer refused = Exchange(
        port, "POST /api/action",
        StrCat("Host: 127.0.0.1\r\nContent-Type: ", type, "\r\n",
               "Content-Length: 2\r\nAuthorization: Bearer ", token, "\r\n"),
        "{}");
    EXPECT_EQ(refused.code, 400) << type;
  }
  EXPECT_THAT(documents_.acted(), IsEmpty());
  EXPECT_EQ(Post(port, token, kAction,
                 StrCat("Origin: http://127.0.0.1:", port, "\r\n"))
                .code,
            200);
}

TEST_F(HttpServerTest, TakesNoActionThatIsNone) {
  const int port = Start();
  const std::string token = NewToken();
  for (const char* body :
       {"", "{", "[]", "12", R"({"action":"shutdown","target":"12"})",
        R"({"action":"hold"})", R"({"action":"hold","target":"lm"})",
        R"({"action":"hold","target":-1})", R"({"action":7,"target":"12"})",
        R"({"action":"drain","target":""})"}) {
    EXPECT_EQ(Post(port, token, body).code, 400) << body;
  }
  EXPECT_EQ(Post(port, token, std::string(5000, ' ')).code, 400);
  EXPECT_EQ(Exchange(port, "POST /api/nodes").code, 405);
  EXPECT_THAT(documents_.acted(), IsEmpty());
}

// ---- Events

TEST_F(HttpServerTest, TellsWatchersWhatHasChanged) {
  const int port = Start();
  RawConnection watcher(port);
  watcher.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  const std::string first = watcher.ReadUntil("}}\n\n");
  EXPECT_THAT(first, HasSubstr("text/event-stream"));
  EXPECT_THAT(first, HasSubstr("event: update\nid: 1\ndata: {\"seq\":1,"
                               "\"status\":{\"policy\":\"fifo\""));
  documents_.SetPolicy("themis");
  EXPECT_THAT(watcher.ReadUntil("themis"), HasSubstr("{\"seq\":2,"));
  // The clock alone is no news.
  const int asked = documents_.asked();
  EXPECT_TRUE(Eventually([&] { return documents_.asked() > asked + 1; }));
  EXPECT_THAT(watcher.ReadUntil("\"seq\":3", 0.2), Not(HasSubstr("\"seq\":3")));
}

TEST_F(HttpServerTest, KeepsAQuietStreamAlive) {
  options_.times.comment_interval_s = 0.1;
  const int port = Start();
  RawConnection watcher(port);
  watcher.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_THAT(watcher.ReadUntil(": quiet\n\n"), HasSubstr(": quiet\n\n"));
}

TEST_F(HttpServerTest, AsksForNothingWhileNobodyWatches) {
  const int port = Start();
  {
    RawConnection watcher(port);
    watcher.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    watcher.ReadUntil("}}\n\n");
  }
  int asked = -1;
  EXPECT_TRUE(Eventually([&] {
    const int before = std::exchange(asked, documents_.asked());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return asked == before;
  }));
}

TEST_F(HttpServerTest, RefusesWatchersBeyondItsLimit) {
  const int port = Start();
  std::vector<std::unique_ptr<RawConnection>> watchers;
  for (size_t i = 0; i < HttpServer::kEventClientsMax; ++i) {
    watchers.push_back(std::make_unique<RawConnection>(port));
    watchers.back()->Send(
        "GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    ASSERT_THAT(watchers.back()->ReadUntil("}}\n\n"), HasSubstr("seq"));
  }
  const RawAnswer refused = Get(port, "/api/events");
  EXPECT_EQ(refused.code, 503);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After"));
  // All others are served beside them, and a place is free again.
  EXPECT_EQ(Get(port, "/api/nodes").code, 200);
  watchers.pop_back();
  EXPECT_TRUE(Eventually([&] {
    RawConnection next(port);
    next.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    return next.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 200");
  }));
}

// Pages that wait for events would take old figures for live ones.
TEST_F(HttpServerTest, EndsStreamsWhenTheCoordinatorDoesNotAnswer) {
  documents_.error_ = absl::UnavailableError("it does not answer");
  options_.times.update_interval_s = 1.5;  // longer than documents are shared
  const int port = Start();
  RawConnection watcher(port);
  watcher.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_THAT(watcher.ReadAll(), Not(HasSubstr("event: update")));
  EXPECT_TRUE(watcher.closed());
}

TEST_F(HttpServerTest, GivesEachWatcherAClockOfItsOwn) {
  const int port = Start();
  RawConnection first(port);
  first.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  ASSERT_THAT(first.ReadUntil("}}\n\n"), HasSubstr("\"seq\":1,"));
  RawConnection second(port);
  second.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_THAT(second.ReadUntil("}}\n\n"), HasSubstr("\"seq\":2,"));
}

// ---- Bad peers

// A machine that gives no thread, as under a limit on processes.
class PoolWithoutThreads : public ConnectionPool {
 public:
  PoolWithoutThreads() : ConnectionPool(2, 2) {}

 private:
  std::thread StartThread() override {
    throw std::system_error(EAGAIN, std::generic_category());
  }
};

TEST(ConnectionPool, RefusesWhatNoThreadIsThereFor) {
  PoolWithoutThreads pool;
  bool is_refused = false;
  pool.enqueue([&] { is_refused = ConnectionPool::is_refusing(); });
  EXPECT_TRUE(is_refused);
  pool.shutdown();
}

TEST_F(HttpServerTest, LimitsTheSizeOfARequest) {
  const int port = Start();
  const std::string huge(100'000, 'a');
  for (const std::string& request :
       {StrCat("GET /", huge, " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        StrCat("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", huge, "\r\n\r\n"),
        // A line that never ends.
        huge}) {
    RawConnection connection(port);
    connection.Send(request);
    EXPECT_NE(ParseAnswer(connection.ReadAll()).code, 200);
    EXPECT_TRUE(connection.closed());
  }
  const auto with_header = [&](size_t bytes) {
    const std::string header = StrCat("X: ", std::string(bytes, 'a'), "\r\n");
    return Exchange(port, "GET /", StrCat("Host: 127.0.0.1\r\n", header)).code;
  };
  EXPECT_EQ(with_header(8000), 200);
  EXPECT_NE(with_header(9000), 200);
  std::string many = "Host: 127.0.0.1\r\n";
  for (int i = 0; i < 5000; ++i) StrAppend(&many, "A", i, ": b\r\n");
  EXPECT_NE(Exchange(port, "GET /", many).code, 200);
  EXPECT_EQ(Get(port, "/").code, 200);
}

TEST_F(HttpServerTest, SurvivesBytesThatAreNoHttp) {
  const int port = Start();
  for (const std::string& bytes :
       {std::string("\r\n\r\n"), std::string(1000, '\0'), std::string("GET"),
        std::string("GET / HTTP/9.9\r\n\r\n"), std::string("\x16\x03\x01\x02"),
        std::string("POST /api/action HTTP/1.1\r\nHost: "
                    "127.0.0.1\r\nContent-Length: 99999999999999999999\r\n"
                    "Content-Type: application/json\r\n\r\n"),
        std::string("POST /api/action HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                    "Transfer-Encoding: chunked\r\n\r\nffffffff\r\n")}) {
    RawConnection connection(port);
    connection.Send(bytes);
  }
  EXPECT_EQ(Get(port, "/").code, 200);
}

TEST_F(HttpServerTest, SlowClientsDoNotKeepOthersOut) {
  options_.times.request_s_max = 30;
  options_.times.request_s_max_busy = 0.2;
  const int port = Start();
  std::vector<std::unique_ptr<RawConnection>> slow;
  for (int i = 0; i < 1000; ++i) {
    slow.push_back(std::make_unique<RawConnection>(port));
    if (slow.back()->connected()) slow.back()->Send("GET / HTTP/1.1\r\nHo");
  }
  EXPECT_TRUE(Eventually([&] { return Get(port, "/").code == 200; }, 20));
}

TEST_F(HttpServerTest, CutsARequestThatDoesNotEnd) {
  options_.times.request_s_max = 0.3;
  const int port = Start();
  RawConnection slow(port);
  const double begun = Seconds();
  slow.Send("GET / HTTP/1.1\r\n");
  while (Seconds() < begun + 5 && !slow.closed()) {
    slow.Send("X");
    slow.ReadAll(0.05);
  }
  EXPECT_TRUE(slow.closed());
  EXPECT_LT(Seconds() - begun, 4);
}

TEST_F(HttpServerTest, EndsWhileClientsAreConnected) {
  const int port = Start();
  RawConnection watcher(port);
  watcher.Send("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  watcher.ReadUntil("}}\n\n");
  RawConnection silent(port);
  const double begun = Seconds();
  server_.reset();
  EXPECT_LT(Seconds() - begun, 5);
  watcher.ReadAll();
  EXPECT_TRUE(watcher.closed());
}

// ---- The start

TEST_F(HttpServerTest, RefusesAPortThatIsTaken) {
  const int port = Start();
  options_.address = StrCat("127.0.0.1:", port);
  EXPECT_THAT(HttpServer::Listen(options_, documents_, tokens_),
              StatusIs(kAlreadyExists, "another program listens there"));
}

TEST_F(HttpServerTest, ListensBeyondThisMachineOnlyWithKeys) {
  options_.address = "0.0.0.0:0";
  EXPECT_THAT(HttpServer::Listen(options_, documents_, tokens_),
              StatusIs(kPermissionDenied, "ssh -L"));
  options_.has_keys = true;
  EXPECT_OK(HttpServer::Listen(options_, documents_, tokens_));
}

TEST_F(HttpServerTest, RefusesAUrlThatIsNone) {
  options_.url = "gavel.example.org";
  EXPECT_THAT(HttpServer::Listen(options_, documents_, tokens_),
              IsInvalid("https://gavel.example.org"));
}

TEST_F(HttpServerTest, RefusesAnAddressThatIsNone) {
  for (const char* bad : {"", "8080", "127.0.0.1", "127.0.0.1:", ":80",
                          "127.0.0.1:99999", "127.0.0.1:http"}) {
    options_.address = bad;
    EXPECT_THAT(HttpServer::Listen(options_, documents_, tokens_),
                IsInvalid("127.0.0.1:8080"))
        << bad;
  }
}

}  // namespace
}  // namespace gavel::testing
