// The traits of a range of batches, by the functions that it has, and its
// position as the session sees it. Part of gavel/iterator.h, whose comment says
// how ranges are treated.
#ifndef GAVEL_INTERNAL_RANGE_POSITION_H_
#define GAVEL_INTERNAL_RANGE_POSITION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "gavel/data_options.h"
#include "gavel/internal/placement.h"
#include "gavel/status.h"

namespace torch::data {
template <typename Dataset, typename Sampler>
class StatelessDataLoader;
namespace samplers {
class DistributedRandomSampler;
class DistributedSequentialSampler;
class RandomSampler;
class SequentialSampler;
class StreamSampler;
}  // namespace samplers
}  // namespace torch::data

namespace gavel::internal {

template <class R, class = void>
struct IsPositioned : std::false_type {};
template <class R>
struct IsPositioned<
    R, std::void_t<decltype(std::declval<const R&>().SavePosition()),
                   decltype(std::declval<R&>().LoadPosition(std::string()))>>
    : std::true_type {};

template <class R, class = void>
struct IsSharded : std::false_type {};
template <class R>
struct IsSharded<R, std::void_t<decltype(std::declval<R&>().SetShard(0, 1))>>
    : std::true_type {};

template <class R, class = void>
struct HasMicroBatches : std::false_type {};
template <class R>
struct HasMicroBatches<
    R, std::void_t<decltype(std::declval<const R&>().last_micro_batch()),
                   decltype(std::declval<const R&>().loss_scale())>>
    : std::true_type {};

template <class R, class = void>
struct HasGlobalBatch : std::false_type {};
template <class R>
struct HasGlobalBatch<
    R, std::void_t<decltype(std::declval<const R&>().global_batch_size())>>
    : std::true_type {};

template <class R, class = void>
struct IsAccumulated : std::false_type {};
template <class R>
struct IsAccumulated<
    R, std::enable_if_t<std::is_same_v<
           bool, decltype(std::declval<R&>().SetAccumulation(int64_t{}))>>>
    : std::true_type {};

template <class R, class = void>
struct CountsSteps : std::false_type {};
template <class R>
struct CountsSteps<
    R, std::void_t<decltype(std::declval<const R&>().steps_per_epoch()),
                   decltype(std::declval<const R&>().steps_left())>>
    : std::true_type {};

template <class R, class = void>
struct IsPlaced : std::false_type {};
template <class R>
struct IsPlaced<R, std::void_t<decltype(std::declval<R&>().SetDevice(
                       std::declval<at::Device>()))>> : std::true_type {};

// torch::data::DataLoaderBase, which this header does not include.
template <class R, class = void>
struct IsTorchDataLoader : std::false_type {};
template <class R>
struct IsTorchDataLoader<
    R, std::void_t<typename R::BatchRequestType, typename R::BatchType,
                   decltype(std::declval<R&>().options())>> : std::true_type {};

// Loaders of torch::data whose order is LibTorch's own: a function of its
// generator when the loop is begun, or of nothing.
template <class Sampler>
struct IsTorchSampler : std::false_type {};
template <>
struct IsTorchSampler<torch::data::samplers::RandomSampler> : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::SequentialSampler>
    : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::StreamSampler> : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::DistributedRandomSampler>
    : std::true_type {};
template <>
struct IsTorchSampler<torch::data::samplers::DistributedSequentialSampler>
    : std::true_type {};
template <class Dataset, class Sampler>
IsTorchSampler<Sampler> OrderOf(
    const torch::data::StatelessDataLoader<Dataset, Sampler>*);
std::false_type OrderOf(const void*);
template <class R>
using HasTorchOrder = decltype(OrderOf(static_cast<const R*>(nullptr)));

template <class R, class = void>
struct HasSteps : std::false_type {};
template <class R>
struct HasSteps<R, std::void_t<decltype(std::declval<const R&>().has_step())>>
    : std::true_type {};

template <class R, class = void>
struct IsNumbered : std::false_type {};
template <class R>
struct IsNumbered<
    R, std::void_t<decltype(std::declval<const R&>().loader_number()),
                   decltype(std::declval<R&>().RestartEpoch(std::string()))>>
    : std::true_type {};

// torch::data's iterators give a reference to a batch that is used once.
template <class R, class Inner>
decltype(auto) TakeBatch(Inner& inner) {
  if constexpr (IsTorchDataLoader<R>::value) {
    return std::move(*inner);
  } else {
    return *inner;
  }
}

}  // namespace gavel::internal

