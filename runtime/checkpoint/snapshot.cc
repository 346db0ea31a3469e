#include "runtime/checkpoint/snapshot.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
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

absl::Status AddPart(NamedTensor entry, Snapshot* snapshot) {
  std::optional<PartEntry> part = ParsePartEntryName(entry.first);
  if (!part) {
    return absl::DataLossError(
        StrCat("entry '", entry.first, "' is not the name of a part"));
  }
  snapshot->parts[part->name].push_back(
      {part->partition, part->begin, std::move(entry.second)});
  return absl::OkStatus();
}

}  // namespace

const at::Tensor* FindTensor(const Snapshot& snapshot, std::string_view name) {
  for (const auto& [candidate, tensor] : snapshot.tensors) {
    if (candidate == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<at::Tensor> FindPart(const Snapshot& snapshot,
                                    const std::string& name,
                                    const OwnPart* wanted) {
  const auto parts = snapshot.parts.find(name);
  return TakePart(name, FindTensor(snapshot, name),
                  parts == snapshot.parts.end() ? nullptr : &parts->second,
                  wanted);
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
    if (name.starts_with(kPartPrefix)) {
      GAVEL_RETURN_IF_ERROR(AddPart(std::move(entry), &snapshot));
      continue;
    }
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
  for (auto& [name, parts] : snapshot.parts) {
    std::sort(parts.begin(), parts.end(),
              [](const StoredPart& a, const StoredPart& b) {
                return a.begin < b.begin;
              });
  }
  return snapshot;
}

}  // namespace gavel
