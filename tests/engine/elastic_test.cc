// Tests how many workers elastic jobs get, apart from the engine.
#include <cmath>
#include <random>

#include "coordinator/engine/rounds.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

const std::vector<std::string> kTypes = {"v100", "k80"};

// A job whose speed is known at each size: its throughput is the number of
// workers to the power `exponent`.
SizedJob Elastic(uint64_t id, int size, int asked, int max,
                 double exponent = 0.8) {
  SizedJob job;
  job.id = JobId(id);
  job.size = size;
  job.size_asked = asked;
  job.size_max = max;
  job.type = 0;
  job.usable = {true, true};
  job.speed = [exponent](size_t, int workers) {
    return Throughput{std::pow(workers, exponent), ThroughputSource::kMeasured};
  };
  return job;
}

SizedJob Fixed(uint64_t id, int size) {
  SizedJob job = Elastic(id, size, size, size);
  job.size_min = size;
  return job;
}

SizedJob Waiting(SizedJob job) {
  job.type.reset();
  return job;
}

std::map<uint64_t, int> Choose(const std::vector<SizedJob>& jobs,
                               std::vector<int> free, std::vector<int> capacity,
                               bool keep_running = false) {
  std::map<uint64_t, int> sizes;
  for (const Resize& resize : ChooseSizes(jobs, std::move(free), capacity,
                                          kTypes, {1000, keep_running})) {
    sizes[resize.job.value()] = resize.scale_factor;
  }
  return sizes;
}

using Sizes = std::map<uint64_t, int>;

TEST(Elastic, GrowsIntoWhatIsIdle) {
  EXPECT_EQ(Choose({Elastic(1, 1, 1, 8)}, {3, 0}, {4, 0}), (Sizes{{1, 4}}));
  EXPECT_EQ(Choose({Elastic(1, 1, 1, 2)}, {3, 0}, {4, 0}), (Sizes{{1, 2}}));
  EXPECT_EQ(Choose({Elastic(1, 1, 1, 8)}, {0, 3}, {1, 3}), Sizes{});
}

TEST(Elastic, WhoGainsMostPerAcceleratorGetsIt) {
  EXPECT_EQ(Choose({Elastic(1, 1, 1, 8, 0.5), Elastic(2, 1, 1, 8, 1)}, {2, 0},
                   {4, 0}),
            (Sizes{{2, 3}}));
  // Equal jobs share the accelerators, because each further worker gains a job
  // less.
  EXPECT_EQ(Choose({Elastic(1, 1, 1, 8), Elastic(2, 1, 1, 8)}, {2, 0}, {4, 0}),
            (Sizes{{1, 2}, {2, 2}}));
}

TEST(Elastic, WhoHasLessThanItAskedForGrowsFirst) {
  EXPECT_EQ(Choose({Elastic(1, 1, 1, 8, 1), Elastic(2, 2, 4, 4, 0.6)}, {2, 0},
                   {5, 0}),
            (Sizes{{2, 4}}));
}

TEST(Elastic, DoesNotGrowForLessThanAChangeCosts) {
  SizedJob job = Elastic(1, 1, 1, 2);
  job.resize_cost_s = 600;  // of 1000 s; it gains 0.74 of 1.74
  EXPECT_EQ(Choose({job}, {1, 0}, {2, 0}), Sizes{});
  job.resize_cost_s = 400;
  EXPECT_EQ(Choose({job}, {1, 0}, {2, 0}), (Sizes{{1, 2}}));
}

TEST(Elastic, DoesNotGrowSoonAfterAChange) {
  SizedJob job = Elastic(1, 1, 1, 2);
  job.rests = true;
  EXPECT_EQ(Choose({job}, {1, 0}, {2, 0}), Sizes{});
}

TEST(Elastic, DoesNotGrowBeforeItsSpeedIsKnown) {
  SizedJob job = Elastic(1, 1, 1, 2);
  job.speed = [](size_t, int workers) {
    return Throughput{1.0 * workers, ThroughputSource::kGuessed};
  };
  EXPECT_EQ(Choose({job}, {1, 0}, {2, 0}), Sizes{});
}

TEST(Elastic, ShrinksForOneThatWaits) {
  EXPECT_EQ(Choose({Elastic(1, 4, 1, 4), Waiting(Fixed(2, 1))}, {0, 0}, {4, 0}),
            (Sizes{{1, 3}}));
  // Job 2 needs two more accelerators than the one that is idle.
  EXPECT_EQ(Choose({Elastic(1, 4, 1, 4), Waiting(Fixed(2, 3))}, {1, 0}, {5, 0}),
            (Sizes{{1, 2}}));
}

TEST(Elastic, WhatWasLentGoesFirst) {
  // Job 1 gains more by its third worker than job 2 by its second.
  EXPECT_EQ(Choose({Elastic(1, 3, 1, 4, 1), Elastic(2, 2, 2, 2, 0.5),
                    Waiting(Fixed(3, 2))},
                   {0, 0}, {5, 0}),
            (Sizes{{1, 1}}));
  EXPECT_EQ(Choose({Elastic(1, 3, 1, 4, 1), Elastic(2, 2, 2, 2, 0.5),
                    Waiting(Fixed(3, 3))},
                   {0, 0}, {5, 0}),
            (Sizes{{1, 1}, {2, 1}}));
}

TEST(Elastic, NobodyShrinksForOneThatDoesNotFitAnyway) {
  EXPECT_EQ(Choose({Elastic(1, 4, 1, 4), Waiting(Fixed(2, 4))}, {0, 0}, {4, 0}),
            Sizes{});
}

