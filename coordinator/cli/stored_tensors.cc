#include "coordinator/cli/stored_tensors.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/shard_layout.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
constexpr uint64_t kEntryBytesMax = uint64_t{256} << 20;
// As in runtime/checkpoint/snapshot.h, which needs LibTorch.
constexpr std::string_view kPartPrefix = "gavel.part/";

absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) {
  return FileSystem::Posix().OpenFile(path, FileAccess::kBuffered);
}

absl::StatusOr<StoredTensors> ReadHeader(ReadableFile& file,
                                         const std::string& path) {
  std::string length_bytes(std::min(kSafetensorsLengthBytes, file.size_bytes()),
                           '\0');
  GAVEL_RETURN_IF_ERROR(file.Read(0, length_bytes.data(), length_bytes.size()));
  GAVEL_ASSIGN_OR_RETURN(
      const uint64_t length,
      DecodeSafetensorsHeaderLength(length_bytes, file.size_bytes()));
  std::string json(length, '\0');
  GAVEL_RETURN_IF_ERROR(
      file.Read(kSafetensorsLengthBytes, json.data(), json.size()));
  const uint64_t data_begin = kSafetensorsLengthBytes + length;
  GAVEL_ASSIGN_OR_RETURN(
      SafetensorsHeader header,
      DecodeSafetensorsHeader(json, file.size_bytes() - data_begin));
  StoredTensors tensors;
  for (TensorEntry& entry : header.tensors) {
    const std::string name = entry.name;
    const uint64_t offset = data_begin + entry.begin;
    tensors[name] = {std::move(entry), path, offset};
  }
  return tensors;
}

// Calls `use` with one piece after another.
template <class Use>
absl::Status ForEachPiece(ReadableFile& file, uint64_t offset, uint64_t size,
                          Use use) {
  std::string buffer(std::min(kPieceBytes, size), '\0');
  for (uint64_t at = 0; at < size; at += buffer.size()) {
    const uint64_t piece = std::min<uint64_t>(buffer.size(), size - at);
    GAVEL_RETURN_IF_ERROR(file.Read(offset + at, buffer.data(), piece));
    GAVEL_RETURN_IF_ERROR(use(std::string_view(buffer).substr(0, piece)));
  }
  return absl::OkStatus();
}

absl::Status VerifyShard(const std::string& path, const ShardSummary& expected,
                         ShardChecksum kind) {
  GAVEL_ASSIGN_OR_RETURN(const auto file, Open(path));
  const absl::Status damaged = absl::DataLossError(
      StrCat(path,
             " is damaged: it is not what its manifest says; export or "
             "import an earlier generation"));
  if (file->size_bytes() != expected.size_bytes) return damaged;
  ShardSummer summer(expected.size_bytes, kind);
  const absl::Status read = ForEachPiece(
      *file, 0, expected.size_bytes,
      [&summer](std::string_view piece) { return summer.Add(piece); });
  if (absl::IsDataLoss(read)) return damaged;
  GAVEL_RETURN_IF_ERROR(read);
  const absl::StatusOr<ShardSummary> summary = summer.Finish();
  return summary.ok() && *summary == expected ? absl::OkStatus() : damaged;
}

absl::StatusOr<Attempt> NewestOf(const std::string& directory) {
  GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                         ListAttempts(FileSystem::Posix(), directory));
  if (!attempts.committed.empty()) return attempts.committed.back();
  return absl::NotFoundError(
      StrCat(directory,
             " has no committed checkpoint; give a job's checkpoint "
             "directory, or one generation in it"));
}

absl::Status ReadShards(StoredGeneration* generation) {
  for (size_t i = 0; i < generation->manifest.shards.size(); ++i) {
    const std::string path =
        StrCat(generation->folder(), "/", ShardFileName(i));
    GAVEL_RETURN_IF_ERROR(VerifyShard(path, generation->manifest.shards[i],
                                      generation->manifest.shard_checksum()));
    GAVEL_ASSIGN_OR_RETURN(StoredTensors tensors, ReadTensorFile(path));
    generation->tensors.merge(std::move(tensors));
  }
  return absl::OkStatus();
}

absl::Status SplitOffBytes(StoredGeneration* generation) {
  for (auto it = generation->tensors.begin();
       it != generation->tensors.end();) {
    const std::string_view name = it->first;
    if (!name.starts_with(kBytesPrefix)) {
      ++it;
      continue;
    }
    GAVEL_ASSIGN_OR_RETURN(
        generation->bytes[std::string(name.substr(kBytesPrefix.size()))],
        ReadTensorBytes(it->second, kEntryBytesMax));
    it = generation->tensors.erase(it);
  }
  return absl::OkStatus();
}

// The torch.cat of docs/iterator.md makes a whole of the parts.
absl::Status CheckWhole(const StoredGeneration& generation) {
  const auto part = generation.tensors.lower_bound(std::string(kPartPrefix));
  if (part == generation.tensors.end() ||
      !std::string_view(part->first).starts_with(kPartPrefix)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      StrCat(generation.folder(),
             " has tensors that are sharded over workers (", part->first,
             "), for which there is no export or import; let one worker save "
             "a checkpoint, and take that"));
}

