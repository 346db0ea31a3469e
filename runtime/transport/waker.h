// Makes a thread that waits in Receive return (an eventfd). Thread-safe.
#ifndef GAVEL_RUNTIME_TRANSPORT_WAKER_H_
#define GAVEL_RUNTIME_TRANSPORT_WAKER_H_

#include "runtime/files/descriptor.h"

namespace gavel {

class Waker {
 public:
  Waker();
  void Wake();   // one write(2); safe in a signal handler
  void Clear();  // by the waiting thread
  int descriptor() const { return descriptor_.get(); }

 private:
  const Descriptor descriptor_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_WAKER_H_
