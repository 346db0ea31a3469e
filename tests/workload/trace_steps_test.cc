#include "coordinator/workload/trace_steps.h"

#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr std::string_view kTable = R"json({
  "v100": {"('A', 1)": {"null": 10}, "('A', 2)": {"null": 0}},
  "k80": {"('A', 1)": {"null": 2}, "('B', 1)": {"null": 3}}
})json";

const ThroughputTable& SmallTable() {
  static const ThroughputTable table =
      ThroughputTable::Parse(kTable, "t").value();
  return table;
}

// A trace of one job of that type.
Trace OneJob(const char* type, const TraceJob& job) {
  Trace trace;
  trace.templates.emplace_back().type = type;
  trace.jobs = {job};
  return trace;
}

TEST(CompleteTrace, FillsInWhatIsNotKnown) {
  Trace trace = OneJob("A", {.duration_s = 7});
  EXPECT_OK(CompleteTrace(SmallTable(), trace));
  EXPECT_EQ(trace.jobs[0].steps_total, 70);
  EXPECT_EQ(trace.jobs[0].duration_s, 7);

  trace = OneJob("A", {.steps_total = 25});
  EXPECT_OK(CompleteTrace(SmallTable(), trace));
  EXPECT_EQ(trace.jobs[0].steps_total, 25);
  EXPECT_EQ(trace.jobs[0].duration_s, 2.5);

  trace = OneJob("A", {.steps_total = 25, .duration_s = 9});
  EXPECT_OK(CompleteTrace(SmallTable(), trace));
  EXPECT_EQ(trace.jobs[0], (TraceJob{.steps_total = 25, .duration_s = 9}));
}

TEST(CompleteTrace, DurationsStayUnknownWithoutAThroughput) {
  for (const auto& [type, scale_factor] :
       {std::pair("A", 2), std::pair("A", 4), std::pair("B", 1),
        std::pair("C", 1)}) {
    Trace trace =
        OneJob(type, {.scale_factor = scale_factor, .steps_total = 25});
    EXPECT_OK(CompleteTrace(SmallTable(), trace));
    EXPECT_EQ(trace.jobs[0].duration_s, 0) << type;
  }
}

TEST(CompleteTrace, WithoutARowStepsAreSeconds) {
  Trace trace = OneJob("C", {.duration_s = 7});
  EXPECT_OK(CompleteTrace(SmallTable(), trace));
  EXPECT_EQ(trace.jobs[0], (TraceJob{.steps_total = 7, .duration_s = 7}));
}

TEST(CompleteTrace, AJobWhoseStepsCannotBeToldIsNamed) {
  Trace trace = OneJob("A", {.duration_s = 7});
  trace.jobs.push_back({.scale_factor = 2, .duration_s = 7});
  EXPECT_THAT(
      CompleteTrace(SmallTable(), trace),
      IsInvalid("job 1 (A, scale factor 2): only its duration is known, "
                "and the throughputs have none of it on the v100; add"));
}

TEST(CompleteTrace, StepsThatNobodyCanCountAreRefused) {
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(
                           "{\"v100\": {\"('A', 1)\": {\"null\": 1e9}}}", "t"));
  Trace trace = OneJob("A", {.duration_s = 1e10});
  EXPECT_THAT(CompleteTrace(table, trace),
              IsInvalid("job 0 (A, scale factor 1): its duration of 1e+10 s "
                        "makes 1e+19 steps; write a duration that makes a "));
}

TEST(RequireKnownTypes, NamesTheJobWhoseTypeTheTableLacks) {
  ASSERT_OK_AND_ASSIGN(const ThroughputTable table,
                       ThroughputTable::Parse(
                           R"json({"v100": {"('LM (5)', 1)": {"null": 10},
                                            "('LM (5)', 2)": {"null": 15}}})json",
                           "t"));
  const auto require = [&](const char* type, int scale_factor) {
    return RequireKnownTypes(table,
                             OneJob(type, {.scale_factor = scale_factor}));
  };
  EXPECT_OK(require("LM (5)", 2));
  EXPECT_OK(require("philly", 4));  // a CSV without types
  EXPECT_THAT(require("LM (6)", 1),
              IsInvalid("job 0: the throughput file has no row of type \"LM "
                        "(6)\" at scale factor 1 (did you mean \"LM (5)\"?); "
                        "correct the type, add the row, or let jobs without "
                        "one be equally fast on all accelerators: "
                        "--unknown-types equal"));
  EXPECT_THAT(require("LM (5)", 4),
              IsInvalid("(it has the type at scale factors 1, 2); correct"));
  EXPECT_THAT(require("something else", 1),
              IsInvalid("(its types are such as \"LM (5)\")"));
}

}  // namespace
}  // namespace gavel
