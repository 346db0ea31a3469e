#include "coordinator/server/query.h"

#include "coordinator/server/queue_view.h"
#include "core/codec.h"
#include "core/text.h"
#include "nlohmann/json.hpp"
#include "tests/engine/engine_driver.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using nlohmann::json;

// An engine that is driven by hand; the rows of its journal are on disk at
// once.
class QueryTest : public Test {
 protected:
  QueryTest() : engine_(EngineOptions{}) { Step(event::CoordinatorStarted{1}); }

  void Step(const Event& event) {
    now_ += 0.001;
    uint64_t last = 0;
    for (const Action& action : engine_.Step(now_, event)) {
      if (const auto* row = std::get_if<action::Persist>(&action)) {
        last = row->seq;
      }
    }
    if (last > 0) engine_.Step(now_, event::Persisted{last});
  }

  void Submit(const std::string& name, int scale_factor = 1) {
    JobSpec spec;
    spec.name = name;
    spec.argv = {"./train"};
    spec.app = "resnet";
    spec.scale_factor = scale_factor;
    spec.checkpoint_directory = "/state/checkpoints/" + name;
    spec.throughputs = {{"v100", 40.0}};
    Step(event::JobSubmitted{spec});
  }

  void Join(const std::string& server, int accelerators) {
    AgentHello hello;
    hello.server = server;
    hello.incarnation = 1;
    for (int i = 0; i < accelerators; ++i) {
      hello.accelerators.push_back({"v100", StrCat(server, "-", i)});
    }
    Step(event::ServerJoined{hello});
  }

  // Job 1 gets its allocation and a lease of the accelerator.
  WorkerKey RunFirst() {
    PolicyResult result;
    result.outcome = SolveOutcome::kOptimal;
    result.allocation = Allocation::FromRows({{JobId(1), JobId()}}, 1, {1.0});
    Step(event::AllocationReady{1, result});
    WorkerHello hello;
    hello.worker = {JobId(1), 0, 1};
    Step(event::WorkerJoined{hello});
    LeaseRequest request;
    request.worker = hello.worker;
    request.nonce = 1;
    Step(event::LeaseRequested{request});
    return hello.worker;
  }

  QueryReply Answer(const QueryRequest& request) {
    const bool of_jobs =
        request.kind == QueryKind::kQueue || request.kind == QueryKind::kWhy;
    if (!of_jobs) {
      return AnswerQuery(request, {engine_, now_, "fifo", wire_, {"row 7"}});
    }
    QueueViews views(engine_);
    std::shared_ptr<const QueueView> queue;
    while (queue == nullptr) queue = views.Advance(now_);
    if (request.job == JobId()) return ListQueue(request, *queue, reader_);
    const Job& job = *engine_.FindJob(request.job);
    return AnswerOfJob(request, reader_, views.MakeOne(job, now_),
                       ThroughputsOf(job, engine_), queue->line->Get(), now_);
  }

  QueryReply Ask(QueryKind kind, JobId job = JobId(), uint64_t cursor = 0,
                 const std::string& filter = "") {
    const QueryRequest request{17, kind, job, cursor, filter};
    QueryReply reply = Answer(request);
    EXPECT_EQ(reply.request, request.request);
    EXPECT_OK(EncodeMessage(reply));  // fits a frame
    return reply;
  }

  // All pages of a list.
  std::vector<json> AskAll(QueryKind kind, int* pages = nullptr) {
    std::vector<json> rows;
    uint64_t cursor = 0;
    do {
      const QueryReply reply = Ask(kind, JobId(), cursor);
      EXPECT_EQ(reply.error, "");
      for (const json& row : json::parse(reply.json)) rows.push_back(row);
      cursor = reply.next_cursor;
      if (pages != nullptr) ++*pages;
    } while (cursor != 0 && rows.size() < 100'000);
    return rows;
  }

  Engine engine_;
  Time now_ = 0;
  Identity reader_;
  const WireCounts wire_ = {1, 2, 3, 4, 5};
};

TEST_F(QueryTest, AnEmptyQueueIsAnEmptyArray) {
  EXPECT_EQ(Ask(QueryKind::kQueue).json, "[]");
  EXPECT_EQ(Ask(QueryKind::kNodes).json, "[]");
}

TEST_F(QueryTest, AWaitingJobSaysWhy) {
  Submit("a");
  const std::vector<json> rows = AskAll(QueryKind::kQueue);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["id"], 1);
  EXPECT_EQ(rows[0]["name"], "a");
  EXPECT_EQ(rows[0]["state"], "PD");
  EXPECT_EQ(rows[0]["accelerators"], json::array());
  EXPECT_EQ(rows[0]["steps_done"], 0);
  EXPECT_EQ(rows[0]["ended_at_s"], nullptr);
  EXPECT_EQ(rows[0]["last_generation"], nullptr);
  EXPECT_EQ(rows[0]["exit"], nullptr);
  EXPECT_EQ(rows[0]["checkpoint_directory"], "/state/checkpoints/a");
  EXPECT_THAT(rows[0]["reason"].get<std::string>(), HasSubstr("waiting"));
}

