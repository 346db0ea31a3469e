// The plan of the next round: made ahead of its start, announced, carried out.
//
// A policy that says who runs (an assignment) leaves most jobs where they are:
// only those are planned anew whose place may be another one. Of shares every
// job's place is open in every round.
#include <algorithm>
#include <numeric>
#include <utility>

#include "coordinator/engine/engine.h"

namespace gavel {

// ---- who has to be planned

// From now on whoever keeps something of it looks at it again.
void Engine::Touch(Job& job) {
  // Once is enough: types count as filled only after a plan has been made.
  if ((job.touched & (1u << kPlan)) == 0 && filled_.any()) {
    filled_.Forget(Chosen(job));
  }
  for (size_t reader = 0; reader < changes_.size(); ++reader) {
    const auto bit = static_cast<uint8_t>(1u << reader);
    if ((job.touched & bit) != 0) continue;
    job.touched |= bit;
    changes_[reader].jobs.push_back(job.id);
  }
}

void Engine::TouchAll() {
  for (JobChanges& changes : changes_) changes.all = true;
  filled_.Forget();
  idle_.types.Forget();
}

// Ascending, and nothing has changed from then on.
std::vector<JobId> Engine::TakeChanges(Reader reader) {
  std::vector<JobId> jobs = std::move(changes_[reader].jobs);
  changes_[reader] = {{}, false};
  for (const JobId id : jobs) {
    if (Job* job = Find(id)) {
      job->touched &= static_cast<uint8_t>(~(1u << reader));
    }
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

// What a job gets depends on the others, or on more than what touches it.
bool Engine::PlansWhole() const {
  const std::vector<int>& capacity = cluster_.Capacity();
  const int usable = std::accumulate(capacity.begin(), capacity.end(), 0);
  return !result_.is_assignment || options_.packing || elastic_ ||
         static_cast<size_t>(usable) != cluster_.size() || own_checkpoints_;
}

// It is where it is to be in the next round, and runs there or waits.
bool Engine::IsSettled(const Job& job) const {
  const uint32_t chosen = MayRun(job) ? Chosen(job) : kNoIndex;
  if (job.assigned.empty()) return chosen == kNoIndex;
  return chosen != kNoIndex && job.HoldsAny() && !Together(job, job.partner) &&
         chosen ==
             static_cast<uint32_t>(cluster_.TypeOf(job.assigned.front())) &&
         static_cast<int>(job.assigned.size()) == job.scale_factor;
}

// Those of live_ that are not settled, ascending; nullopt: all are planned.
std::optional<std::vector<JobId>> Engine::Unsettled() {
  const bool whole = PlansWhole();
  const bool all = changes_[kPlan].all;
  const std::vector<JobId> changed = TakeChanges(kPlan);
  changes_[kPlan].all = whole;
  if (all) {
    unsettled_.clear();
    if (!whole) {
      for (const auto& [id, job] : live_) unsettled_.push_back(id);
    }
  } else {
    unsettled_.insert(unsettled_.end(), changed.begin(), changed.end());
  }
  if (whole) return std::nullopt;
  std::sort(unsettled_.begin(), unsettled_.end());
  unsettled_.erase(std::unique(unsettled_.begin(), unsettled_.end()),
                   unsettled_.end());
  std::erase_if(unsettled_, [&](JobId id) {
    const Job* job = FindLive(id);
    return job == nullptr || IsSettled(*job);
  });
  return unsettled_;
}

// ---- the plan

// `types`, where there are any: those on which somebody is to be placed. Of an
// assignment, where each type is placed by itself, the others may be left out.
RoundPlan Engine::PlanAll(Time at, bool keep_running,
                          const std::vector<bool>& types) {
  RoundPlan plan{Unsettled(), {}};
  if (plan.jobs.has_value()) {
    plan.places = PlaceJobs(*plan.jobs, keep_running, types);
  } else {
    const RoundTable units = RoundUnits(at, !keep_running);
    if (result_.is_assignment) {
      std::vector<uint32_t> chosen(units.size());
      for (size_t u = 0; u < chosen.size(); ++u) {
        chosen[u] = Chosen(units.unit(u));
      }
      plan.places = PlaceAssignment(cluster_, units, chosen);
    } else {
      RoundOptions options;
      options.mechanism = mechanism_;
      options.queue = queue_;
      options.round_duration_s = round_duration_s_;
      options.keep_running = keep_running;
      options.leftovers_by_worth = result_.worth >= TypeWorth::kThroughput;
      plan.places = PlanRound(cluster_, units, options);
      plan.trials = TrialsOf(units, plan.places);
    }
  }
  plan.places.EraseIf(
      [&](const auto& entry) { return !ShareCheckpoints(entry.second); });
  return plan;
}

// On what nobody has, and on what these jobs have.
RoundAssignment Engine::PlaceJobs(const std::vector<JobId>& jobs,
                                  bool keep_running,
                                  const std::vector<bool>& types) {
  const auto is_meant = [&](size_t type) {
    return types.empty() || types[type];
  };
  RoundTable units(/*types=*/0);
  units.Reserve(jobs.size());
  RoundUnit row;
  std::vector<uint32_t> chosen;
  std::vector<AcceleratorId> own;
  for (const JobId id : jobs) {
    const Job& job = *FindLive(id);
    for (const AcceleratorId place : job.assigned) {
      if (is_meant(static_cast<size_t>(cluster_.TypeOf(place))))
        own.push_back(place);
    }
    const uint32_t type = Chosen(job);
    if (type != kNoIndex && !is_meant(type)) continue;
    AddUnits(job, std::nullopt, !keep_running, row, units);
    while (chosen.size() < units.size()) {
      const ShareUnit& unit = units.unit(chosen.size());
      chosen.push_back(unit.packed() ? Chosen(unit) : type);
    }
  }
  // Two that ran as a pair have the same.
  std::ranges::sort(own);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  if (!free_places_) free_places_.emplace(cluster_, assigned_);
  for (const AcceleratorId place : own) free_places_->Release(place);
  RoundAssignment plan =
      PlaceAssignment(cluster_, units, chosen, &*free_places_);
  for (const auto& [unit, places] : plan) {
    for (const AcceleratorId place : places) free_places_->Release(place);
  }
  for (const AcceleratorId place : own) free_places_->Claim(place);
  return plan;
}

// Decides the next round ahead of its start: who continues may have the lease
// extended without a gap, who is new has its process started in time.
void Engine::PlanRoundAhead(Time now) {
  BookAll(now);
  ResizeJobs(now, round_ends_at_, /*keep_running=*/false);
  RoundPlan plan = PlanAll(round_ends_at_, /*keep_running=*/false);
  // The journal tells everybody's place, and so do renewals of leases.
  if (options_.journal || options_.renewals) Complete(plan);
  Record(now, event::RoundPlanned{plan.places.Release(), std::move(plan.jobs),
                                  std::move(plan.trials),
                                  plan.places.ReleaseClaims()});
}

// With those who go on as they are.
void Engine::Complete(RoundPlan& plan) const {
  if (!plan.jobs.has_value()) return;
  std::vector<RoundAssignment::Entry> places = plan.places.Release();
  auto planned = plan.jobs->begin();
  for (const auto& [id, job] : live_) {
    while (planned != plan.jobs->end() && *planned < id) ++planned;
    const bool goes_on = planned == plan.jobs->end() || *planned != id;
    if (goes_on && !job->assigned.empty()) {
      places.emplace_back(ShareUnit{id, JobId()}, job->assigned);
    }
  }
  std::sort(places.begin(), places.end());
  plan = {std::nullopt, RoundAssignment(std::move(places)), {}};
}

// ---- what is planned for a job

// Whoever is not in the plan of some jobs goes on as it is.
bool Engine::IsReplanned(const Job& job) const {
  return !replanned_.has_value() ||
         std::binary_search(replanned_->begin(), replanned_->end(), job.id);
}

const std::vector<AcceleratorId>& Engine::PlannedFor(const Job& job) const {
  return IsReplanned(job) ? job.planned : job.assigned;
}

// It continues in the next round as it is in this one.
bool Engine::GoesOn(const Job& job) const {
  return !IsReplanned(job) || Unchanged(job, job.planned, job.planned_partner);
}

// It gets nothing in the next round.
void Engine::ForgetPlan(Job& job) {
  job.planned.clear();
  if (IsReplanned(job)) return;
  replanned_->insert(
      std::lower_bound(replanned_->begin(), replanned_->end(), job.id), job.id);
}

void Engine::ForgetPlans() {
  const auto forget = [](Job& job) {
    job.planned.clear();
    job.planned_claim = -1;
  };
  if (replanned_.has_value()) {
    for (const JobId id : *replanned_) {
      if (Job* job = Find(id)) forget(*job);
    }
  } else {
    for (auto& [id, job] : live_) forget(*job);
  }
  replanned_ = std::nullopt;
}

void Engine::On(Time now, const event::RoundPlanned& e) {
  BookAll(now);
  planned_ = true;
  ForgetPlans();
  replanned_ = e.jobs;
  planned_trials_ = e.trials;
  for (const auto& [id, type] : e.claims) {
    if (Job* job = FindLive(id)) job->planned_claim = type;
  }
  for (const auto& [unit, places] : e.places) {
    for (const JobId id : {unit.job, unit.partner}) {
      Job* found = FindLive(id);
      if (found == nullptr) continue;
      Job& job = *found;
      job.planned = places;
      job.planned_partner = id == unit.job ? unit.partner : unit.job;
      if (job.assigned.empty()) {
        if (!job.AnyLive() && !job.AllDone()) {
          EnsureProcesses(now, job, job.planned);
        }
      } else if (Unchanged(job, job.planned, job.planned_partner)) {
        NoticeHolders(job);
      }
      Prefetch(job);
    }
  }
}

// They may ask for the next round's lease.
void Engine::NoticeHolders(Job& job) {
  if (!options_.renewals) return;
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    if (job.workers[static_cast<size_t>(rank)].held_epoch != 0) {
      Notify(job, rank);
    }
  }
}

void Engine::On(Time now, const event::RoundStarted& e) {
  BookAll(now);
  const std::map<JobId, PauseTier> tiers(e.tiers.begin(), e.tiers.end());
  planned_ = false;
  ++rounds_;
  StartTrials(now);
  round_ends_at_ = now + round_duration_s_;
  std::vector<AcceleratorId> next;  // its memory goes from job to job
  const auto begin = [&](Job& job) {
    const bool replanned = IsReplanned(job);
    next.clear();
    std::swap(next, job.planned);
    const int claimed = std::exchange(job.planned_claim, -1);
    if (!job.active()) return;
    if (replanned) job.claimed = next.empty() ? -1 : claimed;
    const auto tier = tiers.find(job.id);
    if (replanned) {
      Assign(now, job, next, job.planned_partner,
             tier == tiers.end() ? PauseTier::kPark : tier->second);
    }
    // Whoever asked too late in the last round to begin in it.
    if (!job.HoldsAny()) NotifyReady(job);
  };
  if (replanned_.has_value()) {
    // And whoever has changed since it was planned.
    std::vector<JobId> jobs = *replanned_;
    jobs.insert(jobs.end(), changes_[kPlan].jobs.begin(),
                changes_[kPlan].jobs.end());
    std::ranges::sort(jobs);
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    for (const JobId id : jobs) {
      if (Job* job = FindLive(id)) begin(*job);
    }
  } else {
    for (auto& [id, job] : live_) begin(*job);
  }
  replanned_ = std::vector<JobId>();
  if (active_jobs_ == 0) round_ends_at_ = kNever;
  fill_due_ = true;
}

}  // namespace gavel
