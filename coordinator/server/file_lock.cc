#include "coordinator/server/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "absl/status/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// What the holder wrote, 0 when it has not yet.
long HolderPid(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t bytes = pread(descriptor, text.data(), text.size() - 1, 0);
  return bytes > 0 ? std::strtol(text.data(), nullptr, 10) : 0;
}

// Only informs whoever is refused, so that a failure is no error.
void WritePid(int descriptor) {
  const std::string pid = StrCat(getpid(), "\n");
  if (ftruncate(descriptor, 0) != 0) return;
  [[maybe_unused]] const ssize_t written =
      pwrite(descriptor, pid.data(), pid.size(), 0);
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  const int descriptor =
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("lock file ", path)));
  }
  FileLock lock(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return absl::ErrnoToStatus(errno, ToAbsl(StrCat("lock file ", path)));
    }
    return absl::AlreadyExistsError(
        StrCat(path, " is held by process ", HolderPid(descriptor)));
  }
  WritePid(descriptor);
  return lock;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace gavel
