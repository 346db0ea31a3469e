// What a step throws and nobody catches ends the process. When memory ran out,
// the coordinator is to hear of it before: the job then goes to another type
// instead of failing. std::terminate is the only place that sees it, as the
// exception need not pass any destructor of ours.
//
// One session of a process at a time has the handler. The host's own one is
// called for all else, and put back by Restore.
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
  // Called once, by the thread that terminates, with what was thrown; should
  // not return.
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
