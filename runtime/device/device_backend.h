// The kinds of accelerators: how many LibTorch shows this process, and what its
// generic interface lacks.
#ifndef GAVEL_RUNTIME_DEVICE_DEVICE_BACKEND_H_
#define GAVEL_RUNTIME_DEVICE_DEVICE_BACKEND_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace gavel {

// The functions of one kind of accelerator that LibTorch's generic interface
// (streams, allocator, memory) lacks. Each kind has its implementation in a
// component of its own, which registers itself if it is linked (runtime/cuda).
// A kind without an implementation uses the defaults.
//
// Called by device_move.cc, process_group.cc and tensor_hash.cc; their headers
// say what each function is for. Functions throw as LibTorch does. They may be
// called from any thread.

struct ProcessGroupOptions;

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // Why LibTorch may see no device of this kind, and what to do.
  virtual std::string WhyNone() const;
  // Frees the memory that libraries keep on the device outside LibTorch's
  // allocator.
  virtual void ReleaseWorkspaces(c10::Device device) const;
  // Limits the memory that LibTorch may allocate on the device for this
  // process; 0: no limit. The default does nothing.
  virtual void LimitMemory(c10::Device device, uint64_t bytes) const;
  // Returns when all ranks have joined, or throws after options.timeout_s.
  // Returns null if this build does not support gangs on this kind.
  virtual c10::intrusive_ptr<c10d::Backend> MakeCollectives(
      const c10::intrusive_ptr<c10d::Store>& store,
      const ProcessGroupOptions& options) const;
  // Pins `data`, so that copies between it and devices of this kind run
  // asynchronously to the host. Returns false if that is not possible.
  virtual bool PinMemory(void* data, uint64_t size_bytes) const;
  virtual void UnpinMemory(void* data) const;
  // Returns HashBytes() of each of `tensors`, which are dense, aligned to words
  // and all on `device`; nullopt if this build can't compute it.
  virtual std::optional<std::vector<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors, c10::Device device) const;
};

// Returns the defaults for a kind without an implementation.
const DeviceBackend& BackendOf(c10::DeviceType type);

// Returns why a program sees no GPU. `driver` is the CUDA version that the
// driver supports (0: there is no driver), `needed` the one that LibTorch was
// built with. Both are in CUDA's form, 13000 for 13.0.
std::string WhyNoGpu(int driver, int needed);

// Registers a backend before main(): `static const BackendIsRegistered
// kRegistered(type, backend);`
struct BackendIsRegistered {
  BackendIsRegistered(c10::DeviceType type,
                      std::unique_ptr<DeviceBackend> backend);
};

// How many of this kind the process sees; 0 also where LibTorch has no support
// for it. Does not begin to use any.
inline int CountDevices(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type)
             ? c10::impl::getDeviceGuardImpl(type)->deviceCount()
             : 0;
}

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_DEVICE_BACKEND_H_
