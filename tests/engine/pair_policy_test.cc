// Policies that assign jobs to types and pack them. The engine does not know
// how much two jobs slow each other down until they have run together. So it
// tries pairs, and the policy then uses the measured speeds.

#include "tests/engine/engine_driver.h"

namespace gavel {
namespace {

class PairsOfPolicy : public ::testing::TestWithParam<std::string> {
 protected:
  PairsOfPolicy()
      : driver_(1, GetParam(), [](EngineOptions& options) {
          options.packing = true;
          options.pair_trials = true;
        }) {}

  void Submit(int jobs) {
    JobSpec spec;
    spec.throughputs["v100"] = 1;
    for (int i = 0; i < jobs; ++i) driver_.Submit(StrCat("job", i), 1, spec);
  }
  // Runs the assigned jobs for a round: a single job at full speed, each job of
  // a pair at `together` of it. Returns the pair, which is empty if none ran.
  ShareUnit RunRound(double together) {
    const ShareUnit pair = driver_.PackedPair();
    for (const auto& [id, job] : driver_.engine().jobs()) {
      if (job.assigned.empty() || driver_.worker(id).held_epoch != 0) continue;
      if (driver_.worker(id).process == ProcessState::kLaunching) {
        driver_.Hello(driver_.Key(id));
      }
      driver_.Request(driver_.Key(id));
    }
    driver_.At(driver_.now + 6);
    for (const auto& [id, job] : driver_.engine().jobs()) {
      if (driver_.worker(id).held_epoch == 0) continue;
      driver_.ReportSpeed(id, pair.packed() ? together : 1, 5);
    }
    driver_.EndRound();
    return pair;
  }
  // Runs `rounds` rounds and returns how many of them ran a pair.
  int Packed(int rounds, double together) {
    int packed = 0;
    for (int i = 0; i < rounds; ++i) packed += RunRound(together).packed();
    return packed;
  }

  // The measured speed of the first job beside the second; -1 if unknown.
  double Together() const {
    return driver_.engine()
        .throughputs()
        .Together(JobId(1), JobId(2), "v100")
        .value_or(-1);
  }

  EngineDriver driver_;
};

TEST_P(PairsOfPolicy, AreTriedAndStayWhereTheyGain) {
  Submit(2);
  Packed(4, 0.9);
  EXPECT_TRUE(driver_.PackedPair().packed());
  EXPECT_NEAR(Together(), 0.9, 1e-9);
  EXPECT_EQ(Packed(6, 0.9), 6);
}

TEST_P(PairsOfPolicy, AreTriedOnceWhereTheyLose) {
  Submit(2);
  const int packed = Packed(10, 0.3);
  EXPECT_GE(packed, 1);
  // When FIFO decides again, the next round is planned already.
  EXPECT_LE(packed, 2);
  EXPECT_NEAR(Together(), 0.3, 1e-9);
  EXPECT_EQ(Packed(10, 0.3), 0);
}

TEST_P(PairsOfPolicy, AreNotTriedWhileNobodyWaits) {
  Submit(1);
  EXPECT_EQ(Packed(4, 0.9), 0);
  EXPECT_TRUE(driver_.problem.pairs.empty());
}

INSTANTIATE_TEST_SUITE_P(All, PairsOfPolicy,
                         ::testing::Values("gandiva", "fifo_packed"),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace gavel
