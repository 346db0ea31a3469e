#include "runtime/generation/safetensors_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// Caches of downloaded models consist of links, which FileSystem refuses.
absl::StatusOr<std::string> Resolve(const std::string& path) {
  std::error_code error;
  std::string resolved = std::filesystem::canonical(path, error).string();
  if (!error) return resolved;
  return absl::NotFoundError(
      StrCat(path, " can't be opened: ", error.message(), "; give the path of",
             " a .safetensors file, an index, or the folder of one"));
}

absl::StatusOr<std::string> FindIn(const std::string& folder) {
  for (const std::string_view name : {kSingleFile, kIndexFile}) {
    const std::string path = StrCat(folder, "/", name);
    std::error_code none;
    if (std::filesystem::exists(path, none)) return path;
  }
  return absl::NotFoundError(StrCat(folder, " has neither ", kSingleFile,
                                    " nor ", kIndexFile,
                                    "; give the path of the file"));
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> DecodeSafetensorsIndex(
    std::string_view json) {
  const auto index = nlohmann::json::parse(json, nullptr,
                                           /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object()) {
    return absl::DataLossError(
        "it is not an index of safetensors files: it has no weight_map");
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) {
      return absl::DataLossError(
          StrCat("weight_map has no file name for '", name, "'"));
    }
    files[name] = file.get<std::string>();
  }
  return files;
}

absl::StatusOr<SafetensorsFiles> SafetensorsFiles::Open(
    FileSystem& file_system, const std::string& path) {
  std::string found = path;
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    GAVEL_ASSIGN_OR_RETURN(found, FindIn(path));
  }
  SafetensorsFiles files;
  if (std::string_view(found).ends_with(".json")) {
    GAVEL_RETURN_IF_ERROR(files.OpenShards(file_system, found));
  } else {
    GAVEL_RETURN_IF_ERROR(files.OpenFile(file_system, found));
  }
  return files;
}

absl::Status SafetensorsFiles::OpenShards(FileSystem& file_system,
                                          const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  GAVEL_ASSIGN_OR_RETURN(
      const std::string json,
      ReadWholeFile(file_system, resolved, kSafetensorsIndexBytesMax));
  const auto index = DecodeSafetensorsIndex(json);
  if (!index.ok()) return Annotate(index.status(), path);
  // The shards lie beside the index as it is named, not beside what a link
  // leads to.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::set<std::string> names;
  for (const auto& [tensor, file] : *index) names.insert(file);
  for (const std::string& name : names) {
    if (name.empty() || name == "." || name == ".." ||
        name.find('/') != std::string::npos) {
      return absl::InvalidArgumentError(
          StrCat(path, " names the shard '", name,
                 "', which is not a file of its own folder; put all shards "
                 "beside the index"));
    }
    GAVEL_RETURN_IF_ERROR(OpenFile(
        file_system, folder.empty() ? name : StrCat(folder, "/", name)));
  }
  for (const auto& [tensor, file] : *index) {
    const auto found = file_of_.find(tensor);
    if (found != file_of_.end() &&
        std::filesystem::path(files_[found->second].path).filename() == file) {
      continue;
    }
    return absl::DataLossError(
        StrCat(path, " says that '", tensor, "' is in ", file,
               ", which does not have it; fetch the model again"));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFiles::OpenFile(FileSystem& file_system,
                                        const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string resolved, Resolve(path));
  GAVEL_ASSIGN_OR_RETURN(std::shared_ptr<ReadableFile> file,
                         file_system.OpenFile(resolved, FileAccess::kBuffered));
  const uint64_t size_bytes = file->size_bytes();
  std::string bytes(kSafetensorsLengthBytes, '\0');
  if (size_bytes < kSafetensorsLengthBytes) {
    return absl::DataLossError(StrCat(path, " has ", size_bytes,
                                      " bytes, so it is no safetensors file"));
  }
  GAVEL_RETURN_IF_ERROR(file->Read(0, bytes.data(), bytes.size()));
  const absl::StatusOr<uint64_t> length =
      DecodeSafetensorsHeaderLength(bytes, size_bytes);
  if (!length.ok()) return Annotate(length.status(), path);
  bytes.assign(*length, '\0');
  GAVEL_RETURN_IF_ERROR(
      file->Read(kSafetensorsLengthBytes, bytes.data(), bytes.size()));
  const uint64_t data_offset = kSafetensorsLengthBytes + *length;
  absl::StatusOr<SafetensorsHeader> header =
      DecodeSafetensorsHeader(bytes, size_bytes - data_offset);
  if (!header.ok()) return Annotate(header.status(), path);
  for (TensorEntry& tensor : header->tensors) {
    const auto [place, is_new] = file_of_.emplace(tensor.name, files_.size());
    if (!is_new) {
      return absl::DataLossError(
          StrCat(path, " and ", files_[place->second].path, " both have '",
                 tensor.name, "'; fetch the model again"));
    }
    tensors_[tensor.name] = std::move(tensor);
  }
  files_.push_back({path, std::move(file), data_offset});
  return absl::OkStatus();
}

absl::Status SafetensorsFiles::Read(const TensorEntry& tensor,
                                    char* data) const {
  const File& file = files_[file_of_.at(tensor.name)];
  return file.file->Read(file.data_offset + tensor.begin, data,
                         tensor.end - tensor.begin);
}

}  // namespace gavel
