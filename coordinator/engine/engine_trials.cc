// What is learnt of jobs while they run: turns on trial, what they cost, slow
// accelerators, and figures that turn out to be wrong.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/type_names.h"
#include "core/text.h"

namespace gavel {
namespace {

std::string Figure(double steps_per_s) {
  return absl::StrFormat("%.3g", steps_per_s);
}

}  // namespace

// Of each type; at least one, unless there are to be none.
std::vector<int> Engine::TrialBudgets(double percentage) const {
  std::vector<int> budgets = cluster_.Capacity();
  for (int& budget : budgets) {
    budget = static_cast<int>(std::ceil(budget * percentage / 100));
  }
  return budgets;
}

// A job that has never run on a type, and whose throughput there nobody gave,
// gets a turn there first: on at most a part of the type's accelerators in one
// round (section 6 of the paper measures jobs in the same way, as part of
// running them). Returns how many of each type are left for trials of pairs.
std::vector<int> Engine::AddTrials(RoundTable& units) const {
  std::vector<int> trials = TrialBudgets(options_.profiling_percentage);
  for (size_t u = 0; u < units.size(); ++u) {
    const ShareUnit& unit = units.unit(u);
    if (unit.packed() || !live_.at(unit.job)->guessed) continue;
    for (size_t type = 0; type < trials.size(); ++type) {
      if (trials[type] < units.scale_factor(u) || !units.usable(u, type) ||
          tried_.contains({unit.job, type}) ||
          !throughputs_.NeedsTrial(unit.job, cluster_.types()[type])) {
        continue;
      }
      trials[type] -= units.scale_factor(u);
      units.share(u)[type] = 1;
      units.received_s(u)[type] = 0;
      units.deficit_s(u)[type] = kTrialDebt_s;
      std::ranges::fill(units.worth(u), 0.0);  // it stays there
    }
  }
  return trials;
}

// Which of them are placed where they are on trial: by what they are owed
// there.
std::vector<ShareUnit> Engine::TrialsOf(const RoundTable& units,
                                        const RoundAssignment& places) const {
  std::set<std::pair<ShareUnit, size_t>> offered;
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t type = 0; type < units.types(); ++type) {
      if (units.deficit_s(u)[type] >= kTrialDebt_s) {
        offered.emplace(units.unit(u), type);
      }
    }
  }
  std::vector<ShareUnit> trials;
  if (offered.empty()) return trials;
  for (const auto& [unit, accelerators] : places) {
    const auto type =
        static_cast<size_t>(cluster_.TypeOf(accelerators.front()));
    if (offered.contains({unit, type})) trials.push_back(unit);
  }
  std::ranges::sort(trials);
  return trials;
}

// A trial is one round at most, also of a job that used it up to start.
void Engine::StartTrials(Time now) {
  for (const ShareUnit& unit : trials_) {
    Job* job = FindLive(unit.job);
    if (job == nullptr) continue;
    if (!unit.packed() && !job->assigned.empty()) {
      const uint32_t type = cluster_.TypeOf(job->assigned.front());
      if (type < cluster_.types().size()) tried_.emplace(job->id, type);
    }
    for (Worker& worker : job->workers) CountTrial(now, worker);
  }
  trials_ = std::move(planned_trials_);
  planned_trials_.clear();
}

// Called when `worker` gets its lease. Whoever comes to an unknown type without
// a turn on trial costs nobody anything. Of a pair the first one counts.
void Engine::NoteTried(Job& job, Worker& worker) {
  const auto type = static_cast<size_t>(cluster_.TypeOf(worker.held));
  if (throughputs_.NeedsTrial(job.id, cluster_.types()[type])) {
    tried_.emplace(job.id, type);
  }
  const ShareUnit unit = UnitOf(job);
  worker.profiles = unit.job == job.id &&
                    std::binary_search(trials_.begin(), trials_.end(), unit);
  if (!options_.pair_trials || !unit.packed()) return;
  if (tried_pairs_.contains({unit, type})) return;
  Job& partner = jobs_.at(job.partner);
  if (partner.HoldsAny()) {
    tried_pairs_.emplace(unit, type);
  } else if (&worker == &job.workers.front()) {
    // Should the other one not come in this round, nothing is learnt, and they
    // may try again: but each such turn counts.
    ++job.pair_trials;
    ++partner.pair_trials;
  }
}