// The file that is read last stays open.
class Sources {
 public:
  template <class Use>
  absl::Status Read(const TensorSource& source, Use use) {
    if (const auto* bytes = std::get_if<std::string>(&source.from)) {
      return use(std::string_view(*bytes));
    }
    const auto& stored = std::get<StoredTensor>(source.from);
    if (open_ == nullptr || path_ != stored.file) {
      GAVEL_ASSIGN_OR_RETURN(open_, Open(stored.file));
      path_ = stored.file;
    }
    return ForEachPiece(*open_, stored.offset, stored.size_bytes(), use);
  }

 private:
  std::string path_;
  std::unique_ptr<ReadableFile> open_;
};

}  // namespace

std::string KindOf(const TensorEntry& entry) {
  return StrCat(NameOfDtype(entry.dtype), " [",
                absl::StrJoin(entry.shape, ", "), "]");
}

absl::StatusOr<StoredTensors> ReadTensorFile(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const auto file, Open(path));
  absl::StatusOr<StoredTensors> tensors = ReadHeader(*file, path);
  if (!tensors.ok()) return Annotate(tensors.status(), path);
  return tensors;
}

absl::StatusOr<std::string> ReadTensorBytes(const StoredTensor& tensor,
                                            uint64_t size_bytes_max) {
  if (tensor.size_bytes() > size_bytes_max) {
    return absl::InvalidArgumentError(
        StrCat(tensor.file, ": '", tensor.entry.name, "' has ",
               tensor.size_bytes(), " bytes, more than ", size_bytes_max));
  }
  GAVEL_ASSIGN_OR_RETURN(const auto file, Open(tensor.file));
  std::string bytes(tensor.size_bytes(), '\0');
  GAVEL_RETURN_IF_ERROR(file->Read(tensor.offset, bytes.data(), bytes.size()));
  return bytes;
}

std::string StoredGeneration::folder() const {
  return StrCat(directory, "/", AttemptName(attempt));
}

const std::string* StoredGeneration::FindBytes(const std::string& name) const {
  const auto entry = bytes.find(name);
  return entry == bytes.end() ? nullptr : &entry->second;
}

absl::StatusOr<Manifest> ReadManifestOf(const std::string& directory,
                                        const Attempt& attempt) {
  const std::string file =
      StrCat(directory, "/", AttemptName(attempt), "/", kManifestFileName);
  GAVEL_ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile(FileSystem::Posix(), file, kManifestSizeBytesMax));
  absl::StatusOr<Manifest> manifest = DecodeManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), file);
  return manifest;
}

absl::StatusOr<StoredGeneration> OpenGeneration(const std::string& path) {
  StoredGeneration generation;
  // Without "/" at the end.
  const fs::path given = (fs::path(path) / "").lexically_normal().parent_path();
  const std::optional<Attempt> named =
      ParseAttemptName(given.filename().string());
  generation.directory =
      named ? (given.has_parent_path() ? given.parent_path().string() : ".")
            : path;
  if (named) {
    generation.attempt = *named;
  } else {
    GAVEL_ASSIGN_OR_RETURN(generation.attempt, NewestOf(path));
  }
  GAVEL_ASSIGN_OR_RETURN(
      generation.manifest,
      ReadManifestOf(generation.directory, generation.attempt));
  GAVEL_RETURN_IF_ERROR(ReadShards(&generation));
  GAVEL_RETURN_IF_ERROR(SplitOffBytes(&generation));
  GAVEL_RETURN_IF_ERROR(CheckWhole(generation));
  return generation;
}

absl::StatusOr<ShardSummary> WriteTensorFile(
    const std::string& path, const std::vector<TensorSource>& tensors) {
  std::vector<TensorEntry> entries;
  std::map<std::string, const TensorSource*> by_name;
  for (const TensorSource& tensor : tensors) {
    entries.push_back(tensor.entry);
    by_name[tensor.entry.name] = &tensor;
  }
  GAVEL_ASSIGN_OR_RETURN(const ShardLayout layout,
                         LayOutShard(std::move(entries), {{"format", "pt"}}));
  GAVEL_ASSIGN_OR_RETURN(const auto file, FileSystem::Posix().CreateFile(
                                              path, FileAccess::kBuffered));
  ShardSummer summer(layout.size_bytes, ShardChecksum::kHeaderAndTensors);
  const auto add = [&](std::string_view piece) {
    GAVEL_RETURN_IF_ERROR(summer.Add(piece));
    return file->Append(piece);
  };
  GAVEL_RETURN_IF_ERROR(add(layout.encoded_header));
  Sources sources;
  for (const TensorEntry& entry : layout.header.tensors) {
    GAVEL_RETURN_IF_ERROR(sources.Read(*by_name.at(entry.name), add));
  }
  GAVEL_RETURN_IF_ERROR(file->Sync());
  GAVEL_RETURN_IF_ERROR(file->Close());
  return summer.Finish();
}

}  // namespace gavel
