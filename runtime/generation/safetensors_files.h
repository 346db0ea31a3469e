// Files in the safetensors layout: shards of ours with their checksums, and the
// models of others.
#ifndef GAVEL_RUNTIME_GENERATION_SAFETENSORS_FILES_H_
#define GAVEL_RUNTIME_GENERATION_SAFETENSORS_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/generation/file_system.h"

namespace gavel {

// How a shard lies in memory and on disk, the safetensors layout, and its
// XXH3-64 checksums, of the whole and of every tensor. It needs no LibTorch, so
// that an agent can verify the shards that it receives.
//
// Called by the checkpoint folder and by agents that stream generations. Pure
// functions, thread-safe.

// The header of a file in the safetensors layout, without I/O:
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]},
//             "__metadata__": {string: string}}, padded with spaces
//   data      the tensors, row-major, little-endian, without gaps
//
// Called by the functions below and the checkpoint folder; pure functions,
// thread-safe.
// Source: https://github.com/huggingface/safetensors, "Format".

// The limit of the reference implementation.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr uint64_t kSafetensorsLengthBytes = 8;

// The kinds of elements that the layout has a place for.
enum class Dtype : uint8_t {
  kF64,
  kF32,
  kF16,
  kBf16,
  kF8E5m2,
  kF8E4m3,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC64
};

// "F32": in the header.
std::string_view NameOfDtype(Dtype dtype);
std::optional<Dtype> DtypeOfName(std::string_view name);
// "Float": LibTorch's word, which checksums of tensors are made with.
std::string_view TorchNameOfDtype(Dtype dtype);
uint64_t SizeOfDtype(Dtype dtype);  // bytes of an element

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kU8;
  std::vector<int64_t> shape;
  // [begin, end) in the data.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The order of a header's tensors: by place; empty ones, which share theirs, by
// name. Writers and readers of a file must use the same order.
bool IsStoredBefore(const TensorEntry& a, const TensorEntry& b);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // see IsStoredBefore
  std::map<std::string, std::string> metadata;
};

// The key of SafetensorsHeader::metadata, which no tensor may have as its name.
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

// In generations, entries of bytes are one-dimensional U8 tensors under this
// prefix, so that any reader of safetensors can see them.
inline constexpr std::string_view kBytesPrefix = "gavel.bytes/";

// Length and JSON, padded so that the data starts at a multiple of 64, as
// LibTorch aligns memory.
// INVALID_ARGUMENT: over kSafetensorsHeaderBytesMax.
absl::StatusOr<std::string> EncodeSafetensorsHeader(
    const SafetensorsHeader& header);

// The length in the first kSafetensorsLengthBytes of a file of
// `file_size_bytes`. DATA_LOSS when it is over the limit or the file.
absl::StatusOr<uint64_t> DecodeSafetensorsHeaderLength(
    std::string_view bytes, uint64_t file_size_bytes);

// `json` is the header without its length. Checks all requirements of the
// layout: known dtypes, sizes equal to dtype times shape, and data_offsets that
// cover `data_size_bytes` without gap or overlap. DATA_LOSS says which one is
// broken.
absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(
    std::string_view json, uint64_t data_size_bytes);

struct TensorChecksum {
  std::string name;
  // XXH3-64 of dtype, shape and data: equal tensors, equal checksums.
  uint64_t checksum = 0;
  friend bool operator==(const TensorChecksum&,
                         const TensorChecksum&) = default;
};

struct ShardSummary {
  uint64_t size_bytes = 0;
  // See ShardChecksum.
  uint64_t checksum = 0;
  std::vector<TensorChecksum> tensors;  // sorted by name
  friend bool operator==(const ShardSummary&, const ShardSummary&) = default;
};

// The bytes that ShardSummary::checksum covers, by the format version of the
// manifest.
enum class ShardChecksum {
  kAllBytes,          // version 1: XXH3-64 of the file
  kHeaderAndTensors,  // of its header and, in the order in which they are
                      // stored, the tensors' checksums: nothing is read twice
};

// Where everything lies in a shard's file.
struct ShardLayout {
  SafetensorsHeader header;  // tensors in the order in which they are stored
  std::string encoded_header;
  uint64_t size_bytes = 0;

  // The place of header.tensors[i].
  uint64_t TensorOffset(size_t i) const {
    return encoded_header.size() + header.tensors[i].begin;
  }
};

// Stores tensors by falling element size, so that each is aligned, and by name.
// `tensors` have names, dtypes and shapes; their places are set here.
// INVALID_ARGUMENT as EncodeSafetensorsHeader.
absl::StatusOr<ShardLayout> LayOutShard(
    std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata);

// Summarises the file in memory at `file`, by kHeaderAndTensors.
ShardSummary SummarizeShard(const ShardLayout& layout, const char* file);

// Decodes the file of `size_bytes` in memory at `file`. DATA_LOSS if it is not
// in the layout.
absl::StatusOr<ShardLayout> DecodeShardLayout(const char* file,
                                              uint64_t size_bytes);

// As SummarizeFile, of a file that comes piece by piece: no more of it is kept
// than its header. Not thread-safe.
class ShardSummer {
 public:
  ShardSummer(uint64_t size_bytes, ShardChecksum kind);
  ~ShardSummer();
  // The next bytes. DATA_LOSS: not in the layout, or more than `size_bytes`.
  absl::Status Add(std::string_view data);
  // After all of them.
  absl::StatusOr<ShardSummary> Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same summary as the one that is written, of whatever lies at `file`; the
// caller compares the two. DATA_LOSS when it is not in the layout.
absl::StatusOr<ShardSummary> SummarizeFile(const char* file,
                                           uint64_t size_bytes,
                                           ShardChecksum kind);

// The tensors of one model in safetensors files that any program has written:
// one file, or shards with an index (model.safetensors.index.json). Only names,
// types and shapes are read at first, and each tensor's data when it is asked
// for, so that a model takes no more memory than its largest tensor.
//
// Called by iterator/training.cc. Not thread-safe. Nothing in the files is
// trusted.

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
