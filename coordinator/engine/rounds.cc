#include "coordinator/engine/rounds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/engine/interactive.h"
#include "coordinator/engine/introspection.h"
#include "coordinator/engine/solver.h"
#include "coordinator/engine/state.h"

namespace gavel::engine {

static std::vector<SizedJob> SizedJobs(State& s, Time now,
                                       const RoundAssignment& plan);
static bool HasChosenSizes(const State& s);
static void ResizeAsChosen(State& s, Time now, bool keep_running);
static bool IsLeftOut(State& s, Job& job, const std::vector<int>& free);
static void DropGrowth(State& s, const RoundAssignment& plan, Time at,
                       std::vector<Resize>& resizes);

void ResizeJobs(State& s, Time now, Time at, bool keep_running) {
  if (!s.jobs.elastic()) return;
  const bool any = std::ranges::any_of(s.jobs.live(), [](const auto& entry) {
    return entry.second->active() && entry.second->spec.elastic();
  });
  if (!any) return;
  if (HasChosenSizes(s)) return ResizeAsChosen(s, now, keep_running);
  const RoundAssignment plan = PlanAll(s, at, keep_running).places;
  const std::vector<int>& capacity = s.cluster.Capacity();
  std::vector<int> free = capacity;
  for (const auto& [unit, places] : plan) {
    free[static_cast<size_t>(s.cluster.TypeOf(places.front()))] -=
        static_cast<int>(places.size());
  }
  std::vector<SizedJob> jobs = SizedJobs(s, now, plan);
  std::erase_if(jobs, [&](const SizedJob& job) {
    return !job.type.has_value() && IsLeftOut(s, s.jobs.at(job.id), free);
  });
  std::vector<Resize> resizes = ChooseSizes(
      std::move(jobs), std::move(free), capacity, s.cluster.types(),
      {s.options.resize_rounds * s.terms.round_duration_s(), keep_running});
  if (!keep_running) DropGrowth(s, plan, at, resizes);
  if (!resizes.empty()) Record(s, now, event::JobsResized{std::move(resizes)});
}

std::vector<SizedJob> SizedJobs(State& s, Time now,
                                const RoundAssignment& plan) {
  std::map<JobId, size_t> type_of;
  std::map<JobId, int> size_of;
  for (const auto& [unit, places] : plan) {
    for (const JobId id : {unit.job, unit.partner}) {
      if (!id.valid()) continue;
      type_of[id] = static_cast<size_t>(s.cluster.TypeOf(places.front()));
      size_of[id] = static_cast<int>(places.size());
    }
  }
  std::vector<SizedJob> jobs;
  for (const auto& [id, job] : s.jobs.live()) {
    if (!s.candidates.MayRun(*job) || job->pinned()) continue;
    SizedJob& sized = jobs.emplace_back();
    sized.id = id;
    sized.size_min = job->spec.LeastWorkers();
    sized.size_asked = job->spec.scale_factor;
    sized.size_max = job->spec.MostWorkers();
    const auto planned = type_of.find(id);
    if (planned != type_of.end()) sized.type = planned->second;
    sized.size = sized.type ? size_of[id] : job->scale_factor;
    sized.usable = s.figures.UsableTypes(*job);
    sized.rests = now - job->resized_at <
                  s.options.resize_rounds * s.terms.round_duration_s();
    RoundUnit costs;
    AddCosts(*job, costs);
    sized.starts = job->assigned.empty();
    if (!sized.starts) {
      sized.resize_cost_s =
          job->resize_s >= 0 ? job->resize_s : costs.preempt_cost_s;
    }
    sized.speed = [&s, id = id](size_t type, int size) {
      if (s.avoidance.IsBarred(id) && s.avoidance.CountLeft(id, type) < size) {
        return Throughput{0, ThroughputSource::kMeasured};
      }
      return s.throughputs.AtSize(id, s.cluster.types()[type], size);
    };
  }
  return jobs;
}

// Whether the policy chooses the sizes of elastic jobs itself.
bool HasChosenSizes(const State& s) {
  return std::ranges::any_of(
      s.allocation.result().assignment,
      [](const TypeAssignment& entry) { return entry.workers > 0; });
}

// Gives elastic jobs the sizes that the policy chose. Together they fit into
// the cluster, so a job that is to shrink does so at once. One that runs grows
// only if it was not resized lately. A job that the policy gives nothing waits
// with the fewest workers.
void ResizeAsChosen(State& s, Time now, bool keep_running) {
  std::map<JobId, int> chosen;
  for (const TypeAssignment& entry : s.allocation.result().assignment) {
    if (entry.workers > 0) chosen[entry.unit.job] = entry.workers;
  }
  const double rest_s = s.options.resize_rounds * s.terms.round_duration_s();
  std::vector<Resize> resizes;
  for (const auto& [id, job] : s.jobs.live()) {
    if (!job->spec.elastic() || !s.candidates.MayRun(*job)) continue;
    const bool runs = !job->assigned.empty();
    const auto found = chosen.find(id);
    if (runs && (keep_running || found == chosen.end())) continue;
    const int size =
        std::clamp(found == chosen.end() ? 0 : found->second,
                   job->spec.LeastWorkers(), job->spec.MostWorkers());
    const bool rests = runs && now - job->resized_at < rest_s;
    if (size == job->scale_factor || (rests && size > job->scale_factor)) {
      continue;
    }
    resizes.push_back({id, size, reason::SizedByPolicy{}});
  }
  if (!resizes.empty()) Record(s, now, event::JobsResized{std::move(resizes)});
}

// Whether the policy gives the job nothing though there is room for it. The
// policy means it so, and no other job has to shrink for this one. A type with
// fewer accelerators than the job asked for does not count: there the policy
// could give it nothing. While an answer is due, the last result stands.
bool IsLeftOut(State& s, Job& job, const std::vector<int>& free) {
  if (job.target_share > 0 || s.agenda.unsolved() || solving(s))
    return job.left_out;
  const std::vector<int>& capacity = s.cluster.Capacity();
  for (size_t type = 0; type < free.size(); ++type) {
    const bool usable = s.figures.UsableTypes(job)[type];
    job.left_out |= usable && capacity[type] >= job.scale_factor &&
                    free[type] >= job.spec.LeastWorkers();
  }
  return job.left_out;
}

// The mechanism places jobs by priority, so a job that grows may displace
// another one that is in the plan. If that happens, no job grows.
void DropGrowth(State& s, const RoundAssignment& plan, Time at,
                std::vector<Resize>& resizes) {
  std::map<JobId, int> before;
  for (const Resize& resize : resizes) {
    int& size = s.jobs.at(resize.job).scale_factor;
    before[resize.job] = size;
    size = resize.scale_factor;
  }
  const RoundAssignment grown = PlanAll(s, at, /*keep_running=*/false).places;
  const bool all = std::ranges::all_of(
      plan, [&](const auto& entry) { return grown.contains(entry.first); });
  for (const auto& [id, size] : before) s.jobs.at(id).scale_factor = size;
  if (all) return;
  std::erase_if(resizes, [&](const Resize& resize) {
    return resize.scale_factor > before.at(resize.job);
  });
}

void On(State& s, Time now, const event::JobsResized& e) {
  for (const Resize& resize : e.resizes) {
    Job* job = s.jobs.Find(resize.job);
    if (job == nullptr || !job->active()) continue;
    s.changes.Touch(*job);
    job->scale_factor = resize.scale_factor;
    job->resize_reason = resize.reason;
    job->resized_at = now;
    const auto size = static_cast<size_t>(resize.scale_factor);
    if (job->workers.size() < size) job->workers.resize(size);
  }
  s.agenda.SolveSoon();
}

static void Complete(const State& s, RoundPlan& plan);
static std::vector<bool> FillableTypes(State& s);

void PlanRoundAhead(State& s, Time now) {
  s.ledger.BookAll(now);
  ResizeJobs(s, now, s.round.ends_at(), /*keep_running=*/false);
  RoundPlan plan = PlanAll(s, s.round.ends_at(), /*keep_running=*/false);
  std::vector<TrialNote> trials;
  if (s.options.introspection) trials = Introspect(s, now, plan);
  // The journal records the place of every job, and renewals of leases need
  // it.
  if (s.options.journal || s.options.renewals) Complete(s, plan);
  Record(
      s, now,
      event::RoundPlanned{plan.places.Release(), std::move(plan.jobs),
                          std::move(plan.trials), plan.places.ReleaseClaims()});
  if (!trials.empty()) Record(s, now, event::TrialsNoted{std::move(trials)});
}

// Adds the jobs that continue as they are to the plan.
void Complete(const State& s, RoundPlan& plan) {
  if (!plan.jobs.has_value()) return;
  std::vector<RoundAssignment::Entry> places = plan.places.Release();
  auto planned = plan.jobs->begin();
  for (const auto& [id, job] : s.jobs.live()) {
    while (planned != plan.jobs->end() && *planned < id) ++planned;
    const bool goes_on = planned == plan.jobs->end() || *planned != id;
    if (goes_on && !job->assigned.empty()) {
      places.emplace_back(ShareUnit{id, JobId()}, job->assigned);
    }
  }
  std::sort(places.begin(), places.end());
  plan = {std::nullopt, RoundAssignment(std::move(places)), {}};
}

void On(State& s, Time now, const event::RoundPlanned& e) {
  s.ledger.BookAll(now);
  s.round.ForgetPlans();
  s.round.Plan(e.jobs);
  s.trials.Plan(e.trials);
  for (const auto& [id, type] : e.claims) {
    if (Job* job = s.jobs.FindLive(id)) job->planned_claim = type;
  }
  for (const auto& [unit, places] : e.places) {
    for (const JobId id : {unit.job, unit.partner}) {
      Job* found = s.jobs.FindLive(id);
      if (found == nullptr) continue;
      Job& job = *found;
      job.planned = places;
      job.planned_partner = id == unit.job ? unit.partner : unit.job;
      if (job.assigned.empty()) {
        // An opaque job asks for no lease, so it starts only once the
        // accelerator is free.
        if (!job.AnyLive() && !job.AllDone() && !job.spec.opaque()) {
          EnsureProcesses(s, now, job, job.planned);
        }
      } else if (s.jobs.Unchanged(job, job.planned, job.planned_partner)) {
        NoticeHolders(s, job);
      }
      s.checkpoints.Prefetch(job);
    }
  }
  EndMisplaced(s, now);
}

void On(State& s, Time now, const event::RoundStarted& e) {
  s.ledger.BookAll(now);
  const std::map<JobId, PauseTier> tiers(e.tiers.begin(), e.tiers.end());
  s.round.Begin(now);
  s.trials.StartTrials(now);
  s.introspection.moving.clear();
  std::vector<AcceleratorId> next;  // reused for each job, to save allocations
  const auto begin = [&](Job& job) {
    const bool replanned = s.round.IsReplanned(job);
    next.clear();
    std::swap(next, job.planned);
    const int claimed = std::exchange(job.planned_claim, -1);
    if (!job.active() || job.pinned()) return;
    if (replanned) job.claimed = next.empty() ? -1 : claimed;
    const auto tier = tiers.find(job.id);
    if (replanned) {
      Assign(s, now, job, next, job.planned_partner,
             tier == tiers.end() ? PauseTier::kPark : tier->second);
    }
    // A worker may have asked too late in the last round to begin in it.
    if (!job.HoldsAny()) NotifyReady(s, job);
  };
  if (s.round.replanned().has_value()) {
    // Jobs that have changed since the round was planned are included.
    std::vector<JobId> jobs = *s.round.replanned();
    jobs.insert(jobs.end(), s.changes.Touched(Changes::kPlan).begin(),
                s.changes.Touched(Changes::kPlan).end());
    std::ranges::sort(jobs);
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    for (const JobId id : jobs) {
      if (Job* job = s.jobs.FindLive(id)) begin(*job);
    }
  } else {
    for (auto& [id, job] : s.jobs.live()) begin(*job);
  }
  s.round.EndPlan(/*stop=*/s.jobs.active() == 0);
  EndMisplaced(s, now);
  s.agenda.FillSoon();
}

void Fill(State& s, Time now) {
  s.agenda.BeginFill();
  if (s.round.ends_at() == kNever) return;
  ResizeJobs(s, now, now, /*keep_running=*/true);
  event::UnitsAssigned fill;
  RoundPlan plan;
  const std::vector<bool> types = FillableTypes(s);
  if (!types.empty()) {
    plan = PlanAll(s, now, /*keep_running=*/true, types);
    // Once the planned round has begun, jobs may run on other types than theirs
    // (PlaceElsewhere).
    if (plan.jobs.has_value() && !s.round.planned()) {
      s.changes.filled().Note(types);
    }
  }
  for (auto& [unit, places] : plan.places.Release()) {
    const Job& job = *s.jobs.Find(unit.job);
    if (!job.assigned.empty()) continue;
    if (unit.packed() && !s.jobs.at(unit.partner).assigned.empty()) continue;
    // Accelerators that another job is still assigned to are left to it.
    const bool free = std::ranges::all_of(
        places, [&](AcceleratorId a) { return s.assigned.IsFree(a); });
    if (free) fill.places.emplace_back(unit, std::move(places));
  }
  if (!types.empty() && !s.round.planned()) {
    PlaceElsewhere(s, now, plan.jobs, fill.places);
  }
  fill.claims = plan.places.ReleaseClaims();
  std::erase_if(fill.claims, [&](const RoundAssignment::Claim& claim) {
    return !s.jobs.at(claim.first).assigned.empty();
  });
  if (!fill.places.empty()) Record(s, now, std::move(fill));
  if (s.round.planned()) PlanRoundAhead(s, now);
}

// By type: whether some waiting job may run there, and enough accelerators of
// the type are not assigned. Empty if there is no such type.
std::vector<bool> FillableTypes(State& s) {
  const uint64_t version = s.throughputs.version();
  if (s.changes.all(Changes::kFill) || s.changes.idle().version != version)
    s.changes.idle().types.Forget();
  s.changes.idle().version = version;
  const std::vector<JobId> changed = s.changes.Take(Changes::kFill, s.jobs);
  const bool whole = PlansWhole(s);
  std::vector<bool> open(
      s.assigned.free().size());  // no job has been found yet
  for (size_t type = 0; type < open.size(); ++type) {
    open[type] = s.assigned.free()[type] > 0;
  }
  std::vector<bool> found(s.assigned.free().size(), false);
  const auto look = [&](const Job& job) {
    if (!job.assigned.empty() || !s.allocation.IsAllocated(job)) return;
    const uint32_t chosen = s.allocation.Chosen(job);
    const auto has_room = [&](size_t type) {
      return s.avoidance.CountFree(job.id, type, s.assigned) >=
             job.scale_factor;
    };
    // A job whose chosen type has no room in this round may run on any other
    // (PlaceElsewhere).
    const bool anywhere = chosen == kNoIndex || !has_room(chosen);
    for (size_t type = 0; type < open.size(); ++type) {
      if (!open[type] || !has_room(type)) continue;
      if (anywhere ? !s.figures.UsableTypes(job)[type] : type != chosen) {
        continue;
      }
      if (!s.candidates.MayRun(job)) break;
      found[type] = true;
      open[type] = false;
    }
  };
  for (const JobId id : changed) {
    if (const Job* job = s.jobs.FindLive(id)) look(*job);
  }
  for (size_t type = 0; type < open.size(); ++type) {
    const bool filled = !whole && s.changes.filled().Has(type);
    if (filled || s.changes.idle().types.Has(type)) open[type] = false;
  }
  // A million jobs may wait, so stop when no type is left to decide.
  for (const auto& [id, job] : s.jobs.waiting()) {
    if (std::ranges::find(open, true) == open.end()) break;
    look(*job);
  }
  s.changes.idle().types.Note(open);
  if (std::ranges::find(found, true) == found.end()) found.clear();
  return found;
}

void On(State& s, Time now, const event::UnitsAssigned& e) {
  // Find returns null where a damaged row names jobs that never existed.
  for (const auto& [unit, places] : e.places) {
    if (Job* job = s.jobs.Find(unit.job)) {
      job->claimed = -1;
      if (job->spec.interactive()) MakeWay(s, now, *job, places);
      Assign(s, now, *job, places, unit.partner);
    }
    Job* partner = unit.packed() ? s.jobs.Find(unit.partner) : nullptr;
    if (partner != nullptr) {
      Assign(s, now, *partner, places, unit.job);
    }
  }
  for (const auto& [id, type] : e.claims) {
    if (Job* job = s.jobs.FindLive(id)) job->claimed = type;
  }
}

void Look(State& s, Time now) {
  if (now < s.round.PlanDue()) return;
  // Some policies choose for each round anew (PolicyResult::each_round). The
  // plan is made again when the answer arrives.
  if (s.allocation.result().each_round) s.agenda.SolveSoon();
  PlanRoundAhead(s, now);
}

namespace {

// The shares of an entity are multiplied by this factor when it is one round
// behind, and by at most the other. Priorities of single units may put an
// entity of many short jobs tens of times ahead of one with a single job.
constexpr double kEntityFactor = 100;
constexpr double kEntityFactorMax = 1000;
constexpr double kServed_s = 1e-9;

}  // namespace

// Only while jobs wait: with an accelerator for each, nothing is gained.
static void WeighEntities(const State& s, RoundTable& units);
static void AddPairTrials(const State& s, RoundTable& units, Time at,
                          const std::vector<int>& left);
static void MakePlace(const State& s, const ShareUnit& unit, const Job& job,
                      RoundUnit& row);

void AddPairTrials(const State& s, RoundTable& units, Time at,
                   const std::vector<int>& left) {
  const std::vector<int>& capacity = s.cluster.Capacity();
  const std::vector<int> half =
      s.trials.TrialBudgets(s.options.profiling_percentage / 2);
  std::vector<JobId> alone;
  int wanted = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    if (units.unit(u).packed()) continue;
    alone.push_back(units.unit(u).job);
    wanted += units.scale_factor(u);
  }
  for (const int count : capacity) wanted -= count;
  if (wanted <= 0) return;
  std::set<JobId> taken;
  RoundUnit row;
  for (size_t type = 0; type < capacity.size(); ++type) {
    int budget = std::min(left[type], half[type]);
    for (size_t i = 0; i < alone.size() && budget > 0; ++i) {
      const Job& a = s.jobs.at(alone[i]);
      if (taken.contains(a.id) || a.pair_trials >= TrialBook::kPairTrialsMax)
        continue;
      for (size_t j = i + 1; j < alone.size(); ++j) {
        const Job& b = s.jobs.at(alone[j]);
        if (taken.contains(b.id) || a.spec.scale_factor > budget ||
            !s.trials.IsPairTrial(a, b, type)) {
          continue;
        }
        MakeUnit(s, {a.id, b.id}, *s.jobs.live().at(a.id), at, row);
        row.share.assign(capacity.size(), 0);
        row.usable.assign(capacity.size(), false);
        row.share[type] = 1;
        row.usable[type] = true;
        row.time_received_s[type] = 0;
        row.deficit_s[type] = kTrialDebt_s;
        units.Add(row);
        budget -= a.spec.scale_factor;
        taken.insert({a.id, b.id});
        break;
      }
    }
  }
}

