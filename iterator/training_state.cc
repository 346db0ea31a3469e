#include "iterator/training_state.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "core/text_table.h"
#include "gavel/internal/placement.h"
#include "gavel/internal/sharded_order.h"
#include "iterator/clock.h"
#include "iterator/step_profile.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/device_move.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {

// ---- Where the loop is.

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

// ---- The accelerator.

namespace {

// The job that held the accelerator before may still be releasing it. A longer
// wait than this is a fault.
constexpr double kLockWaitMax_s = 2;
constexpr double kRoomWaitMax_s = 2;
constexpr std::chrono::milliseconds kRoomInterval(50);

absl::Status SetThreads(int threads) {
  if (threads == at::get_num_threads()) return absl::OkStatus();
  return CatchAsStatus("setting the number of threads", [threads] {
    at::set_num_threads(threads);
    return absl::OkStatus();
  });
}

// Host memory of a process has no limit, so only the size of the tracked state
// can be checked.
absl::Status FitsSlot(const lease_action::Resume& lease,
                      const TrackedState& tracked) {
  if (lease.memory_limit_bytes == 0 ||
      tracked.SizeBytes() <= lease.memory_limit_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      StrCat("the tracked state is ", SizeText(tracked.SizeBytes()),
             ", of this slot it has ", SizeText(lease.memory_limit_bytes),
             " beside another job"));
}

// A process that leaves may not have given back yet a device that only one may
// use.
absl::Status ChooseWhenFree(const lease_action::Resume& lease,
                            at::Device device) {
  const Time give_up = std::min(Now() + kRoomWaitMax_s, lease.deadline);
  while (true) {
    const absl::Status status = ChooseDevice(device);
    if (!absl::IsUnavailable(status) || Now() > give_up) return status;
    std::this_thread::sleep_for(kRoomInterval);
  }
}

// A process that leaves may not have given its memory back yet.
absl::Status MoveWhenThereIsRoom(const lease_action::Resume& lease,
                                 at::Device device, TrackedState& tracked) {
  const Time give_up = std::min(Now() + kRoomWaitMax_s, lease.deadline);
  while (true) {
    const absl::Status status = tracked.MoveTo(device);
    if (!absl::IsResourceExhausted(status) || device.is_cpu()) return status;
    tracked.MoveToHost().IgnoreError();
    ReleaseMemory(device).IgnoreError();
    const DeviceMemory memory = ReadDeviceMemory(device);
    const uint64_t need = tracked.SizeBytes();
    if (need > memory.total_bytes || Now() > give_up) return status;
    std::this_thread::sleep_for(kRoomInterval);
  }
}

}  // namespace

absl::Status Accelerator::Take(const lease_action::Resume& lease,
                               TrackedState& tracked) {
  const AcceleratorInfo& info = lease.accelerator;
  const std::string what = StrCat("accelerator ", info.uuid);
  absl::StatusOr<at::Device> device = ParseDevice(info.device);
  device_failed_ = !device.ok();
  lacked_room_ = false;
  if (!device.ok()) return Annotate(device.status(), what);
  GAVEL_RETURN_IF_ERROR(Annotate(Lock(lease), what));
  const absl::Status status = Begin(lease, *device, tracked);
  const bool left = kept_ && (!status.ok() || device_ != *device);
  if (left) ReleaseMemory(device_).IgnoreError();
  kept_ = false;
  if (!status.ok()) {
    lock_.reset();
    return Annotate(status, what);
  }
  held_ = true;
  device_ = *device;
  uuid_ = info.uuid;
  slow_down_factor_ = std::max(1.0, info.slow_down_factor);
  return absl::OkStatus();
}

