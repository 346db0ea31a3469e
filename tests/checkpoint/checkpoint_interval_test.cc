#include <cmath>
#include <limits>

#include "core/units.h"
#include "runtime/checkpoint/generation_store.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

TEST(CheckpointInterval, IsYoungs) {
  // sqrt(2 * 0.5 * 21600) = 146.97
  EXPECT_NEAR(CheckpointInterval_s(0.5, 6 * kHour_s, 1), 146.97, 0.01);
  EXPECT_NEAR(CheckpointInterval_s(0.5, 6 * kHour_s, 4), 73.48, 0.01);
}

// The time lost per second is a stall each interval and half an interval at
// each failure. No other interval loses less.
TEST(CheckpointInterval, LosesTheLeast) {
  for (const double stall_s : {0.1, 1.0, 10.0}) {
    const auto lost = [&](double interval_s) {
      return stall_s / interval_s + interval_s / 2 / (6 * kHour_s);
    };
    const double best_s = CheckpointInterval_s(stall_s, 6 * kHour_s, 1);
    for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
      EXPECT_LT(lost(best_s), lost(best_s * factor)) << stall_s;
    }
  }
}

TEST(CheckpointInterval, StaysInItsBounds) {
  EXPECT_EQ(CheckpointInterval_s(0, 6 * kHour_s, 1), kCheckpointIntervalMin_s);
  EXPECT_EQ(CheckpointInterval_s(1e-6, 60, 100), kCheckpointIntervalMin_s);
  EXPECT_EQ(CheckpointInterval_s(1e9, 6 * kHour_s, 1),
            kCheckpointIntervalMax_s);
}

TEST(CheckpointInterval, SurvivesSenselessNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), -1.0, infinity}) {
    EXPECT_EQ(CheckpointInterval_s(bad, kHour_s, 1), kCheckpointIntervalMin_s);
    EXPECT_EQ(CheckpointInterval_s(1, bad, 1), kCheckpointIntervalMax_s);
  }
  EXPECT_GT(CheckpointInterval_s(1, kHour_s, 0), 0);
}

}  // namespace
}  // namespace gavel::testing
