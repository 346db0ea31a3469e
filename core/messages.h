// The messages that processes send each other: plain structs without behaviour.
// core/codec.h encodes them, and docs/protocol.md says which process sends
// which message when.
//
// Fields are only ever appended. Messages of workers and agents carry the
// values by which a late one is recognised: the worker's (job, rank,
// incarnation), where it matters the job's epoch, and the highest journal
// position that the sender knows. Only WorkerLaunched and LogReply carry no
// position, because the engine does not act on them.
#ifndef GAVEL_CORE_MESSAGES_H_
#define GAVEL_CORE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/bids.h"
#include "core/closed_variant.h"
#include "core/generation.h"
#include "core/ids.h"

namespace gavel {

// A change to a job after its submission. Messages and the journal carry it.

// The fields have the meaning of the same keys in a job file. A field that is
// not set leaves the job's value as it is.
struct JobUpdate {
  std::optional<double> weight;
  std::optional<double> deadline_s;   // after submission; 0: none
  std::optional<std::string> entity;  // empty: none
  // The accelerator types that the job may run on; empty: all.
  std::optional<std::vector<std::string>> types;
  std::optional<int> scale_factor_min;  // 0: scale_factor
  std::optional<int> scale_factor_max;
  std::optional<double> time_limit_s;  // 0: none
  // The jobs that it waits for; empty: none.
  std::optional<std::vector<std::string>> after_success, after_any;

  friend bool operator==(const JobUpdate&, const JobUpdate&) = default;
};

// An accelerator as messages (core/messages.h) describe it. Plain structs.

// One accelerator as an agent declares it.
struct AcceleratorInfo {
  std::string type;  // open name, e.g. "v100", "cpu_fast"
  std::string uuid;  // names its lock files; unique on the server
  // "cpu" or "cuda:N"; in a grant, the name that the worker has to use.
  std::string device = "cpu";
  int threads = 1;              // intra-op threads of a worker
  double slow_down_factor = 1;  // >= 1; demonstration only, labelled as such
  uint64_t memory_bytes = 0;    // 0: not known, no budget
  // The part of memory_bytes that the context of each process there takes.
  uint64_t context_bytes = 0;
  // Only one process at a time may have a context there (NVIDIA's compute mode
  // EXCLUSIVE_PROCESS), so a process that gives the accelerator back has to
  // end.
  bool exclusive = false;
  // A worker process on it sees no other accelerator. To use another one, the
  // worker needs a new process.
  bool alone_visible = false;
  // Accelerators of one server with the same group are joined more closely than
  // the others (Locality::kGroup). A name; empty: none.
  std::string group = "";
  friend bool operator==(const AcceleratorInfo&,
                         const AcceleratorInfo&) = default;
};

// The present state of a device, as its driver reports it.
struct AcceleratorHealth {
  std::string uuid;
  int utilisation_percent = -1;  // -1: not reported; also below
  int temperature_c = -1;
  uint64_t uncorrectable_errors = 0;  // in its memory, since the driver started
  uint64_t last_xid = 0;  // NVIDIA's number of its last fault; 0: none seen
  // Why no process can use the device, with the remedy: "it is not there any
  // more, ...". Empty: it can be used.
  std::string failure;
  friend bool operator==(const AcceleratorHealth&,
                         const AcceleratorHealth&) = default;
};

// ---- shared parts

// A worker's progress. All counts are since the job began, unless noted.
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
  // Accelerator memory that the process has allocated from the driver, without
  // its context. While the process holds a lease, this is the most so far, else
  // the present value.
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;  // host memory of its parked tensors and arena
  // Boundaries that this process has passed outside of steps, for instance in
  // evaluation. A process that makes no steps and passes no boundaries is
  // stuck.
  uint64_t boundaries = 0;
  friend bool operator==(const Progress&, const Progress&) = default;
};

// The exit code of a worker that ended early with its state saved
// (EX_TEMPFAIL).
inline constexpr int kExitEvicted = 75;

