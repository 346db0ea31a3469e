// Runs every workload of examples/ paused, moved, killed and resized: each step
// has the same loss as in an undisturbed run. To add a workload, add a row
// here.
#include <iterator>

#include "core/text.h"
#include "tests/models/workload_fixture.h"

namespace gavel::testing {
namespace {

// A gang adds the sums of a step in another order. Where batches are
// normalized, micro-batches have to be the same ones on any number of workers
// (half a global batch); dropout has to be off, since every rank draws it for
// itself.
const Workload kWorkloads[] = {
    // 72 images go through its buffer of 50.
    {.program = "train_cyclegan",
     .flags = {"--width", "4", "--blocks", "1", "--images", "48",
               "--batch-size", "4"},
     .steps = 18},
    {.program = "train_image",
     .flags = {"--width", "8", "--batch-size", "16", "--global-batch-size",
               "32"},
     .steps = 24,
     .gang_tolerance = 1e-3},
    {.program = "train_imagenet",
     .flags = {"--width", "4", "--images", "64", "--batch-size", "8",
               "--global-batch-size", "16", "--lr", "0.02"},
     .steps = 24,
     .gang_tolerance = 1e-3},
    {.program = "train_imagenet",
     .flags = {"--model", "vgg16", "--width", "2", "--dropout", "0", "--images",
               "64", "--batch-size", "8", "--global-batch-size", "16", "--lr",
               "0.02"},
     .steps = 24,
     .gang_tolerance = 1e-3,
     .name = "vgg16"},
    {.program = "train_language_model",
     .flags = {"--width", "32", "--batch-size", "8", "--global-batch-size",
               "16", "--dropout", "0"},
     .steps = 24,
     .gang_tolerance = 1e-3},
    {.program = "train_translation",
     .flags = {"--width", "32", "--batch-size", "8", "--global-batch-size",
               "16", "--dropout", "0"},
     .steps = 24,
     .gang_tolerance = 1e-3},
    {.program = "train_gpt",
     .flags = {"--width", "32", "--length", "32", "--batch-size", "8",
               "--global-batch-size", "16", "--dropout", "0", "--warm-up", "4",
               "--decay-steps", "24"},
     .steps = 24,
     .gang_tolerance = 1e-3},
    {.program = "train_a3c",
     .flags = {"--actors", "1", "--decay-steps", "24"},
     .steps = 24},
    {.program = "train_recommendation", .flags = {}, .steps = 24},
};

class Workloads : public WorkloadTest,
                  public ::testing::WithParamInterface<Workload> {};
class GangWorkloads : public Workloads {};

TEST_P(Workloads, TrainTheSameWhenPausedMovedAndKilled) {
  ExpectSameWhenDisturbed(GetParam());
}

TEST_P(GangWorkloads, TrainTheSameOnAnotherNumberOfWorkers) {
  ExpectSameWhenResized(GetParam());
}

// One worker trains the others, as in Gavel's job table.
std::vector<Workload> DataParallelOnes() {
  std::vector<Workload> gangs;
  std::ranges::copy_if(kWorkloads, std::back_inserter(gangs),
                       [](const auto& row) { return row.gang_tolerance > 0; });
  return gangs;
}

// The order in which rollouts change the network differs from run to run, so no
// two runs have equal losses. The test checks only that no step is missing.
TEST_F(WorkloadTest, SeveralActorsMakeEveryStepAlthoughKilled) {
  constexpr uint64_t kSteps = 300;
  const Workload a3c = {
      .program = "train_a3c",
      .flags = {"--actors", "3", "--decay-steps", std::to_string(kSteps)}};
  for (const uint64_t steps : {kSteps / 3, kSteps * 2 / 3, kSteps}) {
    EXPECT_TRUE(Train(a3c, "killed", 1, steps, true));
    ASSERT_TRUE(Train(a3c, "killed", 1, steps, false));
  }
  EXPECT_EQ(CurveOf("killed", "margin").size(), kSteps);
}

// The learning rate ends at a tenth of its peak, after as many steps as two
// workers make of the data or, if it is given, as the job has.
TEST_F(WorkloadTest, TheCosineIsAsLongAsTraining) {
  constexpr double kPeak = 0.003;
  const Workload gpt = {
      .program = "train_gpt",
      .flags = {"--width", "16", "--length", "32", "--layers", "1",
                "--batch-size", "64", "--epochs", "1", "--warm-up", "2"}};
  for (const uint64_t steps : {0, 12}) {
    const std::string name = StrCat("of", steps);
    ASSERT_TRUE(Train(gpt, name, 2, steps, false));
    const Curve rates = CurveOf(name, "learning_rate");
    ASSERT_GT(rates.size(), 10u);
    EXPECT_NEAR(std::next(rates.begin(), 2)->second, kPeak, 0.1 * kPeak);
    EXPECT_NEAR(rates.rbegin()->second, 0.1 * kPeak, 0.03 * kPeak) << steps;
  }
}

std::string ProgramOf(const ::testing::TestParamInfo<Workload>& row) {
  return row.param.name.empty() ? row.param.program : row.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, Workloads, ::testing::ValuesIn(kWorkloads),
                         ProgramOf);
INSTANTIATE_TEST_SUITE_P(All, GangWorkloads,
                         ::testing::ValuesIn(DataParallelOnes()), ProgramOf);

}  // namespace
}  // namespace gavel::testing
