// A job and its workers as the engine keeps them, where their processes may
// run, and how long these may take to start and to leave. These are values,
// which everybody may read through the accessors of Engine.
#ifndef GAVEL_COORDINATOR_ENGINE_JOB_H_
#define GAVEL_COORDINATOR_ENGINE_JOB_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/reason.h"
#include "coordinator/mechanism/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/throughput_table.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/text.h"
#include "core/units.h"

namespace gavel {

// How often a job was paused and moved, and what that cost it. The journal
// determines it, over all processes of the job and all restarts of the
// coordinator. Rank 0's leases count for the gang. A value.

class Stays {
 public:
  // Leases that were given back at a boundary before the loop was over.
  uint64_t pauses() const { return pauses_; }
  // Leases that began on another accelerator than the one before.
  uint64_t moves() const { return moves_; }
  // The accelerator of the job's last lease; invalid: it had none.
  AcceleratorId last() const { return last_; }
  // Seconds lost to saving, releasing and restoring, as workers reported when
  // their leases ended.
  double pausing_s() const { return pausing_before_s_ + pausing_now_s_; }

  void Begin(AcceleratorId accelerator) {
    if (last_.valid() && last_ != accelerator) ++moves_;
    last_ = accelerator;
  }
  // `pausing_s`: the total that this incarnation has reported so far.
  void End(bool paused, uint64_t incarnation, double pausing_s) {
    if (paused) ++pauses_;
    if (incarnation != incarnation_) {
      pausing_before_s_ += pausing_now_s_;
      pausing_now_s_ = 0;
      incarnation_ = incarnation;
    }
    pausing_now_s_ = std::max(pausing_now_s_, pausing_s);
  }

  static auto State(auto& s) {
    return std::tie(s.pauses_, s.moves_, s.last_, s.pausing_before_s_,
                    s.pausing_now_s_, s.incarnation_);
  }

 private:
  uint64_t pauses_ = 0;
  uint64_t moves_ = 0;
  AcceleratorId last_;
  double pausing_before_s_ = 0;  // of earlier incarnations
  double pausing_now_s_ = 0;
  uint64_t incarnation_ = 0;
};

// The losses that rank 0 reported, as the journal has them: a bounded number of
// points, spread over the training. The first and the last one are kept. A
// value.
class LossHistory {
 public:
  static constexpr size_t kPointsMax = 32;

  // Adds the value of the scalar "loss" after `steps`. Drops the points from
  // `steps` on: they come from a process that was lost.
  void Add(uint64_t steps, double loss);

  // (steps, loss), ascending by steps; all losses are finite.
  const std::vector<std::pair<uint64_t, double>>& points() const {
    return points_;
  }

  static auto State(auto& s) { return std::tie(s.points_, s.gap_); }

 private:
  std::vector<std::pair<uint64_t, double>> points_;
  // The last point gives way to the next one while it is less than this beyond
  // the one before it.
  uint64_t gap_ = 0;
};

enum class JobState : uint8_t {
  kActive,    // waits, runs or is in between: see its workers
  kFinished,  // all workers ended with 0
  kCancelled,
  kHeld,  // failed too often, or can't be started; `gavel release JOB`
};

// The state of a worker's process.
enum class ProcessState : uint8_t {
  kNone,       // not launched, or gone
  kLaunching,  // launch due or sent, not yet ready
  kJoined,     // said hello, and is ready
  kDone,       // ended with 0
};

// Collects the speeds of reports that are not journaled, until the next report,
// or the end of the lease, that is journaled.
class Windows {
 public:
  void Add(const Progress& told) {
    steps_ += told.throughput_steps_per_s * told.window_s;
    seconds_ += told.window_s;
  }
  // Merges the collected windows into the window of `told`, and clears them.
  void MoveInto(Progress& told) {
    if (!(seconds_ > 0)) return;
    Add(told);
    told.throughput_steps_per_s = steps_ / seconds_;
    told.window_s = seconds_;
    *this = {};
  }

