#include "iterator/divided_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <xxhash.h>

#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

bool CanLeave(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.numel() > 0 && tensor.is_contiguous() && !tensor.is_neg() &&
         !tensor.is_conj();
}

// Of that shape.
at::Tensor WithoutMemory(const at::Tensor& tensor) {
  at::Tensor empty = at::empty({0}, tensor.options().device(at::kCPU));
  empty.unsafeGetTensorImpl()->set_sizes_contiguous(tensor.sizes());
  return empty;
}

bool HasMemory(const at::Tensor& tensor) {
  return tensor.storage().data() != nullptr;
}

}  // namespace

void ShareOut(const std::vector<at::Tensor>& tensors, int world_size,
              std::vector<OwnedTensor>* owned) {
  uint64_t total = 1;
  for (const at::Tensor& tensor : tensors) total += tensor.nbytes();
  uint64_t before = 0;
  const c10::StorageImpl* last = nullptr;
  int owner = 0;
  for (const at::Tensor& tensor : tensors) {
    const c10::StorageImpl* const here =
        tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl()
                             : nullptr;
    if (here == nullptr || here != last) {
      owner =
          static_cast<int>(before * static_cast<uint64_t>(world_size) / total);
    }
    owned->push_back({tensor, owner});
    last = here;
    before += tensor.nbytes();
  }
}

void DividedTensors::Divide(std::vector<OwnedTensor> owned, int rank) {
  std::erase_if(owned,
                [](const OwnedTensor& one) { return !CanLeave(one.tensor); });
  owned_ = std::move(owned);
  rank_ = rank;
  is_missing_ = false;
}

absl::Status DividedTensors::Leave() {
  return CatchAsStatus("leaving the other ranks' part of the state", [this] {
    const bool was_missing = is_missing_;
    for (OwnedTensor& one : owned_) {
      if (one.owner == rank_ || !HasMemory(one.tensor)) continue;
      // Values that never left the host are kept.
      if (one.tensor.is_cpu() && !was_missing) continue;
      one.tensor.set_data(WithoutMemory(one.tensor));
      is_missing_ = true;
    }
    return absl::OkStatus();
  });
}

absl::Status DividedTensors::Return(at::Device device) {
  if (!is_missing_) return absl::OkStatus();
  return CatchAsStatus(
      StrCat("getting memory for the state on ", device.str()), [&] {
        const at::NoGradGuard no_grad;
        std::vector<at::Tensor> places(owned_.size());
        for (size_t i = 0; i < owned_.size(); ++i) {
          const at::Tensor& tensor = owned_[i].tensor;
          if (HasMemory(tensor)) continue;
          places[i] =
              at::empty(tensor.sizes(), tensor.options().device(device));
        }
        for (size_t i = 0; i < owned_.size(); ++i) {
          if (places[i].defined()) owned_[i].tensor.set_data(places[i]);
        }
        return absl::OkStatus();
      });
}

std::string DividedTensors::Fingerprint() const {
  if (owned_.empty()) return "";
  std::string text;
  for (const auto& [tensor, owner] : owned_) {
    StrAppend(&text, owner, ":", at::toString(tensor.scalar_type()), ":",
              tensor.numel(), ",");
  }
  return StrCat(XXH3_64bits(text.data(), text.size()));
}

uint64_t DividedTensors::missing_bytes() const {
  uint64_t size_bytes = 0;
  for (const auto& [tensor, owner] : owned_) {
    if (!HasMemory(tensor)) size_bytes += tensor.nbytes();
  }
  return size_bytes;
}

}  // namespace gavel::internal
