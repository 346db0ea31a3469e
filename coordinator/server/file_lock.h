// A lock on a file that lasts as long as its process: flock(2) on a side file
// that holds the owner's pid. The journal takes one, so that one state
// directory serves one coordinator. Move-only; not thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_FILE_LOCK_H_
#define GAVEL_COORDINATOR_SERVER_FILE_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gavel {

class FileLock {
 public:
  // Never waits. ALREADY_EXISTS when another open file holds it, naming the
  // path and the holder's pid; else what open(2) said.
  static absl::StatusOr<FileLock> Take(const std::string& path);

  FileLock(FileLock&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;  // O_CLOEXEC: children do not keep the lock
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_FILE_LOCK_H_
