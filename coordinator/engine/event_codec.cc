#include "coordinator/engine/event_codec.h"

#include <array>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/engine/engine_fields.h"
#include "core/closed_variant_members.h"
#include "core/packer.h"
#include "core/text.h"

namespace gavel {

template class ClosedVariant<EventVariant>;

namespace {

// Durable events are the first alternatives of Event, in the order of this
// table; the position of each in it is its number in the journal, for ever.
constexpr std::array<std::string_view, std::variant_size_v<EventVariant>>
    kNames = {"CoordinatorStarted", "JobSubmitted",
              "JobCommanded",       "ServerJoined",
              "ServerLost",         "AcceleratorLost",
              "WorkerJoined",       "LeaseStarted",
              "LeaseEnded",         "StepsReported",
              "WorkerGone",         "WorkerAbandoned",
              "AllocationReady",    "RoundPlanned",
              "RoundStarted",       "PricesChanged",
              "UnitsAssigned",      "WorkersEvicted",
              "JobsResized",        "AcceleratorsDrained",
              "JobUpdated",         "PolicyChanged",
              "ServerForgotten",    "LeaseRequested",
              "AgentHeard",         "WorkerSaidFinished",
              "Persisted",          "Tick",
              "CheckpointComing",   "WorkerBusy",
              "AgentLeaves"};
constexpr size_t kDurableEvents = 23;

}  // namespace

// The durable events themselves; in the namespace that lookup needs.
namespace event {

auto Fields(As<CoordinatorStarted> auto& e) {
  return std::tie(e.term, e.round_duration_s, e.lease_duration_s, e.mechanism,
                  e.queue, e.memory_rounds, e.policy, e.wall_s, e.settings,
                  e.after_loss, e.numbers_from);
}
auto Fields(As<JobSubmitted> auto& e) { return std::tie(e.spec); }
auto Fields(As<JobCommanded> auto& e) { return std::tie(e.job, e.kind, e.by); }
auto Fields(As<ServerJoined> auto& e) { return std::tie(e.hello); }
auto Fields(As<ServerLost> auto& e) { return std::tie(e.server, e.left); }
auto Fields(As<AcceleratorLost> auto& e) {
  return std::tie(e.server, e.uuid, e.job);
}
auto Fields(As<WorkerJoined> auto& e) { return std::tie(e.hello); }
auto Fields(As<LeaseStarted> auto& e) {
  return std::tie(e.worker, e.epoch, e.accelerator);
}
auto Fields(As<LeaseEnded> auto& e) {
  return std::tie(e.worker, e.epoch, e.progress, e.finished, e.cause,
                  e.finished_code);
}
auto Fields(As<StepsReported> auto& e) {
  return std::tie(e.worker, e.epoch, e.progress);
}
constexpr ProcessEnd LastOf(ProcessEnd) { return ProcessEnd::kTimeLimit; }
auto Fields(As<WorkerGone> auto& e) {
  return std::tie(e.exit, e.hung_s, e.end, e.launched_on, e.launched_at);
}
auto Fields(As<WorkerAbandoned> auto& e) { return std::tie(e.worker); }
auto Fields(As<AllocationReady> auto& e) {
  return std::tie(e.epoch, e.result, e.problem_seq, e.problem_at);
}
auto Fields(As<PricesChanged> auto& e) { return std::tie(e.prices); }
auto Fields(As<UnitsAssigned> auto& e) { return std::tie(e.places, e.claims); }
auto Fields(As<RoundPlanned> auto& e) {
  return std::tie(e.places, e.trials, e.claims);
}
auto Fields(As<RoundStarted> auto& e) { return std::tie(e.tiers); }
auto Fields(As<WorkersEvicted> auto& e) { return std::tie(e.workers); }
auto Fields(As<JobsResized> auto& e) { return std::tie(e.resizes); }
auto Fields(As<AcceleratorsDrained> auto& e) {
  return std::tie(e.server, e.uuid, e.drained, e.by_agent, e.until, e.why,
                  e.errors, e.scoped);
}
auto Fields(As<JobUpdated> auto& e) { return std::tie(e.job, e.update); }
auto Fields(As<PolicyChanged> auto& e) {
  return std::tie(e.policy, e.instead_of, e.packing, e.progress);
}
auto Fields(As<ServerForgotten> auto& e) { return std::tie(e.server); }

}  // namespace event

namespace {

// Volatile events are never written.
template <class E>
void PutBody(Packer& packer, const E& e) {
  if constexpr (HasFields<E>) {
    PutField(packer, e);
  } else {
    packer.Array(0);
  }
}

template <size_t index>
Event GetEvent(Unpacker& unpacker) {
  using E = std::variant_alternative_t<index, EventVariant>;
  E e{};
  if constexpr (HasFields<E>) {
    GetField(unpacker, e);
  }
  return e;
}

using Reader = Event (*)(Unpacker&);
template <size_t... index>
constexpr std::array<Reader, sizeof...(index)> MakeReaders(
    std::index_sequence<index...>) {
  return {GetEvent<index>...};
}
constexpr auto kReaders =
    MakeReaders(std::make_index_sequence<kDurableEvents>());

}  // namespace

bool IsDurable(const Event& event) { return event.index() < kDurableEvents; }

std::string_view EventName(const Event& event) { return kNames[event.index()]; }

std::string EncodeEvent(const Event& event) {
  Packer packer(kJournalLimits);
  packer.Array(2);
  packer.Put(static_cast<uint64_t>(event.index()));
  std::visit([&](const auto& e) { PutBody(packer, e); }, event);
  return packer.Take();
}

absl::StatusOr<Event> DecodeEvent(std::string_view row) {
  Unpacker unpacker(row, kJournalLimits);
  uint64_t index = kDurableEvents;
  unpacker.Get(index);
  if (unpacker.ok() && index >= kDurableEvents) {
    return absl::DataLossError(
        StrCat("event number ", index, " is not known to this version"));
  }
  if (!unpacker.ok()) {
    return absl::DataLossError(unpacker.status().message());
  }
  Event event = kReaders[static_cast<size_t>(index)](unpacker);
  if (!unpacker.ok()) {
    return absl::DataLossError(StrCat(kNames[static_cast<size_t>(index)], ": ",
                                      unpacker.status().message()));
  }
  return event;
}

}  // namespace gavel
