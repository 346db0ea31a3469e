// Tests how records of live runs are read, and the traces that they run,
// without starting any process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/cli/live_workloads.h"
#include "coordinator/cli/reality.h"
#include "coordinator/workload/trace.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

using absl::StatusCode::kAborted;

TEST(WorkerTrace, StepsLieOnTheMachinesClock) {
  ASSERT_OK_AND_ASSIGN(const std::vector<TracedStep> steps,
                       ParseWorkerTrace(
                           R"({"traceEvents":[
            {"name":"thread_name","ph":"M"},
            {"name":"step","ph":"X","ts":2000000,"dur":500000},
            {"name":"data","ph":"X","ts":0,"dur":1},
            {"name":"step","ph":"X","ts":1000000,"dur":1000000}],
            "otherData":{"monotonic_origin_us":5000000,"dropped_events":0}})",
                           "t.json"));
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_DOUBLE_EQ(steps[0].begin_s, 6);
  EXPECT_DOUBLE_EQ(steps[1].end_s, 7.5);
}

TEST(WorkerTrace, WhatIsNoneIsNamed) {
  EXPECT_THAT(ParseWorkerTrace("{", "t.json"),
              StatusIs(kInvalidArgument, "t.json: is no trace"));
  EXPECT_THAT(ParseWorkerTrace(R"({"traceEvents":[],"otherData":
              {"monotonic_origin_us":0,"dropped_events":3}})",
                               "t.json"),
              StatusIs(kInvalidArgument, "the first steps were dropped"));
  EXPECT_THAT(ReadWorkerTrace("/nowhere/t.json"),
              StatusIs(kFailedPrecondition, "has written no trace"));
}

std::vector<TracedStep> Steps(std::initializer_list<double> begins) {
  std::vector<TracedStep> steps;
  for (const double begin : begins) steps.push_back({begin, begin + 1});
  return steps;
}

// One accelerator runs a from 0 to 10, b until 20, and a again until 30.
std::vector<LiveJob> TwoJobs() {
  LiveJob a{"a", "A", 0, 30, 1, {}, Steps({2, 8, 21, 27})};
  a.leases = {{"x", 1.5, 10, true}, {"x", 20.5, 30, false}};
  LiveJob b{"b", "B", 3, 20, 0, {}, Steps({13, 17})};
  b.leases = {{"x", 10.5, 20, false}};
  return {a, b};
}

TEST(RealityRecords, FiguresAreThoseOfTheSimulator) {
  const LiveFigures figures = FiguresOf(TwoJobs());
  EXPECT_DOUBLE_EQ(figures.makespan_s, 30);
  EXPECT_DOUBLE_EQ(figures.avg_jct_s, (30 + 17) / 2.0);
  EXPECT_EQ(figures.pauses, 1u);
}

TEST(RealityRecords, OverheadsAreTheTimesBetweenStepsAndLeases) {
  const Overheads overheads = MeasureOverheads(TwoJobs());
  const Overhead& a = overheads.by_type.at("A");
  EXPECT_DOUBLE_EQ(a.start_s, 2 + 2);  // before step 2, and after 28
  EXPECT_DOUBLE_EQ(a.pause_s, 1);      // from 9 to 10
  EXPECT_DOUBLE_EQ(a.resume_s, 1);     // free at 20, step at 21
  EXPECT_DOUBLE_EQ(a.move_s, 1);       // none was seen
  const Overhead& b = overheads.by_type.at("B");
  EXPECT_DOUBLE_EQ(b.start_s, 3 + 2);  // free at 10, steps from 13 to 18
  EXPECT_DOUBLE_EQ(b.pause_s, 1);      // as for all types
  EXPECT_EQ(ParseOverheadsFile(FormatOverheads(overheads), "o").value(),
            overheads);
}

TEST(RealityRecords, AJobThatWasNotDoneIsNamed) {
  const Json jobs = Json::parse(
      R"([{"job":1,"name":"a","state":"F","ended_s":3,"reason":"exit 3"}])");
  EXPECT_THAT(ReadLiveJobs(jobs, Json::array()),
              StatusIs(kInvalidArgument, "job a did not finish: exit 3"));
}