RoundTable RoundUnits(const State& s, Time at, bool with_trials) {
  RoundTable units(s.cluster.types().size());
  units.Reserve(s.jobs.live().size());
  RoundUnit row;
  for (const auto& [id, job] : s.jobs.live())
    AddUnits(s, *job, at, with_trials, row, units);
  FinishUnits(s, at, units);
  if (with_trials && !s.allocation.result().is_assignment) {
    const std::vector<int> left = s.trials.AddTrials(units);
    if (s.options.packing && s.options.pair_trials) {
      AddPairTrials(s, units, at, left);
    }
  }
  return units;
}

void FinishUnits(const State& s, Time at, RoundTable& units) {
  RoundUnit row;
  const auto add_pair = [&](const ShareUnit& unit) {
    if (!unit.packed() || !s.candidates.MayRun(unit)) return;
    MakeUnit(s, unit, *s.jobs.live().at(unit.job), at, row);
    units.Add(row);
  };
  for (const TypeAssignment& entry : s.allocation.result().assignment)
    add_pair(entry.unit);
  const std::span<const ShareUnit> allocated =
      s.allocation.result().allocation.units();
  for (size_t u = 0; u < allocated.size(); ++u) {
    if (allocated[u].packed() &&
        IsShare(s.allocation.result().allocation.RowAt(u))) {
      add_pair(allocated[u]);
    }
  }
  if (!s.options.entities.empty() && !s.allocation.result().is_assignment) {
    WeighEntities(s, units);
  }
}

