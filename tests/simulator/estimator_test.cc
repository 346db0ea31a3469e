// Simulations in which the throughputs of pairs are estimated: Gavel sections
// 3.3 and 6.

#include "core/text.h"
#include "tests/simulator/trace_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr char kPacked[] = "max_min_fairness_packed";
constexpr int kModels = 6;

// Six models on one type. The part of its speed that a model keeps beside
// another falls with both of their appetites, and two jobs of the hungriest
// model can't share. All figures are sums of powers of two, so estimates of
// known figures are exact.
const ThroughputTable& AppetiteTable() {
  static const auto* const table = [] {
    const double speed[kModels] = {1, 2, 4, 2, 4, 1};
    const double appetite[kModels] = {0.125, 0.25, 0.375, 0.5, 0.75, 0.875};
    std::string rows;
    for (int i = 0; i < kModels; ++i) {
      StrAppend(&rows, i == 0 ? "" : ", ", "\"('m", i,
                "', 1)\": {\"null\": ", speed[i]);
      for (int k = 0; k < kModels; ++k) {
        const bool fits = appetite[i] + appetite[k] < 1.7;
        const double kept = fits ? 1 - appetite[i] * appetite[k] : 0;
        const double other = fits ? kept : 0;
        StrAppend(&rows, ", \"('m", k, "', 1)\": [", speed[i] * kept, ", ",
                  speed[k] * other, "]");
      }
      rows += "}";
    }
    auto parsed =
        ThroughputTable::Parse(StrCat("{\"fast\": {", rows, "}}"), "appetites");
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return new ThroughputTable(*std::move(parsed));
  }();
  return *table;
}

Trace AppetiteTrace(int jobs) {
  std::vector<SmallJob> made;
  for (int i = 0; i < jobs; ++i) {
    SmallJob job;
    job.type = StrCat("m", (i * 5 + i / kModels) % kModels);
    job.steps = 4000 + 100 * i;
    job.arrival_s = 120.0 * i;
    made.push_back(job);
  }
  return SmallTrace(made);
}

SimulationOptions Estimated(int models, double part, double cell_s) {
  SimulationOptions options = SmallOptions("fast:2", kPacked);
  options.engine.reference_models = models;
  options.profiling = {part, cell_s};
  return options;
}

TEST(Estimator, EveryCellProfiledForNothingIsAsGoodAsKnowingThem) {
  const Trace trace = AppetiteTrace(20);
  const SimulationResult known =
      Simulate(SmallOptions("fast:2", kPacked), trace, AppetiteTable());
  const SimulationResult estimated =
      Simulate(Estimated(kModels, 1, 0), trace, AppetiteTable());
  ASSERT_TRUE(known.complete);
  ASSERT_TRUE(estimated.complete);
  EXPECT_EQ(estimated.profiling_s, 0);
  // A solver may pick either of two equal shares, so single jobs may differ.
  EXPECT_NEAR(estimated.avg_jct_s, known.avg_jct_s, 0.01 * known.avg_jct_s);
  EXPECT_NEAR(estimated.makespan_s, known.makespan_s, 0.01 * known.makespan_s);
}

TEST(Estimator, ProfilingIsChargedWhenTheJobFirstRuns) {
  const Trace trace = AppetiteTrace(1);
  const double free_s =
      Simulate(SmallOptions("fast:2", kPacked), trace, AppetiteTable())
          .jobs.at(0)
          .jct_s;
  // Half of six cells are profiled, for 30 s each.
  const SimulationResult charged =
      Simulate(Estimated(kModels, 0.5, 30), trace, AppetiteTable());
  ASSERT_TRUE(charged.complete);
  EXPECT_DOUBLE_EQ(charged.profiling_s, 90);
  EXPECT_DOUBLE_EQ(charged.lost_s, 90);
  EXPECT_DOUBLE_EQ(charged.jobs.at(0).lost_s, 90);
  EXPECT_DOUBLE_EQ(charged.jobs.at(0).jct_s, free_s + 90);
}

