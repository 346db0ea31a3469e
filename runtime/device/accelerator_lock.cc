#include "runtime/device/accelerator_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kUuidLengthMax = 64;
constexpr mode_t kRunDirectoryMode = 0700;
// Others may open it, to lock it; only the owner writes its pid.
constexpr mode_t kLockFileMode = 0644;

absl::Status CheckUuid(std::string_view uuid) {
  auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (!uuid.empty() && uuid.size() <= kUuidLengthMax &&
      std::all_of(uuid.begin(), uuid.end(), allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("accelerator id '", uuid,
             "' is not 1 to 64 of the characters A-Z a-z 0-9 _ -"));
}

// A directory in which somebody else could rename our lock files away would
// make the locks worthless.
absl::Status CheckRunDirectory(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, StrCat("run directory ", path));
  }
  bool owned = info.st_uid == ::geteuid() || info.st_uid == 0;
  bool writable = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  bool sticky = (info.st_mode & S_ISVTX) != 0;
  if (S_ISDIR(info.st_mode) && owned && (!writable || sticky)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      StrCat("run directory ", path,
             " must be a directory of root or of this user that others cannot "
             "write to, or with mode 1777; correct it (chmod 0700 or 1777), or "
             "choose another"));
}

absl::Status PrepareRunDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), kRunDirectoryMode) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno,
                               StrCat("cannot create run directory ", path));
  }
  return CheckRunDirectory(path);
}

// In a sticky directory the kernel refuses O_CREAT on another user's file
// (fs.protected_regular), so it is tried only when there is none.
int OpenLockFile(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = ::open(path.c_str(), O_RDWR | kFlags);
  if (fd < 0 && errno == ENOENT) {
    fd =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, kLockFileMode);
    if (fd < 0 && errno == EEXIST) fd = ::open(path.c_str(), O_RDWR | kFlags);
  }
  if (fd < 0 && errno == EACCES) fd = ::open(path.c_str(), O_RDONLY | kFlags);
  return fd;
}

// The pid of the flock on `fd`'s file by /proc/locks, or 0 when it is not
// listed (another pid namespace, another machine's).
long HolderByKernel(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return 0;
  std::ifstream locks("/proc/locks");
  std::string line;
  while (std::getline(locks, line)) {
    std::istringstream fields(line);
    std::string number, type, mode, access, file;
    long pid = 0;
    fields >> number >> type >> mode >> access >> pid >> file;
    unsigned int device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    if (type == "FLOCK" &&
        std::sscanf(file.c_str(), "%x:%x:%lu", &device_major, &device_minor,
                    &inode) == 3 &&
        inode == info.st_ino && device_major == major(info.st_dev) &&
        device_minor == minor(info.st_dev)) {
      return pid;
    }
  }
  return 0;
}

// What the holder wrote; stale when a holder of another user could not write.
long HolderByFile(int fd) {
  char text[24] = {};
  if (::pread(fd, text, sizeof(text) - 1, 0) <= 0) return 0;
  return std::strtol(text, nullptr, 10);
}

absl::Status Held(int fd, std::string_view uuid, const std::string& path) {
  long pid = HolderByKernel(fd);
  if (pid <= 0) pid = HolderByFile(fd);
  std::string holder =
      pid > 0 ? StrCat("process ", pid) : std::string("an unknown process");
  return absl::UnavailableError(StrCat("accelerator ", uuid, " is in use by ",
                                       holder, " (lock ", path,
                                       "); wait until it ends, or stop it"));
}

void WritePid(int fd) {
  std::string text = StrCat(::getpid(), "\n");
  // Only a hint for HolderByFile: no harm when it cannot be written.
  if (::ftruncate(fd, 0) != 0) return;
  [[maybe_unused]] ssize_t written = ::pwrite(fd, text.data(), text.size(), 0);
}

absl::StatusOr<int> TryLockSlot(const std::string& run_directory,
                                std::string_view uuid, int slot) {
  std::string path = StrCat(run_directory, "/", uuid, ".", slot);
  int fd = OpenLockFile(path);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, StrCat("cannot open lock ", path));
  }
  int result;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    WritePid(fd);
    return fd;
  }
  int error = errno;
  absl::Status status =
      error == EWOULDBLOCK
          ? Held(fd, uuid, path)
          : absl::ErrnoToStatus(error, StrCat("cannot lock ", path));
  ::close(fd);
  return status;
}

}  // namespace

absl::StatusOr<AcceleratorLock> AcceleratorLock::TryAcquire(
    const std::string& run_directory, std::string_view uuid, LockSlots slots) {
  GAVEL_RETURN_IF_ERROR(CheckUuid(uuid));
  GAVEL_RETURN_IF_ERROR(PrepareRunDirectory(run_directory));
  absl::StatusOr<int> first = TryLockSlot(run_directory, uuid, 0);
  if (slots == LockSlots::kOne && absl::IsUnavailable(first.status())) {
    first = TryLockSlot(run_directory, uuid, 1);
  }
  if (!first.ok()) return first.status();
  AcceleratorLock lock({*first});
  if (slots == LockSlots::kOne) return lock;
  // On failure `lock` gives the first slot back.
  GAVEL_ASSIGN_OR_RETURN(int second, TryLockSlot(run_directory, uuid, 1));
  lock.descriptors_.push_back(second);
  return lock;
}

AcceleratorLock::AcceleratorLock(AcceleratorLock&& other) noexcept
    : descriptors_(std::exchange(other.descriptors_, {})) {}

AcceleratorLock& AcceleratorLock::operator=(AcceleratorLock&& other) noexcept {
  if (this != &other) {
    Release();
    descriptors_ = std::exchange(other.descriptors_, {});
  }
  return *this;
}

void AcceleratorLock::Release() {
  for (int fd : std::exchange(descriptors_, {})) {
    // Explicitly: a child that was forked without exec shares the lock.
    ::flock(fd, LOCK_UN);
    ::close(fd);
  }
}

}  // namespace gavel
