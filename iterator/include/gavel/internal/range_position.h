// What the session needs to know of a range of batches. Part of
// gavel/iterator.h, whose comment says how ranges are treated.
#ifndef GAVEL_INTERNAL_RANGE_POSITION_H_
#define GAVEL_INTERNAL_RANGE_POSITION_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "gavel/status.h"

namespace gavel {

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
  virtual void SetShard(int rank, int world_size) = 0;
};

// How a loop begins: `skip` batches are taken and dropped.
struct LoopPlan {
  bool run = false;
  int64_t skip = 0;
};

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

// torch::data::DataLoaderBase, which this header does not include.
template <class R, class = void>
struct IsTorchDataLoader : std::false_type {};
template <class R>
struct IsTorchDataLoader<
    R, std::void_t<typename R::BatchRequestType, typename R::BatchType,
                   decltype(std::declval<R&>().options())>> : std::true_type {};

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
  void SetShard([[maybe_unused]] int rank,
                [[maybe_unused]] int world) override {
    if constexpr (IsSharded<R>::value) range_.SetShard(rank, world);
  }

 private:
  R& range_;
  Resume resume_;
};

}  // namespace internal

}  // namespace gavel

#endif  // GAVEL_INTERNAL_RANGE_POSITION_H_