// How far a pause goes. kPark: the tensors move to host memory, and the process
// stays. kEvict: the process writes a checkpoint and ends with code 75. kStop:
// the job was cancelled, and the process ends without a checkpoint. kKeep: the
// tensors stay on the accelerator, and only its lock is released. The values
// are those of the wire, in the order in which they were added.
enum class PauseTier : uint8_t { kPark = 0, kEvict = 1, kStop = 2, kKeep = 3 };

// Whether `a` goes further than `b`: kKeep < kPark < kEvict < kStop.
constexpr bool StrongerThan(PauseTier a, PauseTier b) {
  const auto strength = [](PauseTier tier) {
    return tier == PauseTier::kKeep ? 0 : static_cast<int>(tier) + 1;
  };
  return strength(a) > strength(b);
}

// Why a lease was given back. kPaused: the worker ran, and stopped at a
// boundary. kResumeFailed: it never ran, because another process held the lock
// or the gang did not assemble. kOutOfMemory: the job does not fit on the
// accelerator. kDeviceFailed: it never ran, because the device is missing or
// does not work. kNoRoom: it never ran, because other processes use the memory
// that its state would need.
enum class ReleaseCause : uint8_t {
  kPaused = 0,
  kResumeFailed = 1,
  kOutOfMemory = 2,
  kDeviceFailed = 3,
  kNoRoom = 4
};

// A server that has the latest checkpoint of a job, which another server needs.
struct CheckpointSource {
  std::string server;      // empty: nothing is to be fetched
  std::string endpoint;    // for checkpoint streams; empty: unreachable
  std::string public_key;  // of that endpoint
  Generation at_least;     // is known to be durable; (0, 0): none
  friend bool operator==(const CheckpointSource&,
                         const CheckpointSource&) = default;
};

// ---- worker -> coordinator

// The first message of an incarnation, repeated until it is answered. A worker
// that has yet to load its data and to restore says hello at once with `ready`
// false, which asks for nothing, and says hello again when it is ready.
struct WorkerHello {
  WorkerKey worker;
  JournalPosition highest_seen;
  int64_t pid = 0;
  Progress progress;  // after the restore, if any
  bool ready = true;
};

// Asks for a lease, or for its renewal. A lease counts from when the worker
// sent the request, by the worker's own clock. The nonce connects the answer
// with that time.
struct LeaseRequest {
  WorkerKey worker;
  JournalPosition highest_seen;
  uint64_t epoch = 0;           // highest epoch known to the worker
  uint64_t nonce = 0;           // rises with every request of an incarnation
  bool holding = false;         // holds a running lease of `epoch`
  uint64_t released_epoch = 0;  // the highest that it held and gave up
  // Set by rank 0 of a gang while it holds a lease: the address at which its
  // store for `epoch` listens, "ADDRESS:PORT". Empty: the store is not open
  // yet.
  std::string gang_address;
};

// Reports progress, about once a second while running and once at each pause.
struct StepReport {
  WorkerKey worker;
  uint64_t epoch = 0;
  Progress progress;
  JournalPosition highest_seen = {};
};

// The accelerator is free: the device is synchronised, the tensors have moved
// away, and the locks are released.
struct LeaseReleased {
  WorkerKey worker;
  uint64_t epoch = 0;
  Progress progress;
  ReleaseCause cause = ReleaseCause::kPaused;
  JournalPosition highest_seen = {};
};

// The session has ended with this code: 0 done, 75 evicted, any other failed.
// Sent by Finish(). The process is done when it has also exited with 0. This
// message may be lost, so the agent reports the same code in WorkerExited.
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
  // Its `threads` are those that the worker may use; the two workers of a
  // packed pair divide them. A renewal may change the number.
  AcceleratorInfo accelerator;
  int slots = 2;  // lock slots to take: 2 alone, 1 in a packed pair
  int world_size = 1;
  // For ranks above 0 of a gang: the address at which the store of rank 0 for
  // `epoch` listens.
  std::string gang_address;
  // In a packed pair, the most accelerator memory that the worker may use,
  // without its context; 0: no limit.
  uint64_t memory_limit_bytes = 0;
  // If the job continues, the lease is extended at the latest this long before
  // its end; 0: not known.
  double extension_lead_s = 0;
};