TEST_F(QueryTest, HundredsOfJobsComeInPagesOnceEach) {
  for (int i = 0; i < 700; ++i) Submit(StrCat("job-", i));
  int pages = 0;
  const std::vector<json> rows = AskAll(QueryKind::kQueue, &pages);
  EXPECT_GT(pages, 3);
  ASSERT_EQ(rows.size(), 700u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i]["id"], i + 1);
}

TEST_F(QueryTest, OneJobCanBeAskedFor) {
  for (const char* name : {"a", "b", "c"}) Submit(name);
  const json rows = json::parse(Ask(QueryKind::kQueue, JobId(2)).json);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["name"], "b");
}

TEST_F(QueryTest, NodesShowEachAccelerator) {
  Join("here", 2);
  const std::vector<json> rows = AskAll(QueryKind::kNodes);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["server"], "here");
  EXPECT_EQ(rows[0]["state"], "idle");
  ASSERT_EQ(rows[0]["accelerators"].size(), 2u);
  EXPECT_EQ(rows[0]["accelerators"][1]["uuid"], "here-1");
  EXPECT_EQ(rows[0]["accelerators"][1]["type"], "v100");
  EXPECT_EQ(rows[0]["accelerators"][1]["state"], "idle");
  EXPECT_EQ(rows[0]["accelerators"][1]["jobs"], json::array());
}

json NodesOf(const EngineDriver& driver) {
  const QueryReply reply =
      AnswerQuery({1, QueryKind::kNodes, JobId(), 0},
                  {driver.engine(), driver.now, "max_min_fairness"});
  return json::parse(reply.json);
}

TEST(NodesQuery, AnAcceleratorWhoseJobStartsIsNotIdle) {
  EngineDriver driver(2);
  const JobId job = driver.Submit("a");
  json node = NodesOf(driver)[0];
  EXPECT_EQ(node["state"], "mixed");
  EXPECT_EQ(node["accelerators"][0]["state"], "starting");
  EXPECT_EQ(node["accelerators"][0]["starting_jobs"], json::array({1}));
  EXPECT_EQ(node["accelerators"][0]["jobs"], json::array());
  EXPECT_EQ(node["accelerators"][1]["state"], "idle");
  driver.Run(job);
  node = NodesOf(driver)[0];
  EXPECT_EQ(node["accelerators"][0]["state"], "allocated");
  EXPECT_EQ(node["accelerators"][0]["starting_jobs"], json::array());
}

TEST(NodesQuery, ALostAcceleratorSaysOnWhoseWordAndWhatToDo) {
  EngineDriver driver(1);
  const JobId first = driver.Submit("a");
  const JobId second = driver.Submit("b");
  EXPECT_EQ(NodesOf(driver)[0]["accelerators"][0]["lost_for"], "");
  driver.Step(event::AcceleratorLost{"here", "here-0", first});
  driver.Step(event::AcceleratorLost{"here", "here-0", second});
  json lost = NodesOf(driver)[0]["accelerators"][0];
  EXPECT_EQ(lost["state"], "lost");
  EXPECT_THAT(lost["lost_for"].get<std::string>(),
              AllOf(HasSubstr("as `gavel logs 1` tells"),
                    HasSubstr("restart the agent of here")));
  for (const JobId job : {first, second}) {
    driver.Step(event::JobCommanded{job, CommandKind::kCancel});
  }
  EXPECT_EQ(NodesOf(driver)[0]["accelerators"][0]["lost_for"], "");
  driver.Step(event::AcceleratorLost{"here", "here-0"});
  lost = NodesOf(driver)[0]["accelerators"][0];
  EXPECT_THAT(lost["lost_for"].get<std::string>(), StartsWith("it failed;"));
}

