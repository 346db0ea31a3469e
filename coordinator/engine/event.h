// The engine's input and output: events, actions, and the rows of the
// journal.
//
// Durable events are journaled before anything that follows from them leaves
// the coordinator; replaying them in order gives the same engine again. The
// other events only change state that a restart may forget.
#ifndef GAVEL_COORDINATOR_ENGINE_EVENT_H_
#define GAVEL_COORDINATOR_ENGINE_EVENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/reason.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/throughput_table.h"
#include "core/bids.h"
#include "core/closed_variant.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// Durable events by which operators change the cluster, and owners their jobs.
// The server makes them from the commands of clients.

// The policy that decides now. `instead_of` is the coordinator's own policy
// (--policy) if an operator has set another one; empty: its own decides.
struct DecidingPolicy {
  std::string name;
  std::string instead_of;
  // As in EngineOptions; of a policy that was set.
  bool packing = false;
  bool progress = true;
  // Set if an operator has switched introspection, whichever policy decides, to
  // another setting than the coordinator's own.
  std::optional<bool> introspection = {};
};

// A change of a job's number of workers. `gavel why` renders the reason.
struct Resize {
  JobId job;
  int scale_factor = 1;
  Reason reason;
};

// The effects of operators' commands that the engine keeps itself. The cluster
// keeps the others.
struct Operated {
  DecidingPolicy policy;
  // Until when jobs may stay on each drained accelerator.
  std::map<AcceleratorId, Time> drains;
};

namespace event {

// Drained: no job starts there any more, and each job there leaves at the end
// of its round, at `until` at the latest. Not drained: jobs use it again.
struct AcceleratorsDrained {
  // The name that the operator gave: a server, an accelerator's uuid, or
  // "SERVER/UUID". In the journal it is always the server.
  std::string server;
  std::string uuid = "";  // empty: all of the server
  bool drained = true;
  bool by_agent = false;  // it ends: until it comes back
  Time until = 0;
  uint64_t reply_to = 0;  // not journaled
  // Set if the coordinator finds the accelerator unfit: the reason with its
  // remedy, and AcceleratorHealth::uncorrectable_errors, which count as known
  // from then on.
  std::string why = "";
  uint64_t errors = 0;
  // An accelerator that is drained by itself stays so when its server is
  // resumed. Events of earlier versions make no difference.
  bool scoped = false;
};

struct JobUpdated {
  JobId job;
  JobUpdate update;
  uint64_t reply_to = 0;  // not journaled
  // As in JobSubmitted, if the update names other parents.
  std::vector<Parent> parents = {};
};

struct PolicyChanged {
  std::string policy;
  std::string instead_of = "";
  bool packing = false;
  bool progress = true;
  uint64_t reply_to = 0;  // not journaled
  // Switches introspection on or off; nothing: it stays as it is.
  std::optional<bool> introspection = {};
  bool introspection_is_own = false;  // it is the coordinator's own setting
};

// The server is gone and is not expected back.
struct ServerForgotten {
  std::string server;
  uint64_t reply_to = 0;  // not journaled
};

}  // namespace event
}  // namespace gavel

namespace gavel {

// The changes that the introspection tries (introspection.h).
enum class TrialKind : uint8_t {
  kPack,        // `other` runs beside `job`
  kVacated,     // `job` resumes on accelerators that nobody uses
  kLocality,    // a gang moves from several servers to one
  kNeighbour,   // `job` leaves the server of `other`, which slowed it down
  kDefragment,  // `job` makes room for the gang `other`
};
enum class TrialStage : uint8_t { kBegun, kKept, kUndone, kOver };

struct TrialNote {
  TrialKind kind = TrialKind::kPack;
  TrialStage stage = TrialStage::kBegun;
  JobId job;
  JobId other;  // may be invalid
  // When it begins, steps/s of the job before, if they are to be compared; when
  // it ends, the sum of normalised rates of a pair, or the new rate over the
  // old one. 0: not known.
  double value = 0;
  double cost_s = 0;  // accelerator-seconds: expected, then measured
  // When a move begins, where to.
  std::vector<AcceleratorId> places = {};
};

// The bid and the division of an app that bids itself, as far as they counted.
struct OwnAnswer {
  int app = 0;  // index into PolicyProblem::apps
  std::optional<OwnBid> bid;
  std::vector<JobPlace> places;
};

}  // namespace gavel

