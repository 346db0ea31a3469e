#include "models/dataset.h"
#include "tests/support/test.h"

namespace gavel::models {
namespace {

// Counts how often it is read.
class Numbers {
 public:
  explicit Numbers(int* reads) : reads_(reads) {}
  size_t size() const { return 10; }
  int get(size_t index) const {
    ++*reads_;
    return static_cast<int>(index);
  }

 private:
  int* reads_;
};

TEST(FirstBatch, HandsOutItsSamplesOverAndOverAndReadsThemOnce) {
  int reads = 0;
  const FirstBatch batch(Numbers(&reads), 4);
  EXPECT_EQ(batch.size(), 10);  // an epoch is as long as ever
  std::vector<int> samples;
  for (size_t i = 0; i < batch.size(); ++i) samples.push_back(batch.get(i));
  EXPECT_THAT(samples, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
  EXPECT_EQ(reads, 4);
}

TEST(FirstBatch, WithoutABatchSizeIsTheDatasetItself) {
  int reads = 0;
  const FirstBatch batch(Numbers(&reads), 0);
  EXPECT_EQ(batch.get(7), 7);
  EXPECT_EQ(reads, 1);
}

TEST(FirstBatch, LargerThanTheDatasetIsAllOfIt) {
  int reads = 0;
  const FirstBatch batch(Numbers(&reads), 100);
  EXPECT_EQ(batch.get(9), 9);
  EXPECT_EQ(reads, 10);
}

}  // namespace
}  // namespace gavel::models
