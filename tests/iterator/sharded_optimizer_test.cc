// Gangs of real processes that divide the state of an optimizer (ZeRO-1,
// examples/train_sharded_optimizer.cc).
#include <signal.h>

#include <filesystem>

#include "runtime/checkpoint/generation_store.h"
#include "tests/iterator/gang_of_processes.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

class ShardedOptimizer : public Test {
 protected:
  std::string Train(const std::string& folder, int world_size,
                    const Variables& variables = {}) {
    GangOfProcesses gang(folder, world_size, variables);
    EXPECT_EQ(gang.Wait(), Codes(world_size, 0)) << gang.Outputs();
    return folder;
  }
  static Restored Last(const std::string& folder) {
    auto store = GenerationStore::Open(folder + "/checkpoints");
    return *store->Restore();
  }
  void ExpectModelNear(const std::string& folder, const std::string& other,
                       double tolerance) {
    const Restored last = Last(folder);
    const Restored expected = Last(other);
    for (const std::string name : {"model/0.weight", "model/2.bias"}) {
      const at::Tensor* const want = FindTensor(expected.snapshot, name);
      ASSERT_NE(want, nullptr) << name;
      EXPECT_TRUE(FindTensor(last.snapshot, name)
                      ->allclose(*want, tolerance, tolerance))
          << name;
    }
  }

  TemporaryFolder alone_, divided_;
};

TEST_F(ShardedOptimizer, TrainsWhatOneWorkerTrainsAndEachHasHalfOfTheState) {
  ExpectModelNear(Train(divided_.path(), 2), Train(alone_.path(), 1), 1e-4);
  const Restored last = Last(divided_.path());
  const auto& averages = last.snapshot.parts.at("optimizer/state/0/exp_avg");
  ASSERT_EQ(averages.size(), 2u);
  EXPECT_EQ(averages[1].begin * 2, averages[1].partition.size);
}

TEST_F(ShardedOptimizer, AStopAndARestartLeaveNoTrace) {
  Train(alone_.path(), 2);
  {
    GangOfProcesses gang(
        divided_.path(), 2,
        {{"STEP_MS", "50"}, {"GAVEL_CHECKPOINT_INTERVAL_STEPS", "3"}});
    ASSERT_TRUE(Eventually([&] {
      return std::filesystem::exists(divided_.path() + "/checkpoints/" +
                                     GenerationName({0, 6}) + "/manifest.json");
    })) << gang.Outputs();
    gang.rank(0).Signal(SIGTERM);
    ASSERT_EQ(gang.Wait(), Codes(2, 75)) << gang.Outputs();
  }
  ExpectModelNear(Train(divided_.path(), 2), alone_.path(), 0);
}

// Three parts of what were two, which don't divide evenly.
TEST_F(ShardedOptimizer, AnotherNumberOfWorkersContinues) {
  Train(alone_.path(), 1);
  Train(divided_.path(), 2, {{"STEPS", "20"}});
  ExpectModelNear(Train(divided_.path(), 3), alone_.path(), 1e-3);
}

}  // namespace
}  // namespace gavel::testing
