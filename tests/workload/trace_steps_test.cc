#include "coordinator/workload/trace_generator.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr std::string_view kTable = R"json({
  "v100": {"('A', 1)": {"null": 10}, "('A', 2)": {"null": 0}},
  "k80": {"('A', 1)": {"null": 2}, "('B', 1)": {"null": 3}}
})json";

const ThroughputTable& TableOfSteps() {
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
  EXPECT_OK(CompleteTrace(TableOfSteps(), trace));
  EXPECT_EQ(trace.jobs[0].steps_total, 70);
  EXPECT_EQ(trace.jobs[0].duration_s, 7);

  trace = OneJob("A", {.steps_total = 25});
  EXPECT_OK(CompleteTrace(TableOfSteps(), trace));
  EXPECT_EQ(trace.jobs[0].steps_total, 25);
  EXPECT_EQ(trace.jobs[0].duration_s, 2.5);

  trace = OneJob("A", {.steps_total = 25, .duration_s = 9});
  EXPECT_OK(CompleteTrace(TableOfSteps(), trace));
  EXPECT_EQ(trace.jobs[0], (TraceJob{.steps_total = 25, .duration_s = 9}));
}

TEST(CompleteTrace, DurationsStayUnknownWithoutAThroughput) {
  for (const auto& [type, scale_factor] :
       {std::pair("A", 2), std::pair("A", 4), std::pair("B", 1),
        std::pair("C", 1)}) {
    Trace trace =
        OneJob(type, {.scale_factor = scale_factor, .steps_total = 25});
    EXPECT_OK(CompleteTrace(TableOfSteps(), trace));
    EXPECT_EQ(trace.jobs[0].duration_s, 0) << type;
  }
}

TEST(CompleteTrace, WithoutARowStepsAreSeconds) {
  Trace trace = OneJob("C", {.duration_s = 7});
  EXPECT_OK(CompleteTrace(TableOfSteps(), trace));
  EXPECT_EQ(trace.jobs[0], (TraceJob{.steps_total = 7, .duration_s = 7}));
}

TEST(CompleteTrace, AJobWhoseStepsCannotBeToldIsNamed) {
  Trace trace = OneJob("A", {.duration_s = 7});
  trace.jobs.push_back({.scale_factor = 2, .duration_s = 7});
  EXPECT_THAT(
      CompleteTrace(TableOfSteps(), trace),
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

TEST(ScaleRows, AScaleFactorWithoutARowRunsInProportionToTheNextSmaller) {
  ASSERT_OK_AND_ASSIGN(
      const ThroughputTable table,
      ThroughputTable::Parse(
          R"json({"v100": {"('A', 1)": {"null": 10, "('A', 1)": [6, 6]},
                           "('A', 8)": {"null": 40},
                           "('B', 4)": {"null": 0}},
                  "v100_unconsolidated": {"('A', 8)": {"null": 20}},
                  "k80": {"('A', 1)": {"null": 2}}})json",
          "t"));
  Trace trace = OneJob("A", {.scale_factor = 16, .steps_total = 80});
  trace.templates.emplace_back().type = "B";
  trace.templates.emplace_back().type = "C";
  trace.jobs.push_back({.scale_factor = 4, .steps_total = 80});
  trace.jobs.push_back(
      {.job_template = 1, .scale_factor = 2, .steps_total = 80});
  trace.jobs.push_back({.job_template = 2, .steps_total = 80});
  const auto scaled = ScaleRows(table, trace);
  ASSERT_TRUE(scaled.has_value());
  const size_t v100 = *scaled->FindType("v100");
  const size_t k80 = *scaled->FindType("k80");
  const auto row = [&](const char* type, int scale_factor) {
    return scaled->FindRow(type, scale_factor).value_or(scaled->rows());
  };
  ASSERT_EQ(scaled->rows(), table.rows() + 3);
  EXPECT_THAT(scaled->Alone(row("A", 16), v100), Optional(80));
  EXPECT_THAT(scaled->Alone(row("A", 16), v100, Locality::kCluster),
              Optional(40));
  EXPECT_EQ(scaled->Alone(row("A", 16), k80), std::nullopt);
  EXPECT_THAT(scaled->Alone(row("A", 4), v100), Optional(40));
  EXPECT_THAT(scaled->Alone(row("A", 4), k80), Optional(8));
  EXPECT_THAT(scaled->Alone(row("B", 2), v100), Optional(0));
  // Rows of the table itself stay the same.
  EXPECT_THAT(scaled->Alone(row("A", 8), v100), Optional(40));
  EXPECT_EQ(scaled->Together(row("A", 1), row("A", 1), v100),
            std::pair(6.0, 6.0));
  EXPECT_THAT(trace.notices,
              ElementsAre("3 jobs have scale factors that the throughput file "
                          "has no row for (job 0: \"A\" at 16); their speeds "
                          "are those of the next smaller one, in proportion"));
  EXPECT_FALSE(ScaleRows(*scaled, trace).has_value());
}

TEST(EqualizeUnknownTypes, StepsAreSecondsWhereNothingElseIsKnown) {
  Trace trace = OneJob("C", {.steps_total = 25});
  trace.jobs.push_back({.steps_total = 25, .duration_s = 5});
  EqualizeUnknownTypes(TableOfSteps(), trace);
  EXPECT_EQ(trace.jobs[0].duration_s, 25);
  EXPECT_EQ(trace.jobs[1].duration_s, 5);
  EXPECT_THAT(trace.notices,
              ElementsAre(HasSubstr("(such as \"C\"); 1 step/s")));
  EqualizeUnknownTypes(TableOfSteps(), trace);
  EXPECT_EQ(trace.notices.size(), 1U);
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
                        "--unknown-types equal, or unknown_types = \"equal\" "
                        "in a sweep"));
  EXPECT_THAT(require("LM (5)", 4),
              IsInvalid("(it has the type at scale factors 1, 2); correct"));
  EXPECT_THAT(require("something else", 1),
              IsInvalid("(its types are such as \"LM (5)\")"));
}

}  // namespace
}  // namespace gavel
