// `gavel reproduce reality`: a trace of small jobs that is run live on this
// machine and in the simulator, with the throughputs and overheads that were
// measured; and how far the two are apart. RunReality runs programs; all else
// is pure, of values, and thread-safe.
#ifndef GAVEL_COORDINATOR_CLI_REALITY_H_
#define GAVEL_COORDINATOR_CLI_REALITY_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/live_workloads.h"
#include "coordinator/cli/profile_run.h"
#include "coordinator/workload/json_fields.h"
#include "core/messages.h"
#include "simulator/trace_simulation.h"

namespace gavel {

// ---- the jobs
//
// They are drawn by a seed, of programs with known throughputs. Their outcome
// in a live run is read from the history of its coordinator and the traces of
// its workers.

// A stay on an accelerator. Times of one clock, seconds.
struct LiveLease {
  std::string accelerator;
  Time from_s = 0;
  Time to_s = 0;
  bool paused = false;  // else the job ended
};

struct LiveJob {
  std::string name;
  std::string type;
  Time submitted_s = 0;
  Time ended_s = 0;
  uint64_t pauses = 0;
  std::vector<LiveLease> leases;  // ascending
  std::vector<TracedStep> steps;  // ascending; of the same clock
};

// From rows of history ("jobs" and "leases", rank 0), in the order of the jobs.
// INVALID_ARGUMENT: a job did not end.
absl::StatusOr<std::vector<LiveJob>> ReadLiveJobs(const Json& jobs,
                                                  const Json& leases);

struct LiveFigures {
  double makespan_s = 0;  // from the first submission to the last end
  double avg_jct_s = 0;   // from a job's submission to its end
  uint64_t pauses = 0;
};
LiveFigures FiguresOf(const std::vector<LiveJob>& jobs);

// Means by job type of what the jobs lost, none of it from the figures above:
// - start: from when the accelerator was free and the job there to its first
//   step, and from its last step to its end;
// - pause: from its last step on an accelerator to when that was free;
// - resume, move: from when an accelerator was free to its first step there.
// A type without any pause has the means over all types.
Overheads MeasureOverheads(const std::vector<LiveJob>& jobs);

// The form that ParseOverheadsFile reads.
std::string FormatOverheads(const Overheads& overheads);

struct RealityTraceOptions {
  int jobs = 20;
  // Alone on the type on which the job is fastest, seconds.
  double duration_min_s = 10;
  double duration_max_s = 40;
  uint64_t seed = 0;
};

struct RealityJob {
  size_t workload = 0;
  uint64_t steps = 1;
  double arrival_s = 0;  // ascending, the first is 0
};

// The throughputs of the workloads, [workloads x types] in steps/s, and the
// number of accelerators of each type.
struct RealityThroughputs {
  std::vector<std::string> types;
  std::vector<int> counts;
  std::vector<std::vector<double>> steps_per_s;
};

// Each workload as often as any other; durations log-uniform; arrivals Poisson,
// a quarter faster than the accelerators do the jobs, so that they take turns.
std::vector<RealityJob> MakeRealityTrace(const RealityTraceOptions& options,
                                         const RealityThroughputs& throughputs);

// As TOML that ParseTrace reads.
std::string FormatRealityTrace(const std::vector<RealityJob>& jobs,
                               const std::vector<ProfileWorkload>& workloads);

// ---- the runs

struct RealityOptions {
  // With programs that are absolute paths (FindWorkloads).
  std::vector<ProfileWorkload> workloads;
  std::string cluster_path;  // empty: a fast and a slow slot of the CPU
  std::string throughputs;   // file; empty: measured first
  std::string folder;        // of all files
  std::string policy = "max_min_fairness_perf";
  double round_duration_s = 10;
  double measure_s = 8;  // of each workload on each type
  int runs = 3;
  RealityTraceOptions trace;
  bool quiet = false;  // live runs don't show their queue
  std::function<void(const std::string& what)> show;
};

struct RealityRun {
  LiveFigures live;
  LiveFigures simulated;
  Overheads overheads;
};

struct Reality {
  RealityThroughputs throughputs;  // rows as the workloads
  std::vector<RealityRun> runs;
};

// One call at a time; the programs die with its thread.
// CANCELLED: a signal ended it. ABORTED: a job did not finish, or a workload
// could not be measured; the message says which and where its output is.
// INVALID_ARGUMENT: a cluster or policy that is none.
absl::StatusOr<Reality> RunReality(const RealityOptions& options);

// ---- a live trace beside its simulation, as text

// Simulated over live - 1: the median of the runs, and their range.
struct Difference {
  double median = 0;
  double least = 0;
  double most = 0;
};
Difference DifferenceIn(double LiveFigures::*figure,
                        const std::vector<RealityRun>& runs);

std::string RenderReality(const RealityOptions& options, const Reality& reality,
                          size_t width);
std::string RenderRealityMarkdown(const RealityOptions& options,
                                  const Reality& reality);

// ABORTED: the median of a difference is beyond `limit` (0.1: 10 %).
absl::Status CheckReality(const Reality& reality, double limit);

// ---- `gavel reproduce preemption`
//
// The cost of a round's end for a training program, measured for three ways to
// end a round, with real processes on this machine. One call at a time; the
// programs die with its thread.

// kExtended: the lease is extended, and the program continues. kPaused: it
// gives its accelerator up, and gets it again at once. kRelaunched: it saves
// its state and ends, and another process resumes from there, as the jobs of
// the original Gavel do.
enum class RoundEnd : uint8_t { kExtended, kPaused, kRelaunched };
inline constexpr std::array<RoundEnd, 3> kRoundEnds = {
    RoundEnd::kExtended, RoundEnd::kPaused, RoundEnd::kRelaunched};
std::string_view RoundEndName(RoundEnd end);  // "extended", ...

// The end of one round, on the machine's monotonic clock.
struct Preemption {
  Time asked_s = 0;
  Time released_s = 0;  // the accelerator is free
  Time granted_s = 0;   // the next lease
};

// One program through all rounds.
struct PreemptionRecord {
  std::vector<TracedStep> steps;        // ascending
  std::vector<Preemption> preemptions;  // of kExtended: none
};

// From a round's first step to the next one's.
struct MeasuredRound {
  Time begin_s = 0;
  Time end_s = 0;
  double lost_s = 0;  // outside of steps
  // The three parts of lost_s: from the last step to the free accelerator, from
  // there to the next lease, and from there to the next step.
  double leaving_s = 0;
  double away_s = 0;
  double resuming_s = 0;
};
// At most `rounds`; without preemptions of `round_s` each. Pure.
std::vector<MeasuredRound> RoundsOf(const PreemptionRecord& record, int rounds,
                                    double round_s);

struct PreemptionOptions {
  // With programs that are absolute paths (FindWorkloads).
  std::vector<ProfileWorkload> workloads;
  AcceleratorInfo accelerator;
  std::string folder;  // absolute; of all files
  int rounds = 10;
  double round_s = 1;                       // that a lease runs
  double timeout_s = 120;                   // for a step, a release, an end
  const std::atomic<bool>* stop = nullptr;  // borrowed; true: give up
  std::function<void(size_t done, size_t all, const std::string& what)> show;
};

// By workload, then as kRoundEnds.
using PreemptionRounds = std::vector<std::array<std::vector<MeasuredRound>, 3>>;

// `all` gets the workloads that ran in full, in their order, also on an error.
// CANCELLED: stopped. ABORTED: a program failed or did not obey; the message
// names the program, the reason, and the file of its output.
absl::Status RunPreemption(const PreemptionOptions& options,
                           PreemptionRounds* all);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_REALITY_H_
