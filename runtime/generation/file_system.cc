#include "runtime/generation/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr mode_t kFileMode = 0644;
constexpr mode_t kDirectoryMode = 0755;
// write() and read() take at most 2 GiB; shorter calls are also interruptible.
constexpr size_t kTransferBytesMax = size_t{256} << 20;
// The page cache takes a file at once and leaves the work to one long sync,
// during which a slow disk would show no progress.
constexpr uint64_t kUnsyncedBytesMax = uint64_t{32} << 20;

absl::Status ErrnoStatus(int error, std::string_view what,
                         const std::string& path) {
  absl::Status status = absl::ErrnoToStatus(error, StrCat(what, " ", path));
  if (error != ENOSPC && error != EDQUOT) return status;
  return absl::Status(
      status.code(),
      StrCat(status.message(),
             "; free some space or choose another checkpoint directory"));
}

// Owns the descriptor of the file at a path, which its errors name.
class PathDescriptor {
 public:
  PathDescriptor(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  PathDescriptor(const PathDescriptor&) = delete;
  PathDescriptor& operator=(const PathDescriptor&) = delete;
  ~PathDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // close() is not repeated after an error: the descriptor is gone either way.
  absl::Status Close() {
    int result = ::close(std::exchange(fd_, -1));
    if (result == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "cannot close", path_);
  }
  absl::Status Sync() const {
    if (::fsync(fd_) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "cannot fsync", path_);
  }
  absl::Status SyncData() const {
    if (::fdatasync(fd_) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "cannot fdatasync", path_);
  }
  bool is_direct() const {
    const int flags = ::fcntl(fd_, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != 0;
  }
  // From here on through the page cache. False: it was so already.
  bool StopDirect() const {
    return is_direct() &&
           ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_DIRECT) == 0;
  }

 private:
  int fd_;
  std::string path_;
};

int OpenRetrying(const std::string& path, int flags) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, kFileMode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Some file systems (tmpfs) refuse O_DIRECT when a file is opened, with EINVAL.
// O_CREAT may have made the file by then, so O_DIRECT is set afterwards.
int OpenFor(FileAccess access, const std::string& path, int flags) {
  const int fd = OpenRetrying(path, flags);
  if (fd >= 0 && access == FileAccess::kDirect) {
    // If the file system refuses this, the file stays buffered.
    (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_DIRECT);
  }
  return fd;
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(int fd, const std::string& path) : file_(fd, path) {}

  absl::Status Append(std::string_view data) override {
    while (!data.empty()) {
      ssize_t written = ::write(file_.fd(), data.data(),
                                std::min(data.size(), kTransferBytesMax));
      if (written < 0 && errno == EINTR) continue;
      // Refused only now, or a short write has left the alignment.
      if (written < 0 && errno == EINVAL && file_.StopDirect()) continue;
      if (written <= 0) {
        return ErrnoStatus(written < 0 ? errno : EIO, "cannot write",
                           file_.path());
      }
      data.remove_prefix(static_cast<size_t>(written));
      unsynced_bytes_ += static_cast<uint64_t>(written);
    }
    if (unsynced_bytes_ < kUnsyncedBytesMax) return absl::OkStatus();
    unsynced_bytes_ = 0;
    return file_.is_direct() ? absl::OkStatus() : file_.SyncData();
  }
  absl::Status Truncate(uint64_t size_bytes) override {
    if (::ftruncate(file_.fd(), static_cast<off_t>(size_bytes)) == 0) {
      return absl::OkStatus();
    }
    return ErrnoStatus(errno, "cannot truncate", file_.path());
  }
  absl::Status Sync() override { return file_.SyncData(); }
  absl::Status Close() override { return file_.Close(); }

 private:
  PathDescriptor file_;
  uint64_t unsynced_bytes_ = 0;
};

class PosixReadableFile : public ReadableFile {
 public:
  PosixReadableFile(int fd, const std::string& path, uint64_t size_bytes)
      : file_(fd, path), size_bytes_(size_bytes) {}

  uint64_t size_bytes() const override { return size_bytes_; }

  absl::Status Read(uint64_t offset, char* data, size_t size) override {
    return ReadUpTo(size, offset, data, size);
  }
  absl::Status ReadAligned(uint64_t offset, char* data, size_t size) override {
    return ReadUpTo(AlignUp(size), offset, data, size);
  }
  absl::StatusOr<std::shared_ptr<char>> Map() override {
    const size_t size = size_bytes_;
    void* const memory = size == 0
                             ? MAP_FAILED
                             : ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE, file_.fd(), 0);
    if (memory == MAP_FAILED) return ReadableFile::Map();
    return std::shared_ptr<char>(static_cast<char*>(memory),
                                 [size](char* at) { ::munmap(at, size); });
  }

