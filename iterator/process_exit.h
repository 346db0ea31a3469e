// How the process ends before its job does: by a signal, by an exception that
// nothing catches, or because the coordinator takes its lease away.
#ifndef GAVEL_ITERATOR_PROCESS_EXIT_H_
#define GAVEL_ITERATOR_PROCESS_EXIT_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "core/messages.h"
#include "iterator/checkpoint_saver.h"
#include "iterator/coordinator_link.h"
#include "iterator/gang.h"
#include "iterator/session_context.h"
#include "iterator/training_state.h"

namespace gavel {
class Waker;
}  // namespace gavel

namespace gavel::internal {

// SIGTERM, SIGINT and SIGHUP end the loop at its next boundary, however often
// they come: only one that comes `pause_grace_s` after the first has the
// default action. SIGUSR1 and SIGUSR2 have a checkpoint written at the next
// boundary, and the loop continues. Handlers are installed only where the host
// left the default one, and removed by Restore. One session of a process at a
// time has them.
class Signals {
 public:
  Signals() = default;
  ~Signals() { Restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // A signal makes its request at `gate`, and one that asks for a stop wakes
  // `waker`, which may be null. Both must live until Restore.
  void Install(BoundaryGate* gate, Waker* waker, double pause_grace_s);
  void Restore();

 private:
  bool installed_ = false;
};

// RESOURCE_EXHAUSTED, or LibTorch's and the drivers' words for it.
bool IsOutOfMemory(const absl::Status& status);

// An uncaught exception of a step ends the process. When memory ran out, the
// coordinator must hear of it first: the job then moves to another type instead
// of failing. Only a std::terminate handler sees such an exception, which may
// pass no destructor of ours.
//
// One session of a process at a time has the handler. The host's own handler is
// called for everything else, and Restore puts it back.
class UncaughtException {
 public:
  // Called once by the thread that terminates, with the exception's text;
  // should not return.
  using OutOfMemory = std::function<void(const std::string& what)>;

  UncaughtException() = default;
  ~UncaughtException() { Restore(); }
  UncaughtException(const UncaughtException&) = delete;
  UncaughtException& operator=(const UncaughtException&) = delete;

  void Install(OutOfMemory out_of_memory);
  void Restore();

 private:
  OutOfMemory out_of_memory_;
};

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;

// How the process of an unfinished job ends under an agent: at once and without
// any code of the host, since neither destructors nor atexit handlers belong to
// a program that has not come to its end. The coordinator hears why.
class ProcessExit {
 public:
  // Borrows all, which must live longer.
  ProcessExit(SessionContext& context, CoordinatorLink& link,
              TrainingState& state, GangMembership& gang,
              CheckpointSaver& saver)
      : context_(context),
        link_(link),
        state_(state),
        gang_(gang),
        saver_(saver) {}

  // From here on a step that runs out of memory ends the process, too. Call it
  // in the training thread.
  void WatchForOutOfMemory();
  // Puts the host's handler back.
  void Restore() { uncaught_exception_.Restore(); }
  // With kExitEvicted. Training thread.
  [[noreturn]] void Evict(const std::string& why);

 private:
  [[noreturn]] void EndOutOfMemory(const std::string& what);
  [[noreturn]] void Exit(int exit_code, const std::string& why);

  SessionContext& context_;
  CoordinatorLink& link_;
  TrainingState& state_;
  GangMembership& gang_;
  CheckpointSaver& saver_;
  UncaughtException uncaught_exception_;
  std::thread::id training_thread_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_PROCESS_EXIT_H_
