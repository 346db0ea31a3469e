// The few file operations that checkpoints need, as a seam: GenerationStore
// goes through it for everything, so that tests can fail, shorten or cut off
// any call.
//
// Thread-safety: a FileSystem may be used from several threads, and so may a
// file that is read; one that is written by one thread at a time.
// Status codes: those of absl::ErrnoToStatus (NOT_FOUND, ALREADY_EXISTS,
// PERMISSION_DENIED, RESOURCE_EXHAUSTED for a full disk or quota, ...); every
// message names the path.
#ifndef GAVEL_RUNTIME_GENERATION_FILE_SYSTEM_H_
#define GAVEL_RUNTIME_GENERATION_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

// How a file is accessed. kDirect goes past the page cache (O_DIRECT) where the
// file system can do that, else it is as kBuffered. Then memory, sizes and
// offsets of Append and ReadAligned are multiples of kDirectAlignmentBytes.
enum class FileAccess { kBuffered, kDirect };

// Enough for all disks in use, and a page.
inline constexpr uint64_t kDirectAlignmentBytes = 4096;

constexpr uint64_t AlignUp(uint64_t size_bytes) {
  return (size_bytes + kDirectAlignmentBytes - 1) / kDirectAlignmentBytes *
         kDirectAlignmentBytes;
}

// A new file that is written once from front to back. Destruction closes it
// without syncing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // All of `data` is written, or an error returned; then some of it may be.
  virtual absl::Status Append(std::string_view data) = 0;
  // Cuts off what was appended to fill up the last aligned block.
  virtual absl::Status Truncate(uint64_t size_bytes) = 0;
  // fdatasync: the data, and the size needed to read it. After a failure the
  // file's contents are undefined for good: the caller gives the file up and
  // never syncs it again.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size_bytes() const = 0;
  // Fills data[0, size). OUT_OF_RANGE when the file ends before.
  virtual absl::Status Read(uint64_t offset, char* data, size_t size) = 0;
  // As Read, and the memory up to the next multiple of kDirectAlignmentBytes
  // is overwritten, too.
  virtual absl::Status ReadAligned(uint64_t offset, char* data, size_t size) {
    return Read(offset, data, size);
  }
  // The file as memory, of which all processes of this machine share the pages;
  // what is written there stays in this process. For a file that nobody changes
  // and that was read as kBuffered before: an error of the disk is a signal
  // here. UNIMPLEMENTED: it can only be read.
  virtual absl::StatusOr<std::shared_ptr<char>> Map() {
    return absl::UnimplementedError("this file can't be mapped");
  }
};

struct DirectoryEntry {
  std::string name;
  // A real directory; false for a symbolic link to one.
  bool is_directory = false;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The real one; lives for ever.
  static FileSystem& Posix();

  // ALREADY_EXISTS when there is a file of that name.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(
      const std::string& path, FileAccess access) = 0;
  // An existing file, to be appended to, buffered: for what was cut off
  // half-way. NOT_FOUND when there is none; a symbolic link is not followed.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> AppendFile(
      const std::string& path) = 0;
  // Opens regular files only, and follows no symbolic link in the last part.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(
      const std::string& path, FileAccess access) = 0;
  // Without "." and "..", sorted by name.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) = 0;
  virtual absl::Status CreateDirectory(const std::string& path) = 0;
  // Makes the names in a directory durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // A second name for the same file. Not every file system has them.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
};

// Reads a whole file. OUT_OF_RANGE when it has more than `size_bytes_max`.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& file_system,
                                          const std::string& path,
                                          uint64_t size_bytes_max);

// Writes a small new file, syncs and closes it.
absl::Status WriteTextFile(FileSystem& file_system, const std::string& path,
                           std::string_view text);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_GENERATION_FILE_SYSTEM_H_
