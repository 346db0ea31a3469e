#include "runtime/checkpoint/tensor_history.h"

#include <algorithm>

namespace gavel {
namespace {

bool CountsAsUnchanged(const Manifest& manifest, const std::string& name) {
  const auto unchanged = manifest.unchanged.find(name);
  return unchanged != manifest.unchanged.end() &&
         unchanged->second >= kUnchangedGenerations;
}

// The bytes of unchanged tensors in a shard that has others, too.
uint64_t BytesForNothing(const Manifest& manifest, const ShardSummary& shard,
                         const std::map<std::string, uint64_t>& sizes_bytes) {
  uint64_t size_bytes = 0;
  bool has_others = false;
  for (const TensorChecksum& tensor : shard.tensors) {
    const auto size = sizes_bytes.find(tensor.name);
    if (!CountsAsUnchanged(manifest, tensor.name)) {
      has_others = true;
    } else if (size != sizes_bytes.end()) {
      size_bytes += size->second;
    }
  }
  return has_others ? size_bytes : 0;
}

}  // namespace

std::map<std::string, int> CountUnchanged(
    const Manifest& before, const std::vector<ShardSummary>& shards) {
  std::map<std::string, uint64_t> checksums;
  for (const ShardSummary& shard : before.shards) {
    for (const TensorChecksum& tensor : shard.tensors) {
      checksums.emplace(tensor.name, tensor.checksum);
    }
  }
  std::map<std::string, int> counts;
  for (const ShardSummary& shard : shards) {
    for (const TensorChecksum& tensor : shard.tensors) {
      const auto checksum = checksums.find(tensor.name);
      if (checksum == checksums.end() || checksum->second != tensor.checksum) {
        continue;
      }
      const auto count = before.unchanged.find(tensor.name);
      const int until_now = count == before.unchanged.end() ? 0 : count->second;
      counts[tensor.name] = std::min(until_now, kUnchangedGenerations - 1) + 1;
    }
  }
  return counts;
}

bool IsUnchanged(const Manifest& manifest, size_t shard) {
  const std::vector<TensorChecksum>& tensors = manifest.shards[shard].tensors;
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const TensorChecksum& tensor) {
                       return CountsAsUnchanged(manifest, tensor.name);
                     });
}

std::set<std::string> ChooseUnchanged(
    const Manifest& last, const std::map<std::string, uint64_t>& sizes_bytes,
    uint64_t for_nothing_bytes_max) {
  uint64_t for_nothing_bytes = 0;
  for (const ShardSummary& shard : last.shards) {
    for_nothing_bytes += BytesForNothing(last, shard, sizes_bytes);
  }
  std::set<std::string> chosen;
  if (for_nothing_bytes > for_nothing_bytes_max) {
    for (const auto& [name, generations] : last.unchanged) {
      // Entries of bytes, which have no size here, are not cut.
      if (generations >= kUnchangedGenerations && sizes_bytes.contains(name)) {
        chosen.insert(name);
      }
    }
    return chosen;
  }
  const size_t count = std::min(last.unchanged_shards, last.shards.size());
  for (size_t i = 0; i < count; ++i) {
    for (const TensorChecksum& tensor : last.shards[i].tensors) {
      chosen.insert(tensor.name);
    }
  }
  return chosen;
}

}  // namespace gavel
