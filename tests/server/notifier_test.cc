// Each notice of the journal is delivered in order and at least once, and a
// program that fails or hangs holds up nothing but the notices.
#include "coordinator/server/notifier.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/str_split.h"
#include "coordinator/server/journal.h"
#include "nlohmann/json.hpp"
#include "runtime/files/stopwatch.h"
#include "tests/server/journal_fixture.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

class NotifierTest : public JournalFixture {
 protected:
  NotifierTest() : journal_(MustOpen()) {}

  std::string Script(const std::string& body, mode_t mode = 0755) {
    const std::string file = folder_.path() + "/tell";
    std::ofstream(file) << "#!/bin/sh\n" << body << "\n";
    chmod(file.c_str(), mode);
    return file;
  }
  std::string AppendsTo(const std::string& file) {
    return Script("cat >> " + file);
  }

  static HistoryNotice Notice(const std::string& event, uint64_t job) {
    HistoryNotice notice;
    notice.event = event;
    notice.job = job;
    notice.name = StrCat("job-", job);
    notice.user = "ada";
    notice.at_s = 1'000'000'000;
    notice.text = StrCat("Job ", job, " ", event, ".");
    notice.reason = "held: \"quoted\" \\ and\nmore";
    return notice;
  }
  // In one row of the journal.
  void Add(std::vector<HistoryNotice> notices) {
    const JournalRow row = RowAt(++seq_);
    std::vector<HistoryRow> history;
    uint64_t number = 0;
    for (HistoryNotice& notice : notices) {
      notice.id = seq_ * HistoryNotice::kPerRowMax + number++;
      history.emplace_back(std::move(notice));
    }
    ASSERT_OK(journal_->Append({&row, 1}, history));
  }
  void AddFinished(uint64_t job) { Add({Notice("finished", job)}); }

  Notifier::Options OptionsOf(const std::string& program) {
    Notifier::Options options;
    options.spec.command = {program};
    options.journal = path();
    options.position = Position();
    options.coordinator = "tcp://here:7077";
    options.waits_s = {0.05, 0.05};
    options.limit_s = 20;
    return options;
  }
  std::unique_ptr<Notifier> Start(const Notifier::Options& options) {
    auto notifier = Notifier::Start(options, seq_, [] {});
    EXPECT_OK(notifier);
    return notifier.ok() ? *std::move(notifier) : nullptr;
  }
  std::string Position() const { return folder_.path() + "/notified"; }
  std::string Out() const { return folder_.path() + "/out"; }

  // The jobs that were told of, in order.
  std::vector<uint64_t> Told() const {
    std::vector<uint64_t> jobs;
    std::ifstream in(Out());
    for (std::string line; std::getline(in, line);) {
      const json told = json::parse(line, nullptr, false);
      jobs.push_back(told.is_discarded() ? 0 : told.value("job", uint64_t{0}));
    }
    return jobs;
  }
  bool Tells(size_t notices) {
    return Eventually([&] { return Told().size() >= notices; });
  }
  // The position is written after the delivery.
  bool IsDoneWith(uint64_t seq) {
    const std::string id = StrCat(seq * HistoryNotice::kPerRowMax, "\n");
    return Eventually([&] { return ReadText(Position()) == id; });
  }
  static std::string Join(const std::vector<std::string>& lines) {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }

  std::unique_ptr<Journal> journal_;
  uint64_t seq_ = 0;
};

TEST_F(NotifierTest, ANoticeIsALineOfJsonAndTheyComeInOrder) {
  const auto notifier = Start(OptionsOf(AppendsTo(Out())));
  for (uint64_t job = 1; job <= 5; ++job) AddFinished(job);
  ASSERT_TRUE(Tells(5));
  EXPECT_THAT(Told(), ElementsAre(1, 2, 3, 4, 5));
  std::ifstream in(Out());
  std::string line;
  std::getline(in, line);
  const json told = json::parse(line);
  EXPECT_EQ(told["event"], "finished");
  EXPECT_EQ(told["name"], "job-1");
  EXPECT_EQ(told["user"], "ada");
  EXPECT_EQ(told["app"], "");
  EXPECT_EQ(told["time"], "2001-09-09T01:46:40Z");
  EXPECT_EQ(told["text"], "Job 1 finished.");
  EXPECT_EQ(told["reason"], "held: \"quoted\" \\ and\nmore");
  EXPECT_EQ(told["coordinator"], "tcp://here:7077");
  EXPECT_THAT(notifier->Troubles(), IsEmpty());
}

TEST_F(NotifierTest, WhatIsInTheJournalAtTheFirstStartIsNotTold) {
  AddFinished(1);
  const auto notifier = Start(OptionsOf(AppendsTo(Out())));
  AddFinished(2);
  ASSERT_TRUE(Tells(1));
  EXPECT_THAT(Told(), ElementsAre(2));
}

