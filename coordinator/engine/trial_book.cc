#include "coordinator/engine/trial_book.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/type_names.h"

namespace gavel::engine {

bool TrialBook::IsPairTrial(const Job& a, const Job& b, size_t type) const {
  const std::string& name = cluster_.types()[type];
  for (const Job* job : {&a, &b}) {
    if (job->pair_trials >= kPairTrialsMax ||
        throughputs_.NeedsTrial(job->id, name) ||
        !(throughputs_.Get(job->id, name).steps_per_s > 0)) {
      return false;
    }
  }
  const ShareUnit unit = PairOf(a.id, b.id);
  if (a.spec.elastic() || b.spec.elastic() || a.spec.opaque() ||
      b.spec.opaque() || a.spec.scale_factor != b.spec.scale_factor ||
      tried_pairs_.contains({unit, type}) ||
      !allocation_.Allocated(unit).empty() || jobs_.UnitOf(a) == unit) {
    return false;
  }
  const ThroughputTable* table = options_.throughputs.get();
  const std::optional<size_t> table_type =
      table == nullptr ? std::nullopt
                       : FindColumn(*table, name, cluster_.types());
  return !figures_.PairThroughput(a, b, type, table_type, true).has_value() &&
         figures_.PairFits(a, b, type);
}

std::map<ShareUnit, size_t> TrialBook::PairsToTry(
    const PolicyProblem& problem) const {
  std::map<ShareUnit, size_t> pairs;
  if (!allocation_.result().is_assignment || !options_.pair_trials)
    return pairs;
  std::vector<int> budget = TrialBudgets(options_.profiling_percentage / 2);
  std::vector<const Job*> alone;
  for (const PolicyJob& row : problem.jobs) {
    if (row.running_on < 0 || row.running_with.valid()) continue;
    alone.push_back(&jobs_.at(row.id));
  }
  for (const auto& [id, waits] : jobs_.waiting()) {
    if (std::ranges::all_of(budget, [](int left) { return left == 0; })) break;
    if (!candidates_.MayRun(*waits) || waits->pair_trials >= kPairTrialsMax)
      continue;
    for (const Job*& runs : alone) {
      if (runs == nullptr || !candidates_.MayRun(*runs)) continue;
      const auto type =
          static_cast<size_t>(cluster_.TypeOf(runs->assigned.front()));
      const int needed = runs->scale_factor;
      if (budget[type] < needed || !IsPairTrial(*waits, *runs, type)) continue;
      budget[type] -= needed;
      pairs.emplace(PairOf(id, runs->id), type);
      runs = nullptr;
      break;
    }
  }
  return pairs;
}

std::vector<int> TrialBook::TrialBudgets(double percentage) const {
  std::vector<int> budgets = cluster_.Capacity();
  for (int& budget : budgets) {
    budget = static_cast<int>(std::ceil(budget * percentage / 100));
  }
  return budgets;
}

std::vector<int> TrialBook::AddTrials(RoundTable& units) const {
  std::vector<int> trials = TrialBudgets(options_.profiling_percentage);
  for (size_t u = 0; u < units.size(); ++u) {
    const ShareUnit& unit = units.unit(u);
    if (unit.packed() || !jobs_.live().at(unit.job)->guessed) continue;
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

std::vector<ShareUnit> TrialBook::TrialsOf(
    const RoundTable& units, const RoundAssignment& places) const {
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

void TrialBook::StartTrials(Time now) {
  for (const ShareUnit& unit : trials_) {
    Job* job = jobs_.FindLive(unit.job);
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

void TrialBook::NoteTried(Job& job, Worker& worker) {
  const auto type = static_cast<size_t>(cluster_.TypeOf(worker.held));
  if (throughputs_.NeedsTrial(job.id, cluster_.types()[type])) {
    tried_.emplace(job.id, type);
  }
  const ShareUnit unit = jobs_.UnitOf(job);
  worker.profiles = unit.job == job.id &&
                    std::binary_search(trials_.begin(), trials_.end(), unit);
  const bool tries = options_.pair_trials || options_.introspection;
  if (!tries || !unit.packed()) return;
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

void TrialBook::CountTrial(Time now, Worker& worker) {
  if (!worker.profiles) return;
  worker.profiles = false;
  profiling_s_ +=
      std::clamp(now - worker.leased_at, 0.0, terms_.round_duration_s());
}

TrialCost TrialBook::ProfilingAt(Time now) const {
  TrialCost told{0, profiling_s_};
  for (const auto& [id, job] : jobs_.live()) {
    for (const Worker& worker : job->workers) {
      if (worker.held_epoch == 0 || !worker.profiles) continue;
      const double held_s = std::max(0.0, now - worker.leased_at);
      told.accelerators += held_s < terms_.round_duration_s() ? 1 : 0;
      told.accelerator_s += std::min(held_s, terms_.round_duration_s());
    }
  }
  return told;
}

void TrialBook::ForgetJob(JobId job) {
  tried_.erase(tried_.lower_bound({job, 0}),
               tried_.lower_bound({JobId(job.value() + 1), 0}));
  std::erase_if(tried_pairs_,
                [&](const auto& entry) { return entry.first.Holds(job); });
}

}  // namespace gavel::engine