 private:
  double steps_ = 0;
  double seconds_ = 0;
};

struct Worker {
  // The part of a worker's progress that decisions use: as last journaled.
  struct Known {
    uint64_t steps_done = 0;
    Time at = 0;
    uint64_t pauses = 0;
    double pausing_s = 0;
  };
  uint64_t incarnation = 0;
  ProcessState process = ProcessState::kNone;
  std::string server;  // where the process runs
  // The lease that it holds: an epoch, 0 for none, and the accelerator.
  uint64_t held_epoch = 0;
  AcceleratorId held;
  int world_size = 1;       // size of the gang in the epoch of the lease
  JobId held_with;          // job that may hold it too; invalid: none
  Time leased_at = 0;       // when its lease began
  Time accrued_at = 0;      // time received is booked up to here
  bool finished = false;    // its training loop has ended; exits by itself
  bool leaving = false;     // its process was asked to end; that is no failure
  bool restarting = false;  // leaving, so that its gang can start again
  Progress progress;
  Time progress_at = 0;  // when `progress` was reported
  Known known;
  // Memory. pause_tier: how far its last pause goes. parked_at: since when its
  // process is there without a lease (kNever: it holds one, or never did).
  // kept_on: the accelerator where its tensors stayed; invalid: none.
  PauseTier pause_tier = PauseTier::kPark;
  Time parked_at = kNever;
  AcceleratorId kept_on;
  // The accelerator of its last lease, once that has ended. The process still
  // holds progress.device_bytes there.
  AcceleratorId left_on;
  uint64_t need_bytes = 0;  // most accelerator memory seen in use by it
  // Accelerators with a memory budget, and exclusive ones, that this process
  // has run on: its context there lasts until the process ends.
  std::set<AcceleratorId> contexts;
  bool out_of_memory = false;  // its process ends for that: no failure
  // Its server's agent came with another state directory, so it has not swept:
  // the process may run on for as long as its lease does.
  bool unswept = false;
  bool profiles = false;  // its lease is a trial that is not yet counted
  bool spoke = false;     // said hello, ready or not
  // The accelerator that it was launched on, until it speaks. It may already
  // use that accelerator: nothing shows yet that it will ask for a lease first.
  // Invalid: it has spoken, or is gone.
  AcceleratorId launched_on;
  // The exit code with which its session ended, as the worker reported it. The
  // agent reports it again (WorkerExited::finished_code).
  std::optional<int> finished_code;
  // The only accelerator that its process sees; invalid: it sees all of its
  // server.
  AcceleratorId sees_only;
  bool Sees(AcceleratorId accelerator) const {
    return !sees_only.valid() || sees_only == accelerator;
  }
  // Its launch is due or sent, and the end of its process is not reported yet.
  bool is_live() const {
    return process == ProcessState::kLaunching ||
           process == ProcessState::kJoined;
  }
  // Call this only when a durable event is applied.
  void Know(Time now, const Progress& told) {
    known = {told.steps_done, now, told.pauses, told.pausing_s};
  }
  bool is_parked() const {
    return process == ProcessState::kJoined && held_epoch == 0 &&
           parked_at != kNever;
  }

  // A restart forgets these; SetDown (engine.cc) gives most of them new values.
  Time lease_expires = 0;        // end of its lease, drift included
  Time pause_sent_at = kNever;   // its lease or process must go
  Time stop_sent_at = kNever;    // StopWorker to the agent
  Time launch_sent_at = kNever;  // LaunchWorker, while kLaunching
  Time launch_repeated_at = kNever;
  Time asked_at = 0;           // last sign of it while it holds no lease
  uint64_t lease_seq = 0;      // of the LeaseStarted of held_epoch
  Time reported_at = -kNever;  // last StepsReported that was journaled
  uint64_t last_nonce = 0;
  // Last report that its loop has advanced; of an interactive job: the last
  // sign that somebody or something uses it.
  Time stepped_at = 0;
  double hung_s = 0;  // it was stopped after this standstill; 0: not
  Windows unjournaled;
  int lease_starts = 0;  // since lease_starts_since
  Time lease_starts_since = -kNever;
  uint64_t bytes_moved = 0;  // by BytesMoved; bytes_at: when it last rose
  Time bytes_at = -kNever;
  Time warned_at = -kNever;  // of an interactive job: that it is idle
};

// A measurement of a job that was made before it was submitted, or since then
// in a pair: its steps/s alone on a type, or the part of them that it keeps
// beside a job type of the throughput table.
struct ProfiledCell {
  std::string type;
  std::string beside = "";  // empty: alone
  double value = 0;         // >= 0
};

// A job, or all elements of an array, that another job waits for.
struct Parent {
  JobId job;                 // or an array
  bool must_finish = false;  // named by after_success
  bool any_end = false;      // named by after_any
  // It, or the element that `job` is now, has ended, and has not finished as it
  // must.
  bool failed = false;
  // Each element waits for the element of `job` that has the same index. Only
  // the submission of an array has such parents.
  bool by_index = false;
};

struct Job {
  JobId id;
  JobSpec spec;
  // The number of workers that it is planned with: the number that it asked
  // for, except for an elastic job (rounds.h). A change takes
  // effect when the job is assigned anew.
  int scale_factor = 1;
  JobState state = JobState::kActive;
  Reason reason;  // why it ended or is held; else see Engine::Why
  Time submitted_at = 0;
  Time ended_at = 0;
  // The same in seconds since 1970; 0: not known
  // (EngineOptions::wall_offset_s).
  double submitted_wall_s = 0;
  double ended_wall_s = 0;
  // Since when it waits for accelerators: its submission, or the end of a wait
  // for a time, other jobs or a person before it ever ran.
  Time queued_at = 0;
  // AppTable's integral of apps present over time at queued_at.
  double presence = 0;