TEST_F(NotifierTest, WhatCameWhileNobodyDeliveredIsToldAfterTheRestart) {
  const auto options = OptionsOf(AppendsTo(Out()));
  auto notifier = Start(options);
  AddFinished(1);
  ASSERT_TRUE(IsDoneWith(1));
  notifier.reset();
  AddFinished(2);
  AddFinished(3);
  notifier = Start(options);
  ASSERT_TRUE(Tells(3));
  EXPECT_THAT(Told(), ElementsAre(1, 2, 3));
}

// A kill between the delivery and the write of the position.
TEST_F(NotifierTest, ADeliveryThatIsNotOnDiskIsRepeatedOnce) {
  const auto options = OptionsOf(AppendsTo(Out()));
  auto notifier = Start(options);
  AddFinished(1);
  ASSERT_TRUE(IsDoneWith(1));
  const std::string before = ReadText(Position());
  AddFinished(2);
  ASSERT_TRUE(IsDoneWith(2));
  notifier.reset();
  WriteFile(Position(), before);
  notifier = Start(options);
  ASSERT_TRUE(IsDoneWith(2));
  AddFinished(3);
  ASSERT_TRUE(Tells(4));
  EXPECT_THAT(Told(), ElementsAre(1, 2, 2, 3));
}

// It was restored from a backup: new rows get numbers that were used before.
TEST_F(NotifierTest, AJournalThatEndsBeforeThePositionIsToldFromItsEnd) {
  WriteFile(Position(), StrCat(1000 * HistoryNotice::kPerRowMax, "\n"));
  const auto notifier = Start(OptionsOf(AppendsTo(Out())));
  AddFinished(1);
  ASSERT_TRUE(Tells(1));
  EXPECT_THAT(Told(), ElementsAre(1));
}

TEST_F(NotifierTest, OnlyWantedEventsAreToldUnlessTheJobChoseThem) {
  auto options = OptionsOf(AppendsTo(Out()));
  options.spec.events = {"failed"};
  const auto notifier = Start(options);
  HistoryNotice chosen = Notice("started", 2);
  chosen.chosen = true;
  Add({Notice("started", 1), chosen, Notice("finished", 3),
       Notice("failed", 4)});
  ASSERT_TRUE(Tells(2));
  EXPECT_THAT(Told(), ElementsAre(2, 4));
}

TEST_F(NotifierTest, AFailureIsShownAndGivenUpAndTheNextIsTold) {
  const auto notifier = Start(
      OptionsOf(Script("line=$(cat)\n"
                       "case $line in *job-1*)\n"
                       "  echo one >&2; echo no mail server >&2; exit 3;;\n"
                       "esac\n"
                       "printf '%s\\n' \"$line\" >> " +
                       Out())));
  AddFinished(1);
  EXPECT_TRUE(Eventually([&] {
    return Join(notifier->Troubles())
               .find("tell: exit code 3: no mail server (try") !=
           std::string::npos;
  }));
  AddFinished(2);
  ASSERT_TRUE(Tells(1));
  EXPECT_THAT(Told(), ElementsAre(2));
  ASSERT_TRUE(IsDoneWith(2));
  EXPECT_THAT(
      Join(notifier->Troubles()),
      AllOf(HasSubstr("1 notices are lost"), HasSubstr("1 after 3 tries"),
            Not(HasSubstr("no mail server"))));
}

