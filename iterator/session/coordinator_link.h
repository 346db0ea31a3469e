// The session's connection to the coordinator. Without one (the session runs
// alone) there is no thread, and every call does nothing.
//
// Thread-safety: Start() and Close() by the training thread, while no save is
// under way; the rest from any thread.
#ifndef GAVEL_ITERATOR_SESSION_COORDINATOR_LINK_H_
#define GAVEL_ITERATOR_SESSION_COORDINATOR_LINK_H_

#include <memory>

#include "absl/status/status.h"
#include "iterator/session/lease_thread.h"
#include "iterator/session/session_context.h"

namespace gavel::internal {

class CoordinatorLink {
 public:
  // Borrows `context`, which must live longer.
  explicit CoordinatorLink(SessionContext& context) : context_(context) {}

  // Says that the process is there; asks for nothing yet. Errors as of
  // LeaseThread::Start.
  absl::Status Start();
  // As of LeaseThread.
  void Post(LeaseEvent event);
  void Finish(const lease_event::Finished& finished);
  void SetSaving(bool saving);
  // The coordinator wants another incarnation of this worker, or none.
  bool rejected() const { return thread_ != nullptr && thread_->rejected(); }
  // Null when alone.
  Waker* waker() { return thread_ ? &thread_->waker() : nullptr; }
  void Close() { thread_.reset(); }

 private:
  SessionContext& context_;
  std::unique_ptr<LeaseThread> thread_;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_SESSION_COORDINATOR_LINK_H_
