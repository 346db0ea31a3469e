// One run of a training program under `gavel doctor`, with a step budget, a
// checkpoint directory and a report file. It runs alone, or under two leases of
// which the first is asked back, and may be killed. Not thread-safe; the
// program dies with the thread that runs it.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_RUN_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_RUN_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/doctor/doctor_checkpoint.h"
#include "coordinator/cli/doctor/doctor_report.h"
#include "core/messages.h"

namespace gavel {

struct DoctorProgram {
  std::vector<std::string> argv;
  std::string folder;  // of the runs' files
  std::string device;
  int threads = 1;  // of an operation, on the CPU
  double timeout_s = 120;
  const std::atomic<bool>* stop = nullptr;  // borrowed; true: give up
};

struct DoctorRunOptions {
  // Its files are FOLDER/NAME.log, NAME.report and NAME.account.
  std::string name;
  // A folder in FOLDER, created when it is not there.
  std::string checkpoints = {};
  uint64_t steps = 0;
  // 0: at its end only.
  uint64_t checkpoint_interval_steps = 0;
  uint64_t checkpoints_kept = 2;  // the newest; >= 2
  // SIGKILL as soon as a checkpoint of a step from 1 up to this one is there;
  // 0: the program ends by itself.
  uint64_t kill_at_step = 0;
  // The accelerators of its two leases. The first is asked back when so many
  // steps are done, by report or checkpoint; the second is granted as soon as
  // the first is released. Nothing: it runs alone.
  std::optional<std::array<AcceleratorInfo, 2>> leases = std::nullopt;
  uint64_t interrupt_after_step = 0;
  double timeout_s = 0;  // 0: the program's
};

// What became of the leases of a run.
struct DoctorLeases {
  bool asked = false;  // the program ever spoke with the coordinator
  bool granted = false;
  bool interrupted = false;  // asked to release the first
  bool released = false;
  bool resumed = false;  // it runs under the second
  // Once released: the steps done by then, and the time that it took.
  uint64_t paused_after_step = 0;
  double pause_s = 0;
  // As the program told it last: time lost to saving, releasing and restoring.
  double lost_s = 0;
};

// When a step was first heard of, in seconds since the program was started.
struct StepTime {
  uint64_t step = 0;
  double at_s = 0;
};

struct DoctorRun {
  int exit_code = 0;  // minus the signal that ended it
  bool killed = false;
  bool timed_out = false;  // and killed for that
  double duration_s = 0;
  std::vector<ReportedValue> values;
  DoctorAccount account;
  DoctorLeases leases;
  std::vector<StepTime> step_times;  // of steps that reported, ascending
  std::optional<DoctorCheckpoint> last_checkpoint;  // committed, at the end
  std::string checkpoint_directory;
  std::string log_path;  // of all that it printed

  uint64_t last_step() const {
    return last_checkpoint ? last_checkpoint->generation.step : 0;
  }
  // The median duration of a step, from the third up to `end_step`: the first
  // ones warm up. Nothing when they were not reported, or take less than 1 ms.
  std::optional<double> StepDuration_s(uint64_t end_step) const;
};

// NOT_FOUND and others of SpawnProcess: it can't be started. CANCELLED: stop.
// Others as of LeaseGranter::Open.
absl::StatusOr<DoctorRun> RunUnderDoctor(const DoctorProgram& program,
                                         const DoctorRunOptions& options);

// The last lines of a file, each with an indent; empty if there are none.
std::string TailOf(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_DOCTOR_RUN_H_
