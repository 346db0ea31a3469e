// Problems for the policy, and what comes back (design section 4: solving is
// asynchronous, stale answers are dropped).
#include <algorithm>
#include <string>
#include <utility>

#include "coordinator/engine/engine.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::string_view kUnconsolidated = "_unconsolidated";

// Consolidated and unconsolidated shares as one: the mechanism places gangs
// together wherever it can, whatever the policy expected.
Allocation OverTypes(const Allocation& allocation, size_t types) {
  if (types == 0 || allocation.columns() == types) return allocation;
  std::vector<ShareUnit> units(allocation.units().begin(),
                               allocation.units().end());
  std::vector<double> shares(units.size() * types, 0.0);
  for (size_t u = 0; u < units.size(); ++u) {
    const std::vector<double> row = allocation.Row(units[u]);
    for (size_t c = 0; c < row.size(); ++c) {
      shares[u * types + c % types] += row[c];
    }
  }
  return Allocation::FromRows(std::move(units), types, std::move(shares));
}

}  // namespace

Time Engine::SolveDue() const {
  return options_.reset_interval_s > 0 ? solved_at_ + options_.reset_interval_s
                                       : -kNever;
}

// Asks for a new allocation when jobs or the cluster changed and that is on
// disk: jobs that come together are solved for together. One problem is out at
// a time; what changes meanwhile makes the next one.
void Engine::MaybeSolve(Time now) {
  if (!unsolved_ || solving_ || replaying_ || halted_) return;
  if (now < SolveDue() || persisted_ < unsolved_seq_) return;
  PolicyProblem problem = BuildProblem(now);
  unsolved_ = false;
  if (problem.jobs.empty() || problem.types.empty()) return;
  solving_ = true;
  solved_at_ = now;
  solved_placement_ = problem.placement_sensitive();
  actions_.push_back(action::SolvePolicy{++solve_epoch_, std::move(problem)});
}

PolicyProblem Engine::BuildProblem(Time now) const {
  PolicyProblem problem;
  problem.types = cluster_.types();
  problem.capacity = cluster_.Capacity();
  for (const auto& [id, job] : live_) {
    if (job->active()) problem.jobs.push_back(ProblemJob(*job, now));
  }
  for (const PolicyEntity& entity : options_.entities) {
    problem.entities.push_back(entity);
  }
  if (!prices_.empty()) {
    for (const std::string& type : problem.types) {
      const auto price = prices_.find(type);
      problem.cost.push_back(price == prices_.end() ? 0 : price->second);
    }
  }
  if (options_.placement_sensitive) AddPlacement(problem);
  AddThroughputs(problem);
  if (options_.packing) AddPairs(problem);
  return problem;
}

PolicyJob Engine::ProblemJob(const Job& job, Time now) const {
  PolicyJob row;
  row.id = job.id;
  row.scale_factor = job.scale_factor;
  row.weight = job.spec.weight;
  row.arrival_s = job.submitted_at;
  row.time_since_start_s = now - job.submitted_at;
  row.time_received_s = SecondsReceived(job, now);
  row.isolated_s = job.isolated_s;
  row.steps_remaining = std::max(
      0.0, static_cast<double>(job.spec.steps_total) - StepsDone(job, now));
  if (job.spec.deadline_s.has_value()) {
    row.deadline_s = job.submitted_at + *job.spec.deadline_s - now;
  }
  for (size_t i = 0; i < options_.entities.size(); ++i) {
    if (options_.entities[i].name == job.spec.entity) {
      row.entity = static_cast<int>(i);
    }
  }
  if (!job.assigned.empty()) {
    row.running_on = cluster_.TypeOf(job.assigned.front());
    if (Together(job, job.partner)) row.running_with = job.partner;
  }
  return row;
}

