// Batches of a dataset in an order that is a function of (seed, epoch) alone,
// cut into shards for the workers of a gang, with an exact position: after a
// restart no sample of an epoch is lost or read twice, on any number of
// workers.
//
//   gavel::DataLoader loader(Digits(path), options);
//   for (auto& batch : gavel::Iterator(*session, loader)) { ... }
//
// With global_batch_size, a step is as many samples on any number of workers:
// each reads its part in micro-batches, and only the last of them is the step's
// end (gavel/data_parallel.h shows the loop). The steps of an epoch, and the
// samples in each, are then the same however many workers there are.
//
// The dataset has get(size_t) and size(), as torch::data datasets; get depends
// on the index only. Tensors are stacked, samples with .data and .target become
// one with stacked tensors, anything else a std::vector. One begin() is one
// epoch, or the rest of one. One thread. A gavel::Iterator over it sets its
// shard.
#ifndef GAVEL_DATA_LOADER_H_
#define GAVEL_DATA_LOADER_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gavel/internal/collate.h"
#include "gavel/status.h"

namespace gavel {

struct DataLoaderOptions {
  int64_t batch_size = 1;  // per worker; with a global one: at most
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  // leave out a last step with less than full batches
  int64_t global_batch_size = 0;  // of all workers together; 0: not fixed
};

// The order alone: which samples a worker reads in each step. A position is
// (epoch, index of the next sample in the epoch's order), the same on all
// workers. In a step each reads its part of the next batch_size x world_size
// samples; fewer than world_size left over join the last step, so that none is
// empty (but when workers were added while fewer samples than workers are
// left). With a global batch size, less than half of one joins the last step,
// more is a step of its own.
class GAVEL_EXPORT ShardedOrder {
 public:
  ShardedOrder(int64_t sample_count, DataLoaderOptions options);

  // Fills the next step's samples of this worker; false at the epoch's end,
  // and then the position is the next epoch's begin.
  bool Next(std::vector<size_t>* samples);
  // False: a step has fewer samples than there would be workers.
  bool SetShard(int rank, int world_size);
  // How many of the samples from `from` on are the next micro-batch.
  size_t MicroBatch(size_t from, size_t sample_count) const;
  // What a mean over so many samples counts in the mean over the last step,
  // times the number of workers (whose gradients are averaged). 1 when all
  // workers read as many, and in one piece.
  double LossScale(size_t sample_count) const;
  int64_t epoch() const { return epoch_; }
  int64_t global_batch_size() const { return options_.global_batch_size; }
  int64_t next_index() const { return next_index_; }
  // Of one epoch, with the present number of workers.
  int64_t StepsPerEpoch() const;
  std::string SavePosition() const;
  // False, and nothing changes: of other data, seed or order, or no position.
  bool LoadPosition(const std::string& position);

 private:
  int64_t StepSize(int64_t from) const;
  void Permute();

  int64_t sample_count_;
  DataLoaderOptions options_;
  int rank_ = 0;
  int world_size_ = 1;
  int64_t epoch_ = 0;
  int64_t next_index_ = 0;
  int64_t step_size_ = 1;  // of the last step
  int64_t permuted_epoch_ = -1;
  std::vector<size_t> permutation_;
};

template <class Dataset>
class DataLoader {
 public:
  using Sample = std::decay_t<decltype(std::declval<Dataset&>().get(size_t{}))>;
  using Batch = decltype(internal::Collate(std::vector<Sample>()));
  struct End {};
  class Cursor {
   public:
    explicit Cursor(DataLoader* owner) : owner_(owner) {}
    Batch operator*() const { return owner_->Read(); }
    Cursor& operator++() { return owner_->Advance(), *this; }
    bool operator!=(End) const { return !owner_->share_.empty(); }

   private:
    DataLoader* owner_;
  };

  explicit DataLoader(Dataset dataset, DataLoaderOptions options = {})
      : dataset_(std::move(dataset)),
        order_(internal::SampleCountOf(dataset_.size()), options) {}

  Cursor begin() {
    share_.clear();  // the rest of a step that was left by `break`
    from_ = to_ = 0;
    return Advance(), Cursor(this);
  }
  End end() { return {}; }
  int64_t epoch() const { return order_.epoch(); }
  int64_t global_batch_size() const { return order_.global_batch_size(); }
  int64_t steps_per_epoch() const { return order_.StepsPerEpoch(); }
  bool SetShard(int rank, int world) { return order_.SetShard(rank, world); }
  // Of the present batch; see gavel::Session.
  bool last_micro_batch() const { return to_ == share_.size(); }
  double loss_scale() const { return order_.LossScale(to_ - from_); }
  std::string SavePosition() const { return order_.SavePosition(); }
  bool LoadPosition(const std::string& p) { return order_.LoadPosition(p); }

 private:
  void Advance() {
    from_ = to_;
    if (from_ == share_.size()) {
      from_ = 0;
      while (order_.Next(&share_) && share_.empty()) continue;
    }
    to_ = from_ + order_.MicroBatch(from_, share_.size());
  }
  Batch Read() {
    std::vector<Sample> read;
    read.reserve(to_ - from_);
    for (size_t i = from_; i < to_; ++i)
      read.push_back(dataset_.get(share_[i]));
    return internal::Collate(std::move(read));
  }

  Dataset dataset_;
  ShardedOrder order_;
  std::vector<size_t> share_;  // of the step, for this worker
  size_t from_ = 0;            // the micro-batch in it
  size_t to_ = 0;
};

}  // namespace gavel

#endif  // GAVEL_DATA_LOADER_H_
