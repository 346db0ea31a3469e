// Problems for the policy, and what comes back (design section 4: solving is
// asynchronous, stale answers are dropped).
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/type_names.h"
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
    const std::span<const double> row = allocation.RowAt(u);
    for (size_t c = 0; c < row.size(); ++c) {
      shares[u * types + c % types] += row[c];
    }
  }
  return Allocation::FromRows(std::move(units), types, std::move(shares));
}

// Kinds for pairs: jobs of one row of the table, and as fast alone where the
// row is a guess, are alike beside all others, but for those of which more is
// known. Each kind is named by its first job.
std::vector<size_t> KindsOf(const std::vector<const Job*>& jobs,
                            const std::set<JobId>& measured,
                            const PolicyProblem& problem) {
  std::map<std::pair<ThroughputTable::Row, std::vector<double>>, size_t>
      kind_of;
  std::vector<size_t> kinds;
  for (size_t m = 0; m < jobs.size(); ++m) {
    const Job& job = *jobs[m];
    size_t kind = m;
    if (job.table_row.has_value() && !job.spec.elastic() &&
        job.spec.types.empty() && !measured.contains(job.id)) {
      std::vector<double> alone;
      if (job.row_speed > 0) {
        const auto row = problem.throughputs.begin() +
                         static_cast<std::ptrdiff_t>(m * problem.columns());
        alone.assign(row, row + static_cast<std::ptrdiff_t>(problem.columns()));
      }
      kind = kind_of.try_emplace({*job.table_row, std::move(alone)}, m)
                 .first->second;
    }
    kinds.push_back(kind);
  }
  return kinds;
}

bool Usable(const PolicyResult& result) {
  return result.outcome == SolveOutcome::kOptimal ||
         result.outcome == SolveOutcome::kIterationLimit ||
         // Deadlines that can't all be met: it relaxes the least.
         (result.outcome == SolveOutcome::kInfeasible &&
          !result.allocation.units().empty());
}

}  // namespace

Time Engine::SolveDue() const {
  const double gap_s = std::max(
      options_.reset_interval_s,
      options_.solve_gap_s_per_job * static_cast<double>(live_.size()));
  return gap_s > 0 ? solved_at_ + gap_s : -kNever;
}

// Asks for a new allocation when jobs or the cluster changed and that is on
// disk: jobs that come together are solved for together. One problem is out at
// a time; what changes meanwhile makes the next one.
void Engine::MaybeSolve(Time now) {
  if (!unsolved_ || solving_ || replaying_ || halted_) return;
  if (now < SolveDue() || persisted_ < unsolved_seq_) return;
  if (options_.user_shares) {
    for (Job* job : users_.Update(live_)) Touch(*job);
  }
  BuildProblem(now);
  problem_seq_ = seq_;
  unsolved_ = false;
  if (problem_->jobs.empty() || problem_->types.empty()) return;
  solving_ = true;
  solved_at_ = now;
  solved_placement_ = problem_->placement_sensitive();
  actions_.push_back(
      action::SolvePolicy{++solve_epoch_, problem_, operated_.policy.name});
}

void Engine::BuildProblem(Time now) {
  if (problem_ != nullptr && KeepsProblem()) return UpdateProblem(now);
  TakeChanges(kProblem);
  problem_ = std::make_shared<PolicyProblem>();
  PolicyProblem& problem = *problem_;
  problem.types = cluster_.types();
  problem.capacity = cluster_.Capacity();
  for (const auto& [id, job] : live_) {
    if (job->active()) problem.jobs.push_back(ProblemJob(*job, now));
  }
  for (const PolicyEntity& entity : options_.entities) {
    problem.entities.push_back(entity);
  }
  if (!prices_.empty()) {
    std::map<std::string, double> prices(prices_.begin(), prices_.end());
    NameInFull(problem.types, &prices);
    for (const std::string& type : problem.types) {
      const auto price = prices.find(type);
      problem.cost.push_back(price == prices.end() ? 0 : price->second);
    }
  }
  if (options_.placement_sensitive) AddPlacement(problem);
  AddThroughputs(problem);
  if (options_.packing) AddPairs(problem);
  problem_version_ = throughputs_.version();
}

