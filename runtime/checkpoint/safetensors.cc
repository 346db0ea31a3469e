#include "runtime/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/device/torch_errors.h"

namespace gavel {
namespace {

struct DtypePair {
  at::ScalarType torch;
  Dtype stored;
};

constexpr DtypePair kDtypes[] = {
    {at::ScalarType::Double, Dtype::kF64},
    {at::ScalarType::Float, Dtype::kF32},
    {at::ScalarType::Half, Dtype::kF16},
    {at::ScalarType::BFloat16, Dtype::kBf16},
    {at::ScalarType::Float8_e5m2, Dtype::kF8E5m2},
    {at::ScalarType::Float8_e4m3fn, Dtype::kF8E4m3},
    {at::ScalarType::Long, Dtype::kI64},
    {at::ScalarType::Int, Dtype::kI32},
    {at::ScalarType::Short, Dtype::kI16},
    {at::ScalarType::Char, Dtype::kI8},
    {at::ScalarType::UInt64, Dtype::kU64},
    {at::ScalarType::UInt32, Dtype::kU32},
    {at::ScalarType::UInt16, Dtype::kU16},
    {at::ScalarType::Byte, Dtype::kU8},
    {at::ScalarType::Bool, Dtype::kBool},
    {at::ScalarType::ComplexFloat, Dtype::kC64},
};

absl::Status Refuse(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(
      StrCat("tensor '", name, "' cannot be checkpointed: ", what));
}

at::Tensor ViewOf(const TensorEntry& entry, char* data,
                  const std::shared_ptr<void>& owner) {
  const auto options = at::device(at::kCPU).dtype(TorchDtypeOf(entry.dtype));
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  return at::from_blob(
      data, entry.shape, [owner](void*) {}, options);
}

// Data that another program wrote need not be aligned for its dtype.
bool IsAligned(const char* data, Dtype dtype) {
  return reinterpret_cast<uintptr_t>(data) % SizeOfDtype(dtype) == 0;
}

}  // namespace

std::optional<Dtype> DtypeOf(at::ScalarType dtype) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.torch == dtype) return pair.stored;
  }
  return std::nullopt;
}

// Every Dtype is in the table.
at::ScalarType TorchDtypeOf(Dtype dtype) {
  for (const DtypePair& pair : kDtypes) {
    if (pair.stored == dtype) return pair.torch;
  }
  return at::ScalarType::Undefined;
}

