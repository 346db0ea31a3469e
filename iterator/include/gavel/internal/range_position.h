// What the session needs to know of a range of batches. Part of
// gavel/iterator.h, whose comment says how ranges are treated.
#ifndef GAVEL_INTERNAL_RANGE_POSITION_H_
#define GAVEL_INTERNAL_RANGE_POSITION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "gavel/internal/range_traits.h"
#include "gavel/status.h"

namespace gavel {

// After a restart in the middle of a loop, by default:
// - a range with SavePosition() and LoadPosition() (gavel::DataLoader) goes on
//   exactly where it was;
// - a torch::data DataLoader is begun with the random state of the loop's begin
//   and forwarded (exact when its order comes from LibTorch's generator);
// - anything else begins again from its first batch, and the log says so.
//   gavel::Iterator(*session, range, gavel::Resume::kForward) forwards it, too.
enum class Resume { kAuto, kForward, kRestart };

namespace internal {

// What the session needs to know of a range.
class GAVEL_EXPORT RangePosition {
 public:
  enum class Kind { kPositioned, kForwarded, kRestarted };
  virtual ~RangePosition();
  virtual Kind kind() const = 0;
  virtual std::string Save() const = 0;
  virtual bool Load(const std::string& position) = 0;
  // False: the range can't be read by so many workers.
  virtual bool SetShard(int rank, int world_size) = 0;
  // Its steps are the same however many workers read them.
  virtual bool FitsAnyWorldSize() const = 0;
  // Of the present batch; see Session::last_micro_batch() and loss_scale().
  virtual bool EndsStep() const = 0;
  virtual double LossScale() const = 0;
};

// Who holds the batch that was handed out, which moves with a pause inside a
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

template <class R>
class PositionOf final : public RangePosition {
 public:
  PositionOf(R& range, Resume resume) : range_(range), resume_(resume) {}
  Kind kind() const override {
    if (resume_ == Resume::kRestart) return Kind::kRestarted;
    if (resume_ == Resume::kForward) return Kind::kForwarded;
    if (IsPositioned<R>::value) return Kind::kPositioned;
    return IsTorchDataLoader<R>::value ? Kind::kForwarded : Kind::kRestarted;
  }
  std::string Save() const override {
    if constexpr (IsPositioned<R>::value) return range_.SavePosition();
    return {};
  }
  bool Load([[maybe_unused]] const std::string& position) override {
    if constexpr (IsPositioned<R>::value) return range_.LoadPosition(position);
    return false;
  }
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
  // What the range has on another device for the next steps leaves it.
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
