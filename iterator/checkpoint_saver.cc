#include "iterator/checkpoint_saver.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "core/text.h"
#include "iterator/clock.h"
#include "runtime/checkpoint/generation_store.h"
#include "runtime/generation/file_system.h"
#include "runtime/generation/manifest.h"

namespace gavel::internal {
namespace {

// The entries that differ between the ranks of a gang (training_state.cc has
// the names).
constexpr std::string_view kOwnEntries[] = {
    "gavel/random/", "gavel/loop/random", "gavel/loop/first"};

void NameOwnEntries(int rank, std::map<std::string, std::string>* bytes) {
  std::map<std::string, std::string> own;
  for (const auto& [name, value] : *bytes) {
    for (const std::string_view prefix : kOwnEntries) {
      if (std::string_view(name).starts_with(prefix)) {
        own[StrCat(RankEntryPrefix(rank), name)] = value;
      }
    }
  }
  bytes->merge(own);
}

// The inverse. A rank that the gang did not have begins with those of rank 0.
void TakeOwnEntries(int rank, std::map<std::string, std::string>* bytes) {
  std::map<std::string, std::string> taken;
  for (auto& [name, value] : *bytes) {
    const std::optional<int> owner = RankOfEntry(name);
    if (owner == rank) {
      taken[name.substr(RankEntryPrefix(rank).size())] = value;
    }
  }
  std::erase_if(*bytes, [](const auto& entry) {
    return RankOfEntry(entry.first).has_value();
  });
  for (auto& [name, value] : taken) (*bytes)[name] = std::move(value);
}

// While a save is under way, its outcome is looked for this often.
constexpr int64_t kSaveLookInterval_ns = 50'000'000;

GenerationStoreOptions StoreOptions(const SessionOptions& options,
                                    Arena& arena) {
  GenerationStoreOptions store;
  store.arena = &arena;
  store.shares_restored = options.world_size > 1;
  store.keep_last = options.checkpoints_kept;
  store.keep_every_steps =
      static_cast<uint64_t>(options.checkpoints_kept_every_steps);
  // CheckOptions has seen that it can be read.
  store.keep_best =
      ParseBestBy(options.checkpoints_kept_best).value_or(BestBy());
  return store;
}

}  // namespace

void CheckpointSchedule::Restart(Time now, uint64_t steps_done,
                                 int world_size) {
  const double interval_s = Interval_s(world_size);
  const int64_t interval_steps = options_.checkpoint_interval_steps;
  due_ns_ = interval_s > 0 ? ToNanoseconds(now + interval_s) : kNever_ns;
  due_step_ = interval_steps > 0
                  ? steps_done + static_cast<uint64_t>(interval_steps)
                  : kNoStep;
}

double CheckpointSchedule::Interval_s(int world_size) const {
  if (options_.checkpoint_interval_s >= 0) {
    return options_.checkpoint_interval_s;
  }
  // Until the first save has shown its cost.
  if (stall_s_ <= 0) return kCheckpointIntervalMin_s;
  return CheckpointInterval_s(stall_s_, options_.failure_interval_s,
                              world_size);
}

std::string FirstCheckpointText(const SessionOptions& options) {
  if (options.checkpoint_directory.empty()) return "";  // said before
  std::string when;
  if (options.checkpoint_interval_s != 0) {
    const double interval_s = options.checkpoint_interval_s < 0
                                  ? kCheckpointIntervalMin_s
                                  : options.checkpoint_interval_s;
    when = StrCat(interval_s, " s (GAVEL_CHECKPOINT_INTERVAL_S)");
  }
  if (options.checkpoint_interval_steps > 0) {
    StrAppend(&when, when.empty() ? "" : " or ",
              options.checkpoint_interval_steps,
              options.checkpoint_interval_steps == 1 ? " step" : " steps",
              " (GAVEL_CHECKPOINT_INTERVAL_STEPS)");
  }
  if (when.empty()) {
    return ", no checkpoint before the end (GAVEL_CHECKPOINT_INTERVAL_S=0)";
  }
  return StrCat(", first checkpoint after ", when);
}

absl::Status CheckpointSaver::Open() {
  const SessionOptions& options = context_.options;
  if (options.checkpoint_directory.empty()) {
    context_.log.Info(
        "no checkpoints are written: GAVEL_CHECKPOINT_DIRECTORY is not set");
    return absl::OkStatus();
  }
  GAVEL_RETURN_IF_ERROR(CheckOwner());
  GAVEL_RETURN_IF_ERROR(OpenStore());
  GAVEL_RETURN_IF_ERROR(TakeDirectory());
  if (restored() == nullptr) return absl::OkStatus();
  for (const std::string& note : restored_->notes) {
    const std::string line =
        StrCat("fell back to an earlier checkpoint: ", note);
    context_.log.Warning(line);
    context_.board.SetCheckpoint(absl::DataLossError(line));
  }
  GAVEL_RETURN_IF_ERROR(state_.Restore(*restored()));
  const Generation generation = restored_->generation;
  context_.log.Info(StrCat("going on from ", GenerationName(generation), " in ",
                           options.checkpoint_directory));
  epoch_ = generation.epoch;
  restored_step_ = generation.step;
  context_.stats.SetStepsDone(generation.step);
  context_.stats.SetLastGeneration(generation);
  // Until the program reports them again, which may be after the next
  // checkpoint.
  for (const auto& [name, value] : restored_->scalars) {
    context_.stats.scalars().Set(name, value);
  }
  return absl::OkStatus();
}

absl::Status CheckpointSaver::OpenStore() {
  const SessionOptions& options = context_.options;
  GenerationStoreOptions store_options = StoreOptions(options, context_.arena);
  store_options.device_hash = [this](const std::vector<at::Tensor>& tensors) {
    return hasher_.Hash(tensors);
  };
  GAVEL_ASSIGN_OR_RETURN(
      GenerationStore store,
      GenerationStore::Open(options.checkpoint_directory, store_options));
  writer_ = std::make_unique<CheckpointWriter>(
      std::move(store),
      [this](Generation generation, const absl::Status& status) {
        if (status.ok()) SetLatest(generation);
        SaveDone(generation, status);
      });
  absl::StatusOr<Restored> restored = writer_->Restore();
  if (absl::IsNotFound(restored.status())) return absl::OkStatus();
  if (!restored.ok()) return restored.status();
  SetLatest(restored->generation);
  restored_ = *std::move(restored);
  TakeOwnEntries(options.rank, &restored_->snapshot.bytes);
  return absl::OkStatus();
}

absl::StatusOr<Restored> CheckpointSaver::RestoreBest() {
  if (!enabled() || context_.options.checkpoints_kept_best.empty()) {
    return absl::FailedPreconditionError(
        "no best checkpoint is kept: set GAVEL_CHECKPOINT_DIRECTORY, and "
        "GAVEL_CHECKPOINTS_KEPT_BEST to min:NAME or max:NAME of a scalar that "
        "is reported");
  }
  return writer_->RestoreBest();
}

// Before anything there is read or written. An agent of an earlier version
// names no cluster, and a program that runs alone belongs to no job.
absl::Status CheckpointSaver::CheckOwner() {
  const SessionOptions& options = context_.options;
  if (!context_.managed() || options.cluster.empty()) return absl::OkStatus();
  const absl::Status status =
      ClaimDirectory(FileSystem::Posix(), options.checkpoint_directory,
                     {options.cluster, options.job, options.job_name});
  if (absl::IsFailedPrecondition(status)) return status;  // it names the remedy
  return Annotate(status, "its checkpoint_directory can't be used");
}

// Under a coordinator the lease decides who may save: a process that it has
// given up may still hold the directory.
absl::Status CheckpointSaver::TakeDirectory() {
  const std::string& directory = context_.options.checkpoint_directory;
  if (access(directory.c_str(), W_OK) != 0) {
    return absl::ErrnoToStatus(
        errno, ToAbsl(StrCat("checkpoints can't be written to ", directory)));
  }
  if (context_.options.rank != 0) return absl::OkStatus();
  absl::StatusOr<FileLock> lock =
      FileLock::Take(StrCat(directory, "/", kInUseName));
  if (lock.ok()) in_use_.emplace(*std::move(lock));
  if (context_.managed() || !absl::IsAlreadyExists(lock.status())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      StrCat("another program saves its checkpoints in ", directory, " (",
             lock.status().message(),
             "); end that one, or set GAVEL_CHECKPOINT_DIRECTORY to a "
             "directory of this program's own"));
}

std::optional<Generation> CheckpointSaver::Latest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return latest_;
}

