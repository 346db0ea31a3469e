#include "coordinator/engine/explanations.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/engine/interactive.h"
#include "coordinator/engine/introspection.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/related_jobs.h"
#include "coordinator/engine/rounds.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/sweeper.h"
#include "coordinator/engine/workers.h"
#include "coordinator/mechanism/mechanism.h"
#include "core/text.h"

namespace gavel::engine {

static Reason WhyWaiting(const State& s, const Job& job, Time now);
static std::optional<reason::KeptOut> WhyKeptOut(const State& s,
                                                 const Job& job);
static std::optional<Reason> WhyReserved(const State& s, const Job& job,
                                         Time now);
static Reason WaitsForHolder(const State& s, const Accelerator& place,
                             const WorkerKey& holder, Time now);

std::string FailuresText(const Job& job) {
  const int failures = job.failures_in_a_row;
  if (failures == 0) return "";
  std::string text = failures == 1
                         ? "it failed once"
                         : StrCat("it failed ", failures,
                                  " times in a row without a new checkpoint");
  if (job.last_end > 0) {
    StrAppend(&text, " (last: exit code ", job.last_end, ")");
  } else if (job.last_end < 0) {
    StrAppend(&text, " (last: killed by signal ", -job.last_end, ")");
  }
  return StrCat(text, ", and is held after ", job.spec.retries_max);
}

event::Received ReceivedOf(const State& s, JobId id, Time now) {
  const Job& job = s.jobs.at(id);
  RoundUnit row;
  MakeUnit(s, {id, JobId()}, job, now, row);
  event::Received received{s.ledger.SecondsReceived(job, now), {}};
  for (size_t type = 0; type < row.time_received_s.size(); ++type) {
    received.types.push_back({s.cluster.types()[type],
                              row.time_received_s[type], row.deficit_s[type]});
  }
  return received;
}

Reason Why(const State& s, JobId id, Time now) {
  Reason reason = WhyUnranked(s, id, now);
  if (std::holds_alternative<reason::Priority>(reason)) {
    WaitingLine(RoundUnits(s, now, /*with_trials=*/false), s.cluster.types(),
                s.terms.round_duration_s())
        .Tell(id, &reason);
  }
  return reason;
}

Reason WhyUnranked(const State& s, JobId id, Time now) {
  const Job& job = s.jobs.at(id);
  if (AwaitsJobs(job)) return WhyAwaiting(s, job);
  if (!job.active()) return job.reason;
  if (job.assigned.empty()) {
    if (job.HoldsAny()) return reason::Pausing();
    Reason waits = WhyWaiting(s, job, now);
    const auto silent = std::ranges::find_if(
        job.workers, [](const Worker& w) { return w.launched_on.valid(); });
    if (silent != job.workers.end() && silent->leaving &&
        std::holds_alternative<reason::Priority>(waits)) {
      return reason::LosesPlace{silent->server};
    }
    return waits;
  }
  const Accelerator& first = s.cluster.accelerator(job.assigned.front());
  for (size_t rank = 0; rank < job.assigned.size(); ++rank) {
    const Worker& worker = job.workers[rank];
    if (worker.held_epoch != 0 && worker.held_epoch != job.epoch) {
      return reason::Pausing();
    }
    if (worker.finished || worker.process == ProcessState::kDone) {
      return reason::Ending();
    }
    if (worker.launched_on.valid() && worker.leaving) {
      return reason::LosesPlace{worker.server};
    }
    if (job.spec.opaque() && worker.held_epoch != 0) continue;
    const WorkerKey* in_the_way =
        job.spec.opaque() ? s.leases.HeldByOther(job.assigned[rank], job)
                          : s.leases.InTheWay(job, worker);
    const Accelerator& place = s.cluster.accelerator(job.assigned[rank]);
    if (in_the_way != nullptr) {
      return WaitsForHolder(s, place, *in_the_way, now);
    }
    if (worker.process == ProcessState::kLaunching &&
        !s.checkpoints.SourceFor(job, worker.server).server.empty()) {
      return s.checkpoints.WhyMoving(job, static_cast<int>(rank));
    }
    if (worker.process != ProcessState::kJoined) {
      return reason::Starting{first.server, IdleStart(now, worker),
                              StartTimeout(job, s.options), FailuresText(job)};
    }
    if (const WorkerKey* holder =
            s.leases.HeldByOther(job.assigned[rank], job)) {
      return WaitsForHolder(s, place, *holder, now);
    }
    const WorkerKey* parked = s.leases.LeavingMemory(job.assigned[rank], job);
    if (parked != nullptr && worker.held_epoch == 0) {
      return reason::WaitsForRelease{StrCat("memory of its ", first.info.type),
                                     parked->job};
    }
    if (worker.held_epoch != 0) continue;
    if (job.failed_starts > 0) {
      return reason::GangStarting{first.server, job.failed_starts,
                                  StartsMax(job)};
    }
    return reason::Starting{first.server};
  }
  if (job.spec.interactive()) {
    return reason::RunningInteractive{first.info.type, IdleSeconds(job, now),
                                      job.spec.IdleLimit()};
  }
  if (job.spec.opaque()) return reason::RunningOpaque{first.info.type};
  if (const auto still = StandstillOf(s, job)) {
    return reason::StandsStill{first.info.type, still->seconds,
                               still->allowed_s, still->rank};
  }
  const JobShares shares = s.ledger.SharesOf(id, now);
  if (!s.jobs.Together(job, job.partner)) {
    return reason::Running{first.info.type, 100 * shares.received,
                           100 * shares.target};
  }
  std::string beside =
      StrCat(first.info.type, " beside job ", job.partner.value());
  const double alone = s.throughputs.Get(id, first.info.type).steps_per_s;
  const std::optional<double> together =
      s.throughputs.Together(id, job.partner, first.info.type);
  if (together.has_value() && alone > 0) {
    StrAppend(&beside, " at ", std::lround(100 * *together / alone),
              " % of its speed alone");
  }
  return reason::RunningPacked{std::move(beside), 100 * shares.received,
                               100 * shares.target};
}

// The accelerators that the job is kept out of, if that alone keeps it from
// running on some type; otherwise nullopt.
std::optional<reason::KeptOut> WhyKeptOut(const State& s, const Job& job) {
  const std::vector<int>& capacity = s.cluster.Capacity();
  bool usable = false;
  for (size_t type = 0; type < capacity.size(); ++type) {
    usable |=
        capacity[type] >= job.spec.LeastWorkers() &&
        s.figures.IsKeptOut(job, type) &&
        s.throughputs.Get(job.id, s.cluster.types()[type]).steps_per_s > 0;
  }
  if (!usable) return std::nullopt;
  std::vector<std::string> names;
  for (const AcceleratorId id : s.avoidance.KeptOutOf(job.id)) {
    const Accelerator& accelerator = s.cluster.accelerator(id);
    names.push_back(StrCat(accelerator.server, "/", accelerator.info.uuid));
  }
  return reason::KeptOut{absl::StrJoin(names, ", "), job.id};
}

// The servers that the job's file names, if too few of the accelerators that it
// could use are theirs; otherwise nullopt.
std::optional<reason::NotItsServers> WhyNotItsServers(const State& s,
                                                      const Job& job) {
  if (!s.avoidance.IsBarred(job.id)) return std::nullopt;
  const std::vector<int>& capacity = s.cluster.Capacity();
  const int needed = job.spec.LeastWorkers();
  bool elsewhere = false;
  for (size_t type = 0; type < capacity.size(); ++type) {
    if (s.throughputs.Get(job.id, s.cluster.types()[type]).steps_per_s <= 0) {
      continue;
    }
    if (s.avoidance.CountUnbarred(job.id, type) >= needed) return std::nullopt;
    elsewhere |= capacity[type] >= needed;
  }
  if (!elsewhere) return std::nullopt;
  const bool named = !job.spec.servers.empty();
  return reason::NotItsServers{
      named ? absl::StrJoin(job.spec.servers, ", ")
            : StrCat("all but ", absl::StrJoin(job.spec.exclude_servers, ", ")),
      needed};
}

// When the time limit of an opaque worker ends it; kNever: it has none.
static Time EndsBy(const Job& job, const Worker& worker) {
  return job.spec.time_limit_s ? worker.leased_at + *job.spec.time_limit_s
                               : kNever;
}

// The worker if only its own end gives its accelerator back; otherwise null.
static const Worker* KeepsUntilItsEnd(const State& s, const WorkerKey& holder,
                                      Time now) {
  const Job* const job = s.jobs.Find(holder.job);
  const auto rank = static_cast<size_t>(holder.rank);
  if (job == nullptr || !job->active() || !job->spec.opaque() ||
      rank >= job->workers.size()) {
    return nullptr;
  }
  const Worker& worker = job->workers[rank];
  const bool is_asked_to_end = worker.leaving || EndsBy(*job, worker) <= now;
  return worker.held_epoch != 0 && !is_asked_to_end ? &worker : nullptr;
}

// The reason of a job that waits for `holder` to leave its accelerator.
Reason WaitsForHolder(const State& s, const Accelerator& place,
                      const WorkerKey& holder, Time now) {
  const Worker* const keeps = KeepsUntilItsEnd(s, holder, now);
  if (keeps == nullptr) {
    return reason::WaitsForRelease{place.info.type, holder.job};
  }
  const Job& job = s.jobs.at(holder.job);
  const Time end = EndsBy(job, *keeps);
  return reason::WaitsForEnd{
      StrCat(place.info.type, " on ", place.server), holder.job,
      job.spec.interactive(),
      end == kNever ? "" : UtcText(end + s.options.wall_offset_s)};
}

// The opaque job that holds an accelerator which this job could use, and whose
// end is known to come first; nullopt if there is no such job.
std::optional<Reason> WhyReserved(const State& s, const Job& job, Time now) {
  std::optional<Reason> first;
  Time first_end = kNever;
  for (const Accelerator& other : s.cluster.accelerators()) {
    if (!other.reserved || !other.may_start()) continue;
    if (s.avoidance.Bars(job.id, other.id)) continue;
    if (!(s.throughputs.Get(job.id, other.info.type).steps_per_s > 0)) continue;
    const std::span<const WorkerKey> holders = s.leases.Holders(other.id);
    const std::span<const JobId> assigned = s.assigned.JobsOn(other.id);
    if (holders.empty() && !assigned.empty() && !first) {  // it is starting
      first = reason::WaitsForRelease{other.info.type, assigned.front()};
    }
    for (const WorkerKey& holder : holders) {
      const Worker* const keeps = KeepsUntilItsEnd(s, holder, now);
      const Time end =
          keeps == nullptr ? now : EndsBy(s.jobs.at(holder.job), *keeps);
      if (first && end >= first_end) continue;
      first = WaitsForHolder(s, other, holder, now);
      first_end = end;
    }
  }
  return first;
}

static bool AnyReachable(const Cluster& cluster) {
  return std::ranges::any_of(cluster.accelerators(), [](const auto& one) {
    return !one.forgotten && one.state == AcceleratorState::kUsable;
  });
}

Reason WhyWaiting(const State& s, const Job& job, Time now) {
  if (s.checkpoints.IsStranded(job)) return s.checkpoints.WhyStranded(job);
  if (s.checkpoints.IsTooWideForOneServer(job)) {
    return reason::TooWide{job.scale_factor};
  }
  const std::vector<int>& capacity = s.cluster.Capacity();
  const std::vector<bool>& usable_types = s.figures.UsableTypes(job);
  bool usable = false;
  for (size_t type = 0; type < capacity.size(); ++type) {
    usable |= capacity[type] >= job.spec.LeastWorkers() && usable_types[type];
  }
  std::vector<std::string> too_small;
  for (const std::string& type : s.cluster.types()) {
    if (!usable && s.throughputs.IsExcluded(job.id, type)) {
      too_small.push_back(type);
    }
  }
  if (!too_small.empty()) {
    return reason::OutOfMemory{absl::StrJoin(too_small, ", "), job.id};
  }
  if (!usable) {
    if (auto reserved = WhyReserved(s, job, now)) return *reserved;
    const auto drained = WhyDrained(s, job);
    if (auto servers = WhyNotItsServers(s, job)) {
      return drained ? Reason(*drained) : Reason(*servers);
    }
    if (auto kept_out = WhyKeptOut(s, job)) return *kept_out;
    if (drained) return *drained;
    if (!AnyReachable(s.cluster)) return reason::NoServer();
    return reason::Unusable{job.spec.LeastWorkers()};
  }
  if (job.spec.interactive()) return WhyNotSeated(s, job);
  if (job.counted_since == kNever) return reason::Submitted();
  if (std::ranges::binary_search(s.allocation.result().too_extreme, job.id)) {
    return reason::TooExtreme{ExtremesOf(job.spec), job.id};
  }
  const JobShares shares = s.ledger.SharesOf(job.id, now);
  const double ratio = shares.target > 0 ? shares.received / shares.target : 0;
  return reason::Priority{"", 0, 100 * ratio};
}

namespace {

std::string NameOfPlace(const Accelerator& place) {
  return StrCat(place.server, "/", place.info.uuid);
}

// Why no job may start there; empty: jobs may.
std::string WhyClosed(const Accelerator& place) {
  const std::string name = NameOfPlace(place);
  switch (place.state) {
    case AcceleratorState::kLost:
      return StrCat(name, " has failed");
    case AcceleratorState::kUnreachable:
      return StrCat(name, " can't be reached");
    case AcceleratorState::kUsable:
      break;
  }
  if (place.leaving) return StrCat("the agent of ", place.server, " ends");
  return place.drained ? StrCat(name, " is drained") : "";
}

// "job 12", "jobs 12 and 13": the jobs that the accelerator is assigned, but
// `job` and its partner. Empty: none.
std::string OthersOn(const State& s, const Job& job, AcceleratorId place) {
  std::vector<std::string> others;
  for (const JobId other : s.assigned.JobsOn(place)) {
    if (other == job.id || other == job.partner) continue;
    others.push_back(StrCat(other.value()));
  }
  if (others.empty()) return "";
  return StrCat(others.size() == 1 ? "job " : "jobs ",
                absl::StrJoin(others, " and "));
}

std::string SharesText(const State& s, const Job& job, Time now) {
  const JobShares shares = s.ledger.SharesOf(job.id, now);
  if (!(shares.target > 0)) return "the policy gives it no share now";
  return absl::StrFormat(
      "its %s (%.0f %% of the time received, target %.0f %%)",
      shares.received < shares.target ? "priority is lower"
                                      : "share is exhausted",
      100 * shares.received, 100 * shares.target);
}

std::string WhyElsewhere(const State& s, const Job& job, AcceleratorId from,
                         AcceleratorId to, Time now) {
  const Accelerator& before = s.cluster.accelerator(from);
  const std::string closed = WhyClosed(before);
  if (!closed.empty()) return closed;
  const std::string trial = RenderNewTrial(s, job, now);
  if (!trial.empty()) return trial;
  std::vector<std::string> parts;
  const Accelerator& after = s.cluster.accelerator(to);
  if (s.trials.IsTried(job.id) &&
      s.throughputs.NeedsTrial(job.id, after.info.type)) {
    return StrCat("its speed on ", after.info.type, " is to be measured");
  }
  if (before.info.type != after.info.type) {
    parts.push_back(
        StrCat("it gets ", after.info.type, " instead of ", before.info.type));
  }
  const std::string others = OthersOn(s, job, from);
  if (!others.empty()) {
    parts.push_back(
        StrCat(others, absl::StrContains(others, "jobs") ? " have " : " has ",
               NameOfPlace(before)));
  }
  if (parts.empty()) parts.push_back("the jobs of its round were placed anew");
  return absl::StrJoin(parts, ", and ");
}

}  // namespace

std::string WhyPaused(const State& s, const Job& job, int rank,
                      AcceleratorId left, Time now) {
  if (!job.active()) return RenderReason(ForOthers(job.reason));
  const Accelerator& place = s.cluster.accelerator(left);
  const auto at = static_cast<size_t>(rank);
  if (at < job.assigned.size()) {
    const AcceleratorId next = job.assigned[at];
    if (next != left) {
      return StrCat("paused: to move to ",
                    NameOfPlace(s.cluster.accelerator(next)), ": ",
                    WhyElsewhere(s, job, left, next, now));
    }
    if (IsRestarting(job)) return "paused: its gang starts again";
    const std::string resized =
        job.resizing_since == kNever ? "" : RenderResize(job);
    return StrCat("paused: ", resized.empty() ? "to start again" : resized);
  }
  const std::string closed = WhyClosed(place);
  if (!closed.empty()) return StrCat("paused: ", closed);
  const std::string others = OthersOn(s, job, left);
  return StrCat(
      "paused: ", others.empty() ? "" : StrCat("preempted by ", others, ", "),
      SharesText(s, job, now));
}

std::string WhyMoved(const State& s, const Job& job, AcceleratorId from,
                     AcceleratorId to, Time now) {
  return StrCat("moved from ", NameOfPlace(s.cluster.accelerator(from)), " to ",
                NameOfPlace(s.cluster.accelerator(to)), ": ",
                WhyElsewhere(s, job, from, to, now));
}

}  // namespace gavel::engine

