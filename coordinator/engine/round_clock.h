// Keeps when the round ends, whether the next one is planned, and for which
// jobs that plan counts. LeaseHorizon says how long a lease may go on.
//
// Not thread-safe. Snapshot fields: all.
#ifndef GAVEL_COORDINATOR_ENGINE_ROUND_CLOCK_H_
#define GAVEL_COORDINATOR_ENGINE_ROUND_CLOCK_H_

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "coordinator/engine/engine_options.h"
#include "coordinator/engine/job.h"
#include "coordinator/engine/job_table.h"
#include "coordinator/engine/terms.h"
#include "core/ids.h"
#include "core/units.h"

namespace gavel::engine {

class RoundClock {
 public:
  // Borrowed, and outlive this.
  RoundClock(const Terms& terms, const JobTable& jobs,
             const EngineOptions& options)
      : terms_(terms), jobs_(jobs), options_(options) {}

  // Whether the plan of the next round has this job; if not, the job goes on as
  // it is.
  bool IsReplanned(const Job& job) const;
  // The job's accelerators in the next round, as far as that is planned.
  const std::vector<AcceleratorId>& PlannedFor(const Job& job) const;
  // Whether the job continues in the next round as it is in this one.
  bool GoesOn(const Job& job) const;
  // The job gets nothing in the next round.
  void ForgetPlan(Job& job);
  // No job has a plan until the next Plan.
  void ForgetPlans();
  // The end of the round, or of the next one where the job is planned to go on.
  Time LeaseHorizon(const Job& job) const;
  // If the job goes on, a lease that it is granted now for `duration_s` is
  // extended so long before its end at the latest: by a renewal, or once the
  // next round is planned.
  double ExtensionLead(const Job& job, Time now, double duration_s) const;
  // Rounds follow each other from now on, unless they do already.
  void StartRounds(Time now);

  Time ends_at() const { return round_ends_at_; }
  bool planned() const { return planned_; }
  uint64_t rounds() const { return rounds_; }
  // The jobs whose Job::planned counts; nullopt: all jobs.
  const std::optional<std::vector<JobId>>& replanned() const {
    return replanned_;
  }
  // The next round is planned, for those jobs.
  void Plan(const std::optional<std::vector<JobId>>& jobs);
  void Begin(Time now);  // the next round
  // All of the round's plan is carried out. `stop`: no further round follows.
  void EndPlan(bool stop);
  void Restart(Time ends_at);  // by a new term
  bool IsOver(Time now) const {
    return round_ends_at_ != kNever && planned_ && now >= round_ends_at_;
  }
  // When the next round is to be planned; kNever: it is, or there is none.
  Time PlanDue() const {
    return round_ends_at_ == kNever || planned_ ? kNever
                                                : round_ends_at_ - PlanLead();
  }
  Time NextDeadline() const { return planned_ ? round_ends_at_ : PlanDue(); }

  static auto State(auto& part) {
    return std::tie(part.rounds_, part.round_ends_at_, part.planned_,
                    part.replanned_);
  }

 private:
  double PlanLead() const;
  const Terms& terms_;
  const JobTable& jobs_;
  const EngineOptions& options_;
  Time round_ends_at_ = kNever;
  bool planned_ = false;
  // The jobs whose Job::planned counts, ascending; nullopt: all jobs.
  std::optional<std::vector<JobId>> replanned_;
  uint64_t rounds_ = 0;
};

}  // namespace gavel::engine

#endif  // GAVEL_COORDINATOR_ENGINE_ROUND_CLOCK_H_