TEST(Elastic, NobodyGrowsWhereSomebodyWaits) {
  const std::vector<SizedJob> jobs = {Elastic(1, 1, 1, 4), Fixed(2, 2),
                                      Waiting(Fixed(3, 4))};
  EXPECT_EQ(Choose(jobs, {2, 0}, {5, 0}), Sizes{});
  // The waiting job can't use the type on which job 1 grows.
  std::vector<SizedJob> others = jobs;
  others[2].usable = {false, true};
  EXPECT_EQ(Choose(others, {2, 0}, {5, 0}), (Sizes{{1, 3}}));
}

TEST(Elastic, OneThatWaitsTakesLessThanItAskedFor) {
  for (const bool keep_running : {false, true}) {
    EXPECT_EQ(Choose({Fixed(1, 3), Waiting(Elastic(2, 4, 4, 8))}, {1, 0},
                     {4, 0}, keep_running),
              (Sizes{{2, 1}}));
  }
}

TEST(Elastic, OneThatWaitsKeepsItsSizeWhereThereIsRoom) {
  EXPECT_EQ(Choose({Fixed(1, 1), Waiting(Elastic(2, 4, 1, 4))}, {3, 0}, {4, 0}),
            (Sizes{{2, 3}}));
  EXPECT_EQ(Choose({Waiting(Elastic(1, 4, 1, 4)), Waiting(Fixed(2, 1))}, {4, 0},
                   {4, 0}),
            (Sizes{{1, 3}}));
}

TEST(Elastic, InTheMiddleOfARoundNobodyThatRunsChanges) {
  EXPECT_EQ(Choose({Elastic(1, 2, 1, 4), Waiting(Fixed(2, 2))}, {1, 0}, {3, 0},
                   /*keep_running=*/true),
            Sizes{});
  EXPECT_EQ(Choose({Elastic(1, 2, 1, 4)}, {1, 0}, {3, 0},
                   /*keep_running=*/true),
            Sizes{});
}

TEST(Elastic, GivesBackWhatMakesItNotFaster) {
  SizedJob job = Elastic(1, 4, 1, 4);
  // A quarter of the ideal speed-up from 1 to 4 is 1.75.
  const std::map<int, double> measured = {{1, 1}, {2, 1.6}, {4, 1.7}};
  job.speed = [&](size_t, int workers) {
    const auto found = measured.find(workers);
    return found == measured.end()
               ? Throughput{1.7, ThroughputSource::kGuessed}
               : Throughput{found->second, ThroughputSource::kMeasured};
  };
  EXPECT_EQ(Choose({job}, {0, 0}, {4, 0}), (Sizes{{1, 1}}));
  job.rests = true;
  EXPECT_EQ(Choose({job}, {0, 0}, {4, 0}), Sizes{});
  // A job does not grow from a size at which growing is known to gain too
  // little.
  job.rests = false;
  job.size = 2;
  EXPECT_EQ(Choose({job}, {2, 0}, {4, 0}), Sizes{});
}

TEST(Elastic, ReasonsSayWhatWasSeen) {
  const auto grown =
      ChooseSizes({Elastic(1, 1, 1, 2, 1)}, {3, 0}, {4, 0}, kTypes, {1000});
  EXPECT_EQ(RenderReason(grown.at(0).reason), "3 v100 idle, +1 steps/s");
  const auto shrunk = ChooseSizes({Elastic(1, 2, 1, 2), Waiting(Fixed(7, 1))},
                                  {0, 0}, {2, 0}, kTypes, {1000});
  EXPECT_EQ(RenderReason(shrunk.at(0).reason), "job 7 waits for v100");
}

// Sizes stay within their bounds, no accelerator is given twice, and the first
// waiting job is served if the accelerators that elastic jobs hold beyond their
// minimum suffice.
TEST(Elastic, HoldsItsRulesForAnyJobs) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    std::vector<int> capacity = {1 + below(8), below(8)};
    std::vector<int> free = capacity;
    std::vector<SizedJob> jobs;
    for (uint64_t id = 1; id <= 6; ++id) {
      SizedJob job = Elastic(id, 1, 1, 1, 0.3 + 0.1 * below(8));
      job.size_min = 1 + below(3);
      job.size_asked = job.size_min + below(3);
      job.size_max = job.size_asked + below(4);
      job.size = job.size_min + below(job.size_max - job.size_min + 1);
      job.usable = {below(4) > 0, below(4) > 0};
      job.type.reset();
      const auto type = static_cast<size_t>(below(2));
      if (job.usable[type] && free[type] >= job.size) {
        job.type = type;
        free[type] -= job.size;
      }
      jobs.push_back(job);
    }
    const Sizes chosen = Choose(jobs, free, capacity);
    std::vector<int> spare = capacity;
    std::vector<int> left = capacity;
    for (const SizedJob& job : jobs) {
      const auto found = chosen.find(job.id.value());
      const int size = found == chosen.end() ? job.size : found->second;
      EXPECT_GE(size, job.size_min) << seed;
      EXPECT_LE(size, job.size_max) << seed;
      if (!job.type) continue;
      left[*job.type] -= size;
      spare[*job.type] -= job.size_min;
    }
    EXPECT_GE(*std::min_element(left.begin(), left.end()), 0) << seed;
    // This is the first job that waits.
    const auto waiting = std::ranges::find_if(
        jobs, [](const SizedJob& job) { return !job.type; });
    if (waiting == jobs.end()) continue;
    for (size_t type = 0; type < 2; ++type) {
      const bool served = !waiting->usable[type] ||
                          spare[type] < waiting->size_min ||
                          left[0] >= waiting->size_min * waiting->usable[0] ||
                          left[1] >= waiting->size_min;
      EXPECT_TRUE(served) << seed;
    }
    EXPECT_EQ(chosen, Choose(jobs, free, capacity)) << "not deterministic";
  }
}

}  // namespace
}  // namespace gavel
