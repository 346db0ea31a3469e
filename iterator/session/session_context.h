// What all parts of a session share: its options, and the objects through which
// they report to the program, to the coordinator and to each other. Owned by
// SessionState and borrowed by its parts.
//
// Thread-safety: options, log, board, gate and Fail() may be used from any
// thread; stats and profile as their headers say.
#ifndef GAVEL_ITERATOR_SESSION_SESSION_CONTEXT_H_
#define GAVEL_ITERATOR_SESSION_SESSION_CONTEXT_H_

#include "absl/status/status.h"
#include "gavel/session.h"
#include "iterator/boundary_gate.h"
#include "iterator/log.h"
#include "iterator/session/status_board.h"
#include "iterator/step_profile.h"
#include "iterator/step_stats.h"
#include "runtime/device/arena.h"

namespace gavel::internal {

struct SessionContext {
  explicit SessionContext(SessionOptions given);

  // The process runs under an agent and needs a lease to train.
  bool managed() const { return !options.coordinator.empty(); }
  // Ends the loop with this error, unless an earlier one has.
  void Fail(absl::Status status);
  // Logs what is wrong. Nothing when `status` is OK.
  void Warn(const absl::Status& status);
  // Brings the profile's files up to date; `device`: of the session.
  void WriteProfile(at::Device device);
  // The same at the end of the session, with a table in the log.
  void FinishProfile(at::Device device);

  const SessionOptions options;
  Log log;
  StatusBoard board;
  StepStats stats;
  BoundaryGate gate;
  StepProfile profile;
  // The memory of checkpoints, and of the state without an accelerator.
  Arena arena;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_SESSION_CONTEXT_H_
