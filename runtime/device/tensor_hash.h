// A hash of tensors that a GPU computes where they are, about as fast as it
// reads them: a tensor with the same hash as at the last checkpoint need not be
// copied to the host again. Called by the iterator, for the checkpoint's copy.
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
#include <vector>

namespace gavel {

// Of bytes in host memory. Thread-safe.
uint64_t HashBytes(const void* data, uint64_t size_bytes);

// Not thread-safe.
class TensorHasher {
 public:
  // Of each of `tensors`, when all that was begun on their devices is done.
  // nullopt: in host memory, not contiguous, empty or not aligned to words;
  // all, when this build has no kernel, or a GPU's hash of a sample was not the
  // host's.
  std::vector<std::optional<uint64_t>> Hash(
      const std::vector<at::Tensor>& tensors);

 private:
  // A kernel that does not do what it should must never be believed that
  // nothing has changed: each GPU shows once that it does.
  bool IsTrusted(c10::DeviceIndex gpu);

  std::map<c10::DeviceIndex, bool> trusted_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_TENSOR_HASH_H_
