// The kernel behind TensorHasher; only where nvcc was found.
#ifndef GAVEL_RUNTIME_CUDA_TENSOR_HASH_KERNEL_H_
#define GAVEL_RUNTIME_CUDA_TENSOR_HASH_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gavel::internal {

// Adds the terms of the words at `data` to `*sum`, both in the memory of the
// present device. `data` is aligned to eight bytes; what is missing to the last
// word is zero. Returns when the work is queued on `stream`.
cudaError_t AddTermsOfWords(const void* data, uint64_t size_bytes,
                            unsigned long long* sum, cudaStream_t stream);

}  // namespace gavel::internal

#endif  // GAVEL_RUNTIME_CUDA_TENSOR_HASH_KERNEL_H_