TEST_F(NotifierTest, ANoticeIsTriedAgainUntilItSucceeds) {
  const std::string flag = folder_.path() + "/fixed";
  auto options =
      OptionsOf(Script("test -e " + flag + " || exit 1\ncat >> " + Out()));
  options.waits_s = std::vector<double>(10'000, 0.02);
  const auto notifier = Start(options);
  AddFinished(1);
  AddFinished(2);
  EXPECT_TRUE(Eventually([&] { return !notifier->Troubles().empty(); }));
  WriteFile(flag, "");
  ASSERT_TRUE(Tells(2));
  EXPECT_THAT(Told(), ElementsAre(1, 2));
  ASSERT_TRUE(IsDoneWith(2));
  EXPECT_THAT(notifier->Troubles(), IsEmpty());
}

TEST_F(NotifierTest, ATestThatArrivesEndsTheTroubleOfAnEarlierNotice) {
  const std::string flag = folder_.path() + "/fixed";
  auto options = OptionsOf(Script("test -e " + flag + " || exit 5"));
  options.waits_s = {};
  const auto notifier = Start(options);
  AddFinished(1);
  ASSERT_TRUE(IsDoneWith(1));
  EXPECT_THAT(Join(notifier->Troubles()), HasSubstr("exit code 5"));
  WriteFile(flag, "");
  ASSERT_TRUE(notifier->Test(7));
  ASSERT_TRUE(Eventually([&] { return notifier->TakeTested().has_value(); }));
  EXPECT_THAT(Join(notifier->Troubles()), AllOf(HasSubstr("1 notices are lost"),
                                                Not(HasSubstr("exit code 5"))));
}

TEST_F(NotifierTest, OfMoreThanAThousandTheOldestAreDropped) {
  const std::string flag = folder_.path() + "/fixed";
  auto options =
      OptionsOf(Script("test -e " + flag + " || exit 1\ncat >> " + Out()));
  options.waits_s = std::vector<double>(10'000, 0.02);
  const auto notifier = Start(options);
  std::vector<HistoryNotice> many;
  for (uint64_t job = 1; job <= Notifier::kWaitingMax + 5; ++job) {
    many.push_back(Notice("finished", job));
  }
  Add(std::move(many));
  EXPECT_TRUE(Eventually([&] {
    return Join(notifier->Troubles()).find("5 as more than 1000 waited") !=
           std::string::npos;
  })) << Join(notifier->Troubles());
  WriteFile(flag, "");
  ASSERT_TRUE(Tells(3));
  EXPECT_EQ(Told().at(0), 6u);
  EXPECT_EQ(Told().at(1), 7u);
}

TEST_F(NotifierTest, TheEndWaitsForNoProgramAndLosesNoNotice) {
  auto notifier = Start(OptionsOf(Script("sleep 100")));
  AddFinished(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  const Stopwatch clock;
  notifier.reset();
  EXPECT_LT(clock.elapsed_s(), 10);
  notifier = Start(OptionsOf(AppendsTo(Out())));
  ASSERT_TRUE(Tells(1));
  EXPECT_THAT(Told(), ElementsAre(1));
}

TEST_F(NotifierTest, ATestTellsWhatBecameOfIt) {
  const auto outcome = [](Notifier& notifier) {
    std::optional<std::pair<uint64_t, std::string>> tested;
    EXPECT_TRUE(Eventually([&] {
      tested = notifier.TakeTested();
      return tested.has_value();
    }));
    return tested.value_or(std::pair<uint64_t, std::string>());
  };
  auto notifier = Start(OptionsOf(AppendsTo(Out())));
  ASSERT_TRUE(notifier->Test(7));
  EXPECT_EQ(outcome(*notifier), std::pair(uint64_t{7}, std::string()));
  EXPECT_EQ(json::parse(ReadText(Out()))["event"], "test");
  notifier = Start(OptionsOf(Script("echo no route >&2; exit 4")));
  ASSERT_TRUE(notifier->Test(8));
  EXPECT_THAT(outcome(*notifier).second, HasSubstr("exit code 4: no route"));
}

TEST_F(NotifierTest, TestsThatNobodyTookAreBounded) {
  const auto notifier = Start(OptionsOf(AppendsTo(Out())));
  for (uint64_t i = 1; i <= Notifier::kTestsMax; ++i) {
    EXPECT_TRUE(notifier->Test(i));
  }
  EXPECT_FALSE(notifier->Test(100));
}

// ---- one delivery

TEST_F(NotifierTest, AProgramThatHangsIsKilledWithWhatItStarted) {
  const std::string pids = folder_.path() + "/pids";
  const Stopwatch clock;
  const Delivery delivery{
      {Script("sleep 1000 & echo $! $$ > " + pids + "; wait")}, "x", 0.5};
  EXPECT_THAT(Deliver(delivery, {}).message(),
              HasSubstr("it was killed after 0.5 s"));
  EXPECT_LT(clock.elapsed_s(), 15);
  std::ifstream in(pids);
  for (pid_t pid = 0; in >> pid;) {
    EXPECT_TRUE(Eventually([&] {
      const std::string stat = ReadText(StrCat("/proc/", pid, "/stat"));
      return stat.empty() || stat.find(") Z") != std::string::npos;
    })) << pid;
  }
}

TEST_F(NotifierTest, MegabytesOfOutputAreDropped) {
  const Delivery delivery{
      {Script("head -c 20000000 /dev/zero\n"
              "head -c 20000000 /dev/zero | tr '\\0' x >&2\n"
              "echo; echo the last line >&2; exit 9")},
      "",
      60};
  const std::string message(Deliver(delivery, {}).message());
  EXPECT_THAT(message, HasSubstr("exit code 9: "));
  EXPECT_LT(message.size(), 1000u);
}

TEST_F(NotifierTest, ItsInputMayStayUnread) {
  EXPECT_OK(Deliver({{Script("exit 0")}, std::string(1 << 20, 'x'), 20}, {}));
}

TEST_F(NotifierTest, AProgramThatCantBeRunIsNamedWithTheRemedy) {
  const auto both = [&](const std::string& program, const std::string& what) {
    NotifySpec spec;
    spec.command = {program};
    EXPECT_THAT(Deliver({{program}, "", 5}, {}).message(), HasSubstr(what));
    return CheckProgram(spec);
  };
  const std::string missing = folder_.path() + "/missing";
  EXPECT_THAT(both(missing, "there is no such program").message(),
              HasSubstr(missing));
  // Root may execute a file only if somebody may.
  EXPECT_THAT(both(Script("exit 0", 0644), "can't be executed").message(),
              HasSubstr("chmod +x"));
  const std::string plain = folder_.path() + "/plain";
  WriteFile(plain, "echo no first line\n");
  chmod(plain.c_str(), 0755);
  EXPECT_OK(both(plain, "#!/bin/sh"));
  const std::string killed = Script("kill -TERM $$");
  EXPECT_OK(both(killed, "killed by signal 15"));
}

TEST_F(NotifierTest, AMissingProgramIsShownFromTheStart) {
  const auto notifier = Start(OptionsOf(folder_.path() + "/missing"));
  EXPECT_THAT(Join(notifier->Troubles()),
              AllOf(HasSubstr("notify command "), HasSubstr("/missing"),
                    HasSubstr("no such program")));
}

// A server whose first answer is 500, and each later one 200. It prints its
// port, then each request as a line of JSON.
constexpr char kWebhookServer[] = R"(
import http.server, json
answers = [500]
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        print(json.dumps({"type": self.headers["Content-Type"], "body": body}), flush=True)
        self.send_response(answers.pop() if answers else 200)
        self.end_headers()
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
print(server.server_port, flush=True)
server.serve_forever()
)";

TEST_F(NotifierTest, AWebhookGetsANoticeByPostUntilItAcceptsIt) {
  // A proxy of the environment could not reach this server.
  setenv("no_proxy", "127.0.0.1", /*overwrite=*/1);
  const Process server({"/usr/bin/env", "python3", "-c", kWebhookServer},
                       folder_.path() + "/server.out");
  const auto lines = [&] {
    return std::vector<std::string>(
        absl::StrSplit(server.output(), '\n', absl::SkipEmpty()));
  };
  ASSERT_TRUE(Eventually([&] { return !lines().empty(); })) << server.errors();
  Notifier::Options options = OptionsOf("");
  options.spec.command = {};
  options.spec.webhook = StrCat("http://127.0.0.1:", lines()[0], "/hook");
  // Only one retry is in the test's time.
  options.waits_s = {0.05, 1000};
  const absl::Status curl = CheckProgram(options.spec);
  if (!curl.ok()) GTEST_SKIP() << curl.message();
  const auto notifier = Start(options);
  AddFinished(1);
  ASSERT_TRUE(IsDoneWith(1)) << Join(notifier->Troubles());
  AddFinished(2);
  ASSERT_TRUE(IsDoneWith(2));
  EXPECT_THAT(notifier->Troubles(), IsEmpty());
  std::vector<std::string> bodies;
  for (const std::string& line : lines()) {
    const json post = json::parse(line);
    if (!post.is_object()) continue;  // the port
    EXPECT_EQ(post["type"], "application/json");
    bodies.push_back(post["body"]);
  }
  ASSERT_EQ(bodies.size(), 3u);
  EXPECT_EQ(bodies[0], bodies[1]);
  const json told = json::parse(bodies[1]);
  EXPECT_EQ(told["event"], "finished");
  EXPECT_EQ(told["job"], 1);
  EXPECT_EQ(told["reason"], "held: \"quoted\" \\ and\nmore");
  EXPECT_EQ(json::parse(bodies[2])["job"], 2);
}

// Arguments can be seen by all users of the machine.
TEST(Webhook, ItsAddressIsNoArgumentAndOnlyItsHostIsShown) {
  NotifySpec spec;
  spec.webhook = "https://hooks.example.com/T0/secret";
  const Delivery delivery = DeliveryOf(spec, R"({"text":"a \"b\""})");
  EXPECT_EQ(delivery.argv.front(), "curl");
  for (const std::string& word : delivery.argv) {
    EXPECT_THAT(word, Not(HasSubstr("secret")));
  }
  EXPECT_EQ(delivery.input,
            "url = \"https://hooks.example.com/T0/secret\"\n"
            "data-binary = \"{\\\"text\\\":\\\"a \\\\\\\"b\\\\\\\"\\\"}\"\n");
}

}  // namespace
}  // namespace gavel::testing
