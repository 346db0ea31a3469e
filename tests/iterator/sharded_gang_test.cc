// Gangs of real processes that train a model of which each has a part
// (examples/train_tensor_parallel.cc): stops and losses of a rank leave no
// trace in it, and another number of workers continues with its own parts.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/checkpoint/generation_store.h"
#include "tests/iterator/gang_of_processes.h"
#include "tests/support/coordinator_thread.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class ShardedGang : public Test {
 protected:
  std::vector<int> Train(const std::string& folder, int world_size,
                         const Variables& variables = {}) {
    GangOfProcesses gang(folder, world_size, variables);
    std::vector<int> codes = gang.Wait();
    output_ = gang.Outputs();
    return codes;
  }
  // All that the last generation holds.
  static Restored Last(const std::string& folder) {
    auto store = GenerationStore::Open(folder + "/checkpoints");
    return *store->Restore();
  }
  static Manifest LastManifest(const std::string& folder) {
    auto store = GenerationStore::Open(folder + "/checkpoints");
    return *store->ReadManifest(*store->LatestGeneration());
  }
  const std::string& Undisturbed() {
    static const TemporaryFolder folder;
    static const bool trained = [this] {
      EXPECT_EQ(Train(folder.path(), 2), Codes(2, 0)) << output_;
      return true;
    }();
    static_cast<void>(trained);
    return folder.path();
  }
  void ExpectUndisturbed(const std::string& folder) {
    EXPECT_THAT(
        DifferingTensors(LastManifest(folder), LastManifest(Undisturbed())),
        IsEmpty());
  }

  TemporaryFolder folder_;
  std::string output_;
};

const Variables kSlow = {{"STEP_MS", "100"},
                         {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "3"}};

TEST_F(ShardedGang, EachRankSavesItsPart) {
  const Restored last = Last(Undisturbed());
  const std::vector<StoredPart>& by_outputs =
      last.snapshot.parts.at("block0.by_outputs");
  ASSERT_EQ(by_outputs.size(), 2u);
  EXPECT_EQ(by_outputs[1].begin, 128);
  EXPECT_EQ(by_outputs[1].partition, (Partition{0, 256}));
  // The optimizer's state with it; what both have is there once.
  EXPECT_EQ(last.snapshot.parts.at("optimizer/state/0/exp_avg").size(), 2u);
  EXPECT_NE(FindTensor(last.snapshot, "block0.bias"), nullptr);
}

TEST_F(ShardedGang, AStopAndARestartLeaveNoTrace) {
  {
    GangOfProcesses gang(folder_.path(), 2, kSlow);
    ASSERT_TRUE(Eventually([&] {
      return gang.Outputs().find("of a gang of 2") != std::string::npos;
    })) << gang.Outputs();
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    gang.rank(1).Signal(SIGTERM);
    ASSERT_EQ(gang.Wait(), Codes(2, 75)) << gang.Outputs();
  }
  EXPECT_GT(Last(folder_.path()).generation.step, 0u);
  ASSERT_EQ(Train(folder_.path(), 2), Codes(2, 0)) << output_;
  ExpectUndisturbed(folder_.path());
}

TEST_F(ShardedGang, ALostRankLeavesNoTrace) {
  {
    GangOfProcesses gang(folder_.path(), 2, kSlow);
    ASSERT_TRUE(Eventually([&] {
      return std::filesystem::exists(folder_.path() + "/checkpoints/" +
                                     GenerationName({0, 6}) + "/manifest.json");
    })) << gang.Outputs();
    gang.rank(1).Signal(SIGKILL);
    gang.Wait();
  }
  ASSERT_EQ(Train(folder_.path(), 2), Codes(2, 0)) << output_;
  ExpectUndisturbed(folder_.path());
}

// The state is that of the gang to the bit; sums over the workers are rounded
// otherwise from there on.
TEST_F(ShardedGang, AnotherNumberOfWorkersContinues) {
  for (const int world_size : {1, 4}) {
    SCOPED_TRACE(world_size);
    const TemporaryFolder folder;
    ASSERT_EQ(Train(folder.path(), 2, {{"STEPS", "20"}}), Codes(2, 0))
        << output_;
    ASSERT_EQ(Train(folder.path(), world_size), Codes(world_size, 0))
        << output_;
    const Restored last = Last(folder.path());
    const Restored expected = Last(Undisturbed());
    for (const std::string name :
         {"block0.by_outputs", "block1.by_inputs", "block1.bias",
          "optimizer/state/0/exp_avg"}) {
      ASSERT_OK_AND_ASSIGN(const at::Tensor got,
                           FindPart(last.snapshot, name, nullptr));
      ASSERT_OK_AND_ASSIGN(const at::Tensor want,
                           FindPart(expected.snapshot, name, nullptr));
      EXPECT_TRUE(got.allclose(want, 1e-3, 1e-4)) << name;
    }
  }
}

// A lease for a gang of another size than the one that the process was started
// for.
TEST_F(ShardedGang, AProcessWhoseJobHasAnotherNumberOfWorkersBeginsAgain) {
  CoordinatorThread coordinator;
  coordinator.Grant(TestSlot("slot-a"));
  WorkerProcess worker(
      folder_.path(),
      {{"GAVEL_WORKER_COORDINATOR", coordinator.endpoint()},
       {"GAVEL_JOB", "1"},
       {"GAVEL_INCARNATION", "1"},
       {"GAVEL_RANK", "0"},
       {"GAVEL_WORLD_SIZE", "2"},
       {"GAVEL_RUN_DIRECTORY", folder_.path() + "/run"},
       {"GAVEL_CHECKPOINT_DIRECTORY", folder_.path() + "/checkpoints"}});
  EXPECT_EQ(worker.Wait(), 75) << worker.Output();
  EXPECT_THAT(worker.Output(),
              HasSubstr("the state is cut for 2 workers, and the job has 1"));
}

TEST_F(ShardedGang, AModelThatNoDeviceHasRoomForIsTrained) {
  if (!OnAccelerator()) GTEST_SKIP() << "a CPU's memory is not limited";
  // Two blocks of weights of 2 x 64 x 16384 floats: 16 MiB of them, and as much
  // for gradients and each of Adam's two averages.
  const Variables large = {
      {"HIDDEN", "16384"},
      {"STEPS", "3"},
      {"GAVEL_SIMULATED_DEVICE", "devices=2,memory_mib=56"}};
  EXPECT_NE(Train(folder_.path(), 1, large), Codes(1, 0));
  EXPECT_THAT(output_, HasSubstr("out of memory"));
  const TemporaryFolder second;
  EXPECT_EQ(Train(second.path(), 2, large), Codes(2, 0)) << output_;
}

}  // namespace
}  // namespace gavel::testing