TEST(NodesQuery, AnAcceleratorSaysWhetherItIsExclusiveAndWhatProcessesSee) {
  EngineDriver driver(1);
  json one = NodesOf(driver)[0]["accelerators"][0];
  EXPECT_EQ(one["exclusive"], false);
  EXPECT_EQ(one["visibility"], "all");
  AgentHello hello;
  hello.server = "there";
  hello.incarnation = 1;
  hello.accelerators.resize(1);
  hello.accelerators[0].type = "v100";
  hello.accelerators[0].uuid = "GPU-aa";
  hello.accelerators[0].exclusive = true;
  hello.accelerators[0].alone_visible = true;
  driver.Step(event::ServerJoined{hello});
  one = NodesOf(driver)[1]["accelerators"][0];
  EXPECT_EQ(one["exclusive"], true);
  EXPECT_EQ(one["visibility"], "leased");
}

// The process exists until its agent reports that it has ended.
TEST(NodesQuery, AServerIsDrainedOnceWhatStartedThereIsGone) {
  EngineDriver driver;
  const JobId job = driver.Submit("a");
  const WorkerKey key = driver.Key(job);
  event::AcceleratorsDrained drained{"here"};
  drained.until = driver.now;
  driver.Step(drained);
  ASSERT_EQ(driver.Last<StopWorker>()->worker, key);
  json node = NodesOf(driver)[0];
  EXPECT_EQ(node["state"], "draining");
  EXPECT_EQ(node["accelerators"][0]["state"], "draining");
  EXPECT_EQ(node["accelerators"][0]["starting_jobs"], json::array({1}));
  driver.Gone(key, 0, 15);
  node = NodesOf(driver)[0];
  EXPECT_EQ(node["state"], "drained");
  EXPECT_EQ(node["accelerators"][0]["state"], "drained");
}

// The speed comes from jobs that moved there from other accelerators.
TEST(NodesQuery, TellsHowFastAStragglerIs) {
  EngineDriver driver(3, "max_min_fairness");
  const JobId first = driver.Submit("first");
  const JobId second = driver.Submit("second");
  for (const JobId job : {first, second}) {
    driver.Run(job);
    driver.ReportSpeed(job, 10);
  }
  for (const JobId job : {first, second}) {
    driver.MoveByLoss(job);
    driver.ReportSpeed(job, 6);
    if (job == first) driver.Gone(driver.Key(first), 0);
  }
  const json nodes = NodesOf(driver);
  std::vector<double> speeds;
  for (const json& accelerator : nodes[0]["accelerators"]) {
    speeds.push_back(accelerator["speed"].get<double>());
  }
  EXPECT_EQ(speeds, (std::vector<double>{1, 1, 0.6}));
}

TEST_F(QueryTest, ASilentServerIsDown) {
  Join("here", 2);
  Step(event::ServerLost{"here"});
  const std::vector<json> rows = AskAll(QueryKind::kNodes);
  EXPECT_EQ(rows.at(0)["state"], "down");
  EXPECT_EQ(rows.at(0)["accelerators"][0]["state"], "unreachable");
}

TEST_F(QueryTest, ALargeClusterComesInPages) {
  Join("large", 1000);
  for (int i = 0; i < 300; ++i) Join(StrCat("small-", i), 3);
  int pages = 0;
  std::set<std::string> uuids;
  for (const json& row : AskAll(QueryKind::kNodes, &pages)) {
    for (const json& accelerator : row["accelerators"]) {
      EXPECT_TRUE(uuids.insert(accelerator["uuid"]).second);
    }
  }
  EXPECT_EQ(uuids.size(), 1900u);
  EXPECT_GT(pages, 2);
}

TEST_F(QueryTest, WhySaysWhereTheThroughputsComeFrom) {
  Join("here", 1);
  Submit("a");
  const json why = json::parse(Ask(QueryKind::kWhy, JobId(1)).json);
  EXPECT_EQ(why["job"], 1);
  EXPECT_EQ(why["throughputs"][0]["type"], "v100");
  EXPECT_EQ(why["throughputs"][0]["steps_per_s"], 40.0);
  EXPECT_EQ(why["throughputs"][0]["source"], "given");
  EXPECT_FALSE(why["code"].get<std::string>().empty());
}

