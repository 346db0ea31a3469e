#include "coordinator/agent_host/generation_outbox.h"

#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/generation_directory.h"
#include "runtime/generation/manifest.h"

namespace gavel {
namespace {

// The job may remove a generation while it is being opened.
constexpr int kListingsMax = 3;

bool IsUnusable(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsOutOfRange(status) || absl::IsInvalidArgument(status);
}

}  // namespace

size_t GenerationOutbox::OpenFiles() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session.files.size();
  return count;
}

absl::StatusOr<GenerationOutbox::Opened> GenerationOutbox::Open(
    uint64_t session, const std::string& directory, Generation below) {
  for (int listing = 0; listing < kListingsMax; ++listing) {
    GAVEL_ASSIGN_OR_RETURN(Attempts attempts,
                           ListAttempts(file_system_, directory));
    bool any = false;
    while (!attempts.committed.empty()) {
      const Attempt attempt = attempts.committed.back();
      attempts.committed.pop_back();
      if (below != Generation{} && attempt.generation >= below) continue;
      any = true;
      Session opened;
      absl::StatusOr<Opened> answer =
          OpenAttempt(StrCat(directory, "/", AttemptName(attempt)),
                      attempt.generation, &opened);
      if (answer.ok()) {
        sessions_[session] = std::move(opened);
        return answer;
      }
      if (!IsUnusable(answer.status())) return answer.status();
    }
    if (!any) break;
  }
  return absl::NotFoundError(StrCat(directory, " has no whole checkpoint"));
}

absl::StatusOr<GenerationOutbox::Opened> GenerationOutbox::OpenAttempt(
    const std::string& folder, Generation generation, Session* session) {
  Opened opened;
  opened.generation = generation;
  GAVEL_ASSIGN_OR_RETURN(
      opened.manifest,
      ReadWholeFile(file_system_, StrCat(folder, "/", kManifestFileName),
                    kManifestSizeBytesMax));
  GAVEL_ASSIGN_OR_RETURN(const Manifest manifest,
                         DecodeManifest(opened.manifest));
  if (manifest.generation != generation) {
    return absl::DataLossError(StrCat(folder, " holds another generation"));
  }
  if (manifest.shards.size() > kOutboxShardsMax ||
      OpenFiles() + manifest.shards.size() > kOutboxFilesMax) {
    return absl::ResourceExhaustedError(
        StrCat(folder, " has ", manifest.shards.size(),
               " shards, too many to be served at once"));
  }
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const std::string path = StrCat(folder, "/", ShardFileName(i));
    GAVEL_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file,
                           file_system_.OpenFile(path, FileAccess::kBuffered));
    if (file->size_bytes() != manifest.shards[i].size_bytes) {
      return absl::DataLossError(StrCat(path, " is not of its size"));
    }
    opened.file_bytes.push_back(file->size_bytes());
    session->files.push_back(std::move(file));
  }
  session->manifest = opened.manifest;
  return opened;
}

absl::StatusOr<StreamChunk> GenerationOutbox::Read(const StreamRead& read) {
  const auto found = sessions_.find(read.session);
  if (found == sessions_.end()) {
    return absl::NotFoundError("the session is closed");
  }
  const Session& session = found->second;
  StreamChunk chunk{read.session, read.file, read.offset, 0, ""};
  if (read.file == kStreamManifest) {
    chunk.data = session.manifest.substr(read.offset, read.size);
  } else {
    chunk.data.resize(read.size);
    GAVEL_RETURN_IF_ERROR(session.files.at(read.file)->Read(
        read.offset, chunk.data.data(), chunk.data.size()));
  }
  chunk.checksum = StreamChecksum(chunk.data);
  return chunk;
}

}  // namespace gavel
