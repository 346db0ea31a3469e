#include "iterator/process_exit.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <utility>

#include "core/error_line.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/device/torch_errors.h"
#include "runtime/files/files.h"

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

// std::terminate has no other way to reach an object.
std::atomic<UncaughtException::OutOfMemory*> terminate_listener{nullptr};
std::atomic<std::terminate_handler> hosts_handler{nullptr};

[[noreturn]] void OnTerminate() {
  // An exception in here terminates, too, and is not reported.
  auto* const listener = terminate_listener.exchange(nullptr);
  if (listener != nullptr && std::current_exception() != nullptr) {
    const absl::Status thrown =
        CatchAsStatus("a step", []() -> absl::Status { throw; });
    if (IsOutOfMemory(thrown)) {
      (*listener)(std::string(thrown.message()));
    }
  }
  if (const std::terminate_handler next = hosts_handler.load()) next();
  std::abort();
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

bool IsOutOfMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ||
         TellsOutOfMemory(ToStd(status.message()));
}

void UncaughtException::Install(OutOfMemory out_of_memory) {
  out_of_memory_ = std::move(out_of_memory);
  OutOfMemory* none = nullptr;
  if (!terminate_listener.compare_exchange_strong(none, &out_of_memory_)) {
    return;
  }
  hosts_handler.store(std::set_terminate(OnTerminate));
}

void UncaughtException::Restore() {
  OutOfMemory* mine = &out_of_memory_;
  if (!terminate_listener.compare_exchange_strong(mine, nullptr)) return;
  // Not when the host has installed its own meanwhile.
  if (std::get_terminate() == OnTerminate) {
    std::set_terminate(hosts_handler.exchange(nullptr));
  }
}

void ProcessExit::WatchForOutOfMemory() {
  training_thread_ = std::this_thread::get_id();
  uncaught_exception_.Install(
      [this](const std::string& what) { EndOutOfMemory(what); });
}

void ProcessExit::Evict(const std::string& why) {
  context_.log.Info(StrCat("leaving the process after step ",
                           context_.stats.steps_done(), ": ", why));
  state_.Unlock();
  saver_.Wait().IgnoreError();  // so that the last report has it
  context_.FinishProfile(state_.device());
  gang_.WaitForOthers();
  Exit(kExitEvicted, why);
}

// By the thread that ran out of memory.
void ProcessExit::EndOutOfMemory(const std::string& what) {
  const std::string why = StrCat("out of memory after step ",
                                 context_.stats.steps_done(), ": ", what);
  context_.log.Error(
      StrCat(why, "; the job goes on elsewhere, from its last generation"));
  if (std::this_thread::get_id() == training_thread_) {
    saver_.Wait().IgnoreError();  // so that the last report has it
  }
  Exit(kExitFailed, why);
}

void ProcessExit::Exit(int exit_code, const std::string& why) {
  link_.Finish({exit_code, why, context_.stats.Read()});
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace gavel::internal
