// Makes a thread that waits in Receive return (an eventfd). Thread-safe.
#ifndef GAVEL_RUNTIME_TRANSPORT_WAKER_H_
#define GAVEL_RUNTIME_TRANSPORT_WAKER_H_

namespace gavel {

class Waker {
 public:
  Waker();
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  void Wake();   // one write(2); safe in a signal handler
  void Clear();  // by the waiting thread
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace gavel

#endif  // GAVEL_RUNTIME_TRANSPORT_WAKER_H_
