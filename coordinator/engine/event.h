// What can happen to the engine. Durable events are journaled before anything
// that follows from them leaves the coordinator; replaying them in order gives
// the same engine again. The others only touch what a restart may forget.
#ifndef GAVEL_COORDINATOR_ENGINE_EVENT_H_
#define GAVEL_COORDINATOR_ENGINE_EVENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/reason.h"
#include "coordinator/mechanism/mechanism.h"
#include "coordinator/policy/policy.h"
#include "coordinator/workload/job_spec.h"
#include "coordinator/workload/throughput_table.h"
#include "core/closed_variant.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// What operators do to the cluster, and owners to their jobs: durable events
// (event.h). The server makes them of clients' commands.

// The policy that decides now. `instead_of`: the coordinator's own (--policy),
// where another one was set while it ran; empty: it is that one.
struct DecidingPolicy {
  std::string name;
  std::string instead_of;
  // As in EngineOptions; of a policy that was set.
  bool packing = false;
  bool progress = true;
};

// A change of a job's number of workers. `gavel why` renders the reason.
struct Resize {
  JobId job;
  int scale_factor = 1;
  Reason reason;
};

// What the engine keeps of what operators did, beside what is the cluster's.
struct Operated {
  DecidingPolicy policy;
  // Until when jobs may stay that are on drained accelerators.
  std::map<AcceleratorId, Time> drains;
};

namespace event {

// Nobody starts there any more, and whoever is there leaves at the end of the
// round, at `until` at the latest; or it is in use again.
struct AcceleratorsDrained {
  // As somebody named it: a server, an accelerator's uuid, or "SERVER/UUID". In
  // the journal always the server.
  std::string server;
  std::string uuid = "";  // empty: all of the server
  bool drained = true;
  bool by_agent = false;  // it ends: until it comes back
  Time until = 0;
  uint64_t reply_to = 0;  // not journaled
  // Of one accelerator that the coordinator finds unfit: why, with the remedy,
  // and AcceleratorHealth::uncorrectable_errors, which then are known.
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
};

struct PolicyChanged {
  std::string policy;
  std::string instead_of = "";
  bool packing = false;
  bool progress = true;
  uint64_t reply_to = 0;  // not journaled
};

// It was gone, and is not expected back.
struct ServerForgotten {
  std::string server;
  uint64_t reply_to = 0;  // not journaled
};

}  // namespace event
}  // namespace gavel

namespace gavel::event {

// ---- durable

// DecisionSettings as a row of the journal has them.
struct Settings : DecisionSettings {
  bool told = false;  // rows of older versions do not tell
};

// A coordinator took over: first event of a term. Leases of the term before
// may still be running, for a lease's length at most.
struct CoordinatorStarted {
  uint64_t term = 0;
  // Set by the engine from its options.
  double round_duration_s = 0;
  double lease_duration_s = 0;
  MechanismKind mechanism = MechanismKind::kGavel;
  QueueKind queue = QueueKind::kGlobal;
  double memory_rounds = 0;
  // For people and replays, set by the server: what decides, and seconds since
  // 1970 by the machine's clock. Empty and 0: not told.
  std::string policy = "";
  double wall_s = 0;
  Settings settings = {};  // by the engine, too
  // The journal is an older copy, and what came behind it is given up: who saw
  // rows of earlier terms that are not there is believed all the same.
  bool after_loss = false;
  // Set by the engine after a loss: epochs and incarnations that are given from
  // here on are at least this, above any that lost rows can have given. 0: not
  // told, or no loss.
  uint64_t numbers_from = 0;
};

// What a job has received of its share; as Engine::ReceivedOf tells it.
struct Received {
  struct OnType {
    std::string type;
    double since_reset_s = 0;  // >= 0
    double deficit_s = 0;      // > 0: it is owed that much
  };
  double total_s = 0;  // >= 0, since its first allocation
  std::vector<OnType> types;
};

// `reply_to` is the server's own handle of the client that waits.
struct JobSubmitted {
  JobSpec spec;
  uint64_t reply_to = 0;  // not journaled
  // By another engine, of which this one is to predict the future; not
  // journaled.
  Received received = {};
  std::vector<ProfiledCell> profile = {};  // in a simulation; not journaled
};

// One of the kinds that are of a job and need nothing else: kCancel, kRelease,
// kHold, kRequeue, kCheckpoint.
struct JobCommanded {
  JobId job;
  CommandKind kind = CommandKind::kCancel;
  uint64_t reply_to = 0;  // not journaled
  std::string by = "";    // an operator; empty: the job's owner
};

struct ServerJoined {
  AgentHello hello;
};

// Its agent was silent for too long; `left`: or has ended in order.
struct ServerLost {
  std::string server;
  bool left = false;
};

// The device failed: given to nobody until a new agent of its server starts.
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
  // It was ended because its loop had passed no boundary for so long; 0: not.
  double hung_s = 0;
  ProcessEnd end = ProcessEnd::kUntold;
  // It never spoke, so that it may have used this accelerator since then.
  // Invalid: it has, or was not launched.
  AcceleratorId launched_on = {};
  Time launched_at = 0;
};

// With code 0, though its session had not come to its end.
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
  // The row that the problem was made behind, and when. By the engine; 0: not
  // told.
  uint64_t problem_seq = 0;
  Time problem_at = 0;
};

// Who gets which accelerators, as the mechanism chose: a replay follows what
// was decided and decides nothing itself.
using UnitPlaces =
    std::vector<std::pair<ShareUnit, std::vector<AcceleratorId>>>;

// Jobs of these whose time is of another type: RoundAssignment::claims.
using Claims = std::vector<RoundAssignment::Claim>;

// Idle accelerators were given out in the middle of a round.
struct UnitsAssigned {
  UnitPlaces places;
  Claims claims = {};
};
// The next round was planned; jobs that continue may keep their leases on.
struct RoundPlanned {
  UnitPlaces places;
  // The plan is of these jobs, ascending, and all others go on as they are.
  // nullopt: of all jobs; what is journaled always is.
  std::optional<std::vector<JobId>> jobs = std::nullopt;
  // Those of `places` that are there on trial, ascending.
  std::vector<ShareUnit> trials = {};
  Claims claims = {};
};
// The round that was planned begins. How far the pauses of those that have to
// wait go, where it is not kPark.
struct RoundStarted {
  std::vector<std::pair<JobId, PauseTier>> tiers;
};
// Parked processes that memory was needed of: they end, with a checkpoint.
struct WorkersEvicted {
  std::vector<WorkerKey> workers;
};

// What an accelerator costs per hour, by type, from now on.
struct PricesChanged {
  std::vector<std::pair<std::string, double>> prices;
};

// Elastic jobs are planned with other numbers of workers from here on.
struct JobsResized {
  std::vector<Resize> resizes;
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
// How far a checkpoint is that a worker waits for.
struct CheckpointComing {
  FetchProgress progress;
};
// A worker that starts or leaves is at work.
struct WorkerBusy {
  BytesMoved message;
};
// An agent was told to end.
struct AgentLeaves {
  AgentLeaving message;
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
    event::PolicyChanged, event::ServerForgotten, event::LeaseRequested,
    event::AgentHeard, event::WorkerSaidFinished, event::Persisted, event::Tick,
    event::CheckpointComing, event::WorkerBusy, event::AgentLeaves>;
class Event : public ClosedVariant<EventVariant> {
 public:
  using ClosedVariant::ClosedVariant;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_ENGINE_EVENT_H_
