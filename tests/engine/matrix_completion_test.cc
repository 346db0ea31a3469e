#include <cmath>
#include <limits>
#include <random>

#include "coordinator/engine/throughput_estimator.h"
#include "tests/support/test.h"

namespace gavel::testing {
namespace {

constexpr double kHole = std::numeric_limits<double>::quiet_NaN();

// [rows x columns] of rank `rank`.
std::vector<double> LowRank(size_t rows, size_t columns, size_t rank,
                            std::mt19937& random) {
  std::normal_distribution<double> draw;
  std::vector<double> left(rows * rank);
  std::vector<double> right(columns * rank);
  for (double& value : left) value = draw(random);
  for (double& value : right) value = draw(random);
  std::vector<double> made(rows * columns, 0);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      for (size_t k = 0; k < rank; ++k) {
        made[i * columns + j] += left[i * rank + k] * right[j * rank + k];
      }
    }
  }
  return made;
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

TEST(CompleteMatrix, AMatrixOfLowRankIsRecoveredFromHalfOfItsCells) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    for (const size_t rank : {1, 2, 3}) {
      std::mt19937 random(seed);
      const auto truth = LowRank(40, 30, rank, random);
      std::vector<double> seen = truth;
      for (double& cell : seen) {
        if (random() % 2 == 0) cell = kHole;
      }
      // One more: the columns' means are taken out first.
      const std::vector<double> complete =
          CompleteMatrix(seen, 30,
                         {.rank = static_cast<int>(rank) + 1,
                          .regularization = 1e-6,
                          .iterations_max = 300,
                          .change_max = 1e-12});
      std::vector<double> off(truth.size());
      for (size_t i = 0; i < off.size(); ++i) off[i] = complete[i] - truth[i];
      EXPECT_LT(Norm(off), 0.02 * Norm(truth)) << seed << " rank " << rank;
    }
  }
}

TEST(CompleteMatrix, KnownCellsComeBackAsTheyAre) {
  std::mt19937 random(1);
  std::vector<double> seen = LowRank(6, 5, 4, random);
  seen[7] = kHole;
  seen[20] = std::numeric_limits<double>::infinity();
  const std::vector<double> complete = CompleteMatrix(seen, 5);
  for (size_t i = 0; i < seen.size(); ++i) {
    if (std::isfinite(seen[i])) {
      EXPECT_EQ(complete[i], seen[i]);
    } else {
      EXPECT_TRUE(std::isfinite(complete[i])) << i;
    }
  }
}

TEST(CompleteMatrix, ARowWithoutCellsIsTheMeanOfTheOthers) {
  const std::vector<double> complete =
      CompleteMatrix(std::vector<double>{1, 2, kHole, 3, 4, kHole,  //
                                         kHole, kHole, kHole},
                     3);
  EXPECT_NEAR(complete[6], 2, 1e-12);
  EXPECT_NEAR(complete[7], 3, 1e-12);
  EXPECT_EQ(complete[8], 0);  // nobody knows that column
  EXPECT_EQ(complete[2], 0);
}

TEST(CompleteMatrix, NothingOrNothingKnownIsNoTrouble) {
  EXPECT_TRUE(CompleteMatrix({}, 3).empty());
  EXPECT_TRUE(CompleteMatrix(std::vector<double>{1}, 0).empty());
  const std::vector<double> unknown(6, kHole);
  EXPECT_EQ(CompleteMatrix(unknown, 2), std::vector<double>(6, 0));
  EXPECT_EQ(CompleteMatrix(std::vector<double>{kHole}, 1),
            std::vector<double>{0});
}

}  // namespace
}  // namespace gavel::testing
