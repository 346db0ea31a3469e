#include "coordinator/engine/throughput_estimator.h"

#include <cmath>
#include <limits>
#include <random>

#include "tests/support/test.h"

namespace gavel::testing {
namespace {

using Cell = ThroughputEstimator::Cell;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kTypes = 3;

// Jobs of four families. Within a family, jobs differ in their own speed, and
// slightly in the part of it that they keep beside other jobs.
std::vector<ReferenceJob> Jobs(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(0.1, 1);
  constexpr size_t kFamilies = 4;
  double fast[kFamilies][kTypes];
  double meek[kFamilies][kFamilies];
  for (auto& family : fast) {
    for (double& value : family) value = 10 * draw(random);
  }
  for (auto& family : meek) {
    for (double& value : family) value = draw(random);
  }
  std::vector<ReferenceJob> jobs(count);
  for (size_t i = 0; i < count; ++i) {
    const double speed = 100 * draw(random);
    for (size_t j = 0; j < kTypes; ++j) {
      jobs[i].alone.push_back(speed * fast[i % kFamilies][j]);
      for (size_t k = 0; k < count; ++k) {
        jobs[i].kept.push_back(meek[i % kFamilies][k % kFamilies] *
                               (1 + 0.001 * draw(random)));
      }
    }
  }
  return jobs;
}

std::vector<Cell> CellsOf(const ReferenceJob& job, double part,
                          std::mt19937& random) {
  std::uniform_real_distribution<double> draw(0, 1);
  const size_t n = job.kept.size() / kTypes;
  std::vector<Cell> cells;
  for (size_t type = 0; type < kTypes; ++type) {
    if (draw(random) < part) {
      cells.push_back({type, ThroughputEstimator::kAlone, job.alone[type]});
    }
    for (size_t k = 0; k < n; ++k) {
      if (draw(random) < part)
        cells.push_back({type, k, job.kept[type * n + k]});
    }
  }
  return cells;
}

TEST(ThroughputEstimator, ARowEqualToAReferenceFindsIt) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<ReferenceJob> jobs = Jobs(12, seed);
    const ThroughputEstimator estimator(kTypes, jobs);
    std::mt19937 random(seed);
    for (size_t i = 0; i < jobs.size(); ++i) {
      const auto whole = estimator.Find(CellsOf(jobs[i], 1, random));
      ASSERT_TRUE(whole.has_value());
      EXPECT_EQ(whole->reference, i);
      EXPECT_NEAR(whole->distance, 0, 1e-12);
      EXPECT_NEAR(whole->speed, 1, 1e-9);
    }
  }
}

TEST(ThroughputEstimator, AFewCellsFindTheFamily) {
  int right = 0;
  int asked = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<ReferenceJob> jobs = Jobs(16, seed);
    // The last four are new, one of each family.
    std::vector<ReferenceJob> known(jobs.begin(), jobs.begin() + 12);
    std::vector<ReferenceJob> fresh(jobs.begin() + 12, jobs.end());
    for (auto* list : {&known, &fresh}) {
      for (ReferenceJob& job : *list) {
        std::vector<double> kept;
        for (size_t cell = 0; cell < job.kept.size(); ++cell) {
          if (cell % 16 < 12) kept.push_back(job.kept[cell]);
        }
        job.kept = std::move(kept);
      }
    }
    const ThroughputEstimator estimator(kTypes, known);
    std::mt19937 random(seed);
    for (size_t i = 0; i < fresh.size(); ++i) {
      const auto found = estimator.Find(CellsOf(fresh[i], 0.2, random));
      ++asked;
      right += found.has_value() && found->reference % 4 == i ? 1 : 0;
    }
  }
  EXPECT_GE(right, asked * 9 / 10) << right << " of " << asked;
}

TEST(ThroughputEstimator, TheSpeedIsTakenFromTypesThatBothKnow) {
  const std::vector<ReferenceJob> jobs = {{{10, 20, 40}, {1, 1, 1, 1, 1, 1}},
                                          {{10, 10, 10}, {1, 1, 1, 1, 1, 1}}};
  const ThroughputEstimator estimator(kTypes, jobs);
  const auto found =
      estimator.Find(std::vector<Cell>{{0, ThroughputEstimator::kAlone, 5},
                                       {2, ThroughputEstimator::kAlone, 20}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->reference, 0u);
  EXPECT_NEAR(found->speed, 0.5, 1e-12);
  const auto beside = estimator.Find(std::vector<Cell>{{0, 1, 1}});
  ASSERT_TRUE(beside.has_value());
  EXPECT_EQ(beside->speed, 0);
}

TEST(ThroughputEstimator, WithoutCellsNothingIsFound) {
  const ThroughputEstimator estimator(kTypes, Jobs(5, 1));
  EXPECT_FALSE(estimator.Find({}).has_value());
  // One speed alone says nothing of how types compare.
  EXPECT_FALSE(
      estimator.Find(std::vector<Cell>{{0, ThroughputEstimator::kAlone, 7}})
          .has_value());
  EXPECT_FALSE(estimator
                   .Find(std::vector<Cell>{
                       {9, 0, 1}, {0, 77, 1}, {0, 0, -1}, {0, 0, kUnknown}})
                   .has_value());
  EXPECT_FALSE(ThroughputEstimator(kTypes, {})
                   .Find(std::vector<Cell>{{0, 0, 1}})
                   .has_value());
}

TEST(ThroughputEstimator, HolesInReferencesMakeNoNan) {
  std::vector<ReferenceJob> jobs = Jobs(6, 3);
  for (double& value : jobs[2].kept) value = kUnknown;
  jobs[2].alone = {kUnknown, kUnknown, kUnknown};
  jobs[4].alone[0] = 0;  // can't run there
  const ThroughputEstimator estimator(kTypes, jobs);
  std::mt19937 random(1);
  for (const ReferenceJob& job : jobs) {
    const auto found = estimator.Find(CellsOf(job, 0.5, random));
    if (!found.has_value()) continue;  // the job without throughputs
    EXPECT_TRUE(std::isfinite(found->distance));
    EXPECT_TRUE(std::isfinite(found->speed));
  }
}

TEST(ChooseReferences, TakesOneOfEachFamilyFirst) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<size_t> chosen = ChooseReferences(Jobs(16, seed), 4);
    ASSERT_EQ(chosen.size(), 4u);
    std::vector<size_t> families;
    for (const size_t i : chosen) families.push_back(i % 4);
    std::sort(families.begin(), families.end());
    EXPECT_THAT(families, ElementsAre(0, 1, 2, 3)) << "seed " << seed;
  }
}

TEST(ChooseReferences, TakesNoMoreThanDiffer) {
  EXPECT_THAT(ChooseReferences({}, 3), IsEmpty());
  const ReferenceJob one{{1, 2, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1}};
  EXPECT_THAT(ChooseReferences({one, one, one}, 3), ElementsAre(0));
  const std::vector<size_t> all = ChooseReferences(Jobs(5, 2), 99);
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4));
}

}  // namespace
}  // namespace gavel::testing
