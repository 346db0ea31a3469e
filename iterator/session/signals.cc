#include "iterator/session/signals.h"

#include <signal.h>

#include <atomic>
#include <cerrno>

#include "runtime/transport/waker.h"

namespace gavel::internal {
namespace {

// A signal handler has no other way to reach an object.
std::atomic<BoundaryGate*> signal_gate{nullptr};
std::atomic<Waker*> signal_waker{nullptr};

constexpr int kSignals[] = {SIGTERM, SIGINT};

void OnSignal(int) {
  const int saved_errno = errno;
  if (BoundaryGate* gate = signal_gate.load()) gate->RequestStop();
  if (Waker* waker = signal_waker.load()) waker->Wake();
  errno = saved_errno;
}

void Replace(int signal_number, void (*from)(int), void (*to)(int)) {
  struct sigaction present = {};
  if (sigaction(signal_number, nullptr, &present) != 0) return;
  if ((present.sa_flags & SA_SIGINFO) != 0) return;
  if (present.sa_handler != from) return;
  struct sigaction action = {};
  action.sa_handler = to;
  sigemptyset(&action.sa_mask);
  // The next one gets the default. System calls of the host are restarted.
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

void Signals::Install(BoundaryGate* gate, Waker* waker) {
  BoundaryGate* none = nullptr;
  if (!signal_gate.compare_exchange_strong(none, gate)) return;
  signal_waker.store(waker);
  installed_ = true;
  for (const int signal_number : kSignals) {
    Replace(signal_number, SIG_DFL, OnSignal);
  }
}

void Signals::Restore() {
  if (!installed_) return;
  for (const int signal_number : kSignals) {
    Replace(signal_number, OnSignal, SIG_DFL);
  }
  signal_waker.store(nullptr);
  signal_gate.store(nullptr);
  installed_ = false;
}

}  // namespace gavel::internal
