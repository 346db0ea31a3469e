#include "coordinator/engine/job_times.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/civil_time.h"
#include "coordinator/engine/arrays.h"
#include "coordinator/engine/interactive.h"
#include "coordinator/engine/operators.h"
#include "coordinator/engine/state.h"
#include "coordinator/engine/workers.h"

namespace gavel::engine {
namespace {

// So that rounding brings no deadline that has passed already.
constexpr double kLater_s = 1e-3;

Time DueAt(const Job& job) {
  return job.submitted_at + job.spec.not_before_s.value_or(0);
}

// All elements of an array are due at once.
JobId AheadId(const Job& job) { return job.array.valid() ? job.array : job.id; }

// "2026-12-01T08:00:00Z"; seconds since 1970.
std::string UtcText(double wall_s) {
  const absl::CivilSecond epoch(1970);
  return absl::FormatCivilTime(epoch + static_cast<int64_t>(wall_s)) + "Z";
}

// The time that the job may still run. The lease of an opaque job limits it
// instead (SweepOpaque).
double SecondsLeft(const State& s, const Job& job, Time now) {
  if (!job.active() || job.spec.opaque() || !job.spec.time_limit_s) {
    return kNever;
  }
  return *job.spec.time_limit_s -
         (s.ledger.SecondsReceived(job, now) - job.limited_from_s);
}

}  // namespace

bool IsAhead(const Job& job) {
  return job.state == JobState::kHeld &&
         std::holds_alternative<reason::NotBefore>(job.reason);
}

static reason::NotBefore NoteAhead(State& s, const Job& job) {
  const Time due = DueAt(job);
  s.ahead.insert({due, AheadId(job)});
  s.agenda.Due(due);
  return {UtcText(due + s.options.wall_offset_s), job.id};
}

void HoldUntilDue(State& s, Time now, Job& job) {
  if (!job.spec.not_before_s) return;
  if (DueAt(job) <= now) return;
  EndJob(s, now, job, JobState::kHeld, NoteAhead(s, job));
}

bool HoldElementUntilDue(State& s, Job& job) {
  if (!job.spec.not_before_s) return false;
  job.reason = NoteAhead(s, job);
  return true;
}

void RebuildTimes(State& s) {
  s.ahead.clear();
  for (const auto& [id, job] : s.jobs.all()) {
    if (IsAhead(job)) s.ahead.insert({DueAt(job), AheadId(job)});
  }
}

static void SweepIdle(State& s, Time now) {
  std::vector<JobId> idle;
  for (const auto& [id, job] : s.jobs.interactive()) {
    if (IsIdleTooLong(s, now, *job)) {
      idle.push_back(id);
    } else if (const Time due = IdleDue(*job); due != kNever) {
      s.agenda.Due(std::max(due, now + kLater_s));
    }
  }
  for (const JobId id : idle) Record(s, now, event::TimeReached{id, true});
}

void SweepTimes(State& s, Time now) {
  std::vector<JobId> reached;
  while (!s.ahead.empty() && s.ahead.begin()->first <= now) {
    const JobId id = s.ahead.begin()->second;
    s.ahead.erase(s.ahead.begin());
    const Job* const job = s.jobs.Find(id);
    // It may have been released or cancelled.
    const bool is_array = FirstElement(s.jobs.all(), id) != nullptr;
    if (is_array || (job != nullptr && IsAhead(*job))) reached.push_back(id);
  }
  if (!s.ahead.empty()) s.agenda.Due(s.ahead.begin()->first);
  for (const auto& [id, job] : s.jobs.live()) {
    const double left_s = SecondsLeft(s, *job, now);
    if (left_s <= 0) {
      reached.push_back(id);
    } else if (left_s != kNever && job->HoldsAny()) {
      s.agenda.Due(now + std::max(left_s, kLater_s));
    }
  }
  for (const JobId id : reached) Record(s, now, event::TimeReached{id});
  SweepIdle(s, now);
}

void On(State& s, Time now, const event::TimeReached& e) {
  Job* const job = s.jobs.Find(e.job);
  if (job == nullptr) {
    for (const JobId id : ElementsOf(s.jobs.all(), e.job)) {
      Job& element = s.jobs.at(id);
      if (IsAhead(element)) Release(s, now, element);
    }
    return;
  }
  if (IsAhead(*job)) return Release(s, now, *job);
  if (WaitsForArray(*job)) {
    s.arrays.NoteQueued(*job);
    return EnterQueue(s, now, *job);
  }
  if (!job->active()) return;
  if (e.idle) {
    return EndJob(s, now, *job, JobState::kCancelled,
                  reason::EndedIdle{job->id, job->spec.IdleLimit()});
  }
  EndJob(s, now, *job, JobState::kHeld,
         reason::HeldTimeLimit{job->id, job->spec.time_limit_s.value_or(0)},
         PauseTier::kEvict);
}

}  // namespace gavel::engine
