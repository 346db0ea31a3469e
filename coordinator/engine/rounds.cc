#include "coordinator/engine/rounds.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gavel::engine {

void Resizing::ResizeJobs(Time now, Time at, bool keep_running) {
  if (!jobs_.elastic()) return;
  const bool any = std::ranges::any_of(jobs_.live(), [](const auto& entry) {
    return entry.second->active() && entry.second->spec.elastic();
  });
  if (!any) return;
  const RoundAssignment plan = planner_.PlanAll(at, keep_running).places;
  const std::vector<int>& capacity = cluster_.Capacity();
  std::vector<int> free = capacity;
  for (const auto& [unit, places] : plan) {
    free[static_cast<size_t>(cluster_.TypeOf(places.front()))] -=
        static_cast<int>(places.size());
  }
  std::vector<SizedJob> jobs = SizedJobs(now, plan);
  std::erase_if(jobs, [&](const SizedJob& job) {
    return !job.type.has_value() && IsLeftOut(jobs_.at(job.id), free);
  });
  std::vector<Resize> resizes = ChooseSizes(
      std::move(jobs), std::move(free), capacity, cluster_.types(),
      {options_.resize_rounds * terms_.round_duration_s(), keep_running});
  if (!keep_running) DropGrowth(plan, at, resizes);
  if (!resizes.empty())
    recorder_.Record(now, event::JobsResized{std::move(resizes)});
}

std::vector<SizedJob> Resizing::SizedJobs(Time now,
                                          const RoundAssignment& plan) {
  std::map<JobId, size_t> type_of;
  std::map<JobId, int> size_of;
  for (const auto& [unit, places] : plan) {
    for (const JobId id : {unit.job, unit.partner}) {
      if (!id.valid()) continue;
      type_of[id] = static_cast<size_t>(cluster_.TypeOf(places.front()));
      size_of[id] = static_cast<int>(places.size());
    }
  }
  std::vector<SizedJob> jobs;
  for (const auto& [id, job] : jobs_.live()) {
    if (!candidates_.MayRun(*job)) continue;
    SizedJob& sized = jobs.emplace_back();
    sized.id = id;
    sized.size_min = job->spec.LeastWorkers();
    sized.size_asked = job->spec.scale_factor;
    sized.size_max = job->spec.MostWorkers();
    const auto planned = type_of.find(id);
    if (planned != type_of.end()) sized.type = planned->second;
    sized.size = sized.type ? size_of[id] : job->scale_factor;
    sized.usable = figures_.UsableTypes(*job);
    sized.rests = now - job->resized_at <
                  options_.resize_rounds * terms_.round_duration_s();
    RoundUnit costs;
    AddCosts(*job, costs);
    sized.starts = job->assigned.empty();
    if (!sized.starts) {
      sized.resize_cost_s =
          job->resize_s >= 0 ? job->resize_s : costs.preempt_cost_s;
    }
    sized.speed = [this, id = id](size_t type, int size) {
      return throughputs_.AtSize(id, cluster_.types()[type], size);
    };
  }
  return jobs;
}

// Whether the policy gives the job nothing though there is room for it. The
// policy means it so, and no other job has to shrink for this one. A type with
// fewer accelerators than the job asked for does not count: there the policy
// could give it nothing. While an answer is due, the last result stands.
bool Resizing::IsLeftOut(Job& job, const std::vector<int>& free) const {
  if (job.target_share > 0 || agenda_.unsolved() || solver_.solving())
    return job.left_out;
  const std::vector<int>& capacity = cluster_.Capacity();
  for (size_t type = 0; type < free.size(); ++type) {
    const bool usable = figures_.UsableTypes(job)[type];
    job.left_out |= usable && capacity[type] >= job.scale_factor &&
                    free[type] >= job.spec.LeastWorkers();
  }
  return job.left_out;
}

// The mechanism places jobs by priority, so a job that grows may displace
// another one that is in the plan. If that happens, no job grows.
void Resizing::DropGrowth(const RoundAssignment& plan, Time at,
                          std::vector<Resize>& resizes) {
  std::map<JobId, int> before;
  for (const Resize& resize : resizes) {
    int& size = jobs_.at(resize.job).scale_factor;
    before[resize.job] = size;
    size = resize.scale_factor;
  }
  const RoundAssignment grown =
      planner_.PlanAll(at, /*keep_running=*/false).places;
  const bool all = std::ranges::all_of(
      plan, [&](const auto& entry) { return grown.contains(entry.first); });
  for (const auto& [id, size] : before) jobs_.at(id).scale_factor = size;
  if (all) return;
  std::erase_if(resizes, [&](const Resize& resize) {
    return resize.scale_factor > before.at(resize.job);
  });
}