void CheckpointSaver::SetLatest(Generation generation) {
  std::lock_guard<std::mutex> lock(mutex_);
  latest_ = generation;
}

bool CheckpointSaver::IsSuperseded(Generation generation) const {
  if (!enabled()) return false;
  const absl::StatusOr<Generation> latest = writer_->LatestGeneration();
  return latest.ok() && latest->epoch > generation.epoch;
}

Generation CheckpointSaver::NextGeneration() const {
  return {epoch_, context_.stats.steps_done()};
}

void CheckpointSaver::Schedule() {
  schedule_.Restart(Now(), context_.stats.steps_done(), gang_.world_size());
}

// By steps: at exactly these, after waiting for the save before. By time: not
// before that save is done.
bool CheckpointSaver::IsDue(int64_t now_ns) const {
  return IsDueBySteps() || IsDueByTime(now_ns);
}

bool CheckpointSaver::IsDueBySteps() const {
  return enabled() && context_.stats.steps_done() >= schedule_.due_step();
}

bool CheckpointSaver::IsDueByTime(int64_t now_ns) const {
  return enabled() && now_ns >= schedule_.due_ns() && !IsBusy();
}

uint64_t CheckpointSaver::NextLook_step() const {
  return enabled() ? schedule_.due_step() : kNoStep;
}

