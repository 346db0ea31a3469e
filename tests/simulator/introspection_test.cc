// Introspection over whole simulations: it does not cost throughput, it gains
// where pairs are good, and it moves nobody about.
#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/text.h"
#include "gtest/gtest.h"
#include "tests/simulator/trace_fixture.h"

namespace gavel::testing {
namespace {

constexpr int kTypes = 5;

// Job types with random speeds on one accelerator type. Beside each other two
// jobs keep parts of their speeds between the bounds.
ThroughputTable RandomTable(std::mt19937_64& random, double least,
                            double most) {
  std::uniform_real_distribution<double> speed(1, 10);
  std::uniform_real_distribution<double> kept(least, most);
  std::vector<double> alone(kTypes);
  for (double& one : alone) one = speed(random);
  std::vector<std::vector<double>> beside(kTypes, std::vector<double>(kTypes));
  for (auto& row : beside) {
    for (double& one : row) one = kept(random);
  }
  std::string json = "{\"fast\": {";
  for (int a = 0; a < kTypes; ++a) {
    StrAppend(&json, a > 0 ? ", " : "", "\"('t", a,
              "', 1)\": {\"null\": ", alone[a]);
    for (int b = 0; b < kTypes; ++b) {
      StrAppend(&json, ", \"('t", b, "', 1)\": [", alone[a] * beside[a][b],
                ", ", alone[b] * beside[b][a], "]");
    }
    StrAppend(&json, "}");
  }
  StrAppend(&json, "}}");
  return *ThroughputTable::Parse(json, "random");
}

struct Workload {
  ThroughputTable table;
  Trace trace;
  SimulationOptions options;
};

// More jobs than accelerators, over five hours.
Workload RandomWorkload(uint64_t seed, double least, double most) {
  std::mt19937_64 random(seed);
  Workload made{RandomTable(random, least, most), {}, {}};
  std::uniform_int_distribution<int> type(0, kTypes - 1);
  std::uniform_real_distribution<double> arrival(0, 3600);
  std::uniform_real_distribution<double> steps(10'000, 200'000);
  // Jobs of equal weights would take turns in lockstep, with hardly a move,
  // until the first trial.
  std::uniform_real_distribution<double> weight(0.8, 1.25);
  std::vector<double> arrivals(24);
  for (double& one : arrivals) one = arrival(random);
  std::sort(arrivals.begin(), arrivals.end());
  std::vector<SmallJob> jobs;
  for (const double at : arrivals) {
    jobs.push_back(
        {StrCat("t", type(random)), steps(random), at, 1, weight(random)});
  }
  made.trace = SmallTrace(jobs);
  const char* policies[] = {"max_min_fairness", "gandiva_reactive", "fifo",
                            "max_min_fairness_perf"};
  made.options = SmallOptions(seed % 2 == 0 ? "fast:4x2" : "fast:4",
                              policies[seed % std::size(policies)]);
  made.options.engine.round_duration_s = 60;
  made.options.overheads.all = {.pause_s = 1, .resume_s = 3, .move_s = 10};
  made.options.time_limit_s = 5 * 3600;
  return made;
}

// The work done within the time limit, in seconds of each job alone.
double WorkDone(const Workload& workload, const SimulationOptions& options) {
  const SimulationResult result =
      Simulate(options, workload.trace, workload.table);
  double sum = 0;
  for (const SimulatedJob& job : result.jobs) {
    const auto row = workload.table.FindRow(job.type, 1);
    sum += job.steps / *workload.table.Alone(*row, 0);
  }
  return sum;
}

double GainOf(const Workload& workload) {
  SimulationOptions tries = workload.options;
  tries.engine.introspection = true;
  return WorkDone(workload, tries) / WorkDone(workload, workload.options) - 1;
}

void ExpectNoLoss(uint64_t workloads) {
  double worst = 0;
  for (uint64_t seed = 0; seed < workloads; ++seed) {
    // Where pairs are bad, where they are good, and where both occur.
    const double least = seed % 3 == 1 ? 0.5 : 0.1;
    const double most = seed % 3 == 0 ? 0.5 : 1;
    const double gain = GainOf(RandomWorkload(seed, least, most));
    EXPECT_GE(gain, -0.02) << "seed " << seed;
    worst = std::min(worst, gain);
  }
  ::testing::Test::RecordProperty("worst_gain", StrCat(worst));
}

TEST(Introspection, LowersThroughputByTwoPercentAtMost) { ExpectNoLoss(24); }

TEST(Introspection, LowersThroughputByTwoPercentAtMostInAThousandWorkloads) {
  ExpectNoLoss(1000);
}

TEST(Introspection, RaisesThroughputWherePairsAreGood) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_GT(GainOf(RandomWorkload(seed, 0.75, 0.95)), 0.1) << seed;
  }
}

// Each trial of a pair pauses its two jobs, to begin it and to undo it.
TEST(Introspection, AddsFewPausesWherePairsAreBad) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Workload workload = RandomWorkload(seed, 0.1, 0.4);
    SimulationOptions tries = workload.options;
    tries.engine.introspection = true;
    const SimulationResult before =
        Simulate(workload.options, workload.trace, workload.table);
    const SimulationResult after =
        Simulate(tries, workload.trace, workload.table);
    const double trials = 24.0 / 2 * (5 * 3600 / 600.0);
    EXPECT_LE(static_cast<double>(after.preemptions),
              1.1 * static_cast<double>(before.preemptions) + 4 * trials)
        << seed;
  }
}

}  // namespace
}  // namespace gavel::testing
