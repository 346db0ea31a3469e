
#include <random>

#include "gavel/data_loader.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

DataLoaderOptions Options(int64_t batch_size, uint64_t seed = 1) {
  DataLoaderOptions options;
  options.batch_size = batch_size;
  options.seed = seed;
  return options;
}

std::vector<size_t> ReadEpoch(ShardedOrder& order) {
  std::vector<size_t> all;
  std::vector<size_t> step;
  while (order.Next(&step)) all.insert(all.end(), step.begin(), step.end());
  return all;
}

std::vector<size_t> Sorted(std::vector<size_t> samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

std::vector<size_t> Numbers(size_t count) {
  std::vector<size_t> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = i;
  return numbers;
}

TEST(ShardedOrder, ReadsEverySampleOnceInAnEpoch) {
  ShardedOrder order(103, Options(10));
  const std::vector<size_t> first = ReadEpoch(order);
  EXPECT_EQ(Sorted(first), Numbers(103));
  EXPECT_NE(first, Numbers(103));
  EXPECT_EQ(order.epoch(), 1);
  const std::vector<size_t> second = ReadEpoch(order);
  EXPECT_EQ(Sorted(second), Numbers(103));
  EXPECT_NE(first, second);
}

TEST(ShardedOrder, IsAFunctionOfSeedAndEpoch) {
  ShardedOrder a(50, Options(4, 9));
  ShardedOrder b(50, Options(7, 9));
  ShardedOrder c(50, Options(4, 10));
  EXPECT_EQ(ReadEpoch(a), ReadEpoch(b));
  EXPECT_EQ(ReadEpoch(a), ReadEpoch(b));
  EXPECT_NE(ReadEpoch(a), ReadEpoch(c));
}

// The order must not change with the compiler or its library.
TEST(ShardedOrder, HasTheOrderThatCheckpointsRelyOn) {
  ShardedOrder order(8, Options(8, 42));
  EXPECT_EQ(ReadEpoch(order), (std::vector<size_t>{7, 2, 4, 5, 1, 0, 3, 6}));
}

TEST(ShardedOrder, WithoutShuffleIsTheDatasetsOrder) {
  DataLoaderOptions options = Options(3);
  options.shuffle = false;
  ShardedOrder order(10, options);
  EXPECT_EQ(ReadEpoch(order), Numbers(10));
}

TEST(ShardedOrder, DropLastLeavesOutTheSmallerStep) {
  DataLoaderOptions options = Options(4);
  options.drop_last = true;
  ShardedOrder order(10, options);
  EXPECT_EQ(order.StepsPerEpoch(), 2);
  EXPECT_EQ(ReadEpoch(order).size(), 8u);
}

TEST(ShardedOrder, GoesOnAtASavedPosition) {
  ShardedOrder order(40, Options(8));
  std::vector<size_t> step;
  ReadEpoch(order);
  order.Next(&step);
  order.Next(&step);
  const std::string position = order.SavePosition();
  ShardedOrder restored(40, Options(8));
  ASSERT_TRUE(restored.LoadPosition(position));
  EXPECT_EQ(restored.epoch(), 1);
  EXPECT_EQ(ReadEpoch(restored), ReadEpoch(order));
}

TEST(ShardedOrder, AtTheEndOfAnEpochGoesOnWithTheNext) {
  ShardedOrder order(16, Options(8));
  std::vector<size_t> step;
  order.Next(&step);
  order.Next(&step);
  ShardedOrder restored(16, Options(8));
  ASSERT_TRUE(restored.LoadPosition(order.SavePosition()));
  EXPECT_FALSE(restored.Next(&step));
  EXPECT_TRUE(restored.Next(&step));
  EXPECT_EQ(restored.epoch(), 1);
}

TEST(ShardedOrder, RefusesMoreWorkersThanThereAreSamplesLeft) {
  ShardedOrder order(6, Options(4));
  EXPECT_TRUE(order.SetShard(5, 6));
  EXPECT_FALSE(order.SetShard(6, 7));
  ASSERT_TRUE(order.SetShard(0, 1));
  std::vector<size_t> step;
  ASSERT_TRUE(order.Next(&step));
  EXPECT_TRUE(order.SetShard(1, 2));
  EXPECT_FALSE(order.SetShard(2, 3));
  // No step at all is the same for all.
  DataLoaderOptions drop_last = Options(4);
  drop_last.drop_last = true;
  EXPECT_TRUE(ShardedOrder(6, drop_last).SetShard(0, 7));
}

TEST(ShardedOrder, RefusesThePositionOfAnotherOrder) {
  ShardedOrder order(40, Options(8));
  const std::string position = order.SavePosition();
  EXPECT_FALSE(ShardedOrder(41, Options(8)).LoadPosition(position));
  EXPECT_FALSE(ShardedOrder(40, Options(8, 2)).LoadPosition(position));
  EXPECT_TRUE(ShardedOrder(40, Options(9)).LoadPosition(position));
  for (const char* bad : {"", "epoch", "epoch 1 next 41 samples 40",
                          "epoch -1 next 0 samples 40 seed 1 shuffle 1"}) {
    EXPECT_FALSE(order.LoadPosition(bad)) << bad;
  }
  EXPECT_EQ(order.SavePosition(), position);
}

// For every sequence of gang sizes, changed at boundaries and through
// checkpoints: no sample is lost or read twice in an epoch, and all workers
// make the same steps, none of them empty.
class ShardedOrderProperty : public TestWithParam<int> {};

TEST_P(ShardedOrderProperty, LosesNothingWhenTheNumberOfWorkersChanges) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto below = [&random](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  const int64_t samples = 8 + below(300);
  const DataLoaderOptions options = Options(1 + below(9), random());
  std::string position = ShardedOrder(samples, options).SavePosition();
  std::vector<size_t> read;
  for (bool ended = false; !ended;) {
    int world_size = 1 + below(8);
    const int steps = 1 + below(5);
    // As many as there are samples left.
    ShardedOrder next(samples, options);
    ASSERT_TRUE(next.LoadPosition(position));
    while (!next.SetShard(0, world_size)) --world_size;
    std::string next_position;
    for (int rank = 0; rank < world_size; ++rank) {
      ShardedOrder worker(samples, options);
      ASSERT_TRUE(worker.LoadPosition(position));
      ASSERT_TRUE(worker.SetShard(rank, world_size));
      std::vector<size_t> step;
      for (int i = 0; i < steps; ++i) {
        if (!worker.Next(&step)) {
          ended = true;
          break;
        }
        ASSERT_FALSE(step.empty());
        read.insert(read.end(), step.begin(), step.end());
      }
      // Workers agree on where they are.
      ASSERT_TRUE(rank == 0 || worker.SavePosition() == next_position);
      next_position = worker.SavePosition();
    }
    position = next_position;
  }
  EXPECT_EQ(Sorted(read), Numbers(static_cast<size_t>(samples)));
}

INSTANTIATE_TEST_SUITE_P(Seeds, ShardedOrderProperty, Range(0, 300));

}  // namespace
}  // namespace gavel
