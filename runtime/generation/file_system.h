// The few file operations that checkpoints need, as an interface:
// GenerationStore uses it for all its files, so that tests can fail, shorten or
// cut off any call.
//
// Thread-safety: several threads may use a FileSystem or a ReadableFile at the
// same time; a WritableFile is used by one thread at a time.
// Status codes are those of absl::ErrnoToStatus (NOT_FOUND, ALREADY_EXISTS,
// PERMISSION_DENIED, RESOURCE_EXHAUSTED for a full disk or quota, ...). Every
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

// How a file is accessed. kDirect bypasses the page cache (O_DIRECT) if the
// file system supports that; otherwise it is the same as kBuffered. With
// kDirect, the memory addresses, sizes and offsets of Append and ReadAligned
// are multiples of kDirectAlignmentBytes.
enum class FileAccess { kBuffered, kDirect };

// Satisfies all disks in use, and is the size of a page.
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
  // Writes all of `data` or returns an error; after an error, part of it may be
  // written.
  virtual absl::Status Append(std::string_view data) = 0;
  // Cuts off the padding that was appended to fill the last aligned block.
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
  // Fills data[0, size). OUT_OF_RANGE if the file ends before that.
  virtual absl::Status Read(uint64_t offset, char* data, size_t size) = 0;
  // Like Read, but also overwrites the memory up to the next multiple of
  // kDirectAlignmentBytes.
  virtual absl::Status ReadAligned(uint64_t offset, char* data, size_t size) {
    return Read(offset, data, size);
  }
  // Maps the file into memory. All processes of this machine share its pages; a
  // write to the memory stays in this process. Only for a file that nobody
  // changes and that was read with kBuffered before, since a disk error raises
  // a signal here. UNIMPLEMENTED: the file can only be read.
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

  // The real file system. It is never destroyed.
  static FileSystem& Posix();

  // Creates a file. ALREADY_EXISTS if there is a file of that name.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(
      const std::string& path, FileAccess access) = 0;
  // Opens an existing file to append to it, as kBuffered, for example to
  // continue an interrupted transfer. NOT_FOUND if there is no such file. Does
  // not follow a symbolic link.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> AppendFile(
      const std::string& path) = 0;
  // Opens regular files only, and follows no symbolic link in the last part.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(
      const std::string& path, FileAccess access) = 0;
  // Lists a directory without "." and "..", sorted by name.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) = 0;
  virtual absl::Status CreateDirectory(const std::string& path) = 0;
  // Makes the names in a directory durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // Gives the file a second name (a hard link). Not every file system supports
  // that.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
};

// Reads a whole file. OUT_OF_RANGE if it has more than `size_bytes_max` bytes.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& file_system,
                                          const std::string& path,
                                          uint64_t size_bytes_max);

// Writes a small new file, syncs and closes it.
absl::Status WriteTextFile(FileSystem& file_system, const std::string& path,
                           std::string_view text);

}  // namespace gavel

#endif  // GAVEL_RUNTIME_GENERATION_FILE_SYSTEM_H_