 private:
  // Reads `size` bytes, asking for as many as `room`.
  absl::Status ReadUpTo(size_t room, uint64_t offset, char* data, size_t size) {
    while (size > 0) {
      ssize_t got = ::pread(file_.fd(), data, std::min(room, kTransferBytesMax),
                            static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EINVAL && file_.StopDirect()) continue;
      if (got < 0) return ErrnoStatus(errno, "cannot read", file_.path());
      if (got == 0) {
        return absl::OutOfRangeError(
            StrCat(file_.path(), " ends at byte ", offset));
      }
      data += got;
      size -= std::min(size, static_cast<size_t>(got));
      room -= static_cast<size_t>(got);
      offset += static_cast<uint64_t>(got);
    }
    return absl::OkStatus();
  }

  PathDescriptor file_;
  uint64_t size_bytes_;
};

bool IsDirectory(const std::string& path, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(
      const std::string& path, FileAccess access) override {
    int fd = OpenFor(access, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (fd < 0) return ErrnoStatus(errno, "cannot create", path);
    return std::make_unique<PosixWritableFile>(fd, path);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> AppendFile(
      const std::string& path) override {
    int fd = OpenRetrying(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return ErrnoStatus(errno, "cannot open", path);
    return std::make_unique<PosixWritableFile>(fd, path);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(
      const std::string& path, FileAccess access) override {
    // O_NONBLOCK: a FIFO in the place of a shard must not hang the program.
    int fd = OpenFor(access, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return ErrnoStatus(errno, "cannot open", path);
    struct stat info;
    int error = ::fstat(fd, &info) == 0 ? 0 : errno;
    if (error == 0 && !S_ISREG(info.st_mode)) error = EINVAL;
    if (error != 0) {
      ::close(fd);
      return ErrnoStatus(error, "not a readable regular file:", path);
    }
    return std::make_unique<PosixReadableFile>(
        fd, path, static_cast<uint64_t>(info.st_size));
  }

  absl::StatusOr<std::vector<DirectoryEntry>> List(
      const std::string& path) override {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return ErrnoStatus(errno, "cannot list", path);
    std::vector<DirectoryEntry> entries;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      std::string name = entry->d_name;
      if (name != "." && name != "..") {
        bool is_directory = IsDirectory(StrCat(path, "/", name), *entry);
        entries.push_back({std::move(name), is_directory});
      }
      errno = 0;
    }
    int error = errno;
    ::closedir(directory);
    if (error != 0) return ErrnoStatus(error, "cannot list", path);
    std::ranges::sort(entries, {}, &DirectoryEntry::name);
    return entries;
  }

  absl::Status CreateDirectory(const std::string& path) override {
    return Check(::mkdir(path.c_str(), kDirectoryMode),
                 "cannot create directory", path);
  }

  absl::Status SyncDirectory(const std::string& path) override {
    int fd = OpenRetrying(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return ErrnoStatus(errno, "cannot open directory", path);
    return PathDescriptor(fd, path).Sync();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Check(::rename(from.c_str(), to.c_str()),
                 StrCat("cannot rename to ", to, ":"), from);
  }

  absl::Status Link(const std::string& from, const std::string& to) override {
    return Check(::link(from.c_str(), to.c_str()),
                 StrCat("cannot link to ", to, ":"), from);
  }

  absl::Status RemoveFile(const std::string& path) override {
    return Check(::unlink(path.c_str()), "cannot remove", path);
  }

  absl::Status RemoveDirectory(const std::string& path) override {
    return Check(::rmdir(path.c_str()), "cannot remove directory", path);
  }

 private:
  static absl::Status Check(int result, std::string_view what,
                            const std::string& path) {
    if (result == 0) return absl::OkStatus();
    return ErrnoStatus(errno, what, path);
  }
};

}  // namespace

FileSystem& FileSystem::Posix() {
  static PosixFileSystem file_system;
  return file_system;
}

absl::StatusOr<std::string> ReadWholeFile(FileSystem& file_system,
                                          const std::string& path,
                                          uint64_t size_bytes_max) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file,
                         file_system.OpenFile(path, FileAccess::kBuffered));
  const uint64_t size = file->size_bytes();
  if (size > size_bytes_max) {
    return absl::OutOfRangeError(StrCat(
        path, " has ", size, " bytes, more than the limit ", size_bytes_max));
  }
  std::string contents(size, '\0');
  GAVEL_RETURN_IF_ERROR(file->Read(0, contents.data(), contents.size()));
  return contents;
}

absl::Status WriteTextFile(FileSystem& file_system, const std::string& path,
                           std::string_view text) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                         file_system.CreateFile(path, FileAccess::kBuffered));
  GAVEL_RETURN_IF_ERROR(file->Append(text));
  GAVEL_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

}  // namespace gavel
