#include <cmath>

#include "study/simulation_run.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace study;
namespace {

// A is fast on x, B nearly as fast on y; two A share x well. Gangs of A are
// faster when they are spread.
constexpr std::string_view kTable = R"json({
  "x": {"('A', 1)": {"null": 4, "('A', 1)": [3, 3]},
        "('A', 2)": {"null": 6},
        "('B', 1)": {"null": 2}},
  "x_unconsolidated": {"('A', 2)": {"null": 8}},
  "y": {"('A', 1)": {"null": 1}, "('B', 1)": {"null": 2}}
})json";

class CapacityTest : public ::testing::Test {
 protected:
  CapacityTest() {
    for (const char* type : {"A", "B", "C"}) {
      trace_.templates.emplace_back().type = type;
    }
  }
  double Capacity(const std::vector<ClusterPart>& cluster, bool pairs = false) {
    const auto table = ThroughputTable::Parse(kTable, "t");
    EXPECT_TRUE(table.ok()) << table.status();
    return CapacityPerHour(trace_, trace_.jobs.size(), *table, cluster, pairs);
  }
  Trace trace_;
};

TEST_F(CapacityTest, IsWhatTheAcceleratorsCanDo) {
  trace_.jobs = {{.steps_total = 4 * 3600}};  // an hour on x
  EXPECT_NEAR(Capacity({{"x", 3}}), 3, 1e-9);
  EXPECT_NEAR(Capacity({{"y", 3}}), 0.75, 1e-9);
  EXPECT_NEAR(Capacity({{"x", 3}, {"y", 4}}), 4, 1e-9);
  trace_.jobs.push_back({.steps_total = 3 * 4 * 3600});
  EXPECT_NEAR(Capacity({{"x", 3}}), 1.5, 1e-9);  // two hours each
}

TEST_F(CapacityTest, EachJobRunsWhereThatIsBestForAll) {
  trace_.jobs = {{.job_template = 0, .steps_total = 4 * 3600},
                 {.job_template = 1, .steps_total = 2 * 3600}};
  // All A on x and all B on y: two of each an hour.
  EXPECT_NEAR(Capacity({{"x", 2}, {"y", 2}}), 4, 1e-9);
}

TEST_F(CapacityTest, PairsAndSpreadGangsCount) {
  trace_.jobs = {{.steps_total = 4 * 3600}};
  EXPECT_NEAR(Capacity({{"x", 2}}, /*pairs=*/true), 3, 1e-9);
  trace_.jobs = {{.scale_factor = 2, .steps_total = 8 * 3600}};
  EXPECT_NEAR(Capacity({{"x", 4}}), 2, 1e-9);
}

TEST_F(CapacityTest, ElasticJobsRunAtTheBestSize) {
  trace_.jobs = {{.scale_factor = 2, .steps_total = 4 * 3600}};
  EXPECT_NEAR(Capacity({{"x", 2}}), 2, 1e-9);
  trace_.jobs[0].scale_factor_min = 1;  // two of one make as much
  EXPECT_NEAR(Capacity({{"x", 2}}), 2, 1e-9);
  EXPECT_NEAR(Capacity({{"x", 1}}), 1, 1e-9);
}

TEST_F(CapacityTest, WhatFitsNowhereNeedsNothing) {
  trace_.jobs = {{.scale_factor = 2, .steps_total = 3600}};
  EXPECT_TRUE(std::isinf(Capacity({{"x", 1}})));
  trace_.jobs.push_back({.steps_total = 4 * 3600});
  EXPECT_NEAR(Capacity({{"x", 1}}), 2, 1e-9);  // every other job of an hour
}

TEST_F(CapacityTest, JobsWithoutARowTakeTheirDuration) {
  trace_.jobs = {{.job_template = 2, .steps_total = 1e6, .duration_s = 1800}};
  EXPECT_NEAR(Capacity({{"x", 1}, {"y", 1}}), 4, 1e-9);
}

}  // namespace
}  // namespace gavel::testing
