#include "runtime/checkpoint/snapshot.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::string_view kRankPrefix = "gavel/rank/";

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

}  // namespace

const at::Tensor* FindTensor(const Snapshot& snapshot, std::string_view name) {
  for (const auto& [candidate, tensor] : snapshot.tensors) {
    if (candidate == name) return &tensor;
  }
  return nullptr;
}

std::string RankEntryPrefix(int rank) { return StrCat(kRankPrefix, rank, "/"); }

std::optional<int> RankOfEntry(std::string_view name) {
  int rank = 0;
  if (!name.starts_with(kRankPrefix)) return std::nullopt;
  name.remove_prefix(kRankPrefix.size());
  const std::string_view number = name.substr(0, name.find('/'));
  if (!absl::SimpleAtoi(ToAbsl(number), &rank) || rank < 0) return std::nullopt;
  return rank;
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
