#include "tests/simulation/world/trial_truth.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "coordinator/engine/event.h"
#include "core/text.h"

namespace gavel {
namespace {

// A trial is given up when its jobs have not started in this time, and judged
// when they have run for this time.
constexpr double kStart_s = 300;
constexpr double kTrial_s = 60;
// The coordinator looks at trials this often, and has this time for it when it
// has started anew.
constexpr double kLook_s = 10;
constexpr int kDoublingsMax = 6;
constexpr double kTolerance_s = 1e-6;

std::pair<JobId, JobId> PairOfNote(const TrialNote& note) {
  return {std::min(note.job, note.other), std::max(note.job, note.other)};
}

// Whether the kind moves jobs that nobody else makes room for: they lose
// nothing, and may come at any time.
bool IsFree(TrialKind kind) { return kind == TrialKind::kVacated; }

}  // namespace

void TrialTruth::Take(const action::Persist& row,
                      const EngineOptions& options) {
  if (!options.introspection) return;
  const auto take = [&](const Event& event) {
    if (std::holds_alternative<event::RoundStarted>(event)) parting_.clear();
    const auto* noted = std::get_if<event::TrialsNoted>(&event);
    if (noted == nullptr) return;
    for (const TrialNote& note : noted->trials) {
      const bool pack = note.kind == TrialKind::kPack;
      note.stage == TrialStage::kBegun ? Begin(row.time, note) : End(note);
      if (note.stage == TrialStage::kOver) continue;
      NoteTried(row.time, note.job, note.stage, options.trial_backoff_s);
      if (!pack) continue;
      NoteTried(row.time, note.other, note.stage, options.trial_backoff_s);
    }
  };
  if (row.event != nullptr) return take(*row.event);
  const absl::StatusOr<Event> event = DecodeEvent(row.row);
  if (event.ok()) take(*event);
}

void TrialTruth::Begin(Time now, const TrialNote& note) {
  ++begun_;
  const auto too_soon = [&](JobId id) {
    const auto found = tried_.find(id);
    if (IsFree(note.kind) || found == tried_.end() ||
        now >= found->second.next_at - kTolerance_s) {
      return;
    }
    broken_.push_back(StrCat("job ", id.value(), " is tried at ", now,
                             " s, and not before ", found->second.next_at,
                             " s by its back-off"));
  };
  too_soon(note.job);
  if (note.kind != TrialKind::kPack) {
    if (note.value > 0) moves_[note.job] = now;
    return;
  }
  too_soon(note.other);
  const Pair pair = PairOfNote(note);
  const auto has = [&](const Pair& other) {
    return other.first == pair.first || other.first == pair.second ||
           other.second == pair.first || other.second == pair.second;
  };
  // An older pair may have ended with one of its jobs, of which no note tells.
  // Check, which knows the jobs, judges that.
  const auto note_twice = [&](const Pair& other) {
    if (has(other)) twice_.emplace_back(other, pair);
  };
  std::ranges::for_each(std::views::keys(pairs_), note_twice);
  std::ranges::for_each(kept_pairs_, note_twice);
  pairs_[pair] = now;
}

void TrialTruth::End(const TrialNote& note) {
  kept_ += note.stage == TrialStage::kKept ? 1 : 0;
  undone_ += note.stage == TrialStage::kUndone ? 1 : 0;
  if (note.kind != TrialKind::kPack) {
    moves_.erase(note.job);
    return;
  }
  const Pair pair = PairOfNote(note);
  const bool was_there = pairs_.erase(pair) + kept_pairs_.erase(pair) > 0;
  if (note.stage == TrialStage::kKept) kept_pairs_.insert(pair);
  if (note.stage == TrialStage::kOver && was_there) parting_.insert(pair);
}

void TrialTruth::NoteTried(Time now, JobId job, TrialStage stage,
                           double backoff_s) {
  Tried& tried = tried_[job];
  if (stage == TrialStage::kKept) tried.failures = 0;
  if (stage == TrialStage::kUndone) ++tried.failures;
  tried.next_at =
      now + std::ldexp(backoff_s, std::min(tried.failures, kDoublingsMax));
}

std::vector<std::string> TrialTruth::Check(Time now, Time started_at,
                                           const Engine& engine) {
  std::vector<std::string> broken = std::exchange(broken_, {});
  if (!engine.options().introspection) return broken;
  const auto is_over = [&](JobId id) {
    const Job* job = engine.FindJob(id);
    return job == nullptr || (!job->active() && job->state != JobState::kHeld);
  };
  const auto over = [&](const Pair& pair) {
    return is_over(pair.first) || is_over(pair.second);
  };
  // Rows that are recovered were checked when they were written: a job that was
  // over then is over now.
  for (const auto& [before, pair] : std::exchange(twice_, {})) {
    if (over(before)) continue;
    broken.push_back(StrCat("jobs ", pair.first.value(), " and ",
                            pair.second.value(),
                            " are tried together, and one is in a pair"));
  }
  std::erase_if(pairs_, [&](const auto& entry) { return over(entry.first); });
  std::erase_if(kept_pairs_, over);
  std::erase_if(parting_, over);
  std::erase_if(moves_,
                [&](const auto& entry) { return is_over(entry.first); });
  const auto late = [&](Time since) {
    return now > since + kStart_s + kTrial_s + kLook_s &&
           now > started_at + kLook_s;
  };
  for (const auto& [pair, since] : pairs_) {
    if (!late(since)) continue;
    broken.push_back(StrCat("the trial of jobs ", pair.first.value(), " and ",
                            pair.second.value(), " began at ", since,
                            " s and has no end"));
  }
  for (const auto& [job, since] : moves_) {
    if (!late(since)) continue;
    broken.push_back(StrCat("the move of job ", job.value(), " began at ",
                            since, " s and is not judged"));
  }
  // A policy that packs makes pairs of its own.
  if (engine.options().packing) return broken;
  for (const auto& [id, job] : engine.jobs()) {
    const Job* other = engine.FindJob(job.partner);
    if (job.assigned.empty() || other == nullptr || !(id < other->id) ||
        other->partner != id || other->assigned != job.assigned) {
      continue;
    }
    const Pair pair{id, job.partner};
    if (pairs_.contains(pair) || kept_pairs_.contains(pair) ||
        parting_.contains(pair)) {
      continue;
    }
    broken.push_back(StrCat("jobs ", id.value(), " and ", job.partner.value(),
                            " share accelerators, and no trial says so"));
  }
  return broken;
}

}  // namespace gavel
