#include "coordinator/engine/event.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/engine/fields.h"
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
              "ServerForgotten",    "TrialsNoted",
              "TimeReached",        "ParentsEnded",
              "AppGoalSet",         "LeaseRequested",
              "AgentHeard",         "WorkerSaidFinished",
              "Persisted",          "Tick",
              "CheckpointComing",   "WorkerBusy",
              "AgentLeaves",        "BidderJoined",
              "BidReceived",        "ShareDivided",
              "TerminalUsed",       "ProcessBegan"};
static_assert(!kNames.back().empty(), "each event has a name");
constexpr size_t kDurableEvents = 27;

}  // namespace

// The durable events themselves; in the namespace that lookup needs.
namespace event {

auto Fields(As<CoordinatorStarted> auto& e) {
  return std::tie(e.term, e.round_duration_s, e.lease_duration_s, e.mechanism,
                  e.queue, e.memory_rounds, e.policy, e.wall_s, e.settings,
                  e.after_loss, e.numbers_from, e.ids_skipped);
}
auto Fields(As<JobSubmitted> auto& e) { return std::tie(e.spec, e.parents); }
auto Fields(As<JobCommanded> auto& e) {
  return std::tie(e.job, e.kind, e.by, e.elements);
}
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
  return std::tie(e.epoch, e.result, e.problem_seq, e.problem_at, e.own);
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
auto Fields(As<JobUpdated> auto& e) {
  return std::tie(e.job, e.update, e.parents);
}
auto Fields(As<PolicyChanged> auto& e) {
  return std::tie(e.policy, e.instead_of, e.packing, e.progress,
                  e.introspection, e.introspection_is_own);
}
auto Fields(As<ServerForgotten> auto& e) { return std::tie(e.server); }
auto Fields(As<TrialsNoted> auto& e) { return std::tie(e.trials); }
auto Fields(As<TimeReached> auto& e) { return std::tie(e.job, e.idle); }
auto Fields(As<ParentsEnded> auto& e) { return std::tie(e.job); }
auto Fields(As<AppGoalSet> auto& e) {
  return std::tie(e.owner, e.goal, e.given_up);
}

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

namespace {

constexpr size_t kNumbersPerEntry = 3;

// The bits: 0 and -0 are two rows.
std::string_view BytesOf(std::span<const double> row) {
  return {reinterpret_cast<const char*>(row.data()), row.size_bytes()};
}

// Where `rows` says of units alone; false: it can't be.
bool AddAlone(const AllocationRows& rows, uint64_t classes,
              std::vector<std::pair<ShareUnit, uint32_t>>* out) {
  uint64_t last = 0;
  for (size_t i = 0; i < rows.alone.size(); i += kNumbersPerEntry) {
    const uint64_t gap = rows.alone[i];
    const uint64_t count = rows.alone[i + 1];
    const uint64_t row = rows.alone[i + 2];
    if (gap == 0 || count == 0 || row >= classes) return false;
    if (count > kAllocationUnitsMax - out->size()) return false;
    const uint64_t room = ~uint64_t{0} - last;
    if (gap > room || count - 1 > room - gap) return false;
    for (uint64_t job = last + gap; job < last + gap + count; ++job) {
      out->push_back({{JobId(job), JobId()}, static_cast<uint32_t>(row)});
    }
    last += gap + count - 1;
  }
  return true;
}

}  // namespace

AllocationRows ToAllocationRows(const Allocation& allocation) {
  AllocationRows rows;
  rows.columns = allocation.columns();
  if (rows.columns == 0) return rows;
  absl::flat_hash_map<std::string_view, uint64_t> row_of;
  uint64_t last = 0;
  for (size_t u = 0; u < allocation.units().size(); ++u) {
    const ShareUnit& unit = allocation.units()[u];
    const std::span<const double> shares = allocation.RowAt(u);
    const auto [found, is_new] =
        row_of.try_emplace(BytesOf(shares), row_of.size());
    const uint64_t row = found->second;
    if (is_new) {
      rows.shares.insert(rows.shares.end(), shares.begin(), shares.end());
    }
    const uint64_t job = unit.job.value();
    if (unit.packed()) {
      rows.pairs.insert(rows.pairs.end(), {job, unit.partner.value(), row});
    } else if (!rows.alone.empty() && job == last + 1 &&
               rows.alone.back() == row) {
      ++rows.alone[rows.alone.size() - 2];
      last = job;
    } else {
      rows.alone.insert(rows.alone.end(), {job - last, 1, row});
      last = job;
    }
  }
  return rows;
}

bool AreUnits(const std::vector<ShareUnit>& units) {
  return std::ranges::adjacent_find(units, std::greater_equal<>()) ==
             units.end() &&
         (units.empty() || units.front().job.valid());
}

std::optional<Allocation> FromAllocationRows(const AllocationRows& rows) {
  if (!rows.units.empty() || rows.columns == 0 ||
      rows.shares.size() % rows.columns != 0 ||
      rows.alone.size() % kNumbersPerEntry != 0 ||
      rows.pairs.size() % kNumbersPerEntry != 0) {
    return std::nullopt;
  }
  const uint64_t classes = rows.shares.size() / rows.columns;
  std::vector<std::pair<ShareUnit, uint32_t>> units;
  if (!AddAlone(rows, classes, &units)) return std::nullopt;
  for (size_t i = 0; i < rows.pairs.size(); i += kNumbersPerEntry) {
    if (rows.pairs[i + 1] == 0 || rows.pairs[i + 2] >= classes) {
      return std::nullopt;
    }
    units.push_back({{JobId(rows.pairs[i]), JobId(rows.pairs[i + 1])},
                     static_cast<uint32_t>(rows.pairs[i + 2])});
  }
  if (!rows.pairs.empty()) std::ranges::sort(units);
  std::vector<ShareUnit> ordered;
  std::vector<uint32_t> class_of;
  ordered.reserve(units.size());
  class_of.reserve(units.size());
  for (const auto& [unit, row] : units) {
    ordered.push_back(unit);
    class_of.push_back(row);
  }
  if (!AreUnits(ordered)) return std::nullopt;
  return Allocation::FromClasses(std::move(ordered), std::move(class_of),
                                 rows.columns, rows.shares);
}

}  // namespace gavel