// A priority compares units. It does not see the time that an entity had
// through jobs that have ended, or through many short ones. Therefore the
// shares of an entity that is ahead of its own share are lowered, and those of
// one that is behind are raised. One factor for all units of an entity keeps
// their order among each other. An entity is ahead only as far as others are
// behind: time that nobody else could use is free. The move-aware mechanism
// orders by deficits, so it gets a correction of the deficits instead.
void WeighEntities(const State& s, RoundTable& units) {
  const size_t types = units.types();
  const std::vector<PolicyEntity>& entities = s.options.entities;
  std::map<std::string_view, size_t> number_of;
  for (size_t e = 0; e < entities.size(); ++e) number_of[entities[e].name] = e;
  // The last one is of all jobs without an entity.
  struct Standing {
    std::vector<double> ahead_s;  // [J] accelerator-seconds
    std::vector<double> share;    // [J] accelerators
  };
  std::vector<Standing> standings(
      entities.size() + 1,
      {std::vector<double>(types), std::vector<double>(types)});
  const auto entity_of = [&](JobId id) {
    const Job* const job = s.jobs.Find(id);
    if (job == nullptr) return entities.size();  // see Engine::AddToLine
    const auto found = number_of.find(job->spec.entity);
    return found == number_of.end() ? entities.size() : found->second;
  };
  // Calls visit(entity, part of the unit) for each job of the unit.
  const auto visit = [&](size_t u, const auto& of) {
    const ShareUnit& unit = units.unit(u);
    if (!unit.packed()) return of(entity_of(unit.job), 1.0);
    of(entity_of(unit.job), 0.5);
    of(entity_of(unit.partner), 0.5);
  };
  for (size_t u = 0; u < units.size(); ++u) {
    visit(u, [&](size_t e, double part) {
      for (size_t j = 0; j < types; ++j) {
        const double accelerators = part * units.scale_factor(u);
        standings[e].ahead_s[j] -= accelerators * units.deficit_s(u)[j];
        standings[e].share[j] += accelerators * units.share(u)[j];
      }
    });
  }
  const bool by_debt = s.terms.mechanism() == MechanismKind::kMoveAware;
  for (size_t e = 0; e < entities.size(); ++e) {
    const std::span<const double> ended = s.ledger.EndedAhead(entities[e].name);
    for (size_t j = 0; j < std::min(types, ended.size()); ++j) {
      standings[e].ahead_s[j] += ended[j];
    }
  }
  for (size_t j = 0; j < types; ++j) {
    double ahead_s = 0;
    double behind_s = 0;
    for (const Standing& one : standings) {
      (one.ahead_s[j] > 0 ? ahead_s : behind_s) += std::abs(one.ahead_s[j]);
    }
    for (Standing& one : standings) {
      if (one.ahead_s[j] > 0 && ahead_s > behind_s) {
        one.ahead_s[j] *= behind_s / ahead_s;
      }
    }
  }
  const double round_s = s.terms.round_duration_s();
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t j = 0; j < types; ++j) {
      double ahead_rounds = 0;
      double owed_s = 0;
      double served_s = 0;
      visit(u, [&](size_t e, double part) {
        const double share = standings[e].share[j];
        if (e == entities.size() || !(share > 0)) return;
        ahead_rounds +=
            part * standings[e].ahead_s[j] / (round_s * std::max(1.0, share));
        owed_s -= standings[e].ahead_s[j] * part * units.share(u)[j] / share;
        if (by_debt) served_s = kServed_s;
      });
      if (by_debt) {
        units.deficit_s(u)[j] += owed_s;
        // A new job has a head start there, but its entity is not new.
        units.received_s(u)[j] = std::max(units.received_s(u)[j], served_s);
      } else {
        units.share(u)[j] *= std::clamp(std::pow(kEntityFactor, -ahead_rounds),
                                        1 / kEntityFactorMax, kEntityFactorMax);
      }
    }
  }
}