// One, two or three reference models stand for six. The measurements of pairs
// as they run make up for most of the error.
TEST(Estimator, WrongEstimatesCostAQuarterOfTheTimeAtMost) {
  const Trace trace = AppetiteTrace(30);
  const SimulationResult known =
      Simulate(SmallOptions("fast:2", kPacked), trace, AppetiteTable());
  ASSERT_TRUE(known.complete);
  for (const int models : {1, 2, 3}) {
    SimulationOptions options = Estimated(models, 0.3, 10);
    options.seed = static_cast<uint64_t>(models);
    const SimulationResult result = Simulate(options, trace, AppetiteTable());
    EXPECT_TRUE(result.complete) << result.stopped;
    EXPECT_GT(result.profiling_s, 0);
    EXPECT_LT(result.avg_jct_s, 1.25 * known.avg_jct_s) << models;
    EXPECT_GT(result.avg_jct_s, 0.95 * known.avg_jct_s) << models;
  }
}

// One reference model stands for all, so hungry jobs are expected to be able to
// share.
TEST(Estimator, TwoThatDoNotFitTogetherAreParted) {
  std::vector<SmallJob> jobs;
  for (int i = 0; i < 6; ++i) {
    SmallJob job;
    job.type = "m5";
    job.steps = 3000;
    jobs.push_back(job);
  }
  const SimulationResult result =
      Simulate(Estimated(1, 1, 0), SmallTrace(jobs), AppetiteTable());
  ASSERT_TRUE(result.complete) << result.stopped;
  // The jobs can only take turns: 1 step/s on each of two accelerators.
  EXPECT_NEAR(result.makespan_s, 6 * 3000 / 2.0, 1e-6);
}

TEST(Estimator, TheSeedChoosesTheCells) {
  const Trace trace = AppetiteTrace(12);
  SimulationOptions options = Estimated(3, 0.4, 20);
  const SimulationResult first = Simulate(options, trace, AppetiteTable());
  const SimulationResult again = Simulate(options, trace, AppetiteTable());
  EXPECT_EQ(first.avg_jct_s, again.avg_jct_s);
  EXPECT_EQ(first.profiling_s, again.profiling_s);
  std::set<double> outcomes = {first.avg_jct_s};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    options.seed = seed;
    const SimulationResult other = Simulate(options, trace, AppetiteTable());
    ASSERT_TRUE(other.complete) << other.stopped;
    outcomes.insert(other.avg_jct_s);
  }
  EXPECT_GT(outcomes.size(), 1u);
}

TEST(Estimator, ACheckpointKeepsWhatWasEstimated) {
  const Trace trace = AppetiteTrace(12);
  const SimulationOptions options = Estimated(3, 0.4, 20);
  const SimulationResult whole = Simulate(options, trace, AppetiteTable());
  for (uint64_t events = 10; events < 60; ++events) {
    auto first = TraceSimulation::Create(options, trace, AppetiteTable());
    ASSERT_TRUE(first.ok());
    ASSERT_FALSE((*first)->Run(events));
    const auto bytes = (*first)->Checkpoint();
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    auto second = TraceSimulation::Create(options, trace, AppetiteTable());
    ASSERT_TRUE(second.ok());
    ASSERT_TRUE((*second)->Resume(*bytes).ok());
    while (!(*second)->Run(1000)) {
    }
    const SimulationResult resumed = (*second)->Result();
    ASSERT_TRUE(resumed.complete) << events << ": " << resumed.stopped;
    EXPECT_EQ(resumed.avg_jct_s, whole.avg_jct_s) << events;
    EXPECT_EQ(resumed.profiling_s, whole.profiling_s) << events;
  }
}

TEST(Estimator, FiguresOutOfRangeAreRefused) {
  const Trace trace = AppetiteTrace(2);
  const struct {
    SimulationOptions options;
    const char* message;
  } kCases[] = {{Estimated(3, 0, 10), "part of the cells"},
                {Estimated(3, 1.5, 10), "at most 1"},
                {Estimated(3, 0.5, -1), "time to profile a cell"}};
  for (const auto& one : kCases) {
    const auto made =
        TraceSimulation::Create(one.options, trace, AppetiteTable());
    EXPECT_FALSE(made.ok());
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(one.message));
  }
  SimulationOptions ideal = Estimated(3, 0.5, 1);
  ideal.ideal = true;
  EXPECT_FALSE(TraceSimulation::Create(ideal, trace, AppetiteTable()).ok());
}

}  // namespace
}  // namespace gavel::testing
