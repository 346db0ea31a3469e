// Checks input from peers and converts it for the engine: messages of workers
// and agents into events (EventOf), reported speeds (ReportCheck), and job
// files of clients into specs (ReadSubmission).
#ifndef GAVEL_COORDINATOR_SERVER_INCOMING_H_
#define GAVEL_COORDINATOR_SERVER_INCOMING_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/engine/event.h"
#include "coordinator/engine/job.h"
#include "coordinator/workload/job_spec.h"
#include "core/ids.h"
#include "core/messages.h"
#include "core/units.h"

namespace gavel {

// Checks messages of workers and agents, and converts them into the engine's
// events. The coordinator's event loop calls these functions for each message.
// Pure, stateless, thread-safe.

// Bounds on what a peer may put into a message: scalars of one report, bytes of
// a scalar's name, of a type's or device's name, of an error text.
inline constexpr size_t kScalarsMax = 16;
inline constexpr size_t kNameBytesMax = 64;
inline constexpr size_t kErrorBytesMax = 1024;
// A step a nanosecond, thirty years; a pebibyte.
inline constexpr double kFigureMax = 1e9;
inline constexpr uint64_t kBytesMax = uint64_t{1} << 50;

template <class T, class... Of>
concept OneOf = (std::same_as<T, Of> || ...);
// Messages that name the worker, or the agent's server, that they are of.
template <class T>
concept FromWorker = OneOf<T, WorkerHello, LeaseRequest, StepReport,
                           LeaseReleased, WorkerFinished, BytesMoved>;
template <class T>
concept FromAgent =
    OneOf<T, AgentHello, AgentHeartbeat, AgentLeaving, WorkerLaunched,
          WorkerExited, FetchProgress, TerminalActive>;
// Messages of a process that bids for an app, which name that app.
template <class T>
concept FromBidder = OneOf<T, BidderHello, BidReply, DivideReply>;
// Requests of clients, and what an agent answers to one: ClientRequests takes
// them.
template <class T>
concept ForClients =
    OneOf<T, SubmitRequest, CommandRequest, QueryRequest, LogRequest, LogReply,
          TerminalRequest, TerminalReply, AppGoalRequest>;
// Messages that only a coordinator sends. None of them becomes an event.
template <class T>
concept FromCoordinator =
    OneOf<T, LeaseGrant, LeaseDenied, LeaseNotice, PauseRequest, WorkerRejected,
          AgentWelcome, AgentRejected, LaunchWorker, StopWorker,
          ExitAcknowledged, SubmitReply, CommandReply, QueryReply,
          PrefetchCheckpoint, ServeCheckpoint, CheckpointRequest, BidRequest,
          DivideRequest, BidderNotice, TerminalNotice>;

// Returns INVALID_ARGUMENT, naming the field, when the message has an
// impossible value: a malformed name (names become paths), or a rank below 0.
// Such a message is dropped; an AgentHello is answered with AgentRejected.
absl::Status CheckMessage(const Message& message);

// The event of a message that passed CheckMessage. Figures that are not finite,
// negative or beyond kFigureMax become 0, long lists and texts are cut. Nothing
// for messages that the engine does not see (those of clients, and those that
// only a coordinator sends).
std::optional<Event> EventOf(Message message);

// The worker or agent that sent the message; nothing when another kind of peer
// sent it.
std::optional<WorkerKey> SendingWorker(const Message& message);
std::optional<std::string> SendingAgent(const Message& message);
// The bidder of a message that such a process sent; null when another kind of
// peer sent it. Valid as long as the message.
BidderKey* SendingBidder(Message& message);

// The highest journal position that its sender knows; nothing when the message
// does not tell.
std::optional<JournalPosition> HighestSeen(const Message& message);

// Whether what workers report of their speed agrees with what else is known:
// their own count of steps, and this coordinator's clock.
// Figures that don't are left out before the engine schedules by them. A worker
// is the only witness of its steps: one that counts steps that it does not make
// is not found out here, but it shows them to everybody, and comes to its end
// by them. The coordinator's event loop owns one. Not thread-safe.
class ReportCheck {
 public:
  // Messages take so much longer or shorter than the one before.
  static constexpr double kSlack_s = 5;
  // Processes at once; beyond, all are forgotten, so that the table does not
  // grow.
  static constexpr size_t kWorkersMax = 65536;

  // Each message that a worker or agent may send: notes what hellos and exits
  // tell, and checks reports. A line for the log about those whose speed is
  // left out, ever more rarely.
  std::optional<std::string> Take(Time now, Message* message);

  // A process says hello, with so many steps done. False: it was known.
  bool Saw(Time now, const WorkerKey& worker, uint64_t steps_done);
  // The window's steps are among those that its count went on by since the last
  // report with another count and a window, and it is no longer than the time
  // since then.
  // False: throughput and window are now 0, not known. A process that was not
  // seen before is believed.
  bool Check(Time now, const WorkerKey& worker, Progress* told);
  void Forget(const WorkerKey& worker) { last_.erase(worker); }

 private:
  struct Last {
    uint64_t steps_done = 0;
    Time at = 0;  // when it was told first
  };
  std::map<WorkerKey, Last> last_;
  uint64_t left_out_ = 0;
};

// A client's job file as the spec that the engine gets: parsed, paths made
// absolute, defaults filled in. Pure: paths are a client's, and looking at one
// would keep the coordinator's event loop waiting for a file system that may
// never answer. Whether the job fits the cluster, and its name is free, the
// engine says. Stateless, thread-safe.

// `cluster_id`: Journal::cluster_id. `id`: what the job is going to be.
// INVALID_ARGUMENT, ready for the user, when the file is wrong (with line and
// column) or its directory not absolute.
absl::StatusOr<JobSpec> ReadSubmission(const SubmitRequest& request,
                                       std::string_view state_directory,
                                       std::string_view cluster_id, JobId id);

// STATE/checkpoints/CLUSTER-ID-NAME: a job never starts from where another one
// stopped, neither one of the same name nor one that had the same id in another
// journal.
std::string DefaultCheckpointDirectory(std::string_view state_directory,
                                       std::string_view cluster_id,
                                       std::string_view name, JobId id);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_INCOMING_H_