int64_t CheckpointSaver::NextLook_ns(int64_t now_ns) const {
  if (IsBusy()) return now_ns + kSaveLookInterval_ns;
  return enabled() ? schedule_.due_ns() : kNever_ns;
}

absl::Status CheckpointSaver::Commit(std::vector<HostCopy>* copies,
                                     bool again) {
  Schedule();
  if (!state_.CanCollect()) return SayCannotCommit(), absl::OkStatus();
  const Generation generation = NextGeneration();
  if (!enabled()) return absl::OkStatus();
  const int64_t begin_ns = Now_ns();
  // One save at a time. The one under way may be this generation.
  WaitAndTell().IgnoreError();
  if (Latest() == generation && !again) return absl::OkStatus();
  const int64_t copy_begin_ns = Now_ns();
  const RuntimeSpan span(context_.profile.ring(), "checkpoint copy");
  context_.profile.CountCheckpoint();
  begin_ns_ = copy_begin_ns;
  save_ = {generation.step,
           generation == save_generation_ ? save_.attempt + 1 : 1};
  save_generation_ = generation;
  gang_.BeginSave(save_);
  state_.ExpectMove();
  Snapshot snapshot;
  absl::Status status = gang_.Synchronize();
  // A state that can't be saved now can't be saved later, either: the run ends
  // at its first checkpoint.
  bool is_hopeless = false;
  if (status.ok()) {
    status = state_.Collect(&snapshot);
    is_hopeless = !status.ok() && !absl::IsResourceExhausted(status);
  }
  if (status.ok()) {
    const CommitOptions options = OptionsOfSave();
    if (options.world_size > 1) NameOwnEntries(options.rank, &snapshot.bytes);
    status = writer_->Begin(generation, snapshot, options, copies);
    is_hopeless = absl::IsInvalidArgument(status);
  }
  if (status.ok()) state_.Saved();
  schedule_.SetStall(ToSeconds(Now_ns() - copy_begin_ns));
  context_.stats.AddPausing(Now_ns() - begin_ns);
  Schedule();
  if (!status.ok()) SaveDone(generation, status);
  if (is_hopeless) context_.Fail(status);
  return status;
}

