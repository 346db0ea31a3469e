// Reading ahead changes only when a sample is read.
#include "gavel/data_loader.h"

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/support/test.h"

namespace gavel {
namespace {

constexpr size_t kSamples = 23;

struct Reads {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> count = 0;
};

// A sample contains its index and the epoch for which it was read.
class ByEpoch {
 public:
  explicit ByEpoch(Reads* reads) : reads_(reads) {}
  size_t size() const { return kSamples; }
  int64_t get(size_t index, int64_t epoch) const {
    const std::lock_guard lock(reads_->mutex);
    reads_->threads.insert(std::this_thread::get_id());
    ++reads_->count;
    return static_cast<int64_t>(index) + 1000 * epoch;
  }

 private:
  Reads* reads_;
};

using Loader = DataLoader<ByEpoch>;
using Batches = std::vector<std::vector<int64_t>>;

DataLoaderOptions WithThreads(int threads, int64_t global_batch_size = 0) {
  DataLoaderOptions options;
  options.batch_size = 4;
  options.seed = 7;
  options.global_batch_size = global_batch_size;
  options.reading_threads = threads;
  return options;
}

Batches Epoch(Loader& loader, size_t batch_count = kSamples) {
  Batches batches;
  for (const auto& batch : loader) {
    batches.push_back(batch);
    if (batches.size() == batch_count) break;
  }
  return batches;
}

class ReadingAhead : public TestWithParam<int64_t> {
 protected:
  // One loader reads ahead and the other does not. Their batches have to be the
  // same.
  Reads reads_, reads_ahead_;
  Loader alone_{ByEpoch(&reads_), WithThreads(0, GetParam())};
  Loader ahead_{ByEpoch(&reads_ahead_), WithThreads(3, GetParam())};
};

TEST_P(ReadingAhead, GivesTheSameBatchesInEveryEpoch) {
  for (int epoch = 0; epoch < 4; ++epoch) {
    EXPECT_EQ(Epoch(ahead_), Epoch(alone_));
    EXPECT_EQ(ahead_.SavePosition(), alone_.SavePosition());
  }
  EXPECT_EQ(reads_.count, 4 * kSamples);
  EXPECT_EQ(reads_.threads.size(), 1);
  EXPECT_FALSE(reads_ahead_.threads.contains(std::this_thread::get_id()));
}

TEST_P(ReadingAhead, SavesThePositionOfTheReaderNotOfWhatWasReadAhead) {
  Epoch(ahead_, 2);
  Epoch(alone_, 2);
  EXPECT_EQ(ahead_.SavePosition(), alone_.SavePosition());
  Reads reads;
  Loader restarted(ByEpoch(&reads), WithThreads(2, GetParam()));
  ASSERT_TRUE(restarted.LoadPosition(ahead_.SavePosition()));
  const Batches rest = Epoch(alone_);
  EXPECT_EQ(Epoch(restarted), rest);
  EXPECT_EQ(Epoch(ahead_), rest);  // it was left by `break`
}

TEST_P(ReadingAhead, GoesOnElsewhereWhenThePositionOrTheShardChanges) {
  const std::string begin = ahead_.SavePosition();
  const Batches first = Epoch(ahead_);
  ASSERT_TRUE(ahead_.LoadPosition(begin));
  EXPECT_EQ(Epoch(ahead_), first);
  Epoch(alone_);
  for (Loader* loader : {&ahead_, &alone_}) loader->SetShard(1, 2);
  EXPECT_EQ(Epoch(ahead_), Epoch(alone_));
}

TEST_P(ReadingAhead, ForwardsWithoutLosingItsPlace) {
  for (Loader* loader : {&ahead_, &alone_}) {
    auto cursor = loader->begin();
    ++cursor;
    ++cursor;  // nobody looked at these batches
  }
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(Epoch(ahead_), Epoch(alone_));
  }
}

INSTANTIATE_TEST_SUITE_P(GlobalBatchSizes, ReadingAhead, Values(0, 8));

TEST(ReadAhead, ReadsNoMoreThanAFewStepsAhead) {
  Reads reads;
  Loader loader(ByEpoch(&reads), WithThreads(2));
  auto cursor = loader.begin();
  *cursor;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(reads.count, 3 * 4);
}

// An exception of the dataset is thrown when the batch is asked for, not
// before.
struct Failing {
  size_t size() const { return 100; }
  int get(size_t index) const {
    if (index == 9) throw std::runtime_error("sample 9");
    return static_cast<int>(index);
  }
};

TEST(ReadAhead, ThrowsWhatTheDatasetThrowsAtItsBatch) {
  DataLoaderOptions options = WithThreads(2);
  options.shuffle = false;
  DataLoader loader(Failing(), options);
  auto cursor = loader.begin();
  EXPECT_THAT(*cursor, ElementsAre(0, 1, 2, 3));
  ++cursor;
  EXPECT_THAT(*cursor, ElementsAre(4, 5, 6, 7));
  ++cursor;
  EXPECT_THROW(*cursor, std::runtime_error);
}

TEST(ReadAhead, OfNothingEndsAtOnce) {
  struct Empty {
    size_t size() const { return 0; }
    int get(size_t) const { return 0; }
  };
  DataLoader loader(Empty(), WithThreads(2));
  EXPECT_FALSE(loader.begin() != loader.end());
}

}  // namespace
}  // namespace gavel