void AddUnits(const State& s, const Job& job, std::optional<Time> at,
              bool with_trials, RoundUnit& row, RoundTable& units) {
  if (!s.candidates.MayRun(job) || job.pinned() ||
      (job.assigned.empty() && !s.allocation.IsAllocated(job)))
    return;
  const auto make = [&](const ShareUnit& unit) {
    at.has_value() ? MakeUnit(s, unit, job, *at, row)
                   : MakePlace(s, unit, job, row);
  };
  make({job.id, JobId()});
  // A job that must not be disturbed keeps the size that it runs with.
  if (!with_trials && !job.assigned.empty()) {
    row.scale_factor = static_cast<int>(job.assigned.size());
  }
  units.Add(row);
  const ShareUnit running = s.jobs.UnitOf(job);
  if (running.packed() && running.job == job.id &&
      !s.allocation.HasShare(running)) {
    make(running);
    units.Add(row);
  }
}

// Fills the fields that decide where a unit goes. The row may have been another
// unit's.
void MakePlace(const State& s, const ShareUnit& unit, const Job& job,
               RoundUnit& row) {
  const Worker& first = job.workers.front();
  row.unit = unit;
  row.scale_factor = job.scale_factor;
  row.holds.clear();
  row.home_server.clear();
  row.home = AcceleratorId();
  row.claimed = job.claimed < 0 ? kNoIndex : static_cast<uint32_t>(job.claimed);
  if (job.chosen_host.valid() && job.chosen != kNoIndex) {
    row.home_server = s.cluster.accelerator(job.chosen_host).server;
  } else if (first.process == ProcessState::kJoined) {
    row.home_server = first.server;
  }
  if (first.process == ProcessState::kJoined &&
      first.server == row.home_server) {
    row.home = first.sees_only.valid() ? first.sees_only : first.left_on;
  }
  if (s.jobs.UnitOf(job) == unit) row.holds = job.assigned;
}

