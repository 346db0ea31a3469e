#include "runtime/device/accelerator_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr size_t kUuidLengthMax = 64;
constexpr mode_t kRunDirectoryMode = 0700;
// Room for the digits of a pid, padding blanks and a newline.
constexpr size_t kPidTextLength = 12;
// Other users may open the file to lock it; only its owner writes a pid to it.
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

// Checks that no other user can rename our lock files in the directory; the
// locks would be worthless otherwise.
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
// (fs.protected_regular), so O_CREAT is tried only if there is no file.
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

// The pid that holds the flock on `fd`'s file, according to /proc/locks. 0: the
// lock is not listed, because its holder is in another pid namespace or on
// another machine.
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

// The pid that the holder wrote to the file. It is stale if the holder runs as
// another user and could not write to the file.
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

// The pid is only a hint for HolderByFile, so a failed write does no harm.
void WritePid(int fd) {
  // The text has a fixed length, so that it overwrites the previous pid. After
  // a truncation instead, ext4 would wait for the disk when the file is closed.
  std::string text = StrCat(::getpid());
  text.resize(kPidTextLength, ' ');
  text.back() = '\n';
  [[maybe_unused]] ssize_t written = ::pwrite(fd, text.data(), text.size(), 0);
}

// The open lock file of a slot. It is opened once, however often locking it is
// tried, because closing it wakes the processes that wait for it.
class Slot {
 public:
  static absl::StatusOr<Slot> Open(const std::string& run_directory,
                                   std::string_view uuid, int number) {
    Slot slot(StrCat(run_directory, "/", uuid, ".", number));
    slot.fd_ = OpenLockFile(slot.path_);
    if (slot.fd_ >= 0) return slot;
    return absl::ErrnoToStatus(errno, StrCat("cannot open lock ", slot.path_));
  }
  Slot(Slot&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  ~Slot() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd() const { return fd_; }
  int Take() { return std::exchange(fd_, -1); }

  absl::Status TryLock(std::string_view uuid) const {
    int result;
    do {
      result = ::flock(fd_, LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result == 0) {
      WritePid(fd_);
      return absl::OkStatus();
    }
    if (errno == EWOULDBLOCK) return Held(fd_, uuid, path_);
    return absl::ErrnoToStatus(errno, StrCat("cannot lock ", path_));
  }
  void Unlock() const { ::flock(fd_, LOCK_UN); }

 private:
  explicit Slot(std::string path) : path_(std::move(path)) {}

  std::string path_;
  int fd_ = -1;
};

// Locks all wanted slots, or none.
absl::StatusOr<std::vector<int>> TryLock(std::vector<Slot>& slots,
                                         std::string_view uuid,
                                         LockSlots wanted) {
  const absl::Status first = slots[0].TryLock(uuid);
  if (first.ok() && wanted == LockSlots::kOne) {
    return std::vector<int>{slots[0].Take()};
  }
  if (!first.ok() &&
      (wanted == LockSlots::kBoth || !absl::IsUnavailable(first))) {
    return first;
  }
  const absl::Status second = slots[1].TryLock(uuid);
  if (!second.ok()) {
    if (first.ok()) slots[0].Unlock();
    return second;
  }
  if (wanted == LockSlots::kOne) return std::vector<int>{slots[1].Take()};
  return std::vector<int>{slots[0].Take(), slots[1].Take()};
}

// Sleeps until a process closes the file of a slot, which ends its hold on it.
class CloseWatch {
 public:
  explicit CloseWatch(const std::vector<Slot>& slots) {
    for (const Slot& slot : slots) {
      // Names the file that is open here, whichever file has its path by now.
      const std::string file = StrCat("/proc/self/fd/", slot.fd());
      // If the file cannot be watched, Wait just sleeps.
      watches_.push_back(::inotify_add_watch(fd_, file.c_str(), IN_CLOSE));
    }
  }
  ~CloseWatch() {
    for (const int watch : watches_) (void)::inotify_rm_watch(fd_, watch);
  }
  CloseWatch(const CloseWatch&) = delete;
  CloseWatch& operator=(const CloseWatch&) = delete;

  void Wait(std::chrono::nanoseconds at_most) {
    const auto limit = std::min(at_most, next_wait_max_);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
    const timespec timeout = {seconds.count(), (limit - seconds).count()};
    pollfd watched = {fd_, POLLIN, 0};
    const bool closed = ::ppoll(&watched, 1, &timeout, nullptr) > 0;
    // The kernel reports the close by a dying process just before it releases
    // the lock.
    next_wait_max_ = closed ? kSoon : kUntold;
    alignas(inotify_event) char events[4096];
    while (closed && ::read(fd_, events, sizeof(events)) > 0) {
    }
  }

 private:
  static constexpr std::chrono::nanoseconds kSoon =
      std::chrono::milliseconds(1);
  // How long to wait without an event: a forked child that has not called exec
  // keeps the file open after the holder has released it, and closes on other
  // machines are not reported.
  static constexpr std::chrono::nanoseconds kUntold =
      std::chrono::milliseconds(20);

  // One descriptor serves the whole process, because closing it takes the
  // kernel milliseconds, which would delay the first step. Two threads that
  // wait at once may take each other's events, and then wait for kUntold.
  static int Descriptor() {
    static const int fd = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    return fd;
  }

  const int fd_ = Descriptor();
  std::vector<int> watches_;
  std::chrono::nanoseconds next_wait_max_ = kUntold;
};

}  // namespace

absl::StatusOr<AcceleratorLock> AcceleratorLock::Acquire(
    const std::string& run_directory, std::string_view uuid, LockSlots slots,
    double wait_s) {
  GAVEL_RETURN_IF_ERROR(CheckUuid(uuid));
  GAVEL_RETURN_IF_ERROR(PrepareRunDirectory(run_directory));
  std::vector<Slot> files;
  for (int number = 0; number < 2; ++number) {
    GAVEL_ASSIGN_OR_RETURN(Slot slot, Slot::Open(run_directory, uuid, number));
    files.push_back(std::move(slot));
  }
  using Clock = std::chrono::steady_clock;
  const auto give_up =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(wait_s));
  std::optional<CloseWatch> watch;
  while (true) {
    absl::StatusOr<std::vector<int>> held = TryLock(files, uuid, slots);
    if (held.ok()) return AcceleratorLock(*std::move(held));
    const auto left = give_up - Clock::now();
    if (!absl::IsUnavailable(held.status()) || left.count() <= 0) {
      return held.status();
    }
    if (watch) {
      watch->Wait(left);
    } else {
      watch.emplace(files);  // try again: it may have become free
    }
  }
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
    // Unlocks explicitly, because a child that was forked without exec shares
    // the lock.
    ::flock(fd, LOCK_UN);
    ::close(fd);
  }
}

}  // namespace gavel
