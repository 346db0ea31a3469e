// The job that a user submits, as parsed from TOML, and later changes of it.
// Given text, not files. The client (before sending), the server, the engine
// and `gavel local` call it; values, thread-safe.
//
// The keys are the fields of JobSpec, but `command` for argv and `class` for
// job_class; job_spec.cc has all of them, with ranges, defaults and examples.
#ifndef GAVEL_COORDINATOR_WORKLOAD_JOB_SPEC_H_
#define GAVEL_COORDINATOR_WORKLOAD_JOB_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/messages.h"

namespace gavel {

// kTraining is paused and moved as the policy wants. kOpaque has no runtime
// linked: once started it has its accelerators, whole, until its end.
// kInteractive is the same with a terminal, for a person who waits: it starts
// at once, in place of training jobs, and ends when it is idle. kInference is
// refused. A journal has other numbers for them (fields.h of the engine).
enum class JobClass : uint8_t { kTraining, kInteractive, kInference, kOpaque };

inline constexpr double kIdleLimit_s = 3600;

struct JobSpec {
  std::string name;                  // [A-Za-z0-9_-]{1,64}
  std::vector<std::string> argv;     // argv[0] is looked up in PATH; no shell
  std::string working_directory;     // empty: the directory of the file
  std::string checkpoint_directory;  // empty: under the coordinator's state
  // By name, in the order of bytes; names are [A-Za-z_][A-Za-z0-9_]*.
  std::vector<std::pair<std::string, std::string>> environment;

  // The app that the job is a part of: jobs of one owner with the same app have
  // one goal. Empty: the job is an app of its own.
  std::string app;
  std::string workload;  // row of the throughput table; empty: `app`, `name`
  std::string entity;    // organisation that the job counts for; may be empty
  JobClass job_class = JobClass::kTraining;

  int scale_factor = 1;  // accelerators needed at once, 1..4096
  // Bounds of an elastic job, which the coordinator grows and shrinks between
  // rounds: 1 <= min <= scale_factor <= max <= 4096; 0: scale_factor.
  int scale_factor_min = 0;
  int scale_factor_max = 0;
  double weight = 1;         // priority weight, > 0, finite
  uint64_t steps_total = 0;  // 0: until the program ends by itself

  std::optional<double> deadline_s;  // after submission, > 0
  std::optional<double> budget;      // of jobs of earlier versions; no effect
  // steps/s of the whole job by accelerator type, >= 0; 0: cannot run there.
  // Types that are not named are measured. std::map: order matters.
  std::map<std::string, double> throughputs;

  // Types that it may run on, by their full names; empty: all.
  std::vector<std::string> types;

  // Servers that it may run on; empty: all but exclude_servers.
  std::vector<std::string> servers;
  std::vector<std::string> exclude_servers;

  int retries_max = 3;  // failed ends in a row before the job is held
  // A worker that makes no step and passes no boundary for this long is ended.
  // Default: as the coordinator says (--hang-timeout); 0: never.
  std::optional<double> hang_timeout_s;  // >= 0
  // How long a worker may take to say that it is ready, and to leave, while
  // none of its bytes move. Default: as the coordinator says (--start-timeout,
  // --pause-grace).
  std::optional<double> start_timeout_s, pause_grace_s;  // (0, 3600]

  // A job that has run for so long is held: over all its rounds, but an opaque
  // one since its last start. Default: never.
  std::optional<double> time_limit_s;  // > 0
  // It does not start before so long after its submission. Default: at once.
  std::optional<double> not_before_s;  // > 0
  // Names or ids of jobs of the same owner, at most kParentsMax in all. It
  // starts once those of after_success have finished, and is cancelled if one
  // of them ends in another way; once those of after_any have ended in any way.
  // An array that is named stands for all of its elements; with after_by_index
  // each element of this array waits for the element of the same index.
  std::vector<std::string> after_success, after_any, after_by_index;
  // An interactive job whose terminal has no input and no output, and whose
  // accelerators are not used, for so long is ended. Default: kIdleLimit_s.
  std::optional<double> idle_limit_s;  // > 0
  // A file of NAME=VALUE lines on each server, whose variables only the
  // processes of the job see. Empty: none.
  std::string env_file;

  // Its processes see the accelerator of their lease and no other, also where
  // the server would let them see all.
  bool leased_visibility = false;

