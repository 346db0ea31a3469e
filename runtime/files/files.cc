#include "runtime/files/files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <mutex>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "core/text.h"

namespace gavel {

Waker::Waker() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

// A full counter makes the write fail, and the wait returns all the same.
void Waker::Wake() {
  const int saved_errno = errno;  // of the code that a signal interrupted
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      write(descriptor_.get(), &one, sizeof(one));
  errno = saved_errno;
}

void Waker::Clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got =
      read(descriptor_.get(), &count, sizeof(count));
}

namespace {

// The text that the holder wrote; empty if it has not written yet.
std::string ReadOwner(int descriptor) {
  std::array<char, 64> text{};
  const ssize_t bytes = pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
}

// "PID WORD\n"; pids alone come again, and other machines have the same ones.
std::string MakeOwner() {
  std::random_device random;
  return StrCat(getpid(), " ", random(), "-", random(), "\n");
}

void WriteOwner(int descriptor) {
  const std::string owner = MakeOwner();
  if (ftruncate(descriptor, 0) != 0) return;
  [[maybe_unused]] const ssize_t written =
      pwrite(descriptor, owner.data(), owner.size(), 0);
}

// The descriptors of this process's locks. A child of fork(2) that runs on
// without exec would hold them after its parent's death, so it lets go of them.
// Children that exec close them then.
class HeldLocks {
 public:
  static HeldLocks& OfThisProcess() {
    static auto* const held = new HeldLocks;  // until the process ends
    return *held;
  }
  void Add(int descriptor) {
    const std::lock_guard lock(mutex_);
    descriptors_.push_back(descriptor);
  }
  void Close(Descriptor& descriptor) {
    const std::lock_guard lock(mutex_);
    std::erase(descriptors_, descriptor.get());
    descriptor.Close();
  }

 private:
  HeldLocks() {
    pthread_atfork([] { OfThisProcess().mutex_.lock(); },
                   [] { OfThisProcess().mutex_.unlock(); },
                   [] {
                     OfThisProcess().LetGo();
                     OfThisProcess().mutex_.unlock();
                   });
  }
  // The numbers stay open, as their owners close them.
  void LetGo() const {
    const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (const int descriptor : descriptors_) {
      dup3(nothing.get(), descriptor, O_CLOEXEC);
    }
  }

  std::mutex mutex_;
  std::vector<int> descriptors_;
};

}  // namespace

FileLock::~FileLock() {
  if (descriptor_.get() >= 0) HeldLocks::OfThisProcess().Close(descriptor_);
}

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  Descriptor descriptor(
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (descriptor.get() < 0) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("lock file ", path)));
  }
  if (flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return absl::ErrnoToStatus(errno, ToAbsl(StrCat("lock file ", path)));
    }
    return absl::AlreadyExistsError(
        StrCat(path, " is held by process ",
               std::strtol(ReadOwner(descriptor.get()).c_str(), nullptr, 10)));
  }
  HeldLocks::OfThisProcess().Add(descriptor.get());
  // On a full disk the old text stays. A later owner of the lock that finds
  // room changes it, and one that finds none cannot write a journal either.
  WriteOwner(descriptor.get());
  std::string owner = ReadOwner(descriptor.get());
  return FileLock(std::move(descriptor), path, std::move(owner));
}

// Needs no further descriptor: strangers' connections may have taken all.
bool FileLock::IsLast() const {
  struct stat taken {};
  struct stat there {};
  return fstat(descriptor_.get(), &taken) == 0 &&
         lstat(path_.c_str(), &there) == 0 && taken.st_dev == there.st_dev &&
         taken.st_ino == there.st_ino && ReadOwner(descriptor_.get()) == owner_;
}

namespace {

absl::Status DirectoryErrno(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(path));
}

}  // namespace