namespace gavel::event {

// ---- durable

// DecisionSettings as a row of the journal has them.
struct Settings : DecisionSettings {
  bool told = false;  // rows of older versions do not tell
};

// A coordinator took over: the first event of a term. Leases of the term before
// may still run, for the length of a lease at most.
struct CoordinatorStarted {
  uint64_t term = 0;
  // Set by the engine from its options.
  double round_duration_s = 0;
  double lease_duration_s = 0;
  MechanismKind mechanism = MechanismKind::kGavel;
  QueueKind queue = QueueKind::kGlobal;
  double memory_rounds = 0;
  // Set by the server for people and replays: the policy that decides, and the
  // time by the machine's clock in seconds since 1970. Empty and 0: unknown.
  std::string policy = "";
  double wall_s = 0;
  Settings settings = {};  // by the engine, too
  // The journal is an older copy and the rows behind it are given up. Peers
  // that saw rows of earlier terms which are not in it are believed all the
  // same.
  bool after_loss = false;
  // Set by the engine after a loss: new epochs and incarnations begin here,
  // above any that lost rows can have given. 0: unknown, or no loss.
  uint64_t numbers_from = 0;
  // Set by the engine after a loss: the number of job ids that are not given,
  // as lost jobs may have them. 0: as many as earlier versions skipped.
  uint64_t ids_skipped = 0;
};

// The time that a job has received of its share, as Engine::ReceivedOf returns
// it.
struct Received {
  struct OnType {
    std::string type;
    double since_reset_s = 0;  // >= 0
    double deficit_s = 0;      // > 0: it is owed that much
  };
  double total_s = 0;  // >= 0, since its first allocation
  std::vector<OnType> types;
};

// One element of an array, submitted alone. The spec's name is "NAME_INDEX".
struct Element {
  int index = 0;
  int at_once = 0;      // how many of the array may run at once; 0: no limit
  bool queued = false;  // it has had its turn
};

// `reply_to` is the server's own handle of the client that waits. A spec with
// elements (job_array.h) makes several jobs.
struct JobSubmitted {
  JobSpec spec;
  uint64_t reply_to = 0;  // not journaled
  // Set in an engine that predicts the future of another one, where the job has
  // received this already; not journaled.
  Received received = {};
  std::vector<ProfiledCell> profile = {};  // in a simulation; not journaled
  // The jobs and arrays that its specification names as parents, without those
  // that have ended as they should. Set by the engine.
  std::vector<Parent> parents = {};
  // Set in an engine that predicts the future of another one, where the job is
  // an element of an array; not journaled.
  std::optional<Element> element = {};
};

// A command to a job that has no argument: kCancel, kRelease, kHold, kRequeue
// or kCheckpoint.
struct JobCommanded {
  JobId job;
  CommandKind kind = CommandKind::kCancel;
  uint64_t reply_to = 0;  // not journaled
  std::string by = "";    // an operator; empty: the job's owner
  // Where `job` is an array: the indices of its elements (ParseIndices); empty:
  // all of them.
  std::string elements = "";
};

struct ServerJoined {
  AgentHello hello;
};

// The server's agent was silent for too long or, with `left`, has ended in
// order.
struct ServerLost {
  std::string server;
  bool left = false;
};

// The device failed. No job gets it until a new agent of its server starts.
struct AcceleratorLost {
  std::string server;
  std::string uuid;
  JobId job = {};  // that could not use it
};

struct WorkerJoined {
  WorkerHello hello;
};

// The first lease of an epoch is about to be granted to this worker.
struct LeaseStarted {
  WorkerKey worker;
  uint64_t epoch = 0;
  AcceleratorId accelerator;
};

struct LeaseEnded {
  WorkerKey worker;
  uint64_t epoch = 0;
  Progress progress;
  bool finished = false;  // its training loop has ended; it won't ask again
  ReleaseCause cause = ReleaseCause::kPaused;
  JournalPosition highest_seen = {};      // not journaled
  std::optional<int> finished_code = {};  // of its WorkerFinished
};

// Cumulative progress. Journaled at most once in report_interval_s for each
// worker, with the windows of those that were not, and nothing waits for it.
struct StepsReported {
  WorkerKey worker;
  uint64_t epoch = 0;
  Progress progress;
  JournalPosition highest_seen = {};  // not journaled
};

// How the end of a process was read when it was heard of (engine::ReadEnd).
enum class ProcessEnd : uint8_t {
  kUntold,  // a row of an older version
  kDone,    // it came to its end
  kLeft,    // as it was asked to, or for a reason outside of it
  kFailed,
  kTimeLimit  // of an opaque job
};

struct WorkerGone {
  WorkerExited exit;
  // If it was ended because its loop had passed no boundary: for how long; else
  // 0.
  double hung_s = 0;
  ProcessEnd end = ProcessEnd::kUntold;
  // Valid if the process never spoke: it may have used this accelerator since
  // `launched_at`.
  AcceleratorId launched_on = {};
  Time launched_at = 0;
};

// The process ended with code 0, but its session had not come to its end.
inline bool EndedUnfinished(const WorkerGone& e) {
  return e.end == ProcessEnd::kFailed && e.exit.signal == 0 &&
         e.exit.exit_code == 0 && e.exit.launch_error.empty();
}

// The lease is over by every clock and the agent can't be asked: the job may
// start elsewhere, the accelerator stays quarantined.
struct WorkerAbandoned {
  WorkerKey worker;
};

struct AllocationReady {
  uint64_t epoch = 0;  // of the SolvePolicy that it answers; stale: dropped
  PolicyResult result;
  // Set by the engine: the last row before the problem was made, and when that
  // was. 0: unknown.
  uint64_t problem_seq = 0;
  Time problem_at = 0;
  // Set by the engine, too: the problem contained these bids, and these
  // divisions have changed the result.
  std::vector<OwnAnswer> own = {};
};

// Which units get which accelerators, as the mechanism decided. A replay
// follows the decision and decides nothing itself.
using UnitPlaces =
    std::vector<std::pair<ShareUnit, std::vector<AcceleratorId>>>;

// The jobs among these whose time counts for another type:
// RoundAssignment::claims.
using Claims = std::vector<RoundAssignment::Claim>;

// Idle accelerators were given out in the middle of a round.
struct UnitsAssigned {
  UnitPlaces places;
  Claims claims = {};
};
// The next round was planned; jobs that continue may keep their leases on.
struct RoundPlanned {
  UnitPlaces places;
  // The plan is for these jobs, ascending, and all other jobs go on as they
  // are. nullopt: for all jobs, as in every journaled row.
  std::optional<std::vector<JobId>> jobs = std::nullopt;
  // The units of `places` that run on trial, ascending.
  std::vector<ShareUnit> trials = {};
  Claims claims = {};
};
// The planned round begins. `tiers` has the tier of each pause that is not
// kPark.
struct RoundStarted {
  std::vector<std::pair<JobId, PauseTier>> tiers;
};
// Parked processes whose memory is needed: they write a checkpoint and end.
struct WorkersEvicted {
  std::vector<WorkerKey> workers;
};

// The price of an hour of an accelerator of each type, from now on.
struct PricesChanged {
  std::vector<std::pair<std::string, double>> prices;
};

// Elastic jobs are planned with other numbers of workers from here on.
struct JobsResized {
  std::vector<Resize> resizes;
};

// Trials begin with the round that was planned, or end now.
struct TrialsNoted {
  std::vector<TrialNote> trials;
};

// The time has come that the job's file names: its not_before, or it has run
// for its time_limit, or was idle for its idle_limit. An array is named for the
// not_before of its elements, and an element of an array when it is its turn.
struct TimeReached {
  JobId job;
  bool idle = false;
};

// The job need not wait any longer: its parents have all ended as they should,
// or one of them failed.
struct ParentsEnded {
  JobId job;
};

// The optimiser of an app has told the app's goal.
struct AppGoalSet {
  std::string owner;
  AppGoal goal;
  uint64_t reply_to = 0;  // not journaled
  // Made by the engine: the app has ended, as it had no job and its optimiser
  // was silent for too long.
  bool given_up = false;
};

// ---- not durable

struct LeaseRequested {
  LeaseRequest request;
};
struct AgentHeard {
  AgentHeartbeat heartbeat;
};
struct WorkerSaidFinished {
  WorkerFinished message;
};
// All rows up to and including `seq` are on disk.
struct Persisted {
  uint64_t seq = 0;
};
struct Tick {};
// How much of the checkpoint that a worker waits for has arrived.
struct CheckpointComing {
  FetchProgress progress;
};
// A worker that starts or leaves still makes progress.
struct WorkerBusy {
  BytesMoved message;
};
// An agent was asked to end.
struct AgentLeaves {
  AgentLeaving message;
};
// Messages of processes that bid for an app.
struct BidderJoined {
  BidderKey bidder;
};
struct BidReceived {
  BidReply reply;
};
struct ShareDivided {
  DivideReply reply;
};
// Somebody uses the terminal of an interactive job.
struct TerminalUsed {
  TerminalActive message;
};
// An agent has started a process.
struct ProcessBegan {
  WorkerLaunched launched;
};

}  // namespace gavel::event

