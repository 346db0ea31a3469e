// Servers that share no directory: which server sends a checkpoint to which,
// and what a job waits for. The driver's own server "here" is lost first.

#include "core/error_line.h"
#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

constexpr Generation kLast{4, 250};

AgentHello HelloOf(const std::string& server, uint64_t incarnation,
                   bool own_checkpoints = true) {
  AgentHello hello = EngineDriver::HelloOf(server, "v100", incarnation);
  hello.own_checkpoints = own_checkpoints;
  hello.stream_endpoint = "tcp://" + server + ":1";
  hello.stream_public_key = "key of " + server;
  return hello;
}

class EngineMove : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_.Step(event::ServerLost{"here"});
    driver_.Step(event::ServerJoined{HelloOf("a", 1)});
    job_ = driver_.Submit("job");
    const WorkerKey key = driver_.Run(job_);
    EXPECT_EQ(job().workers[0].server, "a");
    Progress progress;
    progress.steps_done = kLast.step;
    progress.last_generation = kLast;
    driver_.Step(event::StepsReported{key, job().epoch, progress});
  }
  const Job& job() const { return driver_.engine().jobs().at(job_); }

  void Lose(const std::string& server) {
    driver_.Step(event::ServerLost{server});
    driver_.At(driver_.now + 60);
  }
  // Reports the progress of a fetch from a to b.
  void Fetch(const WorkerKey& worker, uint64_t bytes_done, uint64_t bytes) {
    FetchProgress progress;
    progress.server = "b";
    progress.worker = worker;
    progress.source = "a";
    progress.bytes_done = bytes_done;
    progress.bytes_total = bytes;
    driver_.Step(event::CheckpointComing{progress});
  }
  std::string Why() const { return driver_.Why(job_); }

  EngineDriver driver_;
  JobId job_;
};

TEST_F(EngineMove, TheFirstStartFetchesNothing) {
  EXPECT_EQ(driver_.Last<LaunchWorker>()->source, CheckpointSource{});
}

TEST_F(EngineMove, AJobWaitsForTheOnlyServerThatHasItsCheckpoint) {
  Lose("a");
  driver_.actions.clear();
  driver_.Step(event::ServerJoined{HelloOf("b", 1)});
  driver_.At(driver_.now + 300);
  EXPECT_EQ(driver_.Last<LaunchWorker>(), std::nullopt);
  EXPECT_THAT(Why(), HasSubstr("(step 250) lies on a alone"));
  // The server comes back with the checkpoint but without accelerators.
  AgentHello hello = HelloOf("a", 2);
  hello.accelerators.clear();
  driver_.Step(event::ServerJoined{hello});
  driver_.At(driver_.now + 10);
  const auto launch = driver_.Last<LaunchWorker>();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->server, "b");
  EXPECT_EQ(launch->source,
            (CheckpointSource{"a", "tcp://a:1", "key of a", kLast}));
}

TEST_F(EngineMove, TheOperatorsWordLetsItGoOnWithoutIt) {
  Lose("a");
  driver_.Step(event::ServerJoined{HelloOf("b", 1)});
  driver_.Step(event::JobCommanded{job_, CommandKind::kRelease, 7});
  driver_.At(driver_.now + 10);
  const auto launch = driver_.Last<LaunchWorker>();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->server, "b");
  EXPECT_EQ(launch->source, CheckpointSource{});
}

TEST_F(EngineMove, AJobThatHasEndedIsNotReleasedThoughItsServerIsLost) {
  for (const bool finished : {true, false}) {
    if (finished) {
      WorkerExited exit = driver_.ExitOf(job_);
      exit.finished_code = 0;
      driver_.Step(event::WorkerGone{exit});
    } else {
      job_ = driver_.Submit("another");
      driver_.Run(job_);
      driver_.Step(event::JobCommanded{job_, CommandKind::kCancel, 7});
    }
    const JobState ended = job().state;
    EXPECT_EQ(ended, finished ? JobState::kFinished : JobState::kCancelled);
    Lose("a");
    driver_.Step(event::JobCommanded{job_, CommandKind::kRelease, 7});
    EXPECT_THAT(driver_.LastReply(), HasSubstr("is not held, it is "));
    EXPECT_EQ(job().state, ended);
    driver_.Step(event::ServerJoined{HelloOf("a", 2)});
  }
}

