#include "coordinator/engine/rounds/resizing.h"

#include <algorithm>
#include <cstddef>
#include <map>
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

// Whether the policy gives it nothing though there is room: it means to, and
// nobody has to shrink for it. To one that asked for more workers than there
// are accelerators of a type it could give nothing.
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

// The mechanism places by priority, and may put a larger job where it takes
// another one's place: then it does not grow.
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

}  // namespace gavel::engine
