// A lock on a file that lasts as long as its process, and that no child of it
// keeps: flock(2) on a side file that holds the owner's pid and a word that no
// other owner writes. The journal takes one, so that one state directory serves
// one coordinator. Move-only.
#ifndef GAVEL_RUNTIME_FILES_FILE_LOCK_H_
#define GAVEL_RUNTIME_FILES_FILE_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/descriptor.h"

namespace gavel {

class FileLock {
 public:
  ~FileLock();
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;

  // Never waits. ALREADY_EXISTS when another open file holds it, naming the
  // path and the holder's pid; else what open(2) said.
  static absl::StatusOr<FileLock> Take(const std::string& path);

  // What the path leads to says that this is still the last one that took it.
  // Not so once the file was removed or replaced, or another one took the lock
  // because the file system does not honour it. May be called by any thread.
  bool IsLast() const;

 private:
  FileLock(Descriptor descriptor, std::string path, std::string owner)
      : descriptor_(std::move(descriptor)),
        path_(std::move(path)),
        owner_(std::move(owner)) {}
  Descriptor descriptor_;
  std::string path_;
  std::string owner_;  // what the file said when this one had it
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_FILE_LOCK_H_
