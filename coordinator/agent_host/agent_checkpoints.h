// The checkpoints of a server that shares no directory with other servers:
// their location, and the streams that move them. An agent started with
// --own-checkpoints owns one. Thread-safe; all but TakeEvents may wait for a
// disk or for the user database.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHECKPOINTS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHECKPOINTS_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent/agent_machine.h"
#include "coordinator/agent_host/generation_stream.h"
#include "coordinator/agent_host/unix_account.h"

namespace gavel {

class AgentCheckpoints {
 public:
  // They lie in "checkpoints" of `state_directory`, which is absolute.
  // `address`: where other agents reach this one. `wake`: see GenerationStream.
  static absl::StatusOr<std::unique_ptr<AgentCheckpoints>> Open(
      const std::string& state_directory, std::string address,
      std::function<void()> wake);

  // Other agents read from here with these.
  const std::string& endpoint() const { return stream_->endpoint(); }
  const std::string& public_key() const { return stream_->public_key(); }

  // The local directory for checkpoints that the coordinator places in `given`;
  // created for `account`, which the job runs as. Jobs that share `given` share
  // it. INVALID_ARGUMENT: `given` is not absolute. PERMISSION_DENIED: it
  // belongs to another user.
  absl::StatusOr<std::string> DirectoryFor(
      const std::string& given, const std::optional<UnixAccount>& account);

  void Do(const agent_action::FetchCheckpoint& action);
  void Do(const agent_action::CancelFetch& action);
  void Do(const agent_action::OfferCheckpoint& action);

  // Events for the agent machine since the last call.
  std::vector<AgentEvent> TakeEvents();

 private:
  explicit AgentCheckpoints(std::string directory)
      : directory_(std::move(directory)) {}

  absl::Status Fetch(const agent_action::FetchCheckpoint& action);

  const std::string directory_;
  std::mutex mutex_;                // guards failed_
  std::vector<AgentEvent> failed_;  // before they began
  std::function<void()> wake_;
  std::unique_ptr<GenerationStream> stream_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHECKPOINTS_H_