void Resizing::On(Time now, const event::JobsResized& e) {
  for (const Resize& resize : e.resizes) {
    Job* job = jobs_.Find(resize.job);
    if (job == nullptr || !job->active()) continue;
    changes_.Touch(*job);
    job->scale_factor = resize.scale_factor;
    job->resize_reason = resize.reason;
    job->resized_at = now;
    const auto size = static_cast<size_t>(resize.scale_factor);
    if (job->workers.size() < size) job->workers.resize(size);
  }
  agenda_.SolveSoon();
}

void Rounds::PlanRoundAhead(Time now) {
  ledger_.BookAll(now);
  resizing_.ResizeJobs(now, round_.ends_at(), /*keep_running=*/false);
  RoundPlan plan = planner_.PlanAll(round_.ends_at(), /*keep_running=*/false);
  // The journal records the place of every job, and renewals of leases need
  // it.
  if (options_.journal || options_.renewals) Complete(plan);
  recorder_.Record(
      now,
      event::RoundPlanned{plan.places.Release(), std::move(plan.jobs),
                          std::move(plan.trials), plan.places.ReleaseClaims()});
}

// Adds the jobs that continue as they are to the plan.
void Rounds::Complete(RoundPlan& plan) const {
  if (!plan.jobs.has_value()) return;
  std::vector<RoundAssignment::Entry> places = plan.places.Release();
  auto planned = plan.jobs->begin();
  for (const auto& [id, job] : jobs_.live()) {
    while (planned != plan.jobs->end() && *planned < id) ++planned;
    const bool goes_on = planned == plan.jobs->end() || *planned != id;
    if (goes_on && !job->assigned.empty()) {
      places.emplace_back(ShareUnit{id, JobId()}, job->assigned);
    }
  }
  std::sort(places.begin(), places.end());
  plan = {std::nullopt, RoundAssignment(std::move(places)), {}};
}

void Rounds::On(Time now, const event::RoundPlanned& e) {
  ledger_.BookAll(now);
  round_.ForgetPlans();
  round_.Plan(e.jobs);
  trials_.Plan(e.trials);
  for (const auto& [id, type] : e.claims) {
    if (Job* job = jobs_.FindLive(id)) job->planned_claim = type;
  }
  for (const auto& [unit, places] : e.places) {
    for (const JobId id : {unit.job, unit.partner}) {
      Job* found = jobs_.FindLive(id);
      if (found == nullptr) continue;
      Job& job = *found;
      job.planned = places;
      job.planned_partner = id == unit.job ? unit.partner : unit.job;
      if (job.assigned.empty()) {
        // An opaque job asks for no lease, so it starts only once the
        // accelerator is free.
        if (!job.AnyLive() && !job.AllDone() && !job.spec.opaque()) {
          processes_.EnsureProcesses(now, job, job.planned);
        }
      } else if (jobs_.Unchanged(job, job.planned, job.planned_partner)) {
        processes_.NoticeHolders(job);
      }
      checkpoints_.Prefetch(job);
    }
  }
  processes_.EndMisplaced(now);
}

void Rounds::On(Time now, const event::RoundStarted& e) {
  ledger_.BookAll(now);
  const std::map<JobId, PauseTier> tiers(e.tiers.begin(), e.tiers.end());
  round_.Begin(now);
  trials_.StartTrials(now);
  std::vector<AcceleratorId> next;  // reused for each job, to save allocations
  const auto begin = [&](Job& job) {
    const bool replanned = round_.IsReplanned(job);
    next.clear();
    std::swap(next, job.planned);
    const int claimed = std::exchange(job.planned_claim, -1);
    if (!job.active() || job.pinned()) return;
    if (replanned) job.claimed = next.empty() ? -1 : claimed;
    const auto tier = tiers.find(job.id);
    if (replanned) {
      assignments_.Assign(
          now, job, next, job.planned_partner,
          tier == tiers.end() ? PauseTier::kPark : tier->second);
    }
    // A worker may have asked too late in the last round to begin in it.
    if (!job.HoldsAny()) processes_.NotifyReady(job);
  };
  if (round_.replanned().has_value()) {
    // Jobs that have changed since the round was planned are included.
    std::vector<JobId> jobs = *round_.replanned();
    jobs.insert(jobs.end(), changes_.Touched(Changes::kPlan).begin(),
                changes_.Touched(Changes::kPlan).end());
    std::ranges::sort(jobs);
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    for (const JobId id : jobs) {
      if (Job* job = jobs_.FindLive(id)) begin(*job);
    }
  } else {
    for (auto& [id, job] : jobs_.live()) begin(*job);
  }
  round_.EndPlan(/*stop=*/jobs_.active() == 0);
  processes_.EndMisplaced(now);
  agenda_.FillSoon();
}

