// How the process of an unfinished job ends under an agent: at once and without
// any code of the host, since neither destructors nor atexit handlers belong to
// a program that has not come to its end. The coordinator hears why.
#ifndef GAVEL_ITERATOR_SESSION_PROCESS_EXIT_H_
#define GAVEL_ITERATOR_SESSION_PROCESS_EXIT_H_

#include <string>
#include <thread>

#include "core/messages.h"
#include "iterator/session/checkpoint_saver.h"
#include "iterator/session/coordinator_link.h"
#include "iterator/session/gang_membership.h"
#include "iterator/session/session_context.h"
#include "iterator/session/training_state.h"
#include "iterator/session/uncaught_exception.h"

namespace gavel::internal {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;

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

#endif  // GAVEL_ITERATOR_SESSION_PROCESS_EXIT_H_
