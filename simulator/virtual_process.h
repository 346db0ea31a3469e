// A worker's process in virtual time: the real lease machine, and a training
// loop that is a clock. Used by VirtualCluster only. Not thread-safe.
#ifndef GAVEL_SIMULATOR_VIRTUAL_PROCESS_H_
#define GAVEL_SIMULATOR_VIRTUAL_PROCESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/generation.h"
#include "core/messages.h"
#include "runtime/lease/lease_machine.h"
#include "simulator/event_queue.h"

namespace gavel {

// How a job behaves when it runs.
struct VirtualTraining {
  uint64_t steps_total = 100;
  // steps/s by accelerator type; a type that is not named: 1.
  std::map<std::string, double> steps_per_s;
  double start_s = 0.3;  // exec to hello, restore included
  double park_s = 0.05;  // boundary to released
  double keep_s = 0.05;  // the same when it is kept on the accelerator
  // Granted to running: where it was kept, else from host memory. What comes
  // back from the disk starts anew, start_s.
  double resume_kept_s = 0;
  double resume_parked_s = 0;
  uint64_t state_bytes = 0;   // on the accelerator or in host memory
  double checkpoint_s = 0.1;  // after the release; 0.1 s later it is durable
  // Exits with this code at this step of its first incarnations.
  int fail_code = 0;
  uint64_t fail_at_step = 0;
  int fail_incarnations = 0;
  bool ignores_pauses = false;  // never reaches a boundary
  // Of a gang: rank 0's store opens after this; whoever waits for the others
  // longer than the time-out gives its lease back; and a rank whose gang has
  // lost one ends with 75 after this.
  double gang_open_s = 0.05;
  double gang_timeout_s = 3;
  double gang_abort_s = 0.2;
  int gang_failures = 0;  // so many of its meetings come to nothing
};

class VirtualProcess;

// The ranks of a job that meet, or run together, by epoch.
struct VirtualGang {
  std::map<uint64_t, std::map<int, VirtualProcess*>> ranks;
  int failed = 0;
};

class VirtualProcess {
 public:
  // What it needs of the world around it.
  struct World {
    EventQueue* queue = nullptr;
    std::function<void(Message)> send;  // to the coordinator
    // Takes one of an accelerator's two slots or both / frees them, by uuid;
    // false: held by another process.
    std::function<bool(const std::string& uuid, int slots)> take;
    std::function<void(const std::string& uuid)> free;
    // Has so much memory of an accelerator from now on; 0: none.
    std::function<void(const std::string& uuid, uint64_t bytes)> hold;
    std::function<void(Generation)> commit;  // a checkpoint is durable
    VirtualGang* gang = nullptr;
    std::function<void(std::string)> violation;
    std::function<void(int exit_code, int signal)> exited;
  };

  VirtualProcess(WorkerKey key, VirtualTraining training, Generation restored,
                 World world);

  void Start();
  void Receive(const Message& message);
  void Terminate();  // SIGTERM: checkpoint, exit 75
  void Kill();       // SIGKILL

  bool alive() const { return alive_; }
  bool running() const { return running_; }
  uint64_t StepsDone() const;
  const WorkerKey& key() const { return key_; }

 private:
  void Step(const LeaseEvent& event);
  void Do(const lease_action::Send& action);
  void Do(const lease_action::Resume& action);
  void Do(const lease_action::Extend&) {}
  void Do(const lease_action::Pause& action);
  void TakeState();
  void LeaveMemory();
  void Begin();
  void Meet();
  void OpenGang(uint64_t epoch);
  void LeaveGang(bool broken);
  void ArmTick();
  void ArmEnd();
  void ArmReport();
  void StopRunning();
  void Park(PauseTier tier);
  void Exit(int code, int signal);
  Progress ProgressNow() const;
  double StepsPerSecond() const;

  WorkerKey key_;
  VirtualTraining training_;
  World world_;
  LeaseMachine lease_;
  bool alive_ = true;
  bool running_ = false;
  bool pausing_ = false;
  bool meeting_ = false;  // has the accelerator, waits for the other ranks
  PauseTier pause_tier_ = PauseTier::kPark;
  uint64_t running_epoch_ = 0;
  AcceleratorInfo accelerator_;
  int world_size_ = 1;
  std::string gang_address_;
  bool taking_ = false;  // has the accelerator, brings its tensors there
  std::string kept_on_;  // uuid of the accelerator that has its tensors
  std::string last_uuid_;
  Time resumed_at_ = 0;
  uint64_t steps_before_ = 0;  // done before resumed_at_
  Generation generation_;
  uint64_t pauses_ = 0;
  uint64_t moves_ = 0;
  Time armed_tick_ = kNever;
  // Tasks of a process that is gone do nothing.
  std::shared_ptr<int> life_ = std::make_shared<int>(0);
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_VIRTUAL_PROCESS_H_
