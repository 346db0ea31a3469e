// Generations without LibTorch, for tests of what moves them.
#ifndef GAVEL_TESTS_AGENT_HOST_GENERATION_SAMPLES_H_
#define GAVEL_TESTS_AGENT_HOST_GENERATION_SAMPLES_H_

#include <random>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel::testing {

// The file of a shard with one tensor of `size` random bytes.
inline std::string MakeShard(const std::string& name, size_t size,
                             uint32_t seed) {
  TensorEntry entry;
  entry.name = name;
  entry.dtype = Dtype::kU8;
  entry.shape = {static_cast<int64_t>(size)};
  const ShardLayout layout = *LayOutShard({entry}, {{"format", "pt"}});
  std::string file = layout.encoded_header;
  std::mt19937_64 random(seed);
  while (file.size() < layout.size_bytes) {
    const uint64_t word = random();
    file.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  file.resize(layout.size_bytes);
  return file;
}

// Commits them as the runtime does; equal shards of the sample are not linked.
inline absl::Status WriteGeneration(FileSystem& disk,
                                    const std::string& directory,
                                    Generation generation,
                                    const std::vector<std::string>& shards) {
  const std::string folder =
      StrCat(directory, "/", AttemptName({generation, 0}));
  GAVEL_RETURN_IF_ERROR(disk.CreateDirectory(folder));
  Manifest manifest;
  manifest.generation = generation;
  for (size_t i = 0; i < shards.size(); ++i) {
    GAVEL_RETURN_IF_ERROR(
        WriteTextFile(disk, StrCat(folder, "/", ShardFileName(i)), shards[i]));
    GAVEL_ASSIGN_OR_RETURN(ShardSummary summary,
                           SummarizeFile(shards[i].data(), shards[i].size(),
                                         ShardChecksum::kHeaderAndTensors));
    manifest.shards.push_back(std::move(summary));
  }
  GAVEL_RETURN_IF_ERROR(
      WriteTextFile(disk, StrCat(folder, "/", kManifestTemporaryName),
                    EncodeManifest(manifest)));
  GAVEL_RETURN_IF_ERROR(disk.SyncDirectory(folder));
  GAVEL_RETURN_IF_ERROR(disk.Rename(StrCat(folder, "/", kManifestTemporaryName),
                                    StrCat(folder, "/", kManifestFileName)));
  GAVEL_RETURN_IF_ERROR(disk.SyncDirectory(folder));
  return disk.SyncDirectory(directory);
}

// DATA_LOSS when a file of it is not what its manifest says.
inline absl::Status VerifyGeneration(FileSystem& disk,
                                     const std::string& directory,
                                     const Attempt& attempt) {
  const std::string folder = StrCat(directory, "/", AttemptName(attempt));
  GAVEL_ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile(disk, StrCat(folder, "/", kManifestFileName),
                    kManifestSizeBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const Manifest manifest, DecodeManifest(text));
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    GAVEL_ASSIGN_OR_RETURN(
        const std::string file,
        ReadWholeFile(disk, StrCat(folder, "/", ShardFileName(i)),
                      manifest.shards[i].size_bytes));
    GAVEL_ASSIGN_OR_RETURN(
        const ShardSummary summary,
        SummarizeFile(file.data(), file.size(), manifest.shard_checksum()));
    if (summary != manifest.shards[i]) {
      return absl::DataLossError(StrCat(folder, " shard ", i));
    }
  }
  return absl::OkStatus();
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_AGENT_HOST_GENERATION_SAMPLES_H_
