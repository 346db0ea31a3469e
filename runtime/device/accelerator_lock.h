// The kernel's own record of who may use an accelerator: two lock files
// `<uuid>.0` and `<uuid>.1` in a run directory of the machine, held with flock
// while steps may run. A worker that has the accelerator alone takes both, in
// this order; one of a packed pair takes one. The locks go when the process
// does, however it ends.
//
// Called by the iterator: taken before the first step of a lease, released on a
// pause, after the device is synchronised and before RELEASED is sent.
// Not thread-safe.
#ifndef GAVEL_RUNTIME_DEVICE_ACCELERATOR_LOCK_H_
#define GAVEL_RUNTIME_DEVICE_ACCELERATOR_LOCK_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gavel {

enum class LockSlots {
  kBoth,  // alone on the accelerator
  kOne,   // one of a packed pair
};

class AcceleratorLock {
 public:
  // Creates `run_directory` (0700) when it is missing; a machine that several
  // users share has one with mode 1777 instead. `uuid`: [A-Za-z0-9_-]{1,64}.
  // Waits up to `wait_s` seconds while it is held, asleep until the holder lets
  // it go or ends.
  // Codes: INVALID_ARGUMENT (uuid), UNAVAILABLE (held; the message names the
  // holder's pid), FAILED_PRECONDITION (the run directory is no directory of
  // ours and others may write to it), or those of the file system.
  static absl::StatusOr<AcceleratorLock> Acquire(
      const std::string& run_directory, std::string_view uuid, LockSlots slots,
      double wait_s);

  AcceleratorLock(AcceleratorLock&& other) noexcept;
  AcceleratorLock& operator=(AcceleratorLock&& other) noexcept;
  ~AcceleratorLock() { Release(); }

  // Does nothing the second time. The files stay: removing them would let two
  // processes lock different files of one name.
  void Release();

  bool held() const { return !descriptors_.empty(); }

 private:
  explicit AcceleratorLock(std::vector<int> descriptors)
      : descriptors_(std::move(descriptors)) {}

  std::vector<int> descriptors_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_DEVICE_ACCELERATOR_LOCK_H_
