// Introspection over whole simulations: it does not cost throughput, it gains
// where pairs are good, and it moves nobody about. The workloads are those of
// `gavel reproduce gandiva-introspection`.
#include "core/text.h"
#include "study/reproduce_gandiva.h"
#include "tests/support/test.h"

namespace gavel::testing {

using namespace study;
namespace {

TrialOutcome Try(uint64_t seed, double kept_min, double kept_max) {
  const auto outcome =
      TryIntrospection(RandomTrialWorkload(seed, kept_min, kept_max));
  EXPECT_OK(outcome) << "seed " << seed;
  return outcome.value_or(TrialOutcome());
}

void ExpectNoLoss(uint64_t workloads) {
  double worst = 0;
  for (uint64_t seed = 0; seed < workloads; ++seed) {
    // Where pairs are bad, where they are good, and where both occur.
    const double least = seed % 3 == 1 ? 0.5 : 0.1;
    const double most = seed % 3 == 0 ? 0.5 : 1;
    const double gain = Try(seed, least, most).gain;
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
    EXPECT_GT(Try(seed, 0.75, 0.95).gain, 0.1) << seed;
  }
}

// Each trial of a pair pauses its two jobs, to begin it and to undo it.
TEST(Introspection, AddsFewPausesWherePairsAreBad) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const TrialOutcome outcome = Try(seed, 0.1, 0.4);
    const double trials = 24.0 / 2 * (5 * 3600 / 600.0);
    EXPECT_LE(static_cast<double>(outcome.pauses_with),
              1.1 * static_cast<double>(outcome.pauses_without) + 4 * trials)
        << seed;
  }
}

}  // namespace
}  // namespace gavel::testing
