// The tensors of one model in safetensors files that any program has written:
// one file, or shards with an index (model.safetensors.index.json). Only names,
// types and shapes are read at first, and each tensor's data when it is asked
// for, so that a model takes no more memory than its largest tensor.
//
// Called by iterator/safetensors.cc. Not thread-safe. Nothing in the files is
// trusted.
#ifndef GAVEL_RUNTIME_GENERATION_SAFETENSORS_FILES_H_
#define GAVEL_RUNTIME_GENERATION_SAFETENSORS_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/shard_layout.h"

namespace gavel {

// An index is text of about 100 bytes for each tensor.
inline constexpr uint64_t kSafetensorsIndexBytesMax = uint64_t{64} << 20;

class SafetensorsFiles {
 public:
  // `path`: a file; an index, whose name ends in .json; or a folder with
  // model.safetensors or model.safetensors.index.json. Symbolic links are
  // followed. NOT_FOUND: there is none. INVALID_ARGUMENT: the index leads out
  // of its folder. DATA_LOSS: a file is not in the layout, a shard lacks a
  // tensor that the index has there, or two shards have the same tensor. Every
  // message names the file.
  static absl::StatusOr<SafetensorsFiles> Open(FileSystem& file_system,
                                               const std::string& path);

  // All tensors, by name.
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  // The data of a tensor of tensors(), end - begin bytes.
  absl::Status Read(const TensorEntry& tensor, char* data) const;

 private:
  struct File {
    std::string path;
    std::shared_ptr<ReadableFile> file;
    uint64_t data_offset = 0;
  };

  absl::Status OpenFile(FileSystem& file_system, const std::string& path);
  absl::Status OpenShards(FileSystem& file_system, const std::string& path);

  std::vector<File> files_;
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, size_t, std::less<>> file_of_;  // by tensor
};

// The names of an index's weight_map, with the file of each. DATA_LOSS: not an
// index.
absl::StatusOr<std::map<std::string, std::string>> DecodeSafetensorsIndex(
    std::string_view json);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_GENERATION_SAFETENSORS_FILES_H_
