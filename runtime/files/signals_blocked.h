// Blocks all signals in the calling thread for its own lifetime, and so in the
// threads that are started meanwhile: signals are for the threads of the host.
#ifndef GAVEL_RUNTIME_FILES_SIGNALS_BLOCKED_H_
#define GAVEL_RUNTIME_FILES_SIGNALS_BLOCKED_H_

#include <signal.h>

namespace gavel::internal {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace gavel::internal

#endif  // GAVEL_RUNTIME_FILES_SIGNALS_BLOCKED_H_