// The policy gives a share to a pair with the job.
static bool HasPairs(const State& s, const Job& job) {
  const std::span<const ShareUnit> units =
      s.allocation.result().allocation.units();
  return std::ranges::any_of(units, [&](const ShareUnit& unit) {
    return unit.packed() && (unit.job == job.id || unit.partner == job.id);
  });
}

// A process of the job was launched where the job is assigned, and has not
// spoken yet.
static bool IsStarting(const Job& job, Time at) {
  return std::ranges::any_of(job.workers, [at](const Worker& worker) {
    return worker.launched_on.valid() && !worker.leaving &&
           worker.launch_sent_at <= at;
  });
}

// It could run on several types, its speed on this one is not known, and its
// lease is younger than a round: a move now would teach nothing, and cost the
// start of its process.
static bool IsAboutToBeMeasured(const State& s, const Job& job, size_t type,
                                const RoundUnit& row, Time at) {
  if (std::ranges::count(row.usable, true) < 2) return false;
  const double round_s = s.terms.round_duration_s();
  const bool is_new =
      std::ranges::any_of(job.workers, [&](const Worker& worker) {
        return worker.held_epoch != 0 && at - worker.leased_at < round_s;
      });
  return is_new && s.throughputs.NeedsTrial(job.id, s.cluster.types()[type]);
}

void MakeUnit(const State& s, const ShareUnit& unit, const Job& job, Time at,
              RoundUnit& row) {
  MakePlace(s, unit, job, row);
  const size_t types = s.cluster.types().size();
  const std::span<const double> allocated = s.allocation.Allocated(unit);
  row.share.assign(allocated.begin(), allocated.end());
  row.share.resize(types, 0);
  const uint32_t chosen =
      unit.packed() ? s.allocation.Chosen(unit) : s.allocation.Chosen(job);
  if (chosen != kNoIndex) row.share[chosen] = 1;
  s.ledger.time_received().Rows(unit, types, row.time_received_s,
                                row.deficit_s);
  if (unit.packed()) {
    row.usable.clear();
    for (const double share : row.share) row.usable.push_back(share > 0);
  } else {
    row.usable = s.figures.UsableTypes(job);
  }
  row.worth.clear();
  if (!s.allocation.result().is_assignment) {
    AddWorth(s.allocation.result().worth,
             {s.throughputs, s.cluster.types(), s.allocation.prices()}, unit,
             job, row);
  }
  row.preempt_cost_s = row.move_cost_s = row.owed_part = 0;
  AddCosts(job, row);
  if (unit.packed()) AddCosts(s.jobs.at(unit.partner), row);
  if (row.holds.empty()) return;
  const auto type = static_cast<size_t>(s.cluster.TypeOf(row.holds.front()));
  row.usable[type] = true;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch == 0) continue;
    const double seconds =
        std::max(0.0, at - worker.accrued_at) / worker.world_size;
    const size_t booked = job.BookedType(s.cluster.TypeOf(worker.held), types);
    row.time_received_s[booked] += seconds;
    if (s.allocation.result().is_assignment) continue;  // see Book
    row.deficit_s[booked] -= seconds;
  }
  // A process that has not spoken would be ended with its turn, and start anew
  // in the next one. A job whose start takes longer than a round would never
  // train. So the job keeps its accelerators until its processes have spoken,
  // for the start timeout at most. Not where the policy chooses a type for each
  // job, or pairs: there a start has to fit into a round.
  if (unit.packed() || s.allocation.result().is_assignment) return;
  if (!IsStarting(job, at) && !IsAboutToBeMeasured(s, job, type, row, at)) {
    return;
  }
  if (HasPairs(s, job)) return;
  row.share[type] = 1;
  row.time_received_s[type] = 0;
  row.deficit_s[type] = kStartDebt_s;
  std::ranges::fill(row.worth, 0.0);
}

