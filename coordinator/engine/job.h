// A job and its workers as the engine keeps them, where their processes may be,
// and how long these may take to start and to leave. Values, which everybody
// may read through the accessors of Engine.
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
#include "coordinator/jobs/cluster.h"
#include "coordinator/mechanism/round_table.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/throughput_table.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/text.h"
#include "core/units.h"

namespace gavel {

// How often a job was paused and moved, and what that cost it: a property of
// the job by the journal, over all of its processes and restarts of the
// coordinator. Rank 0's leases count for the gang. A value.

class Stays {
 public:
  // Leases that were given back at a boundary, the loop not being over.
  uint64_t pauses() const { return pauses_; }
  // Leases that began on another accelerator than the one before.
  uint64_t moves() const { return moves_; }
  // The accelerator of its last lease; invalid: it had none.
  AcceleratorId last() const { return last_; }
  // Lost to saving, releasing and restoring, as told when leases ended.
  double pausing_s() const { return pausing_before_s_ + pausing_now_s_; }

  void Begin(AcceleratorId accelerator) {
    if (last_.valid() && last_ != accelerator) ++moves_;
    last_ = accelerator;
  }
  // `pausing_s`: what this incarnation has told of in all.
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
  double pausing_before_s_ = 0;  // of incarnations before
  double pausing_now_s_ = 0;
  uint64_t incarnation_ = 0;
};

enum class JobState : uint8_t {
  kActive,    // waiting, running or in between: its workers tell
  kFinished,  // all workers ended with 0
  kCancelled,
  kHeld,  // failed too often, or can't be started; `gavel release JOB`
};

// A worker's process as its agent tells it.
enum class ProcessState : uint8_t {
  kNone,       // not launched, or gone
  kLaunching,  // launch sent, hello not yet seen
  kJoined,     // said hello
  kDone,       // ended with 0
};

// Of reports that are not journaled, until one is: what they measured.
class Windows {
 public:
  void Add(const Progress& told) {
    steps_ += told.throughput_steps_per_s * told.window_s;
    seconds_ += told.window_s;
  }
  // They become one window with that of `told`.
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
  // Of its progress what decisions go by: as journaled last.
  struct Known {
    uint64_t steps_done = 0;
    Time at = 0;
    uint64_t pauses = 0;
    double pausing_s = 0;
  };
  uint64_t incarnation = 0;
  ProcessState process = ProcessState::kNone;
  std::string server;  // of the process
  // The lease that it holds: an epoch, 0 for none, and the accelerator.
  uint64_t held_epoch = 0;
  AcceleratorId held;
  int world_size = 1;       // of the gang that holds leases of that epoch
  JobId held_with;          // who may hold it too; invalid: nobody
  Time leased_at = 0;       // held_epoch began
  Time accrued_at = 0;      // time received is booked up to here
  bool finished = false;    // its training loop has ended; exits by itself
  bool leaving = false;     // its process is told to end; that is no failure
  bool restarting = false;  // leaving, for its gang is to start again
  Progress progress;
  Time progress_at = 0;  // when it was told
  Known known;
  // Memory. How far its last pause goes; since when it holds no lease any more
  // but is still there (kNever: it holds one, or never did), and where its
  // tensors stayed: invalid: in host memory.
  PauseTier pause_tier = PauseTier::kPark;
  Time parked_at = kNever;
  AcceleratorId kept_on;
  // Where it ran last: progress.device_bytes of it are not given back.
  AcceleratorId left_on;
  uint64_t need_bytes = 0;  // most accelerator memory that it was seen to hold
  // Accelerators with a memory budget, and exclusive ones, that this process
  // has run on: its context there goes with the process only.
  std::set<AcceleratorId> contexts;
  bool out_of_memory = false;  // why its process ends: that is no failure
  // Its server's agent came with another state directory and has not swept: the
  // process may be there for as long as its lease runs.
  bool unswept = false;
  bool profiles = false;  // its lease is a trial, and not yet counted
  bool spoke = false;     // said hello, ready or not
  // Where it was launched, until it speaks: it may use that accelerator, for
  // nothing says yet that it asks before. Invalid: it has spoken, or is gone.
  AcceleratorId launched_on;
  // With what its session ended, in its own words; the agent tells it again.
  std::optional<int> finished_code;
  // The one accelerator that its process sees; invalid: all of its server.
  AcceleratorId sees_only;
  bool Sees(AcceleratorId accelerator) const {
    return !sees_only.valid() || sees_only == accelerator;
  }
  // Its agent was told to launch it, and has not told of its end.
  bool is_live() const {
    return process == ProcessState::kLaunching ||
           process == ProcessState::kJoined;
  }
  // Of a durable event.
  void Know(Time now, const Progress& told) {
    known = {told.steps_done, now, told.pauses, told.pausing_s};
  }
  bool is_parked() const {
    return process == ProcessState::kJoined && held_epoch == 0 &&
           parked_at != kNever;
  }

