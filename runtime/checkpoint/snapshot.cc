#include "runtime/checkpoint/snapshot.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <set>

#include "core/text.h"
#include "runtime/checkpoint/safetensors_header.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

// A tensor over the bytes themselves, which nobody writes through.
at::Tensor BorrowBytes(const std::string& bytes) {
  return at::from_blob(const_cast<char*>(bytes.data()),
                       {static_cast<int64_t>(bytes.size())},
                       at::device(at::kCPU).dtype(at::kByte));
}

absl::StatusOr<std::string> BytesOf(const std::string& name,
                                    const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kByte || tensor.dim() != 1) {
    return absl::DataLossError(
        StrCat("entry '", name, "' is not a row of bytes"));
  }
  at::Tensor host = tensor.contiguous();
  return std::string(static_cast<const char*>(host.const_data_ptr()),
                     host.nbytes());
}

absl::Status CheckNames(const std::vector<NamedTensor>& tensors) {
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    absl::Status status = CheckStorable(name, tensor);
    if (!status.ok()) return status;
    if (name.starts_with(kBytesPrefix)) {
      return absl::InvalidArgumentError(
          StrCat("tensor '", name, "' has a name with the reserved ", "prefix ",
                 kBytesPrefix, "; give it another"));
    }
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(
          StrCat("two tensors are named '", name, "'; names must be unique"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const at::Tensor* FindTensor(const Snapshot& snapshot, std::string_view name) {
  for (const auto& [candidate, tensor] : snapshot.tensors) {
    if (candidate == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<std::vector<NamedTensor>> ToTensors(const Snapshot& snapshot) {
  absl::Status status = CheckNames(snapshot.tensors);
  if (!status.ok()) return status;
  std::vector<NamedTensor> tensors = snapshot.tensors;
  status = internal::CatchAsStatus("bytes entries", [&] {
    for (const auto& [name, bytes] : snapshot.bytes) {
      tensors.emplace_back(StrCat(kBytesPrefix, name), BorrowBytes(bytes));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return tensors;
}

absl::StatusOr<Snapshot> FromTensors(std::vector<NamedTensor> tensors) {
  Snapshot snapshot;
  for (NamedTensor& entry : tensors) {
    std::string_view name = entry.first;
    if (!name.starts_with(kBytesPrefix)) {
      snapshot.tensors.push_back(std::move(entry));
      continue;
    }
    absl::StatusOr<std::string> bytes = BytesOf(entry.first, entry.second);
    if (!bytes.ok()) return bytes.status();
    name.remove_prefix(kBytesPrefix.size());
    snapshot.bytes.emplace(name, *std::move(bytes));
  }
  std::sort(snapshot.tensors.begin(), snapshot.tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) {
              return a.first < b.first;
            });
  return snapshot;
}

}  // namespace gavel
