#include "coordinator/engine/terms.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace gavel::engine {
namespace {

constexpr double kPlanLeadRoundFraction = 0.25;

}  // namespace

double RoundClock::PlanLead() const {
  return std::min(options_.plan_lead_s,
                  kPlanLeadRoundFraction * terms_.round_duration_s());
}

bool RoundClock::IsReplanned(const Job& job) const {
  return !replanned_.has_value() ||
         std::binary_search(replanned_->begin(), replanned_->end(), job.id);
}

const std::vector<AcceleratorId>& RoundClock::PlannedFor(const Job& job) const {
  return IsReplanned(job) ? job.planned : job.assigned;
}

bool RoundClock::GoesOn(const Job& job) const {
  return !IsReplanned(job) ||
         jobs_.Unchanged(job, job.planned, job.planned_partner);
}

void RoundClock::ForgetPlan(Job& job) {
  job.planned.clear();
  if (IsReplanned(job)) return;
  replanned_->insert(
      std::lower_bound(replanned_->begin(), replanned_->end(), job.id), job.id);
}

void RoundClock::ForgetPlans() {
  const auto forget = [](Job& job) {
    job.planned.clear();
    job.planned_claim = -1;
  };
  if (replanned_.has_value()) {
    for (const JobId id : *replanned_) {
      if (Job* job = jobs_.Find(id)) forget(*job);
    }
  } else {
    for (auto& [id, job] : jobs_.live()) forget(*job);
  }
  replanned_ = std::nullopt;
}

Time RoundClock::LeaseHorizon(const Job& job) const {
  const bool continues = planned_ && !PlannedFor(job).empty() && GoesOn(job);
  return continues ? round_ends_at_ + terms_.round_duration_s()
                   : round_ends_at_;
}

double RoundClock::ExtensionLead(const Job& job, Time now,
                                 double duration_s) const {
  // Workers ask again when a third of a lease is over.
  constexpr double kLeftAtRenewal = 2.0 / 3;
  if (now + duration_s < LeaseHorizon(job)) return kLeftAtRenewal * duration_s;
  return planned_ ? duration_s : std::min(duration_s, PlanLead());
}

void RoundClock::StartRounds(Time now) {
  if (round_ends_at_ != kNever) return;
  round_ends_at_ = now + terms_.round_duration_s();
  planned_ = false;
  ++rounds_;
}

void RoundClock::Plan(const std::optional<std::vector<JobId>>& jobs) {
  planned_ = true;
  replanned_ = jobs;
}

void RoundClock::Begin(Time now) {
  planned_ = false;
  ++rounds_;
  round_ends_at_ = now + terms_.round_duration_s();
}

void RoundClock::EndPlan(bool stop) {
  replanned_ = std::vector<JobId>();
  if (stop) round_ends_at_ = kNever;
}

void RoundClock::Restart(Time ends_at) {
  planned_ = false;
  round_ends_at_ = ends_at;
}

}  // namespace gavel::engine