static bool IsSettled(const State& s, const Job& job);
static std::optional<std::vector<JobId>> Unsettled(State& s);
static RoundAssignment PlaceJobs(State& s, Time at,
                                 const std::vector<JobId>& jobs,
                                 bool keep_running,
                                 const std::vector<bool>& types);

bool PlansWhole(const State& s) {
  const std::vector<int>& capacity = s.cluster.Capacity();
  const int usable = std::accumulate(capacity.begin(), capacity.end(), 0);
  return !s.allocation.result().is_assignment || s.options.packing ||
         s.options.introspection || s.jobs.elastic() ||
         static_cast<size_t>(usable) != s.cluster.size() ||
         s.agents.any_own_checkpoints();
}

// It is where it is to be in the next round, and runs there or waits.
bool IsSettled(const State& s, const Job& job) {
  if (job.pinned()) return true;
  const uint32_t chosen =
      s.candidates.MayRun(job) ? s.allocation.Chosen(job) : kNoIndex;
  if (job.assigned.empty()) return chosen == kNoIndex;
  return chosen != kNoIndex && job.HoldsAny() &&
         !s.jobs.Together(job, job.partner) &&
         chosen ==
             static_cast<uint32_t>(s.cluster.TypeOf(job.assigned.front())) &&
         static_cast<int>(job.assigned.size()) == job.scale_factor;
}

// The live jobs that are not settled, ascending; nullopt: all jobs are planned.
std::optional<std::vector<JobId>> Unsettled(State& s) {
  const bool whole = PlansWhole(s);
  const bool all = s.changes.all(Changes::kPlan);
  const std::vector<JobId> changed = s.changes.Take(Changes::kPlan, s.jobs);
  s.changes.SetAll(Changes::kPlan, whole);
  if (all) {
    s.unsettled.clear();
    if (!whole) {
      for (const auto& [id, job] : s.jobs.live()) s.unsettled.push_back(id);
    }
  } else {
    s.unsettled.insert(s.unsettled.end(), changed.begin(), changed.end());
  }
  if (whole) return std::nullopt;
  std::sort(s.unsettled.begin(), s.unsettled.end());
  s.unsettled.erase(std::unique(s.unsettled.begin(), s.unsettled.end()),
                    s.unsettled.end());
  std::erase_if(s.unsettled, [&](JobId id) {
    const Job* job = s.jobs.FindLive(id);
    return job == nullptr || IsSettled(s, *job);
  });
  return s.unsettled;
}

RoundPlan PlanAll(State& s, Time at, bool keep_running,
                  const std::vector<bool>& types) {
  RoundPlan plan{Unsettled(s), {}};
  if (plan.jobs.has_value()) {
    plan.places = PlaceJobs(s, at, *plan.jobs, keep_running, types);
  } else {
    RoundTable units = RoundUnits(s, at, !keep_running);
    units.SetSlow(s.speeds.slow());
    units.SetAvoided(s.avoidance.At(at));
    if (s.allocation.result().is_assignment) {
      std::vector<uint32_t> chosen(units.size());
      for (size_t u = 0; u < chosen.size(); ++u) {
        chosen[u] = s.allocation.Chosen(units.unit(u));
      }
      plan.places = PlaceAssignment(s.cluster, units, chosen);
    } else {
      RoundOptions options;
      options.mechanism = s.terms.mechanism();
      options.queue = s.terms.queue();
      options.round_duration_s = s.terms.round_duration_s();
      options.keep_running = keep_running;
      options.leftovers_by_worth =
          s.allocation.result().worth >= TypeWorth::kThroughput;
      plan.places = PlanRound(s.cluster, units, options);
      plan.trials = s.trials.TrialsOf(units, plan.places);
    }
  }
  plan.places.EraseIf([&](const auto& entry) {
    return !s.checkpoints.ShareCheckpoints(entry.second);
  });
  return plan;
}

// On what nobody has, and on what these jobs have.
RoundAssignment PlaceJobs(State& s, Time at, const std::vector<JobId>& jobs,
                          bool keep_running, const std::vector<bool>& types) {
  const auto is_meant = [&](size_t type) {
    return types.empty() || types[type];
  };
  RoundTable units(/*types=*/0);
  units.Reserve(jobs.size());
  units.SetSlow(s.speeds.slow());
  units.SetAvoided(s.avoidance.At(at));
  RoundUnit row;
  std::vector<uint32_t> chosen;
  std::vector<AcceleratorId> own;
  for (const JobId id : jobs) {
    const Job& job = *s.jobs.FindLive(id);
    for (const AcceleratorId place : job.assigned) {
      if (is_meant(static_cast<size_t>(s.cluster.TypeOf(place))))
        own.push_back(place);
    }
    const uint32_t type = s.allocation.Chosen(job);
    if (type != kNoIndex && !is_meant(type)) continue;
    AddUnits(s, job, std::nullopt, !keep_running, row, units);
    while (chosen.size() < units.size()) {
      const ShareUnit& unit = units.unit(chosen.size());
      chosen.push_back(unit.packed() ? s.allocation.Chosen(unit) : type);
    }
  }
  // Two that ran as a pair have the same.
  std::ranges::sort(own);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  FreePlaces& free = s.assigned.Places();
  for (const AcceleratorId place : own) free.Release(place);
  RoundAssignment plan = PlaceAssignment(s.cluster, units, chosen, &free);
  for (const auto& [unit, places] : plan) {
    for (const AcceleratorId place : places) free.Release(place);
  }
  for (const AcceleratorId place : own) free.Claim(place);
  return plan;
}