// Only where some gang is told to run differently when it is spread.
void Engine::AddPlacement(PolicyProblem& problem) const {
  bool matters = false;
  for (const PolicyJob& row : problem.jobs) {
    if (row.scale_factor == 1) continue;
    for (const auto& [type, steps_per_s] : jobs_.at(row.id).spec.throughputs) {
      matters |= type.ends_with(kUnconsolidated);
    }
  }
  if (!matters) return;
  problem.servers.resize(problem.types.size());
  for (const auto& [server, ids] : cluster_.servers()) {
    std::vector<int> count(problem.types.size(), 0);
    for (const AcceleratorId id : ids) {
      if (cluster_.accelerator(id).state != AcceleratorState::kUsable) continue;
      ++count[static_cast<size_t>(cluster_.TypeOf(id))];
    }
    for (size_t type = 0; type < count.size(); ++type) {
      if (count[type] > 0) problem.servers[type].push_back(count[type]);
    }
  }
}

void Engine::AddThroughputs(PolicyProblem& problem) const {
  for (const PolicyJob& row : problem.jobs) {
    for (const std::string& type : problem.types) {
      problem.throughputs.push_back(
          throughputs_.AtSize(row.id, type, row.scale_factor).steps_per_s);
    }
    if (!problem.placement_sensitive()) continue;
    for (const std::string& type : problem.types) {
      const auto& given = jobs_.at(row.id).spec.throughputs;
      const auto spread = given.find(StrCat(type, kUnconsolidated));
      problem.throughputs.push_back(
          spread == given.end()
              ? throughputs_.AtSize(row.id, type, row.scale_factor).steps_per_s
              : spread->second);
    }
  }
}

// All pairs of equal scale factor that are known to go together.
void Engine::AddPairs(PolicyProblem& problem) const {
  const ThroughputTable* table = options_.throughputs.get();
  const bool in_table = table != nullptr && table->has_pairs();
  if (!in_table && !throughputs_.has_pairs()) return;
  std::vector<std::optional<size_t>> type_of;
  for (const std::string& type : problem.types) {
    type_of.push_back(in_table ? table->FindType(type) : std::nullopt);
  }
  const size_t columns = problem.columns();
  std::vector<double> row(2 * columns);
  for (size_t a = 0; a < problem.jobs.size(); ++a) {
    const Job& first = jobs_.at(problem.jobs[a].id);
    if (!first.table_row.has_value() && !throughputs_.has_pairs()) continue;
    for (size_t b = a + 1; b < problem.jobs.size(); ++b) {
      if (problem.jobs[b].scale_factor != problem.jobs[a].scale_factor)
        continue;
      const Job& second = jobs_.at(problem.jobs[b].id);
      // One that is packed does not grow, so an elastic one is not packed.
      if (first.spec.elastic() || second.spec.elastic()) continue;
      bool any = false;
      for (size_t c = 0; c < columns; ++c) {
        const size_t type = problem.TypeOfColumn(c);
        std::tie(row[2 * c], row[2 * c + 1]) =
            PairThroughput(first, second, type, type_of[type],
                           /*consolidated=*/c < problem.types.size())
                .value_or(std::pair(0.0, 0.0));
        any |= row[2 * c] > 0 && row[2 * c + 1] > 0;
      }
      if (!any) continue;
      problem.pairs.push_back({a, b});
      problem.pair_throughputs.insert(problem.pair_throughputs.end(),
                                      row.begin(), row.end());
    }
  }
}

// Reports come once in a while: what a job has done since its last one is
// taken to be by its throughput.
double Engine::StepsDone(const Job& job, Time now) const {
  const Worker& worker = job.workers.front();
  const auto told = static_cast<double>(worker.progress.steps_done);
  if (worker.held_epoch == 0) return told;
  const size_t type = static_cast<size_t>(cluster_.TypeOf(worker.held));
  double steps_per_s =
      throughputs_.AtSize(job.id, cluster_.types()[type], worker.world_size)
          .steps_per_s;
  if (Together(job, job.partner)) {
    steps_per_s = TogetherThroughput(job, jobs_.at(job.partner), type);
  }
  const double since = std::max(worker.progress_at, worker.leased_at);
  const double done = told + steps_per_s * std::max(0.0, now - since);
  const auto total = static_cast<double>(job.spec.steps_total);
  return total > 0 ? std::min(total, done) : done;
}

// Of `job` beside `other`; its own figure halved where nobody knows better.
double Engine::TogetherThroughput(const Job& job, const Job& other,
                                  size_t type) const {
  const std::string& name = cluster_.types()[type];
  const ThroughputTable* table = options_.throughputs.get();
  const auto known = PairThroughput(
      job, other, type, table == nullptr ? std::nullopt : table->FindType(name),
      /*consolidated=*/true);
  if (known.has_value()) return known->first;
  return throughputs_.Get(job.id, name).steps_per_s / 2;
}

