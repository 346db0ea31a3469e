// Checkpoints that move between servers (docs/moves.md): the files of their
// generations, received (GenerationInbox) and served (GenerationOutbox); the
// part of an agent that streams them (GenerationStream); and the checkpoints of
// a server that shares no directory with others (AgentCheckpoints).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHECKPOINTS_H_
#define GAVEL_COORDINATOR_AGENT_HOST_AGENT_CHECKPOINTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent/agent_machine.h"
#include "coordinator/agent/checkpoint_stream.h"
#include "coordinator/agent_host/agent_environment.h"
#include "core/generation.h"
#include "core/ids.h"
#include "core/messages.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel {

// A generation that is being received from another server: its folder, files
// and commit. As for a local one (runtime/checkpoint/generation_store.h), the
// manifest appears when all files are whole, verified and durable. The stream's
// thread owns one for each fetched job. I/O through the FileSystem; not
// thread-safe.
//
// Files that are here already are not fetched again: those of an earlier
// generation with equal checksums become hard links, and an interrupted attempt
// is resumed.
class GenerationInbox {
 public:
  // Borrows the file system. `directory`: of the job's checkpoints here.
  GenerationInbox(FileSystem& file_system, std::string directory)
      : file_system_(file_system), directory_(std::move(directory)) {}

  struct Need {
    bool already_here = false;  // it, or a later one
    std::vector<StreamFile> files;
  };
  // Prepares the attempt at `generation`. Returns DATA_LOSS when the manifest
  // is damaged, FAILED_PRECONDITION when its version is newer than ours, and
  // the FileSystem's errors, as do the functions below. After an error the
  // caller discards the attempt.
  absl::StatusOr<Need> Prepare(Generation generation,
                               std::string_view manifest);

  absl::Status Write(uint64_t file, uint64_t offset, std::string_view data);
  // Makes the file durable and compares it with the manifest. False: it differs
  // and was removed.
  absl::StatusOr<bool> Finish(uint64_t file);
  // All files are finished. OK: it is a generation, and durable.
  absl::Status Commit();

  // Removes the uncommitted attempt.
  void Discard();

 private:
  std::string FolderOf(const Attempt& attempt) const;
  std::string PathOf(uint64_t file) const;
  absl::Status BeginAttempt(const Attempts& attempts, std::string_view text);
  void CollectLinks(const Attempts& attempts);
  absl::StatusOr<uint64_t> BytesHere(size_t file, bool resumed);
  absl::StatusOr<bool> IsWhole(uint64_t file);
  absl::Status RemoveLeftovers(const Attempts& attempts);
  void RemoveSuperseded();

  FileSystem& file_system_;
  const std::string directory_;
  Manifest manifest_;
  Attempt attempt_;
  bool under_way_ = false;
  bool resumed_ = false;
  std::unique_ptr<WritableFile> open_;
  uint64_t open_file_ = 0;
  // Shards that may be linked, by size and checksum: the path and the expected
  // content.
  struct Candidate {
    std::string path;
    ShardSummary summary;
  };
  std::multimap<std::pair<uint64_t, uint64_t>, Candidate> links_;
  // Files that this process has verified, so that their links need not be read.
  std::set<std::string> verified_;
  std::set<size_t> linked_verified_;
  std::vector<Generation> fetched_;  // committed by this process, ascending
};

// Open files of one generation, and of all.
inline constexpr size_t kOutboxShardsMax = 4096;
inline constexpr size_t kOutboxFilesMax = 16384;

// The files that are served while generations move to other servers: of each
// session the manifest and all shards, opened at once, so that the job may go
// on deleting old generations meanwhile. The stream's thread owns one. I/O; not
// thread-safe.
class GenerationOutbox {
 public:
  explicit GenerationOutbox(FileSystem& file_system)
      : file_system_(file_system) {}

  struct Opened {
    Generation generation;
    std::string manifest;
    std::vector<uint64_t> file_bytes;
  };
  // Opens the latest committed generation of `directory` below `below` ((0, 0):
  // no bound) that has all its files with the sizes in the manifest. The reader
  // verifies their content. NOT_FOUND: there is none. RESOURCE_EXHAUSTED: too
  // many files. Other codes are errors of the disk.
  absl::StatusOr<Opened> Open(uint64_t session, const std::string& directory,
                              Generation below);

  // `read` is within the file.
  absl::StatusOr<StreamChunk> Read(const StreamRead& read);

  void Close(uint64_t session) { sessions_.erase(session); }

 private:
  struct Session {
    std::string manifest;
    std::vector<std::unique_ptr<ReadableFile>> files;
  };
  absl::StatusOr<Opened> OpenAttempt(const std::string& folder,
                                     Generation generation, Session* session);
  size_t OpenFiles() const;

  FileSystem& file_system_;
  std::map<uint64_t, Session> sessions_;
};

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
