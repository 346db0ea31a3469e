// Descriptors and files as the daemons and the runtime use them: the files that
// a process of ours owns, and those that the user of a command names.
#ifndef GAVEL_RUNTIME_FILES_FILES_H_
#define GAVEL_RUNTIME_FILES_FILES_H_

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

// An open file's descriptor, closed when it goes. Move-only; not thread-safe.
class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(other.Take()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return descriptor_; }  // below 0: not open
  void Close() {
    if (descriptor_ >= 0) close(Take());
  }
  // The caller closes it.
  int Take() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

// Makes a thread that waits in Receive return (an eventfd). Thread-safe.
class Waker {
 public:
  Waker();
  void Wake();   // one write(2); safe in a signal handler
  void Clear();  // by the waiting thread
  int descriptor() const { return descriptor_.get(); }

 private:
  const Descriptor descriptor_;
};

// The files and directories that a process of ours owns: a lock that lasts as
// long as its process, a directory in which nobody else can put files, and
// small files that are read and written whole.

// A lock on a file that lasts as long as its process, and that no child of it
// keeps: flock(2) on a side file that holds the owner's pid and a word that no
// other owner writes. The journal takes one, so that one state directory serves
// one coordinator. Move-only.
class FileLock {
 public:
  ~FileLock();
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;

  // Never waits. ALREADY_EXISTS when another open file holds it, naming the
  // path and the holder's pid; else what open(2) said.
  static absl::StatusOr<FileLock> Take(const std::string& path);

  // True if the file at the path says that this object was the last to take the
  // lock. False once the file was removed or replaced, or once another one took
  // the lock because the file system does not honour it. May be called by any
  // thread.
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

// A directory in which nobody else can put files in the place of ours: the
// coordinator's and the agent's own. Move-only; not thread-safe.
class PrivateDirectory {
 public:
  // Makes `given` and its missing parents with mode 0700; an existing directory
  // stays as it is. PERMISSION_DENIED names the directory and `flag`
  // ("--state"), by which another is chosen: it can't be made, belongs to
  // another user, others may write to it, or it is another user's symbolic
  // link.
  static absl::StatusOr<PrivateDirectory> Make(const std::string& given,
                                               std::string_view flag);

  const std::string& path() const { return path_; }  // absolute

  // A file in it, made when it is not there.
  absl::Status MakeFile(const std::string& name, mode_t mode) const;
  absl::Status SetMode(mode_t mode) const;

 private:
  PrivateDirectory(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;
  Descriptor descriptor_;
};

// Small files of ours, read and written whole. Stateless, thread-safe.

// Empty when it can't be read.
std::string ReadAll(const std::string& path);

// The permissions of a file that others may read, as far as the umask allows.
inline constexpr mode_t kSharedMode = 0666;

// Replaces the file's content by `text`, all or nothing; it is on disk when
// this returns. "PATH.new" is used for it. `mode`: by default for this user
// alone. An error has the system's message and the path.
absl::Status ReplaceFile(const std::string& path, std::string_view text,
                         mode_t mode = 0600);

// Reads and writes the files that the user names. Stateless, thread-safe.

// Errors name the file. NOT_FOUND: there is none; INVALID_ARGUMENT: longer than
// `bytes_max`, or no file.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max);
absl::Status WriteFile(const std::string& path, const std::string& text);
// With all of its parents; one that is there stays.
absl::Status MakeDirectory(const std::string& path);
// To be called before long work whose result WriteFile is to keep.
absl::Status CheckWritable(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_FILES_FILES_H_