PolicyJob Engine::ProblemJob(const Job& job, Time now) const {
  PolicyJob row;
  row.id = job.id;
  row.scale_factor = job.scale_factor;
  row.weight = options_.user_shares ? users_.WeightOf(job) : job.spec.weight;
  row.arrival_s = job.submitted_at;
  if (options_.progress) {
    row.time_since_start_s = now - job.submitted_at;
    row.time_received_s = SecondsReceived(job, now);
    row.isolated_s = job.isolated_s;
    row.steps_remaining = std::max(
        0.0, static_cast<double>(job.spec.steps_total) - StepsDone(job, now));
    if (job.spec.deadline_s.has_value()) {
      // A round realises shares to within its length: who had just what its
      // deadline takes would end up to a round late.
      const double left_s = job.submitted_at + *job.spec.deadline_s - now;
      row.deadline_s =
          left_s - std::min(round_duration_s_, std::max(0.0, left_s / 2));
    }
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
      if (!cluster_.accelerator(id).usable()) continue;
      ++count[static_cast<size_t>(cluster_.TypeOf(id))];
    }
    for (size_t type = 0; type < count.size(); ++type) {
      if (count[type] > 0) problem.servers[type].push_back(count[type]);
    }
  }
}

void Engine::AddThroughputs(PolicyProblem& problem) {
  problem_guesses_ = false;
  for (const PolicyJob& row : problem.jobs) {
    AddThroughputs(row, problem, problem.throughputs);
  }
}

void Engine::AddThroughputs(const PolicyJob& row, PolicyProblem& problem,
                            std::vector<double>& out) {
  for (const std::string& type : problem.types) {
    const Throughput known =
        throughputs_.AtSize(row.id, type, row.scale_factor);
    problem_guesses_ |= known.source == ThroughputSource::kGuessed;
    out.push_back(known.steps_per_s);
  }
  if (!problem.placement_sensitive()) return;
  for (const std::string& type : problem.types) {
    const std::string name = FigureName(row.id, type, /*spread=*/true);
    out.push_back(
        throughputs_.AtSize(row.id, name, row.scale_factor).steps_per_s);
  }
}

// All pairs of kinds of equal scale factor that are known to go together. Of
// those that are to be tried the best is hoped: that neither slows the other
// down. So the policy makes them, and knows better from then on.
void Engine::AddPairs(PolicyProblem& problem) const {
  const ThroughputTable* table = options_.throughputs.get();
  const bool in_table = table != nullptr && table->has_pairs();
  const std::map<ShareUnit, size_t> to_try = PairsToTry(problem);
  if (!in_table && !throughputs_.has_pairs() && to_try.empty()) return;
  std::vector<const Job*> jobs;
  for (const PolicyJob& row : problem.jobs) jobs.push_back(&jobs_.at(row.id));
  std::set<JobId> unlike = throughputs_.UnlikeTheirKind();
  for (const auto& [unit, type] : to_try) {
    unlike.insert({unit.job, unit.partner});
  }
  problem.kinds = KindsOf(jobs, unlike, problem);
  std::vector<std::optional<size_t>> type_of;
  for (const std::string& type : problem.types) {
    type_of.push_back(in_table ? FindColumn(*table, type, problem.types)
                               : std::nullopt);
  }
  std::vector<int> members(problem.jobs.size(), 0);
  for (const size_t kind : problem.kinds) ++members[kind];
  const size_t columns = problem.columns();
  std::vector<double> row(2 * columns);
  for (size_t a = 0; a < problem.jobs.size(); ++a) {
    const Job& first = *jobs[a];
    if (members[a] == 0) continue;
    if (!first.table_row.has_value() && !throughputs_.has_pairs() &&
        to_try.empty()) {
      continue;
    }
    for (size_t b = members[a] > 1 ? a : a + 1; b < problem.jobs.size(); ++b) {
      if (members[b] == 0 ||
          problem.jobs[b].scale_factor != problem.jobs[a].scale_factor) {
        continue;
      }
      const Job& second = *jobs[b];
      // One that is packed does not grow, so an elastic one is not packed.
      if (first.spec.elastic() || second.spec.elastic()) continue;
      bool any = false;
      for (size_t c = 0; c < columns; ++c) {
        const size_t type = problem.TypeOfColumn(c);
        std::tie(row[2 * c], row[2 * c + 1]) =
            PairThroughput(first, second, type, type_of[type],
                           /*consolidated=*/c < problem.types.size())
                .value_or(std::pair(0.0, 0.0));
        // Which of two equal jobs a table means nobody can tell.
        if (a == b)
          row[2 * c] = row[2 * c + 1] = (row[2 * c] + row[2 * c + 1]) / 2;
        any |= row[2 * c] > 0 && row[2 * c + 1] > 0;
      }
      if (const auto found = to_try.find({first.id, second.id});
          found != to_try.end()) {
        const size_t type = found->second;
        row[2 * type] = problem.throughputs[a * columns + type];
        row[2 * type + 1] = problem.throughputs[b * columns + type];
        any = true;
      }
      if (!any) continue;
      problem.pairs.push_back({a, b});
      problem.pair_throughputs.insert(problem.pair_throughputs.end(),
                                      row.begin(), row.end());
    }
  }
}

