#include "coordinator/agent_host/generation_files.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/manifest.h"

namespace gavel {
namespace {

constexpr size_t kVerifyBytes = size_t{1} << 20;
// The number of superseded generations that are kept, of those fetched here.
constexpr int kFetchedKept = 2;

// Whether a file of `text` lies at `path`.
bool Holds(FileSystem& file_system, const std::string& path,
           std::string_view text) {
  const absl::StatusOr<std::string> found =
      ReadWholeFile(file_system, path, text.size());
  return found.ok() && *found == text;
}

// The job may remove a generation while it is being opened.
constexpr int kListingsMax = 3;

bool IsUnusable(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsOutOfRange(status) || absl::IsInvalidArgument(status);
}

}  // namespace

std::string GenerationInbox::FolderOf(const Attempt& attempt) const {
  return StrCat(directory_, "/", AttemptName(attempt));
}

std::string GenerationInbox::PathOf(uint64_t file) const {
  return StrCat(FolderOf(attempt_), "/",
                ShardFileName(static_cast<size_t>(file)));
}

absl::StatusOr<GenerationInbox::Need> GenerationInbox::Prepare(
    Generation generation, std::string_view manifest) {
  open_.reset();
  under_way_ = false;
  GAVEL_ASSIGN_OR_RETURN(manifest_, DecodeManifest(manifest));
  if (manifest_.generation != generation) {
    return absl::DataLossError("the manifest is of another generation");
  }
  GAVEL_RETURN_IF_ERROR(CreateDirectories(file_system_, directory_));
  GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                         ListAttempts(file_system_, directory_));
  Need need;
  if (!attempts.committed.empty() &&
      attempts.committed.back().generation >= generation) {
    need.already_here = true;
    return need;
  }
  GAVEL_RETURN_IF_ERROR(BeginAttempt(attempts, manifest));
  CollectLinks(attempts);
  linked_verified_.clear();
  for (size_t i = 0; i < manifest_.shards.size(); ++i) {
    GAVEL_ASSIGN_OR_RETURN(const uint64_t have_bytes, BytesHere(i, resumed_));
    need.files.push_back({i, manifest_.shards[i].size_bytes, have_bytes});
  }
  GAVEL_RETURN_IF_ERROR(RemoveLeftovers(attempts));
  return need;
}

// Resumes the interrupted attempt if it has this very manifest, and else begins
// a new one.
absl::Status GenerationInbox::BeginAttempt(const Attempts& attempts,
                                           std::string_view text) {
  attempt_ = {manifest_.generation, 0};
  for (const Attempt& other : attempts.uncommitted) {
    if (other.generation != manifest_.generation) continue;
    resumed_ =
        Holds(file_system_,
              StrCat(FolderOf(other), "/", kManifestTemporaryName), text);
    attempt_ = other;
    if (resumed_) {
      under_way_ = true;
      // Its name may not have been durable.
      return file_system_.SyncDirectory(directory_);
    }
    attempt_.number = other.number + 1;
  }
  resumed_ = false;
  GAVEL_RETURN_IF_ERROR(file_system_.CreateDirectory(FolderOf(attempt_)));
  under_way_ = true;
  GAVEL_RETURN_IF_ERROR(WriteTextFile(
      file_system_, StrCat(FolderOf(attempt_), "/", kManifestTemporaryName),
      text));
  return file_system_.SyncDirectory(directory_);
}

// Collects the shards of the committed generations, and of an attempt at
// another generation that this process has under way.
void GenerationInbox::CollectLinks(const Attempts& attempts) {
  links_.clear();
  const auto collect = [&](const Attempt& attempt, std::string_view name) {
    const std::string folder = FolderOf(attempt);
    const absl::StatusOr<std::string> text = ReadWholeFile(
        file_system_, StrCat(folder, "/", name), kManifestSizeBytesMax);
    if (!text.ok()) return;
    absl::StatusOr<Manifest> manifest = DecodeManifest(*text);
    if (!manifest.ok()) return;
    for (size_t i = 0; i < manifest->shards.size(); ++i) {
      ShardSummary& shard = manifest->shards[i];
      const std::pair key(shard.size_bytes, shard.checksum);
      links_.emplace(key, Candidate{StrCat(folder, "/", ShardFileName(i)),
                                    std::move(shard)});
    }
  };
  for (const Attempt& attempt : attempts.committed) {
    collect(attempt, kManifestFileName);
  }
  for (const Attempt& attempt : attempts.uncommitted) {
    if (attempt != attempt_) collect(attempt, kManifestTemporaryName);
  }
}

absl::StatusOr<uint64_t> GenerationInbox::BytesHere(size_t file, bool resumed) {
  const ShardSummary& shard = manifest_.shards[file];
  const std::string path = PathOf(file);
  if (resumed) {
    const absl::StatusOr<std::unique_ptr<ReadableFile>> here =
        file_system_.OpenFile(path, FileAccess::kBuffered);
    if (here.ok() && (*here)->size_bytes() <= shard.size_bytes) {
      return (*here)->size_bytes();
    }
    if (here.ok()) {
      GAVEL_RETURN_IF_ERROR(file_system_.RemoveFile(path));
    }
  }
  const auto [begin, end] =
      links_.equal_range({shard.size_bytes, shard.checksum});
  for (auto it = begin; it != end; ++it) {
    const Candidate& candidate = it->second;
    if (candidate.summary != shard) continue;
    // One that is only partly there counts as not there.
    const absl::StatusOr<std::unique_ptr<ReadableFile>> there =
        file_system_.OpenFile(candidate.path, FileAccess::kBuffered);
    if (!there.ok() || (*there)->size_bytes() != shard.size_bytes) continue;
    // Not every file system has links; then it is fetched again.
    if (!file_system_.Link(candidate.path, path).ok()) continue;
    if (verified_.contains(candidate.path)) linked_verified_.insert(file);
    return shard.size_bytes;
  }
  return 0;
}

