#include "coordinator/engine/job.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include "core/text.h"

namespace gavel {

void LossHistory::Add(uint64_t steps, double loss) {
  if (!std::isfinite(loss)) return;
  while (!points_.empty() && points_.back().first >= steps) points_.pop_back();
  const size_t size = points_.size();
  if (size >= 2 && points_[size - 1].first - points_[size - 2].first < gap_) {
    points_.pop_back();
  }
  points_.emplace_back(steps, loss);
  if (points_.size() <= kPointsMax) return;
  // Every second point stays, and from now on points are that far apart.
  for (size_t i = 2; i < points_.size(); i += 2) points_[i / 2] = points_[i];
  points_.resize((points_.size() + 1) / 2);
  gap_ = (points_.back().first - points_.front().first) / (kPointsMax / 2);
}

void NoteLoss(const Progress& progress, Job& job) {
  for (const auto& [name, value] : progress.scalars) {
    if (name == "loss") job.losses.Add(progress.steps_done, value);
  }
}

bool Job::HoldsAny() const {
  return std::any_of(workers.begin(), workers.end(),
                     [](const Worker& w) { return w.held_epoch != 0; });
}

bool Job::AnyLive() const {
  return std::any_of(workers.begin(), workers.end(),
                     [](const Worker& w) { return w.is_live(); });
}

bool Job::AllJoined() const {
  return std::ranges::all_of(gang(), [](const Worker& w) {
    return w.process == ProcessState::kJoined;
  });
}

bool Job::AllDone() const {
  return std::ranges::all_of(
      gang(), [](const Worker& w) { return w.process == ProcessState::kDone; });
}

std::string ExtremesOf(const JobSpec& spec) {
  std::string text = StrCat("weight ", spec.weight);
  for (const auto& [type, steps_per_s] : spec.throughputs) {
    StrAppend(&text, ", ", steps_per_s, " steps/s on ", type);
  }
  return text;
}

void AddCosts(const Job& job, RoundUnit& row) {
  const Worker::Known& known = job.workers.front().known;
  const double measured =
      known.pauses > 0 ? known.pausing_s / static_cast<double>(known.pauses)
                       : 0;
  const bool given = job.spec.pause_s || job.spec.resume_s || job.spec.move_s;
  const double pause_s = job.spec.pause_s.value_or(0);
  const double resume_s = job.spec.resume_s.value_or(0);
  row.preempt_cost_s += given ? pause_s + resume_s : measured;
  row.move_cost_s +=
      given ? pause_s + job.spec.move_s.value_or(resume_s) : measured;
  if (job.target_s > 0) {
    row.owed_part = std::max(row.owed_part, 1 - job.received_s / job.target_s);
  }
}

AcceleratorId Occupied(const Job& job, const Worker& worker) {
  if (worker.held_epoch != 0) return worker.held;
  if (worker.launch_sent_at == kNever) return AcceleratorId();
  if (worker.launched_on.valid()) return worker.launched_on;
  const auto rank = static_cast<size_t>(&worker - job.workers.data());
  const bool starts =
      worker.process == ProcessState::kLaunching && rank < job.assigned.size();
  return starts ? job.assigned[rank] : AcceleratorId();
}

bool IsRestarting(const Job& job) {
  return std::ranges::any_of(
      job.workers, [](const Worker& worker) { return worker.restarting; });
}

bool DiedByItself(const Worker& worker, const WorkerExited& exit) {
  if (!worker.restarting || exit.stopped || exit.no_failure) return false;
  return exit.signal != 0 ||
         (exit.exit_code != 0 && exit.exit_code != kExitEvicted);
}

std::string_view JobStateName(JobState state) {
  switch (state) {
    case JobState::kActive:
      return "active";
    case JobState::kFinished:
      return "finished";
    case JobState::kCancelled:
      return "cancelled";
    case JobState::kHeld:
      return "held";
  }
  return "unknown";
}

std::string RenderResize(const Job& job) {
  const Reason& reason = job.resize_reason;
  if (std::holds_alternative<reason::None>(reason)) return "";
  const bool grown = std::holds_alternative<reason::Grown>(reason);
  const bool chosen = std::holds_alternative<reason::SizedByPolicy>(reason);
  return StrCat(grown    ? "grown to "
                : chosen ? "sized to "
                         : "shrunk to ",
                job.scale_factor, ": ", RenderReason(reason));
}

}  // namespace gavel
