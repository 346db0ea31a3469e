#include "iterator/session/coordinator_link.h"

#include <unistd.h>

#include <utility>

#include "core/status.h"

namespace gavel::internal {

// Before the first loop: the restore and the program's own data may take long.
absl::Status CoordinatorLink::Start() {
  if (!context_.managed()) return absl::OkStatus();
  const SessionOptions& options = context_.options;
  LeaseOptions lease;
  lease.worker = {JobId(options.job), options.rank, options.incarnation};
  GAVEL_ASSIGN_OR_RETURN(thread_,
                         LeaseThread::Start(options.coordinator, lease,
                                            {context_.gate, context_.stats,
                                             context_.board, context_.log}));
  Post(lease_event::Began{getpid()});
  return absl::OkStatus();
}

void CoordinatorLink::Post(LeaseEvent event) {
  if (thread_) thread_->Post(std::move(event));
}

void CoordinatorLink::Finish(const lease_event::Finished& finished) {
  if (thread_) thread_->Finish(finished);
}

void CoordinatorLink::SetSaving(bool saving) {
  if (thread_) thread_->SetSaving(saving);
}

}  // namespace gavel::internal