// There is no lease now. Ask again after `retry_after_s` or at a LeaseNotice.
struct LeaseDenied {
  WorkerKey worker;
  JournalPosition position;
  uint64_t epoch = 0;
  uint64_t nonce = 0;
  double retry_after_s = 1;
};

// Ask now: a lease is ready, or the present one may be extended.
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

// Write a checkpoint at the next boundary, and continue training.
struct CheckpointRequest {
  WorkerKey worker;
  JournalPosition position;
};

// The coordinator does not want this process, because its incarnation is too
// old, its job is gone, or its protocol version differs. The process gives up
// its lease, keeps its checkpoints, and ends.
struct WorkerRejected {
  WorkerKey worker;
  JournalPosition position;
  std::string reason;
};

// ---- agent -> coordinator

// The maximum length of WorkerExited::error_line.
inline constexpr size_t kErrorLineCharactersMax = 200;

// One process that an agent watches.
struct RunningWorker {
  WorkerKey worker;
  int64_t pid = 0;
  std::string public_key = "";  // of its connection; empty: unencrypted
  friend bool operator==(const RunningWorker&, const RunningWorker&) = default;
};

// The first message of an agent after its start, and again when the term
// changes. `running` is complete: a process that is not in it does not run on
// this server.
struct AgentHello {
  std::string server;
  uint64_t incarnation = 0;  // of the agent; rises with each start
  JournalPosition highest_seen;
  std::string address;  // at which other machines reach the server
  std::vector<AcceleratorInfo> accelerators;
  std::vector<RunningWorker> running;
  uint64_t host_memory_bytes = 0;  // for parked jobs; 0: no budget
  // The id of the agent's state directory, drawn at random when the directory
  // was created. Incarnations are only comparable within one state directory.
  std::string state_id;
  // True if this server's checkpoints are on this server alone. Agents then
  // stream checkpoints from and to it, by the endpoint and key below. Otherwise
  // all servers see one directory.
  bool own_checkpoints = false;
  std::string stream_endpoint = "";
  std::string stream_public_key = "";
  std::string rack = "";  // that the server is in: a name; empty: not known
};

struct AgentHeartbeat {
  std::string server;
  uint64_t incarnation = 0;
  JournalPosition highest_seen;
  std::vector<AcceleratorHealth> health = {};  // once after each reading
};

// The agent got SIGTERM. Repeated until its workers have ended; `gone` is then
// true, and the agent ends.
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
  std::string public_key = "";  // as in RunningWorker
};

// The process is gone, and holds the accelerator no more. Repeated until
// ExitAcknowledged. `launch_error` is set if the process never started.
struct WorkerExited {
  std::string server;
  WorkerKey worker;
  int exit_code = 0;         // as given to exit(); 0 when killed by a signal
  int signal = 0;            // the signal that killed it; 0: none
  std::string launch_error;  // e.g. "./train: no such file"
  // The process ended with its agent, or was stopped before it started. That
  // does not count as a failure of the job.
  bool no_failure = false;
  // The agent had signalled the process (StopWorker) before it ended.
  bool stopped = false;
  JournalPosition highest_seen = {};
  // Set together with `launch_error` if the launch did not reach exec within
  // the agent's limit, for instance because the working directory is on a file
  // system that hangs. No code of the program has run or will run, so the
  // accelerator is free.
  bool launch_hung = false;
  // After a failure, the last line of the worker's output that names an error,
  // in printable UTF-8 of at most kErrorLineCharactersMax characters. Empty if
  // there is none.
  std::string error_line = "";
  // The exit_code of its WorkerFinished, which the session left for the agent
  // in GAVEL_END_FILE. Negative: the session had begun but did not reach its
  // end. nullopt: the program has no session.
  std::optional<int> finished_code = {};
};

// ---- coordinator -> agent