// No worker of the job runs here, since the job would not be fetched otherwise.
// A worker that runs all the same has an older epoch, and its uncommitted files
// are void.
absl::Status GenerationInbox::RemoveLeftovers(const Attempts& attempts) {
  for (const Attempt& other : attempts.uncommitted) {
    if (other == attempt_ ||
        other.generation.epoch > attempt_.generation.epoch) {
      continue;
    }
    GAVEL_RETURN_IF_ERROR(RemoveAttempt(file_system_, directory_, other));
  }
  return absl::OkStatus();
}

absl::Status GenerationInbox::Write(uint64_t file, uint64_t offset,
                                    std::string_view data) {
  const std::string path = PathOf(file);
  if (open_ == nullptr || open_file_ != file) {
    open_.reset();
    absl::StatusOr<std::unique_ptr<WritableFile>> opened =
        offset == 0 ? file_system_.CreateFile(path, FileAccess::kBuffered)
                    : file_system_.AppendFile(path);
    // Cut off before its first byte, or a link to another generation's file:
    // never to be written to.
    if (absl::IsAlreadyExists(opened.status())) {
      GAVEL_RETURN_IF_ERROR(file_system_.RemoveFile(path));
      opened = file_system_.CreateFile(path, FileAccess::kBuffered);
    }
    if (!opened.ok()) return opened.status();
    open_ = *std::move(opened);
    open_file_ = file;
  }
  return open_->Append(data);
}

absl::StatusOr<bool> GenerationInbox::Finish(uint64_t file) {
  const auto index = static_cast<size_t>(file);
  if (open_ == nullptr || open_file_ != file) {
    if (linked_verified_.contains(index)) {
      verified_.insert(PathOf(file));
      return true;  // and durable since then
    }
    GAVEL_ASSIGN_OR_RETURN(open_, file_system_.AppendFile(PathOf(file)));
    open_file_ = file;
  }
  GAVEL_RETURN_IF_ERROR(open_->Sync());
  GAVEL_RETURN_IF_ERROR(std::exchange(open_, nullptr)->Close());
  GAVEL_ASSIGN_OR_RETURN(const bool whole, IsWhole(file));
  if (whole) {
    verified_.insert(PathOf(file));
  } else {
    GAVEL_RETURN_IF_ERROR(file_system_.RemoveFile(PathOf(file)));
  }
  return whole;
}

absl::StatusOr<bool> GenerationInbox::IsWhole(uint64_t file) {
  const ShardSummary& expected = manifest_.shards[static_cast<size_t>(file)];
  GAVEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ReadableFile> here,
      file_system_.OpenFile(PathOf(file), FileAccess::kBuffered));
  if (here->size_bytes() != expected.size_bytes) return false;
  ShardSummer summer(expected.size_bytes, manifest_.shard_checksum());
  std::string buffer(kVerifyBytes, '\0');
  for (uint64_t at = 0; at < expected.size_bytes; at += buffer.size()) {
    const auto size = static_cast<size_t>(
        std::min<uint64_t>(buffer.size(), expected.size_bytes - at));
    GAVEL_RETURN_IF_ERROR(here->Read(at, buffer.data(), size));
    if (!summer.Add(std::string_view(buffer).substr(0, size)).ok()) {
      return false;
    }
  }
  const absl::StatusOr<ShardSummary> summary = summer.Finish();
  return summary.ok() && *summary == expected;
}

absl::Status GenerationInbox::Commit() {
  const std::string folder = FolderOf(attempt_);
  GAVEL_RETURN_IF_ERROR(file_system_.SyncDirectory(folder));
  GAVEL_RETURN_IF_ERROR(
      file_system_.Rename(StrCat(folder, "/", kManifestTemporaryName),
                          StrCat(folder, "/", kManifestFileName)));
  GAVEL_RETURN_IF_ERROR(file_system_.SyncDirectory(folder));
  under_way_ = false;
  fetched_.push_back(attempt_.generation);
  RemoveSuperseded();
  return absl::OkStatus();
}

// Removes copies that were made ahead of a move and replaced by later ones. The
// job itself deletes the generations that it wrote.
void GenerationInbox::RemoveSuperseded() {
  const absl::StatusOr<Attempts> attempts =
      ListAttempts(file_system_, directory_);
  if (!attempts.ok()) return;
  const std::vector<Generation> old =
      GenerationsToDelete(fetched_, attempt_.generation, kFetchedKept);
  for (const Attempt& attempt : attempts->committed) {
    if (std::ranges::find(old, attempt.generation) == old.end()) continue;
    RemoveAttempt(file_system_, directory_, attempt).IgnoreError();
  }
  std::erase_if(fetched_, [&](Generation generation) {
    return std::ranges::find(old, generation) != old.end();
  });
}

void GenerationInbox::Discard() {
  open_.reset();
  if (!under_way_) return;
  under_way_ = false;
  RemoveAttempt(file_system_, directory_, attempt_).IgnoreError();
}

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
