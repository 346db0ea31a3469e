#include "runtime/transport/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

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

}  // namespace gavel