absl::Status Accelerator::Begin(const lease_action::Resume& lease,
                                at::Device device, TrackedState& tracked) {
  absl::Status status = ChooseWhenFree(lease, device);
  // UNAVAILABLE: a process without a lease uses the device, so no job can.
  device_failed_ = absl::IsUnavailable(status);
  if (status.ok() && device.is_cpu()) {
    status = FitsSlot(lease, tracked);
    if (status.ok()) {
      status = SetThreads(std::max(1, lease.accelerator.threads));
    }
  }
  if (status.ok()) status = LimitMemory(device, lease.memory_limit_bytes);
  if (status.ok()) status = MoveWhenThereIsRoom(lease, device, tracked);
  if (status.ok()) return status;
  device_failed_ = device_failed_ || !CheckDevice(device).ok();
  tracked.MoveToHost().IgnoreError();
  ReleaseMemory(device).IgnoreError();
  const DeviceMemory memory = ReadDeviceMemory(device);
  lacked_room_ = absl::IsResourceExhausted(status) &&
                 lease.memory_limit_bytes == 0 &&
                 tracked.SizeBytes() < memory.total_bytes;
  if (!lacked_room_) return status;
  return Annotate(
      status, StrCat("the state needs ", SizeText(tracked.SizeBytes()),
                     ", other processes leave ", SizeText(memory.free_bytes),
                     " of ", SizeText(memory.total_bytes), " free"));
}

absl::Status Accelerator::Lock(const lease_action::Resume& lease) {
  if (run_directory_.empty()) return absl::OkStatus();
  const LockSlots slots = lease.slots == 1 ? LockSlots::kOne : LockSlots::kBoth;
  GAVEL_ASSIGN_OR_RETURN(AcceleratorLock lock,
                         AcceleratorLock::Acquire(
                             run_directory_, lease.accelerator.uuid, slots,
                             std::min(kLockWaitMax_s, lease.deadline - Now())));
  lock_.emplace(std::move(lock));
  return absl::OkStatus();
}

absl::Status Accelerator::Use(const std::string& device, int local_rank,
                              TrackedState& tracked) {
  GAVEL_ASSIGN_OR_RETURN(
      const at::Device parsed,
      ParseDevice(device.empty() ? DefaultDevice(local_rank) : device));
  GAVEL_RETURN_IF_ERROR(ChooseDevice(parsed));
  GAVEL_RETURN_IF_ERROR(tracked.MoveTo(parsed));
  held_ = true;
  device_ = parsed;
  return absl::OkStatus();
}

absl::Status Accelerator::Release(TrackedState* tracked,
                                  const std::function<absl::Status()>& leave) {
  if (!held_) return absl::OkStatus();
  GAVEL_RETURN_IF_ERROR(Synchronize(device_));
  GAVEL_RETURN_IF_ERROR(leave());
  if (tracked != nullptr) {
    GAVEL_RETURN_IF_ERROR(tracked->MoveToHost());
  }
  // The next job gets the memory that only the allocator holds, also where the
  // state stays on the accelerator.
  GAVEL_RETURN_IF_ERROR(ReleaseMemory(device_));
  lock_.reset();
  held_ = false;
  kept_ = tracked == nullptr;
  return absl::OkStatus();
}

absl::StatusOr<bool> Accelerator::UseThreads(int threads) {
  threads = std::max(1, threads);
  if (!held_ || !device_.is_cpu() || threads == at::get_num_threads()) {
    return false;
  }
  GAVEL_RETURN_IF_ERROR(SetThreads(threads));
  return true;
}

void Accelerator::Unlock() {
  if (held_) Synchronize(device_).IgnoreError();
  lock_.reset();
  held_ = false;
}

// ---- The state as a whole.

TrainingState::TrainingState(SessionContext& context, TrackedState& tracked,
                             LoopPosition& position,
                             AccumulationWatch& accumulation)
    : context_(context),
      tracked_(tracked),
      position_(position),
      accumulation_(accumulation),
      accelerator_(context.options.run_directory) {}

absl::Status TrainingState::Restore(const Snapshot& snapshot) {
  return position_.Restore(snapshot);
}

bool TrainingState::CanCollect() const {
  return at_step_end_ || mark_.Holds(context_.stats.steps_done(), tracked_);
}

absl::Status TrainingState::Collect(Snapshot* snapshot) {
  GAVEL_RETURN_IF_ERROR(tracked_.Collect(snapshot));
  GAVEL_RETURN_IF_ERROR(tracked_.CollectGradients(
      [this](const at::Tensor& parameter) {
        return accumulation_.Saves(parameter);
      },
      snapshot));
  if (!at_step_end_) return mark_.Restore(snapshot), absl::OkStatus();
  return position_.Collect(accelerator_.last_device(),
                           context_.stats.steps_done(), snapshot);
}

