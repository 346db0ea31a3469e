// Threads that read samples. Part of gavel/data_loader.h.
#ifndef GAVEL_INTERNAL_READING_THREADS_H_
#define GAVEL_INTERNAL_READING_THREADS_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "gavel/status.h"

namespace gavel::internal {

// Threads that call what they are given, in the order given.
class GAVEL_EXPORT ReadingThreads {
 public:
  explicit ReadingThreads(int count);
  // Drops the calls that did not begin, and waits for the others.
  ~ReadingThreads();
  ReadingThreads(const ReadingThreads&) = delete;
  ReadingThreads& operator=(const ReadingThreads&) = delete;

  // call(0), call(1) to call(times - 1), by any of the threads.
  void Call(size_t times, std::function<void(size_t)> call);
  void Drop();  // those that did not begin

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gavel::internal

#endif  // GAVEL_INTERNAL_READING_THREADS_H_
