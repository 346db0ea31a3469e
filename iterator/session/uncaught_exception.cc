#include "iterator/session/uncaught_exception.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <utility>

#include "core/launch_errors.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

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

}  // namespace gavel::internal