bool Engine::Usable(const PolicyResult& result) {
  return result.outcome == SolveOutcome::kOptimal ||
         result.outcome == SolveOutcome::kIterationLimit ||
         // Deadlines that can't all be met: it relaxes the least.
         (result.outcome == SolveOutcome::kInfeasible &&
          !result.allocation.units().empty());
}

void Engine::Admit(Time now, event::AllocationReady e) {
  if (e.epoch != solve_epoch_) return;  // of a problem that is no more
  solving_ = false;
  if (!Usable(e.result)) {
    solve_retry_at_ = now + options_.round_duration_s;
  }
  // Types only ever come to the end: the problem's are the first ones.
  if (options_.placement_sensitive && e.result.allocation.columns() > 0) {
    const size_t columns = e.result.allocation.columns();
    e.result.allocation = OverTypes(e.result.allocation,
                                    solved_placement_ ? columns / 2 : columns);
  }
  Record(now, std::move(e));
}

void Engine::On(Time now, const event::AllocationReady& e) {
  const PolicyResult& result = e.result;
  if (!Usable(result)) {
    // The last allocation stays in force; status shows what went wrong.
    result_.outcome = result.outcome;
    result_.detail = result.detail;
    return;
  }
  BookAll(now);
  CountIsolated(now);
  TakeAllocation(now, result);
  if (memory_rounds_ > 0) {
    time_received_.Age(memory_rounds_ * round_duration_s_);
  } else {
    time_received_.Reset(round_duration_s_ / 2);
  }
  StartRounds(now);
  fill_due_ = true;
}

void Engine::TakeAllocation(Time now, const PolicyResult& result) {
  result_ = result;
  shares_.clear();
  if (result.is_assignment) {
    for (const TypeAssignment& entry : result.assignment) {
      std::vector<double> row(cluster_.types().size(), 0.0);
      if (entry.type < row.size()) row[entry.type] = 1;
      shares_.emplace_back(entry.unit, std::move(row));
    }
    std::sort(shares_.begin(), shares_.end());
  } else {
    for (const ShareUnit& unit : result.allocation.units()) {
      std::vector<double> row = result.allocation.Row(unit);
      const bool any = std::any_of(row.begin(), row.end(),
                                   [](double x) { return x > kShareMin; });
      if (any) shares_.emplace_back(unit, std::move(row));
    }
  }
  for (const auto& [id, job] : live_) {
    job->target_share = 0;
    if (job->active() && job->counted_since == kNever) job->counted_since = now;
  }
  for (const auto& [unit, row] : shares_) {
    double share = 0;
    for (const double x : row) share += x;
    for (const JobId id : {unit.job, unit.partner}) {
      const auto found = live_.find(id);
      if (found == live_.end()) continue;
      double& target = found->second->target_share;
      target = std::min(1.0, target + share);
      found->second->left_out = false;
    }
  }
}

// Gavel's cumulative isolated time: what was done since the last allocation, in
// the time of an equal part of the cluster.
void Engine::CountIsolated(Time now) {
  const std::vector<int> capacity = cluster_.Capacity();
  double jobs = 0;
  for (const auto& [id, job] : live_) jobs += job->active() ? 1 : 0;
  for (const auto& [id, job] : live_) {
    if (!job->active()) continue;
    double share = 0;
    double steps_per_s = 0;
    for (size_t type = 0; type < capacity.size(); ++type) {
      const double part = capacity[type] / (jobs * job->spec.scale_factor);
      share += part;
      steps_per_s +=
          part * throughputs_.Get(id, cluster_.types()[type]).steps_per_s;
    }
    steps_per_s /= std::max(1.0, share);
    const double done = StepsDone(*job, now);
    if (steps_per_s > 0 && done > job->isolated_steps) {
      job->isolated_s += (done - job->isolated_steps) / steps_per_s;
    }
    job->isolated_steps = std::max(done, job->isolated_steps);
  }
}

}  // namespace gavel
