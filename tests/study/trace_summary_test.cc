#include "study/simulation_summary.h"
#include "tests/support/test.h"

namespace gavel::study {
namespace {

Trace ThreeJobs() {
  Trace trace;
  trace.templates.emplace_back().type = "ResNet-18 (batch size 64)";
  trace.templates.emplace_back().type = "A3C";
  trace.jobs = {
      {.job_template = 0,
       .scale_factor = 4,
       .steps_total = 1646636.3,
       .duration_s = 68344.35},
      {.job_template = 1, .steps_total = 500, .arrival_s = 1800, .slo = 1.2},
      {.job_template = 0,
       .weight = 2.5,
       .steps_total = 7,
       .arrival_s = 7200,
       .duration_s = 3}};
  return trace;
}

TEST(RenderTrace, TellsTotalsTypesAndTheFirstJobs) {
  EXPECT_EQ(
      RenderTrace(ThreeJobs(), 10),
      "3 jobs, arriving over 2 h 00 min (1 jobs/h)\n"
      "scale factors: 2 with 1, 1 with 4\n"
      "weights:       2 with 1, 1 with 2.5\n"
      "deadlines:     1 jobs\n"
      "\n"
      "JOBS TYPE                      SCALE_FACTORS MEDIAN_STEPS\n"
      "   1 A3C                       1                      500\n"
      "   2 ResNet-18 (batch size 64) 1,4                  1.65M\n"
      "\n"
      "JOB ARRIVAL_S TYPE                      SCALE WEIGHT STEPS    DURATION "
      "DEADLINE\n"
      "  0         0 ResNet-18 (batch size 64)     4      1 1.65M 18 h 59 min "
      "       -\n"
      "  1      1800 A3C                           1      1   500           - "
      "    1.2x\n"
      "  2      7200 ResNet-18 (batch size 64)     1    2.5     7      3.00 s "
      "       -\n");
}

TEST(RenderTrace, ShowsAsManyRowsAsWanted) {
  const std::string two = RenderTrace(ThreeJobs(), 2);
  EXPECT_THAT(two, HasSubstr("... and 1 more jobs\n"));
  EXPECT_THAT(two, HasSubstr("  1      1800"));
  EXPECT_THAT(two, Not(HasSubstr("  2      7200")));
  EXPECT_THAT(RenderTrace(ThreeJobs(), 0),
              AllOf(HasSubstr("MEDIAN_STEPS"), Not(HasSubstr("ARRIVAL_S")),
                    Not(HasSubstr("more jobs"))));
}

TEST(RenderTrace, CountsInteractiveJobs) {
  Trace trace = ThreeJobs();
  EXPECT_THAT(RenderTrace(trace, 0), Not(HasSubstr("interactive")));
  trace.jobs[1].interactive = true;
  EXPECT_THAT(RenderTrace(trace, 0), HasSubstr("interactive:   1 jobs\n"));
}

TEST(RenderTrace, ListsEntities) {
  Trace trace = ThreeJobs();
  trace.entities = {{"vision", 2, "fifo"}, {"text", 1, "fairness"}};
  trace.jobs[1].entity = 0;
  trace.jobs[2].entity = 0;
  EXPECT_THAT(RenderTrace(trace, 3),
              HasSubstr("entity vision: weight 2, fifo, 2 jobs\n"
                        "entity text: weight 1, fairness, 0 jobs\n"));
}

TEST(RenderTraceLine, TellsHowJobsArrive) {
  Trace trace = ThreeJobs();
  for (TraceJob& job : trace.jobs) job.arrival_s = 50;
  EXPECT_EQ(RenderTraceLine(trace), "3 jobs, all there at once");
  trace.jobs.resize(1);
  EXPECT_EQ(RenderTraceLine(trace), "1 job, all there at once");
  EXPECT_EQ(RenderTraceLine(Trace()), "0 jobs");
}

}  // namespace
}  // namespace gavel::study