  // Forgotten by a restart, and set again in its grace:
  Time lease_expires = 0;        // of held_epoch, drift included
  Time pause_sent_at = kNever;   // of a lease or process that must go
  Time stop_sent_at = kNever;    // StopWorker to the agent
  Time launch_sent_at = kNever;  // LaunchWorker, while kLaunching
  Time launch_repeated_at = kNever;
  Time asked_at = 0;           // last sign of a worker that holds no lease
  uint64_t lease_seq = 0;      // of the LeaseStarted of held_epoch
  Time reported_at = -kNever;  // last StepsReported that was journaled
  uint64_t last_nonce = 0;
  Time stepped_at = 0;  // it was told last that its loop goes on
  double hung_s = 0;    // stopped, having stood still for so long; 0: not
  Windows unjournaled;
  int lease_starts = 0;  // since lease_starts_since
  Time lease_starts_since = -kNever;
  uint64_t bytes_moved = 0;  // as last told (BytesMoved), and when it had risen
  Time bytes_at = -kNever;
};

// What was measured of a job before it came, or since in pairs: its steps/s
// alone on a type, or the part of them that it keeps beside a job type of the
// throughput table.
struct ProfiledCell {
  std::string type;
  std::string beside = "";  // empty: alone
  double value = 0;         // >= 0
};

struct Job {
  JobId id;
  JobSpec spec;
  // Workers that it is planned with: what it asked for, but of an elastic job
  // (rounds.h). It counts when it is assigned anew.
  int scale_factor = 1;
  JobState state = JobState::kActive;
  Reason reason;  // of kHeld, kCancelled, kFinished; else see Engine::Why
  Time submitted_at = 0;
  Time ended_at = 0;
  // The same, since 1970; 0: not told (EngineOptions::wall_offset_s).
  double submitted_wall_s = 0;
  double ended_wall_s = 0;

