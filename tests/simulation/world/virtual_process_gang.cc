// A process as one rank of a gang, like iterator/session_state.cc: it meets the
// other ranks, and attends the stop agreement at each boundary.
#include <algorithm>
#include <map>

#include "core/text.h"
#include "tests/simulation/world/virtual_process.h"

namespace gavel {
namespace {

// Ranks reach a boundary one after the other, within this fraction of a step.
constexpr double kSkew = 0.2;

}  // namespace

bool VirtualProcess::IsHeard() const {
  return alive_ && !is_stuck() && world_.network.IsConnected(home_.server);
}

// Waits for all ranks at rank 0's store.
void VirtualProcess::Meet() {
  meeting_ = true;
  const uint64_t epoch = running_epoch_;
  const auto still = [this, epoch] {
    return meeting_ && running_epoch_ == epoch;
  };
  const std::string address = StrCat("job-", key_.job.value(), ":", epoch);
  if (key_.rank == 0) {
    After(training_.gang_open_s, [this, still, epoch, address] {
      if (still()) Step(lease_event::GangOpened{epoch, address});
    });
  } else if (gang_address_ != address) {
    world_.truth.Violation(world_.now(), StrCat(NameOf(key_), " is sent to \"",
                                                gang_address_, "\""));
  }
  After(training_.gang_timeout_s, [this, still, epoch] {
    if (!still()) return;
    LeaveGang(/*broken=*/false);
    Step(lease_event::ResumeFailed{epoch, "the gang did not come together"});
  });
  if (world_.gangs.Join(gang_key(), *this, world_size_)) BeginTogether();
}

void VirtualProcess::BeginTogether() {
  if (world_.gangs.CountFailure(key_.job) < training_.gang_failures) return;
  const std::map<int, VirtualProcess*> ranks = world_.gangs.RanksOf(gang_key());
  uint64_t most = 0;
  for (const auto& [rank, process] : ranks) {
    if (!process->IsHeard()) return;  // they wait in vain
    most = std::max(most, process->StepsDone());
  }
  bool together = true;
  for (const auto& [rank, process] : ranks) {
    if (process->StepsDone() == most) continue;
    // A process whose state the gang has left behind is of no use.
    together = false;
    process->Exit(kExitEvicted, 0, kExitEvicted);
  }
  if (!together) return;
  world_.gangs.Begin(gang_key(), most);
  for (const auto& [rank, process] : ranks) {
    process->gang_lease_.lease_s = process->deadline_ - process->Now();
    process->checkpoint_due_ = false;
    process->Begin();
    process->AttendLater();
  }
}

void VirtualProcess::AttendLater() {
  const double skew_s = kSkew / StepsPerSecond() * world_.Draw();
  After(skew_s, [this, epoch = running_epoch_] {
    if (running_ && running_epoch_ == epoch) AttendGang();
  });
}

void VirtualProcess::GangStepDone(uint64_t epoch) {
  if (!running_ || running_epoch_ != epoch) return;
  ++steps_before_;
  AttendLater();
}

// Attends the stop agreement at the boundary after steps_before_.
void VirtualProcess::AttendGang() {
  if (!alive_ || !running_ || hung_ || stopping_) return;
  Step(lease_event::Tick{});
  if (!alive_ || !running_) return;
  if (Now() >= deadline_) return LeaveBroken();
  if (steps_before_ >= training_.steps_total) return End(/*fails=*/false);
  gang_lease_.step_s = 1 / StepsPerSecond();
  if (pausing_ || Now() + GangStopAhead(gang_lease_) >= deadline_) {
    world_.gangs.Want(gang_key(), key_.rank, StopKind::kStop);
  }
  if (checkpoint_due_) {
    world_.gangs.Want(gang_key(), key_.rank, StopKind::kCheckpoint);
  }
  while (PassInGang()) {
  }
}

// Returns true if the gang has to be asked again.
bool VirtualProcess::PassInGang() {
  const GangKey gang = gang_key();
  switch (world_.gangs.Pass(gang, key_.rank, steps_before_)) {
    case StopMember::Passage::kGoOn:
      world_.truth.Boundary(world_.now(), key_, running_epoch_);
      world_.truth.BeganStep(world_.now(), gang, key_.rank, steps_before_ + 1);
      world_.gangs.BeginStep(gang, key_.rank);
      return false;
    case StopMember::Passage::kCheckpoint:
      world_.truth.Agreed(world_.now(), gang, key_.rank, steps_before_,
                          /*stops=*/false);
      checkpoint_due_ = false;
      Commit({running_epoch_, steps_before_});
      return true;
    case StopMember::Passage::kStop:
      world_.truth.Agreed(world_.now(), gang, key_.rank, steps_before_,
                          /*stops=*/true);
      StopGang();
      return false;
    case StopMember::Passage::kWait:
      return false;
    case StopMember::Passage::kMissed:
      LeaveBroken();
      return false;
  }
  return false;
}

void VirtualProcess::StopGang() {
  if (!pausing_) pause_tier_ = PauseTier::kPark;
  pausing_ = true;
  ParkAfter(0);
}

// Frees the accelerator. If other ranks ran with this one, they can't continue.
void VirtualProcess::LeaveGang(bool broken) {
  if (taking_ || meeting_) {
    world_.truth.Free(key_, accelerator_.uuid);
    LeaveMemory();
  }
  taking_ = false;
  meeting_ = false;
  if (world_size_ < 2) return;
  const uint64_t epoch = running_epoch_;
  world_.gangs.Leave(gang_key(), key_.rank,
                     broken ? Leaving::kBroken : Leaving::kDone);
  if (!broken) return;
  for (const auto& [rank, process] : world_.gangs.RanksOf(gang_key())) {
    process->After(training_.gang_abort_s,
                   [other = process, epoch] { other->GangIsBroken(epoch); });
  }
}

void VirtualProcess::LeaveBroken() {
  LeaveGang(/*broken=*/true);
  Exit(kExitEvicted, 0, kExitEvicted);
}

void VirtualProcess::GangIsBroken(uint64_t epoch) {
  if (!alive_ || !running_ || running_epoch_ != epoch || hung_ || stopping_) {
    return;
  }
  if (stalled_) return held_.push_back([this, epoch] { GangIsBroken(epoch); });
  Exit(kExitEvicted, 0, kExitEvicted);
}

}  // namespace gavel