// Called when its lease, or its round, is over.
void Engine::CountTrial(Time now, Worker& worker) {
  if (!worker.profiles) return;
  worker.profiles = false;
  profiling_s_ += std::clamp(now - worker.leased_at, 0.0, round_duration_s_);
}

TrialCost Engine::ProfilingAt(Time now) const {
  TrialCost told{0, profiling_s_};
  for (const auto& [id, job] : live_) {
    for (const Worker& worker : job->workers) {
      if (worker.held_epoch == 0 || !worker.profiles) continue;
      const double held_s = std::max(0.0, now - worker.leased_at);
      told.accelerators += held_s < round_duration_s_ ? 1 : 0;
      told.accelerator_s += std::min(held_s, round_duration_s_);
    }
  }
  return told;
}

// A gang goes at the pace of its slowest accelerator.
double Engine::SpeedOf(const Job& job) const {
  double speed = 1;
  if (!speeds_.any()) return speed;
  for (const Worker& worker : job.workers) {
    if (worker.held_epoch != 0)
      speed = std::min(speed, speeds_.Of(worker.held));
  }
  return speed;
}

// What a job that runs alone tells, as it would be on accelerators that are as
// fast as their type.
void Engine::MeasureAlone(Time now, Job& job, const Progress& progress) {
  const Worker& first = job.workers.front();
  const Accelerator& held = cluster_.accelerator(first.held);
  const double steps_per_s = progress.throughput_steps_per_s;
  const std::string& type = held.info.type;
  if (first.world_size == 1) {
    speeds_.Measure(job.id, type, held.id, steps_per_s, progress.window_s);
  }
  const std::string name = FigureName(job.id, type, IsSpread(job));
  if (!throughputs_.MeasureSize(job.id, name, first.world_size,
                                steps_per_s / SpeedOf(job), progress.window_s,
                                now)) {
    return;
  }
  throughputs_moved_ = true;
  if (references_.has_value()) FindTableRow(job);
}

bool Engine::IsSpread(const Job& job) const {
  return std::any_of(
      job.workers.begin(), job.workers.end(), [&](const Worker& worker) {
        return worker.held_epoch != 0 &&
               cluster_.accelerator(worker.held).server !=
                   cluster_.accelerator(job.workers.front().held).server;
      });
}

std::string Engine::ThroughputNotes(const Job& job) const {
  std::vector<std::string> notes;
  for (const std::string& type : cluster_.types()) {
    const auto told = throughputs_.Contradicted(job.id, type);
    if (told.given > 0) {
      const bool by_table = IsOfTable(job, type, told.given);
      notes.push_back(
          StrCat(by_table ? "the throughput table says " : "submitted ",
                 Figure(told.given), " steps/s on ", type, ", measured ",
                 Figure(told.measured)));
    }
    if (told.before > 0) {
      notes.push_back(
          StrCat(told.measured < told.before ? "slower" : "faster", " on ",
                 type, " than before: ", Figure(told.measured), " steps/s, ",
                 Figure(told.before), " over the last hour"));
    }
  }
  return absl::StrJoin(notes, "; ");
}

bool Engine::IsOfTable(const Job& job, const std::string& type,
                       double given) const {
  if (!job.table_row.has_value() || job.row_speed > 0) return false;
  const std::optional<size_t> column =
      FindColumn(*options_.throughputs, type, cluster_.types());
  return column.has_value() &&
         options_.throughputs->Alone(*job.table_row, *column) == given;
}

}  // namespace gavel
