#include "runtime/checkpoint/attempt_writer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/manifest.h"

namespace gavel {
namespace {

bool CountsAsUnchanged(const Manifest& manifest, const std::string& name) {
  const auto unchanged = manifest.unchanged.find(name);
  return unchanged != manifest.unchanged.end() &&
         unchanged->second >= kUnchangedGenerations;
}

// The bytes of unchanged tensors in a shard that has others, too.
uint64_t BytesForNothing(const Manifest& manifest, const ShardSummary& shard,
                         const std::map<std::string, uint64_t>& sizes_bytes) {
  uint64_t size_bytes = 0;
  bool has_others = false;
  for (const TensorChecksum& tensor : shard.tensors) {
    const auto size = sizes_bytes.find(tensor.name);
    if (!CountsAsUnchanged(manifest, tensor.name)) {
      has_others = true;
    } else if (size != sizes_bytes.end()) {
      size_bytes += size->second;
    }
  }
  return has_others ? size_bytes : 0;
}

}  // namespace

std::map<std::string, int> CountUnchanged(
    const Manifest& before, const std::vector<ShardSummary>& shards) {
  std::map<std::string, uint64_t> checksums;
  for (const ShardSummary& shard : before.shards) {
    for (const TensorChecksum& tensor : shard.tensors) {
      checksums.emplace(tensor.name, tensor.checksum);
    }
  }
  std::map<std::string, int> counts;
  for (const ShardSummary& shard : shards) {
    for (const TensorChecksum& tensor : shard.tensors) {
      const auto checksum = checksums.find(tensor.name);
      if (checksum == checksums.end() || checksum->second != tensor.checksum) {
        continue;
      }
      const auto count = before.unchanged.find(tensor.name);
      const int until_now = count == before.unchanged.end() ? 0 : count->second;
      counts[tensor.name] = std::min(until_now, kUnchangedGenerations - 1) + 1;
    }
  }
  return counts;
}

bool IsUnchanged(const Manifest& manifest, size_t shard) {
  const std::vector<TensorChecksum>& tensors = manifest.shards[shard].tensors;
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const TensorChecksum& tensor) {
                       return CountsAsUnchanged(manifest, tensor.name);
                     });
}

std::set<std::string> ChooseUnchanged(
    const Manifest& last, const std::map<std::string, uint64_t>& sizes_bytes,
    uint64_t for_nothing_bytes_max) {
  uint64_t for_nothing_bytes = 0;
  for (const ShardSummary& shard : last.shards) {
    for_nothing_bytes += BytesForNothing(last, shard, sizes_bytes);
  }
  std::set<std::string> chosen;
  if (for_nothing_bytes > for_nothing_bytes_max) {
    for (const auto& [name, generations] : last.unchanged) {
      // Entries of bytes, which have no size here, are not cut.
      if (generations >= kUnchangedGenerations && sizes_bytes.contains(name)) {
        chosen.insert(name);
      }
    }
    return chosen;
  }
  const size_t count = std::min(last.unchanged_shards, last.shards.size());
  for (size_t i = 0; i < count; ++i) {
    for (const TensorChecksum& tensor : last.shards[i].tensors) {
      chosen.insert(tensor.name);
    }
  }
  return chosen;
}

