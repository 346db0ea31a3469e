// Interactive jobs on a busy cluster: how soon they start at 95 % load, and
// that nothing pauses them.
#include <string>

#include "study/simulation_run.h"
#include "tests/study/fake_simulation.h"
#include "tests/support/temporary_folder.h"

namespace gavel::testing {

using namespace study;
namespace {

class InteractiveLoadTest : public ::testing::Test {
 protected:
  // Gangs and single jobs of four hours, and in seven of ten arrivals a person,
  // on 16 accelerators. The rate is 95 % of what the cluster can do.
  SimulationRun Run(uint64_t jobs, uint64_t seed) {
    SimulationSpec spec;
    spec.cluster = "v100:16x4";
    spec.throughputs = throughputs_;
    spec.overheads = "start=5,pause=0.5,resume=1,move=5";
    spec.jobs = jobs;
    spec.rate_per_h = 1;
    spec.fixed_duration_s = 4 * 3600;
    spec.multi_gpu = true;
    spec.interactive = 0.7;
    spec.seed = seed;
    SimulationInputCache cache;
    auto inputs = cache.Load(spec);
    EXPECT_OK(inputs.status());
    spec.rate_per_h = 0.95 * inputs->capacity_per_h;
    inputs = cache.Load(spec);
    EXPECT_OK(inputs.status());
    return RunSimulation(*inputs, TraceSimulation::Create, {}).run;
  }

  // Returns the simulated hours.
  double ExpectPrompt(uint64_t jobs, uint64_t seed) {
    const SimulationRun run = Run(jobs, seed);
    EXPECT_EQ(run.status, RunStatus::kOk) << run.detail;
    EXPECT_NEAR(run.offered_load, 0.95, 1e-6);
    const InteractiveFigures& people = run.result.interactive;
    EXPECT_GT(people.jobs, jobs / 2);
    EXPECT_LT(people.p99_start_s, 2) << "seed " << seed;
    EXPECT_EQ(people.paused, 0u) << "seed " << seed;
    // Not all of them find an idle accelerator.
    EXPECT_GT(people.p99_start_s, 0);
    return run.result.makespan_s / 3600;
  }

  TemporaryFolder folder_;
  const std::string throughputs_ = WriteSampleThroughputs(folder_.path());
};

TEST_F(InteractiveLoadTest, TheyStartWithinTwoSecondsAndAreNotPaused) {
  EXPECT_GT(ExpectPrompt(12'000, 0), 2000);
}

TEST_F(InteractiveLoadTest, NoneIsPausedInAHundredThousandHours) {
  double hours = 0;
  for (uint64_t seed = 1; hours < 100'000; ++seed) {
    hours += ExpectPrompt(30'000, seed);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace gavel::testing