// Journaled reports come once in a while: what a job has done since its last
// one is taken to be by its throughput.
double Engine::StepsDone(const Job& job, Time now) const {
  const Worker& worker = job.workers.front();
  const auto told = static_cast<double>(worker.known.steps_done);
  if (worker.held_epoch == 0) return told;
  const double since = std::max(worker.known.at, worker.leased_at);
  const double done = told + Pace(job) * std::max(0.0, now - since);
  const auto total = static_cast<double>(job.spec.steps_total);
  return total > 0 ? std::min(total, done) : done;
}

// steps/s of a job that holds leases.
double Engine::Pace(const Job& job) const {
  const Worker& worker = job.workers.front();
  const size_t type = static_cast<size_t>(cluster_.TypeOf(worker.held));
  if (Together(job, job.partner)) {
    return TogetherThroughput(job, jobs_.at(job.partner), type);
  }
  const std::string name =
      FigureName(job.id, cluster_.types()[type], IsSpread(job));
  return throughputs_.AtSize(job.id, name, worker.world_size).steps_per_s *
         SpeedOf(job);
}

// What its figures on that type are kept as: those of a gang over several
// servers by themselves, where one was given.
std::string Engine::FigureName(JobId job, const std::string& type,
                               bool spread) const {
  if (!spread || !options_.placement_sensitive) return type;
  std::string name = StrCat(type, kUnconsolidated);
  return throughputs_.NeedsTrial(job, name) ? type : name;
}

// Of `job` beside `other`; its own figure halved where nobody knows better.
double Engine::TogetherThroughput(const Job& job, const Job& other,
                                  size_t type) const {
  const std::string& name = cluster_.types()[type];
  const ThroughputTable* table = options_.throughputs.get();
  const auto known = PairThroughput(
      job, other, type,
      table == nullptr ? std::nullopt
                       : FindColumn(*table, name, cluster_.types()),
      /*consolidated=*/true);
  if (known.has_value()) return known->first;
  return throughputs_.Get(job.id, name).steps_per_s / 2;
}

void Engine::Admit(Time now, event::AllocationReady e) {
  if (e.epoch != solve_epoch_) return;  // of a problem that is no more
  solving_ = false;
  e.problem_seq = problem_seq_;
  e.problem_at = solved_at_;
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
  if (result_.is_assignment) {
    // Nobody is ahead or behind: it says who runs.
  } else if (memory_rounds_ > 0) {
    time_received_.Age(memory_rounds_ * round_duration_s_);
  } else {
    time_received_.Reset();
  }
  StartRounds(now);
  fill_due_ = true;
}