void Rounds::Fill(Time now) {
  agenda_.BeginFill();
  if (round_.ends_at() == kNever) return;
  resizing_.ResizeJobs(now, now, /*keep_running=*/true);
  event::UnitsAssigned fill;
  RoundPlan plan;
  const std::vector<bool> types = FillableTypes();
  if (!types.empty()) {
    plan = planner_.PlanAll(now, /*keep_running=*/true, types);
    if (plan.jobs.has_value()) changes_.filled().Note(types);
  }
  for (auto& [unit, places] : plan.places.Release()) {
    const Job& job = *jobs_.Find(unit.job);
    if (!job.assigned.empty()) continue;
    if (unit.packed() && !jobs_.at(unit.partner).assigned.empty()) continue;
    // Accelerators that another job is still assigned to are left to it.
    const bool free = std::ranges::all_of(
        places, [&](AcceleratorId a) { return assigned_.IsFree(a); });
    if (free) fill.places.emplace_back(unit, std::move(places));
  }
  if (!types.empty() && !round_.planned()) {
    planner_.PlaceElsewhere(now, plan.jobs, fill.places);
  }
  fill.claims = plan.places.ReleaseClaims();
  std::erase_if(fill.claims, [&](const RoundAssignment::Claim& claim) {
    return !jobs_.at(claim.first).assigned.empty();
  });
  if (!fill.places.empty()) recorder_.Record(now, std::move(fill));
  if (round_.planned()) PlanRoundAhead(now);
}

// By type: some waiting job may run there, and enough accelerators of the type
// are not assigned. Empty: there is no such type.
std::vector<bool> Rounds::FillableTypes() {
  const uint64_t version = throughputs_.version();
  if (changes_.all(Changes::kFill) || changes_.idle().version != version)
    changes_.idle().types.Forget();
  changes_.idle().version = version;
  const std::vector<JobId> changed = changes_.Take(Changes::kFill, jobs_);
  const bool whole = planner_.PlansWhole();
  std::vector<bool> open(assigned_.free().size());  // no job has been found yet
  for (size_t type = 0; type < open.size(); ++type) {
    open[type] = assigned_.free()[type] > 0;
  }
  std::vector<bool> found(assigned_.free().size(), false);
  const auto look = [&](const Job& job) {
    if (!job.assigned.empty() || !allocation_.IsAllocated(job)) return;
    const uint32_t chosen = allocation_.Chosen(job);
    // A job whose chosen type has no room in this round may run on any other
    // (Planner::PlaceElsewhere), unless the next round is planned already: then
    // it would not be there for long.
    const bool anywhere =
        chosen == kNoIndex ||
        (assigned_.free()[chosen] < job.scale_factor && !round_.planned());
    for (size_t type = 0; type < open.size(); ++type) {
      if (!open[type] || assigned_.free()[type] < job.scale_factor) continue;
      if (anywhere ? !figures_.UsableTypes(job)[type] : type != chosen) {
        continue;
      }
      if (!candidates_.MayRun(job)) break;
      found[type] = true;
      open[type] = false;
    }
  };
  for (const JobId id : changed) {
    if (const Job* job = jobs_.FindLive(id)) look(*job);
  }
  for (size_t type = 0; type < open.size(); ++type) {
    const bool filled = !whole && changes_.filled().Has(type);
    if (filled || changes_.idle().types.Has(type)) open[type] = false;
  }
  // A million jobs may wait, so stop when no type is left to decide.
  for (const auto& [id, job] : jobs_.waiting()) {
    if (std::ranges::find(open, true) == open.end()) break;
    look(*job);
  }
  changes_.idle().types.Note(open);
  if (std::ranges::find(found, true) == found.end()) found.clear();
  return found;
}

void Rounds::On(Time now, const event::UnitsAssigned& e) {
  // Find returns null where a damaged row names jobs that never existed.
  for (const auto& [unit, places] : e.places) {
    if (Job* job = jobs_.Find(unit.job)) {
      job->claimed = -1;
      assignments_.Assign(now, *job, places, unit.partner);
    }
    Job* partner = unit.packed() ? jobs_.Find(unit.partner) : nullptr;
    if (partner != nullptr) {
      assignments_.Assign(now, *partner, places, unit.job);
    }
  }
  for (const auto& [id, type] : e.claims) {
    if (Job* job = jobs_.FindLive(id)) job->claimed = type;
  }
}

void Rounds::Look(Time now) {
  if (now < round_.PlanDue()) return;
  // Some policies choose for each round anew (PolicyResult::each_round). The
  // plan is made again when the answer arrives.
  if (allocation_.result().each_round) agenda_.SolveSoon();
  PlanRoundAhead(now);
}

}  // namespace gavel::engine
