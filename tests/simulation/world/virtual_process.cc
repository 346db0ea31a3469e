#include "tests/simulation/world/virtual_process.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "core/text.h"

namespace gavel {
namespace {

constexpr double kReportInterval_s = 1;
constexpr int kSigterm = 15;

}  // namespace

VirtualProcess::VirtualProcess(WorkerKey key, VirtualTraining training,
                               Home home, VirtualWorld& world)
    : key_(key),
      training_(std::move(training)),
      home_(std::move(home)),
      world_(world),
      lease_(LeaseOptions{key}),
      generation_(world.checkpoints[key.job].Latest()) {
  world_.truth.Restored(world_.now(), key_, generation_);
  steps_before_ = generation_.step;
}

void VirtualProcess::Start() {
  if (is_opaque()) {
    accelerator_ = home_.accelerator;
    world_.truth.Take(world_.now(), key_, accelerator_.uuid, /*slots=*/2);
    return After(training_.opaque_s, [this] { Exit(0, 0); });
  }
  After(training_.start_s, [this] {
    started_ = true;
    Step(lease_event::Started{ProgressNow(),
                              static_cast<int64_t>(key_.incarnation)});
  });
}

void VirtualProcess::After(double delay_s, std::function<void()> task) {
  world_.queue.After(delay_s, [this, life = std::weak_ptr<int>(life_),
                               task = std::move(task)]() mutable {
    if (life.expired()) return;
    if (stalled_) return held_.push_back(std::move(task));
    task();
  });
}

void VirtualProcess::Receive(const Message& message) {
  if (!alive_ || is_opaque()) return;
  if (stalled_) {
    return held_.push_back([this, message] { Receive(message); });
  }
  const uint64_t term = started_ ? TermOf(message) : 0;
  if (term < heard_term_) return HearReplaced(message);
  heard_term_ = term;
  Step(lease_event::MessageReceived{message});
}

void VirtualProcess::ReceiveOfAnother(const Message& message) {
  if (is_opaque()) return;
  if (alive_ && !stalled_) Step(lease_event::MessageReceived{message});
}

// It has heard a later coordinator: what this one says has no effect.
void VirtualProcess::HearReplaced(const Message& message) {
  Step(lease_event::Tick{});  // what is due without it
  if (!alive_) return;
  const LeaseActions actions = lease_.Step(
      home_.clock.Shows(world_.now()), lease_event::MessageReceived{message});
  if (actions.empty()) return ArmTick();
  world_.truth.Violation(world_.now(),
                         StrCat(NameOf(key_), " has heard term ", heard_term_,
                                " and obeys term ", TermOf(message)));
}

void VirtualProcess::Step(const LeaseEvent& event) {
  if (!alive_) return;
  const LeaseActions actions =
      lease_.Step(home_.clock.Shows(world_.now()), event);
  for (const LeaseAction& action : actions) {
    std::visit([this](const auto& a) { Do(a); }, action);
    if (!alive_) return;
  }
  ArmTick();
}

void VirtualProcess::ArmTick() {
  const Time next = home_.clock.When(lease_.NextDeadline());
  if (next >= armed_tick_ && armed_tick_ > world_.now()) return;
  armed_tick_ = next;
  if (next == kNever) return;
  After(next - world_.now(), [this, next] {
    if (armed_tick_ != next) return;
    armed_tick_ = kNever;
    Step(lease_event::Tick{});
  });
}

void VirtualProcess::Do(const lease_action::Send& action) {
  world_.to_coordinator(home_.server, action.message);
}

// ---- faults

void VirtualProcess::Terminate() {
  if (!alive_ || training_.ignores_pauses) return;
  if (stalled_) return held_.push_back([this] { Terminate(); });
  if (is_opaque()) return Exit(0, kSigterm);
  Do(lease_action::Pause{PauseTier::kEvict, "SIGTERM"});
}

void VirtualProcess::Kill() { Exit(0, kSigkill); }

void VirtualProcess::Orphan() {
  orphan_ = true;
  // An opaque one dies with its agent: no lease would end its use.
  if (is_stuck() || is_opaque()) Kill();
}

void VirtualProcess::Stall() {
  if (orphan_) return Kill();
  if (!alive_ || is_stuck()) return;
  stalled_ = true;
  stuck_at_ = world_.now();
}

void VirtualProcess::Resume() {
  if (!alive_ || !stalled_) return;
  stalled_ = false;
  resumed_at_ += world_.now() - std::exchange(stuck_at_, kNever);
  for (const auto& task : std::exchange(held_, {})) {
    if (!alive_) return;
    task();
  }
}

void VirtualProcess::Hang() {
  if (orphan_) return Kill();
  if (!training_now()) return;
  hung_ = true;
  stuck_at_ = world_.now();
}

// ---- the training loop

void VirtualProcess::Do(const lease_action::Resume& action) {
  if (!world_.truth.Take(world_.now(), key_, action.accelerator.uuid,
                         action.slots)) {
    return Step(lease_event::ResumeFailed{action.epoch, "lock held"});
  }
  if (world_.broken.contains(action.accelerator.uuid)) {
    world_.truth.Free(key_, action.accelerator.uuid);
    ++world_.refused;
    return Step(lease_event::ResumeFailed{action.epoch, "device failed",
                                          ReleaseCause::kDeviceFailed});
  }
  accelerator_ = action.accelerator;
  slots_ = action.slots;
  running_epoch_ = action.epoch;
  deadline_ = action.deadline;
  gang_lease_.extension_lead_s = action.extension_lead_s;
  world_size_ = action.world_size;
  gang_address_ = action.gang_address;
  taking_ = true;
  const bool kept = kept_on_ == accelerator_.uuid;
  const double resume_s = last_uuid_.empty() ? 0
                          : kept             ? training_.resume_kept_s
                                             : training_.resume_parked_s;
  if (resume_s == 0) return TakeState();
  After(resume_s, [this, epoch = action.epoch] {
    if (taking_ && running_epoch_ == epoch) TakeState();
  });
}

// Its tensors are on the accelerator.
void VirtualProcess::TakeState() {
  taking_ = false;
  LeaveMemory();
  kept_on_ = accelerator_.uuid;
  world_.truth.Hold(world_.now(), key_, kept_on_, training_.state_bytes);
  if (world_size_ > 1) return Meet();
  Begin();
}

// Its tensors go to host memory, or with the process.
void VirtualProcess::LeaveMemory() {
  if (!kept_on_.empty()) world_.truth.Hold(world_.now(), key_, kept_on_, 0);
  kept_on_.clear();
}

void VirtualProcess::Begin() {
  if (!last_uuid_.empty() && last_uuid_ != accelerator_.uuid) ++moves_;
  last_uuid_ = accelerator_.uuid;
  meeting_ = false;
  running_ = true;
  pausing_ = false;
  stopping_ = false;
  resumed_at_ = world_.now();
  world_.Tell([&] {
    return StrCat(NameOf(key_), " trains on ", accelerator_.uuid, ", epoch ",
                  running_epoch_, ", from step ", steps_before_);
  });
  Step(lease_event::Resumed{running_epoch_});
  if (world_size_ == 1) ArmEnd();
  ArmReport();
  ArmCheckpoint();
}

// The loop reads the clock at each boundary, whatever its lease thread does.
// False: no step begins here.
bool VirtualProcess::PassBoundary() {
  if (!running_ || pausing_ || hung_) return false;
  Step(lease_event::Tick{});
  if (!alive_ || !running_ || pausing_) return false;
  if (!training_.ignores_pauses) {
    world_.truth.Boundary(world_.now(), key_, running_epoch_);
  }
  return true;
}

void VirtualProcess::Do(const lease_action::Pause& action) {
  if (hung_ || (training_.ignores_pauses && action.tier != PauseTier::kStop)) {
    return;
  }
  if (taking_ || meeting_) {
    LeaveGang(/*broken=*/false);
    Step(lease_event::Parked{running_epoch_, ProgressNow()});
  }
  if (!running_) {
    if (!StrongerThan(action.tier, PauseTier::kPark)) return;
    exits_when_committed_ = true;
    if (committing_ == 0 || action.tier == PauseTier::kStop) {
      Exit(kExitEvicted, 0, kExitEvicted);
    }
    return;
  }
  // A stronger tier counts until the boundary is there.
  if (pausing_) {
    if (StrongerThan(action.tier, pause_tier_)) pause_tier_ = action.tier;
    return;
  }
  pausing_ = true;
  pause_tier_ = action.tier;
  if (world_size_ > 1) return;  // where all ranks agree to
  const double step_s = 1 / StepsPerSecond();
  ParkAfter(step_s - std::fmod(world_.now() - resumed_at_, step_s));
}

void VirtualProcess::ParkAfter(double delay_s) {
  stopping_ = true;
  const double leave_s =
      pause_tier_ == PauseTier::kKeep ? training_.keep_s : training_.park_s;
  After(delay_s + leave_s, [this, epoch = running_epoch_] {
    if (running_ && running_epoch_ == epoch && !hung_) Park(pause_tier_);
  });
}

double VirtualProcess::StepsPerSecond() const {
  const auto it = training_.steps_per_s.find(accelerator_.type);
  const double speed = it == training_.steps_per_s.end() ? 1 : it->second;
  const auto up = training_.speed_up.find(world_size_);
  return speed * (up == training_.speed_up.end() ? 1 : up->second) *
         (slots_ == 1 ? training_.packed_pace : 1) /
         accelerator_.slow_down_factor;
}

uint64_t VirtualProcess::StepsDone() const {
  if (!running_ || world_size_ > 1) return steps_before_;
  const Time until = std::min(world_.now(), stuck_at_);
  const double steps = (until - resumed_at_) * StepsPerSecond() + 1e-9;
  return std::min(training_.steps_total,
                  steps_before_ + static_cast<uint64_t>(std::max(0.0, steps)));
}

Progress VirtualProcess::ProgressNow() const {
  Progress progress;
  progress.steps_done = StepsDone();
  progress.last_generation = generation_;
  if (running_) {
    progress.throughput_steps_per_s = StepsPerSecond();
    progress.window_s = kReportInterval_s;
  }
  progress.state_bytes = training_.state_bytes;
  const bool on_accelerator = !kept_on_.empty();
  progress.device_bytes = on_accelerator ? training_.state_bytes : 0;
  progress.host_bytes = on_accelerator ? 0 : training_.state_bytes;
  progress.pauses = pauses_;
  progress.moves = moves_;
  return progress;
}

// The run ends when all steps are done, or where this job is made to fail.
void VirtualProcess::ArmEnd() {
  uint64_t last = training_.steps_total;
  const bool fails =
      key_.incarnation <= static_cast<uint64_t>(training_.fail_incarnations) &&
      training_.fail_at_step >= steps_before_;
  if (fails) last = std::min(last, training_.fail_at_step);
  const Time due =
      resumed_at_ + static_cast<double>(last - std::min(last, steps_before_)) /
                        StepsPerSecond();
  // It may have stood still when that time has come.
  After(std::max(0.0, due - world_.now()),
        [this, epoch = running_epoch_, fails, last] {
          if (!running_ || running_epoch_ != epoch || pausing_ || hung_) return;
          if (StepsDone() < last) return ArmEnd();
          if (PassBoundary()) End(fails);
        });
}

void VirtualProcess::End(bool fails) {
  StopRunning();
  if (fails) return Exit(training_.fail_code, 0);
  generation_ = {running_epoch_, steps_before_};
  if (key_.rank == 0) {
    world_.checkpoints[key_.job].Commit(generation_);
    world_.truth.Committed(key_.job, generation_);
  }
  Step(lease_event::Finished{0, "", ProgressNow()});
  Exit(0, 0, 0);
}

void VirtualProcess::ArmReport() {
  After(kReportInterval_s, [this, epoch = running_epoch_] {
    if (!running_ || running_epoch_ != epoch) return;
    if (world_size_ == 1) PassBoundary();
    Step(lease_event::Progressed{ProgressNow()});
    if (alive_) ArmReport();
  });
}

// ---- checkpoints

void VirtualProcess::ArmCheckpoint() {
  if (training_.checkpoint_every_s == 0 || key_.rank != 0) return;
  After(training_.checkpoint_every_s, [this, epoch = running_epoch_] {
    if (!running_ || running_epoch_ != epoch) return;
    if (world_size_ > 1) {
      checkpoint_due_ = true;
    } else if (PassBoundary()) {
      Commit({running_epoch_, StepsDone()});
    }
    ArmCheckpoint();
  });
}

// Rank 0 has the manifest of a gang. One is written after the other.
void VirtualProcess::Commit(Generation generation) {
  CheckpointFaults& faults = world_.checkpoint_faults;
  double takes_s = training_.checkpoint_s;
  if (world_.Happens(faults.late)) {
    ++faults.delayed;
    takes_s += world_.Draw() * faults.late_s_max;
  }
  const bool fails = world_.Happens(faults.fail);
  faults.failed += fails ? 1 : 0;
  ++committing_;
  written_at_ = std::max(written_at_, world_.now()) + takes_s;
  After(written_at_ - world_.now(), [this, generation, fails] {
    --committing_;
    if (!fails && key_.rank == 0) {
      generation_ = std::max(generation_, generation);
      world_.checkpoints[key_.job].Commit(generation);
      world_.truth.Committed(key_.job, generation);
    }
    ExitIfCommitted();
  });
}

// An evicted worker waits for all that it still writes, whichever is last.
void VirtualProcess::ExitIfCommitted() {
  if (exits_when_committed_ && committing_ == 0)
    Exit(kExitEvicted, 0, kExitEvicted);
}

void VirtualProcess::Park(PauseTier tier) {
  StopRunning();
  if (tier != PauseTier::kKeep) LeaveMemory();
  pausing_ = false;
  stopping_ = false;
  ++pauses_;
  const Generation generation{running_epoch_, steps_before_};
  exits_when_committed_ = StrongerThan(tier, PauseTier::kPark);
  Step(lease_event::Parked{running_epoch_, ProgressNow()});
  if (!alive_) return;
  // Nobody wants its state.
  if (tier == PauseTier::kStop) return Exit(kExitEvicted, 0, kExitEvicted);
  Commit(generation);
}

void VirtualProcess::StopRunning() {
  steps_before_ = StepsDone();
  running_ = false;
  LeaveGang(/*broken=*/false);
  world_.truth.Free(key_, accelerator_.uuid);
}

// A shell around the program is the process that its agent knows, and ends with
// 0 whatever became of the program.
void VirtualProcess::Exit(int code, int signal, std::optional<int> finished) {
  if (!alive_) return;
  const bool dies = signal != 0 || (code != 0 && code != kExitEvicted);
  // Rank 0 takes the store with it, from which the others learn of a stop.
  LeaveGang(/*broken=*/running_ && dies && (!stopping_ || key_.rank == 0));
  if (running_) StopRunning();
  if (is_opaque()) world_.truth.Free(key_, accelerator_.uuid);
  LeaveMemory();
  alive_ = false;
  life_.reset();
  // One that dies before its session begins is no different from a program
  // without one.
  if (training_.in_shell && started_) code = signal = 0;
  if (!finished && started_) finished = -1;
  home_.exited(code, signal, finished);
}

}  // namespace gavel
