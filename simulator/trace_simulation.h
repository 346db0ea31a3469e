// Replays a trace through the scheduling engine in virtual time, with workers
// that obey at once and servers that fail only if a failure rate is set: the
// simulator of researchers. VirtualCluster (tests/simulation) runs the same
// engine on the same clock with a faulty network and failing processes.
#ifndef GAVEL_SIMULATOR_TRACE_SIMULATION_H_
#define GAVEL_SIMULATOR_TRACE_SIMULATION_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/engine.h"
#include "coordinator/workload/price_series.h"
#include "coordinator/workload/throughput_table.h"
#include "coordinator/workload/trace.h"
#include "core/units.h"

namespace gavel {

// ---- clusters and preemption costs, as written on a command line or in a
// file. The parsers are given text, not files. Values, thread-safe.

// Accelerators of one type: `count` of them on servers of `per_server` each.
struct ClusterPart {
  std::string type;
  int count = 0;
  int per_server = 1;  // divides count; of "v100:36": all on one
  int per_group = 0;   // divides per_server; 0: servers have no groups
  int per_rack = 0;    // a multiple of per_server; 0: there are no racks
  friend bool operator==(const ClusterPart&, const ClusterPart&) = default;
};

inline constexpr int kSimulatedAcceleratorsMax = 1'000'000;  // of a type

// "v100:36,p100:36,k80:36", or with the size of the servers "v100:36x4". A part
// without that size is one server, so no gang is spread. A type may have
// several parts with servers of different sizes: "v100:32x4,v100:8x2".
// "v100:64x8:group=4" has groups of 4 that are joined inside each server,
// "v100:64x8:rack=32" has racks of 32; both may be there. Gavel's "36:36:36" is
// read as v100, p100 and k80, where 0 leaves a type out. INVALID_ARGUMENT names
// the error.
absl::StatusOr<std::vector<ClusterPart>> ParseCluster(std::string_view text);

// Seconds that a job loses: `start_s` once, before its first step and after its
// last one; `pause_s` when it gives an accelerator up, `resume_s` when it
// starts on one again, `move_s` in place of resume_s when that is not the
// accelerator it had last. All 0: preemption is free.
struct Overhead {
  double pause_s = 0;
  double resume_s = 0;
  double move_s = 0;
  double start_s = 0;
  friend bool operator==(const Overhead&, const Overhead&) = default;
};

struct Overheads {
  Overhead all;                             // of job types that are not named
  std::map<std::string, Overhead> by_type;  // job type
  friend bool operator==(const Overheads&, const Overheads&) = default;
};

// "none", or "start=8,pause=2,resume=5,move=9". A missing field is 0; a missing
// move is as resume. INVALID_ARGUMENT names the error.
absl::StatusOr<Overheads> ParseOverheads(std::string_view text);
// A file of them: a table for each job type, "*" for the others:
//   ["ResNet-18 (batch size 64)"]
//   pause_s = 2
// INVALID_ARGUMENT as "SOURCE:LINE:COLUMN: what; remedy".
absl::StatusOr<Overheads> ParseOverheadsFile(std::string_view toml,
                                             std::string_view source);

// ---- simulations

// The throughputs of pairs are estimated, not read from the table: each job is
// profiled beside a part of the reference jobs when it first runs, and gets the
// row of the most similar reference (Gavel sections 3.3 and 6).
// EngineOptions::reference_models is the number of references; with 0 nothing
// is estimated.
struct Profiling {
  double part = 1;     // of the cells (type, reference), (0, 1]
  double cell_s = 60;  // that one takes, of all accelerators of the job; >= 0
};

// Apps that overstate their rho to the policy: a part of the trace's apps,
// spread evenly over their order, each by the same factor. A policy that orders
// apps by their rho invites such lies (Themis, NSDI'20, section 2.3).
struct Lies {
  double part = 0;    // of the apps, [0, 1]
  double factor = 1;  // > 0
};

// Apps of the trace whose gangs lose speed when they are on several servers, at
// any throughput that the table has for them: a part of the apps, spread evenly
// over their order.
struct SpreadLoss {
  double part = 0;   // of the apps, [0, 1]
  double keeps = 1;  // of the speed on one server, (0, 1]
};

// Reasons for which a job of the trace is not in the queue yet: the keys
// after_any, not_before_s and array of a job file. The engine of the simulation
// holds the job as that of a coordinator does.
struct SimulatedWaits {
  // Numbers of jobs of the trace, each ahead of this one and arriving when it
  // does. One that fits nowhere leaves out this one, too.
  std::vector<size_t> after;
  std::vector<uint64_t> after_arrays;  // with an element ahead of this job
  double not_before_s = 0;             // after its arrival
  // Any number for each array; 0: the job is no element.
  uint64_t array = 0;
  int at_once = 0;      // elements that may run at once; 0: no limit
  bool queued = false;  // an element that has had its turn when it arrives
};

// The user of a job, for fairness between users (EngineOptions::user_shares)
// and between apps.
struct SimulatedOwner {
  std::string name;   // empty: nobody's
  double weight = 1;  // that the owner's jobs divide, > 0
};

struct SimulationOptions {
  EngineOptions engine;
  Profiling profiling;
  std::string policy = "max_min_fairness_perf";
  std::vector<ClusterPart> cluster;
  Overheads overheads;
  PriceSeries prices;
  uint64_t seed = 0;  // of failures, and of which cells are profiled
  // Only jobs [window_begin, window_end) by number count in the means, and the
  // run is over when they have ended.
  uint64_t window_begin = 0;
  uint64_t window_end = std::numeric_limits<uint64_t>::max();
  double time_limit_s = kNever;  // simulated; the run ends unfinished
  // Fluid: each job runs at its allocated fractions all the time, without
  // rounds.
  bool ideal = false;
  // Jobs that arrive before enough are there to fill the cluster start at once,
  // part of their work done (Gavel's --simulate-steady-state).
  bool steady_state = false;
  // Failures per accelerator and hour; the worker that runs there then starts
  // again from its last generation, `checkpoint_interval_s` old at most.
  double failures_per_hour = 0;
  double checkpoint_interval_s = 600;
  bool record_rounds = false;  // fills SimulationResult::leases and usage
  Lies lies;
  SpreadLoss spread_loss;
  // The time that jobs of the trace had received before it began, by number.
  // Jobs beyond the end of the vector had received none. Unused when `ideal`.
  std::vector<event::Received> received;
  // By number. Jobs beyond the end of the vector wait for nothing. Unused when
  // `ideal`.
  std::vector<SimulatedWaits> waits;
  // By number. Jobs beyond the end of the vector are nobody's. A job waits for
  // jobs of its owner only. Unused when `ideal`.
  std::vector<SimulatedOwner> owners;
  // The servers that a job may run on, by number: TYPE-0, TYPE-1 and so on in
  // the order of the parts of that type. Empty, and beyond the end of the
  // vector: all. A job must have room there. Unused when `ideal`.
  std::vector<std::vector<std::string>> servers;
};

// The outcome of one job of the trace.
struct SimulatedJob {
  uint64_t job = 0;  // its number in the trace, from 0
  std::string name;  // in the trace; empty: it names none
  std::string type;
  int scale_factor = 1;
  double weight = 1;
  Time arrival_s = 0;
  Time completion_s = kNever;  // kNever: it had not ended
  double jct_s = 0;            // completion - arrival
  double steps = 0;            // that it has done
  // Finish-time fairness (Themis): the JCT over the JCT with an equal part of
  // the cluster, divided among the jobs present at each of its steps (Gavel).
  // This and the next two are 0 if the job has not ended.
  double rho = 0;
  // Shockwave's two forms: jct / (time alone x contention). Contention is the
  // number of jobs per accelerator, at least 1: of all jobs of the trace, or of
  // the jobs that were present, averaged over this job's life.
  double rho_static = 0;
  double rho_mean = 0;
  double cost = 0;
  double run_s = 0;   // that it held accelerators
  double lost_s = 0;  // of these, for starting, pausing, moving, profiling
  uint64_t preemptions = 0;
  uint64_t moves = 0;
  Time deadline_s = kNever;
  double share_target = 0;  // fractions of its life, as in Engine::SharesOf
  double share_received = 0;
  double present_s = 0;  // of the simulation: jobs x time before it came
  bool interactive = false;
  // Since when it has, or first had, all of its accelerators. kNever: it has
  // not started, or the simulation is ideal.
  Time started_s = kNever;
};

// The jobs of the window that people wait for. A delay is from the arrival to
// the start.
struct InteractiveFigures {
  uint64_t jobs = 0;
  double p50_start_s = 0;  // of those that started; NaN: none did
  double p99_start_s = 0;
  double max_start_s = 0;
  uint64_t paused = 0;  // that lost their accelerators before their end
};

// The outcome of an app of the trace all of whose jobs are in the window and
// have ended. A job without an app is one alone, if the trace has others.
struct SimulatedApp {
  std::string name;  // empty: a job alone
  uint64_t jobs = 0;
  Time arrival_s = 0;     // of its first job
  Time completion_s = 0;  // of its last job
  // Themis (NSDI'20, section 3): its time over its time alone on the whole
  // cluster, times the average number of apps present over its life.
  double rho = 0;
  bool lies = false;  // see Lies
};

// One kind of rho over the window's jobs that ended.
struct Fairness {
  double avg = 0;
  double max = 0;
  double above_1 = 0;  // fraction of the jobs
};

struct UnfitJob {
  uint64_t job = 0;
  std::string reason;
};

// One job's stay on one accelerator.
struct RecordedLease {
  uint64_t job = 0;
  uint64_t accelerator = 0;  // id, from 1
  Time from_s = 0;
  Time to_s = 0;
};

// Busy accelerators of each type over the time up to the next sample.
struct UsageSample {
  Time time_s = 0;
  std::vector<double> busy;  // [J] fraction of the type's accelerators
  double waiting_jobs = 0;
};

struct SimulationResult {
  bool complete = false;  // all jobs of the window ended
  std::string stopped;    // why not
  std::string policy;
  // All figures up to worst_share count the window's training jobs that ended.
  // NaN: none did.
  double avg_jct_s = 0;
  double p50_jct_s = 0;
  double p99_jct_s = 0;
  uint64_t slo_jobs = 0;
  uint64_t slo_violations = 0;  // ended after their deadline
  double avg_rho = 0;
  double max_rho = 0;
  double rho_above_1 = 0;  // fraction of the jobs
  Fairness rho_static;     // SimulatedJob has what they are
  Fairness rho_mean;
  // The apps of a trace that has some (else NaN): all of them, the median and
  // the largest rho, the fraction at most 1, and Jain's index of fairness
  // (1 if all are equal, 1 / n if one has all).
  std::vector<SimulatedApp> apps;
  double median_app_rho = 0;
  double max_app_rho = 0;
  double app_rho_at_most_1 = 0;
  double app_jain_index = 0;
  // The same by whether apps lie; NaN: there are none of that kind.
  double median_honest_app_rho = 0;
  double max_honest_app_rho = 0;
  double median_lying_app_rho = 0;
  double worst_share = 0;  // least share received / target
  InteractiveFigures interactive;
  // The next figures cover all jobs, also those outside the window.
  double makespan_s = 0;  // from the first arrival to the last end; NaN: none
  double busy_s = 0;      // accelerator-seconds that jobs held
  double cluster_utilization = 0;  // busy time / (accelerators x makespan)
  std::map<std::string, double> utilization;  // the same by type
  double total_cost = 0;
  uint64_t preemptions = 0;
  uint64_t moves = 0;
  uint64_t rounds = 0;
  uint64_t solves = 0;
  double lost_s = 0;       // accelerator-seconds
  double profiling_s = 0;  // accelerator-seconds, of these
  uint64_t failures = 0;
  // The mean speed of gangs over that at the tightest level with room for them
  // (Themis, section 8), by accelerator time alone; NaN: no gang ran.
  double placement_score = std::numeric_limits<double>::quiet_NaN();
  std::vector<SimulatedJob> jobs;  // of the window, by number
  std::vector<UnfitJob> unfit;     // fit nowhere; the rest went on
  std::vector<std::string> types;  // J
  std::vector<UsageSample> usage;
  std::vector<RecordedLease> leases;
};

// Not thread-safe; several may run on several threads. Deterministic by the
// options and the trace.
class TraceSimulation {
 public:
  // INVALID_ARGUMENT: a policy that does not exist, an empty cluster, a job
  // type or accelerator type without a throughput (names it), figures out of
  // range, interactive jobs when `ideal`. `trace` and `throughputs` are
  // borrowed.
  static absl::StatusOr<std::unique_ptr<TraceSimulation>> Create(
      SimulationOptions options, const Trace& trace,
      const ThroughputTable& throughputs);
  virtual ~TraceSimulation() = default;

  // Continues for about `events` events; true when it is over.
  virtual bool Run(uint64_t events) = 0;
  virtual Time now() const = 0;
  virtual uint64_t jobs_ended() const = 0;
  virtual uint64_t jobs_in_window() const = 0;
  // The result so far; final once Run has returned true.
  virtual SimulationResult Result() const = 0;
  // Between two calls of Run: all that has happened, as bytes. A simulation
  // made by Create from the same options, trace and throughputs that resumes
  // them continues to the same result. UNIMPLEMENTED when `ideal`.
  // DATA_LOSS: damaged, or of another simulation.
  virtual absl::StatusOr<std::string> Checkpoint() const = 0;
  virtual absl::Status Resume(std::string_view checkpoint) = 0;
};

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_TRACE_SIMULATION_H_
