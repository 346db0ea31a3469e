// Batches of a dataset in an order that is a function of (seed, epoch) alone,
// cut into shards for the workers of a gang, with an exact position: after a
// restart no sample of an epoch is lost or read twice, on any number of
// workers.
//
//   gavel::DataLoader loader(Digits(path), options);
//   for (auto& batch : gavel::Iterator(*session, loader)) { ... }
//
// The dataset has get(size_t) and size(), as torch::data datasets; get depends
// on the index only. Tensors are stacked, samples with .data and .target become
// one with stacked tensors, anything else a std::vector. One begin() is one
// epoch, or the rest of one. One thread. A gavel::Iterator over it sets its
// shard.
#ifndef GAVEL_DATA_LOADER_H_
#define GAVEL_DATA_LOADER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gavel/internal/placement.h"
#include "gavel/status.h"

namespace gavel {

struct DataLoaderOptions {
  int64_t batch_size = 1;  // per worker
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  // leave out a last step with less than full batches
};

// The order alone: which samples a worker reads in each step. A position is
// (epoch, index of the next sample in the epoch's order), the same on all
// workers. In a step each reads its part of the next batch_size x world_size
// samples; fewer than world_size left over join the last step, so that none is
// empty (but when workers were added while fewer samples than workers are
// left).
class GAVEL_EXPORT ShardedOrder {
 public:
  ShardedOrder(int64_t sample_count, DataLoaderOptions options);

  // Fills the next step's samples of this worker; false at the epoch's end,
  // and then the position is the next epoch's begin.
  bool Next(std::vector<size_t>* samples);
  void SetShard(int rank, int world_size);
  int64_t epoch() const { return epoch_; }
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
  int64_t permuted_epoch_ = -1;
  std::vector<size_t> permutation_;
};

namespace internal {
GAVEL_EXPORT at::Tensor StackTensors(const std::vector<at::Tensor>& parts);

inline int64_t SampleCountOf(size_t size) { return static_cast<int64_t>(size); }
// std::optional, c10::optional: as torch::data datasets have.
template <class Optional>
int64_t SampleCountOf(const Optional& size) {
  return size.has_value() ? static_cast<int64_t>(*size) : 0;
}

template <class Sample>
auto Collate(std::vector<Sample> samples) {
  if constexpr (std::is_base_of_v<at::Tensor, Sample>) {
    return StackTensors(samples);
  } else if constexpr (HoldsTensors<Sample>() && HasData<Sample>::value) {
    Sample batch;
    std::vector<at::Tensor> parts;
    for (Sample& sample : samples) parts.push_back(std::move(sample.data));
    batch.data = StackTensors(parts);
    if constexpr (HasTarget<Sample>::value) {
      parts.clear();
      for (Sample& sample : samples) parts.push_back(std::move(sample.target));
      batch.target = StackTensors(parts);
    }
    return batch;
  } else {
    return samples;
  }
}
}  // namespace internal

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
    bool operator!=(End) const { return !owner_->samples_.empty(); }

   private:
    DataLoader* owner_;
  };

  explicit DataLoader(Dataset dataset, DataLoaderOptions options = {})
      : dataset_(std::move(dataset)),
        order_(internal::SampleCountOf(dataset_.size()), options) {}

  Cursor begin() { return Advance(), Cursor(this); }
  End end() { return {}; }
  int64_t epoch() const { return order_.epoch(); }
  int64_t steps_per_epoch() const { return order_.StepsPerEpoch(); }
  void SetShard(int rank, int world_size) { order_.SetShard(rank, world_size); }
  std::string SavePosition() const { return order_.SavePosition(); }
  bool LoadPosition(const std::string& p) { return order_.LoadPosition(p); }

 private:
  void Advance() {
    while (order_.Next(&samples_) && samples_.empty()) continue;
  }
  Batch Read() {
    std::vector<Sample> read;
    read.reserve(samples_.size());
    for (const size_t sample : samples_) read.push_back(dataset_.get(sample));
    return internal::Collate(std::move(read));
  }

  Dataset dataset_;
  ShardedOrder order_;
  std::vector<size_t> samples_;
};

}  // namespace gavel

#endif  // GAVEL_DATA_LOADER_H_
