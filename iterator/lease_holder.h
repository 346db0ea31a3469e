// The lease of this process and the accelerator that it is for: taking it,
// giving it back, and waiting for the next one. Alone (without a coordinator)
// the accelerator is taken once. Training thread only, inside a boundary.
#ifndef GAVEL_ITERATOR_LEASE_HOLDER_H_
#define GAVEL_ITERATOR_LEASE_HOLDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "iterator/checkpoint_saver.h"
#include "iterator/coordinator_link.h"
#include "iterator/gang.h"
#include "iterator/process_exit.h"
#include "iterator/session_context.h"
#include "iterator/training_state.h"

namespace gavel::internal {

class LeaseHolder {
 public:
  // Borrows all, which must live longer.
  LeaseHolder(SessionContext& context, CoordinatorLink& link,
              TrainingState& state, GangMembership& gang,
              CheckpointSaver& saver, ProcessExit& exit)
      : context_(context),
        link_(link),
        state_(state),
        gang_(gang),
        saver_(saver),
        exit_(exit) {}

  // Each of these three: false when the loop ends, with the error in the
  // context. Under an agent an evicted process ends here.
  //
  // Does what the coordinator or a signal asks for, or the end of the lease;
  // without a lease waits for one.
  bool AnswerCalls();
  // Gives the accelerator back, commits, and waits for the next lease.
  bool Park(const lease_action::Pause& pause);
  // Takes the accelerator of the options.
  bool TakeAlone();

  // The bytes that the last pause left on the accelerator, and should not have.
  uint64_t left_bytes() const { return left_bytes_; }
  // The lease of a CPU slot is of so many threads from here on.
  void UseThreads(int threads);
  // Tells the coordinator how much memory the process has, for its budgets.
  void TellMemory();
  // When to do so next; kNever_ns: at the next change.
  int64_t memory_due_ns() const { return memory_due_ns_; }

 private:
  // Returns the copies of the tensors in host memory. With `divides` they are
  // divided among the ranks of the gang.
  std::vector<HostCopy> Commit(bool divides);
  bool Release(bool keep);
  bool WaitForLease();
  bool Resume(const lease_action::Resume& lease);
  void ResumeFailed(const lease_action::Resume& lease,
                    const absl::Status& status);
  ReleaseCause CauseOf(const absl::Status& status) const;
  void SayLeft();
  void PinWhatIsParked();
  void SayRunning(const lease_action::Resume& lease);
  absl::Status JoinLeased(const lease_action::Resume& lease);
  absl::Status JoinAlone();
  absl::Status JoinGang(GangPlan plan);

  SessionContext& context_;
  CoordinatorLink& link_;
  TrainingState& state_;
  GangMembership& gang_;
  CheckpointSaver& saver_;
  ProcessExit& exit_;
  uint64_t epoch_ = 0;  // of the present lease, or the last
  int64_t memory_due_ns_ = 0;
  uint64_t left_bytes_ = 0;     // said to be left behind
  uint64_t refused_bytes_ = 0;  // said not to be kept pinned
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_LEASE_HOLDER_H_
