// Interactive jobs of a trace: they start at once, on the accelerators of
// training jobs where none is free, and nothing pauses them. Opaque jobs, which
// nothing pauses either, start when it is their turn.
#include <string>
#include <vector>

#include "tests/simulator/trace_fixture.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

// Adds an interactive job to the end of the trace.
void AddInteractive(Trace& trace, double arrival_s, double duration_s,
                    int scale_factor = 1) {
  TraceJob& job = trace.jobs.emplace_back();
  job.job_template = trace.templates.size();
  trace.templates.emplace_back().type = kInteractiveJobType;
  job.interactive = true;
  job.arrival_s = arrival_s;
  job.duration_s = job.steps_total = duration_s;
  job.scale_factor = scale_factor;
}

TEST(InteractiveJobs, TakeAFreeAcceleratorAtOnce) {
  Trace trace = SmallTrace({{"a", 4000}});
  AddInteractive(trace, 50, 300);
  const SimulationResult result = Simulate(SmallOptions("fast:2"), trace);
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_DOUBLE_EQ(result.jobs[0].jct_s, 1000);
  EXPECT_DOUBLE_EQ(result.jobs[1].jct_s, 300);
  EXPECT_EQ(result.preemptions, 0u);
  EXPECT_EQ(result.interactive.jobs, 1u);
  EXPECT_DOUBLE_EQ(result.interactive.max_start_s, 0);
}

TEST(InteractiveJobs, PauseATrainingJobInTheMiddleOfARound) {
  Trace trace = SmallTrace({{"a", 4000}});
  AddInteractive(trace, 50, 300);
  SimulationOptions options = SmallOptions("fast:1");
  options.overheads.all = {.pause_s = 0.5, .resume_s = 1, .move_s = 1};
  const SimulationResult result = Simulate(options, trace);
  ASSERT_TRUE(result.complete) << result.stopped;
  // It waits for the pause, and nothing else.
  EXPECT_DOUBLE_EQ(result.jobs[1].started_s, 50.5);
  EXPECT_DOUBLE_EQ(result.jobs[1].completion_s, 350.5);
  EXPECT_DOUBLE_EQ(result.interactive.p50_start_s, 0.5);
  EXPECT_EQ(result.interactive.paused, 0u);
  EXPECT_EQ(result.jobs[0].preemptions, 1u);
  EXPECT_DOUBLE_EQ(result.jobs[0].jct_s, 1000 + 0.5 + 300 + 1);
}

