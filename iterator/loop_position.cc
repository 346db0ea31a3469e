#include "iterator/loop_position.h"

#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/checkpoint/rng_state.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

using Kind = RangePosition::Kind;

constexpr std::string_view kPrefixes[] = {"gavel/loop", "gavel/random"};
constexpr char kLoop[] = "gavel/loop";
constexpr char kEnded[] = "ended";
constexpr char kBatches[] = "gavel/loop/batches";
constexpr char kPosition[] = "gavel/loop/position";
constexpr char kBeginRandom[] = "gavel/loop/random";
constexpr char kRandom[] = "gavel/random";

const at::Device kCpu(at::kCPU);

std::string NameOf(Kind kind) {
  switch (kind) {
    case Kind::kPositioned:
      return "positioned";
    case Kind::kForwarded:
      return "forwarded";
    case Kind::kRestarted:
      return "restarted";
  }
  return "none";
}

std::string Entry(const Snapshot& snapshot, const std::string& name) {
  const auto found = snapshot.bytes.find(name);
  return found == snapshot.bytes.end() ? std::string() : found->second;
}

}  // namespace

absl::Status LoopPosition::Restore(const Snapshot& snapshot) {
  Pending pending;
  for (const auto& [name, bytes] : snapshot.bytes) {
    for (const std::string_view prefix : kPrefixes) {
      if (std::string_view(name).starts_with(prefix)) {
        pending.entries.bytes[name] = bytes;
      }
    }
  }
  int64_t batches = 0;
  if (!absl::SimpleAtoi(Entry(snapshot, kBatches), &batches) || batches < 0) {
    return absl::DataLossError(
        "the checkpoint has no readable position in the data; it was not "
        "written by a gavel::Session");
  }
  last_position_ = Entry(snapshot, kPosition);
  pending_ = std::move(pending);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> LoopPosition::Enter(RangePosition* range,
                                            uint64_t steps_done) {
  range_ = range;
  steps_at_begin_ = steps_done;
  batches_before_ = 0;
  at_end_ = false;
  if (!pending_ || pending_->loop_taken) {
    GAVEL_ASSIGN_OR_RETURN(begin_random_, GetRngState(kCpu));
    return 0;
  }
  pending_->loop_taken = true;
  const Snapshot& saved = pending_->entries;
  const std::string kind = Entry(saved, kLoop);
  at_end_ = kind == kEnded;
  int64_t batches = 0;
  if (!absl::SimpleAtoi(Entry(saved, kBatches), &batches)) batches = 0;
  const int64_t skip = BatchesToSkip(kind, batches);
  batches_before_ = skip;
  // A range that is begun again draws its order from the generator: let it be
  // as it was when the loop was begun.
  begin_random_ = Entry(saved, skip > 0 ? kBeginRandom : "gavel/random/cpu");
  if (begin_random_.empty()) return skip;
  GAVEL_RETURN_IF_ERROR(SetRngState(kCpu, begin_random_));
  return skip;
}

// The range's own position is loaded here, too, as it replaces skipping.
int64_t LoopPosition::BatchesToSkip(const std::string& saved_kind,
                                    int64_t batches) {
  const Kind kind = range_->kind();
  if (kind == Kind::kPositioned) {
    if (last_position_.empty()) return 0;
    if (!range_->Load(last_position_)) {
      log_.Warning(
          "the checkpoint's position in the data does not fit this data loader "
          "(other data, seed or order); the epoch starts again");
    }
    return 0;
  }
  if (saved_kind == "none" || batches == 0) return 0;
  if (kind == Kind::kForwarded && saved_kind == NameOf(kind)) return batches;
  if (!restart_reported_) {
    log_.Warning(StrCat(
        "this range of batches has no position, so the epoch starts again "
        "from its first batch (",
        batches,
        " batches are trained on once more); use gavel::DataLoader, "
        "or gavel::Resume::kForward if its order is always the same"));
    restart_reported_ = true;
  }
  return 0;
}

absl::Status LoopPosition::Forwarded(at::Device device, int rank,
                                     int world_size) {
  GAVEL_RETURN_IF_ERROR(SetShard(rank, world_size));
  if (!pending_) return absl::OkStatus();
  const Pending pending = *std::exchange(pending_, std::nullopt);
  return RestoreRngState(pending.entries, device, kRandom);
}

absl::Status LoopPosition::SetShard(int rank, int world_size) {
  if (range_ == nullptr || range_->SetShard(rank, world_size)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("the data can't be cut for ", world_size,
             " workers: each needs a sample in the smallest step; use fewer "
             "workers, or raise DataLoaderOptions::global_batch_size to twice "
             "their number"));
}

void LoopPosition::Leave() {
  if (range_ == nullptr) return;
  SaveRangePosition();
  range_ = nullptr;
}

absl::Status LoopPosition::RestoreRandom(at::Device device) const {
  if (!pending_) return absl::OkStatus();
  return RestoreRngState(pending_->entries, device, kRandom);
}

void LoopPosition::BeginOwnLoop() {
  if (!pending_) return;
  if (Entry(pending_->entries, kLoop) != "none") {
    log_.Warning(
        "the checkpoint was taken inside a gavel::Iterator, but steps are "
        "counted by StepDone() before its loop is begun: its position in the "
        "data is lost");
  }
  pending_.reset();
}

void LoopPosition::SaveRangePosition() {
  if (range_->kind() == Kind::kPositioned) last_position_ = range_->Save();
}

absl::Status LoopPosition::Collect(at::Device device, uint64_t steps_done,
                                   Snapshot* snapshot) {
  return CatchAsStatus("saving the position in the data", [&] {
    // Not yet taken: it is still as restored.
    if (pending_ && !pending_->loop_taken) {
      snapshot->bytes.insert(pending_->entries.bytes.begin(),
                             pending_->entries.bytes.end());
      return absl::OkStatus();
    }
    int64_t batches = 0;
    std::string kind = "none";
    if (range_ != nullptr) {
      kind = at_end_ ? kEnded : NameOf(range_->kind());
      if (!at_end_) {
        batches = batches_before_ +
                  static_cast<int64_t>(steps_done - steps_at_begin_);
      }
      SaveRangePosition();
    }
    snapshot->bytes[kLoop] = kind;
    snapshot->bytes[kBatches] = StrCat(batches);
    snapshot->bytes[kPosition] = last_position_;
    snapshot->bytes[kBeginRandom] = begin_random_;
    return CollectRandom(device, snapshot);
  });
}

absl::Status LoopPosition::CollectRandom(at::Device device,
                                         Snapshot* snapshot) {
  if (!pending_) return CollectRngState(device, kRandom, snapshot);
  // The generators are at the loop's begin, for the range to be forwarded.
  const std::string prefix = StrCat(kRandom, "/");
  for (const auto& [name, bytes] : pending_->entries.bytes) {
    if (std::string_view(name).starts_with(prefix)) {
      snapshot->bytes[name] = bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace gavel::internal
