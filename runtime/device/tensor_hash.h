// A hash of tensors that an accelerator computes where they are, about as fast
// as it reads them: a tensor with the same hash as at the last checkpoint need
// not be copied to the host again. Called by the iterator, for the checkpoint's
// copy.
//
// 64 bits, not cryptographic: two states of a tensor that differ have the same
// hash with a probability of 2^-64. A function of the bytes and their number
// alone, the same on every device.
#ifndef GAVEL_RUNTIME_DEVICE_TENSOR_HASH_H_
#define GAVEL_RUNTIME_DEVICE_TENSOR_HASH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace gavel {

// Of bytes in host memory. Thread-safe.
uint64_t HashBytes(const void* data, uint64_t size_bytes);

// Not thread-safe.
class TensorHasher {
 public:
  // Of each of `tensors`, when all that was begun on their devices is done.
  // nullopt: in host memory, not contiguous, empty or not aligned to words;
  // all, when this build has no kernel, or a device's hash of a sample was not
  // the host's.
  std::vector<std::optional<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors);

 private:
  struct DeviceOrder {
    bool operator()(c10::Device a, c10::Device b) const {
      return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
    }
  };
  // A kernel that does not do what it should must never be believed that
  // nothing has changed: each device shows once that it does.
  bool IsTrusted(c10::Device device);

  std::map<c10::Device, bool, DeviceOrder> trusted_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_TENSOR_HASH_H_
