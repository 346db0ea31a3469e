// A disk whose fsync of the WAL fails from the n-th call on: takes the place of
// SQLite's default file system while it lives.
#ifndef GAVEL_TESTS_SERVER_FAULTY_DISK_H_
#define GAVEL_TESTS_SERVER_FAULTY_DISK_H_

#include <sys/resource.h>

#include <cstdint>

namespace gavel::testing {

class FaultyDisk {
 public:
  FaultyDisk();
  ~FaultyDisk();
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;

  // The next `calls` fsyncs go well, the one after them fails.
  void FailFsyncAfter(int calls);
  int fsyncs() const;  // all that were tried
};

// No file of this process grows beyond `bytes` while it lives, as on a disk
// that is full.
class FullDisk {
 public:
  explicit FullDisk(uint64_t bytes);
  ~FullDisk();
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SERVER_FAULTY_DISK_H_
