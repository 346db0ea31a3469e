// The messages of the wire: plain structs, no behaviour. core/codec.h encodes
// them, docs/protocol.md says who sends which when.
//
// Fields are only ever appended. What workers and agents send carries what
// fences it: the worker's (job, rank, incarnation), the job's epoch, and the
// highest journal position that the sender knows. WorkerLaunched alone has no
// position, for the engine does not act on it.
#ifndef GAVEL_CORE_MESSAGES_H_
#define GAVEL_CORE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/accelerator_info.h"
#include "core/closed_variant.h"
#include "core/generation.h"
#include "core/ids.h"
#include "core/job_update.h"

namespace gavel {

// ---- shared parts

// What a worker tells of its progress. All counts are since the job began.
struct Progress {
  uint64_t steps_done = 0;
  Generation last_generation;         // (0, 0): none yet
  double throughput_steps_per_s = 0;  // over the last window; 0: not known
  double window_s = 0;                // length of that window, paused excluded
  uint64_t pauses = 0;                // of this incarnation
  uint64_t moves = 0;                 // resumed on another accelerator
  double pausing_s = 0;  // time lost to saving, releasing and restoring
  std::vector<std::pair<std::string, double>> scalars;  // e.g. loss, last value
  // Memory, for the coordinator's budgets; 0: not known.
  uint64_t state_bytes = 0;  // tensors of the job's state, wherever they are
  // Accelerator memory that it has from the driver, beside its context: at
  // present, and while it holds a lease the most so far.
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;  // host memory of its parked tensors and arena
  // Passed by this process outside of steps, in evaluation for instance: who
  // makes no steps and passes none is stuck.
  uint64_t boundaries = 0;
  friend bool operator==(const Progress&, const Progress&) = default;
};

// A worker's exit code: it ended early, with its state saved (EX_TEMPFAIL).
inline constexpr int kExitEvicted = 75;

// How far a pause goes. kPark: tensors in host memory, and the process stays.
// kEvict: checkpoint, then the process ends with code 75. kStop: the job was
// cancelled; the process ends, no checkpoint is needed. kKeep: tensors stay on
// the accelerator, only its lock is given up. The values are the wire's, in the
// order of their invention.
enum class PauseTier : uint8_t { kPark = 0, kEvict = 1, kStop = 2, kKeep = 3 };

// Whether `a` goes further than `b`: kKeep < kPark < kEvict < kStop.
constexpr bool StrongerThan(PauseTier a, PauseTier b) {
  const auto strength = [](PauseTier tier) {
    return tier == PauseTier::kKeep ? 0 : static_cast<int>(tier) + 1;
  };
  return strength(a) > strength(b);
}

// Why a lease was given back. kPaused: it ran, and stopped at a boundary.
// kResumeFailed: it never ran (lock held by another, the gang did
// not come together). kOutOfMemory: the job does not fit on the accelerator.
// kDeviceFailed: it never ran, for the device is not there or does not work.
// kNoRoom: it never ran: its state would fit, but for other processes' memory.
enum class ReleaseCause : uint8_t {
  kPaused = 0,
  kResumeFailed = 1,
  kOutOfMemory = 2,
  kDeviceFailed = 3,
  kNoRoom = 4
};

// A server that has the latest checkpoint of a job, which another one needs.
struct CheckpointSource {
  std::string server;      // empty: nothing is to be fetched
  std::string endpoint;    // of its streams; empty: not reachable now
  std::string public_key;  // of them
  Generation at_least;     // was acknowledged; (0, 0): none is known
  friend bool operator==(const CheckpointSource&,
                         const CheckpointSource&) = default;
};

// ---- worker -> coordinator

// First message of an incarnation, repeated until answered. A worker that has
// yet to load its data and to restore says so at once (`ready` false: it
// speaks, and asks for nothing), and says hello again when it is ready.
struct WorkerHello {
  WorkerKey worker;
  JournalPosition highest_seen;
  int64_t pid = 0;
  Progress progress;  // after the restore, if any
  bool ready = true;
};

// Asks for a lease, or to renew it. The lease counts from when the worker sent
// this, on the worker's own clock; the nonce pairs the answer with that time.
struct LeaseRequest {
  WorkerKey worker;
  JournalPosition highest_seen;
  uint64_t epoch = 0;           // highest epoch known to the worker
  uint64_t nonce = 0;           // rises with every request of an incarnation
  bool holding = false;         // holds a running lease of `epoch`
  uint64_t released_epoch = 0;  // highest epoch that it ran under and gave up
  // Rank 0 of a gang, while holding: where its store for `epoch` listens,
  // "ADDRESS:PORT". Empty: not open yet.
  std::string gang_address;
};

// Progress, about once a second while running and once at each pause.
struct StepReport {
  WorkerKey worker;
  uint64_t epoch = 0;
  Progress progress;
  JournalPosition highest_seen = {};
};

// The accelerator is free: synchronised, tensors moved away, locks released.
struct LeaseReleased {
  WorkerKey worker;
  uint64_t epoch = 0;
  Progress progress;
  ReleaseCause cause = ReleaseCause::kPaused;
  JournalPosition highest_seen = {};
};

// The session has come to its end, with this code: 0 done, 75 evicted, else it
// has failed. Sent by Finish(). The process is done when it has also ended with
// 0; since this message may be lost, the agent tells the same in WorkerExited.
struct WorkerFinished {
  WorkerKey worker;
  uint64_t epoch = 0;
  int exit_code = 0;
  Progress progress;
  std::string detail;
  JournalPosition highest_seen = {};
};

// ---- coordinator -> worker

// The right to use `accelerator` until `duration_s` after the request with
// this nonce was sent.
struct LeaseGrant {
  WorkerKey worker;
  JournalPosition position;
  uint64_t epoch = 0;
  uint64_t nonce = 0;
  double duration_s = 0;
  // Its threads are those that the worker has of them: of a pair each has a
  // part. A renewal may tell another number.
  AcceleratorInfo accelerator;
  int slots = 2;  // lock slots to take: 2 alone, 1 in a packed pair
  int world_size = 1;
  // Ranks above 0 of a gang: where rank 0's store for `epoch` listens.
  std::string gang_address;
  // In a packed pair, the most of the accelerator's memory that the worker may
  // take, without its context; 0: no limit.
  uint64_t memory_limit_bytes = 0;
  // If its job goes on, the lease is extended so long before its end, or
  // earlier; 0: not told.
  double extension_lead_s = 0;
};

// No lease now; ask again after `retry_after_s`, or when a LeaseNotice comes.
struct LeaseDenied {
  WorkerKey worker;
  JournalPosition position;
  uint64_t epoch = 0;
  uint64_t nonce = 0;
  double retry_after_s = 1;
};

// "Ask now": a lease is ready, or the present one may be extended.
struct LeaseNotice {
  WorkerKey worker;
  JournalPosition position;
  uint64_t epoch = 0;
};

// Give up the lease of `epoch` at the next boundary.
struct PauseRequest {
  WorkerKey worker;
  JournalPosition position;
  uint64_t epoch = 0;
  PauseTier tier = PauseTier::kPark;
};

// Write a checkpoint at the next boundary, and go on.
struct CheckpointRequest {
  WorkerKey worker;
  JournalPosition position;
};

// This process is not wanted (older incarnation, job gone, other version); it
// gives up its lease, keeps its checkpoints, and ends.
struct WorkerRejected {
  WorkerKey worker;
  JournalPosition position;
  std::string reason;
};

// ---- agent -> coordinator

// Of WorkerExited::error_line.
inline constexpr size_t kErrorLineCharactersMax = 200;

// One process that an agent watches.
struct RunningWorker {
  WorkerKey worker;
  int64_t pid = 0;
  std::string public_key = "";  // that it connects with; empty: not encrypted
  friend bool operator==(const RunningWorker&, const RunningWorker&) = default;
};

// First message of an agent's life, and again when the term changes. `running`
// is complete: what is not in it does not run on this server.
struct AgentHello {
  std::string server;
  uint64_t incarnation = 0;  // of the agent; rises with each of its starts
  JournalPosition highest_seen;
  std::string address;  // where other machines reach this server
  std::vector<AcceleratorInfo> accelerators;
  std::vector<RunningWorker> running;
  uint64_t host_memory_bytes = 0;  // for parked jobs; 0: no budget
  // Of the agent's state directory, drawn at random when that was made: only
  // within one do incarnations count up.
  std::string state_id;
  // Checkpoints lie on this server alone: they are streamed from and to it, by
  // the endpoint and key of its streams. Else all servers see one directory.
  bool own_checkpoints = false;
  std::string stream_endpoint = "";
  std::string stream_public_key = "";
};

struct AgentHeartbeat {
  std::string server;
  uint64_t incarnation = 0;
  JournalPosition highest_seen;
  std::vector<AcceleratorHealth> health = {};  // once after each reading
};

// It was told to end (SIGTERM); repeated until its workers have left. `gone`:
// they have, and it ends now.
struct AgentLeaving {
  std::string server;
  uint64_t incarnation = 0;
  JournalPosition highest_seen;
  bool gone = false;
};

struct WorkerLaunched {
  std::string server;
  WorkerKey worker;
  int64_t pid = 0;
  std::string public_key = "";  // as of RunningWorker
};

// The process is gone, and with it its hold on the accelerator. Repeated until
// ExitAcknowledged. `launch_error` is set when it never started.
struct WorkerExited {
  std::string server;
  WorkerKey worker;
  int exit_code = 0;         // as given to exit(); 0 when killed by a signal
  int signal = 0;            // the signal that killed it; 0: none
  std::string launch_error;  // e.g. "./train: no such file"
  // It ended with its agent, or was stopped before it started: that does not
  // count as a failure of the job.
  bool no_failure = false;
  // The agent had signalled it (StopWorker) before it ended.
  bool stopped = false;
  JournalPosition highest_seen = {};
  // With `launch_error`: the launch did not come to exec within the agent's
  // limit, as with a working directory on a file system that hangs. Nothing of
  // the program ran or will run, so the accelerator is free.
  bool launch_hung = false;
  // Of a failure: the last line of its output that names an error. Printable
  // UTF-8, at most kErrorLineCharactersMax characters; empty: none.
  std::string error_line = "";
  // The exit_code of its WorkerFinished, which its session left for the agent
  // in GAVEL_END_FILE. Below 0: the session had begun, and did not come to its
  // end. nullopt: the program has no session.
  std::optional<int> finished_code = {};
};

// ---- coordinator -> agent

// Answers AgentHello, and names the agent whose hello it was; an agent that is
// not named says hello (again). So does every agent where none is named.
struct AgentWelcome {
  std::string server;
  JournalPosition position;
  double heartbeat_interval_s = 1;
  uint64_t incarnation = 0;  // of the agent; 0: a hello is wanted
  std::string state_id = "";
  // Of the journal, hexadecimal: job ids are of this cluster only. Empty: the
  // coordinator is of before it was told.
  std::string cluster_id = "";
};

// Names the agent that is meant; others go on.
struct AgentRejected {
  std::string server;
  JournalPosition position;
  std::string reason;
  uint64_t incarnation = 0;
  std::string state_id = "";  // incarnations are counted in each anew
};

// Start one process: exec of argv, never a shell. Idempotent by `worker`.
struct LaunchWorker {
  std::string server;
  WorkerKey worker;
  JournalPosition position;
  std::string job_name;
  std::vector<std::string> argv;
  std::string working_directory;  // absolute; empty: the agent's own
  std::string checkpoint_directory;
  std::vector<std::pair<std::string, std::string>> environment;
  int world_size = 1;
  AcceleratorInfo accelerator;  // that it will most likely be granted first
  std::string unix_user;        // that it runs as; empty: as its agent
  // Where its job's last checkpoint is, which is to be fetched first.
  CheckpointSource source = {};
};

// SIGTERM now, SIGKILL after the grace. 0: SIGKILL at once.
struct StopWorker {
  std::string server;
  WorkerKey worker;
  JournalPosition position;
  double grace_s = 0;
};

// Its row is on disk. It needs no position: the exit that it answers showed the
// agent's.
struct ExitAcknowledged {
  std::string server;
  WorkerKey worker;
};

// ---- client <-> coordinator; `request` pairs reply with request

struct SubmitRequest {
  uint64_t request = 0;
  std::string source;     // file name, for error messages
  std::string toml;       // one job spec
  std::string directory;  // that relative paths in it are relative to
};

struct SubmitReply {
  uint64_t request = 0;
  JobId job;          // invalid: refused
  std::string error;  // empty: accepted and durable
};

// kHold: out of the queue until kRelease. kRequeue: its processes end with a
// checkpoint, and start anew in their turn.
enum class CommandKind : uint8_t {
  kCancel = 0,
  kRelease = 1,
  kShutdown = 2,
  kHold = 3,
  kRequeue = 4,
  kCheckpoint = 5,
  kUpdate = 6,
  kDrain = 7,
  kResume = 8,
  kForget = 9,
  kPolicy = 10
};

struct CommandRequest {
  uint64_t request = 0;
  CommandKind kind = CommandKind::kCancel;
  JobId job;
  // A server, an accelerator's uuid, "SERVER/UUID", or a policy.
  std::string target = "";
  double within_s = 0;    // kDrain: so long jobs may stay; they leave sooner
  JobUpdate update = {};  // kUpdate
};

struct CommandReply {
  uint64_t request = 0;
  std::string error;  // empty: done and durable
};

enum class QueryKind : uint8_t {
  kQueue = 0,
  kNodes = 1,
  kWhy = 2,
  kStatus = 3,
  kHistory = 4,  // what `filter` asks for
  kForecast = 5  // of each active job what a prediction needs
};

// Answers are pages of JSON: `json` holds an array of rows (kQueue, kNodes,
// kHistory, kForecast) or one object (kWhy, kStatus). Ask again with
// `next_cursor` until it is 0.
struct QueryRequest {
  uint64_t request = 0;
  QueryKind kind = QueryKind::kQueue;
  JobId job;
  uint64_t cursor = 0;
  std::string filter = "";  // of kHistory, JSON
};

struct QueryReply {
  uint64_t request = 0;
  std::string json;
  uint64_t next_cursor = 0;
  std::string error;
};

// Output of a worker from `offset` bytes on; the coordinator passes it on to
// the agent and the answer back.
struct LogRequest {
  uint64_t request = 0;
  WorkerId worker;
  uint64_t offset = 0;
  std::string server = "";  // where it ran before; empty: where it ran last
};

struct LogReply {
  uint64_t request = 0;
  std::string data;
  uint64_t next_offset = 0;
  bool ended = false;  // nothing more will come: job over and all was read
  std::string error;
};

// ---- checkpoints that move between servers

// coordinator -> agent: a job will probably go on on this server; its last
// checkpoint may be fetched already.
struct PrefetchCheckpoint {
  std::string server;
  JournalPosition position;
  JobId job;
  std::string checkpoint_directory;
  CheckpointSource source;
  std::string unix_user = "";  // as of LaunchWorker
};

// coordinator -> agent: the agent with this key may read the job's checkpoints.
struct ServeCheckpoint {
  std::string server;
  JournalPosition position;
  JobId job;
  std::string checkpoint_directory;
  std::string reader_public_key;
  std::string unix_user = "";  // as of LaunchWorker
};

// agent -> coordinator: how far the checkpoint is that `worker` waits for.
struct FetchProgress {
  std::string server;
  WorkerKey worker;
  JournalPosition highest_seen;
  std::string source;        // the server
  uint64_t bytes_done = 0;   // of what has to come
  uint64_t bytes_total = 0;  // 0: not known yet
  std::string waits_for;     // why nothing comes at present
};

// ---- worker -> coordinator

// Bytes of its data, state and checkpoints that the process has read and
// written so far: sent about every five seconds while it starts (between its
// two hellos) and while it writes the checkpoint with which it leaves. Each
// rise puts off the limit on starting or leaving.
struct BytesMoved {
  WorkerKey worker;
  JournalPosition highest_seen;
  uint64_t bytes = 0;
};

// The place of a message here is its type on the wire: new ones go to the end,
// none is taken away.
using MessageVariant = std::variant<
    WorkerHello, LeaseRequest, StepReport, LeaseReleased, WorkerFinished,
    LeaseGrant, LeaseDenied, LeaseNotice, PauseRequest, WorkerRejected,
    AgentHello, AgentHeartbeat, WorkerLaunched, WorkerExited, AgentWelcome,
    AgentRejected, LaunchWorker, StopWorker, ExitAcknowledged, SubmitRequest,
    SubmitReply, CommandRequest, CommandReply, QueryRequest, QueryReply,
    LogRequest, LogReply, PrefetchCheckpoint, ServeCheckpoint, FetchProgress,
    BytesMoved, AgentLeaving, CheckpointRequest>;
class Message : public ClosedVariant<MessageVariant> {
 public:
  using ClosedVariant::ClosedVariant;
};

}  // namespace gavel

#endif  // GAVEL_CORE_MESSAGES_H_