  uint64_t epoch = 0;  // rises with every new assignment and incarnation
  int world_size = 1;  // of the gang as it was last assigned
  // By rank. The first world_size are the gang; behind them those that have
  // left it, until it grows again.
  std::vector<Worker> workers;
  std::vector<AcceleratorId> assigned;  // by rank; empty: waits
  JobId partner;                        // shares `assigned`; invalid: alone
  std::vector<AcceleratorId> planned;   // for the next round
  JobId planned_partner;
  // The type that its time counts on while it has `assigned`, and when it has
  // `planned`; -1: theirs. See RoundAssignment::claims.
  int claimed = -1;
  int planned_claim = -1;
  int failures_in_a_row = 0;    // without a newer generation in between
  std::string last_error;       // line of the output of the last failure
  int last_end = 0;             // its exit code or -signal; 0: none failed yet
  int hung_launches = 0;        // in a row: no worker spoke in between
  Generation restored;          // what its workers last started from
  double target_share = 0;      // sum of its row of the allocation, at most 1
  double target_s = 0;          // integral of target_share over time
  double received_s = 0;        // time that it ran
  Time counted_since = kNever;  // both count from its first allocation on
  // How long an equal part of the cluster would have taken for the first
  // `isolated_steps` (PolicyJob::isolated_s).
  double isolated_s = 0;
  double isolated_steps = 0;
  // Both as of `at`, and going on evenly since; see engine::IsolatedTime.
  struct Pace {
    double steps_per_s = 0;  // 0: not going on
    double isolated_per_clock = 0;
    Time at = 0;
    double clock = 0;
    uint64_t epoch = 0;  // of the lease that it goes on under
  };
  Pace pace;
  // Its row of EngineOptions::throughputs.
  std::optional<ThroughputTable::Row> table_row;
  // That row is of the reference that it is most like; the job is so many times
  // as fast. 0: the row is its own.
  double row_speed = 0;
  // As it was submitted with, and of pairs that it has run in.
  std::vector<ProfiledCell> profile;
  // Of a gang: starts in a row that came to nothing, some rank having given its
  // lease back before it ran; and whether the present restart has been counted
  // as somebody's failure.
  int failed_starts = 0;
  bool failure_counted = false;
  // A rank of the gang that restarts had left with 75 unasked: the failure of
  // none, unless some other rank turns out to have broken the gang.
  bool left_unasked = false;
  // Where rank 0's store listens, and for which epoch; forgotten by a restart.
  std::string gang_address;
  uint64_t gang_epoch = 0;
  int pair_trials = 0;  // pairs and types that it was tried in
  // Of an elastic job: the last decision on its size, and how long the last
  // change kept it from running (-1: never changed while it ran).
  Time resized_at = -kNever;
  Reason resize_reason;
  Time resizing_since = kNever;
  double resize_s = -1;
  // By type: it has a throughput there; and nobody knows that of some type. As
  // of that version of the matrix.
  mutable std::vector<bool> usable;
  mutable std::vector<double> steps_per_s;  // by type
  mutable bool guessed = false;
  mutable uint64_t usable_version = 0;
  // The type that an assignment gives it alone: of engine::AllocationTable.
  uint32_t chosen = kNoIndex;
  bool live = false;    // in engine::JobTable::live()
  uint8_t touched = 0;  // bits of engine::Changes::Reader
  // Forgotten by a restart: the policy gives it nothing though it would fit.
  bool left_out = false;
  Time target_booked_at = 0;  // target_s counts up to here at least

  // Servers without a shared directory that have a checkpoint of it, and the
  // epoch in which that was the latest.
  std::map<std::string, uint64_t> checkpoint_epochs;
  Stays stays;  // pauses and moves so far
  // Acknowledged, but given up by `gavel release`, since no server has it that
  // can be reached.
  Generation forgone;