  uint64_t epoch = 0;  // rises with every new assignment and incarnation
  int world_size = 1;  // size of the gang as it was last assigned
  // By rank. The first world_size workers are the gang. The others are outside
  // it until it grows.
  std::vector<Worker> workers;
  std::vector<AcceleratorId> assigned;  // by rank; empty: it waits
  JobId partner;                        // shares `assigned`; invalid: alone
  std::vector<AcceleratorId> planned;   // for the next round
  JobId planned_partner;
  // The type that its time counts for while it has `assigned`, and the one for
  // `planned`; -1: the type of those accelerators. See RoundAssignment::claims.
  int claimed = -1;
  int planned_claim = -1;
  int failures_in_a_row = 0;    // without a newer generation in between
  std::string last_error;       // error line in the output of the last failure
  int last_end = 0;             // last failure: exit code or -signal; 0: none
  int hung_launches = 0;        // in a row, while no worker spoke
  Generation restored;          // what its workers last started from
  double target_share = 0;      // sum of its row of the allocation, at most 1
  double target_s = 0;          // integral of target_share over time
  double received_s = 0;        // time that it ran
  double limited_from_s = 0;    // received_s from which its time_limit counts
  Time counted_since = kNever;  // both count from its first allocation on
  // The time in which an equal part of the cluster would have done the first
  // `isolated_steps` steps (PolicyJob::isolated_s).
  double isolated_s = 0;
  double isolated_steps = 0;
  // The pace at which isolated_s and isolated_steps have grown since `at`. See
  // engine::IsolatedTime.
  struct Pace {
    double steps_per_s = 0;  // 0: it does not run
    double isolated_per_clock = 0;
    Time at = 0;
    double clock = 0;
    uint64_t epoch = 0;  // of the lease that it runs under
  };
  Pace pace;
  // Its row of EngineOptions::throughputs.
  std::optional<ThroughputTable::Row> table_row;
  // 0: `table_row` is the job's own row. Else it is the row of the reference
  // job that this one is most like, and this one is so many times as fast.
  double row_speed = 0;
  // The measurements that it was submitted with, and those of pairs that it has
  // run in.
  std::vector<ProfiledCell> profile;
  // failed_starts: starts in a row that came to nothing, because some rank of
  // the gang gave its lease back before it ran, or because a checkpoint did not
  // arrive. failure_counted: a failure was counted since the last lease began.
  int failed_starts = 0;
  bool failure_counted = false;
  // A rank of the gang exited with 75 unasked, as the first one to notice a
  // broken gang does. It is counted as a failure when no process is left and no
  // other rank turned out to have broken the gang.
  bool left_unasked = false;
  // The address of rank 0's store, and the epoch that it serves. A restart
  // forgets both.
  std::string gang_address;
  uint64_t gang_epoch = 0;
  int pair_trials = 0;  // number of pairs and types that it was tried on
  // Elastic jobs: when and why the size was last decided, since when a change
  // of the size keeps the job from running, and how long the last one did (-1:
  // the size never changed while it ran).
  Time resized_at = -kNever;
  Reason resize_reason;
  Time resizing_since = kNever;
  double resize_s = -1;
  // Cached by Figures::UsableTypes for `usable_version` of the throughput
  // matrix. usable, by type: it has a throughput > 0 and is not kept out.
  // guessed: the throughput on some type is not known.
  mutable std::vector<bool> usable;
  mutable std::vector<double> steps_per_s;  // by type
  mutable bool guessed = false;
  mutable uint64_t usable_version = 0;
  // The type that an assignment gives it when it runs alone; kept by
  // engine::AllocationTable.
  uint32_t chosen = kNoIndex;
  AcceleratorId chosen_host;  // TypeAssignment::host; kept likewise
  bool live = false;          // in engine::JobTable::live()
  uint8_t touched = 0;        // bits of engine::Changes::Reader
  // The policy gives it nothing though it would fit (rounds.h). Not journaled;
  // a new allocation with a row for the job clears it.
  bool left_out = false;
  Time target_booked_at = 0;  // target_s counts up to here at least