namespace gavel {

using EventVariant = std::variant<
    event::CoordinatorStarted, event::JobSubmitted, event::JobCommanded,
    event::ServerJoined, event::ServerLost, event::AcceleratorLost,
    event::WorkerJoined, event::LeaseStarted, event::LeaseEnded,
    event::StepsReported, event::WorkerGone, event::WorkerAbandoned,
    event::AllocationReady, event::RoundPlanned, event::RoundStarted,
    event::PricesChanged, event::UnitsAssigned, event::WorkersEvicted,
    event::JobsResized, event::AcceleratorsDrained, event::JobUpdated,
    event::PolicyChanged, event::ServerForgotten, event::TrialsNoted,
    event::TimeReached, event::ParentsEnded, event::AppGoalSet,
    event::LeaseRequested, event::AgentHeard, event::WorkerSaidFinished,
    event::Persisted, event::Tick, event::CheckpointComing, event::WorkerBusy,
    event::AgentLeaves, event::BidderJoined, event::BidReceived,
    event::ShareDivided, event::TerminalUsed, event::ProcessBegan>;
class Event : public ClosedVariant<EventVariant> {
 public:
  using ClosedVariant::ClosedVariant;
};

}  // namespace gavel

namespace gavel::action {

// The actions that a step of the engine returns: plain structs, which the
// server and the simulator carry out in order.

// Append this row to the journal and answer with event::Persisted, in order,
// once it is on disk. Rows may be committed in groups.
struct Persist {
  uint64_t seq = 0;
  uint64_t term = 0;
  Time time = 0;
  std::string row;  // EncodeEvent
  // The event that `row` encodes; null if the row was read from a journal.
  std::shared_ptr<const Event> event = nullptr;
};

// Solve and answer with event::AllocationReady of the same epoch. The problem
// does not change while the solver holds a pointer to it: the engine then
// copies it for the next change. Dropping the pointer before the answer saves
// that copy.
struct SolvePolicy {
  uint64_t epoch = 0;
  std::shared_ptr<const PolicyProblem> problem;
  std::string policy = "";  // name of the deciding one; empty: unknown
};

// Sends to one worker. The message is dropped if the worker is not connected:
// it asks again.
struct SendToWorker {
  WorkerKey worker;
  Message message;
};

// Sends to one agent. The message is dropped if the agent is not connected: its
// next hello brings both sides up to date.
struct SendToAgent {
  std::string server;
  Message message;
};

// Sends to the process that bids for an app. The message is dropped if it is
// not connected.
struct SendToBidder {
  BidderKey bidder;
  Message message;
};

// Answers the client behind JobSubmitted or one of the events of operators and
// owners above, such as JobCommanded. If `error` is empty, the command is
// done and durable.
struct Reply {
  uint64_t reply_to = 0;
  JobId job;
  std::string error;
};

// A peer has seen a later journal than this one: a newer coordinator runs, or
// this journal lost its end. Stop at once, print `reason`, grant nothing more.
struct Halt {
  std::string reason;
};

}  // namespace gavel::action

namespace gavel {

using Action = std::variant<action::Persist, action::SolvePolicy,
                            action::SendToWorker, action::SendToAgent,
                            action::SendToBidder, action::Reply, action::Halt>;
using Actions = std::vector<Action>;

// Rows of the journal: durable events as bytes, by the rules of core/codec.h.
// Stateless, thread-safe.

bool IsDurable(const Event& event);
// "JobSubmitted".
std::string_view EventName(const Event& event);

// Requires IsDurable(event).
std::string EncodeEvent(const Event& event);
// Returns DATA_LOSS, with the reason, if the row is not a durable event.
absl::StatusOr<Event> DecodeEvent(std::string_view row);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_EVENT_H_
