#include "coordinator/server/access/rotating_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// Looked for by a reader, which does not know the writer's limits.
constexpr int kOldFilesMax = 1000;

std::string OldName(const std::string& path, int age) {
  return age == 0 ? path : StrCat(path, ".", age);
}

absl::StatusOr<Descriptor> OpenToAppend(const std::string& path) {
  Descriptor file(open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                       0600));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, ToAbsl(path));
  return file;
}

}  // namespace

absl::StatusOr<RotatingFile> RotatingFile::Open(const std::string& path,
                                                const RotationLimits& limits) {
  GAVEL_ASSIGN_OR_RETURN(Descriptor file, OpenToAppend(path));
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(path));
  }
  return RotatingFile(path, limits, std::move(file),
                      static_cast<uint64_t>(info.st_size));
}

bool RotatingFile::Append(std::string_view line) {
  if (size_ > 0 && size_ + line.size() > limits_.file_bytes) Rotate();
  const ssize_t written = write(file_.get(), line.data(), line.size());
  size_ += static_cast<uint64_t>(std::max<ssize_t>(written, 0));
  return written == static_cast<ssize_t>(line.size());
}

// What can't be renamed is written on to.
void RotatingFile::Rotate() {
  for (int age = limits_.old_files - 1; age >= 0; --age) {
    std::rename(OldName(path_, age).c_str(), OldName(path_, age + 1).c_str());
  }
  absl::StatusOr<RotatingFile> next = Open(path_, limits_);
  if (next.ok()) *this = *std::move(next);
}

std::vector<std::string> RotatedFiles(const std::string& path) {
  std::vector<std::string> paths;
  for (int age = 0; age < kOldFilesMax; ++age) {
    const std::string name = OldName(path, age);
    if (access(name.c_str(), F_OK) == 0) {
      paths.push_back(name);
    } else if (age > 0) {
      break;
    }
  }
  std::ranges::reverse(paths);
  return paths;
}

}  // namespace gavel
