// Which tensors of a job no longer change, as the checksums of its generations
// tell: frozen layers and tables that a job only reads are to lie in shards of
// their own, which need not be written again. Called by GenerationStore after
// each commit.
//
// Functions of manifests alone: so every rank of a gang comes to the same cut,
// and so does a process that starts from the generation. Thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_TENSOR_HISTORY_H_
#define GAVEL_RUNTIME_CHECKPOINT_TENSOR_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/generation/manifest.h"

namespace gavel {

// A tensor counts as unchanged after so many generations with the same checksum
// as the one before.
inline constexpr int kUnchangedGenerations = 3;

// Manifest::unchanged of the generation of `shards` that follows `before`;
// counts to kUnchangedGenerations.
std::map<std::string, int> CountUnchanged(
    const Manifest& before, const std::vector<ShardSummary>& shards);

// All tensors of manifest.shards[shard] count as unchanged.
bool IsUnchanged(const Manifest& manifest, size_t shard);

// The tensors that get shards of their own in the next generation, with the
// sizes of all of them. Cuts anew only when more than `for_nothing_bytes_max`
// of unchanged tensors lie beside others, and are written again for nothing.
std::set<std::string> ChooseUnchanged(
    const Manifest& last, const std::map<std::string, uint64_t>& sizes_bytes,
    uint64_t for_nothing_bytes_max);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_TENSOR_HISTORY_H_