// A job of 3 KiB that ran on the server's accelerator and was paused.
TEST_F(QueryTest, APausedJobSaysWhereItsTensorsAre) {
  AgentHello hello;
  hello.server = "here";
  hello.incarnation = 1;
  hello.accelerators.push_back({"v100", "here-0"});
  hello.accelerators[0].memory_bytes = 16 * 1024;
  Step(event::ServerJoined{hello});
  Submit("a");
  const WorkerKey key = RunFirst();
  const uint64_t epoch = engine_.jobs().at(JobId(1)).epoch;
  ASSERT_EQ(engine_.jobs().at(JobId(1)).workers[0].held_epoch, epoch);
  EXPECT_EQ(AskAll(QueryKind::kQueue)[0]["memory"], "");
  Progress progress;
  progress.host_bytes = 3 * 1024;
  Step(event::LeaseEnded{key, epoch, progress, false});
  const std::string where = "parked in host memory on here, 3.0 KiB";
  EXPECT_EQ(AskAll(QueryKind::kQueue)[0]["memory"], where);
  EXPECT_THAT(AskAll(QueryKind::kQueue)[0]["reason"].get<std::string>(),
              HasSubstr("; " + where));
  const json why = json::parse(Ask(QueryKind::kWhy, JobId(1)).json);
  EXPECT_EQ(why["memory"], where);
  EXPECT_EQ(AskAll(QueryKind::kNodes)[0]["parked_bytes"], 3 * 1024);
  EXPECT_EQ(AskAll(QueryKind::kNodes)[0]["accelerators"][0]["memory_bytes"],
            16 * 1024);
}

TEST_F(QueryTest, AJobThatRanOutOfMemorySaysSo) {
  Join("here", 1);
  Submit("a");
  const WorkerKey key = RunFirst();
  Step(event::LeaseEnded{key,
                         engine_.jobs().at(JobId(1)).epoch,
                         {},
                         false,
                         ReleaseCause::kOutOfMemory});
  const json why = json::parse(Ask(QueryKind::kWhy, JobId(1)).json);
  EXPECT_EQ(why["code"], "out_of_memory");
  EXPECT_EQ(why["throughputs"][0]["source"], "out of memory");
  EXPECT_EQ(why["throughputs"][0]["steps_per_s"], 0.0);
}

TEST_F(QueryTest, StatusCountsJobsByState) {
  for (const char* name : {"a", "b", "c"}) Submit(name);
  Step(event::JobCommanded{JobId(2), CommandKind::kCancel});
  const json status = json::parse(Ask(QueryKind::kStatus).json);
  EXPECT_EQ(status["term"], 1);
  EXPECT_EQ(status["policy"], "fifo");
  EXPECT_EQ(status["jobs"]["PD"], 2);
  EXPECT_EQ(status["jobs"]["CA"], 1);
  EXPECT_EQ(status["jobs"]["R"], 0);
  EXPECT_EQ(status["round_ends_in_s"], nullptr);
  EXPECT_EQ(status["objective"], nullptr);
  EXPECT_EQ(status["kept_out"], (json{{"frames_dropped", 1},
                                      {"messages_refused", 2},
                                      {"connections_refused", 3},
                                      {"connections_cut", 4},
                                      {"handshakes_failed", 5}}));
  EXPECT_EQ(status["troubles"], json({"row 7"}));
  EXPECT_EQ(status["profiling"], json({{"percentage_max", 50.0},
                                       {"accelerators", 0},
                                       {"accelerator_s", 0.0}}));
  EXPECT_EQ(
      status["failures"],
      json({{"workers_lost", 0}, {"busy_s", 0.0}, {"interval_s", 21600.0}}));
}

TEST_F(QueryTest, LettersFollowTheWorkers) {
  Job job;
  job.workers.resize(1);
  EXPECT_EQ(StateLetters(job), "PD");
  job.workers[0].process = ProcessState::kJoined;
  EXPECT_EQ(StateLetters(job), "PD");
  job.workers[0].held_epoch = 3;
  EXPECT_EQ(StateLetters(job), "R");
  job.workers[0].pause_sent_at = 10;
  EXPECT_EQ(StateLetters(job), "CG");
  job.workers[0].held_epoch = 0;
  job.workers[0].pause_sent_at = kNever;
  job.workers[0].progress.pauses = 1;
  EXPECT_EQ(StateLetters(job), "S");
  job.state = JobState::kHeld;
  EXPECT_EQ(StateLetters(job), "F");
  job.state = JobState::kFinished;
  EXPECT_EQ(StateLetters(job), "CD");
  job.state = JobState::kCancelled;
  EXPECT_EQ(StateLetters(job), "CA");
  job.workers[0].held_epoch = 3;
  EXPECT_EQ(StateLetters(job), "CG");
}

