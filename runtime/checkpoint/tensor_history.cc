#include "runtime/checkpoint/tensor_history.h"

#include <algorithm>

namespace gavel {

void TensorHistory::Add(const ShardSummary& summary) {
  for (const TensorChecksum& tensor : summary.tensors) {
    const auto [entry, is_new] = entries_.try_emplace(tensor.name);
    const bool same = !is_new && entry->second.checksum == tensor.checksum;
    entry->second.unchanged = same ? entry->second.unchanged + 1 : 0;
    entry->second.checksum = tensor.checksum;
  }
}

bool TensorHistory::IsUnchanged(const std::string& name) const {
  const auto entry = entries_.find(name);
  return entry != entries_.end() && entry->second.unchanged >= kGenerations;
}

bool TensorHistory::AreUnchanged(const ShardLayout& layout) const {
  return std::all_of(
      layout.header.tensors.begin(), layout.header.tensors.end(),
      [this](const TensorEntry& tensor) { return IsUnchanged(tensor.name); });
}

std::set<std::string> TensorHistory::Unchanged() const {
  std::set<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.unchanged >= kGenerations) names.insert(name);
  }
  return names;
}

uint64_t TensorHistory::BytesBesideOthers(const ShardLayout& layout) const {
  uint64_t unchanged = 0;
  bool has_others = false;
  for (const TensorEntry& tensor : layout.header.tensors) {
    if (IsUnchanged(tensor.name)) {
      unchanged += tensor.end - tensor.begin;
    } else {
      has_others = true;
    }
  }
  return has_others ? unchanged : 0;
}

}  // namespace gavel
