#include "runtime/files/file_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "core/text.h"

namespace gavel {
namespace {

// What the holder wrote; empty when it has not yet.
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
  // On a full disk what is there must do: who takes the lock after this one and
  // finds room changes it, and who finds none can write no journal either.
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

}  // namespace gavel
