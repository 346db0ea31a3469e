#include "coordinator/engine/event_codec.h"

#include <array>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/fields.h"
#include "core/message_fields.h"
#include "core/packer.h"
#include "core/text.h"

namespace gavel {
namespace {

// Durable events are the first alternatives of Event, in the order of this
// table; the position of each in it is its number in the journal, for ever.
constexpr std::array<std::string_view, std::variant_size_v<Event>> kNames = {
    "CoordinatorStarted", "JobSubmitted", "JobCommanded",
    "ServerJoined",       "ServerLost",   "AcceleratorLost",
    "WorkerJoined",       "LeaseStarted", "LeaseEnded",
    "StepsReported",      "WorkerGone",   "WorkerAbandoned",
    "AllocationReady",    "RoundPlanned", "RoundStarted",
    "LeaseRequested",     "AgentHeard",   "WorkerSaidFinished",
    "Persisted",          "Tick"};
constexpr size_t kDurableEvents = 15;

// An allocation as it is written: J, jobs, and shares [jobs x J].
struct AllocationRow {
  uint64_t types = 0;
  std::vector<JobId> jobs;
  std::vector<double> shares;
};

AllocationRow ToRow(const Allocation& allocation) {
  AllocationRow row;
  row.types = allocation.types();
  row.jobs.assign(allocation.jobs().begin(), allocation.jobs().end());
  for (JobId job : row.jobs) {
    const std::vector<double> shares = allocation.Row(job);
    row.shares.insert(row.shares.end(), shares.begin(), shares.end());
  }
  return row;
}

// PolicyResult without its handle.
struct ResultRow {
  SolveOutcome outcome = SolveOutcome::kFailed;
  std::string detail;
  bool is_assignment = false;
  AllocationRow allocation;
  std::vector<std::pair<JobId, uint64_t>> assignment;
  std::vector<JobId> left_out;
  double objective = 0;
  double bound = 0;
  double gap = 0;
  std::string solver;
};

}  // namespace

// ---- lists of fields; only ever appended to

constexpr JobClass LastOf(JobClass) { return JobClass::kOpaque; }
constexpr SolveOutcome LastOf(SolveOutcome) { return SolveOutcome::kFailed; }

auto Fields(As<JobSpec> auto& s) {
  return std::tie(s.name, s.argv, s.working_directory, s.checkpoint_directory,
                  s.environment, s.app, s.entity, s.job_class, s.scale_factor,
                  s.workers_min, s.workers_max, s.weight, s.steps_total,
                  s.deadline_s, s.budget, s.throughputs, s.retries_max);
}

namespace {

auto Fields(As<AllocationRow> auto& r) {
  return std::tie(r.types, r.jobs, r.shares);
}

auto Fields(As<ResultRow> auto& r) {
  return std::tie(r.outcome, r.detail, r.is_assignment, r.allocation,
                  r.assignment, r.left_out, r.objective, r.bound, r.gap,
                  r.solver);
}

}  // namespace

// The durable events themselves; in the namespace that lookup needs.
namespace event {

auto Fields(As<CoordinatorStarted> auto& e) {
  return std::tie(e.term, e.round_duration_s, e.lease_duration_s);
}
auto Fields(As<JobSubmitted> auto& e) { return std::tie(e.spec); }
auto Fields(As<JobCommanded> auto& e) { return std::tie(e.job, e.kind); }
auto Fields(As<ServerJoined> auto& e) { return std::tie(e.hello); }
auto Fields(As<ServerLost> auto& e) { return std::tie(e.server); }
auto Fields(As<AcceleratorLost> auto& e) { return std::tie(e.server, e.uuid); }
auto Fields(As<WorkerJoined> auto& e) { return std::tie(e.hello); }
auto Fields(As<LeaseStarted> auto& e) {
  return std::tie(e.worker, e.epoch, e.accelerator);
}
auto Fields(As<LeaseEnded> auto& e) {
  return std::tie(e.worker, e.epoch, e.progress, e.finished);
}
auto Fields(As<StepsReported> auto& e) {
  return std::tie(e.worker, e.epoch, e.progress);
}
auto Fields(As<WorkerGone> auto& e) { return std::tie(e.exit); }
auto Fields(As<WorkerAbandoned> auto& e) { return std::tie(e.worker); }

}  // namespace event

namespace {

// An allocation is a handle; on disk it is its rows.
struct AllocationReadyRow {
  uint64_t epoch = 0;
  ResultRow result;
};

auto Fields(As<AllocationReadyRow> auto& r) {
  return std::tie(r.epoch, r.result);
}

AllocationReadyRow ToRow(const event::AllocationReady& e) {
  const PolicyResult& result = e.result;
  AllocationReadyRow row{e.epoch,
                         {result.outcome,
                          result.detail,
                          result.is_assignment,
                          ToRow(result.allocation),
                          {},
                          result.left_out,
                          result.objective,
                          result.bound,
                          result.gap,
                          result.solver}};
  for (const TypeAssignment& entry : result.assignment) {
    row.result.assignment.emplace_back(entry.job, entry.type);
  }
  return row;
}

event::AllocationReady FromRow(AllocationReadyRow row) {
  event::AllocationReady e;
  e.epoch = row.epoch;
  e.result.outcome = row.result.outcome;
  e.result.detail = std::move(row.result.detail);
  e.result.is_assignment = row.result.is_assignment;
  AllocationRow& allocation = row.result.allocation;
  const auto types = static_cast<size_t>(allocation.types);
  if (types > 0 && allocation.shares.size() == allocation.jobs.size() * types) {
    e.result.allocation = Allocation::FromRows(
        std::move(allocation.jobs), types, std::move(allocation.shares));
  }
  for (const auto& [job, type] : row.result.assignment) {
    e.result.assignment.push_back({job, static_cast<size_t>(type)});
  }
  e.result.left_out = std::move(row.result.left_out);
  e.result.objective = row.result.objective;
  e.result.bound = row.result.bound;
  e.result.gap = row.result.gap;
  e.result.solver = std::move(row.result.solver);
  return e;
}

// Rounds have no fields; volatile events are never written.
template <class E>
void PutBody(Packer& packer, const E& e) {
  if constexpr (HasFields<E>) {
    PutField(packer, e);
  } else if constexpr (std::is_same_v<E, event::AllocationReady>) {
    PutField(packer, ToRow(e));
  } else {
    packer.Array(0);
  }
}

template <size_t index>
Event GetEvent(Unpacker& unpacker) {
  using E = std::variant_alternative_t<index, Event>;
  E e{};
  if constexpr (HasFields<E>) {
    GetField(unpacker, e);
  } else if constexpr (std::is_same_v<E, event::AllocationReady>) {
    AllocationReadyRow row;
    GetField(unpacker, row);
    e = FromRow(std::move(row));
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
