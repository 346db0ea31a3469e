// Checkpoints that move between servers (docs/moves.md): the part of an agent
// that streams them (GenerationStream), and the checkpoints of a server that
// shares no directory with others (AgentCheckpoints).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHECKPOINTS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHECKPOINTS_H_

#include <cstddef>
#include <cstdint>
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
#include "coordinator/agent_host/agent_environment.h"
#include "core/generation.h"
#include "core/ids.h"
#include "core/messages.h"
#include "runtime/generation/file_system.h"

namespace gavel {

// Fetched at once; others, up to kFetchesMax in all, wait for their turn.
inline constexpr size_t kFetchesAtOnceMax = 8;
inline constexpr size_t kFetchesMax = 1024;

struct GenerationStreamOptions {
  std::string address = "127.0.0.1";  // where other agents reach this one
  std::function<void()> wake;
  FileSystem* file_system = &FileSystem::Posix();  // borrowed
};

// The state of a fetch.
struct FetchState {
  JobId job;
  std::string source;  // the server
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;  // 0: not known yet
  std::string waits_for;     // why nothing comes at present
  bool over = false;
  Generation generation;  // that is here now, when over
  std::string error;      // over, and why it came to nothing
};

// Streams checkpoints to and from other agents, on a thread of its own with its
// own sockets, around the state machines of coordinator/agent. It serves those
// generations that the coordinator allowed a reader to read, and fetches those
// that the agent asks for.
//
// Thread-safe. `wake` is called on the thread when there is something to take;
// it must not block, nor call back.
class GenerationStream {
 public:
  static absl::StatusOr<std::unique_ptr<GenerationStream>> Start(
      GenerationStreamOptions options);
  // Ends all transfers. Partly fetched generations are kept, and a later fetch
  // resumes them.
  ~GenerationStream();

  // The address and the key that others need to read from here. The key is new
  // with each start.
  const std::string& endpoint() const;
  const std::string& public_key() const;

  // The agent with this key may read the job's checkpoints, for a while. Files
  // are opened as `unix_user`, if it names one whose jobs run here; else the
  // reader is refused.
  void Serve(JobId job, const std::string& reader_public_key,
             const std::string& directory, const std::string& unix_user = "");

  // Fetches the job's latest generation from `source` into `directory`. Files
  // are opened as `account`, if there is one. A second call for the same job
  // continues the fetch, with the arguments that have changed. Beyond
  // kFetchesMax fetches it is over at once, with an error.
  void Fetch(JobId job, const std::string& directory,
             const CheckpointSource& source,
             const std::optional<UnixAccount>& account = std::nullopt);
  void Cancel(JobId job);

  // The jobs whose state has changed since the last call, each once.
  std::vector<FetchState> TakeStates();

 private:
  struct Impl;
  explicit GenerationStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The checkpoints of a server that shares no directory with other servers:
// their location, and the streams that move them. An agent started with
// --own-checkpoints owns one. Thread-safe; all but TakeEvents may wait for a
// disk or for the user database.
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
