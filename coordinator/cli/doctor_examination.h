// The examination by `gavel doctor`: does a training program that is paused,
// moved or killed continue exactly as if nothing had happened? The program runs
// undisturbed, and to its own end if it comes in time; under leases that are
// taken back, once for the same accelerator and once for another; and it is
// killed and started again after an odd step, after an even one, and near the
// end. Every value that these runs report is compared with the undisturbed run,
// and so are the checksums of all tracked state at the end, and the end itself.
// The program passes only if everything could be examined. Not thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_EXAMINATION_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_EXAMINATION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/doctor_run.h"

namespace gavel {

inline constexpr uint64_t kDoctorStepsMax = 100'000;

struct ExaminationOptions {
  uint64_t steps = 20;  // at least 2
  // Else more are done, until epochs end, as far as the timeout allows.
  bool steps_given = false;
  std::vector<std::string> ignored;  // reported names that are not compared
  double tolerance = 0;              // as of CompareReports
  std::string move_to;               // device of the run that is moved
  // With so many the program has come to its own end (GAVEL_STEPS of its
  // user); 0: it ends by itself.
  uint64_t own_steps = 0;
  // Called with each line on a run, as soon as it is known. May be empty.
  std::function<void(const char* what, const std::string& text)> say;
};

// A run beside the undisturbed one.
struct ExaminedRun {
  std::string name;             // "paused", "moved", "restored"
  uint64_t from_step = 0;       // values from here on were compared
  uint64_t interrupted_at = 0;  // steps done by then
  uint64_t values_compared = 0;
  std::vector<ReportDifference> differences;  // the earliest first
  bool state_compared = false;
  std::vector<std::string> state_differences;  // names, at the last step
  bool is_equal() const {
    return differences.empty() && state_differences.empty();
  }
};

// Seconds; what could not be measured is left out.
struct DoctorMeasures {
  std::optional<double> save_s;     // of one checkpoint, until it is committed
  std::optional<double> start_s;    // from the start to the first step
  std::optional<double> restart_s;  // the same with a checkpoint to read
  std::optional<double> pause_s;    // from the request to the free accelerator
  std::optional<double> lost_s;     // to the pause in all, as the runtime says
  std::optional<double> step_s;     // one step, undisturbed
  std::optional<double> leased_step_s;  // and under a lease
  uint64_t checkpoint_bytes = 0;
  uint64_t checkpoints_verified = 0;

  std::optional<double> load_s() const;
};

struct Examined {
  bool passed = false;
  bool unknown = false;   // nothing wrong was found, but not all was examined
  std::string problem;    // what was found; empty when passed
  std::string remedy;     // for it; may have several lines
  uint64_t steps = 0;     // of the undisturbed run
  DoctorAccount account;  // of the undisturbed run
  std::vector<ExaminedRun> runs;
  DoctorMeasures measures;
};

// Errors: those of RunUnderDoctor.
absl::StatusOr<Examined> Examine(const DoctorProgram& program,
                                 const ExaminationOptions& options);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_EXAMINATION_H_
