#include "coordinator/engine/workers/accusations.h"

#include <string>
#include <vector>

namespace gavel::engine {

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
