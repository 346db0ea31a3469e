// One run of a training program under `gavel doctor`, and the files that the
// run leaves behind: its report (GAVEL_REPORT_FILE, docs/iterator.md), the
// account that the runtime gives of it (GAVEL_EXAMINATION_FILE; its format is
// in iterator/examination.h), and its checkpoints.
#ifndef GAVEL_COORDINATOR_CLI_DOCTOR_RUN_H_
#define GAVEL_COORDINATOR_CLI_DOCTOR_RUN_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "core/messages.h"

namespace gavel {

// ---- Reports and accounts; pure, thread-safe ----

struct ReportedValue {
  uint64_t step = 0;
  std::string name;
  std::string value;  // hexadecimal: equal text, equal to the bit
  friend bool operator==(const ReportedValue&, const ReportedValue&) = default;
};

// Parses one value per line "STEP NAME VALUE", in the order of the file; names
// may have blanks. A last line that was cut off, and lines of another form, are
// left out.
std::vector<ReportedValue> ParseReport(std::string_view text);

// Sorted, each once.
std::vector<std::string> NamesOf(const std::vector<ReportedValue>& values);

// The first that is not a number: it equals nothing, whatever went wrong.
std::optional<ReportedValue> FirstNan(const std::vector<ReportedValue>& values);

// Some name has several values: else all runs agree, whatever they train.
bool AnyVaries(const std::vector<ReportedValue>& values);

struct ReportDifference {
  uint64_t step = 0;
  std::string name;
  std::optional<std::string> expected;  // nothing: not reported
  std::optional<std::string> found;
};

// The first difference of each name from `from_step` on, the earliest first; at
// one step the name that was reported first. A run that begins there may have
// reported more at its first step, before its loop: the last values count.
// Numbers differ when they do by more than `tolerance` times the larger one; 0:
// to the bit.
std::vector<ReportDifference> CompareReports(
    const std::vector<ReportedValue>& expected,
    const std::vector<ReportedValue>& found, uint64_t from_step,
    double tolerance = 0);

// "loss at step 12: 0.25 (0x1p-2) undisturbed, not reported in the other run".
std::string DescribeDifference(const ReportDifference& difference,
                               std::string_view other_run);

struct UntrackedItem {
  uint64_t step = 0;  // when it was noticed
  std::string kind;   // see iterator/examination.h
  std::string text;
};

struct DoctorAccount {
  std::vector<std::string> tracked;  // "model (module)"
  uint64_t loops_begun = 0;
  std::vector<uint64_t> epoch_ends;  // steps done by then, ascending
  std::vector<uint64_t> breaks;      // loops left by `break`
  std::vector<uint64_t> evaluations;
  std::vector<UntrackedItem> untracked;

  // True if the runtime gave no account.
  bool empty() const { return tracked.empty() && loops_begun == 0; }
  // By its range's end or by `break`, ascending.
  std::vector<uint64_t> LoopEnds() const;
  // Something is tracked that may count epochs: a number, text or bytes.
  bool CountsSomething() const;
  // The names under which objects of this kind ("module") are tracked.
  std::vector<std::string> TrackedAs(std::string_view kind) const;
  // It loses state for certain: null if nothing does.
  const UntrackedItem* Lost() const;
};

// Leaves out lines of other kinds, and a last one that was cut off.
DoctorAccount ParseAccount(std::string_view text);

// How many steps an examination should have, so that a program that is killed
// in the middle has an epoch's end behind it and one before it; more than
// `steps` when none was seen in these. 0: they are enough.
uint64_t StepsForEpochs(const DoctorAccount& account, uint64_t steps);

// ---- Checkpoints as they lie on disk; stateless, thread-safe ----

struct DoctorCheckpoint {
  Generation generation;
  std::string path;
};

// Committed ones, ascending; the program may be writing and deleting others.
std::vector<DoctorCheckpoint> ListCheckpoints(const std::string& directory);
std::optional<DoctorCheckpoint> LastCheckpoint(const std::string& directory);

// Checks that the checkpoint is complete. DATA_LOSS names the file when the
// manifest is missing or was altered, or a shard is missing or has another
// size. The runtime verifies the content of the shards when a program resumes
// from them.
absl::Status VerifyCheckpoint(const std::string& path);

// Names of the state that differs between two checkpoints, by the checksums of
// their manifests, sorted. Without the loop's count of batches and the random
// state at its begin, which a restart may begin anew. Errors: a manifest can't
// be read.
absl::StatusOr<std::vector<std::string>> DifferingState(
    const std::string& path, const std::string& other_path);

// The size of all files in the folder.
uint64_t BytesIn(const std::string& folder);

// From the folder's creation to its manifest's; nothing where the file system
// does not keep the former.
std::optional<double> SaveTime_s(const std::string& path);

// ---- The run ----
//
// A program runs with a step budget, a checkpoint directory and a report file:
// alone, or under two leases of which the first is asked back, and it may be
// killed. Not thread-safe; the program dies with the thread that runs it.

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

// The outcome of the leases of a run.
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

// The errors of SpawnProcess: it can't be started. CANCELLED: stop. Also
// returns the errors of LeaseGranter::Open.
absl::StatusOr<DoctorRun> RunUnderDoctor(const DoctorProgram& program,
                                         const DoctorRunOptions& options);

// The last lines of a file, each with an indent; empty if there are none.
std::string TailOf(const std::string& path);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_DOCTOR_RUN_H_
