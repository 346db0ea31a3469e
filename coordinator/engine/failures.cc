#include "coordinator/engine/failures.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace gavel {

double FailureRate::Interval_s() const {
  const double mean_s =
      (kPrior_s + busy_s_) / (1 + static_cast<double>(losses_));
  return std::clamp(mean_s, kInterval_s_min, kInterval_s_max);
}

bool IsLoss(const Worker& worker, const WorkerExited& exit) {
  if (worker.held_epoch == 0 || worker.out_of_memory) return false;
  if (worker.hung_s > 0) return true;
  // The ranks of a broken gang were asked to end, and one of them may have
  // broken it.
  if (exit.stopped || (worker.leaving && !worker.restarting)) return false;
  return exit.signal != 0 ||
         (exit.exit_code != 0 && exit.exit_code != kExitEvicted);
}

}  // namespace gavel

namespace gavel::engine {

void FailureStreaks::NoteGoodEnd(JobId job, AcceleratorId where) {
  good_on_[job] = where;
  failed_.erase(where);
}

std::set<JobId> FailureStreaks::NoteFailure(JobId job, AcceleratorId where,
                                            const std::string& owner,
                                            bool several_users) {
  const auto good = good_on_.find(job);
  if (good == good_on_.end() || good->second == where) return {};
  std::map<JobId, std::string>& streak = failed_[where];
  streak[job] = owner;
  std::set<JobId> jobs;
  std::set<std::string> owners;
  for (const auto& [id, of] : streak) {
    jobs.insert(id);
    owners.insert(of);
  }
  if (jobs.size() < kJobs || (several_users && owners.size() < 2)) return {};
  streak.clear();
  return jobs;
}

void Avoidance::Avoid(Time now, JobId job, AcceleratorId where) {
  Until& until = until_[job];
  std::erase_if(until, [&](const auto& entry) { return entry.second <= now; });
  Time& end = until[where];
  end = std::max(end, now + kAvoid_s);
}

void Avoidance::NoteGoodEnd(JobId job, AcceleratorId where) {
  const auto found = until_.find(job);
  if (found == until_.end()) return;
  Until& until = found->second;
  const auto entry = until.find(where);
  if (entry == until.end() || entry->second == kNever) return;
  until.erase(entry);
  if (until.empty()) until_.erase(found);
}

void Avoidance::Forget(AcceleratorId accelerator) {
  for (auto& [job, until] : until_) until.erase(accelerator);
  std::erase_if(until_, [](const auto& entry) { return entry.second.empty(); });
}

std::vector<AcceleratorId> Avoidance::KeptOutOf(JobId job) const {
  std::vector<AcceleratorId> accelerators;
  const auto found = until_.find(job);
  if (found == until_.end()) return accelerators;
  for (const auto& [id, until] : found->second) {
    if (until == kNever) accelerators.push_back(id);
  }
  return accelerators;
}

void Avoidance::SetBarred(JobId job, std::set<AcceleratorId> barred) {
  if (barred.empty()) {
    barred_.erase(job);
  } else {
    barred_[job] = std::move(barred);
  }
}

bool Avoidance::Avoids(Time now, JobId job, AcceleratorId where) const {
  const auto barred = barred_.find(job);
  if (barred != barred_.end() && barred->second.contains(where)) return true;
  const auto found = until_.find(job);
  if (found == until_.end()) return false;
  const auto entry = found->second.find(where);
  return entry != found->second.end() && now < entry->second;
}

int Avoidance::CountUnbarred(JobId job, size_t type) const {
  int left = cluster_.Capacity()[type];
  const auto barred = barred_.find(job);
  if (barred == barred_.end()) return left;
  for (const AcceleratorId id : barred->second) {
    if (cluster_.usable_types()[id.value() - 1] == type) --left;
  }
  return left;
}

int Avoidance::CountLeft(JobId job, size_t type) const {
  int left = CountUnbarred(job, type);
  const auto barred = barred_.find(job);
  for (const AcceleratorId id : KeptOutOf(job)) {
    const bool counted = barred != barred_.end() && barred->second.contains(id);
    if (!counted && cluster_.usable_types()[id.value() - 1] == type) --left;
  }
  return left;
}

int Avoidance::CountFree(JobId job, size_t type,
                         const AssignedAccelerators& assigned) const {
  int free = assigned.free()[type];
  if (free == 0 || !IsRestricted(job)) return free;
  const auto is_free = [&](AcceleratorId id) {
    return cluster_.usable_types()[id.value() - 1] == type &&
           assigned.IsFree(id);
  };
  const auto barred = barred_.find(job);
  const bool any = barred != barred_.end();
  if (any) {
    free -= static_cast<int>(std::ranges::count_if(barred->second, is_free));
  }
  for (const AcceleratorId id : KeptOutOf(job)) {
    const bool counted = any && barred->second.contains(id);
    if (!counted && is_free(id)) --free;
  }
  return free;
}

std::map<JobId, RoundTable::Avoided> Avoidance::At(Time now) const {
  std::map<JobId, RoundTable::Avoided> avoided;
  for (const auto& [job, until] : until_) {
    for (const auto& [id, end] : until) {
      if (now < end) avoided[job][id] = end == kNever;
    }
  }
  for (const auto& [job, barred] : barred_) {
    for (const AcceleratorId id : barred) avoided[job][id] = true;
  }
  return avoided;
}

bool Accusations::Accuse(AcceleratorId where, const Job& accuser) {
  avoidance_.KeepOut(accuser.id, where);
  JobId& first = accused_[where];
  const Job* const before = jobs_.Find(first);
  if (before == nullptr) first = accuser.id;
  if (before == nullptr || !jobs_.AreIndependent(*before, accuser))
    return false;
  seconded_[where] = accuser.id;
  return true;
}

void Accusations::NoteGoodEnd(JobId job, AcceleratorId where) {
  avoidance_.NoteGoodEnd(job, where);
  if (!seconded_.contains(where)) accused_.erase(where);
}

void Accusations::WithdrawAccusations(JobId job) {
  std::vector<AcceleratorId> accused;
  for (const auto& [accelerator, accuser] : accused_) {
    const auto second = seconded_.find(accelerator);
    const bool seconds = second != seconded_.end() && second->second == job;
    if (accuser == job || seconds) accused.push_back(accelerator);
  }
  for (const AcceleratorId accelerator : accused) {
    const auto second = seconded_.extract(accelerator);
    if (second.empty()) {
      accused_.erase(accelerator);
    } else if (second.mapped() != job) {
      accused_[accelerator] = second.mapped();
    }
    const Accelerator& lost = cluster_.accelerator(accelerator);
    if (lost.state != AcceleratorState::kLost) continue;
    cluster_.MarkFound(accelerator, agents_.IsReachable(lost.server));
  }
  if (accused.empty()) return;
  assigned_.Recount();
  agenda_.SolveSoon();
}

void Accusations::ForgetLost(const std::string& server) {
  const auto found = cluster_.servers().find(server);
  if (found == cluster_.servers().end()) return;
  // Jobs may use more than before.
  if (avoidance_.any()) agenda_.SolveSoon();
  for (const AcceleratorId id : found->second) Forget(id);
  cluster_.ForgetLost(server);
}

JobId Accusations::AccuserOf(AcceleratorId lost) const {
  const auto found = accused_.find(lost);
  return found == accused_.end() ? JobId() : found->second;
}

void Accusations::Forget(AcceleratorId accelerator) {
  accused_.erase(accelerator);
  seconded_.erase(accelerator);
  avoidance_.Forget(accelerator);
}

void Accusations::Forgive(JobId job) {
  const bool kept_out = avoidance_.IsKeptOut(job);
  avoidance_.Forget(job);
  if (kept_out) assigned_.Recount();
}

}  // namespace gavel::engine