  bool active() const { return state == JobState::kActive; }
  // It keeps what it has until its end; no round is planned with it.
  bool pinned() const { return spec.opaque() && !assigned.empty(); }
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

// What pausing and moving it cost: given by the job file, else what its workers
// measured so far. Added to `row`, with what it is owed.
void AddCosts(const Job& job, RoundUnit& row);

// Some worker leaves so that all of the gang start again together.
bool IsRestarting(const Job& job);
// The accelerator that the worker, one of `job`, keeps from others: that of its
// lease, or where it was launched, or of its place while it starts. So a
// program that never speaks, or fails at every start, uses up its share.
AcceleratorId Occupied(const Job& job, const Worker& worker);

// The first to notice a broken gang ends with 75, and may be heard of before
// the one that broke it: that one's death is a failure all the same.
bool DiedByItself(const Worker& worker, const WorkerExited& exit);

// "weight 1e+300, 1e-12 steps/s on v100": what may be too much for a solver.
std::string ExtremesOf(const JobSpec& spec);

// "grown to 4: 2 k80 idle, +1.7 steps/s"; empty: it has always had its size.
std::string RenderResize(const Job& job);

std::string_view JobStateName(JobState state);

// Where the process of a worker may be, and have leases, without being started
// anew. Pure functions.

// Processes that are there without a lease are in the way of others.
inline bool CountsContexts(const AcceleratorInfo& info) {
  return info.memory_bytes > 0 || info.exclusive;
}

// A process of such a job on `info` sees no other accelerator.
inline bool SeesOneOnly(const JobSpec& spec, const AcceleratorInfo& info) {
  return info.device != "cpu" && (info.alone_visible || spec.leased_visibility);
}

// "cuda:0" for "cuda:5": as a process calls the only device that it sees.
inline std::string OnlyDevice(std::string_view device) {
  return StrCat(device.substr(0, device.find(':')), ":0");
}

// The holder of a lease may wait for its next one, parked. The context of a
// parked process would keep all others from an exclusive accelerator.
inline bool MayStayParked(const Worker& holder, const Cluster& cluster) {
  return !cluster.accelerator(holder.held).info.exclusive;
}

// It may go from the lease that it holds to one of `next`.
inline bool MayMove(const Worker& holder, AcceleratorId next,
                    const Cluster& cluster) {
  if (next == holder.held) return true;
  return cluster.accelerator(next).server == holder.server &&
         holder.Sees(next) && MayStayParked(holder, cluster);
}

// Where a process of the job had its last lease, or is to have its first.
// Invalid: it has nothing.
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

// How often and how long a worker may try to start, how long to leave
// (sweeper.h), and how often to begin a lease. The times count from the
// last sign of work: as long as bytes of its data, state or checkpoint move, a
// process is busy, and not stuck. Pure functions.

// A worker is the only witness of its bytes, so they buy it this much time and
// no more: 400 GB at 30 MB/s.
inline constexpr double kBusy_s_max = 4 * 3600;

// Each lease is a row of the journal and of the history, and a worker may give
// it back at once.
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

// A job whose process failed starts again at once. After each further failure
// in a row it waits twice as long, up to the limit: one that fails fast would
// else keep its server busy with starting it.
inline double RetryDelay(const Job& job) {
  constexpr double kFirst_s = 2;
  constexpr double kMax_s = 60;
  if (job.failures_in_a_row < 2) return 0;
  return std::min(kMax_s, std::ldexp(kFirst_s, job.failures_in_a_row - 2));
}

// Of a worker that gives its lease back: only its reports tell of speeds.
inline Progress WithoutSpeed(Progress progress) {
  progress.throughput_steps_per_s = progress.window_s = 0;
  return progress;
}

// Starts in a row that may come to nothing.
inline int StartsMax(const Job& job) {
  return std::max(1, job.spec.retries_max);
}

// When what began at `since` is overdue: `limit_s` after its bytes last moved.
inline Time OverdueAt(Time since, double limit_s, const Worker& worker) {
  const Time busy_until = std::min(worker.bytes_at, since + kBusy_s_max);
  return std::max(since, busy_until) + limit_s;
}

// False: they have not risen, which is no sign of work.
inline bool NoteBytes(Time now, const BytesMoved& moved, Worker& worker) {
  if (!worker.is_live() || moved.bytes <= worker.bytes_moved) return false;
  worker.bytes_moved = moved.bytes;
  worker.bytes_at = now;
  return true;
}

// Seconds that a process which starts has neither spoken nor moved a byte.
inline double IdleStart(Time now, const Worker& worker) {
  if (worker.launch_sent_at == kNever) return 0;
  return std::max(0.0, now - std::max(worker.launch_sent_at, worker.bytes_at));
}

// Whether one more lease may begin now, which counts then.
inline bool TakeLeaseStart(Time now, Worker& worker) {
  if (now - worker.lease_starts_since >= kLeaseStartsWindow_s) {
    worker.lease_starts_since = now;
    worker.lease_starts = 0;
  }
  return ++worker.lease_starts <= kLeaseStartsMax;
}

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_JOB_H_
