// A worker's process in virtual time: the real lease machine, and a clock for
// its training loop. Used by VirtualServer only. Not thread-safe.
#ifndef GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_PROCESS_H_
#define GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_PROCESS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/generation.h"
#include "core/messages.h"
#include "runtime/lease/lease_machine.h"
#include "tests/simulation/world/machine_clock.h"
#include "tests/simulation/world/virtual_world.h"

namespace gavel {

class VirtualProcess {
 public:
  static constexpr int kSigkill = 9;
  // The place where it runs.
  struct Home {
    size_t server = 0;  // of the network
    MachineClock clock;
    AcceleratorInfo accelerator;  // of an opaque process
    // `finished`: the code that its session ended with, if it did.
    std::function<void(int exit_code, int signal, std::optional<int> finished)>
        exited;
  };

  // Borrows the world. Starts from the latest checkpoint of its job.
  VirtualProcess(WorkerKey key, VirtualTraining training, Home home,
                 VirtualWorld& world);

  void Start();
  void Receive(const Message& message);
  // The message is for the previous process, whose connection this one has now.
  void ReceiveOfAnother(const Message& message);
  void Terminate();  // SIGTERM: checkpoint, exit 75
  void Kill();       // SIGKILL
  void Stall();      // SIGSTOP
  void Resume();     // SIGCONT: what was due meanwhile happens now, in order
  void Hang();       // its present step never ends; its lease thread lives
  // Its agent and all records of it are gone. It must not be stuck any more,
  // because nobody would find it: it is killed when it is or gets stuck. (On
  // real machines the accelerator's lock keeps others off.)
  void Orphan();

  // Events of its gang: it can't continue; all ranks have done a step; the word
  // that the process waits for may have come.
  void GangIsBroken(uint64_t epoch);
  void GangStepDone(uint64_t epoch);
  void AttendGang();
  // Runs `task` after the delay. A process that is gone drops it, and one that
  // is stopped runs it when it continues.
  void After(double delay_s, std::function<void()> task);

  bool alive() const { return alive_; }
  // Whether it goes from step to step at present.
  bool training_now() const {
    return alive_ && running_ && !pausing_ && !stalled_ && !hung_ &&
           !training_.ignores_pauses;
  }
  // Whether a pause saves all of its steps at once, unless something fails. A
  // gang may miss the step to stop at, and checkpoints wait for earlier ones.
  bool SavesOnPause() const {
    return training_now() && world_size_ == 1 && committing_ == 0 &&
           training_.fail_code == 0;
  }
  // Whether it uses an accelerator: it may be stepping, or about to stop.
  bool has_accelerator() const { return alive_ && (running_ || is_opaque()); }
  bool is_opaque() const { return training_.opaque_s > 0; }
  bool is_orphan() const { return orphan_; }
  bool is_stuck() const { return stalled_ || hung_; }
  bool IsHeard() const;  // by other machines
  uint64_t running_epoch() const { return running_epoch_; }
  uint64_t StepsDone() const;
  const WorkerKey& key() const { return key_; }
  const VirtualTraining& training() const { return training_; }
  size_t server() const { return home_.server; }
  // The time by its machine's clock.
  Time Now() const { return home_.clock.Shows(world_.now()); }
  double StepsPerSecond() const;

 private:
  void HearReplaced(const Message& message);
  void Step(const LeaseEvent& event);
  void Do(const lease_action::Send& action);
  void Do(const lease_action::Resume& action);
  void Do(const lease_action::Extend& action) {
    gang_lease_.extension_lead_s = action.extension_lead_s;
    if (action.epoch == running_epoch_) deadline_ = action.deadline;
  }
  void Do(const lease_action::Pause& action);
  void Do(const lease_action::Checkpoint&) {}
  void ArmTick();

  // ---- the training loop
  void TakeState();
  void LeaveMemory();
  void Begin();
  bool PassBoundary();
  void ArmEnd();
  void End(bool fails);
  void ArmReport();
  void ArmCheckpoint();
  void Commit(Generation generation);
  void ExitIfCommitted();
  void ParkAfter(double delay_s);
  void StopRunning();
  void Park(PauseTier tier);
  void Exit(int code, int signal, std::optional<int> finished = {});
  Progress ProgressNow() const;

  // ---- its gang
  void Meet();
  void BeginTogether();
  void AttendLater();
  bool PassInGang();
  void StopGang();
  void LeaveGang(bool broken);
  void LeaveBroken();
  GangKey gang_key() const { return {key_.job, running_epoch_}; }

  WorkerKey key_;
  VirtualTraining training_;
  Home home_;
  VirtualWorld& world_;
  LeaseMachine lease_;
  bool alive_ = true;
  bool started_ = false;
  uint64_t heard_term_ = 0;  // the highest
  bool running_ = false;
  bool pausing_ = false;
  bool stopping_ = false;  // pausing, and the boundary is chosen
  bool meeting_ = false;   // has the accelerator, waits for the other ranks
  bool taking_ = false;    // has the accelerator, brings its tensors there
  bool orphan_ = false;
  bool stalled_ = false;
  bool hung_ = false;
  Time stuck_at_ = kNever;  // stalled or hung since
  PauseTier pause_tier_ = PauseTier::kPark;
  uint64_t running_epoch_ = 0;
  Time deadline_ = 0;  // of its lease, by its clock
  GangLease gang_lease_;
  bool checkpoint_due_ = false;  // of a gang
  AcceleratorInfo accelerator_;
  int slots_ = 2;  // of the accelerator; 1: it shares it
  int world_size_ = 1;
  std::string gang_address_;
  std::string kept_on_;  // uuid of the accelerator that has its tensors
  std::string last_uuid_;
  Time resumed_at_ = 0;
  uint64_t steps_before_ = 0;  // done before resumed_at_
  Generation generation_;
  int committing_ = 0;
  Time written_at_ = 0;  // the last of them is on disk
  bool exits_when_committed_ = false;
  uint64_t pauses_ = 0;
  uint64_t moves_ = 0;
  Time armed_tick_ = kNever;
  std::vector<std::function<void()>> held_;  // until it is resumed
  // Tasks of a process that is gone do nothing.
  std::shared_ptr<int> life_ = std::make_shared<int>(0);
};

}  // namespace gavel

#endif  // GAVEL_TESTS_SIMULATION_WORLD_VIRTUAL_PROCESS_H_
