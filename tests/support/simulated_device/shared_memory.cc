#include "tests/support/simulated_device/shared_memory.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tests/support/simulated_device/settings.h"

namespace gavel::simulated {
namespace {

constexpr int kEntries = 256;  // each is for a process on a device

// When a process began, in clock ticks since boot. This tells it from a later
// process with the same number. 0: the process is gone, or only waits for its
// parent.
uint64_t BeganAt(int pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  char line[1024] = {};
  const size_t size = std::fread(line, 1, sizeof(line) - 1, file);
  std::fclose(file);
  const char* const name_end =
      static_cast<const char*>(memrchr(line, ')', size));
  if (name_end == nullptr) return 0;
  char state = 'X';
  unsigned long long began = 0;
  // Fields 3 and 22 of proc(5).
  const int read = std::sscanf(
      name_end + 1,
      " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
      "%*d %llu",
      &state, &began);
  return read == 2 && state != 'Z' && state != 'X' ? began : 0;
}

}  // namespace

struct SharedMemory::File {
  struct Entry {
    int pid = 0;  // 0: nobody
    int device = 0;
    uint64_t began_at = 0;
    uint64_t bytes = 0;
  };
  std::atomic<int32_t> ready;  // 0: new, 1: being made, 2: the mutex is there
  pthread_mutex_t mutex;
  Entry entries[kEntries];
  std::atomic<Fault> faults[kDevicesMax];
  std::atomic<int64_t> slowness_us[kDevicesMax];

  Entry* Find(int pid, int device) {
    for (Entry& entry : entries) {
      if (entry.pid == pid && (pid == 0 || entry.device == device))
        return &entry;
    }
    return nullptr;
  }
};

class SharedMemory::Lock {
 public:
  explicit Lock(File* file) : file_(file) {
    // The owner may have been killed while it held the mutex. It may have left
    // an entry half written; Sweep() clears the entries of processes that are
    // gone.
    if (pthread_mutex_lock(&file_->mutex) == EOWNERDEAD) {
      pthread_mutex_consistent(&file_->mutex);
    }
  }
  ~Lock() { pthread_mutex_unlock(&file_->mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  File* file_;
};

SharedMemory::SharedMemory(const std::string& path, uint64_t memory_bytes,
                           int first)
    : memory_bytes_(memory_bytes), first_(first) {
  const int file =
      path.empty() ? ::memfd_create("simulated_devices", MFD_CLOEXEC)
                   : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  TORCH_CHECK(file >= 0 && ::ftruncate(file, sizeof(File)) == 0, path, ": ",
              std::strerror(errno));
  void* const memory = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE,
                              MAP_SHARED, file, 0);
  ::close(file);
  TORCH_CHECK(memory != MAP_FAILED, path, ": ", std::strerror(errno));
  file_ = static_cast<File*>(memory);  // all zeros when it is new
  int32_t state = 0;
  if (file_->ready.compare_exchange_strong(state, 1)) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&file_->mutex, &attributes);
    file_->ready = 2;
  }
  while (file_->ready != 2) ::usleep(100);
}

void SharedMemory::Sweep() const {
  for (File::Entry& entry : file_->entries) {
    if (entry.pid == 0 || entry.pid == ::getpid()) continue;
    if (BeganAt(entry.pid) != entry.began_at) entry = {};
  }
}

bool SharedMemory::Take(int device, uint64_t bytes) {
  device += first_;
  const Lock lock(file_);
  Sweep();
  uint64_t used = 0;
  for (const File::Entry& entry : file_->entries) {
    if (entry.pid != 0 && entry.device == device) used += entry.bytes;
  }
  if (used + bytes > memory_bytes_) return false;
  const int pid = ::getpid();
  File::Entry* entry = file_->Find(pid, device);
  if (entry == nullptr) {
    entry = file_->Find(0, 0);
    TORCH_CHECK(entry != nullptr, "too many processes on simulated devices");
    *entry = {pid, device, BeganAt(pid), 0};
  }
  entry->bytes += bytes;
  return true;
}

void SharedMemory::GiveBack(int device, uint64_t bytes) {
  device += first_;
  const Lock lock(file_);
  File::Entry* const entry = file_->Find(::getpid(), device);
  TORCH_INTERNAL_ASSERT(entry != nullptr && entry->bytes >= bytes);
  entry->bytes -= bytes;
}

uint64_t SharedMemory::Used(int device) const {
  uint64_t used = 0;
  for (const Holder& holder : Holders(device)) used += holder.bytes;
  return used;
}

std::vector<Holder> SharedMemory::Holders(int device) const {
  device += first_;
  const Lock lock(file_);
  Sweep();
  std::vector<Holder> holders;
  for (const File::Entry& entry : file_->entries) {
    if (entry.pid == 0 || entry.device != device) continue;
    holders.push_back({entry.pid, entry.bytes});
  }
  return holders;
}

bool SharedMemory::IsUsedByAnother(int device) const {
  for (const Holder& holder : Holders(device)) {
    if (holder.pid != ::getpid()) return true;
  }
  return false;
}

void SharedMemory::SetFault(int device, Fault fault) {
  file_->faults[first_ + device] = fault;
}

Fault SharedMemory::fault(int device) const {
  return file_->faults[first_ + device];
}

void SharedMemory::SetSlowness_us(int device, int64_t slowness_us) {
  file_->slowness_us[first_ + device] = slowness_us;
}

int64_t SharedMemory::slowness_us(int device) const {
  return file_->slowness_us[first_ + device];
}

SharedMemory& TheSharedMemory() {
  static SharedMemory& memory = *new SharedMemory(
      TheSettings().shared, TheSettings().memory_bytes, TheSettings().first);
  return memory;
}

}  // namespace gavel::simulated
