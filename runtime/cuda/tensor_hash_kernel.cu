#include <cuda_runtime.h>

#include <algorithm>

#include "runtime/cuda/tensor_hash_kernel.h"
#include "runtime/device/tensor_hash_words.h"

namespace gavel::internal {
namespace {

constexpr unsigned kThreadsPerBlock = 256;
// Enough for every GPU there is to read at its full speed.
constexpr uint64_t kBlocksMax = 2048;

__device__ uint64_t LastWord(const unsigned char* bytes, unsigned count) {
  uint64_t word = 0;
  for (unsigned i = 0; i < count; ++i) {
    word |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
  return word;
}

__global__ void AddTerms(const unsigned char* data, uint64_t size_bytes,
                         unsigned long long* sum) {
  const auto* const words = reinterpret_cast<const uint64_t*>(data);
  const uint64_t count = size_bytes / sizeof(uint64_t);
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  const uint64_t first =
      static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  unsigned long long terms = 0;
  for (uint64_t i = first; i < count; i += stride) {
    terms += TermOfWord(words[i], i);
  }
  const auto rest = static_cast<unsigned>(size_bytes % sizeof(uint64_t));
  if (first == 0 && rest != 0) {
    terms += TermOfWord(LastWord(data + count * sizeof(uint64_t), rest), count);
  }
  for (int lanes = warpSize / 2; lanes > 0; lanes /= 2) {
    terms += __shfl_down_sync(0xffffffffu, terms, lanes);
  }
  if (threadIdx.x % warpSize == 0) atomicAdd(sum, terms);
}

}  // namespace

cudaError_t AddTermsOfWords(const void* data, uint64_t size_bytes,
                            unsigned long long* sum, cudaStream_t stream) {
  const uint64_t words = size_bytes / sizeof(uint64_t) + 1;
  const uint64_t blocks =
      std::min(kBlocksMax, (words + kThreadsPerBlock - 1) / kThreadsPerBlock);
  AddTerms<<<static_cast<unsigned>(blocks), kThreadsPerBlock, 0, stream>>>(
      static_cast<const unsigned char*>(data), size_bytes, sum);
  return cudaGetLastError();
}

}  // namespace gavel::internal
