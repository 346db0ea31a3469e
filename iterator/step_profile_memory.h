// The memory marks of a profile: what LibTorch has allocated on a GPU, or the
// resident memory of the process.
#ifndef GAVEL_ITERATOR_STEP_PROFILE_MEMORY_H_
#define GAVEL_ITERATOR_STEP_PROFILE_MEMORY_H_

#include <c10/core/Device.h>

#include <cstdint>

namespace gavel::internal {

struct MemoryUse {
  int64_t now_bytes = 0;
  int64_t high_bytes = 0;  // the most since the process began
  // The same of what LibTorch's allocator has from the driver: no other process
  // can use it. Of a GPU only.
  int64_t reserved_bytes = 0;
  int64_t reserved_high_bytes = 0;
};

// Zeros where the system does not tell. A few microseconds.
MemoryUse ReadMemory(c10::Device device) noexcept;

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_STEP_PROFILE_MEMORY_H_