TEST(RealityTrace, IsDrawnByItsSeedAndReadBackByTheSimulator) {
  const RealityThroughputs throughputs{
      {"fast", "slow"}, {1, 1}, {{100, 50}, {10, 5}}};
  RealityTraceOptions options;
  options.jobs = 11;
  const auto jobs = MakeRealityTrace(options, throughputs);
  ASSERT_THAT(jobs, SizeIs(11));
  std::map<size_t, int> count;
  double last = 0;
  for (const RealityJob& job : jobs) {
    ++count[job.workload];
    EXPECT_GE(job.arrival_s, last);
    last = job.arrival_s;
    const double duration_s =
        static_cast<double>(job.steps) / (job.workload == 0 ? 100 : 10);
    EXPECT_GE(duration_s, 10);
    EXPECT_LE(duration_s, 40.2);
  }
  EXPECT_EQ(jobs.front().arrival_s, 0);
  EXPECT_GE(count[0], 5);
  EXPECT_GE(count[1], 5);
  std::vector<ProfileWorkload> workloads(2);
  workloads[0].type = "LM";
  workloads[1].type = "A3C";
  const std::string text = FormatRealityTrace(jobs, workloads);
  ASSERT_OK_AND_ASSIGN(const Trace trace, ParseTrace(text, "trace.toml"));
  ASSERT_THAT(trace.jobs, SizeIs(11));
  EXPECT_DOUBLE_EQ(trace.jobs[10].arrival_s, last);
  EXPECT_EQ(trace.jobs[10].steps_total, static_cast<double>(jobs[10].steps));
  EXPECT_EQ(
      FormatRealityTrace(MakeRealityTrace(options, throughputs), workloads),
      text);
  options.seed = 1;
  EXPECT_NE(
      FormatRealityTrace(MakeRealityTrace(options, throughputs), workloads),
      text);
}

TEST(RealityReport, TheMedianOfTheRunsCounts) {
  Reality reality;
  for (const double simulated : {103.0, 90.0, 104.0}) {
    reality.runs.push_back({{100, 50, 0}, {simulated, 49, 0}, {}});
  }
  EXPECT_NEAR(DifferenceIn(&LiveFigures::makespan_s, reality.runs).median, 0.03,
              1e-12);
  EXPECT_NEAR(DifferenceIn(&LiveFigures::makespan_s, reality.runs).least, -0.1,
              1e-12);
  EXPECT_THAT(RenderRealityMarkdown(RealityOptions(), reality),
              HasSubstr("+3.0 % off the live one in the median (from -10.0 % "
                        "to +4.0 %)"));
  EXPECT_OK(CheckReality(reality, 0.05));
  EXPECT_THAT(CheckReality(reality, 0.02), StatusIs(kAborted, "more than 2 %"));
}

TEST(Preemption, ARoundGoesFromFirstStepToFirstStep) {
  PreemptionRecord record;
  record.steps = Steps({1, 2, 5, 6, 10});
  record.preemptions = {{3.2, 3.5, 4}, {7, 7.25, 9}};
  const auto rounds = RoundsOf(record, 10, 2);
  ASSERT_THAT(rounds, SizeIs(2));
  EXPECT_DOUBLE_EQ(rounds[0].begin_s, 1);
  EXPECT_DOUBLE_EQ(rounds[0].end_s, 5);
  EXPECT_DOUBLE_EQ(rounds[0].end_s - rounds[0].begin_s - rounds[0].lost_s, 2);
  EXPECT_DOUBLE_EQ(rounds[0].leaving_s, 0.5);
  EXPECT_DOUBLE_EQ(rounds[0].away_s, 0.5);
  EXPECT_DOUBLE_EQ(rounds[0].resuming_s, 1);
  EXPECT_DOUBLE_EQ(rounds[1].lost_s, 3);
  EXPECT_THAT(RoundsOf(record, 1, 2), SizeIs(1));
}

TEST(Preemption, WithoutPreemptionsRoundsAreOfEqualLength) {
  PreemptionRecord record;
  record.steps = Steps({1, 2, 3.5, 4.5});
  const auto rounds = RoundsOf(record, 10, 2);
  ASSERT_THAT(rounds, SizeIs(2));
  EXPECT_DOUBLE_EQ(rounds[0].lost_s, 0);
  EXPECT_DOUBLE_EQ(rounds[1].lost_s, 0.5);
  EXPECT_DOUBLE_EQ(rounds[1].end_s, 5);
  EXPECT_TRUE(RoundsOf({}, 10, 2).empty());
}

}  // namespace
}  // namespace gavel
