// What workers and agents send, checked and turned into the engine's events.
// Pure conversions; the coordinator's event loop calls them for each message.
// Stateless, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_INCOMING_H_
#define GAVEL_COORDINATOR_SERVER_INCOMING_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/engine/event.h"
#include "core/ids.h"
#include "core/messages.h"

namespace gavel {

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
concept FromAgent = OneOf<T, AgentHello, AgentHeartbeat, AgentLeaving,
                          WorkerLaunched, WorkerExited, FetchProgress>;
// Requests of clients, and what an agent answers to one: ClientRequests takes
// them.
template <class T>
concept ForClients =
    OneOf<T, SubmitRequest, CommandRequest, QueryRequest, LogRequest, LogReply>;
// What only a coordinator sends. Nothing of it becomes an event.
template <class T>
concept FromCoordinator =
    OneOf<T, LeaseGrant, LeaseDenied, LeaseNotice, PauseRequest, WorkerRejected,
          AgentWelcome, AgentRejected, LaunchWorker, StopWorker,
          ExitAcknowledged, SubmitReply, CommandReply, QueryReply,
          PrefetchCheckpoint, ServeCheckpoint, CheckpointRequest>;

// INVALID_ARGUMENT, naming the field, when the message can't be what it says:
// names that are no names (they become paths), a rank below 0. Such a message
// is dropped; an AgentHello is answered with AgentRejected.
absl::Status CheckMessage(const Message& message);

// The event of a message that passed CheckMessage. Figures that are not finite,
// negative or beyond kFigureMax become 0, long lists and texts are cut. Nothing
// for messages that the engine does not see (WorkerLaunched, those of clients,
// and those that only a coordinator sends).
std::optional<Event> EventOf(Message message);

// Who sent it; nothing when it is not of a worker (of an agent).
std::optional<WorkerKey> SendingWorker(const Message& message);
std::optional<std::string> SendingAgent(const Message& message);

// The highest journal position that its sender knows; nothing when the message
// does not tell.
std::optional<JournalPosition> HighestSeen(const Message& message);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_INCOMING_H_
