#include "coordinator/engine/rounds.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/state.h"

namespace gavel::engine {

static std::vector<SizedJob> SizedJobs(State& s, Time now,
                                       const RoundAssignment& plan);
static bool IsLeftOut(State& s, Job& job, const std::vector<int>& free);
static void DropGrowth(State& s, const RoundAssignment& plan, Time at,
                       std::vector<Resize>& resizes);

void ResizeJobs(State& s, Time now, Time at, bool keep_running) {
  if (!s.jobs.elastic()) return;
  const bool any = std::ranges::any_of(s.jobs.live(), [](const auto& entry) {
    return entry.second->active() && entry.second->spec.elastic();
  });
  if (!any) return;
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
    if (!s.candidates.MayRun(*job)) continue;
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
      return s.throughputs.AtSize(id, s.cluster.types()[type], size);
    };
  }
  return jobs;
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
  // The journal records the place of every job, and renewals of leases need
  // it.
  if (s.options.journal || s.options.renewals) Complete(s, plan);
  Record(
      s, now,
      event::RoundPlanned{plan.places.Release(), std::move(plan.jobs),
                          std::move(plan.trials), plan.places.ReleaseClaims()});
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
    if (plan.jobs.has_value()) s.changes.filled().Note(types);
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

// By type: some waiting job may run there, and enough accelerators of the type
// are not assigned. Empty: there is no such type.
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
    // A job whose chosen type has no room in this round may run on any other
    // (Planner::PlaceElsewhere), unless the next round is planned already: then
    // it would not be there for long.
    const bool anywhere =
        chosen == kNoIndex ||
        (s.assigned.free()[chosen] < job.scale_factor && !s.round.planned());
    for (size_t type = 0; type < open.size(); ++type) {
      if (!open[type] || s.assigned.free()[type] < job.scale_factor) continue;
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

}  // namespace gavel::engine
