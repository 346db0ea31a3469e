#include "iterator/loop_position.h"

#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "gavel/internal/placement.h"
#include "gavel/internal/sharded_order.h"
#include "runtime/checkpoint/rng_state.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

using Kind = RangePosition::Kind;

constexpr std::string_view kPrefixes[] = {"gavel/loop", "gavel/random"};
constexpr char kLoop[] = "gavel/loop";
constexpr char kEnded[] = "ended";
constexpr char kBatches[] = "gavel/loop/batches";
constexpr char kPosition[] = "gavel/loop/position";
constexpr char kLoaders[] = "gavel/loop/loaders/";
constexpr char kFirstBatch[] = "gavel/loop/first";
constexpr char kBeginRandom[] = "gavel/loop/random";
constexpr char kEnd[] = "gavel/loop/end";
constexpr char kEvaluates[] = "gavel/loop/evaluates";
constexpr char kRandom[] = "gavel/random";

const at::Device kCpu(at::kCPU);

// A program that waits for data in a loop around its loops would try for ever.
constexpr int kEmptyLoopsMax = 1000;

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

void CheckLength(bool has_batch, int64_t batch) {
  if (has_batch) return;
  throw std::out_of_range(
      StrCat("the range of batches has ended before batch ", batch,
             ", which was trained on before the restart; give it the data of "
             "before, or pass gavel::Resume::kRestart"));
}

LoopPosition::~LoopPosition() { RestoreLoaders({}); }

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
  restored_end_ = pending.entries.bytes.erase(kEnd) > 0;
  evaluation_due_ = pending.entries.bytes.erase(kEvaluates) > 0;
  std::map<int, std::string> loaders;
  for (const auto& [name, bytes] : pending.entries.bytes) {
    int number = 0;
    if (std::string_view(name).starts_with(kLoaders) &&
        absl::SimpleAtoi(name.substr(sizeof(kLoaders) - 1), &number)) {
      loaders[number] = bytes;
    }
  }
  RestoreLoaders(std::move(loaders));
  pending_ = std::move(pending);
  return absl::OkStatus();
}

absl::Status LoopPosition::CheckRange(const RangePosition& range) {
  const std::string why =
      range.kind() == Kind::kForwarded ? range.WhyNotForwarded() : "";
  if (!why.empty()) {
    return absl::FailedPreconditionError(
        StrCat("a restart could not continue in this data loader: ", why,
               ", or gavel::Resume::kRestart to begin its epoch again"));
  }
  const void* const address = range.address();
  if (range.kind() != Kind::kPositioned || range.loader_number() >= 0 ||
      address == nullptr) {
    return absl::OkStatus();
  }
  if (positioned_ == nullptr) positioned_ = address;
  if (positioned_ == address) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a second range with a position of its own is trained on, and "
      "checkpoints "
      "hold one; save the others' with session->Track(name, save, load), and "
      "pass gavel::Resume::kRestart to their gavel::Iterator");
}

absl::StatusOr<int64_t> LoopPosition::Enter(RangePosition* range,
                                            uint64_t steps_done) {
  empty_loops_ =
      at_end_ && steps_done == steps_at_begin_ ? empty_loops_ + 1 : 0;
  if (empty_loops_ >= kEmptyLoopsMax) {
    return absl::FailedPreconditionError(
        StrCat("the range of batches was empty ", kEmptyLoopsMax,
               " times in a row, so no step can be done; look at the data"));
  }
  range_ = range;
  steps_at_begin_ = steps_done;
  batches_before_ = 0;
  first_batch_ = 0;
  at_end_ = false;
  kept_.reset();
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
  GAVEL_ASSIGN_OR_RETURN(const int64_t skip, BatchesToSkip(kind, batches));
  batches_before_ = skip;
  if (skip == 0) pending_->entries.bytes.erase(kFirstBatch);
  // A range that is begun again draws its order from the generator: let it be
  // as it was when the loop was begun.
  begin_random_ = Entry(saved, skip > 0 ? kBeginRandom : "gavel/random/cpu");
  if (begin_random_.empty()) return skip;
  GAVEL_RETURN_IF_ERROR(SetRngState(kCpu, begin_random_));
  return skip;
}