TEST(InteractiveJobs, AreNotPausedForManyRoundsOfOthers) {
  Trace trace = SmallTrace({{"a", 20'000}, {"a", 20'000}, {"b", 20'000}});
  AddInteractive(trace, 10, 5000);
  for (const char* policy : {"max_min_fairness_perf", "fifo", "gandiva"}) {
    const SimulationResult result =
        Simulate(SmallOptions("fast:1,slow:1", policy), trace);
    ASSERT_TRUE(result.complete) << policy << ": " << result.stopped;
    EXPECT_DOUBLE_EQ(result.jobs[3].jct_s, 5000) << policy;
    EXPECT_EQ(result.jobs[3].preemptions, 0u) << policy;
    EXPECT_EQ(result.interactive.paused, 0u) << policy;
  }
}

TEST(InteractiveJobs, WaitForEachOther) {
  Trace trace = SmallTrace({});
  AddInteractive(trace, 0, 300);
  AddInteractive(trace, 100, 300);
  AddInteractive(trace, 100, 50, 2);
  const SimulationResult result = Simulate(SmallOptions("fast:1"), trace);
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_DOUBLE_EQ(result.jobs[1].started_s, 300);
  EXPECT_DOUBLE_EQ(result.interactive.max_start_s, 200);
  ASSERT_EQ(result.unfit.size(), 1u);
  EXPECT_THAT(result.unfit[0].reason, HasSubstr("scale factor 2"));
}

TEST(InteractiveJobs, OfSeveralAcceleratorsStartTogether) {
  Trace trace = SmallTrace({{"a", 8000, 0, 2}});
  AddInteractive(trace, 50, 300, 2);
  SimulationOptions options = SmallOptions("fast:2");
  options.overheads.all = {.pause_s = 0.5, .resume_s = 1, .move_s = 1};
  const SimulationResult result = Simulate(options, trace);
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_DOUBLE_EQ(result.jobs[1].started_s, 50.5);
  EXPECT_DOUBLE_EQ(result.jobs[1].completion_s, 350.5);
}

TEST(InteractiveJobs, AreNoPartOfTheFiguresOfTrainingJobs) {
  const Trace trace = SmallTrace({{"a", 4000}});
  Trace with = trace;
  AddInteractive(with, 50, 300);
  AddInteractive(with, 2000, 10);
  const SimulationResult alone = Simulate(SmallOptions("fast:2"), trace);
  const SimulationResult both = Simulate(SmallOptions("fast:2"), with);
  ASSERT_TRUE(both.complete) << both.stopped;
  EXPECT_DOUBLE_EQ(both.avg_jct_s, alone.avg_jct_s);
  EXPECT_DOUBLE_EQ(both.p99_jct_s, alone.p99_jct_s);
  EXPECT_EQ(both.jobs.size(), 3u);
  EXPECT_DOUBLE_EQ(both.makespan_s, 2010);
}

TEST(InteractiveJobs, ContinueFromACheckpoint) {
  Trace trace = SmallTrace({{"a", 4000}, {"b", 3000}});
  AddInteractive(trace, 50, 300);
  AddInteractive(trace, 120, 700);
  SimulationOptions options = SmallOptions("fast:1,slow:1");
  options.overheads.all = {.pause_s = 0.5, .resume_s = 1, .move_s = 2};
  const SimulationResult whole = Simulate(options, trace);
  ASSERT_TRUE(whole.complete) << whole.stopped;
  auto first = TraceSimulation::Create(options, trace, SmallTable());
  ASSERT_TRUE(first.ok()) << first.status().message();
  while ((*first)->now() < 200 && !(*first)->Run(1)) {
  }
  const auto bytes = (*first)->Checkpoint();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  auto second = TraceSimulation::Create(options, trace, SmallTable());
  ASSERT_TRUE((*second)->Resume(*bytes).ok());
  while (!(*second)->Run(1000)) {
  }
  const SimulationResult resumed = (*second)->Result();
  ASSERT_EQ(resumed.jobs.size(), whole.jobs.size());
  for (size_t i = 0; i < whole.jobs.size(); ++i) {
    EXPECT_DOUBLE_EQ(resumed.jobs[i].completion_s, whole.jobs[i].completion_s);
    EXPECT_DOUBLE_EQ(resumed.jobs[i].started_s, whole.jobs[i].started_s);
  }
  EXPECT_EQ(resumed.interactive.jobs, 2u);
}

TEST(InteractiveJobs, AreRefusedWithoutRounds) {
  Trace trace = SmallTrace({{"a", 4000}});
  AddInteractive(trace, 50, 300);
  SimulationOptions options = SmallOptions("fast:2");
  options.ideal = true;
  EXPECT_THAT(std::string(TraceSimulation::Create(options, trace, SmallTable())
                              .status()
                              .message()),
              HasSubstr("job 1 is interactive, and the ideal simulation"));
}

TEST(OpaqueJobs, WaitForTheirTurnAndAreNotPausedThen) {
  Trace trace = SmallTrace({{"a", 20'000}, {"a", 4000, 150}});
  trace.jobs[1].opaque = true;
  for (const char* policy : {"max_min_fairness_perf", "fifo", "gandiva"}) {
    const SimulationResult result =
        Simulate(SmallOptions("fast:1", policy), trace);
    ASSERT_TRUE(result.complete) << policy << ": " << result.stopped;
    const SimulatedJob& opaque = result.jobs[1];
    EXPECT_GE(opaque.started_s, 150) << policy;
    EXPECT_NEAR(opaque.completion_s - opaque.started_s, 1000, 1e-3) << policy;
    EXPECT_EQ(opaque.preemptions, 0u) << policy;
  }
}

TEST(OpaqueJobs, OfSeveralAcceleratorsRunToTheirEndTogether) {
  Trace trace = SmallTrace({{"a", 8000, 0, 2}, {"a", 4000, 10}});
  trace.jobs[0].opaque = true;
  const SimulationResult result = Simulate(SmallOptions("fast:2"), trace);
  ASSERT_TRUE(result.complete) << result.stopped;
  EXPECT_NEAR(result.jobs[0].jct_s, 1000, 1e-3);
  EXPECT_EQ(result.jobs[0].preemptions, 0u);
  EXPECT_GE(result.jobs[1].started_s, 1000);
}

}  // namespace
}  // namespace gavel::testing
