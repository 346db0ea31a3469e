#include "runtime/device/tensor_hash.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "runtime/device/device_backend.h"
#include "runtime/device/tensor_hash_words.h"
#include "runtime/device/torch_errors.h"

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

namespace {

bool CanBeHashed(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_cpu() &&
         tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_neg() && !tensor.is_conj() && tensor.numel() > 0 &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) %
                 sizeof(uint64_t) ==
             0;
}

}  // namespace

bool TensorHasher::IsTrusted(c10::Device device) {
  const auto [entry, is_new] = trusted_.try_emplace(device, false);
  if (!is_new) return entry->second;
  std::vector<unsigned char> sample(
      100'003);  // the last word of this size is incomplete
  for (size_t i = 0; i < sample.size(); ++i) {
    sample[i] = static_cast<unsigned char>(i * i >> 3);
  }
  internal::CatchAsStatus("hashing a sample", [&] {
    const at::Tensor tensor =
        at::from_blob(sample.data(), {static_cast<int64_t>(sample.size())},
                      at::kByte)
            .pin_memory()
            .to(device);
    const auto hashes = BackendOf(device.type()).Hash({tensor}, device);
    entry->second =
        hashes && hashes->front() == HashBytes(sample.data(), sample.size());
    return absl::OkStatus();
  }).IgnoreError();
  return entry->second;
}

std::vector<std::optional<uint64_t>> TensorHasher::Hash(
    const std::vector<at::Tensor>& tensors) {
  std::vector<std::optional<uint64_t>> hashes(tensors.size());
  std::map<c10::Device, std::vector<size_t>, DeviceOrder> by_device;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (CanBeHashed(tensors[i])) by_device[tensors[i].device()].push_back(i);
  }
  for (const auto& [device, places] : by_device) {
    if (!IsTrusted(device)) continue;
    std::vector<at::Tensor> chosen;
    for (const size_t place : places) chosen.push_back(tensors[place]);
    // A failure is ignored: tensors without a hash are copied.
    internal::CatchAsStatus("hashing tensors", [&] {
      const auto values = BackendOf(device.type()).Hash(chosen, device);
      for (size_t i = 0; values && i < places.size(); ++i) {
        hashes[places[i]] = (*values)[i];
      }
      return absl::OkStatus();
    }).IgnoreError();
  }
  return hashes;
}

}  // namespace gavel