void TrainingState::SetMark() {
  Snapshot snapshot;
  at_step_end_ = true;
  absl::Status status = Collect(&snapshot);
  at_step_end_ = false;
  if (status.ok()) {
    status = mark_.Set(context_.stats.steps_done(), snapshot, tracked_);
  }
  if (!status.ok()) context_.Fail(std::move(status));
}

absl::Status TrainingState::Take(const lease_action::Resume& lease) {
  const at::Device last_device = accelerator_.last_device();
  BeforeMove();
  absl::Status status = accelerator_.Take(lease, tracked_);
  AfterMove();
  GAVEL_RETURN_IF_ERROR(status);
  accumulation_.Arrive();
  GAVEL_RETURN_IF_ERROR(MoveRandom(last_device));
  return position_.SetShard(context_.options.rank, lease.world_size);
}

absl::Status TrainingState::UseAlone() {
  BeforeMove();
  absl::Status status = accelerator_.Use(
      context_.options.device, context_.options.gang.local_rank, tracked_);
  AfterMove();
  if (status.ok()) accumulation_.Arrive();
  return status;
}

absl::Status TrainingState::Park(const std::vector<HostCopy>& copies) {
  return tracked_.Park(copies);
}

absl::Status TrainingState::Release(bool keep) {
  absl::Status status = accelerator_.Release(
      keep ? nullptr : &tracked_, [this, keep] { return LeaveDevice(keep); });
  AfterMove();
  return status;
}

// Objects that are not tracked leave the device before its memory is given
// back.
absl::Status TrainingState::LeaveDevice(bool keep) {
  if (std::exchange(told_acquired_, false)) {
    GAVEL_RETURN_IF_ERROR(
        CatchAsStatus("in a function given to Session::OnRelease()", [this] {
          for (const auto& call : on_release_) call();
          return absl::OkStatus();
        }));
  }
  return CatchAsStatus("moving the batch", [this, keep] {
    if (!keep && batch_ != nullptr) batch_->PlaceBatch(at::Device(at::kCPU));
    return absl::OkStatus();
  });
}

absl::Status TrainingState::TellAcquired() {
  told_acquired_ = true;
  return CatchAsStatus("in a function given to Session::OnAcquire()", [this] {
    for (const auto& call : on_acquire_) call(device());
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> TrainingState::UseThreads(int threads) {
  return accelerator_.UseThreads(threads);
}

void TrainingState::BeforeMove() {
  accumulation_.Leave();
  mark_held_ = mark_.Holds(context_.stats.steps_done(), tracked_);
}

void TrainingState::AfterMove() {
  absl::Status status = CatchAsStatus("moving the batch", [&] {
    if (batch_ != nullptr) batch_->PlaceBatch(device());
    return mark_held_ ? mark_.Rebase(tracked_) : absl::OkStatus();
  });
  if (!status.ok()) context_.Fail(std::move(status));
}

// A job that moves to another GPU draws the same random numbers there.
absl::Status TrainingState::MoveRandom(at::Device from) {
  const at::Device to = device();
  if (from == to || from.is_cpu() || to.is_cpu()) return absl::OkStatus();
  GAVEL_ASSIGN_OR_RETURN(const std::string state, GetRngState(from));
  return SetRngState(to, state);
}

uint64_t TrainingState::LeftBytes() const {
  const at::Device last = accelerator_.last_device();
  if (last.is_cpu()) return 0;
  return static_cast<uint64_t>(ReadMemory(last).now_bytes);
}

TrainingState::Sizes TrainingState::ReadSizes() const {
  Sizes sizes;
  sizes.state = tracked_.SizeBytes();
  if (accelerator_.held() || accelerator_.kept()) {
    sizes.on_device = sizes.state;
    if (!device().is_cpu()) {
      const MemoryUse use = ReadMemory(device());
      sizes.on_device = static_cast<uint64_t>(
          accelerator_.held() ? use.reserved_high_bytes : use.reserved_bytes);
    }
    return sizes;
  }
  // A CPU slot's memory stays with the process. Tensors that left an
  // accelerator are in the arena; the process's other memory there stays in
  // the way of the next job.
  const at::Device last = accelerator_.last_device();
  sizes.in_host = last.is_cpu() ? sizes.state : 0;
  if (!last.is_cpu()) {
    sizes.on_device = static_cast<uint64_t>(ReadMemory(last).reserved_bytes);
  }
  return sizes;
}

}  // namespace gavel::internal
