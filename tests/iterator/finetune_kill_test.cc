// examples/finetune.cc, which uses all of gavel/training.h, killed again and
// again: its result and its reports are those of a run that nobody killed.
// GAVEL_KILLS: how many kills at least (12 if not set).
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "tests/iterator/training.h"
#include "tests/iterator/worker_process.h"
#include "tests/support/eventually.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr int kLifeMax_us = 150'000;

// The values of each step and name. A step that is done again must report the
// same.
std::map<std::string, std::string> ReportsOf(const std::string& path) {
  std::map<std::string, std::string> reports;
  std::ifstream file(path);
  for (std::string step, name, value; file >> step >> name >> value;) {
    const auto [known, is_new] = reports.emplace(step + " " + name, value);
    EXPECT_EQ(known->second, value) << step << " " << name;
  }
  return reports;
}

struct Life {
  std::string result;
  std::map<std::string, std::string> reports;
  int kills = 0;
};

// Until it is done; killed after it has begun to train, `kills` times.
Life Finetune(int kills, std::mt19937* random) {
  const TemporaryFolder folder;
  Life run;
  const WorkerProcess::Variables variables = {
      {"GAVEL_CHECKPOINT_DIRECTORY", folder.path() + "/checkpoints"},
      {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "3"},
      {"GAVEL_REPORT_FILE", folder.path() + "/reports"},
      {"GAVEL_DEVICE", "cpu"},
      {"OMP_NUM_THREADS", "1"}};
  while (true) {
    WorkerProcess worker(folder.path(), variables);
    const auto begun = [&] {
      const std::string output = worker.Output();
      return output.find("running alone") != std::string::npos ||
             output.find("steps are done") != std::string::npos;
    };
    EXPECT_TRUE(Eventually(begun)) << worker.Output();
    if (run.kills < kills) {
      std::this_thread::sleep_for(
          std::chrono::microseconds((*random)() % kLifeMax_us));
      worker.Signal(SIGKILL);
    }
    const int exit_code = worker.Wait();
    if (exit_code != 128 + SIGKILL) {
      EXPECT_EQ(exit_code, 0) << worker.Output();
      run.result = worker.Weights();
      run.reports = ReportsOf(folder.path() + "/reports");
      return run;
    }
    ++run.kills;
  }
}

TEST(FinetuneKill, AKilledTrainingEndsAsIfNobodyHadKilledIt) {
  const char* const wanted = std::getenv("GAVEL_KILLS");
  std::mt19937 random(1);
  const Life whole = Finetune(0, nullptr);
  EXPECT_GT(whole.result.size(), 500u);
  EXPECT_EQ(whole.reports.count("40 accuracy"), 1u);
  EXPECT_EQ(whole.reports.count("191 loss"), 1u);
  EXPECT_EQ(whole.reports.count("5 lr"), 1u);
  const int kills_min = wanted == nullptr ? 12 : std::atoi(wanted);
  int kills = 0;
  while (kills < kills_min && !HasFailure()) {
    const Life killed = Finetune(kills_min - kills, &random);
    EXPECT_EQ(killed.result, whole.result);
    EXPECT_EQ(killed.reports, whole.reports);
    kills += killed.kills;
  }
  RecordProperty("kills", kills);
}

}  // namespace
}  // namespace gavel::testing
