#include "models/image_source.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "core/status.h"
#include "core/text.h"
#include "models/data_file.h"

namespace gavel::models {
namespace {

namespace fs = std::filesystem;

struct ImageFile {
  std::string path;
  int64_t label = 0;
};

bool IsJpegName(const fs::path& path) {
  const std::string extension =
      absl::AsciiStrToLower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg";
}

// What is directly in the folder, by name.
absl::StatusOr<std::vector<fs::path>> EntriesOf(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(
        StrCat(folder, ": no such folder; give one with JPEG images"));
  }
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) {
    return absl::FailedPreconditionError(
        StrCat(folder, ": can't be listed: ", error.message()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

absl::Status AppendImages(const std::string& folder, int64_t label,
                          std::vector<ImageFile>* files) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<fs::path> entries,
                         EntriesOf(folder));
  const size_t before = files->size();
  for (const fs::path& path : entries) {
    if (IsJpegName(path)) files->push_back({path.string(), label});
  }
  if (files->size() > before) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(folder, ": no image (.jpg, .jpeg) in it; add some, or remove it"));
}

absl::StatusOr<RgbImage> ReadJpeg(const std::string& path) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadDataFile(path, "was it removed?"));
  absl::StatusOr<RgbImage> image = DecodeJpeg(bytes);
  if (image.ok()) return image;
  return absl::InvalidArgumentError(
      StrCat(path, ": ", std::string(image.status().message())));
}

// Files, and which of them are known to be broken. Thread-safe.
class ImageFiles {
 public:
  ImageFiles(std::vector<ImageFile> files, WarnFunction warn)
      : files_(std::move(files)), warn_(std::move(warn)) {}

  // Finds one that is whole, for the case that no other is any more.
  absl::Status FindSpare() {
    absl::Status first;
    for (size_t i = 0; i < files_.size(); ++i) {
      absl::StatusOr<RgbImage> image = ReadJpeg(files_[i].path);
      if (image.ok()) {
        spare_ = {*std::move(image), files_[i].label};
        return absl::OkStatus();
      }
      if (i == 0) first = image.status();
    }
    return absl::InvalidArgumentError(
        StrCat(std::string(first.message()), "; none of the ", files_.size(),
               " images can be read; fetch them again"));
  }

  LabelledImage Read(size_t index) {
    for (size_t i = 0; i < files_.size(); ++i) {
      const size_t at = (index + i) % files_.size();
      if (IsBroken(at)) continue;
      absl::StatusOr<RgbImage> image = ReadJpeg(files_[at].path);
      if (image.ok()) return {*std::move(image), files_[at].label};
      SetBroken(at, std::string(image.status().message()));
    }
    return spare_;
  }

  int64_t broken_count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(broken_.size());
  }

 private:
  bool IsBroken(size_t index) {
    const std::lock_guard lock(mutex_);
    return broken_.contains(index);
  }
  void SetBroken(size_t index, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!broken_.insert(index).second || !warn_) return;
    warn_(StrCat(why, "; training goes on without it"));
  }

  const std::vector<ImageFile> files_;
  const WarnFunction warn_;
  LabelledImage spare_;
  std::mutex mutex_;
  std::set<size_t> broken_;
};

absl::StatusOr<ImageSource> SourceOf(std::vector<ImageFile> files,
                                     std::vector<std::string> classes,
                                     WarnFunction warn) {
  const size_t size = files.size();
  const auto shared =
      std::make_shared<ImageFiles>(std::move(files), std::move(warn));
  GAVEL_RETURN_IF_ERROR(shared->FindSpare());
  return ImageSource{size, std::move(classes),
                     [shared](size_t index) { return shared->Read(index); },
                     [shared] { return shared->broken_count(); }};
}

}  // namespace

absl::StatusOr<ImageSource> OpenImageFolders(const std::string& folder,
                                             WarnFunction warn) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<fs::path> entries,
                         EntriesOf(folder));
  std::vector<ImageFile> files;
  std::vector<std::string> classes;
  for (const fs::path& path : entries) {
    std::error_code error;
    if (!fs::is_directory(path, error)) continue;
    GAVEL_RETURN_IF_ERROR(AppendImages(
        path.string(), static_cast<int64_t>(classes.size()), &files));
    classes.push_back(path.filename().string());
  }
  if (classes.empty()) {
    return absl::InvalidArgumentError(
        StrCat(folder,
               ": no folder in it; put the images of each class into "
               "a folder of their own"));
  }
  return SourceOf(std::move(files), std::move(classes), std::move(warn));
}

absl::StatusOr<ImageSource> OpenImageFolder(const std::string& folder,
                                            WarnFunction warn) {
  std::vector<ImageFile> files;
  GAVEL_RETURN_IF_ERROR(AppendImages(folder, 0, &files));
  return SourceOf(std::move(files), {folder}, std::move(warn));
}

}  // namespace gavel::models