namespace gavel {

namespace internal {

// A range of batches as the session sees it.
class GAVEL_EXPORT RangePosition {
 public:
  enum class Kind { kPositioned, kForwarded, kRestarted };
  virtual ~RangePosition();
  virtual Kind kind() const = 0;
  virtual std::string Save() const = 0;
  // False: a position of other data.
  virtual bool Load(const std::string& position) = 0;
  // Moves a gavel::DataLoader to the begin of the epoch of this position.
  virtual void RestartEpoch(const std::string& position) = 0;
  // See LoaderPosition; -1: not a gavel::DataLoader.
  virtual int loader_number() const = 0;
  // Where the program has it; null: made for one loop.
  virtual const void* address() const = 0;
  // Why a forwarded range would not be the same after a restart; empty: none.
  virtual std::string WhyNotForwarded() const = 0;
  // False: not one step can be read.
  virtual bool HasStep() const = 0;
  // False: the range can't be read by so many workers.
  virtual bool SetShard(int rank, int world_size) = 0;
  // Its steps are the same however many workers read them.
  virtual bool FitsAnyWorldSize() const = 0;
  // These two describe the present batch; see Session::last_micro_batch() and
  // loss_scale().
  virtual bool EndsStep() const = 0;
  virtual double LossScale() const = 0;
  // Makes so many batches one step. False: the range can't.
  virtual bool SetAccumulation(int64_t batches) = 0;
  // All steps, and those from the present position on; 0: it does not tell.
  virtual int64_t StepsPerEpoch() const = 0;
  virtual int64_t StepsLeft() const = 0;
};

// Throws std::out_of_range, unless `has_batch`: a range that is forwarded has
// ended before its `batch`-th batch, which was trained on before the restart.
GAVEL_EXPORT void CheckLength(bool has_batch, int64_t batch);

// Moves `inner` from the begin of a range to its `count`-th batch, `count` > 0.
// The fingerprint of the first one.
template <class Inner, class Sentinel>
uint64_t SkipTo(int64_t count, Inner& inner, const Sentinel& end) {
  CheckLength(inner != end, 1);
  const uint64_t fingerprint = FingerprintOf(*inner);
  for (int64_t batch = 2; batch <= count; ++batch) {
    ++inner;
    CheckLength(inner != end, batch);
  }
  return fingerprint;
}

// The owner of the batch that was handed out, which moves with a pause inside a
// step. May throw what LibTorch throws.
class GAVEL_EXPORT BatchOwner {
 public:
  BatchOwner() = default;
  BatchOwner(const BatchOwner&) = delete;
  BatchOwner& operator=(const BatchOwner&) = delete;
  virtual ~BatchOwner();
  virtual void PlaceBatch(at::Device device) = 0;
};

// How a loop begins: `skip` batches are taken and dropped, or all of them were
// trained on before.
struct LoopPlan {
  bool run = false;
  int64_t skip = 0;
  bool ended = false;
};

template <class Range>  // see gavel::Iterator
class PositionOf final : public RangePosition {
  using R = std::remove_reference_t<Range>;

 public:
  PositionOf(R& range, Resume resume) : range_(range), resume_(resume) {}
  Kind kind() const override {
    if (resume_ == Resume::kRestart) return Kind::kRestarted;
    if (resume_ == Resume::kForward) return Kind::kForwarded;
    return IsPositioned<R>::value ? Kind::kPositioned : Kind::kForwarded;
  }
  std::string Save() const override {
    if constexpr (IsPositioned<R>::value) return range_.SavePosition();
    return {};
  }
  bool Load([[maybe_unused]] const std::string& position) override {
    if constexpr (IsPositioned<R>::value) return range_.LoadPosition(position);
    return false;
  }
  void RestartEpoch([[maybe_unused]] const std::string& position) override {
    if constexpr (IsNumbered<R>::value) range_.RestartEpoch(position);
  }
  int loader_number() const override {
    if constexpr (IsNumbered<R>::value) return range_.loader_number();
    return -1;
  }
  const void* address() const override {
    return std::is_lvalue_reference_v<Range> ? &range_ : nullptr;
  }
  std::string WhyNotForwarded() const override {
    if constexpr (IsTorchDataLoader<R>::value) {
      if (range_.options().workers > 1 && !range_.options().enforce_ordering) {
        return "its workers give batches in any order; set "
               "enforce_ordering(true)";
      }
      if (resume_ == Resume::kAuto && !HasTorchOrder<R>::value) {
        return "its sampler, or its stateful dataset, is the program's own; "
               "use gavel::DataLoader, or pass gavel::Resume::kForward if its "
               "order is drawn from LibTorch's generator when the loop begins";
      }
    }
    return {};
  }
  bool HasStep() const override {
    if constexpr (HasSteps<R>::value) return range_.has_step();
    return true;
  }
  bool IsForwarded() const { return kind() == Kind::kForwarded; }
  bool SetShard([[maybe_unused]] int rank,
                [[maybe_unused]] int world) override {
    if constexpr (IsSharded<R>::value) {
      if constexpr (std::is_same_v<decltype(range_.SetShard(rank, world)),
                                   bool>) {
        return range_.SetShard(rank, world);
      } else {
        range_.SetShard(rank, world);
      }
    }
    return true;
  }
  bool FitsAnyWorldSize() const override {
    bool fits = IsSharded<R>::value;
    if constexpr (HasGlobalBatch<R>::value) {
      fits = range_.global_batch_size() > 0;
    }
    return fits && kind() == Kind::kPositioned;
  }
  bool EndsStep() const override {
    if constexpr (HasMicroBatches<R>::value) return range_.last_micro_batch();
    return true;
  }
  double LossScale() const override {
    if constexpr (HasMicroBatches<R>::value) return range_.loss_scale();
    return 1;
  }
  bool SetAccumulation(int64_t batches) override {
    if constexpr (IsAccumulated<R>::value) {
      return range_.SetAccumulation(batches);
    }
    return batches == 1;
  }
  int64_t StepsPerEpoch() const override {
    if constexpr (CountsSteps<R>::value) return range_.steps_per_epoch();
    return 0;
  }
  int64_t StepsLeft() const override {
    if constexpr (CountsSteps<R>::value) return range_.steps_left();
    return 0;
  }
  // Batches that the range has on another device for the next steps leave it.
  void SetDevice([[maybe_unused]] at::Device device) {
    if constexpr (IsPlaced<R>::value) range_.SetDevice(device);
  }

 private:
  R& range_;
  Resume resume_;
};

}  // namespace internal

}  // namespace gavel

#endif  // GAVEL_INTERNAL_RANGE_POSITION_H_