// The range's own position is loaded here, too, as it replaces skipping.
absl::StatusOr<int64_t> LoopPosition::BatchesToSkip(
    const std::string& saved_kind, int64_t batches) {
  switch (range_->kind()) {
    case Kind::kPositioned:
      GAVEL_RETURN_IF_ERROR(LoadPosition());
      return 0;
    case Kind::kRestarted:
      range_->RestartEpoch(SavedPositionOf(*range_));
      break;
    case Kind::kForwarded:
      if (saved_kind == NameOf(Kind::kForwarded) ||
          saved_kind == NameOf(Kind::kRestarted)) {
        return batches;
      }
  }
  if (saved_kind != "none" && batches > 0) {
    log_.Info(StrCat("the epoch begins again from its first batch: ", batches,
                     " batches are trained on once more"));
  }
  return 0;
}

// The saved one of this very loader, where the checkpoint has it; else that of
// the loop that was run last.
std::string LoopPosition::SavedPositionOf(const RangePosition& range) const {
  std::string own =
      Entry(pending_->entries, StrCat(kLoaders, range.loader_number()));
  return own.empty() ? last_position_ : own;
}

absl::Status LoopPosition::LoadPosition() {
  const std::string position = SavedPositionOf(*range_);
  if (position.empty() || range_->Load(position)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("the checkpoint's position in the data (", position,
             ") does not fit this data loader (", range_->Save(),
             "): give it the data, seed and order of before, or pass "
             "gavel::Resume::kRestart to begin the epoch again with these"));
}

absl::Status LoopPosition::FirstBatch(uint64_t fingerprint) {
  first_batch_ = fingerprint;
  uint64_t saved = 0;
  if (!pending_ || fingerprint == 0 ||
      !absl::SimpleAtoi(Entry(pending_->entries, kFirstBatch), &saved) ||
      saved == 0 || saved == fingerprint) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the range of batches does not begin with the same batch as before the "
      "restart, so the position in it is lost: use gavel::DataLoader, whose "
      "order is the same in every process, or pass gavel::Resume::kRestart to "
      "begin the epoch again");
}

absl::Status LoopPosition::Forwarded(at::Device device, int rank,
                                     int world_size) {
  GAVEL_RETURN_IF_ERROR(SetShard(rank, world_size));
  if (range_ != nullptr && !range_->HasStep()) {
    return absl::InvalidArgumentError(
        "the data loader has no step in an epoch: it has fewer samples than "
        "one step needs, and drop_last leaves the rest out; lower the batch "
        "size, or give it more data");
  }
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

absl::Status LoopPosition::Leave(bool keeps_place, at::Device device,
                                 uint64_t steps_done) {
  if (range_ == nullptr) return absl::OkStatus();
  SaveRangePosition();
  absl::Status status;
  if (keeps_place && !at_end_) {
    Snapshot place;
    status = Collect(device, steps_done, &place);
    kept_ = std::move(place);
  }
  range_ = nullptr;
  return status;
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
    if (end_) snapshot->bytes[kEnd] = "1";
    if (evaluation_due_) snapshot->bytes[kEvaluates] = "1";
    // Not yet taken: it is still as restored. Left for good: as it was then.
    const Snapshot* const place = kept_ ? &*kept_
                                  : pending_ && !pending_->loop_taken
                                      ? &pending_->entries
                                      : nullptr;
    if (place != nullptr) {
      snapshot->bytes.insert(place->bytes.begin(), place->bytes.end());
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
    if (first_batch_ != 0) snapshot->bytes[kFirstBatch] = StrCat(first_batch_);
    for (const auto& [number, position] : PositionsOfLoaders()) {
      snapshot->bytes[StrCat(kLoaders, number)] = position;
    }
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
