#include "coordinator/cli/doctor/doctor_checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/generation_directory.h"
#include "runtime/generation/manifest.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

double Seconds(const statx_timestamp& time) {
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

absl::StatusOr<Manifest> ReadManifest(const std::string& path) {
  const std::string file = StrCat(path, "/", kManifestFileName);
  GAVEL_ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile(FileSystem::Posix(), file, kManifestSizeBytesMax));
  absl::StatusOr<Manifest> manifest = DecodeManifest(text);
  GAVEL_RETURN_IF_ERROR(Annotate(manifest.status(), file));
  return manifest;
}

// Entries of iterator/loop_position.h.
constexpr std::string_view kBegunAnew[] = {"gavel/loop/batches",
                                           "gavel/loop/random"};

}  // namespace

std::vector<DoctorCheckpoint> ListCheckpoints(const std::string& directory) {
  std::vector<DoctorCheckpoint> found;
  const absl::StatusOr<Attempts> attempts =
      ListAttempts(FileSystem::Posix(), directory);
  if (!attempts.ok()) return found;  // nothing is there yet
  for (const Attempt& attempt : attempts->committed) {
    found.push_back(
        {attempt.generation, StrCat(directory, "/", AttemptName(attempt))});
  }
  return found;
}

std::optional<DoctorCheckpoint> LastCheckpoint(const std::string& directory) {
  std::vector<DoctorCheckpoint> found = ListCheckpoints(directory);
  if (found.empty()) return std::nullopt;
  return found.back();
}

absl::Status VerifyCheckpoint(const std::string& path) {
  FileSystem& disk = FileSystem::Posix();
  const absl::StatusOr<Manifest> manifest = ReadManifest(path);
  if (!manifest.ok()) return manifest.status();
  for (size_t i = 0; i < manifest->shards.size(); ++i) {
    const std::string shard = StrCat(path, "/", ShardFileName(i));
    const uint64_t size_bytes = manifest->shards[i].size_bytes;
    const auto opened = disk.OpenFile(shard, FileAccess::kBuffered);
    if (opened.ok() && (*opened)->size_bytes() == size_bytes) continue;
    return absl::DataLossError(
        StrCat(shard, ": ",
               opened.ok() ? StrCat((*opened)->size_bytes(), " bytes, not the ",
                                    size_bytes, " bytes of its manifest")
                           : std::string(opened.status().message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> DifferingState(
    const std::string& path, const std::string& other_path) {
  GAVEL_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(path));
  GAVEL_ASSIGN_OR_RETURN(const Manifest other, ReadManifest(other_path));
  std::vector<std::string> names = DifferingTensors(manifest, other);
  std::erase_if(names, [](const std::string& name) {
    return std::ranges::any_of(kBegunAnew, [&](std::string_view one) {
      return std::string_view(name).ends_with(one);
    });
  });
  return names;
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
  const std::string file = StrCat(path, "/", kManifestFileName);
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_BTIME, &folder) != 0 ||
      statx(AT_FDCWD, file.c_str(), 0, STATX_MTIME, &manifest) != 0 ||
      (folder.stx_mask & STATX_BTIME) == 0) {
    return std::nullopt;
  }
  return std::max(0.0, Seconds(manifest.stx_mtime) - Seconds(folder.stx_btime));
}

}  // namespace gavel
