// Which samples a worker reads, and the position of a loader in them. Part of
// gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_SHARDED_ORDER_H_
#define GAVEL_INTERNAL_SHARDED_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gavel/data_options.h"
#include "gavel/status.h"

namespace gavel::internal {

struct LoaderBook;

// A loader that the sessions of the thread which makes it can find. Its number
// is the lowest that no other loader of this thread has, so it is the same when
// the program is started again.
class GAVEL_EXPORT LoaderPosition {
 public:
  int loader_number() const { return number_; }
  virtual std::string SavePosition() const = 0;
  // False, and nothing changes: a position of other data, seed or order.
  virtual bool LoadPosition(const std::string& position) = 0;

 protected:
  LoaderPosition();
  LoaderPosition(LoaderPosition&& other) noexcept;
  LoaderPosition& operator=(LoaderPosition&&) = delete;
  virtual ~LoaderPosition();
  // Loads what a session has restored for this number, once. At the end of the
  // constructor.
  void TakeRestored();

 private:
  std::shared_ptr<LoaderBook> book_;  // null: moved from
  int number_ = 0;
};

// The positions of this thread's loaders, by number.
std::map<int, std::string> PositionsOfLoaders();
// Loads them into this thread's loaders, and into those that it makes later.
void RestoreLoaders(std::map<int, std::string> positions);

}  // namespace gavel::internal

namespace gavel {

// The order alone: which samples a worker reads in each step. A position is
// (epoch, index of the next sample in the epoch's order), the same on all
// workers. In a step each reads its part of the next batch_size x world_size
// samples; fewer than world_size left over join the last step, so that none is
// empty (but when workers were added while fewer samples than workers are
// left). A step of several batches (SetAccumulation) is so many times as large.
// With a global batch size, less than half of one joins the last step,
// more is a step of its own.
class GAVEL_EXPORT ShardedOrder {
 public:
  ShardedOrder(int64_t sample_count, DataLoaderOptions options);

  // Fills the next step's samples of this worker; false at the epoch's end,
  // and then the position is the next epoch's begin.
  bool Next(std::vector<size_t>* samples);
  // Takes back the last step that Next() has filled, so that it comes again.
  void Rewind() { next_index_ -= step_size_; }
  // False: a step has fewer samples than there would be workers.
  bool SetShard(int rank, int world_size);
  // False: with a global batch size, which is the step already.
  bool SetAccumulation(int64_t batches);
  int64_t accumulation() const { return accumulation_; }
  // How many of the samples from `from` on are the next micro-batch.
  size_t MicroBatch(size_t from, size_t sample_count) const;
  // The weight of a mean over so many samples in the mean over the last step,
  // times the number of workers (whose gradients are averaged). It is 1 when
  // all workers read as many, and in one piece.
  double LossScale(size_t sample_count) const;
  int64_t epoch() const { return epoch_; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  int64_t global_batch_size() const { return options_.global_batch_size; }
  int64_t next_index() const { return next_index_; }
  // The steps of one epoch with the present number of workers.
  int64_t StepsPerEpoch() const { return StepsFrom(0); }
  int64_t StepsLeft() const { return StepsFrom(next_index_); }
  bool HasStep() const { return StepSize(0) > 0; }
  std::string SavePosition() const;
  // False, and nothing changes: of other data, seed or order, or no position.
  bool LoadPosition(const std::string& position);
  // Moves to the begin of the epoch that `position` is in, also of other data.
  void RestartEpoch(const std::string& position);

 private:
  int64_t StepSize(int64_t from) const;
  int64_t StepsFrom(int64_t from) const;
  void Permute();

  int64_t sample_count_;
  DataLoaderOptions options_;
  int rank_ = 0;
  int world_size_ = 1;
  int64_t accumulation_ = 1;  // batches of a worker in a step
  int64_t epoch_ = 0;
  int64_t next_index_ = 0;
  int64_t step_size_ = 1;  // of the last step
  int64_t permuted_epoch_ = -1;
  std::vector<size_t> permutation_;
};

}  // namespace gavel

#endif  // GAVEL_INTERNAL_SHARDED_ORDER_H_
