#include "iterator/parked_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <xxhash.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/device/device_move.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

// As many as for the way there (GenerationStoreOptions).
constexpr int kCopyThreads = 4;

// Uses its own threads, since those of the writer may work on the same copy.
absl::Status CopyAll(CopyList& list) {
  WorkerPool pool(list.size_bytes() > CopyList::kPieceBytesMax ? kCopyThreads
                                                               : 1);
  return list.Run(pool);
}

using Users = std::map<const c10::StorageImpl*, int>;

// How many of `tensors` and their gradients there are in each memory.
Users CountUsers(const std::vector<at::Tensor>& tensors) {
  Users users;
  std::set<const c10::TensorImpl*> seen;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    ++users[tensor.storage().unsafeGetStorageImpl()];
  };
  for (const at::Tensor& tensor : tensors) {
    add(tensor);
    if (tensor.defined() && tensor.is_leaf()) add(tensor.grad());
  }
  return users;
}

bool IsAlone(const at::Tensor& tensor, const Users& users) {
  return tensor.layout() == at::kStrided && tensor.numel() > 0 &&
         tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj() &&
         users.at(tensor.storage().unsafeGetStorageImpl()) == 1;
}

bool IsCopyOf(const HostCopy& copy, const at::Tensor& tensor) {
  return copy.source.device() == tensor.device() &&
         copy.source.scalar_type() == tensor.scalar_type() &&
         copy.source.sizes().equals(tensor.sizes());
}

bool CanLeave(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.numel() > 0 && tensor.is_contiguous() && !tensor.is_neg() &&
         !tensor.is_conj();
}

// Returns a tensor of the same shape that has no memory.
at::Tensor WithoutMemory(const at::Tensor& tensor) {
  at::Tensor empty = at::empty({0}, tensor.options().device(at::kCPU));
  empty.unsafeGetTensorImpl()->set_sizes_contiguous(tensor.sizes());
  return empty;
}

bool HasMemory(const at::Tensor& tensor) {
  return tensor.storage().data() != nullptr;
}

}  // namespace

absl::StatusOr<std::vector<TensorWithCopy>> MatchCopies(
    const std::vector<at::Tensor>& tensors,
    const std::vector<HostCopy>& copies) {
  std::vector<TensorWithCopy> matches;
  GAVEL_RETURN_IF_ERROR(CatchAsStatus("finding the copies of tensors", [&] {
    std::map<const void*, const HostCopy*> by_memory;
    for (const HostCopy& copy : copies) {
      by_memory.emplace(copy.source.const_data_ptr(), &copy);
    }
    const Users users = CountUsers(tensors);
    std::set<const c10::TensorImpl*> seen;
    for (const at::Tensor& tensor : tensors) {
      // Several hold a handle: a parameter is the optimizer's, too.
      if (!tensor.defined() ||
          !seen.insert(tensor.unsafeGetTensorImpl()).second ||
          !IsAlone(tensor, users)) {
        continue;
      }
      const auto found = by_memory.find(tensor.const_data_ptr());
      if (found != by_memory.end() && IsCopyOf(*found->second, tensor)) {
        matches.push_back({tensor, *found->second});
      }
    }
    return absl::OkStatus();
  }));
  return matches;
}

absl::Status ParkedTensors::Park(const std::vector<TensorWithCopy>& tensors) {
  return CatchAsStatus("parking the state in host memory", [&] {
    for (const auto& [tensor, copy] : tensors) {
      if (!copy.copy.defined()) continue;
      entries_.push_back(
          {tensor, tensor.is_cpu() ? tensor.detach() : at::Tensor()});
      // Only exchanges pointers. The place is a tensor of its own, which keeps
      // the memory that this one leaves.
      entries_.back().tensor.set_data(copy.copy);
    }
    return absl::OkStatus();
  });
}

absl::Status ParkedTensors::Return(at::Device device, Arena* arena) {
  if (entries_.empty()) return absl::OkStatus();
  absl::Status status =
      CatchAsStatus(StrCat("returning the state to ", device.str()),
                    [&] { return CopyTo(device, arena); });
  if (status.ok()) entries_.clear();
  return status;
}

absl::Status ParkedTensors::CopyTo(at::Device device, Arena* arena) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> places;
  CopyList list;
  std::optional<DeviceCopies> copies;
  if (!device.is_cpu()) {
    copies.emplace(device, DeviceCopies::Direction::kFromHost, arena);
  }
  for (const Entry& entry : entries_) {
    const at::Tensor from = entry.tensor.detach();
    const bool is_known =
        entry.place.defined() && entry.place.device() == device;
    places.push_back(is_known
                         ? entry.place
                         : at::empty_like(from, from.options().device(device)));
    if (device.is_cpu()) {
      list.Add(static_cast<char*>(places.back().mutable_data_ptr()),
               static_cast<const char*>(from.const_data_ptr()), from.nbytes());
    } else {
      copies->Add(places.back(), static_cast<char*>(from.data_ptr()));
    }
  }
  GAVEL_RETURN_IF_ERROR(CopyAll(list));
  // Waits: the memory of the copy may be used again once nobody looks into it.
  if (copies) copies->Run();
  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].tensor.set_data(places[i]);
  }
  return absl::OkStatus();
}

uint64_t ParkedTensors::size_bytes() const {
  uint64_t size_bytes = 0;
  for (const Entry& entry : entries_) size_bytes += entry.tensor.nbytes();
  return size_bytes;
}

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
