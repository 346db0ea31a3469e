#include "coordinator/cli/doctor_checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_format.h"
#include "coordinator/cli/files.h"
#include "coordinator/cli/json.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;
constexpr char kManifest[] = "manifest.json";
constexpr size_t kManifestBytesMax = 256 << 20;

// "generation-...", or "generation-....1" after a failed attempt.
std::optional<DoctorCheckpoint> AsCheckpoint(const fs::path& path) {
  std::string name = path.filename().string();
  name = name.substr(0, name.find('.'));
  const std::optional<Generation> generation = ParseGenerationName(name);
  std::error_code error;
  if (!generation || !fs::exists(path / kManifest, error)) return std::nullopt;
  return DoctorCheckpoint{*generation, path.string()};
}

absl::Status VerifyShard(const fs::path& folder, const Json& shard) {
  const Json file = shard.is_object() ? shard.value("file", Json()) : Json();
  const Json size =
      shard.is_object() ? shard.value("size_bytes", Json()) : Json();
  if (!file.is_string() || !size.is_number_unsigned()) {
    return absl::DataLossError(StrCat(folder.string(), "/", kManifest,
                                      ": a shard without file or size"));
  }
  const fs::path path = folder / fs::path(file.get<std::string>()).filename();
  std::error_code error;
  const uint64_t found = fs::file_size(path, error);
  if (!error && found == size.get<uint64_t>()) return absl::OkStatus();
  return absl::DataLossError(StrCat(
      path.string(), ": ", error ? error.message() : StrCat(found, " bytes"),
      ", not the ", size.get<uint64_t>(), " bytes of its manifest"));
}

double Seconds(const statx_timestamp& time) {
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

std::vector<DoctorCheckpoint> ListCheckpoints(const std::string& directory) {
  std::vector<DoctorCheckpoint> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end; entry.increment(error)) {
    if (auto one = AsCheckpoint(entry->path())) found.push_back(*one);
  }
  std::ranges::sort(found, {}, &DoctorCheckpoint::generation);
  return found;
}

std::optional<DoctorCheckpoint> LastCheckpoint(const std::string& directory) {
  std::vector<DoctorCheckpoint> found = ListCheckpoints(directory);
  if (found.empty()) return std::nullopt;
  return found.back();
}

absl::Status VerifyCheckpoint(const std::string& path) {
  const std::string manifest = StrCat(path, "/", kManifest);
  GAVEL_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(manifest, kManifestBytesMax));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Json body =
      json.is_object() ? json.value("body", Json::object()) : Json::object();
  const std::string dump = body.dump();
  const std::string checksum =
      absl::StrFormat("%016x", XXH3_64bits(dump.data(), dump.size()));
  if (!json.is_object() || json.value("xxh3", Json()) != checksum ||
      !body.is_object()) {
    return absl::DataLossError(StrCat(
        manifest, ": it was altered, or was not written by the runtime"));
  }
  for (const Json& shard : body.value("shards", Json::array())) {
    GAVEL_RETURN_IF_ERROR(VerifyShard(path, shard));
  }
  return absl::OkStatus();
}

uint64_t BytesIn(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const uint64_t size = entry->file_size(error);
    if (!error) bytes += size;
    error.clear();
  }
  return bytes;
}

std::optional<double> SaveTime_s(const std::string& path) {
  struct statx folder {};
  struct statx manifest {};
  const std::string file = StrCat(path, "/", kManifest);
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_BTIME, &folder) != 0 ||
      statx(AT_FDCWD, file.c_str(), 0, STATX_MTIME, &manifest) != 0 ||
      (folder.stx_mask & STATX_BTIME) == 0) {
    return std::nullopt;
  }
  return std::max(0.0, Seconds(manifest.stx_mtime) - Seconds(folder.stx_btime));
}

}  // namespace gavel
