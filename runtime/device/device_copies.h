// Many copies between one accelerator and host memory, as few large ones: small
// tensors whose bytes are neighbours in host memory go together, through a
// buffer on the device. All are queued on the current stream, and waited for
// once. Memory that is not pinned is copied through the pinned pieces of an
// Arena, by several threads behind them. Called by who stages, parks and moves
// the state of a job.
//
// Not thread-safe. Throws as LibTorch does.
#ifndef GAVEL_RUNTIME_DEVICE_DEVICE_COPIES_H_
#define GAVEL_RUNTIME_DEVICE_DEVICE_COPIES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "runtime/device/arena.h"

namespace gavel {

class DeviceCopies {
 public:
  // Smaller tensors are grouped.
  static constexpr uint64_t kGroupedBytesMax = uint64_t{1} << 20;
  // A group has at most this size, and so has the buffer on the device. Where
  // the device has no room for the buffer, each tensor is copied for itself.
  static constexpr uint64_t kGroupBytesMax = uint64_t{32} << 20;

  enum class Direction : uint8_t { kToHost, kFromHost };

  // `arena` is borrowed; null: without pieces, so that memory which is not
  // pinned is copied as LibTorch does. Pinning is allowed from here on.
  DeviceCopies(c10::Device device, Direction direction, Arena* arena);

  // The bytes of `on_device`, which is strided and dense in any order of its
  // dimensions, are to be copied to or from `host`.
  void Add(const at::Tensor& on_device, char* host);
  // Until all is copied. None is left to copy then.
  void Run();

  c10::Device device() const { return device_; }

 private:
  struct Entry {
    at::Tensor bytes;  // of the tensor on the device, as one row
    char* host;
  };
  class Pieces;

  size_t GroupFrom(size_t begin) const;
  void CopyGroup(size_t begin, size_t end, Pieces& pieces);
  void CopyRow(const at::Tensor& bytes, char* host, Pieces& pieces);
  at::Tensor MakeBuffer() const;

  const c10::Device device_;
  const Direction direction_;
  Arena* const arena_;
  std::vector<Entry> entries_;
  at::Tensor buffer_;  // on the device, while it runs; may be undefined
};

// Copies in pinned memory run beside the host. `type`: of the device that is in
// use.
Pinning PinningOf(c10::DeviceType type);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_DEVICE_COPIES_H_