// Answers AgentHello, and names the agent that said hello. An agent that
// receives a welcome which names another agent, or none, says hello (again).
struct AgentWelcome {
  std::string server;
  JournalPosition position;
  double heartbeat_interval_s = 1;
  uint64_t incarnation = 0;  // of the agent; 0: names none
  std::string state_id = "";
  // The id of the journal, hexadecimal. Job ids are valid in this cluster only.
  // Empty if the coordinator is older than this field.
  std::string cluster_id = "";
};

// Rejects the agent that it names. Other agents ignore the message.
struct AgentRejected {
  std::string server;
  JournalPosition position;
  std::string reason;
  uint64_t incarnation = 0;
  std::string state_id = "";  // each has its own incarnations
};

// Start one process, by exec of argv and never by a shell. Idempotent by
// `worker`.
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
  AcceleratorInfo accelerator;  // probably the first that it is granted
  std::string unix_user;        // runs the process; empty: the agent's user
  // The server with the job's last checkpoint, which must be fetched first.
  CheckpointSource source = {};
  std::string env_file = "";  // absolute; empty: none
  // It has a terminal, which a client may attach to.
  bool terminal = false;
};

// Send SIGTERM now and SIGKILL after `grace_s`; 0: SIGKILL at once.
struct StopWorker {
  std::string server;
  WorkerKey worker;
  JournalPosition position;
  double grace_s = 0;
};

// The row of the exit is on disk. The message needs no position: the exit that
// it answers contained the agent's.
struct ExitAcknowledged {
  std::string server;
  WorkerKey worker;
};

// ---- client <-> coordinator; `request` connects a reply with its request

struct SubmitRequest {
  uint64_t request = 0;
  std::string source;     // file name, for error messages
  std::string toml;       // one job spec
  std::string directory;  // base of relative paths in the spec
};

struct SubmitReply {
  uint64_t request = 0;
  JobId job;          // of one job, or of the array; invalid: refused
  std::string error;  // empty: accepted and durable
};

// kHold: the job leaves the queue until kRelease. kRequeue: the job's processes
// end with a checkpoint, and start again when it is their turn.
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
  kPolicy = 10,
  kNotify = 11  // a test: the answer comes when it is delivered
};

struct CommandRequest {
  uint64_t request = 0;
  CommandKind kind = CommandKind::kCancel;
  JobId job;
  // A server, an accelerator's uuid, "SERVER/UUID", or a policy.
  std::string target = "";
  double within_s = 0;    // kDrain: jobs have to leave within this time
  JobUpdate update = {};  // kUpdate
  // Where `job` is an array: the indices of its elements, as "7-20"; empty:
  // all of them.
  std::string elements = "";
  // kPolicy: switches introspection on or off; `target` may be empty then.
  std::optional<bool> introspection = {};
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
  kHistory = 4,    // what `filter` asks for
  kForecast = 5,   // the data of active jobs for predictions
  kDashboard = 6,  // one object: a token for actions over HTTP, and its address
  kAdmission = 7   // an empty object, or the error that `submission` would get
};

// Answers are pages of JSON: `json` holds an array of rows (kQueue, kNodes,
// kHistory, kForecast) or one object (the other kinds). Ask again with
// `next_cursor` until it is 0.
struct QueryRequest {
  uint64_t request = 0;
  QueryKind kind = QueryKind::kQueue;
  JobId job;
  uint64_t cursor = 0;
  std::string filter = "";        // for kHistory, JSON
  SubmitRequest submission = {};  // for kAdmission; is not submitted
};

struct QueryReply {
  uint64_t request = 0;
  std::string json;
  uint64_t next_cursor = 0;
  std::string error;
};

// Asks for the output of a worker from byte `offset` on. The coordinator passes
// the request on to the agent, and the answer back to the client.
struct LogRequest {
  uint64_t request = 0;
  WorkerId worker;
  uint64_t offset = 0;
  std::string server = "";  // of an earlier run; empty: of the last
  // With offset 0, leaves out output from before this time, except for at most
  // the last minute of it. Seconds since 1970; 0: leaves nothing out.
  double since_s = 0;
  // With offset 0, leaves out all but so many bytes at the end. 0: nothing.
  uint64_t tail_bytes = 0;
};

