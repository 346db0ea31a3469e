// Traces: the jobs of a simulation, in the order of arrival. Parsers of all
// forms that the field uses, given text, not files. Values, thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_TRACE_H_
#define GAVEL_COORDINATOR_WORKLOAD_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/file_keys.h"

namespace gavel {

// Type of the jobs of a CSV that names none: equally fast on all accelerators.
inline constexpr std::string_view kNoJobType = "philly";
// Type of the interactive jobs of a CSV that names none, and of generated ones.
inline constexpr std::string_view kInteractiveJobType = "interactive";

// The part that many jobs of a trace have in common.
struct JobTemplate {
  std::string type;  // "ResNet-18 (batch size 64)"; row of the throughputs
  std::string command;
  std::string working_directory;
  std::string steps_flag;  // "--num_steps": how the command takes the steps
  bool needs_data_directory = false;
  bool distributed = true;  // may have a scale factor above 1
  friend bool operator==(const JobTemplate&, const JobTemplate&) = default;
};

// The loss of a job after the part x of its steps, for policies that predict
// training: 1 / (b0 x + b1) + b2, the form of Optimus (EuroSys'18,
// section 3.1). The default falls from 1 to 0.01.
struct TraceLoss {
  double b0 = 99;
  double b1 = 1;
  double b2 = 0;
  double At(double part) const { return 1 / (b0 * part + b1) + b2; }
  friend bool operator==(const TraceLoss&, const TraceLoss&) = default;
};

struct TraceJob {
  size_t job_template = 0;  // index into Trace::templates
  int scale_factor = 1;     // >= 1
  double weight = 1;        // > 0
  // > 0, need not be whole when generated; 0: as many as `duration_s` takes,
  // which the throughputs tell (trace_generator.h).
  double steps_total = 0;
  double arrival_s = 0;  // >= 0, never before the job ahead
  double slo = 0;        // deadline as a multiple of `duration_s`; 0: none
  // Alone on the reference type (v100), if the trace tells; else 0.
  double duration_s = 0;
  size_t entity = kNoEntity;  // index into Trace::entities
  static constexpr size_t kNoEntity = std::numeric_limits<size_t>::max();
  size_t app = kNoApp;  // index into Trace::apps; kNoApp: the job is one alone
  static constexpr size_t kNoApp = std::numeric_limits<size_t>::max();
  TraceLoss loss = {};
  // Elastic, as JobSpec has it: 1 <= min <= scale_factor <= max; 0:
  // scale_factor.
  int scale_factor_min = 0;
  int scale_factor_max = 0;
  int LeastWorkers() const {
    return scale_factor_min > 0 ? scale_factor_min : scale_factor;
  }
  int MostWorkers() const {
    return scale_factor_max > 0 ? scale_factor_max : scale_factor;
  }
  // A person uses it for `duration_s` on whatever accelerators
  // (JobClass::kInteractive). Its steps are seconds, and its type needs no row
  // in the throughputs.
  bool interactive = false;
  // It does not link the runtime (JobClass::kOpaque): nothing pauses it once it
  // runs. No file of a trace has such jobs.
  bool opaque = false;
  friend bool operator==(const TraceJob&, const TraceJob&) = default;
};

// An organisation that jobs count for (Gavel section 4.3).
struct TraceEntity {
  std::string name;
  double weight = 1;
  std::string policy = "fairness";  // inside: "fairness", "fifo", a policy
  friend bool operator==(const TraceEntity&, const TraceEntity&) = default;
};

struct Trace {
  std::vector<JobTemplate> templates;
  std::vector<TraceJob> jobs;
  std::vector<TraceEntity> entities;
  // Names of the apps (JobSpec::app), each 1 to 256 bytes.
  std::vector<std::string> apps;
  // Names of the jobs in the file, by number; empty: it names none.
  std::vector<std::string> names;
  // Sentences that tell the user which parts of the file are not simulated.
  std::vector<std::string> notices;
};

inline constexpr size_t kTraceBytesMax = size_t{1} << 30;
inline constexpr double kTraceStepsMax = 9007199254740992;  // 2^53
// Steps of a job are counted one by one.
inline constexpr NumberRange kTraceSteps = {.above_min = true,
                                            .max = kTraceStepsMax};

// As `ignored_columns` below: all columns of a CSV that are not known.
inline constexpr std::string_view kAllOtherColumns = "*";

// Any of the forms below, told apart by the first line that is no comment ("#"
// begins one): with tabs it is Gavel's, unless it is the header of a CSV; the
// header of a CSV has commas, semicolons or tabs; all else is TOML. Errors are
// INVALID_ARGUMENT, "SOURCE:LINE:COLUMN: what; remedy"; the column counts
// characters of the line from 1.
//
// Gavel's own: one job per line, tab-separated, by arrival, with or without a
// line of names; ten columns (type, command, working directory, steps flag,
// needs data directory, steps, scale factor, weight, SLO, arrival), the old
// seven (type, command, steps flag, needs data directory, steps, arrival, scale
// factor), Shockwave's twelve, which are the ten with a mode behind the scale
// factor and a duration before the arrival, eleven: the ten and the app, or
// thirteen: these, the class and the duration.
//
// CSV: a header that names at least the duration and the accelerators of a job
// (trace.cc lists all names). Without arrivals all jobs are there
// at 0; dates are counted from the first. The duration is on the reference
// type; a job without a type has the type "philly", and steps_total is then its
// duration_s (1 step/s). Any other column is an error unless `ignored_columns`
// names it: names between commas, or kAllOtherColumns.
//
// Jobs that have nothing to do (0 steps, 0 seconds, 0 accelerators) are left
// out; a notice tells how many.
//
// TOML: [[job]] with type, steps_total or duration_s, and optionally count,
// scale_factor, scale_factor_min and scale_factor_max (elastic), weight,
// arrival_s, slo, entity, app, command (a string); [[entity]] with name,
// weight, policy. A [[job]] may also have loss_b0, loss_b1 and loss_b2
// (TraceLoss).
//
// The class, where a form has it, is "training" or "interactive". An
// interactive job needs a duration, has no steps of its own and is not elastic.
absl::StatusOr<Trace> ParseTrace(std::string_view text, std::string_view source,
                                 std::string_view ignored_columns = {});

// Gavel's ten columns, byte for byte as the original dumps them: steps and
// weight truncated to whole numbers, arrivals and SLOs with six decimals. They
// do not tell which jobs are elastic. Jobs of an app have an eleventh column,
// and interactive ones thirteen, with six decimals of the duration.
std::string FormatTrace(const Trace& trace);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_TRACE_H_