TEST(ForecastRows, TheLimitOfAnOpaqueJobBeginsWithItsLease) {
  EngineDriver driver(1);
  JobSpec spec;
  spec.job_class = JobClass::kOpaque;
  spec.time_limit_s = 600;
  driver.Submit("runs", 1, spec);
  driver.At(100);
  driver.Submit("waits", 1, spec);
  const QueryRequest request{1, QueryKind::kForecast, JobId(), 0};
  const json rows = json::parse(
      AnswerQuery(request, {driver.engine(), driver.now, "fifo"}).json);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["opaque"], true);
  EXPECT_NEAR(rows[0]["time_left_s"].get<double>(), 500, 1);
  EXPECT_EQ(rows[1]["time_left_s"], 600.0);
}

TEST(ForecastRows, AJobHasItsPlaceWhileItsProcessStarts) {
  EngineDriver driver(1);
  const JobId starts = driver.Submit("starts");
  driver.Submit("waits");
  EXPECT_EQ(StateLetters(driver.job(starts)), "PD");
  const QueryRequest request{1, QueryKind::kForecast, JobId(), 0};
  const auto ask = [&] {
    return json::parse(
        AnswerQuery(request, {driver.engine(), driver.now, "fifo"}).json);
  };
  EXPECT_EQ(ask()[0]["placed"], true);
  EXPECT_EQ(ask()[1]["placed"], false);
  driver.Run(starts);
  EXPECT_EQ(StateLetters(driver.job(starts)), "R");
  EXPECT_EQ(ask()[0]["placed"], true);
}

TEST(ForecastRows, JobsBehindTheQueueAreShownWhereTheyAreAskedFor) {
  EngineDriver driver(1);
  const JobId parent = driver.Submit("prepare", 1, JobSpec());
  JobSpec child;
  child.after_success = {"prepare"};
  child.not_before_s = 500;
  driver.Submit("train", 1, child);
  JobSpec array;
  array.array = "0-2%1";
  array.job_class = JobClass::kOpaque;
  array.time_limit_s = 60;
  array.types = {"k80"};
  array.exclude_servers = {"elsewhere"};
  array.throughputs = {{"v100", 7.0}};
  driver.Submit("lm", 1, array);
  const JobId held = driver.Submit("held", 1, JobSpec());
  driver.Step(event::JobCommanded{held, CommandKind::kHold});
  driver.At(10);
  QueryRequest request{1, QueryKind::kForecast, JobId(), 0};
  const auto ask = [&] {
    return json::parse(
        AnswerQuery(request, {driver.engine(), driver.now, "fifo"}).json);
  };
  json rows = ask();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["array_at_once"], 1);
  EXPECT_EQ(rows[1]["waits"], false);

  request.filter = kWithWaiting;
  rows = ask();
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1]["waits"], true);
  EXPECT_EQ(rows[1]["awaits"], json::array({parent.value()}));
  EXPECT_NEAR(rows[1]["not_before_s"].get<double>(), 490, 1);
  EXPECT_EQ(rows[4]["waits"], true);
  EXPECT_EQ(rows[4]["array"], 3);
  EXPECT_EQ(rows[4]["time_left_s"], 60.0);
  EXPECT_EQ(rows[4]["servers"], json::array());
  EXPECT_EQ(rows[4]["exclude_servers"], json::array({"elsewhere"}));
  EXPECT_EQ(rows[4]["throughputs"]["v100"], 0.0) << "its file bars it";
  EXPECT_EQ(rows[5]["waits"], false);
  EXPECT_EQ(rows[5]["held"], true);
  driver.Step(event::JobCommanded{parent, CommandKind::kCancel});
  EXPECT_EQ(ask().size(), 4u) << "those that are over are not shown";
}

TEST_F(QueryTest, BytesThatAreNoTextDoNotBreakTheJson) {
  Submit("a");
  JobSpec spec;
  spec.name = "b";
  spec.argv = {"./train"};
  spec.app = "\xff\xfe";
  Step(event::JobSubmitted{spec});
  EXPECT_EQ(AskAll(QueryKind::kQueue).size(), 2u);
}

