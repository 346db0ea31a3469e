// What one kind of accelerators has beyond LibTorch's generic interface
// (streams, allocator, memory): an implementation per kind, in a component of
// its own, which registers itself where it is linked (runtime/cuda). A kind
// without one has the defaults.
//
// Called by device_move.h, process_group.h and tensor_hash.h, which say what
// each function is for. Functions throw as LibTorch does; any thread.
#ifndef GAVEL_RUNTIME_DEVICE_DEVICE_BACKEND_H_
#define GAVEL_RUNTIME_DEVICE_DEVICE_BACKEND_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
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

struct ProcessGroupOptions;

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  // Why LibTorch may see no device of this kind, and what to do.
  virtual std::string WhyNone() const;
  // Gives back what libraries keep on the device beside LibTorch's allocator.
  virtual void ReleaseWorkspaces(c10::Device device) const;
  // 0: no limit. Default: there is none for this kind.
  virtual void LimitMemory(c10::Device device, uint64_t bytes) const;
  // Null: gangs on this kind are not possible in this build. Returns when all
  // ranks are there, or throws after options.timeout_s.
  virtual c10::intrusive_ptr<c10d::Backend> MakeCollectives(
      const c10::intrusive_ptr<c10d::Store>& store,
      const ProcessGroupOptions& options) const;
  // Makes copies between `data` and devices of this kind run beside the host.
  // False: not possible.
  virtual bool PinMemory(void* data, uint64_t size_bytes) const;
  virtual void UnpinMemory(void* data) const;
  // HashBytes() of each of `tensors`, which are dense, aligned to words and all
  // on `device`. nullopt: this build can't.
  virtual std::optional<std::vector<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors, c10::Device device) const;
};

// Never null.
const DeviceBackend& BackendOf(c10::DeviceType type);

// Why a program sees no GPU. Versions as CUDA tells them, 13000 for 13.0:
// `driver` what the driver is for (0: there is none), `needed` what LibTorch
// was built with.
std::string WhyNoGpu(int driver, int needed);

// Before main(): `static const BackendIsRegistered kRegistered(type, backend);`
struct BackendIsRegistered {
  BackendIsRegistered(c10::DeviceType type,
                      std::unique_ptr<DeviceBackend> backend);
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_DEVICE_BACKEND_H_