absl::Status CheckStorable(std::string_view name, const at::Tensor& tensor) {
  if (name.empty() || name == kSafetensorsMetadataKey) {
    return Refuse(name, "this name is reserved; give it another");
  }
  if (!tensor.defined()) {
    return Refuse(name, "it is undefined; track it after it got a value");
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    return Refuse(name,
                  "only dense, unquantized tensors can be stored; track its "
                  "parts (indices and values) or its dense form");
  }
  if (!DtypeOf(tensor.scalar_type())) {
    return Refuse(name, StrCat("safetensors has no dtype for ",
                               c10::toString(tensor.scalar_type()),
                               tensor.is_complex()
                                   ? "; make it torch::kComplexFloat, or track "
                                     "torch::view_as_real of it"
                                   : "; convert it first"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Shard> DecodeShard(char* file, uint64_t size_bytes,
                                  std::shared_ptr<void> owner,
                                  ShardChecksum kind) {
  Shard shard;
  GAVEL_ASSIGN_OR_RETURN(shard.summary, SummarizeFile(file, size_bytes, kind));
  GAVEL_ASSIGN_OR_RETURN(ShardLayout layout,
                         DecodeShardLayout(file, size_bytes));
  absl::Status status = internal::CatchAsStatus("a restored tensor", [&] {
    for (size_t i = 0; i < layout.header.tensors.size(); ++i) {
      const TensorEntry& entry = layout.header.tensors[i];
      char* data = file + layout.TensorOffset(i);
      at::Tensor tensor = ViewOf(entry, data, owner);
      if (!IsAligned(data, entry.dtype)) tensor = tensor.clone();
      shard.tensors.emplace_back(entry.name, std::move(tensor));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  shard.metadata = std::move(layout.header.metadata);
  return shard;
}

namespace {

// The bytes of one read call; a multiple of kDirectAlignmentBytes.
constexpr uint64_t kReadBytesMax = uint64_t{8} << 20;

// Small: it is read for the page cache's sake.
constexpr uint64_t kMapReadBytesMax = uint64_t{1} << 20;

struct OpenShard {
  std::string path;
  std::unique_ptr<ReadableFile> file;
  uint64_t arena_offset = 0;
  std::atomic<size_t> unread_pieces{0};
  Shard shard;
};

struct Piece {
  size_t shard;
  uint64_t begin, end;  // in the file
};

absl::Status Damaged(const std::string& path, std::string_view why) {
  return absl::DataLossError(StrCat(path, " is damaged: ", why));
}

absl::Status Open(FileSystem& file_system, const ShardSummary& expected,
                  FileAccess access, OpenShard* shard) {
  GAVEL_ASSIGN_OR_RETURN(shard->file,
                         file_system.OpenFile(shard->path, access));
  const uint64_t size_bytes = shard->file->size_bytes();
  if (size_bytes == expected.size_bytes) return absl::OkStatus();
  return Damaged(shard->path,
                 StrCat("it has ", size_bytes, " bytes, its manifest says ",
                        expected.size_bytes));
}

std::vector<Piece> CutIntoPieces(std::vector<OpenShard>& shards) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < shards.size(); ++i) {
    const uint64_t size = shards[i].file->size_bytes();
    for (uint64_t begin = 0; begin < std::max<uint64_t>(size, 1);
         begin += kReadBytesMax) {
      pieces.push_back({i, begin, std::min(size, begin + kReadBytesMax)});
      ++shards[i].unread_pieces;
    }
  }
  return pieces;
}

// `data` keeps its memory.
absl::Status Verify(const ShardSummary& expected, ShardChecksum kind,
                    const std::shared_ptr<char>& data, OpenShard* open) {
  absl::StatusOr<Shard> shard =
      DecodeShard(data.get(), expected.size_bytes, data, kind);
  if (!shard.ok()) return Annotate(shard.status(), open->path);
  if (shard->summary != expected) {
    return Damaged(open->path, "its checksum differs from its manifest's");
  }
  open->shard = *std::move(shard);
  return absl::OkStatus();
}

// The last piece of a shard verifies it, while others are read on.
absl::Status ReadPiece(const Piece& piece, const Manifest& manifest,
                       const std::shared_ptr<ArenaBlock>& block,
                       OpenShard* open) {
  char* const to = block->data() + open->arena_offset + piece.begin;
  GAVEL_RETURN_IF_ERROR(
      open->file->ReadAligned(piece.begin, to, piece.end - piece.begin));
  if (--open->unread_pieces > 0) return absl::OkStatus();
  return Verify(
      manifest.shards[piece.shard], manifest.shard_checksum(),
      std::shared_ptr<char>(block, block->data() + open->arena_offset), open);
}

// First only into the page cache, so that an error of the disk is a Status.
absl::Status MapShard(const ShardSummary& expected, ShardChecksum kind,
                      OpenShard* open) {
  std::vector<char> piece(std::min(expected.size_bytes, kMapReadBytesMax));
  for (uint64_t begin = 0; begin < expected.size_bytes;
       begin += kMapReadBytesMax) {
    GAVEL_RETURN_IF_ERROR(open->file->Read(
        begin, piece.data(),
        std::min(kMapReadBytesMax, expected.size_bytes - begin)));
  }
  GAVEL_ASSIGN_OR_RETURN(const std::shared_ptr<char> data, open->file->Map());
  return Verify(expected, kind, data, open);
}

absl::StatusOr<std::vector<OpenShard>> OpenAll(FileSystem& file_system,
                                               const std::string& folder,
                                               const Manifest& manifest,
                                               FileAccess access) {
  std::vector<OpenShard> shards(manifest.shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].path = StrCat(folder, "/", ShardFileName(i));
    GAVEL_RETURN_IF_ERROR(
        Open(file_system, manifest.shards[i], access, &shards[i]));
  }
  return shards;
}

std::vector<NamedTensor> TensorsOf(std::vector<OpenShard>& shards) {
  std::vector<NamedTensor> tensors;
  for (OpenShard& open : shards) {
    std::move(open.shard.tensors.begin(), open.shard.tensors.end(),
              std::back_inserter(tensors));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ReadShards(FileSystem& file_system,
                                                    const std::string& folder,
                                                    const Manifest& manifest,
                                                    WorkerPool& pool,
                                                    Arena& arena) {
  GAVEL_ASSIGN_OR_RETURN(
      std::vector<OpenShard> shards,
      OpenAll(file_system, folder, manifest, FileAccess::kDirect));
  uint64_t size_bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].arena_offset = size_bytes;
    size_bytes += AlignUp(manifest.shards[i].size_bytes);
  }
  GAVEL_ASSIGN_OR_RETURN(const std::shared_ptr<ArenaBlock> block,
                         arena.Take(size_bytes));
  const std::vector<Piece> pieces = CutIntoPieces(shards);
  GAVEL_RETURN_IF_ERROR(pool.Run(pieces.size(), [&](size_t i) {
    return ReadPiece(pieces[i], manifest, block, &shards[pieces[i].shard]);
  }));
  return TensorsOf(shards);
}

absl::StatusOr<std::vector<NamedTensor>> MapShards(FileSystem& file_system,
                                                   const std::string& folder,
                                                   const Manifest& manifest,
                                                   WorkerPool& pool,
                                                   Arena& arena) {
  GAVEL_ASSIGN_OR_RETURN(
      std::vector<OpenShard> shards,
      OpenAll(file_system, folder, manifest, FileAccess::kBuffered));
  const absl::Status mapped = pool.Run(shards.size(), [&](size_t i) {
    return MapShard(manifest.shards[i], manifest.shard_checksum(), &shards[i]);
  });
  if (absl::IsUnimplemented(mapped)) {
    return ReadShards(file_system, folder, manifest, pool, arena);
  }
  GAVEL_RETURN_IF_ERROR(mapped);
  return TensorsOf(shards);
}

}  // namespace gavel
