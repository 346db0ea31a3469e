// SIGTERM and SIGINT end the loop at its next boundary. Handlers are installed
// only where the host left the default one, and removed by Restore. A second
// signal gets the default handler again. One session of a process at a time
// has them.
#ifndef GAVEL_ITERATOR_SESSION_SIGNALS_H_
#define GAVEL_ITERATOR_SESSION_SIGNALS_H_

#include "iterator/boundary_gate.h"

namespace gavel {
class Waker;
}

namespace gavel::internal {

class Signals {
 public:
  Signals() = default;
  ~Signals() { Restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // `gate` is told to stop, `waker` (may be null) is woken; both must live
  // until Restore.
  void Install(BoundaryGate* gate, Waker* waker);
  void Restore();

 private:
  bool installed_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_SIGNALS_H_