namespace gavel {

WaitingLine::WaitingLine(const RoundTable& rows, std::vector<std::string> types,
                         double round_duration_s)
    : types_(std::move(types)) {
  const std::vector<std::vector<double>> priorities =
      Priorities(rows, HeadStartSeconds(round_duration_s));
  // The unit with the least rank is next. Equals are in the order in which the
  // mechanism takes them.
  const auto rank = [&](size_t row, size_t type) {
    return std::tuple(-priorities[row][type], -rows.deficit_s(row)[type],
                      -rows.share(row)[type], rows.unit(row));
  };
  // By type, of units that hold nothing.
  std::vector<std::vector<decltype(rank(0, 0))>> waiting(rows.types());
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!rows.holds(row).empty()) continue;
    for (size_t type = 0; type < waiting.size(); ++type) {
      waiting[type].push_back(rank(row, type));
    }
  }
  for (auto& of_type : waiting) std::ranges::sort(of_type);
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::vector<double>& own = priorities[row];
    if (rows.unit(row).packed() || own.empty()) continue;
    const auto best = std::max_element(own.begin(), own.end());
    const auto type = static_cast<size_t>(best - own.begin());
    const auto before =
        std::ranges::lower_bound(waiting[type], rank(row, type));
    places_.push_back(
        {rows.unit(row).job,
         {type, 1 + static_cast<int>(before - waiting[type].begin())}});
  }
  std::ranges::sort(places_, {}, &std::pair<JobId, Place>::first);
}

void WaitingLine::Tell(JobId job, Reason* reason) const {
  auto* in_line = std::get_if<reason::Priority>(reason);
  if (in_line == nullptr) return;
  const auto found = std::ranges::lower_bound(places_, job, {},
                                              &std::pair<JobId, Place>::first);
  if (found == places_.end() || found->first != job ||
      found->second.type >= types_.size()) {
    *reason = reason::NotInAllocation();
    return;
  }
  in_line->type = types_[found->second.type];
  in_line->place = found->second.number;
}

}  // namespace gavel
