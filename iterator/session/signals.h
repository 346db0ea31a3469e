// SIGTERM, SIGINT and SIGHUP end the loop at its next boundary, however often
// they come: only one that comes `pause_grace_s` after the first has the
// default action. SIGUSR1 and SIGUSR2 have a checkpoint written at the next
// boundary, and the loop continues. Handlers are installed only where the host
// left the default one, and removed by Restore. One session of a process at a
// time has them.
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

  // A signal tells `gate` what is wanted, and one that asks for a stop wakes
  // `waker`, which may be null. Both must live until Restore.
  void Install(BoundaryGate* gate, Waker* waker, double pause_grace_s);
  void Restore();

 private:
  bool installed_ = false;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_SIGNALS_H_
