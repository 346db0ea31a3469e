// The part of an agent that streams checkpoints from and to other agents: a
// thread of its own with its own sockets, around the machines of
// coordinator/agent. Serves the generations of jobs that the coordinator
// allowed a reader, and fetches those that the agent is told to.
//
// Thread-safe. `wake` is called on the thread when there is something to take;
// it must not block, nor call back.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_GENERATION_STREAM_H_
#define GAVEL_COORDINATOR_AGENT_HOST_GENERATION_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_host/unix_account.h"
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

// What became of a fetch so far.
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

class GenerationStream {
 public:
  static absl::StatusOr<std::unique_ptr<GenerationStream>> Start(
      GenerationStreamOptions options);
  // Ends what is under way; partly fetched generations stay to be gone on with.
  ~GenerationStream();

  // What others need to read from here; the key is new with each start.
  const std::string& endpoint() const;
  const std::string& public_key() const;

  // The agent with this key may read the job's checkpoints, for a while. Files
  // are opened as `unix_user`, if it names one whose jobs run here; else the
  // reader is refused.
  void Serve(JobId job, const std::string& reader_public_key,
             const std::string& directory, const std::string& unix_user = "");

  // Makes the latest generation that `source` has of the job one of
  // `directory`; files are opened as `account`, if there is one. Once more for
  // the same job: goes on, with what has changed meanwhile. Beyond kFetchesMax
  // it is over at once, with an error.
  void Fetch(JobId job, const std::string& directory,
             const CheckpointSource& source,
             const std::optional<UnixAccount>& account = std::nullopt);
  void Cancel(JobId job);

  // What has changed since the last call: each job once.
  std::vector<FetchState> TakeStates();

 private:
  struct Impl;
  explicit GenerationStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_GENERATION_STREAM_H_