  // The servers without a shared directory that have a checkpoint of it, each
  // with the epoch in which that checkpoint was the latest.
  std::map<std::string, uint64_t> checkpoint_epochs;
  Stays stays;  // pauses and moves so far
  LossHistory losses;
  // An acknowledged checkpoint that `gavel release` gave up, as no server that
  // can be reached has it.
  Generation forgone;
  // The jobs that it waits for before it may start: those that have not ended,
  // and those that failed. An active job has none.
  std::vector<Parent> parents;

  // An element of an array (related_jobs.h): the id of the array, the index
  // within it, and how many of its elements may run at once (0: no limit).
  // Invalid: it is no element.
  JobId array;
  int array_index = 0;
  int array_at_once = 0;
  bool unqueued = false;  // an element that was never in the queue; no workers
  // An element of its array that is forgotten has ended without success. One of
  // the elements that are left has this.
  bool array_failed = false;

  bool active() const { return state == JobState::kActive; }
  // An opaque job keeps its accelerators until its end, and an interactive one
  // gets them outside of rounds (interactive.h): rounds and policies leave such
  // jobs out.
  bool pinned() const {
    return spec.interactive() || (spec.opaque() && !assigned.empty());
  }
  // The type, out of so many, for which the job's time on accelerators of
  // `held_type` counts.
  size_t BookedType(int held_type, size_t types) const {
    const bool claims = claimed >= 0 && static_cast<size_t>(claimed) < types;
    return static_cast<size_t>(claims ? claimed : held_type);
  }
  bool HoldsAny() const;  // some worker holds a lease
  bool AnyLive() const;   // some worker has a process
  bool AllJoined() const;
  bool AllDone() const;
  bool is_gang() const { return world_size > 1; }
  std::span<const Worker> gang() const {
    return {workers.data(), static_cast<size_t>(world_size)};
  }
};

// Adds to `row` the costs of pausing and moving the job, from the job file or
// else as measured by its workers so far. Raises row.owed_part to the part of
// its target that the job has not received.
void AddCosts(const Job& job, RoundUnit& row);

// Adds the loss of rank 0's progress to the history of the job, if its program
// reports one.
void NoteLoss(const Progress& progress, Job& job);

// Some worker leaves so that the whole gang can start again together.
bool IsRestarting(const Job& job);
// The accelerator that the worker, one of `job`, keeps from others: that of its
// lease, else the one that it was launched on, else its assigned one while it
// starts. Its time is counted, so a program that never speaks, or fails at
// every start, uses up its share.
AcceleratorId Occupied(const Job& job, const Worker& worker);

// A worker of a gang that restarts died of a failure of its own. The first rank
// to notice a broken gang ends with 75, and its end may be reported before that
// of the rank that broke the gang, which is a failure all the same.
bool DiedByItself(const Worker& worker, const WorkerExited& exit);

// "weight 1e+300, 1e-12 steps/s on v100": the extreme values of the job that a
// solver may not be able to handle.
std::string ExtremesOf(const JobSpec& spec);

// "grown to 4: 2 k80 idle, +1.7 steps/s"; empty: it has always had its size.
std::string RenderResize(const Job& job);

std::string_view JobStateName(JobState state);

// Where the process of a worker may stay or move, and hold leases, without
// being launched anew. Pure functions.

// On such an accelerator a process without a lease is in the way of others: it
// uses up a memory budget, or the accelerator is exclusive.
inline bool CountsContexts(const AcceleratorInfo& info) {
  return info.memory_bytes > 0 || info.exclusive;
}

// A process of a job with this `spec` that runs on `info` sees no other
// accelerator. A program that a person starts in a terminal takes any that it
// sees.
inline bool SeesOneOnly(const JobSpec& spec, const AcceleratorInfo& info) {
  return info.device != "cpu" &&
         (info.alone_visible || spec.leased_visibility || spec.interactive());
}

// "cuda:0" for "cuda:5": the name that a process uses for the only device that
// it sees.
inline std::string OnlyDevice(std::string_view device) {
  return StrCat(device.substr(0, device.find(':')), ":0");
}

// The holder of a lease may wait for its next one, parked. The context of a
// parked process would keep all others from an exclusive accelerator.
inline bool MayStayParked(const Worker& holder, const Cluster& cluster) {
  return !cluster.accelerator(holder.held).info.exclusive;
}

// The holder may move from the lease that it holds to a lease of `next`.
inline bool MayMove(const Worker& holder, AcceleratorId next,
                    const Cluster& cluster) {
  if (next == holder.held) return true;
  return cluster.accelerator(next).server == holder.server &&
         holder.Sees(next) && MayStayParked(holder, cluster);
}

// The accelerator of the present or last lease of the rank's process, else the
// one on its server that it is assigned for its first lease. Invalid: none.
inline AcceleratorId PlaceOf(const Job& job, int rank, const Cluster& cluster) {
  const auto at = static_cast<size_t>(rank);
  const Worker& worker = job.workers[at];
  if (worker.held_epoch != 0) return worker.held;
  if (worker.left_on.valid() || at >= job.assigned.size())
    return worker.left_on;
  const AcceleratorId place = job.assigned[at];
  return cluster.accelerator(place).server == worker.server ? place
                                                            : AcceleratorId();
}

// How often and how long a worker may try to start, how long it may take to
// leave (sweeper.h), and how often it may begin a lease. The times count from
// the last sign of work: as long as bytes of its data, state or checkpoint
// move, a process is busy, and not stuck. Pure functions.

// Nobody but the worker itself reports its bytes, so they extend a limit by at
// most this: the time for 400 GB at 30 MB/s.
inline constexpr double kBusy_s_max = 4 * 3600;

// A worker may begin this many leases within the window. Each lease is a row of
// the journal and of the history, and a worker may give it back at once.
inline constexpr int kLeaseStartsMax = 100;
inline constexpr double kLeaseStartsWindow_s = 10;

inline double StartTimeout(const Job& job, const EngineOptions& options) {
  return job.spec.start_timeout_s.value_or(options.launch_timeout_s);
}

// A cancelled job has nothing to save, so its own limit does not count.
inline double PauseGrace(const Job& job, const EngineOptions& options) {
  if (job.state == JobState::kCancelled) return options.pause_grace_s;
  return job.spec.pause_grace_s.value_or(options.pause_grace_s);
}

// A job whose process failed starts again at once. After a second failure in a
// row it waits, and after each further one twice as long, up to the limit: a
// job that fails fast would otherwise keep its server busy with starting it.
inline double RetryDelay(const Job& job) {
  constexpr double kFirst_s = 2;
  constexpr double kMax_s = 60;
  if (job.failures_in_a_row < 2) return 0;
  return std::min(kMax_s, std::ldexp(kFirst_s, job.failures_in_a_row - 2));
}

// The progress of a worker that gives its lease back, without the speed: speeds
// are taken from reports only.
inline Progress WithoutSpeed(Progress progress) {
  progress.throughput_steps_per_s = progress.window_s = 0;
  return progress;
}

// The engine gives up after this many starts in a row that came to nothing.
inline int StartsMax(const Job& job) {
  return std::max(1, job.spec.retries_max);
}

// When something that began at `since` is overdue: `limit_s` after the worker's
// bytes last moved.
inline Time OverdueAt(Time since, double limit_s, const Worker& worker) {
  const Time busy_until = std::min(worker.bytes_at, since + kBusy_s_max);
  return std::max(since, busy_until) + limit_s;
}

// Notes moved bytes as a sign of work. False: their number has not risen, or
// the worker has no process.
inline bool NoteBytes(Time now, const BytesMoved& moved, Worker& worker) {
  if (!worker.is_live() || moved.bytes <= worker.bytes_moved) return false;
  worker.bytes_moved = moved.bytes;
  worker.bytes_at = now;
  return true;
}

// Seconds since a starting process was launched, last moved a byte, or last had
// its start timeout begin again. 0: it is not starting.
inline double IdleStart(Time now, const Worker& worker) {
  if (worker.launch_sent_at == kNever) return 0;
  return std::max(0.0, now - std::max(worker.launch_sent_at, worker.bytes_at));
}

// Whether the worker may begin one more lease now. Counts the attempt.
inline bool TakeLeaseStart(Time now, Worker& worker) {
  if (now - worker.lease_starts_since >= kLeaseStartsWindow_s) {
    worker.lease_starts_since = now;
    worker.lease_starts = 0;
  }
  return ++worker.lease_starts <= kLeaseStartsMax;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_JOB_H_
