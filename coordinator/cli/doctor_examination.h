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
#include <string_view>
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
  double tolerance = 0;              // see CompareReports
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

// ---- The advice on the findings
//
// Says why a run is useless, which state usually causes such a difference, and
// the remedies. Pure, except that it reads the output of a run; thread-safe.

struct Advice {
  std::string problem;  // empty: there is none
  std::string remedy;
  bool empty() const { return problem.empty(); }
};

// "1 step", "2 steps".
std::string Plural(uint64_t count, const char* noun);

// The program failed by itself or had to be killed. `what`: "the program, run
// alone,".
Advice AdviseOnEnd(const DoctorRun& run, const char* what, double timeout_s);

// The undisturbed run tells nothing: no runtime, no boundary, no checkpoint, no
// report, one step only, a value that is no number, or only constants.
Advice AdviseOnReference(const DoctorRun& alone, const std::string& program);

// A run under leases was not paused, or did not continue.
Advice AdviseOnLease(const DoctorLeases& leases, const ExaminedRun& run);

// Names the suspect of a difference, besides its place.
struct Evidence {
  const DoctorAccount& account;  // what is not tracked, a `break`
  std::string state;             // DescribeLostState, or empty
  // Where it is the run's only difference, another name that is equal at its
  // step; else empty.
  std::string equal_name;
};

// Where the tracked state of a restored program left the undisturbed one's.
struct LostState {
  uint64_t from = 0;               // the checkpoint's step
  uint64_t step = 0;               // the first after which it differs
  std::vector<std::string> names;  // of what does
  // Steps after `from`, within those looked at, that updated the model.
  std::vector<uint64_t> updates;           // undisturbed
  std::vector<uint64_t> restored_updates;  // after the restart
  bool is_between_updates = false;         // the checkpoint's step made none
};

// Says which state was lost, judged by the entries that differ first.
std::string DescribeLostState(const LostState& lost);

// The part of the tracked state that an entry of a checkpoint belongs to: the
// name that it is tracked as, "the position in the data", "random generators".
std::string StateGroup(std::string_view entry);

// The suspect for the earliest of a run's differences: what the account says is
// not tracked, a `break`; else what the state shows; else the usual one.
Advice AdviseOnDifference(const ExaminedRun& run,
                          const ReportDifference& difference,
                          const Evidence& evidence);

// All that was reported is equal, and tracked state is not. `names`: of it.
Advice AdviseOnState(const ExaminedRun& run, const std::string& names,
                     uint64_t step, const Evidence& evidence);

// "a copy that follows the model: a tensor of ...".
std::string DescribeUntracked(const UntrackedItem& item);

// The suspect that the account of a program gives away: state that is not
// tracked, or a `break`; empty if there is none.
std::string SuspectByAccount(const DoctorAccount& account);

// State that is lost for certain.
Advice AdviseOnUntracked(const UntrackedItem& item);

// Nothing differs, but no epoch ended, or none after the restart.
Advice AdviseOnEpochs(const DoctorAccount& undisturbed,
                      bool ended_after_restart, uint64_t steps);

// Its own end was not reached in `waited_s`, so only `steps` were examined.
Advice AdviseOnOwnEnd(const DoctorAccount& account, uint64_t steps,
                      double waited_s);

// A program that was started again from step `from` comes to another end, and
// reports the same until then.
Advice AdviseOnEnds(uint64_t from, uint64_t expected, uint64_t found,
                    const DoctorAccount& account);

// Two undisturbed runs differ already. `what`: and how.
Advice AdviseOnRandomness(const std::string& what);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_EXAMINATION_H_