TEST_F(QueryTest, WhyNamesParentsAlsoThoseThatHaveEnded) {
  Submit("prepare");
  JobSpec child;
  child.name = "child";
  child.argv = {"./train"};
  child.after_any = {"1"};
  Step(event::JobSubmitted{child});
  const auto parents = [&] {
    return json::parse(Ask(QueryKind::kWhy, JobId(2)).json)["parents"];
  };
  ASSERT_EQ(parents().size(), 1u);
  EXPECT_EQ(parents()[0], json({{"job", 1},
                                {"is_array", false},
                                {"name", "prepare"},
                                {"must_finish", false},
                                {"is_awaited", true},
                                {"state", "PD"}}));
  Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  ASSERT_EQ(parents().size(), 1u);
  EXPECT_EQ(parents()[0]["job"], 1);
  EXPECT_EQ(parents()[0]["name"], "prepare");
  EXPECT_EQ(parents()[0]["is_awaited"], false);
  EXPECT_EQ(parents()[0]["state"], "CA");
  // Others are not told what its file says.
  reader_.name = "bob";
  reader_.role = Role::kUser;
  EXPECT_THAT(parents(), IsEmpty());
}

TEST_F(QueryTest, WhyKnowsAParentByItsNameUnlessALaterJobHasIt) {
  Submit("prepare");
  JobSpec child;
  child.name = "child";
  child.argv = {"./train"};
  child.after_any = {"prepare"};
  Step(event::JobSubmitted{child});
  Step(event::JobCommanded{JobId(1), CommandKind::kCancel});
  const auto parent = [&] {
    return json::parse(Ask(QueryKind::kWhy, JobId(2)).json)["parents"].at(0);
  };
  EXPECT_EQ(parent()["job"], 1);
  EXPECT_EQ(parent()["state"], "CA");
  Submit("prepare");
  EXPECT_EQ(parent()["job"], 0);
  EXPECT_EQ(parent()["name"], "prepare");
  EXPECT_EQ(parent()["state"], "");
}

class StayCostsTest : public Test {
 protected:
  StayCostsTest() : job_(driver_.Submit("a")) {
    Note();
    Run();
  }

  void Run() {
    driver_.Run(job_);
    Note();
  }
  void RunOn() {
    driver_.Request(driver_.Key(job_));
    Note();
  }
  // The process has lost so much time so far.
  void GiveBack(double pausing_s) {
    Progress told;
    told.pausing_s = pausing_s;
    driver_.GiveBack(job_, told);
    Note();
  }
  void Restart() {
    costs_ = StayCosts();
    driver_.Restart();
    Note();
  }
  const HistogramRow& After(const std::string& began) const {
    return *FindNamed(costs_.row().overhead, began);
  }

  EngineDriver driver_;
  JobId job_;
  StayCosts costs_;

 private:
  void Note() {
    for (; noted_ < driver_.rows.size(); ++noted_) {
      costs_.Note(*driver_.rows[noted_].event, driver_.engine());
    }
  }
  size_t noted_ = 0;
};

TEST_F(StayCostsTest, LeasesCostWhatTheirProcessReportsSinceTheLastOne) {
  GiveBack(0.3);
  RunOn();
  GiveBack(0.75);
  // Another process counts from 0.
  driver_.Gone(driver_.Key(job_), kExitEvicted);
  Run();
  GiveBack(100);
  // Other ranks report the same.
  event::LeaseEnded other;
  other.worker = {job_, 1, 1};
  costs_.Note(other, driver_.engine());
  EXPECT_EQ(costs_.row().pauses, 3u);
  EXPECT_EQ(costs_.row().moves, 0u);
  EXPECT_NEAR(costs_.row().pausing_s, 100.75, 1e-9);
  EXPECT_NEAR(After("start").sum_s, 0.3, 1e-9);
  EXPECT_EQ(After("start").counts.at(6), 1u) << "over 0.25, up to 0.5";
  EXPECT_NEAR(After("return").sum_s, 100.45, 1e-9);
  EXPECT_EQ(After("return").counts.at(6), 1u);
  EXPECT_EQ(After("return").counts.back(), 1u) << "beyond all limits";
}

TEST_F(StayCostsTest, BeginAtZeroWhenTheCoordinatorIsRestarted) {
  GiveBack(5);
  RunOn();
  Restart();
  EXPECT_EQ(costs_.row().pausing_s, 0);
  // The lease is older than the start; its time since then counts.
  GiveBack(7);
  EXPECT_EQ(costs_.row().pauses, 1u);
  EXPECT_EQ(costs_.row().moves, 0u);
  EXPECT_NEAR(costs_.row().pausing_s, 2, 1e-9);
  EXPECT_NEAR(After("return").sum_s, 2, 1e-9);
  EXPECT_EQ(After("start").sum_s, 0);
}

}  // namespace
}  // namespace gavel::testing
