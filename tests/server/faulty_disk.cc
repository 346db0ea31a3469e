#include "tests/server/faulty_disk.h"

#include <sqlite3.h>

#include <csignal>
#include <limits>

namespace gavel::testing {
namespace {

// SQLite calls back without a place for a pointer of ours.
struct Fault {
  sqlite3_vfs* real = nullptr;
  sqlite3_vfs shim{};
  sqlite3_io_methods methods{};
  const sqlite3_io_methods* real_methods = nullptr;
  int good_fsyncs = std::numeric_limits<int>::max();
  int fsyncs = 0;
};
Fault fault;

int Sync(sqlite3_file* file, int flags) {
  ++fault.fsyncs;
  if (fault.good_fsyncs-- <= 0) return SQLITE_IOERR_FSYNC;
  return fault.real_methods->xSync(file, flags);
}

int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags,
         int* out_flags) {
  const int result =
      fault.real->xOpen(fault.real, name, file, flags, out_flags);
  if (result != SQLITE_OK || (flags & SQLITE_OPEN_WAL) == 0) return result;
  fault.real_methods = file->pMethods;
  fault.methods = *file->pMethods;
  fault.methods.xSync = Sync;
  file->pMethods = &fault.methods;
  return result;
}

}  // namespace

FaultyDisk::FaultyDisk() {
  sqlite3_initialize();
  fault = Fault{};
  fault.real = sqlite3_vfs_find(nullptr);
  fault.shim = *fault.real;
  fault.shim.zName = "faulty";
  fault.shim.xOpen = Open;
  sqlite3_vfs_register(&fault.shim, /*makeDflt=*/1);
}

FaultyDisk::~FaultyDisk() {
  sqlite3_vfs_unregister(&fault.shim);
  sqlite3_vfs_register(fault.real, /*makeDflt=*/1);
}

void FaultyDisk::FailFsyncAfter(int calls) { fault.good_fsyncs = calls; }
int FaultyDisk::fsyncs() const { return fault.fsyncs; }

FullDisk::FullDisk(uint64_t bytes)
    : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
  getrlimit(RLIMIT_FSIZE, &old_);
  const rlimit limit{bytes, old_.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
}

FullDisk::~FullDisk() {
  setrlimit(RLIMIT_FSIZE, &old_);
  std::signal(SIGXFSZ, old_handler_);
}

}  // namespace gavel::testing
