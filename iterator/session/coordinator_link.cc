#include "iterator/session/coordinator_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "core/status.h"
#include "runtime/descriptor.h"

namespace gavel::internal {
namespace {

// For the agent, which tells it with the end of the process: the message may be
// lost, and the shell that runs this program may end with another code. Without
// an agent's file, or where it can't be reached, the message alone tells.
constexpr char kNotEnded[] = "-1";  // the session has begun

void LeaveWord(const std::string& text) {
  const char* path = std::getenv("GAVEL_END_FILE");
  if (path == nullptr) return;
  const Descriptor file(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (file.get() < 0) return;
  [[maybe_unused]] const ssize_t written =
      write(file.get(), text.data(), text.size());
}

}  // namespace

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
  LeaveWord(kNotEnded);
  Post(lease_event::Began{getpid()});
  return absl::OkStatus();
}

void CoordinatorLink::Post(LeaseEvent event) {
  if (thread_) thread_->Post(std::move(event));
}

void CoordinatorLink::Finish(const lease_event::Finished& finished) {
  if (!thread_) return;
  LeaveWord(std::to_string(finished.exit_code));
  thread_->Finish(finished);
}

void CoordinatorLink::SetSaving(bool saving) {
  if (thread_) thread_->SetSaving(saving);
}

}  // namespace gavel::internal