TEST_F(EngineMove, AMoveIsToldToBothSidesAndShown) {
  // The job's accelerator is lost, but its server is not.
  driver_.Step(event::ServerJoined{HelloOf("b", 1)});
  driver_.Step(event::AcceleratorLost{"a", "a-0"});
  WorkerExited exit = driver_.ExitOf(job_);
  exit.exit_code = 75;
  driver_.Step(event::WorkerGone{exit});
  driver_.At(driver_.now + 10);
  const auto launch = driver_.Last<LaunchWorker>();
  ASSERT_EQ(launch->server, "b");
  EXPECT_EQ(launch->source,
            (CheckpointSource{"a", "tcp://a:1", "key of a", kLast}));
  const auto serve = driver_.Last<ServeCheckpoint>();
  ASSERT_TRUE(serve.has_value());
  EXPECT_EQ(serve->server, "a");
  EXPECT_EQ(serve->reader_public_key, "key of b");
  Fetch(launch->worker, 1'200'000'000, 3'400'000'000);
  EXPECT_EQ(Why(), "moving from a to b: 1.2 of 3.4 GB");
  // The source is lost during the fetch, so the accelerator is freed for
  // others.
  driver_.Step(event::ServerLost{"a"});
  EXPECT_THAT(Why(), HasSubstr("lies on a alone"));
  EXPECT_EQ(driver_.Last<StopWorker>()->worker, launch->worker);
}

TEST_F(EngineMove, AFetchWithoutBytesIsTriedAgainButNotForEver) {
  driver_.Step(event::ServerJoined{HelloOf("b", 1)});
  driver_.Step(event::AcceleratorLost{"a", "a-0"});
  WorkerExited exit = driver_.ExitOf(job_);
  exit.exit_code = 75;
  driver_.Step(event::WorkerGone{exit});
  int launches = 0;
  while (job().active() && launches < 10) {
    driver_.At(driver_.now + 10);
    const auto launch = driver_.Last<LaunchWorker>();
    ASSERT_EQ(launch->server, "b");
    ++launches;
    // Some bytes come, and then no more.
    driver_.At(driver_.now + 90);
    Fetch(launch->worker, 1000, 2000);
    driver_.actions.clear();
    driver_.At(driver_.now + 90);
    EXPECT_EQ(driver_.Last<StopWorker>(), std::nullopt);
    driver_.At(driver_.now + 40);
    ASSERT_TRUE(driver_.Last<StopWorker>().has_value());
    EXPECT_EQ(driver_.Last<StopWorker>()->worker, launch->worker);
    WorkerExited stopped = driver_.ExitOf(job_);
    stopped.launch_error = kStoppedWhileFetching;
    stopped.no_failure = true;
    driver_.Step(event::WorkerGone{stopped});
  }
  EXPECT_EQ(launches, job().spec.retries_max);
  EXPECT_EQ(job().state, JobState::kHeld);
  EXPECT_EQ(job().failures_in_a_row, 0);
  EXPECT_EQ(Why(),
            StrCat("held: its checkpoint was to move from a to b, but no bytes "
                   "came for 120 s, 3 times in a row; see that these servers "
                   "reach each other (the agents' --address), then `gavel "
                   "release ",
                   job_.value(), "`"));
  driver_.Step(event::JobCommanded{job_, CommandKind::kRelease, 7});
  driver_.At(driver_.now + 10);
  EXPECT_EQ(driver_.Last<LaunchWorker>()->source.server, "a");
}

TEST_F(EngineMove, AMixedClusterIsRefused) {
  driver_.Step(event::ServerJoined{HelloOf("c", 1, false)});
  EXPECT_THAT(driver_.Last<AgentRejected>()->reason,
              HasSubstr("--own-checkpoints"));
}

}  // namespace
}  // namespace gavel
