// SIGKILL at random moments of processes that train and save after every step,
// again and again, until the job is done; then the next job. Each ends with the
// weights of a run that nobody killed.
//
// GAVEL_KILLS: how many (50 if not set); GAVEL_KILL_SEED: of the moments.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/iterator/training.h"
#include "tests/iterator/worker_process.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr int kLifeMax_us = 120'000;  // some generations

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Until it trains; false when it has ended before.
bool WaitUntilItTrains(const WorkerProcess& worker) {
  std::string output;
  const auto says = [&](const char* text) {
    return output.find(text) != std::string::npos;
  };
  EXPECT_TRUE(Eventually([&] {
    output = worker.Output();
    return says("running alone") || says("after the loop");
  })) << output;
  return says("running alone");
}

struct Kills {
  int wanted = 0;
  int done = 0;
  std::mt19937 random;
};

// Until the job is done, or all kills were made: then nothing is in its way.
void RunOneJob(Kills* kills) {
  const TemporaryFolder folder;
  const WorkerProcess::Variables variables = {
      {"STEP_MS", "1"},
      {"GAVEL_CHECKPOINT_DIRECTORY", folder.path() + "/checkpoints"},
      {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "1"}};
  while (true) {
    WorkerProcess worker(folder.path(), variables);
    const bool trains = WaitUntilItTrains(worker);
    if (trains && kills->done < kills->wanted) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(kills->random() % kLifeMax_us));
      worker.Signal(SIGKILL);
    }
    const int exit_code = worker.Wait();
    if (exit_code == 0) {
      ASSERT_EQ(worker.Weights(), Uninterrupted().weights);
      return;
    }
    ASSERT_EQ(exit_code, 128 + SIGKILL) << worker.Output();
    ASSERT_THAT(worker.Output(),
                Not(HasSubstr("fell back to an earlier checkpoint")));
    ++kills->done;
  }
}

TEST(KillLoop, KilledJobsEndAsIfNobodyHadKilledThem) {
  Kills kills;
  kills.wanted = FromEnvironment("GAVEL_KILLS", 50);
  kills.random.seed(
      static_cast<unsigned>(FromEnvironment("GAVEL_KILL_SEED", 1)));
  int jobs = 0;
  while (kills.done < kills.wanted && !HasFatalFailure()) {
    RunOneJob(&kills);
    ++jobs;
  }
  std::printf("%d kills, %d jobs\n", kills.done, jobs);
  RecordProperty("kills", kills.done);
  RecordProperty("jobs", jobs);
}

}  // namespace
}  // namespace gavel::testing