void CheckpointSaver::SayCannotCommit() {
  if (!enabled()) return;
  Wait().IgnoreError();  // so that Latest() is the last one
  const std::optional<Generation> latest = Latest();
  context_.log.Info(StrCat(
      "no checkpoint is taken inside a step; a restart goes on ",
      latest ? StrCat("from ", GenerationName(*latest)) : "from the beginning",
      " (call StepDone() before an evaluation to have one there)"));
}

absl::Status CheckpointSaver::WaitAndTell() {
  link_.SetSaving(true);
  absl::Status status = Wait();
  link_.SetSaving(false);
  return status;
}

// The writer's thread calls these functions.
CommitOptions CheckpointSaver::OptionsOfSave() {
  CommitOptions options;
  options.rank = context_.options.rank;
  const auto scalars = context_.stats.scalars().Read();
  options.scalars = {scalars.begin(), scalars.end()};
  options.world_size = gang_.world_size();
  options.gang_wait_s = context_.options.gang_wait_s;
  options.before_commit = [this] {
    if (!link_.rejected()) return absl::OkStatus();
    return absl::CancelledError(
        "the coordinator has given this job to another process");
  };
  options.gives_up = [this, save = save_] { return gang_.SaveStatus(save); };
  options.all_have_begun = [this, save = save_] {
    return gang_.AllHaveBegun(save);
  };
  return options;
}

void CheckpointSaver::SaveDone(Generation generation,
                               const absl::Status& status) {
  context_.board.SetCheckpoint(status);
  if (TraceRing* const ring = context_.profile.ring(); ring != nullptr) {
    ring->AddRuntime(RuntimeEvent{"checkpoint", begin_ns_, Now_ns(),
                                  RuntimeEvent::Row::kWriter});
  }
  if (status.ok()) {
    context_.stats.SetLastGeneration(generation);  // for the next report
  } else if (IsSuperseded(generation)) {
    context_.Fail(status);  // nothing that is trained here will be kept
  } else {
    context_.log.Warning(StrCat("no checkpoint this time: ", status.message()));
  }
  // The others wait for this rank's part.
  if (!status.ok()) gang_.FailSave(save_);
  const bool whole = gang_.Settle(generation.step, status.ok());
  if (status.ok() || whole || !context_.managed()) return;
  // The lost rank starts again from the last generation. It can't join others
  // that wait in memory with a later step.
  context_.gate.Pause(
      {PauseTier::kStop,
       "the gang is broken: a rank was lost before the generation of "
       "its stop was written"});
}

void CheckpointSaver::SettleGang() {
  if (enabled() && writer_->InFlight() == NextGeneration()) return;
  gang_.Settle(context_.stats.steps_done(), /*written=*/true);
}

void CheckpointSaver::PrepareOnce() {
  if (std::exchange(prepared_, true)) return;
  Snapshot snapshot;
  // An error in the state is reported when it is saved.
  if (enabled() && state_.CanCollect() && state_.Collect(&snapshot).ok()) {
    state_.ExpectMove();
    CommitOptions options;
    options.rank = context_.options.rank;
    options.world_size = gang_.world_size();
    writer_->Prepare(snapshot, options);
  }
}

void CheckpointSaver::RaiseEpoch(uint64_t epoch) {
  epoch_ = std::max(epoch_, epoch);
}

void CheckpointSaver::RemoveLeftovers() {
  if (enabled()) context_.Warn(writer_->RemoveLeftovers(epoch_));
}

}  // namespace gavel::internal
