#include "runtime/device/copy_list.h"

#include <algorithm>

#include "runtime/device/streaming_copy.h"

namespace gavel {

void CopyList::Add(char* to, const char* from, size_t size) {
  for (size_t begin = 0; begin < size; begin += kPieceBytesMax) {
    pieces_.push_back(
        {to + begin, from + begin, std::min(kPieceBytesMax, size - begin)});
  }
  size_bytes_ += size;
}

absl::Status CopyList::Run(WorkerPool& pool) {
  // Neighbours together up to kPieceBytesMax, so that small ones cost little.
  std::vector<size_t> groups = {0};
  size_t size = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (size > 0 && size + pieces_[i].size > kPieceBytesMax) {
      groups.push_back(i);
      size = 0;
    }
    size += pieces_[i].size;
  }
  groups.push_back(pieces_.size());
  absl::Status status = pool.Run(groups.size() - 1, [&](size_t group) {
    for (size_t i = groups[group]; i < groups[group + 1]; ++i) {
      StreamingCopy(pieces_[i].to, pieces_[i].from, pieces_[i].size);
    }
    return absl::OkStatus();
  });
  pieces_.clear();
  size_bytes_ = 0;
  return status;
}

}  // namespace gavel
