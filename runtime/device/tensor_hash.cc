#include "runtime/device/tensor_hash.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/tensor_hash_words.h"

#ifdef GAVEL_HAS_TENSOR_HASH
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "runtime/device/tensor_hash_kernel.h"
#include "runtime/torch_errors.h"
#endif

namespace gavel {

uint64_t HashBytes(const void* data, uint64_t size_bytes) {
  const char* const bytes = static_cast<const char*>(data);
  uint64_t sum = 0, index = 0;
  for (uint64_t begin = 0; begin < size_bytes; begin += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + begin,
                std::min<uint64_t>(sizeof(word), size_bytes - begin));
    sum += internal::TermOfWord(word, index++);
  }
  return internal::HashOfSum(sum, size_bytes);
}

#ifdef GAVEL_HAS_TENSOR_HASH

namespace {

bool CanBeHashed(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cuda() &&
         tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_neg() && !tensor.is_conj() && tensor.numel() > 0 &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) %
                 sizeof(uint64_t) ==
             0;
}

// All of them on `device`; each can be hashed. Throws as LibTorch does.
std::vector<uint64_t> HashAll(const std::vector<at::Tensor>& tensors,
                              at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const auto count = static_cast<int64_t>(tensors.size());
  const at::Tensor sums =
      at::zeros({count}, at::device(device).dtype(at::kLong));
  auto* const sum = static_cast<unsigned long long*>(sums.mutable_data_ptr());
  for (size_t i = 0; i < tensors.size(); ++i) {
    C10_CUDA_CHECK(internal::AddTermsOfWords(
        tensors[i].const_data_ptr(), tensors[i].nbytes(), sum + i,
        c10::cuda::getCurrentCUDAStream(device.index())));
  }
  const at::Tensor on_host = sums.cpu();
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    hashes.push_back(internal::HashOfSum(
        static_cast<uint64_t>(on_host.const_data_ptr<int64_t>()[i]),
        tensors[i].nbytes()));
  }
  return hashes;
}

}  // namespace

bool TensorHasher::IsTrusted(c10::DeviceIndex gpu) {
  const auto [entry, is_new] = trusted_.try_emplace(gpu, false);
  if (!is_new) return entry->second;
  std::vector<unsigned char> sample(
      100'003);  // has a part of a word at its end
  for (size_t i = 0; i < sample.size(); ++i) {
    sample[i] = static_cast<unsigned char>(i * i >> 3);
  }
  internal::CatchAsStatus("hashing a sample", [&] {
    const at::Device device(at::kCUDA, gpu);
    const at::Tensor tensor =
        at::from_blob(sample.data(), {static_cast<int64_t>(sample.size())},
                      at::kByte)
            .to(device);
    const uint64_t expected = HashBytes(sample.data(), sample.size());
    entry->second = HashAll({tensor}, device)[0] == expected;
    return absl::OkStatus();
  }).IgnoreError();
  return entry->second;
}

std::vector<std::optional<uint64_t>> TensorHasher::Hash(
    const std::vector<at::Tensor>& tensors) {
  std::vector<std::optional<uint64_t>> hashes(tensors.size());
  std::map<c10::DeviceIndex, std::vector<size_t>> by_device;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (CanBeHashed(tensors[i])) {
      by_device[tensors[i].device().index()].push_back(i);
    }
  }
  for (const auto& [index, places] : by_device) {
    if (!IsTrusted(index)) continue;
    const at::Device device(at::kCUDA, index);
    std::vector<at::Tensor> chosen;
    for (const size_t place : places) chosen.push_back(tensors[place]);
    // What can't be hashed is copied.
    internal::CatchAsStatus("hashing tensors", [&] {
      const std::vector<uint64_t> values = HashAll(chosen, device);
      for (size_t i = 0; i < places.size(); ++i) hashes[places[i]] = values[i];
      return absl::OkStatus();
    }).IgnoreError();
  }
  return hashes;
}

#else

bool TensorHasher::IsTrusted(c10::DeviceIndex) { return false; }

std::vector<std::optional<uint64_t>> TensorHasher::Hash(
    const std::vector<at::Tensor>& tensors) {
  return std::vector<std::optional<uint64_t>>(tensors.size());
}

#endif

}  // namespace gavel
