// Without a coordinator, common launchers start the same binary as a gang: the
// real torchrun, if Python has torch, and the documented command for srun, with
// the variables that srun sets. Two ranks train as one worker does.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/text.h"
#include "gavel_paths.h"
#include "tests/support/free_port.h"
#include "tests/support/gavel_fixture.h"

namespace gavel::testing {
namespace {

constexpr int kSteps = 8;
constexpr double kPatience_s = 150;
// Gradients of the same micro-batches are added in another order.
constexpr double kTolerance = 1e-3;
constexpr char kPython[] = GAVEL_CACHE_DIR "/venv/bin/python";

using Losses = std::map<int, double>;  // by step

class Launchers : public GavelTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GAVEL_DIGITS_DIR)) {
      GTEST_SKIP() << GAVEL_DIGITS_DIR
                   << " is missing; ./gavel-dev setup exports the digits";
    }
    Set("GAVEL_DEVICE", "cpu");
    Set("OMP_NUM_THREADS", "1");
  }
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }
  // Sets a variable for the processes that start from now on.
  void Set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  // Sets the folder of reports and checkpoints.
  void SetFolder(const std::string& name) {
    std::filesystem::create_directories(Path(name));
    Set("GAVEL_CHECKPOINT_DIRECTORY", Path(name) + "/checkpoints");
    Set("GAVEL_REPORT_FILE", Path(name) + "/reports");
  }
  // Micro-batches have the same size for any number of workers, since batch
  // statistics are computed over one micro-batch.
  static std::vector<std::string> Training() {
    return {GAVEL_BINARY_DIR "/train_image",
            "--epochs",
            "1000",
            "--steps",
            std::to_string(kSteps),
            "--width",
            "8",
            "--batch-size",
            "16",
            "--global-batch-size",
            "32"};
  }
  // The mean loss over the ranks, for each step.
  Losses LossesOf(const std::string& name) const {
    std::map<int, std::vector<double>> all;
    std::istringstream lines(ReadText(Path(name) + "/reports"));
    std::string what, value;
    for (int step = 0; lines >> step >> what >> value;) {
      if (what == "loss")
        all[step].push_back(std::strtod(value.c_str(), nullptr));
    }
    Losses losses;
    for (const auto& [step, of_ranks] : all) {
      double sum = 0;
      for (const double loss : of_ranks) sum += loss;
      losses[step] = sum / static_cast<double>(of_ranks.size());
    }
    return losses;
  }
  void ExpectSameAsOneWorker(const std::string& gang) {
    SetFolder("alone");
    Process alone(Training(), Path("alone.out"));
    ASSERT_EQ(alone.Wait(kPatience_s), 0) << alone.errors();
    const Losses expected = LossesOf("alone");
    ASSERT_THAT(expected, SizeIs(kSteps));
    const Losses losses = LossesOf(gang);
    ASSERT_THAT(losses, SizeIs(kSteps));
    for (const auto& [step, loss] : expected) {
      EXPECT_NEAR(losses.at(step), loss, kTolerance * loss) << "step " << step;
    }
  }

 private:
  std::vector<std::string> set_;
};

// Torchrun has a store of its own, at a given port or, with --standalone, at
// one that it finds.
class Torchrun : public Launchers, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    Launchers::SetUp();
    if (IsSkipped()) return;
    Process torch({kPython, "-c", "import torch.distributed.run"},
                  Path("import"));
    if (torch.Wait(kPatience_s) != 0) {
      GTEST_SKIP() << kPython
                   << " can't import torch.distributed.run: " << torch.errors();
    }
  }
};

TEST_P(Torchrun, StartsAGangThatTrainsWhatOneWorkerDoes) {
  SetFolder("gang");
  std::vector<std::string> argv = {
      kPython, "-m",         "torch.distributed.run", "--nproc-per-node",
      "2",     "--no-python"};
  if (GetParam()) {
    argv.push_back("--standalone");
  } else {
    argv.insert(argv.end(), {"--master-port", std::to_string(FreePort())});
  }
  const std::vector<std::string> training = Training();
  argv.insert(argv.end(), training.begin(), training.end());
  Process gang(argv, Path("gang.out"));
  ASSERT_EQ(gang.Wait(kPatience_s), 0) << gang.output() << gang.errors();
  EXPECT_THAT(gang.errors(), HasSubstr("rank 0 of a gang of 2"));
  EXPECT_THAT(gang.errors(), HasSubstr("rank 1 of a gang of 2"));
  ExpectSameAsOneWorker("gang");
}

INSTANTIATE_TEST_SUITE_P(Stores, Torchrun, ::testing::Bool(),
                         [](const auto& standalone) {
                           return standalone.param ? "Standalone" : "AtAPort";
                         });

// Runs the command of docs/iterator.md.
TEST_F(Launchers, SrunsVariablesMakeAGangByTheDocumentedCommand) {
  SetFolder("gang");
  Set("MASTER_ADDR", "127.0.0.1");
  Set("MASTER_PORT", std::to_string(FreePort()));
  Set("SLURM_NTASKS", "2");
  std::string command =
      "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID "
      "exec";
  for (const std::string& word : Training()) StrAppend(&command, " ", word);
  std::vector<std::unique_ptr<Process>> tasks;
  for (const char* task : {"0", "1"}) {
    Set("SLURM_PROCID", task);
    Set("SLURM_LOCALID", task);
    tasks.push_back(std::make_unique<Process>(
        std::vector<std::string>{"/bin/bash", "-c", command},
        Path(StrCat("task", task))));
  }
  for (const auto& task : tasks) {
    ASSERT_EQ(task->Wait(kPatience_s), 0) << task->errors();
  }
  EXPECT_THAT(tasks[1]->errors(), HasSubstr("rank 1 of a gang of 2"));
  unsetenv("MASTER_ADDR");
  unsetenv("MASTER_PORT");
  ExpectSameAsOneWorker("gang");
}

}  // namespace
}  // namespace gavel::testing
