#include "iterator/session/signals.h"

#include <signal.h>

#include <atomic>
#include <cerrno>

#include "iterator/clock.h"
#include "runtime/transport/waker.h"

namespace gavel::internal {
namespace {

// A signal handler has no other way to reach an object.
std::atomic<BoundaryGate*> signal_gate{nullptr};
std::atomic<Waker*> signal_waker{nullptr};
std::atomic<int64_t> grace_ns{0};
constexpr int64_t kNone_ns = -1;
std::atomic<int64_t> first_stop_ns{kNone_ns};

// Launchers and process groups pass the same request on, so that it comes twice
// within moments: only one that comes after the grace means that the loop is
// not to be waited for any longer.
void OnStop(int signal_number) {
  const int saved_errno = errno;
  const int64_t now_ns = Now_ns();
  int64_t first_ns = kNone_ns;
  if (!first_stop_ns.compare_exchange_strong(first_ns, now_ns) &&
      now_ns - first_ns >= grace_ns.load()) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);  // as soon as this handler returns
  }
  if (BoundaryGate* gate = signal_gate.load()) gate->RequestStop();
  if (Waker* waker = signal_waker.load()) waker->Wake();
  errno = saved_errno;
}

void OnCheckpoint(int) {
  if (BoundaryGate* gate = signal_gate.load()) gate->RequestCheckpoint();
}

struct Handled {
  int signal_number;
  void (*handler)(int);
};
constexpr Handled kHandled[] = {{SIGTERM, OnStop},
                                {SIGINT, OnStop},
                                {SIGHUP, OnStop},
                                {SIGUSR1, OnCheckpoint},
                                {SIGUSR2, OnCheckpoint}};

void Replace(int signal_number, void (*from)(int), void (*to)(int)) {
  struct sigaction present = {};
  if (sigaction(signal_number, nullptr, &present) != 0) return;
  if ((present.sa_flags & SA_SIGINFO) != 0) return;
  if (present.sa_handler != from) return;
  struct sigaction action = {};
  action.sa_handler = to;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // system calls of the host
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

void Signals::Install(BoundaryGate* gate, Waker* waker, double pause_grace_s) {
  BoundaryGate* none = nullptr;
  if (!signal_gate.compare_exchange_strong(none, gate)) return;
  signal_waker.store(waker);
  grace_ns.store(ToNanoseconds(pause_grace_s));
  first_stop_ns.store(kNone_ns);
  installed_ = true;
  for (const auto& [signal_number, handler] : kHandled) {
    Replace(signal_number, SIG_DFL, handler);
  }
}

void Signals::Restore() {
  if (!installed_) return;
  for (const auto& [signal_number, handler] : kHandled) {
    Replace(signal_number, handler, SIG_DFL);
  }
  signal_waker.store(nullptr);
  signal_gate.store(nullptr);
  installed_ = false;
}

}  // namespace gavel::internal
