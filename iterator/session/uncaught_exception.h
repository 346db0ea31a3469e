// An uncaught exception of a step ends the process. When memory ran out, the
// coordinator must hear of it first: the job then moves to another type instead
// of failing. Only a std::terminate handler sees such an exception, which may
// pass no destructor of ours.
//
// One session of a process at a time has the handler. The host's own handler is
// called for everything else, and Restore puts it back.
#ifndef GAVEL_ITERATOR_SESSION_UNCAUGHT_EXCEPTION_H_
#define GAVEL_ITERATOR_SESSION_UNCAUGHT_EXCEPTION_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace gavel::internal {

// RESOURCE_EXHAUSTED, or LibTorch's and the drivers' words for it.
bool IsOutOfMemory(const absl::Status& status);

class UncaughtException {
 public:
  // Called once by the thread that terminates, with the exception's text;
  // should not return.
  using OutOfMemory = std::function<void(const std::string& what)>;

  UncaughtException() = default;
  ~UncaughtException() { Restore(); }
  UncaughtException(const UncaughtException&) = delete;
  UncaughtException& operator=(const UncaughtException&) = delete;

  void Install(OutOfMemory out_of_memory);
  void Restore();

 private:
  OutOfMemory out_of_memory_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_UNCAUGHT_EXCEPTION_H_
