// A hash of tensors that an accelerator computes in place, about as fast as it
// reads them. A tensor with the same hash as at the last checkpoint need not be
// copied to the host again. Called by the iterator for the checkpoint's copy.
//
// The hash has 64 bits and is not cryptographic: two different states of a
// tensor have the same hash with a probability of 2^-64. It depends only on the
// bytes and their number, and is the same on every device.
#ifndef GAVEL_RUNTIME_DEVICE_TENSOR_HASH_H_
#define GAVEL_RUNTIME_DEVICE_TENSOR_HASH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace gavel {

// Returns the hash of bytes in host memory. Thread-safe.
uint64_t HashBytes(const void* data, uint64_t size_bytes);

// Not thread-safe.
class TensorHasher {
 public:
  // Returns the hash of each of `tensors`, after the work already queued on the
  // current streams of their devices. nullopt for a tensor that is undefined,
  // in host memory, not contiguous, a negated or conjugated view, empty or not
  // aligned to words. All tensors of a device are nullopt if this build has no
  // kernel for it, if the device's hash of a sample was not the host's, or if
  // hashing failed.
  std::vector<std::optional<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors);

 private:
  struct DeviceOrder {
    bool operator()(c10::Device a, c10::Device b) const {
      return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
    }
  };
  // A faulty kernel could report a changed tensor as unchanged. Each device is
  // therefore tested once: its hash of a sample must be the host's.
  bool IsTrusted(c10::Device device);

  std::map<c10::Device, bool, DeviceOrder> trusted_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_TENSOR_HASH_H_
