// Tests a global batch size: the steps are the same on any number of workers,
// which read them in micro-batches.
#include <numeric>
#include <random>

#include "gavel/data_loader.h"
#include "tests/support/test.h"

namespace gavel {
namespace {

class Indices {
 public:
  explicit Indices(size_t count) : count_(count) {}
  size_t get(size_t index) const { return index; }
  size_t size() const { return count_; }

 private:
  size_t count_;
};

DataLoaderOptions ElasticOptions(int64_t batch_size, int64_t global_batch_size,
                                 bool drop_last = false) {
  DataLoaderOptions options;
  options.batch_size = batch_size;
  options.seed = 5;
  options.drop_last = drop_last;
  options.global_batch_size = global_batch_size;
  return options;
}

std::vector<size_t> Sizes(const ShardedOrder& from) {
  ShardedOrder order = from;
  std::vector<size_t> sizes;
  for (std::vector<size_t> step; order.Next(&step);)
    sizes.push_back(step.size());
  return sizes;
}

TEST(ElasticOrder, ALeftoverOfLessThanHalfAGlobalBatchJoinsTheLastStep) {
  EXPECT_EQ(Sizes(ShardedOrder(24, ElasticOptions(4, 8))),
            (std::vector<size_t>{8, 8, 8}));
  EXPECT_EQ(Sizes(ShardedOrder(27, ElasticOptions(4, 8))),
            (std::vector<size_t>{8, 8, 11}));
  EXPECT_EQ(Sizes(ShardedOrder(28, ElasticOptions(4, 8))),
            (std::vector<size_t>{8, 8, 8, 4}));
  EXPECT_EQ(Sizes(ShardedOrder(3, ElasticOptions(4, 8))),
            (std::vector<size_t>{3}));
  EXPECT_EQ(Sizes(ShardedOrder(0, ElasticOptions(4, 8))),
            (std::vector<size_t>{}));
  EXPECT_EQ(Sizes(ShardedOrder(27, ElasticOptions(4, 8, /*drop_last=*/true))),
            (std::vector<size_t>{8, 8, 8}));
}

TEST(ElasticOrder, MoreWorkersThanASmallStepHasSamplesAreRefused) {
  ShardedOrder order(100, ElasticOptions(4, 7));
  EXPECT_TRUE(order.SetShard(0, 4));
  EXPECT_FALSE(order.SetShard(0, 5));
  EXPECT_TRUE(ShardedOrder(100, ElasticOptions(4, 7, true)).SetShard(0, 7));
  EXPECT_FALSE(ShardedOrder(100, ElasticOptions(4, 7, true)).SetShard(0, 8));
  EXPECT_FALSE(ShardedOrder(2, ElasticOptions(4, 8)).SetShard(0, 3));
  EXPECT_TRUE(ShardedOrder(100, ElasticOptions(4, 0)).SetShard(0, 50));
}

TEST(ElasticLoader, ABrokenOffStepIsNotReadAgain) {
  DataLoader loader(Indices(16), ElasticOptions(2, 8));
  auto first = loader.begin();
  EXPECT_FALSE(loader.last_micro_batch());
  ++first;
  std::vector<size_t> read;
  for (const auto& batch : loader)
    read.insert(read.end(), batch.begin(), batch.end());
  EXPECT_EQ(read.size(), 8);
  EXPECT_EQ(loader.epoch(), 1);
}

// One worker's part of one step.
struct Share {
  std::vector<size_t> samples;
  double scale = 0;
};

// Runs one worker from `position` on for at most `steps` steps, or to the end
// of the epoch. Returns its shares, and moves `position` behind them.
std::vector<Share> Work(size_t samples, const DataLoaderOptions& options,
                        int rank, int world_size, int steps,
                        std::string* position) {
  std::vector<Share> shares;
  DataLoader loader(Indices(samples), options);
  EXPECT_TRUE(loader.LoadPosition(*position));
  EXPECT_TRUE(loader.SetShard(rank, world_size));
  Share share;
  for (const auto& batch : loader) {
    EXPECT_LE(int64_t(batch.size()), options.batch_size);
    EXPECT_GT(batch.size(), 0);
    share.samples.insert(share.samples.end(), batch.begin(), batch.end());
    share.scale += loader.loss_scale();
    if (!loader.last_micro_batch()) continue;
    shares.push_back(std::exchange(share, {}));
    if (int(shares.size()) == steps) break;
  }
  EXPECT_TRUE(share.samples.empty()) << "an epoch ends with a step's end";
  *position = loader.SavePosition();
  return shares;
}

class ElasticLoaderProperty : public TestWithParam<int> {};

// For every sequence of world sizes, each sample is read once in the epoch, and
// the steps are those that one worker alone makes.
TEST_P(ElasticLoaderProperty, StepsAreTheSameOnEverySequenceOfWorldSizes) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto below = [&random](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  const int64_t global = 1 + below(40);
  const size_t samples = size_t(global + below(400));
  DataLoaderOptions options =
      ElasticOptions(1 + below(12), global, below(4) == 0);
  options.shuffle = below(4) > 0;
  const int workers_max = int((global + 1) / 2);

  std::string position = DataLoader(Indices(samples), options).SavePosition();
  std::string position_alone = position;
  const std::vector<Share> alone =
      Work(samples, options, 0, 1, 1 << 30, &position_alone);
  std::vector<size_t> read;
  size_t step = 0;
  while (step < alone.size()) {
    const int world_size = 1 + below(workers_max);
    const int steps = 1 + below(6);
    std::vector<std::vector<Share>> work;
    std::string next_position;
    for (int rank = 0; rank < world_size; ++rank) {
      std::string mine = position;
      work.push_back(Work(samples, options, rank, world_size, steps, &mine));
      ASSERT_EQ(work[size_t(rank)].size(), work[0].size()) << "steps";
      ASSERT_TRUE(rank == 0 || mine == next_position);
      next_position = mine;
    }
    for (size_t i = 0; i < work[0].size(); ++i, ++step) {
      Share together;
      for (const auto& one : work) {
        together.samples.insert(together.samples.end(), one[i].samples.begin(),
                                one[i].samples.end());
        together.scale += one[i].scale;
      }
      ASSERT_LT(step, alone.size());
      ASSERT_EQ(together.samples, alone[step].samples) << "step " << step;
      // Averaged over the workers, each sample counts as much as any other.
      ASSERT_NEAR(together.scale / world_size, 1, 1e-12);
      read.insert(read.end(), together.samples.begin(), together.samples.end());
    }
    position = next_position;
  }
  std::sort(read.begin(), read.end());
  ASSERT_EQ(std::adjacent_find(read.begin(), read.end()), read.end());
  if (!options.drop_last) {
    std::vector<size_t> all(samples);
    std::iota(all.begin(), all.end(), size_t{0});
    ASSERT_EQ(read, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ElasticLoaderProperty, Range(0, 400));

}  // namespace
}  // namespace gavel