absl::StatusOr<PrivateDirectory> PrivateDirectory::Make(
    const std::string& given, std::string_view flag) {
  const auto refuse = [&](std::string_view why) {
    return absl::PermissionDeniedError(
        StrCat("directory ", given, " ", why, ", or name another with ", flag));
  };
  std::error_code error;
  std::string path =
      std::filesystem::absolute(given, error).lexically_normal().string();
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  const bool created =
      !error && std::filesystem::create_directories(path, error);
  // Root's and our own links are followed. Any other owner of a link can point
  // it to another place at any time.
  struct stat info {};
  if (!error && lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode) &&
      info.st_uid != geteuid() && info.st_uid != 0) {
    return refuse("is another user's symbolic link: remove it");
  }
  Descriptor descriptor(
      error ? -1 : open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0 || fstat(descriptor.get(), &info) != 0) {
    const int failed = error ? error.value() : errno;
    return refuse(StrCat("can't be used (",
                         std::generic_category().message(failed),
                         "): make room for it"));
  }
  if (info.st_uid != geteuid()) {
    return refuse(StrCat("belongs to user ", info.st_uid, ", not to ",
                         geteuid(), ": let its owner change or remove it"));
  }
  if (created && fchmod(descriptor.get(), 0700) != 0) {
    return DirectoryErrno(path);
  }
  if (!created && (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refuse("may be written by others: chmod go-w it");
  }
  return PrivateDirectory(std::move(path), std::move(descriptor));
}

absl::Status PrivateDirectory::MakeFile(const std::string& name,
                                        mode_t mode) const {
  const Descriptor file(openat(descriptor_.get(), name.c_str(),
                               O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                               mode));
  if (file.get() < 0) return DirectoryErrno(StrCat(path_, "/", name));
  return absl::OkStatus();
}

absl::Status PrivateDirectory::SetMode(mode_t mode) const {
  if (fchmod(descriptor_.get(), mode) != 0) return DirectoryErrno(path_);
  return absl::OkStatus();
}

namespace {

absl::Status TextFileErrno(const std::string& path) {
  return absl::ErrnoToStatus(errno, ToAbsl(StrCat(path, " can't be written")));
}

}  // namespace

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status ReplaceFile(const std::string& path, std::string_view text,
                         mode_t mode) {
  const std::string written = path + ".new";
  const Descriptor file(
      open(written.c_str(),
           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (file.get() < 0 ||
      write(file.get(), text.data(), text.size()) !=
          static_cast<ssize_t>(text.size()) ||
      fsync(file.get()) != 0) {
    return TextFileErrno(written);
  }
  if (std::rename(written.c_str(), path.c_str()) != 0) {
    return TextFileErrno(path);
  }
  // The new name, too.
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const Descriptor directory(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return TextFileErrno(folder);
  }
  return absl::OkStatus();
}

namespace fs = std::filesystem;

namespace {

std::string ReadAtMost(std::istream& file, size_t bytes_max) {
  constexpr size_t kChunk = size_t{1} << 20;
  std::string text;
  while (file && text.size() < bytes_max) {
    const size_t begin = text.size();
    const size_t wanted = std::min(kChunk, bytes_max - begin);
    text.resize(begin + wanted);
    file.read(text.data() + begin, static_cast<std::streamsize>(wanted));
    text.resize(begin + static_cast<size_t>(file.gcount()));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t bytes_max) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(StrCat(
        path, ": ",
        error ? error.message() : "no such file or directory; check the path"));
  }
  if (fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        StrCat(path, ": this is a directory; name a file in it"));
  }
  // A FIFO would wait for somebody who writes to it.
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::fifo || type == fs::file_type::socket ||
      type == fs::file_type::block) {
    return absl::InvalidArgumentError(
        StrCat(path, ": this is not a regular file; name one"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::PermissionDeniedError(
        StrCat(path, ": ", std::strerror(errno)));
  }
  std::string text = ReadAtMost(file, bytes_max + 1);
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(StrCat(path, ": longer than ", bytes_max,
                                             " bytes; is it the right file?"));
  }
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat(path, " can't be written: ", std::strerror(errno)));
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat(path, " can't be made: ", error.message()));
}

absl::Status CheckWritable(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        StrCat(path, ": this is a directory; name a file in it"));
  }
  const fs::path folder = fs::absolute(path, error).parent_path();
  const bool exists = fs::exists(path, error);
  if (access(exists ? path.c_str() : folder.c_str(), W_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      StrCat(path, " can't be written: ", std::strerror(errno),
             "; name another file"));
}

}  // namespace gavel