void PlaceElsewhere(State& s, Time at,
                    const std::optional<std::vector<JobId>>& jobs,
                    std::vector<RoundAssignment::Entry>& places) {
  if (!s.allocation.result().is_assignment) return;
  const std::vector<int>& free_now = s.assigned.free();
  if (std::ranges::all_of(free_now, [](int free) { return free == 0; })) return;
  FreePlaces& free = s.assigned.Places();
  std::vector<int> left = free_now;
  std::set<JobId> placed;
  for (const auto& [unit, taken] : places) {
    placed.insert({unit.job, unit.partner});
    left[static_cast<size_t>(s.cluster.TypeOf(taken.front()))] -=
        static_cast<int>(taken.size());
  }
  RoundTable units(/*types=*/0);
  units.SetSlow(s.speeds.slow());
  units.SetAvoided(s.avoidance.At(at));
  RoundUnit row;
  std::vector<uint32_t> types;
  const auto add = [&](const Job& job) {
    if (!job.assigned.empty() || s.allocation.Chosen(job) == kNoIndex ||
        placed.contains(job.id) || !s.candidates.MayRun(job)) {
      return;
    }
    uint32_t best = kNoIndex;
    const std::vector<bool>& usable = s.figures.UsableTypes(job);
    for (uint32_t type = 0; type < left.size(); ++type) {
      if (!usable[type] || left[type] < job.scale_factor ||
          s.avoidance.CountFree(job.id, type, s.assigned) < job.scale_factor) {
        continue;
      }
      if (best == kNoIndex || job.steps_per_s[type] > job.steps_per_s[best]) {
        best = type;
      }
    }
    if (best == kNoIndex) return;
    AddUnits(s, job, std::nullopt, /*with_trials=*/false, row, units);
    if (types.size() == units.size()) return;
    types.resize(units.size(), best);
    left[best] -= job.scale_factor;
  };
  if (jobs.has_value()) {
    for (const JobId id : *jobs) add(*s.jobs.FindLive(id));
  } else {
    for (const auto& [id, job] : s.jobs.live()) add(*job);
  }
  if (types.empty()) return;
  for (const auto& [unit, taken] : places) {
    for (const AcceleratorId place : taken) free.Claim(place);
  }
  RoundAssignment elsewhere = PlaceAssignment(s.cluster, units, types, &free);
  for (RoundAssignment::Entry& entry : elsewhere.Release()) {
    places.push_back(std::move(entry));
  }
  for (const auto& [unit, taken] : places) {
    for (const AcceleratorId place : taken) free.Release(place);
  }
  std::erase_if(places, [&](const RoundAssignment::Entry& entry) {
    return !s.checkpoints.ShareCheckpoints(entry.second);
  });
  std::ranges::sort(places);
}

}  // namespace gavel::engine

namespace gavel {
namespace {

// More workers are worth having if they give at least this part of the ideal
// speed-up, which is proportional to the number of workers.
constexpr double kEfficiencyMin = 0.25;

bool IsFasterByEnough(double before_steps_per_s, int before,
                      double after_steps_per_s, int after) {
  const double ideal = static_cast<double>(after) / before - 1;
  return after_steps_per_s >= before_steps_per_s * (1 + kEfficiencyMin * ideal);
}

class Sizes {
 public:
  Sizes(std::vector<SizedJob> jobs, std::vector<int> free,
        const std::vector<int>& capacity, const std::vector<std::string>& types,
        const ElasticOptions& options)
      : jobs_(std::move(jobs)),
        free_(std::move(free)),
        capacity_(capacity),
        types_(types),
        options_(options),
        before_(jobs_.size()),
        reasons_(jobs_.size()),
        blocked_(free_.size(), false) {
    for (size_t i = 0; i < jobs_.size(); ++i) before_[i] = jobs_[i].size;
  }