struct LogReply {
  uint64_t request = 0;
  std::string data;
  uint64_t next_offset = 0;
  bool ended = false;  // the job is over and all output was read
  std::string error;
  // The process that wrote `data`, all of it, and about when it wrote the
  // beginning, in seconds since 1970. 0: not known.
  uint64_t incarnation = 0;
  double written_s = 0;
  std::string server = "";  // that has the log, by the coordinator
};

// ---- checkpoints that move between servers

// coordinator -> agent: a job will probably continue on this server, so its
// last checkpoint may be fetched already.
struct PrefetchCheckpoint {
  std::string server;
  JournalPosition position;
  JobId job;
  std::string checkpoint_directory;
  CheckpointSource source;
  std::string unix_user = "";  // as in LaunchWorker
};

// coordinator -> agent: the agent with this key may read the job's checkpoints.
struct ServeCheckpoint {
  std::string server;
  JournalPosition position;
  JobId job;
  std::string checkpoint_directory;
  std::string reader_public_key;
  std::string unix_user = "";  // as in LaunchWorker
};

// agent -> coordinator: how much of the checkpoint for which `worker` waits has
// been fetched.
struct FetchProgress {
  std::string server;
  WorkerKey worker;
  JournalPosition highest_seen;
  std::string source;        // the server
  uint64_t bytes_done = 0;   // fetched so far
  uint64_t bytes_total = 0;  // 0: not known yet
  std::string waits_for;     // why no bytes arrive at present
};

// ---- worker -> coordinator

// The bytes of data, state and checkpoints that the process has read and
// written so far. Sent about every five seconds, if they rose, while the
// process starts (between its two hellos), while it writes the checkpoint with
// which it leaves, and while its loop waits for a checkpoint. Each rise extends
// the time limit on starting or leaving.
struct BytesMoved {
  WorkerKey worker;
  JournalPosition highest_seen;
  uint64_t bytes = 0;
};

// ---- app schedulers: processes that bid for an app in auctions (docs/apps.md)

// The process that bids for the app of that owner and name.
struct BidderKey {
  std::string owner;  // of the app's jobs; empty: the sender
  std::string app;
  // Drawn when the process starts, and higher than that of earlier ones.
  uint64_t incarnation = 0;
  friend auto operator<=>(const BidderKey&, const BidderKey&) = default;
};

// app scheduler -> coordinator: repeated every few seconds, and answered by a
// BidderNotice each time. The latest process of an app bids for it.
struct BidderHello {
  BidderKey bidder;
};

// A job of the app, as an offer describes it.
struct OfferedJob {
  JobId job;
  int scale_factor = 1;
  double steps_done = 0;
  double steps_left = 0;            // 0: not known
  int running_on = -1;              // a type; -1: it waits
  std::vector<double> steps_per_s;  // by type; 0: it can't run there
  friend bool operator==(const OfferedJob&, const OfferedJob&) = default;
};

// coordinator -> app scheduler: before an auction. Answered by a BidReply.
struct BidRequest {
  BidderKey bidder;
  uint64_t auction = 0;  // rises
  std::vector<std::string> types;
  std::vector<int> accelerators;  // by type
  double round_s = 0;
  double age_s = 0;              // of the app
  double ideal_s = 0;            // its T_id, by the coordinator's throughputs
  std::vector<OfferedJob> jobs;  // that have not ended; the first ones
};

struct BidReply {
  BidderKey bidder;
  uint64_t auction = 0;
  OwnBid bid;
};

// coordinator -> app scheduler: what the app gets in the next round. Answered
// by a DivideReply.
struct DivideRequest {
  BidderKey bidder;
  uint64_t auction = 0;
  std::vector<int> won;  // accelerators by type
};

// The jobs that get accelerators, each on a type; none: the coordinator
// decides.
struct DivideReply {
  BidderKey bidder;
  uint64_t auction = 0;
  std::vector<JobPlace> places;
};

// kAccepted: answers a hello. kDefault: the coordinator bids or divides for the
// app in that auction, because of `text`. kNoApp: no job of the app is there.
// kRefused: this process may not bid for the app, because of `text`.
enum class BidderNoticeKind : uint8_t {
  kAccepted = 0,
  kDefault = 1,
  kNoApp = 2,
  kRefused = 3
};

