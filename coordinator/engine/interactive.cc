#include "coordinator/engine/interactive.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "coordinator/engine/rounds.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/workers.h"
#include "core/text.h"

namespace gavel::engine {
namespace {

// The cost of taking an accelerator: the number of accelerators that stop
// working. Among equals the job that was submitted last loses its own. A free
// accelerator costs nothing, or hardly more while its last holder leaves it.
struct Seat {
  int stopped = 0;
  bool is_held = false;
  uint64_t loser = 0;  // the latest job that loses it; 0: none does
  AcceleratorId id;

  friend bool operator<(const Seat& a, const Seat& b) {
    return std::tuple(a.stopped, a.is_held, b.loser, a.id) <
           std::tuple(b.stopped, b.is_held, a.loser, b.id);
  }
};

bool IsOverQuota(const State& s, const Job& job) {
  return s.jobs.InteractiveHeld(job.spec.owner) + job.scale_factor >
         s.options.interactive_max;
}

// By type, the accelerators that the job could take, the cheapest first.
std::vector<std::vector<Seat>> SeatsFor(const State& s, Time now,
                                        const Job& job) {
  std::vector<std::vector<Seat>> seats(s.cluster.types().size());
  const std::vector<bool>& usable = s.figures.UsableTypes(job);
  for (const Accelerator& accelerator : s.cluster.accelerators()) {
    const AcceleratorId id = accelerator.id;
    if (!accelerator.usable() || s.avoidance.Avoids(now, job.id, id)) continue;
    const auto type = static_cast<size_t>(s.cluster.TypeOf(id));
    if (!usable[type] || s.leases.quarantined().contains(id)) continue;
    Seat seat{0, s.leases.HeldByOther(id, job) != nullptr, 0, id};
    for (const JobId other : s.assigned.JobsOn(id)) {
      seat.stopped += static_cast<int>(s.jobs.at(other).assigned.size());
      seat.loser = std::max(seat.loser, other.value());
    }
    seats[type].push_back(seat);
  }
  for (std::vector<Seat>& of_type : seats) {
    std::sort(of_type.begin(), of_type.end());
  }
  return seats;
}

// The accelerators for the job, all of one type; empty: there are too few.
std::vector<AcceleratorId> ChooseSeats(const State& s, Time now,
                                       const Job& job) {
  const auto count = static_cast<size_t>(job.scale_factor);
  std::span<const Seat> best;
  const std::vector<std::vector<Seat>> seats = SeatsFor(s, now, job);
  for (const std::vector<Seat>& of_type : seats) {
    if (of_type.size() < count) continue;
    const std::span<const Seat> first(of_type.data(), count);
    // The dearest one is the last.
    if (best.empty() || first.back() < best.back()) best = first;
  }
  std::vector<AcceleratorId> places;
  for (const Seat& seat : best) places.push_back(seat.id);
  return places;
}

bool IsRunning(const Job& job) {
  const Worker& first = job.workers.front();
  return job.active() && first.held_epoch != 0 && !first.leaving;
}

Time IdleSince(const Job& job) { return job.workers.front().stepped_at; }

}  // namespace

std::string WhyNotInteractive(const State& s, const JobSpec& spec) {
  const int most = s.options.interactive_max;
  if (!spec.interactive() || spec.scale_factor <= most) return "";
  if (most == 0) {
    return StrCat("job \"", spec.name,
                  "\": this coordinator accepts no interactive jobs; submit "
                  "it with another class, or start the coordinator with "
                  "--interactive-max");
  }
  return StrCat("job \"", spec.name, "\": scale factor ", spec.scale_factor,
                " exceeds the ", most,
                " accelerators that the interactive jobs of one owner may "
                "have; lower it, or start the coordinator with another "
                "--interactive-max");
}

void SeatInteractive(State& s, Time now) {
  bool any = false;
  for (const auto& [id, job] : s.jobs.interactive()) {
    if (!s.candidates.MayRun(*job) || !job->assigned.empty()) continue;
    // A process of an earlier start is on its way out.
    if (job->AnyLive() || IsOverQuota(s, *job)) continue;
    std::vector<AcceleratorId> places = ChooseSeats(s, now, *job);
    if (places.empty()) continue;
    event::UnitsAssigned seated;
    seated.places.emplace_back(ShareUnit{id, JobId()}, std::move(places));
    Record(s, now, std::move(seated));
    any = true;
  }
  // The jobs that made room may run elsewhere, and the plan of the next round
  // may have these accelerators for others.
  if (any) s.agenda.FillSoon();
  if (any && s.round.planned()) PlanRoundAhead(s, now);
  s.agenda.BeginSeat();
}

void MakeWay(State& s, Time now, const Job& job,
             const std::vector<AcceleratorId>& places) {
  for (const AcceleratorId place : places) {
    while (true) {
      const std::span<const JobId> others = s.assigned.JobsOn(place);
      const auto other =
          std::ranges::find_if(others, [&](JobId id) { return id != job.id; });
      if (other == others.end()) break;
      Job& loser = s.jobs.at(*other);
      s.round.ForgetPlan(loser);
      Assign(s, now, loser, {}, JobId());
    }
  }
}

double IdleSeconds(const Job& job, Time now) {
  return IsRunning(job) ? std::max(0.0, now - IdleSince(job)) : 0;
}

Time IdleDue(const Job& job) {
  if (!job.spec.interactive() || !IsRunning(job)) return kNever;
  const double limit_s = job.spec.IdleLimit();
  const Time ends_at = IdleSince(job) + limit_s;
  if (job.workers.front().warned_at >= IdleSince(job)) return ends_at;
  return ends_at - std::min(kIdleWarning_s, limit_s / 2);
}

bool IsIdleTooLong(State& s, Time now, Job& job) {
  if (now < IdleDue(job)) return false;
  const double left_s = IdleSince(job) + job.spec.IdleLimit() - now;
  if (left_s <= 0) return true;
  Worker& worker = job.workers.front();
  worker.warned_at = now;
  s.outbox.EmitNow(action::SendToAgent{
      worker.server,
      TerminalNotice{worker.server,
                     {job.id, 0, worker.incarnation},
                     s.outbox.durable_position(),
                     absl::StrFormat("idle: this job ends in %.0f s, unless it "
                                     "is used (idle_limit)",
                                     std::ceil(left_s))}});
  return false;
}

void Admit(State& s, Time now, const event::TerminalUsed& e) {
  Worker* worker = s.jobs.Find(e.message.worker);
  if (worker == nullptr || worker->server != e.message.server) return;
  worker->stepped_at = now;
}

void NoteUse(State& s, Time now, AcceleratorId accelerator) {
  for (const JobId id : s.assigned.JobsOn(accelerator)) {
    Job& job = s.jobs.at(id);
    if (job.spec.interactive()) job.workers.front().stepped_at = now;
  }
}

Reason WhyNotSeated(const State& s, const Job& job) {
  if (IsOverQuota(s, job)) {
    return reason::InteractiveQuota{s.jobs.InteractiveHeld(job.spec.owner),
                                    s.options.interactive_max};
  }
  return reason::NoSeat{job.scale_factor};
}

}  // namespace gavel::engine
