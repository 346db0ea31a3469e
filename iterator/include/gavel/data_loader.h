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
// on the index only, or, for random crops and the like, as get(size_t, int64_t)
// on the index and the epoch. Tensors are stacked, samples with .data and
// .target become one with stacked tensors, anything else a std::vector. One
// begin() is one epoch, or the rest of one. A gavel::Iterator over it sets its
// shard.
//
// The epoch and the position of every loader that the training thread has made
// are part of the checkpoint, also those of a second one that is read without a
// gavel::Iterator. Make loaders in the same order whenever the program starts.
//
// One thread, that of the session. With reading_threads, these call get() at
// once and stack the samples, two steps ahead; order and position are the same
// as without. For an accelerator they do so in pinned memory, and the next
// batch is copied there while the device trains on the present one: one batch
// more of its memory.
#ifndef GAVEL_DATA_LOADER_H_
#define GAVEL_DATA_LOADER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gavel/data_options.h"
#include "gavel/internal/read_ahead.h"
#include "gavel/internal/sharded_order.h"

namespace gavel {

template <class Dataset>
class DataLoader : public internal::LoaderPosition {
 public:
  using Sample = typename internal::ReadAhead<Dataset>::Sample;
  using Batch = typename internal::ReadAhead<Dataset>::Batch;
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
      : reader_(std::move(dataset), options.reading_threads),
        order_(reader_.sample_count(), options) {
    TakeRestored();
  }

  Cursor begin() {
    if (IsUnread()) order_.Rewind();
    return Leave(), Advance(), Cursor(this);
  }
  End end() { return {}; }
  int64_t epoch() const { return order_.epoch(); }
  int64_t global_batch_size() const { return order_.global_batch_size(); }
  int64_t steps_per_epoch() const { return order_.StepsPerEpoch(); }
  int64_t steps_left() const { return order_.StepsLeft(); }
  bool SetShard(int rank, int world) {
    const bool is_same = rank == order_.rank() && world == order_.world_size();
    if (!is_same) reader_.Forget();
    return order_.SetShard(rank, world);
  }
  // Makes so many batches of each worker one step; see Session::Accumulate().
  // False: there is a global_batch_size, which says it already.
  bool SetAccumulation(int64_t batches) {
    if (batches == order_.accumulation()) return true;
    reader_.Forget();
    return order_.SetAccumulation(batches);
  }
  // Where batches of the reading threads come to be. A gavel::Iterator sets it.
  void SetDevice(at::Device device) { reader_.SetDevice(device); }
  // These two describe the present batch; see gavel::Session.
  bool last_micro_batch() const { return to_ == share_.size(); }
  double loss_scale() const { return order_.LossScale(to_ - from_); }
  // The position of the next step. A step that was begun, and whose batch the
  // program has not read yet, is done again.
  std::string SavePosition() const override {
    if (!IsUnread()) return order_.SavePosition();
    ShardedOrder order = order_;
    return order.Rewind(), order.SavePosition();
  }
  bool LoadPosition(const std::string& position) override {
    if (!order_.LoadPosition(position)) return false;
    return MoveTo(), true;
  }
  // Moves to the begin of the epoch that `position` is in.
  void RestartEpoch(const std::string& position) {
    order_.RestartEpoch(position);
    MoveTo();
  }
  bool has_step() const { return order_.HasStep(); }

 private:
  bool IsUnread() const { return !share_.empty() && !read_; }
  // Gives up the rest of the present step.
  void Leave() {
    share_.clear();
    from_ = to_ = 0;
  }
  // A cursor that stands in the data stands at the order's position then.
  void MoveTo() {
    reader_.Forget();
    if (share_.empty()) return;
    Leave();
    Advance();
  }
  void Advance() {
    from_ = to_;
    if (from_ == share_.size()) {
      from_ = 0;
      reader_.Ask(order_);
      while (order_.Next(&share_) && share_.empty()) continue;
      read_ = false;
    } else {
      read_ = true;  // the step goes on behind its first micro-batch
    }
    to_ = from_ + order_.MicroBatch(from_, share_.size());
  }
  Batch Read() {
    read_ = true;
    return reader_.Take({{share_.begin() + static_cast<std::ptrdiff_t>(from_),
                          share_.begin() + static_cast<std::ptrdiff_t>(to_)},
                         order_.epoch()});
  }

  internal::ReadAhead<Dataset> reader_;
  ShardedOrder order_;
  std::vector<size_t> share_;  // of the step, for this worker
  size_t from_ = 0;            // the micro-batch in it
  size_t to_ = 0;
  bool read_ = false;  // a micro-batch of the share was read
};

}  // namespace gavel

#endif  // GAVEL_DATA_LOADER_H_
