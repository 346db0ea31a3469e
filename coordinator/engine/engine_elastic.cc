// Elastic jobs: what elastic.h decides, between the plan of a round and the
// processes. Job::scale_factor is what a job is planned with from then on, and
// what the policy counts with; its gang changes when it is assigned anew.
//
// A gang that shrinks keeps the processes of its first ranks, with their state
// in memory; the others commit with them and end. One that grows starts again
// as a whole from the generation that it commits: the new ranks have to start
// and to restore anyway, and so all have the same step.
#include <algorithm>
#include <map>
#include <utility>

#include "coordinator/engine/engine.h"

namespace gavel {

// The sizes for the round that begins at `at`, or of those who wait.
void Engine::ResizeJobs(Time now, Time at, bool keep_running) {
  if (!elastic_) return;
  const bool any = std::ranges::any_of(live_, [](const auto& entry) {
    return entry.second->active() && entry.second->spec.elastic();
  });
  if (!any) return;
  const RoundAssignment plan = PlanAll(at, keep_running).places;
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
  std::vector<Resize> resizes =
      ChooseSizes(std::move(jobs), std::move(free), capacity, cluster_.types(),
                  {options_.resize_rounds * round_duration_s_, keep_running});
  if (!keep_running) DropGrowth(plan, at, resizes);
  if (!resizes.empty()) Record(now, event::JobsResized{std::move(resizes)});
}

std::vector<SizedJob> Engine::SizedJobs(Time now, const RoundAssignment& plan) {
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
  for (const auto& [id, job] : live_) {
    if (!MayRun(*job)) continue;
    SizedJob& sized = jobs.emplace_back();
    sized.id = id;
    sized.size_min = job->spec.LeastWorkers();
    sized.size_asked = job->spec.scale_factor;
    sized.size_max = job->spec.MostWorkers();
    const auto planned = type_of.find(id);
    if (planned != type_of.end()) sized.type = planned->second;
    sized.size = sized.type ? size_of[id] : job->scale_factor;
    for (const std::string& type : cluster_.types()) {
      sized.usable.push_back(throughputs_.Get(id, type).steps_per_s > 0);
    }
    sized.rests =
        now - job->resized_at < options_.resize_rounds * round_duration_s_;
    RoundUnit costs;
    AddCosts(*job, costs);
    sized.resize_cost_s =
        job->resize_s >= 0 ? job->resize_s : costs.preempt_cost_s;
    sized.speed = [this, id = id](size_t type, int size) {
      return throughputs_.AtSize(id, cluster_.types()[type], size);
    };
  }
  return jobs;
}

// Whether the policy gives it nothing though there is room: it means to, and
// nobody has to shrink for it. To one that asked for more workers than there
// are accelerators of a type it could give nothing.
bool Engine::IsLeftOut(Job& job, const std::vector<int>& free) const {
  if (job.target_share > 0 || unsolved_ || solving_) return job.left_out;
  const std::vector<int>& capacity = cluster_.Capacity();
  for (size_t type = 0; type < free.size(); ++type) {
    const bool usable =
        throughputs_.Get(job.id, cluster_.types()[type]).steps_per_s > 0;
    job.left_out |= usable && capacity[type] >= job.scale_factor &&
                    free[type] >= job.spec.LeastWorkers();
  }
  return job.left_out;
}

// The mechanism places by priority, and may put a larger job where it takes
// another one's place: then it does not grow.
void Engine::DropGrowth(const RoundAssignment& plan, Time at,
                        std::vector<Resize>& resizes) {
  std::map<JobId, int> before;
  for (const Resize& resize : resizes) {
    int& size = jobs_.at(resize.job).scale_factor;
    before[resize.job] = size;
    size = resize.scale_factor;
  }
  const RoundAssignment grown = PlanAll(at, /*keep_running=*/false).places;
  const bool all = std::ranges::all_of(
      plan, [&](const auto& entry) { return grown.contains(entry.first); });
  for (const auto& [id, size] : before) jobs_.at(id).scale_factor = size;
  if (all) return;
  std::erase_if(resizes, [&](const Resize& resize) {
    return resize.scale_factor > before.at(resize.job);
  });
}

void Engine::On(Time now, const event::JobsResized& e) {
  for (const Resize& resize : e.resizes) {
    Job* job = Find(resize.job);
    if (job == nullptr || !job->active()) continue;
    Touch(*job);
    job->scale_factor = resize.scale_factor;
    job->resize_reason = resize.reason;
    job->resized_at = now;
    const auto size = static_cast<size_t>(resize.scale_factor);
    if (job->workers.size() < size) job->workers.resize(size);
  }
  unsolved_ = true;
}

// It is assigned with another number of workers. Whoever can't stay ends, with
// a checkpoint; who was done, with a gang that did not come to its end, starts
// again with the new one.
void Engine::ChangeWorldSize(Time now, Job& job, int world_size) {
  const bool grows = world_size > job.world_size;
  job.world_size = world_size;
  job.resizing_since = job.HoldsAny() ? now : kNever;
  for (int rank = 0; rank < static_cast<int>(job.workers.size()); ++rank) {
    Worker& worker = job.workers[static_cast<size_t>(rank)];
    if (worker.process == ProcessState::kDone) {
      worker.process = ProcessState::kNone;
    }
    if (!worker.is_live()) continue;
    if (!grows && rank < world_size) continue;
    worker.restarting |= grows;
    Pause(now, job, rank, PauseTier::kEvict);
  }
}

// All of the gang run again: what the change has cost.
void Engine::NoteResized(Time now, Job& job) {
  if (job.resizing_since == kNever) return;
  const bool all = std::ranges::all_of(job.gang(), [&](const Worker& worker) {
    return worker.held_epoch == job.epoch;
  });
  if (!all) return;
  job.resize_s = now - job.resizing_since;
  job.resizing_since = kNever;
}

// One that has grown and does not come together, however often it is tried (a
// step may have too few samples for so many), goes back to what it asked for,
// and does not try that size again.
bool Engine::GiveUpSize(Time now, Job& job) {
  const int size = job.world_size;
  if (size <= job.spec.scale_factor || job.assigned.empty()) return false;
  const std::string type = cluster_.accelerator(job.assigned.front()).info.type;
  throughputs_.ExcludeSize(job.id, type, size);
  job.scale_factor = job.spec.scale_factor;
  job.failed_starts = 0;
  job.resized_at = now;
  job.resize_reason = {ReasonCode::kShrunkFailed, type,
                       static_cast<double>(size), 0};
  ForgetPlan(job);
  Assign(now, job, {}, JobId());
  unsolved_ = true;
  fill_due_ = true;
  return true;
}

}  // namespace gavel
