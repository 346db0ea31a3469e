// The files that are served while generations move to other servers: of each
// session the manifest and all shards, opened at once, so that the job may go
// on deleting old generations meanwhile. The stream's thread owns one. I/O; not
// thread-safe.
#ifndef GAVEL_COORDINATOR_AGENT_HOST_GENERATION_OUTBOX_H_
#define GAVEL_COORDINATOR_AGENT_HOST_GENERATION_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent/stream_messages.h"
#include "core/generation.h"
#include "runtime/generation/file_system.h"

namespace gavel {

// Open files of one generation, and of all.
inline constexpr size_t kOutboxShardsMax = 4096;
inline constexpr size_t kOutboxFilesMax = 16384;

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

#endif  // GAVEL_COORDINATOR_AGENT_HOST_GENERATION_OUTBOX_H_