struct BidderNotice {
  BidderKey bidder;
  BidderNoticeKind kind = BidderNoticeKind::kAccepted;
  uint64_t auction = 0;
  std::string text;
};

// ---- terminals of interactive jobs

// A message carries at most so many bytes of a terminal.
inline constexpr size_t kTerminalBytesMax = 16 * 1024;

// client -> coordinator -> agent: input for the terminal of a job's first
// worker, and a wish for its output. It is the client's credit: the agent
// answers once there is output beyond `offset`, or after a second, with at most
// kTerminalBytesMax bytes. A later request has an earlier one answered at once.
// Bytes are numbered from the start of the process, so that a request may be
// repeated.
struct TerminalRequest {
  uint64_t request = 0;
  WorkerKey worker;  // its incarnation 0: the present one
  // Drawn by the client when it attaches. The first request has `attach`, and
  // detaches any other client.
  uint64_t client = 0;
  bool attach = false;
  uint64_t offset = 0;        // output that the client has
  uint64_t input_offset = 0;  // where `input` begins
  std::string input = "";
  int rows = 0, columns = 0;  // of the client's window; 0: not known
};

struct TerminalReply {
  uint64_t request = 0;
  WorkerKey worker;  // the process that has the terminal
  uint64_t offset = 0;
  std::string output = "";   // from `offset` on
  uint64_t input_taken = 0;  // bytes of input that the agent has had
  bool ended = false;        // the process is gone, and all output was read
  std::string error = "";
  bool refused = false;  // for ever; without it an error may pass
};

// agent -> coordinator: the terminal had input or output since the last such
// message. Sent about every five seconds at most.
struct TerminalActive {
  std::string server;
  WorkerKey worker;
  JournalPosition highest_seen;
};

// coordinator -> agent: a line for the client that is attached to the
// terminal. The process does not see it.
struct TerminalNotice {
  std::string server;
  WorkerKey worker;
  JournalPosition position;
  std::string text;
};

// ---- optimisers: processes that submit the jobs of an app (docs/apps.md)

// client -> coordinator: the goal of an app of the sender's, which has a job.
// It replaces the last one, and is answered by a CommandReply.
struct AppGoalRequest {
  uint64_t request = 0;
  AppGoal goal;
};

// The position of a message in this list is its type on the wire. New messages
// are added at the end, and none is removed.
using MessageVariant = std::variant<
    WorkerHello, LeaseRequest, StepReport, LeaseReleased, WorkerFinished,
    LeaseGrant, LeaseDenied, LeaseNotice, PauseRequest, WorkerRejected,
    AgentHello, AgentHeartbeat, WorkerLaunched, WorkerExited, AgentWelcome,
    AgentRejected, LaunchWorker, StopWorker, ExitAcknowledged, SubmitRequest,
    SubmitReply, CommandRequest, CommandReply, QueryRequest, QueryReply,
    LogRequest, LogReply, PrefetchCheckpoint, ServeCheckpoint, FetchProgress,
    BytesMoved, AgentLeaving, CheckpointRequest, BidderHello, BidRequest,
    BidReply, DivideRequest, DivideReply, BidderNotice, TerminalRequest,
    TerminalReply, TerminalActive, TerminalNotice, AppGoalRequest>;
class Message : public ClosedVariant<MessageVariant> {
 public:
  using ClosedVariant::ClosedVariant;
};

// The names of commands. Subcommands of `gavel`, the audit log and the texts of
// events use the same ones.

// In the order of CommandKind.
inline constexpr std::string_view kCommandNames[] = {
    "cancel", "release", "shutdown", "hold",   "requeue", "checkpoint",
    "update", "drain",   "resume",   "forget", "policy",  "notify"};

constexpr std::string_view CommandName(CommandKind kind) {
  return kCommandNames[static_cast<size_t>(kind)];
}

}  // namespace gavel

#endif  // GAVEL_CORE_MESSAGES_H_
