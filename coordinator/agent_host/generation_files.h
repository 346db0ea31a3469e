// The files of checkpoint generations that move between servers: those that are
// received (GenerationInbox), and those that are served (GenerationOutbox).
#ifndef GAVEL_COORDINATOR_AGENT_HOST_GENERATION_FILES_H_
#define GAVEL_COORDINATOR_AGENT_HOST_GENERATION_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent/checkpoint_stream.h"
#include "core/generation.h"
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
  // The latest committed generation of `directory` below `below` ((0, 0): of
  // all) whose files are all there in the size that the manifest says; what is
  // in them the reader verifies. NOT_FOUND: there is none.
  // RESOURCE_EXHAUSTED: too many files. Else the disk's error.
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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_AGENT_HOST_GENERATION_FILES_H_
