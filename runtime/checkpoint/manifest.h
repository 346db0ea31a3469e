// What a generation consists of: the last file written of it, and the proof
// that it is complete. JSON that carries its own checksum.
//
// Called by GenerationStore; tests and `gavel doctor` compare the manifests of
// two runs to see whether they are equal bit for bit. Values and pure
// functions, thread-safe.
#ifndef GAVEL_RUNTIME_CHECKPOINT_MANIFEST_H_
#define GAVEL_RUNTIME_CHECKPOINT_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/checkpoint/safetensors.h"

namespace gavel {

inline constexpr std::string_view kManifestFileName = "manifest.json";
inline constexpr std::string_view kManifestTemporaryName = "manifest.json.tmp";
inline constexpr int kManifestFormatVersion = 1;
inline constexpr uint64_t kManifestSizeBytesMax = uint64_t{256} << 20;

struct Manifest {
  Generation generation;
  // Workers that trained up to here; a generation restores onto any number.
  int world_size = 1;
  // Shard i lies in ShardFileName(i).
  std::vector<ShardSummary> shards;
};

// "shard-00003.safetensors".
std::string ShardFileName(size_t index);
// Whether `name` is one that ShardFileName gives.
bool IsShardFileName(std::string_view name);

// `format_version` is for tests of what later versions write.
std::string EncodeManifest(const Manifest& manifest,
                           int format_version = kManifestFormatVersion);

// DATA_LOSS: not a manifest, or altered. FAILED_PRECONDITION: written by a
// newer version of Gavel.
absl::StatusOr<Manifest> DecodeManifest(std::string_view text);

// Names of the tensors and bytes entries (with kBytesPrefix) that differ or
// are in one of them only, sorted. Empty when the states are equal bit for
// bit, however they are cut into shards.
std::vector<std::string> DifferingTensors(const Manifest& a, const Manifest& b);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_CHECKPOINT_MANIFEST_H_