  // The events of which the coordinator sends notices (WantsNotice): some of
  // kNoticeEvents, "ended" or "none". Empty: those of [notify] in the cluster
  // file.
  std::vector<std::string> notify;

  // Seconds of work lost when it gives an accelerator up, when it starts on one
  // again, and when it resumes elsewhere at once (default: resume_s). If any of
  // them is given, a missing one is 0; if none is given, they are measured.
  std::optional<double> pause_s, resume_s, move_s;  // >= 0

  // The file stands for several jobs (job_array.h): those of the indices
  // "0-99%10", or of all combinations of the values of `sweep`, of which at
  // most `at_once` run at once (0: no limit). By name, in the order of bytes.
  std::string array;
  std::vector<std::pair<std::string, std::vector<std::string>>> sweep;
  int at_once = 0;

  // Not in the file: the coordinator fills them in, from the submitter.
  std::string owner = "";      // principal; empty: connections have no keys
  std::string unix_user = "";  // that its processes run as; empty: the agent's
  double owner_weight = 1;     // that the owner's active jobs divide, > 0

  int LeastWorkers() const {
    return scale_factor_min > 0 ? scale_factor_min : scale_factor;
  }
  int MostWorkers() const {
    return scale_factor_max > 0 ? scale_factor_max : scale_factor;
  }
  // The name of the job's row in a throughput table.
  const std::string& Workload() const {
    if (!workload.empty()) return workload;
    return app.empty() ? name : app;
  }
  bool elastic() const { return LeastWorkers() < MostWorkers(); }
  bool interactive() const { return job_class == JobClass::kInteractive; }
  // It does not link the runtime, so its lease lasts from launch to end.
  bool opaque() const {
    return job_class == JobClass::kOpaque || interactive();
  }
  double IdleLimit() const { return idle_limit_s.value_or(kIdleLimit_s); }

  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

// A job file is at most this long, so that submitting and launching it fit a
// frame of the protocol.
inline constexpr size_t kJobSpecBytesMax = 48 * 1024;

// The most jobs that a job may wait for.
inline constexpr size_t kParentsMax = 64;

// A key of the file that a flag gives: it overrides the file's.
struct JobSetting {
  std::string flag;  // what errors begin with: "--gpus"
  std::string key;   // "scale_factor"; in a table "environment.DATA"
  // As in the file. Texts may come without quotes, and arrays of texts as
  // "v100,p100".
  std::string value;
};

// Reads the "KEY=VALUE" of --set. INVALID_ARGUMENT: there is no "=", or no key
// before it.
absl::StatusOr<JobSetting> ParseSetting(std::string_view text);

// `command` with this program, as given behind "--". `argv`: not empty.
JobSetting ProgramSetting(const std::vector<std::string>& argv);

// Parses one job file, with keys that flags give. INVALID_ARGUMENT as
// "SOURCE:LINE:COLUMN: what; remedy", or "FLAG: what; remedy" where a flag gave
// the value, for TOML errors, unknown keys, wrong types and values out of
// range.
absl::StatusOr<JobSpec> ParseJobSpec(std::string_view toml,
                                     std::string_view source,
                                     std::span<const JobSetting> settings = {});

// The canonical text of a spec that ParseJobSpec() could have returned: parsing
// it gives the same spec.
std::string FormatJobSpec(const JobSpec& spec);

// The events of which the coordinator sends notices (`[notify]` of the cluster
// file). The last one concerns no job.
inline constexpr std::string_view kNoticeEvents[] = {
    "started",   "finished", "failed",   "held",
    "cancelled", "at_risk",  "node_lost"};
// Whether a list of a file has the event. "ended" in it stands for "finished",
// "failed", "held" and "cancelled".
bool WantsNotice(const std::vector<std::string>& listed,
                 std::string_view event);
// Says why such a list is refused, with the remedy. Empty: it is not.
std::string RefusalOfNotices(const std::vector<std::string>& listed,
                             bool of_job);

// True for [A-Za-z0-9_-]{1,64}.
bool IsValidName(std::string_view name);
// Says of a name that is not valid that it names no accelerator type.
std::string RefusalOfType(std::string_view name);

void ApplyUpdate(const JobUpdate& update, JobSpec* spec);

// INVALID_ARGUMENT: a job file with these values would be refused, or the
// update changes nothing.
absl::Status CheckUpdate(const JobUpdate& update, JobSpec spec);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_JOB_SPEC_H_