void Engine::TakeAllocation(Time now, const PolicyResult& result) {
  for (const JobId id : uncounted_) {
    Job* job = Find(id);  // null: long over
    if (job == nullptr || !job->active()) continue;
    if (job->counted_since == kNever) job->counted_since = now;
  }
  uncounted_.clear();
  filled_.Forget();
  idle_.types.Forget();
  if (result.is_assignment && result_.is_assignment) {
    return TakeAssignment(now, result);
  }
  for (const TypeAssignment& entry : result_.assignment) {
    if (Job* job = Find(entry.unit.job)) job->chosen = kNoIndex;
  }
  result_ = result;
  std::ranges::sort(result_.assignment, {}, &TypeAssignment::unit);
  NoteChosen(result_.assignment);
  for (const auto& [id, job] : live_) {
    BookTarget(now, *job);
    job->target_share = 0;
  }
  booked_at_ = now;
  changes_[kPlan].all = true;
  for (const TypeAssignment& entry : result_.assignment) {
    AddTarget(entry.unit, Chosen(entry.unit) == kNoIndex ? 0 : 1);
  }
  const Allocation& allocation = result_.allocation;
  for (size_t u = 0; u < allocation.units().size(); ++u) {
    const std::span<const double> row = allocation.RowAt(u);
    if (!IsShare(row)) continue;
    AddTarget(allocation.units()[u],
              std::accumulate(row.begin(), row.end(), 0.0));
  }
}

void Engine::AddTarget(const ShareUnit& unit, double share) {
  for (const JobId id : {unit.job, unit.partner}) {
    Job* job = FindLive(id);
    if (job == nullptr) continue;
    job->target_share = std::min(1.0, job->target_share + share);
    job->left_out = false;
  }
}

// One assignment after another: only what differs is looked at.
void Engine::TakeAssignment(Time now, const PolicyResult& result) {
  std::vector<TypeAssignment> ordered;
  const bool in_order =
      std::ranges::is_sorted(result.assignment, {}, &TypeAssignment::unit);
  if (!in_order) {
    ordered = result.assignment;
    std::ranges::sort(ordered, {}, &TypeAssignment::unit);
  }
  const std::vector<TypeAssignment>& before = result_.assignment;
  std::vector<ShareUnit> left;
  std::vector<TypeAssignment> came;
  auto old = before.begin();
  for (const TypeAssignment& entry : in_order ? result.assignment : ordered) {
    // Nearly all are as they were: the same is looked for first.
    while (old != before.end() && *old != entry && old->unit < entry.unit) {
      left.push_back((old++)->unit);
    }
    if (old != before.end() && *old == entry) {
      ++old;
      continue;
    }
    came.push_back(entry);
    if (old != before.end() && old->unit == entry.unit) {
      left.push_back((old++)->unit);
    }
  }
  for (; old != before.end(); ++old) left.push_back(old->unit);
  result_ = result;
  if (!in_order) result_.assignment = std::move(ordered);
  for (const ShareUnit& unit : left) {
    if (Job* job = Find(unit.job)) job->chosen = kNoIndex;
    for (const JobId id : {unit.job, unit.partner}) {
      Job* job = FindLive(id);
      if (job == nullptr) continue;
      BookTarget(now, *job);
      job->target_share = 0;
      Touch(*job);
    }
  }
  NoteChosen(came);
  for (const TypeAssignment& entry : came) {
    const ShareUnit& unit = entry.unit;
    for (const JobId id : {unit.job, unit.partner}) {
      Job* job = FindLive(id);
      if (job == nullptr) continue;
      BookTarget(now, *job);
      Touch(*job);
    }
    AddTarget(unit, Chosen(unit) == kNoIndex ? 0 : 1);
  }
}

}  // namespace gavel
