// Moves the tensors of a job to another device in place: every handle that the
// user, the optimizer or autograd holds stays valid and sees the tensor at its
// new place. Called by the iterator at a boundary, when no step runs and no
// graph of an earlier step is kept.
//
// Not thread-safe. Every function returns RESOURCE_EXHAUSTED when the device is
// out of memory, INTERNAL with LibTorch's message for other failures.
#ifndef GAVEL_RUNTIME_DEVICE_DEVICE_MOVE_H_
#define GAVEL_RUNTIME_DEVICE_DEVICE_MOVE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/host_memory.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace gavel {

// Many copies between one accelerator and host memory, as few large ones: small
// tensors whose bytes are neighbours in host memory go together, through a
// buffer on the device. All are queued on the current stream, and waited for
// once. Memory that is not pinned is copied through the pinned pieces of an
// Arena, by several threads behind them. Called by who stages, parks and moves
// the state of a job.
//
// Not thread-safe. Throws as LibTorch does.
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

// "cpu", or KIND:N with KIND "cuda", "xpu" or "hpu". INVALID_ARGUMENT: anything
// else. FAILED_PRECONDITION: there is no such device; the message says why.
absl::StatusOr<c10::Device> ParseDevice(std::string_view text);

// The device on which a process without a lease trains: "KIND:N" of the first
// kind that it sees, else "cpu".
std::string DefaultDevice(int local_rank);

// Begins to use `device`: it is the current one of this thread from now on.
// UNAVAILABLE: it is in exclusive-process mode, and another process uses it.
absl::Status ChooseDevice(c10::Device device);

enum class MoveCopy {
  kIfNeeded,  // a tensor that is on the device already keeps its memory
  kAlways,    // gets new memory there: what a real move costs on a CPU
};

// Moves tensors, and their gradients; all or nothing, also when memory runs
// out. Tensors that share memory share it afterwards, too. Undefined ones are
// skipped. `arena`, if not null, gives the memory for what leaves for the host,
// and the pinned pieces for what does not lie in pinned memory (DeviceCopies).
absl::Status MoveTensors(const std::vector<at::Tensor>& tensors,
                         c10::Device device,
                         MoveCopy copy = MoveCopy::kIfNeeded,
                         Arena* arena = nullptr);

// Handles to the parameters and buffers of `module` and of its submodules.
std::vector<at::Tensor> ModuleTensors(const torch::nn::Module& module);

// Moves parameters, buffers and gradients of `module` and of its submodules.
// Then calls module.to(device), so that modules which override it (LSTM: one
// block for cuDNN) can follow.
absl::Status MoveModule(torch::nn::Module& module, c10::Device device);

// Waits until all work given to `device` is done; errors of earlier
// asynchronous work show up here.
absl::Status Synchronize(c10::Device device);

// Waits for the device, and gives the allocator's unused memory there, and what
// libraries keep for their work, back to the driver. Nothing to do on a CPU.
absl::Status ReleaseMemory(c10::Device device);

struct DeviceMemory {
  uint64_t free_bytes = 0;   // for any process
  uint64_t total_bytes = 0;  // of the device
};
// Zeros on a CPU, or where the device can't tell.
DeviceMemory ReadDeviceMemory(c10::Device device);

// Checks that the device works: some bytes are written there and read back. OK
// when only its memory is full. Nothing to do on a CPU.
absl::Status CheckDevice(c10::Device device);

// The most that this process may hold on `device`, in bytes without its
// context; beyond it, allocations fail as they do when the device is full.
// 0: all of it. Nothing to do on a CPU.
absl::Status LimitMemory(c10::Device device, uint64_t bytes);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_DEVICE_MOVE_H_