namespace {

// The bytes of one write call: enough for the full speed of a disk.
constexpr uint64_t kWriteBytesMax = uint64_t{8} << 20;

absl::Status SyncAndClose(WritableFile& file) {
  GAVEL_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

}  // namespace

absl::Status AttemptWriter::Write(const std::string& folder,
                                  const std::vector<StagedShard>& shards,
                                  const WhenSummed& when_summed) {
  folder_ = folder;
  shards_ = &shards;
  when_summed_ = &when_summed;
  summaries_.assign(shards.size(), {});
  summed_.assign(shards.size(), 0);
  linked_.assign(shards.size(), 0);
  files_.clear();
  GAVEL_RETURN_IF_ERROR(LinkUnchanged());
  GAVEL_RETURN_IF_ERROR(CreateFiles());
  // Writing and summing a shard are tasks of their own: one waits for the disk,
  // the other for memory.
  GAVEL_RETURN_IF_ERROR(pool_.Run(2 * shards.size(), [this](size_t task) {
    return task % 2 == 0 ? WriteShard(task / 2) : Sum(task / 2);
  }));
  return SyncRest();
}

// All threads make the rest durable at once, as a disk is flushed for several
// files in the time that it takes for one.
absl::Status AttemptWriter::SyncRest() {
  std::vector<std::function<absl::Status()>> syncs = {
      [this] { return (*when_summed_)(summaries_); },
      [this] { return file_system_.SyncDirectory(folder_); },
      [this] { return file_system_.SyncDirectory(ParentOf(folder_)); }};
  for (const auto& file : files_) {
    if (file != nullptr) {
      syncs.push_back([&file] { return SyncAndClose(*file); });
    }
  }
  return pool_.Run(syncs.size(), [&](size_t i) { return syncs[i](); });
}

bool AttemptWriter::MayBeUnchanged(const StagedShard& shard) const {
  const size_t i = shard.index;
  const std::vector<ShardSummary>& before = history_.manifest.shards;
  return !history_.folder.empty() && i < before.size() &&
         history_.changed[i] == 0 &&
         before[i].size_bytes == shard.layout->size_bytes &&
         LinkedBefore(i) + 1 <
             kLinkedGenerations +
                 static_cast<int>(i % static_cast<size_t>(kLinkedGenerations));
}

int AttemptWriter::LinkedBefore(size_t index) const {
  const auto linked = history_.manifest.linked.find(index);
  if (linked == history_.manifest.linked.end()) return 0;
  return std::min(linked->second, 2 * kLinkedGenerations);
}

absl::Status AttemptWriter::LinkUnchanged() {
  std::vector<size_t> candidates;
  for (size_t i = 0; i < shards_->size(); ++i) {
    if (MayBeUnchanged((*shards_)[i])) candidates.push_back(i);
  }
  GAVEL_RETURN_IF_ERROR(pool_.Run(
      candidates.size(), [&](size_t i) { return Sum(candidates[i]); }));
  linked_count_ = 0;
  for (const size_t i : candidates) {
    const size_t index = (*shards_)[i].index;
    if (summaries_[i].summary != history_.manifest.shards[index]) continue;
    const std::string name = ShardFileName(index);
    const std::string path = StrCat(folder_, "/", name);
    if (file_system_.Link(StrCat(history_.folder, "/", name), path).ok()) {
      linked_[i] = 1;
      summaries_[i].linked = LinkedBefore(index) + 1;
      ++linked_count_;
    } else {
      // Where links are not known, or the old file has too many or is gone, it
      // is written as any other.
      file_system_.RemoveFile(path).IgnoreError();
    }
  }
  return absl::OkStatus();
}

absl::Status AttemptWriter::CreateFiles() {
  files_.resize(shards_->size());
  for (size_t i = 0; i < shards_->size(); ++i) {
    if (linked_[i] != 0) continue;
    GAVEL_ASSIGN_OR_RETURN(
        files_[i], file_system_.CreateFile(
                       StrCat(folder_, "/", ShardFileName((*shards_)[i].index)),
                       FileAccess::kDirect));
  }
  return absl::OkStatus();
}

absl::Status AttemptWriter::WriteShard(size_t i) {
  if (linked_[i] != 0) return absl::OkStatus();
  const StagedShard& shard = (*shards_)[i];
  WritableFile& file = *files_[i];
  const uint64_t size = shard.layout->size_bytes;
  const std::string_view data(shard.data, AlignUp(size));
  for (uint64_t begin = 0; begin < data.size(); begin += kWriteBytesMax) {
    GAVEL_RETURN_IF_ERROR(file.Append(data.substr(begin, kWriteBytesMax)));
  }
  if (data.size() != size) {
    GAVEL_RETURN_IF_ERROR(file.Truncate(size));
  }
  // The last ones are left to SyncRest.
  if (i + static_cast<size_t>(pool_.threads()) >= shards_->size()) {
    return absl::OkStatus();
  }
  GAVEL_RETURN_IF_ERROR(SyncAndClose(file));
  files_[i].reset();
  return absl::OkStatus();
}

absl::Status AttemptWriter::Sum(size_t i) {
  if (summed_[i] != 0) return absl::OkStatus();
  const StagedShard& shard = (*shards_)[i];
  summaries_[i] = {shard.index, SummarizeShard(*shard.layout, shard.data), 0};
  summed_[i] = 1;
  return absl::OkStatus();
}

namespace {

// Short against a save, long against a look into a folder, also over NFS.
constexpr std::chrono::milliseconds kLookInterval(10);

using Deadline = std::chrono::time_point<std::chrono::steady_clock,
                                         std::chrono::duration<double>>;

Deadline After(const GangWait& wait) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration<double>(wait.wait_s);
}

// Calls `look` again and again until it returns true, that is, until it has
// found its file. Returns false at the deadline, which is put off while a rank
// has not begun.
template <class Look>
absl::StatusOr<bool> WaitUntil(Deadline deadline, const GangWait& wait,
                               Look look) {
  bool counts = !wait.all_have_begun;
  while (true) {
    GAVEL_ASSIGN_OR_RETURN(const bool found, look());
    if (found) return true;
    if (!counts) {
      counts = wait.all_have_begun();
      deadline = After(wait);
    }
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (wait.gives_up) {
      GAVEL_RETURN_IF_ERROR(wait.gives_up());
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

absl::StatusOr<bool> HasFile(FileSystem& file_system, const std::string& folder,
                             const std::string& name) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                         file_system.List(folder));
  return std::any_of(entries.begin(), entries.end(),
                     [&](const DirectoryEntry& entry) {
                       return entry.name == name && !entry.is_directory;
                     });
}

absl::Status DontFit(int rank, std::string_view why) {
  return absl::FailedPreconditionError(
      StrCat("rank ", rank, " ", why,
             "; all ranks must track the same state and checkpoint at the same "
             "step"));
}

absl::Status NamePart(FileSystem& file_system, const std::string& folder,
                      int rank) {
  return file_system.Rename(StrCat(folder, "/", PartTemporaryName(rank)),
                            StrCat(folder, "/", PartFileName(rank)));
}

absl::StatusOr<ManifestPart> ReadPart(FileSystem& file_system,
                                      const std::string& folder,
                                      const ManifestPart& own, int rank) {
  const std::string path = StrCat(folder, "/", PartFileName(rank));
  GAVEL_ASSIGN_OR_RETURN(
      const std::string text,
      ReadWholeFile(file_system, path, kManifestSizeBytesMax));
  absl::StatusOr<ManifestPart> part = DecodePart(text);
  if (!part.ok()) return Annotate(part.status(), path);
  if (part->generation != own.generation || part->rank != rank ||
      part->world_size != own.world_size) {
    return DontFit(rank, "wrote a part of another generation or gang");
  }
  if (part->cut != own.cut) {
    return DontFit(rank,
                   "cut the state into other shards than rank 0; unequal parts "
                   "(gavel::Sharded) need the size of the whole");
  }
  return part;
}

using IndexedShards = std::map<size_t, ManifestPart::IndexedShard>;

absl::Status Merge(const ManifestPart& part, IndexedShards* shards) {
  for (const ManifestPart::IndexedShard& shard : part.shards) {
    if (!shards->emplace(shard.index, shard).second) {
      return DontFit(part.rank, StrCat("wrote ", ShardFileName(shard.index),
                                       ", which another rank wrote, too"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Attempt> WaitForAttempt(FileSystem& file_system,
                                       const std::string& directory,
                                       Generation generation, int rank,
                                       const GangWait& wait) {
  std::optional<Attempt> found;
  const auto look = [&]() -> absl::StatusOr<bool> {
    GAVEL_ASSIGN_OR_RETURN(const Attempts attempts,
                           ListAttempts(file_system, directory));
    for (const Attempt& attempt : attempts.uncommitted) {
      if (attempt.generation != generation) continue;
      const std::string folder = StrCat(directory, "/", AttemptName(attempt));
      // One that this rank took part in is given up.
      absl::StatusOr<bool> old =
          HasFile(file_system, folder, PartFileName(rank));
      if (old.ok() && !*old) found = attempt;
    }
    return found.has_value();
  };
  GAVEL_ASSIGN_OR_RETURN(const bool in_time,
                         WaitUntil(After(wait), wait, look));
  if (in_time) return *found;
  return absl::DeadlineExceededError(
      StrCat("rank 0 has not begun ", GenerationName(generation), " in ",
             directory, " within ", wait.wait_s,
             " s; see its log, and that all ranks see the same directory"));
}

absl::Status WritePart(FileSystem& file_system, const std::string& folder,
                       const ManifestPart& part) {
  return WriteTextFile(file_system,
                       StrCat(folder, "/", PartTemporaryName(part.rank)),
                       EncodePart(part));
}

absl::Status PublishPart(FileSystem& file_system, const std::string& folder,
                         int rank) {
  GAVEL_RETURN_IF_ERROR(NamePart(file_system, folder, rank));
  return file_system.SyncDirectory(folder);
}

absl::Status AnnounceCommit(FileSystem& file_system,
                            const std::string& folder) {
  return NamePart(file_system, folder, 0);
}

absl::StatusOr<std::vector<ManifestPart::IndexedShard>> CollectParts(
    FileSystem& file_system, const std::string& folder, const ManifestPart& own,
    const GangWait& wait) {
  IndexedShards merged;
  GAVEL_RETURN_IF_ERROR(Merge(own, &merged));
  const Deadline deadline = After(wait);  // of all ranks together
  for (int rank = 1; rank < own.world_size; ++rank) {
    GAVEL_ASSIGN_OR_RETURN(const bool in_time, WaitUntil(deadline, wait, [&] {
                             return HasFile(file_system, folder,
                                            PartFileName(rank));
                           }));
    if (!in_time) {
      return absl::DeadlineExceededError(
          StrCat("rank ", rank, " of ", own.world_size,
                 " has not written its part within ", wait.wait_s,
                 " s; see its log, and that it uses this directory"));
    }
    GAVEL_ASSIGN_OR_RETURN(const ManifestPart part,
                           ReadPart(file_system, folder, own, rank));
    GAVEL_RETURN_IF_ERROR(Merge(part, &merged));
  }
  std::vector<ManifestPart::IndexedShard> shards;
  for (auto& [index, shard] : merged) {
    if (index != shards.size()) {
      return DontFit(own.rank, StrCat("misses ", ShardFileName(shards.size()),
                                      " of another rank"));
    }
    shards.push_back(std::move(shard));
  }
  return shards;
}

absl::Status WaitForCommit(FileSystem& file_system,
                           const std::string& directory, const Attempt& attempt,
                           const GangWait& wait) {
  const std::string folder = StrCat(directory, "/", AttemptName(attempt));
  absl::StatusOr<bool> committed = WaitUntil(After(wait), wait, [&] {
    return HasFile(file_system, folder, PartFileName(0));
  });
  if (!committed.ok()) return committed.status();
  if (*committed) return absl::OkStatus();
  return absl::DeadlineExceededError(StrCat(
      "rank 0 has not committed it within ", wait.wait_s, " s; see its log"));
}

}  // namespace gavel
