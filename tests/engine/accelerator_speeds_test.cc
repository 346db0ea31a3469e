#include <cmath>
#include <random>

#include "coordinator/engine/throughput_matrix.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr AcceleratorId kSlow(3);

// Jobs with speeds 2, 4, 8... run on accelerators 1 to 4, the third of which
// has the speed `slowness`.
AcceleratorSpeeds Told(int jobs, double slowness) {
  AcceleratorSpeeds speeds;
  for (int job = 1; job <= jobs; ++job) {
    for (uint64_t id = 1; id <= 4; ++id) {
      const AcceleratorId accelerator(id);
      const double part = accelerator == kSlow ? slowness : 1;
      speeds.Measure(JobId(static_cast<uint64_t>(job)), "v100", accelerator,
                     std::pow(2, job) * part, 10);
    }
  }
  return speeds;
}

TEST(AcceleratorSpeeds, AStragglerIsFoundByJobsOfAnySpeed) {
  const AcceleratorSpeeds speeds = Told(3, 0.6);
  EXPECT_TRUE(speeds.any());
  EXPECT_NEAR(speeds.Of(kSlow), 0.6, 1e-9);
  for (const uint64_t id : {1, 2, 4})
    EXPECT_EQ(speeds.Of(AcceleratorId(id)), 1);
}

TEST(AcceleratorSpeeds, OneJobAloneMayHaveChangedItself) {
  EXPECT_FALSE(Told(1, 0.3).any());
}

TEST(AcceleratorSpeeds, SmallDifferencesAreNoise) {
  EXPECT_FALSE(Told(5, 0.9).any());
}

TEST(AcceleratorSpeeds, NoiseOfAFewPercentAccusesNobody) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(1, 0.04);
    AcceleratorSpeeds speeds;
    for (uint64_t job = 1; job <= 10; ++job) {
      for (uint64_t id = 1; id <= 6; ++id) {
        speeds.Measure(JobId(job), "v100", AcceleratorId(id),
                       7.0 * noise(random), 5);
      }
    }
    EXPECT_FALSE(speeds.any()) << seed;
  }
}

TEST(AcceleratorSpeeds, OneLiarAmongTheJobsIsOutvoted) {
  AcceleratorSpeeds speeds = Told(4, 1);
  speeds.Measure(JobId(9), "v100", AcceleratorId(1), 10, 10);
  speeds.Measure(JobId(9), "v100", kSlow, 1, 10);
  EXPECT_EQ(speeds.Of(kSlow), 1);
}

TEST(AcceleratorSpeeds, OneThatHasRecoveredIsNoStraggler) {
  AcceleratorSpeeds speeds = Told(3, 0.5);
  ASSERT_TRUE(speeds.any());
  for (uint64_t job = 1; job <= 3; ++job) {
    speeds.Measure(JobId(job), "v100", kSlow,
                   std::pow(2, static_cast<double>(job)), 60);
  }
  EXPECT_FALSE(speeds.any());
}

TEST(AcceleratorSpeeds, OtherTypesAreNotCompared) {
  AcceleratorSpeeds speeds;
  for (uint64_t job = 1; job <= 3; ++job) {
    speeds.Measure(JobId(job), "v100", AcceleratorId(1), 10, 10);
    speeds.Measure(JobId(job), "k80", AcceleratorId(2), 1, 10);
  }
  EXPECT_FALSE(speeds.any());
}

TEST(AcceleratorSpeeds, WhatJobsSaidOutlivesThem) {
  AcceleratorSpeeds speeds = Told(3, 0.6);
  for (uint64_t job = 1; job <= 3; ++job) speeds.RemoveJob(JobId(job));
  EXPECT_NEAR(speeds.Of(kSlow), 0.6, 1e-9);
  speeds.Forget(kSlow);
  EXPECT_FALSE(speeds.any());
}

// The oldest measurements are forgotten first, whatever the ids of the jobs
// are.
TEST(AcceleratorSpeeds, TheLatestJobsCount) {
  AcceleratorSpeeds speeds;
  const auto tell = [&](uint64_t job, double slowness) {
    speeds.Measure(JobId(job), "v100", AcceleratorId(1), 1, 60);
    speeds.Measure(JobId(job), "v100", kSlow, slowness, 60);
  };
  for (uint64_t job = 101; job <= 116; ++job) tell(job, 0.5);
  EXPECT_NEAR(speeds.Of(kSlow), 0.5, 1e-9);
  for (uint64_t job = 1; job <= 16; ++job) tell(job, 1);
  EXPECT_FALSE(speeds.any());
}

TEST(AcceleratorSpeeds, NonsenseIsIgnored) {
  AcceleratorSpeeds speeds = Told(2, 1);
  for (const double value : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    speeds.Measure(JobId(1), "v100", kSlow, value, 10);
    speeds.Measure(JobId(2), "v100", kSlow, 0.01, value);
  }
  EXPECT_FALSE(speeds.any());
}

}  // namespace
}  // namespace gavel::testing
