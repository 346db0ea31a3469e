#include "simulator/virtual_process.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "core/text.h"

namespace gavel {
namespace {

constexpr int kSigkill = 9;
constexpr int kExitEvicted = 75;
constexpr double kReportInterval_s = 1;

// Where rank 0's store of an epoch is.
std::string AddressOf(const WorkerKey& key, uint64_t epoch) {
  return StrCat("job-", key.job.value(), ":", epoch);
}

}  // namespace

VirtualProcess::VirtualProcess(WorkerKey key, VirtualTraining training,
                               Generation restored, World world)
    : key_(key),
      training_(std::move(training)),
      world_(std::move(world)),
      lease_(LeaseOptions{key}),
      steps_before_(restored.step),
      generation_(restored) {}

void VirtualProcess::Start() {
  const std::weak_ptr<int> life = life_;
  world_.queue->After(training_.start_s, [this, life] {
    if (life.expired()) return;
    Step(lease_event::Started{ProgressNow(),
                              static_cast<int64_t>(key_.incarnation)});
  });
}

void VirtualProcess::Receive(const Message& message) {
  if (alive_) Step(lease_event::MessageReceived{message});
}

void VirtualProcess::Step(const LeaseEvent& event) {
  if (!alive_) return;
  const LeaseActions actions = lease_.Step(world_.queue->now(), event);
  for (const LeaseAction& action : actions) {
    std::visit([this](const auto& a) { Do(a); }, action);
    if (!alive_) return;
  }
  ArmTick();
}

void VirtualProcess::ArmTick() {
  const Time next = lease_.NextDeadline();
  if (next >= armed_tick_ && armed_tick_ > world_.queue->now()) return;
  armed_tick_ = next;
  const std::weak_ptr<int> life = life_;
  world_.queue->At(next, [this, life, next] {
    if (life.expired() || armed_tick_ != next) return;
    armed_tick_ = kNever;
    Step(lease_event::Tick{});
  });
}

void VirtualProcess::Do(const lease_action::Send& action) {
  world_.send(action.message);
}

void VirtualProcess::Do(const lease_action::Resume& action) {
  if (!world_.take(action.accelerator.uuid, action.slots)) {
    return Step(lease_event::ResumeFailed{action.epoch, "lock held"});
  }
  accelerator_ = action.accelerator;
  running_epoch_ = action.epoch;
  world_size_ = action.world_size;
  gang_address_ = action.gang_address;
  taking_ = true;
  const bool kept = kept_on_ == accelerator_.uuid;
  const double resume_s = last_uuid_.empty() ? 0
                          : kept             ? training_.resume_kept_s
                                             : training_.resume_parked_s;
  if (resume_s == 0) return TakeState();
  const std::weak_ptr<int> life = life_;
  const uint64_t epoch = action.epoch;
  world_.queue->After(resume_s, [this, life, epoch] {
    if (!life.expired() && taking_ && running_epoch_ == epoch) TakeState();
  });
}

// Its tensors are on the accelerator.
void VirtualProcess::TakeState() {
  taking_ = false;
  LeaveMemory();
  kept_on_ = accelerator_.uuid;
  world_.hold(kept_on_, training_.state_bytes);
  if (world_size_ > 1) return Meet();
  Begin();
}

// Its tensors go to host memory, or with the process.
void VirtualProcess::LeaveMemory() {
  if (!kept_on_.empty()) world_.hold(kept_on_, 0);
  kept_on_.clear();
}

void VirtualProcess::Begin() {
  if (!last_uuid_.empty() && last_uuid_ != accelerator_.uuid) ++moves_;
  last_uuid_ = accelerator_.uuid;
  meeting_ = false;
  running_ = true;
  pausing_ = false;
  resumed_at_ = world_.queue->now();
  Step(lease_event::Resumed{running_epoch_});
  ArmEnd();
  ArmReport();
}

// ---- gangs

// Waits for all ranks at rank 0's store.
void VirtualProcess::Meet() {
  meeting_ = true;
  const uint64_t epoch = running_epoch_;
  const std::weak_ptr<int> life = life_;
  const auto still = [this, life, epoch] {
    return !life.expired() && meeting_ && running_epoch_ == epoch;
  };
  if (key_.rank == 0) {
    world_.queue->After(training_.gang_open_s, [this, still, epoch] {
      if (still()) OpenGang(epoch);
    });
  } else if (gang_address_ != AddressOf(key_, epoch)) {
    world_.violation(StrCat("job ", key_.job.value(), " rank ", key_.rank,
                            " is sent to \"", gang_address_, "\""));
  }
  world_.queue->After(training_.gang_timeout_s, [this, still, epoch] {
    if (!still()) return;
    LeaveGang(/*broken=*/false);
    Step(lease_event::ResumeFailed{epoch, "the gang did not come together"});
  });
  auto& ranks = world_.gang->ranks[epoch];
  ranks[key_.rank] = this;
  if (ranks.size() < static_cast<size_t>(world_size_)) return;
  if (world_.gang->failed++ < training_.gang_failures) return;
  const std::map<int, VirtualProcess*> all = ranks;
  for (const auto& [rank, process] : all) process->Begin();
}

void VirtualProcess::OpenGang(uint64_t epoch) {
  Step(lease_event::GangOpened{epoch, AddressOf(key_, epoch)});
}

// Frees the accelerator. Where others ran with it, they can't go on.
void VirtualProcess::LeaveGang(bool broken) {
  if (taking_ || meeting_) {
    world_.free(accelerator_.uuid);
    LeaveMemory();
  }
  taking_ = false;
  meeting_ = false;
  const auto found = world_.gang->ranks.find(running_epoch_);
  if (found == world_.gang->ranks.end()) return;
  found->second.erase(key_.rank);
  const std::map<int, VirtualProcess*> others = found->second;
  if (others.empty()) world_.gang->ranks.erase(found);
  if (!broken) return;
  for (const auto& [rank, process] : others) {
    const std::weak_ptr<int> life = process->life_;
    world_.queue->After(training_.gang_abort_s,
                        [other = process, life, epoch = running_epoch_] {
                          if (life.expired() || !other->running_ ||
                              other->running_epoch_ != epoch) {
                            return;
                          }
                          other->Exit(kExitEvicted, 0);
                        });
  }
}

void VirtualProcess::Do(const lease_action::Pause& action) {
  if (training_.ignores_pauses && action.tier != PauseTier::kStop) return;
  if (taking_ || meeting_) {
    LeaveGang(/*broken=*/false);
    Step(lease_event::Parked{running_epoch_, ProgressNow()});
  }
  if (!running_) {
    if (StrongerThan(action.tier, PauseTier::kPark)) Exit(kExitEvicted, 0);
    return;
  }
  // A stronger tier counts until the boundary is there.
  if (pausing_) {
    if (StrongerThan(action.tier, pause_tier_)) pause_tier_ = action.tier;
    return;
  }
  pausing_ = true;
  pause_tier_ = action.tier;
  const double step_s = 1 / StepsPerSecond();
  const double into = std::fmod(world_.queue->now() - resumed_at_, step_s);
  const std::weak_ptr<int> life = life_;
  const uint64_t epoch = running_epoch_;
  const double leave_s =
      action.tier == PauseTier::kKeep ? training_.keep_s : training_.park_s;
  world_.queue->After(step_s - into + leave_s, [this, life, epoch] {
    if (life.expired() || running_epoch_ != epoch) return;
    Park(pause_tier_);
  });
}

double VirtualProcess::StepsPerSecond() const {
  const auto it = training_.steps_per_s.find(accelerator_.type);
  const double speed = it == training_.steps_per_s.end() ? 1 : it->second;
  return speed / accelerator_.slow_down_factor;
}

uint64_t VirtualProcess::StepsDone() const {
  if (!running_) return steps_before_;
  const double steps =
      (world_.queue->now() - resumed_at_) * StepsPerSecond() + 1e-9;
  return std::min(training_.steps_total,
                  steps_before_ + static_cast<uint64_t>(steps));
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
  const double rest =
      static_cast<double>(last - std::min(last, steps_before_)) /
      StepsPerSecond();
  const std::weak_ptr<int> life = life_;
  const uint64_t epoch = running_epoch_;
  world_.queue->After(rest, [this, life, epoch, fails] {
    if (life.expired() || !running_ || running_epoch_ != epoch || pausing_) {
      return;
    }
    StopRunning();
    if (fails) return Exit(training_.fail_code, 0);
    generation_ = {running_epoch_, steps_before_};
    world_.commit(generation_);
    Step(lease_event::Finished{0, "", ProgressNow()});
    Exit(0, 0);
  });
}

void VirtualProcess::ArmReport() {
  const std::weak_ptr<int> life = life_;
  const uint64_t epoch = running_epoch_;
  world_.queue->After(kReportInterval_s, [this, life, epoch] {
    if (life.expired() || !running_ || running_epoch_ != epoch) return;
    Step(lease_event::Progressed{ProgressNow()});
    ArmReport();
  });
}

void VirtualProcess::StopRunning() {
  steps_before_ = StepsDone();
  running_ = false;
  LeaveGang(/*broken=*/false);
  world_.free(accelerator_.uuid);
}

void VirtualProcess::Park(PauseTier tier) {
  if (!running_) return;
  StopRunning();
  if (tier != PauseTier::kKeep) LeaveMemory();
  pausing_ = false;
  ++pauses_;
  const Generation generation{running_epoch_, steps_before_};
  const std::weak_ptr<int> life = life_;
  const auto commit = [this, generation] {
    generation_ = std::max(generation_, generation);
    world_.commit(generation);
  };
  Step(lease_event::Parked{running_epoch_, ProgressNow()});
  world_.queue->After(training_.checkpoint_s, [this, life, commit, tier] {
    if (life.expired()) return;
    commit();
    if (StrongerThan(tier, PauseTier::kPark)) Exit(kExitEvicted, 0);
  });
}

void VirtualProcess::Terminate() {
  if (!alive_ || training_.ignores_pauses) return;
  Do(lease_action::Pause{PauseTier::kEvict, "SIGTERM"});
}

void VirtualProcess::Kill() { Exit(0, kSigkill); }

void VirtualProcess::Exit(int code, int signal) {
  if (!alive_) return;
  const bool dies = signal != 0 || (code != 0 && code != kExitEvicted);
  LeaveGang(/*broken=*/running_ && !pausing_ && dies);
  if (running_) StopRunning();
  LeaveMemory();
  alive_ = false;
  life_.reset();
  world_.exited(code, signal);
}

}  // namespace gavel
