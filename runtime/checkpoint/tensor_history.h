// Which tensors of a job change from one generation to the next, as their
// checksums tell: frozen layers and tables that a job only reads are to lie in
// shards of their own, which need not be written again. Called by
// GenerationStore after each commit.
//
// A value; not thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_TENSOR_HISTORY_H_
#define GAVEL_RUNTIME_CHECKPOINT_TENSOR_HISTORY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "runtime/generation/shard_layout.h"

namespace gavel {

class TensorHistory {
 public:
  // A tensor counts as unchanged after so many generations with the same
  // checksum as the one before.
  static constexpr int kGenerations = 3;

  // Of each shard of tensors of one generation.
  void Add(const ShardSummary& summary);

  bool IsUnchanged(const std::string& name) const;
  bool AreUnchanged(const ShardLayout& layout) const;
  std::set<std::string> Unchanged() const;

  // The bytes of unchanged tensors in a shard that has others, too: what is
  // written again for nothing. 0 when all are alike.
  uint64_t BytesBesideOthers(const ShardLayout& layout) const;

 private:
  struct Entry {
    uint64_t checksum = 0;
    int unchanged = 0;  // generations since it changed
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_TENSOR_HISTORY_H_