  std::vector<Resize> Choose() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].type.has_value()) continue;
      came_.push_back(i);
      MakeWayFor(i);
    }
    for (const size_t i : came_) KeepSize(i);
    if (!options_.keep_running) {
      for (size_t i = 0; i < jobs_.size(); ++i) GiveBackSlow(i);
    }
    Grow(&SizedJob::size_asked);
    Grow(&SizedJob::size_max);
    std::vector<Resize> resizes;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].size == before_[i]) continue;
      resizes.push_back({jobs_[i].id, jobs_[i].size, reasons_[i]});
    }
    return resizes;
  }

 private:
  double Speed(const SizedJob& job, int size) const {
    return job.speed(*job.type, size).steps_per_s;
  }

  // The change of speed from `from` to `to` workers, as a part of the speed at
  // the size that the job asked for: steps of different jobs can't be compared.
  double Gain(const SizedJob& job, int from, int to) const {
    const double asked = Speed(job, job.size_asked);
    if (!(asked > 0)) return 0;
    return (Speed(job, to) - Speed(job, from)) / asked;
  }

  // ---- 1. make room for waiting jobs

  void MakeWayFor(size_t i) {
    if (FitInto(i)) return;
    const SizedJob& job = jobs_[i];
    const auto missing = [&](size_t type) {
      return job.size_min - free_[type];
    };
    std::optional<size_t> best;
    for (size_t type = 0; type < free_.size(); ++type) {
      if (options_.keep_running || !job.usable[type] ||
          missing(type) > Spare(type)) {
        continue;
      }
      if (!best || missing(type) < missing(*best)) best = type;
    }
    if (!best) return Block(job);
    while (missing(*best) > 0) TakeOne(*best, job);
    FitInto(i);
  }

  // Blocks growth on each type that could hold the waiting job: it may need the
  // idle accelerators there in the next round.
  void Block(const SizedJob& job) {
    for (size_t type = 0; type < free_.size(); ++type) {
      if (job.usable[type] && capacity_[type] >= job.size_min) {
        blocked_[type] = true;
      }
    }
  }

  // Places the job on the usable type with the most free accelerators. Returns
  // false if no type has enough.
  bool FitInto(size_t i) {
    SizedJob& job = jobs_[i];
    std::optional<size_t> best;
    for (size_t type = 0; type < free_.size(); ++type) {
      if (!job.usable[type] || free_[type] < job.size_min) continue;
      if (!best || free_[type] > free_[*best]) best = type;
    }
    if (!best) return false;
    job.type = best;
    const int idle = free_[*best];
    const int size = std::min(job.size_asked, idle);
    if (size < job.size) {
      reasons_[i] = reason::ShrunkToFit{types_[*best]};
    } else if (size > job.size) {
      reasons_[i] = reason::Grown{types_[*best], idle,
                                  Speed(job, size) - Speed(job, job.size)};
    }
    job.size = size;
    free_[*best] -= size;
    return true;
  }

  // FitInto may have given the job fewer workers than it had before. This gives
  // it as many of them back as are free on a type that is not blocked.
  void KeepSize(size_t i) {
    SizedJob& job = jobs_[i];
    if (!job.type || blocked_[*job.type] || job.size >= before_[i]) return;
    const int more = std::min(before_[i] - job.size, free_[*job.type]);
    job.size += more;
    free_[*job.type] -= more;
  }

  int Spare(size_t type) const {
    int spare = 0;
    for (const SizedJob& job : jobs_) {
      if (job.type == type) spare += job.size - job.size_min;
    }
    return spare;
  }

  void TakeOne(size_t type, const SizedJob& waiting) {
    std::optional<size_t> giver;
    double least = std::numeric_limits<double>::infinity();
    bool spares = false;  // it has more than it asked for
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const SizedJob& job = jobs_[i];
      if (job.type != type || job.size <= job.size_min) continue;
      const bool beyond = job.size > job.size_asked;
      const double loss = Gain(job, job.size - 1, job.size);
      if (giver && (spares && !beyond)) continue;
      if (giver && spares == beyond && loss > least) continue;
      giver = i;
      least = loss;
      spares = beyond;
    }
    --jobs_[*giver].size;
    ++free_[type];
    reasons_[*giver] = reason::ShrunkForJob{types_[type], waiting.id};
  }

  // ---- 2. give back workers that do not pay

  void GiveBackSlow(size_t i) {
    SizedJob& job = jobs_[i];
    if (!job.type || job.rests || job.size <= job.size_asked) return;
    const Throughput now = job.speed(*job.type, job.size);
    if (now.source == ThroughputSource::kGuessed) return;
    for (int size = job.size_asked; size < job.size; ++size) {
      const Throughput less = job.speed(*job.type, size);
      if (less.source == ThroughputSource::kGuessed ||
          IsFasterByEnough(less.steps_per_s, size, now.steps_per_s, job.size)) {
        continue;
      }
      free_[*job.type] += job.size - size;
      job.size = size;
      job.rests = true;
      reasons_[i] = reason::ShrunkSlow{types_[*job.type], now.steps_per_s,
                                       less.steps_per_s};
      return;
    }
  }

  // ---- 3. grow into idle accelerators

  void Grow(int SizedJob::*bound) {
    const std::vector<int> idle = free_;
    std::vector<int> sizes;
    for (const SizedJob& job : jobs_) sizes.push_back(job.size);
    while (std::optional<size_t> next = MostGain(bound)) {
      ++jobs_[*next].size;
      --free_[*jobs_[*next].type];
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      SizedJob& job = jobs_[i];
      if (job.size == sizes[i]) continue;
      const double before = Speed(job, before_[i]);
      const double gain = Speed(job, job.size) - before;
      if (gain * options_.horizon_s <=
          Speed(job, job.size) * job.resize_cost_s) {
        free_[*job.type] += job.size - sizes[i];
        job.size = sizes[i];
        continue;
      }
      reasons_[i] = reason::Grown{types_[*job.type], idle[*job.type], gain};
    }
  }

  std::optional<size_t> MostGain(int SizedJob::*bound) const {
    std::optional<size_t> most;
    double gain = 0;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const SizedJob& job = jobs_[i];
      if (!MayGrow(i) || job.size >= job.*bound) continue;
      const double own = Gain(job, job.size, job.size + 1);
      if (own <= gain) continue;
      most = i;
      gain = own;
    }
    return most;
  }

  // The speed at the present size must not be a guess: otherwise the gain could
  // not be computed.
  bool MayGrow(size_t i) const {
    const SizedJob& job = jobs_[i];
    if (!job.type || job.rests || free_[*job.type] == 0 ||
        blocked_[*job.type] || job.size < before_[i] ||
        (options_.keep_running && !job.starts)) {
      return false;
    }
    const Throughput now = job.speed(*job.type, before_[i]);
    return now.source != ThroughputSource::kGuessed &&
           IsFasterByEnough(now.steps_per_s, before_[i],
                            Speed(job, job.size + 1), job.size + 1);
  }

  std::vector<SizedJob> jobs_;
  std::vector<int> free_;
  const std::vector<int>& capacity_;
  const std::vector<std::string>& types_;
  const ElasticOptions options_;
  std::vector<int> before_;
  std::vector<Reason> reasons_;
  std::vector<size_t> came_;   // jobs that waited
  std::vector<bool> blocked_;  // by type: a waiting job could use it
};

}  // namespace

std::vector<Resize> ChooseSizes(std::vector<SizedJob> jobs,
                                std::vector<int> free,
                                const std::vector<int>& capacity,
                                const std::vector<std::string>& types,
                                const ElasticOptions& options) {
  return Sizes(std::move(jobs), std::move(free), capacity, types, options)
      .Choose();
}

}  // namespace gavel
