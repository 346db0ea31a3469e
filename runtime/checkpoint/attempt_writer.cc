#include "runtime/checkpoint/attempt_writer.h"

#include <algorithm>
#include <string_view>

#include "core/status.h"
#include "core/text.h"
#include "runtime/generation/generation_directory.h"

namespace gavel {
namespace {

// Of one write call: long enough for the full speed of a disk.
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

// What is left is made durable by all threads at once, as a disk is flushed for
// several files in the time that it takes for one.
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

}  // namespace gavel
