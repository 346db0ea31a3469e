// A gang under the real coordinator, on one server: two ranks train together,
// are checkpointed at one step, and start again together when one is killed.
#include <csignal>
#include <filesystem>

#include "core/text.h"
#include "gavel_paths.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/support/checkpoint_directory.h"
#include "tests/support/files.h"
#include "tests/support/gavel_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr uint64_t kSteps = 120;
constexpr double kPatience_s = 120;
constexpr char kKeys[] =
    "scale_factor = 2\n"
    "[environment]\nGAVEL_CHECKPOINT_INTERVAL_S = \"0.5\"\n"
    "GAVEL_DEVICE = \"cpu\"\n";

// Everything that any rank of any job wrote.
std::string AllLogs(const std::string& folder) {
  std::string all;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.path().extension() != ".log") continue;
    all += StrCat("==== ", entry.path().string(), "\n", ReadText(entry.path()));
  }
  return all;
}

class GangEndToEnd : public GavelTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GAVEL_DIGITS_DIR)) {
      GTEST_SKIP() << GAVEL_DIGITS_DIR
                   << " is missing; ./gavel-dev setup exports the digits";
    }
    WriteCluster(2, 60, 10);
    job_path_ =
        WriteCommand("gang",
                     {GAVEL_BINARY_DIR "/train_image", "--epochs", "1000",
                      "--steps", std::to_string(kSteps), "--width", "8",
                      "--batch-size", "16", "--global-batch-size", "32"},
                     kKeys);
  }

  uint64_t LastStep() const {
    const std::string directory = CheckpointDirectory(state(), "1-gang");
    if (!std::filesystem::exists(directory)) return 0;
    const auto store = GenerationStore::Open(directory);
    if (!store.ok()) return 0;
    const auto last = store->LatestGeneration();
    return last.ok() ? last->step : 0;
  }

  std::string job_path_;
};

TEST_F(GangEndToEnd, TwoRanksTrainTogetherToTheEnd) {
  const auto local = StartLocal({job_path_});
  EXPECT_EQ(local->Wait(kPatience_s), 0)
      << local->errors() << AllLogs(folder());
  EXPECT_EQ(Summary()["jobs"][0]["steps"], kSteps);
  EXPECT_EQ(LastStep(), kSteps);
  const std::string logs = AllLogs(folder());
  EXPECT_THAT(logs, HasSubstr("rank 0 of a gang of 2"));
  EXPECT_THAT(logs, HasSubstr("rank 1 of a gang of 2"));
}

TEST_F(GangEndToEnd, AKilledRankMakesTheGangGoOnFromItsLastGeneration) {
  const auto local = StartLocal({job_path_});
  ASSERT_TRUE(Eventually([&] { return LastStep() > 0; }, kPatience_s))
      << AllLogs(folder());
  ASSERT_LT(LastStep(), kSteps) << "too fast to be disturbed";
  const std::vector<pid_t> workers = WorkerPids();
  ASSERT_EQ(workers.size(), 2);
  kill(workers.back(), SIGKILL);
  EXPECT_EQ(local->Wait(kPatience_s), 0)
      << local->errors() << AllLogs(folder());
  EXPECT_EQ(Summary()["jobs"][0]["state"], "finished");
  EXPECT_EQ(LastStep(), kSteps);
  EXPECT_THAT(AllLogs(folder()), HasSubstr("the gang is broken in step"));
}

}  // namespace
}  // namespace gavel::testing
