// The checkpoints of a server that shares none with others: where they lie, and
// the streams by which they move. An agent started with --own-checkpoints owns
// one. Thread-safe; all but TakeEvents may wait for a disk or for the directory
// of users.
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

struct AgentCheckpointsOptions {
  std::string state_directory;  // absolute; theirs is "checkpoints" in it
  std::string address;          // where other agents reach this one
  std::function<void()> wake;   // see GenerationStream
};

class AgentCheckpoints {
 public:
  static absl::StatusOr<std::unique_ptr<AgentCheckpoints>> Open(
      AgentCheckpointsOptions options);

  // What others need to read from here.
  const std::string& endpoint() const { return stream_->endpoint(); }
  const std::string& public_key() const { return stream_->public_key(); }

  // Where the checkpoints of a job lie here, of which the coordinator says that
  // they are in `given`; made when it is not there, for the `account` that the
  // job runs as. Two jobs have the same one here when they have there.
  // INVALID_ARGUMENT: `given` is not absolute. PERMISSION_DENIED: it belongs to
  // somebody else.
  absl::StatusOr<std::string> DirectoryFor(
      const std::string& given, const std::optional<UnixAccount>& account);

  void Do(const agent_action::FetchCheckpoint& action);
  void Do(const agent_action::CancelFetch& action);
  void Do(const agent_action::OfferCheckpoint& action);

  // What the agent machine is to hear since the last call.
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
