#include "coordinator/engine/solver.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/engine/type_names.h"
#include "coordinator/policy/policy.h"

namespace gavel {
namespace {

std::vector<double> StepsTogether(const WorthTerms& terms,
                                  const ShareUnit& unit) {
  std::vector<double> steps_per_s;
  for (const std::string& type : terms.types) {
    const auto of = [&](JobId job, JobId beside) {
      return terms.throughputs.Together(job, beside, type).value_or(0);
    };
    steps_per_s.push_back(of(unit.job, unit.partner) +
                          of(unit.partner, unit.job));
  }
  return steps_per_s;
}

// Prices name types as in the policy's problem (BuildProblem).
void DivideByCost(const WorthTerms& terms, std::vector<double>& worth) {
  std::map<std::string, double> prices(terms.prices.begin(),
                                       terms.prices.end());
  NameInFull(terms.types, &prices);
  for (size_t type = 0; type < worth.size(); ++type) {
    const auto price = prices.find(terms.types[type]);
    if (price != prices.end() && price->second > 0) {
      worth[type] /= price->second;
    }
  }
}

}  // namespace

void AddWorth(TypeWorth worth, const WorthTerms& terms, const ShareUnit& unit,
              const Job& job, RoundUnit& row) {
  // Pairs are not moved to faster types, and get leftovers by the time that
  // they have received.
  const bool unused = worth == TypeWorth::kSpeed && unit.packed();
  if (worth == TypeWorth::kAlike || unused || terms.types.empty()) return;
  row.worth = unit.packed() ? StepsTogether(terms, unit) : job.steps_per_s;
  row.worth.resize(terms.types.size(), 0);
  double one = job.scale_factor;
  if (worth == TypeWorth::kSpeed) one = std::ranges::max(row.worth);
  if (!(one > 0)) return;
  for (double& steps_per_s : row.worth) steps_per_s /= one;
  if (worth == TypeWorth::kThroughputPerCost) DivideByCost(terms, row.worth);
}

namespace {

bool Counts(const Job& job) { return job.active() && !job.spec.owner.empty(); }

}  // namespace

std::vector<Job*> UserShares::Update(const absl::btree_map<JobId, Job*>& live) {
  absl::btree_map<Key, Share> shares;
  for (const auto& [id, job] : live) {
    if (!Counts(*job)) continue;
    Share& share = shares[{job->spec.owner, job->spec.entity}];
    share.weight = job->spec.owner_weight;
    share.sum += job->spec.weight;
  }
  shares.swap(shares_);
  std::vector<Job*> changed;
  for (const auto& [id, job] : live) {
    if (!Counts(*job)) continue;
    const Key key{job->spec.owner, job->spec.entity};
    const auto before = shares.find(key);
    if (before == shares.end() || before->second != shares_.at(key)) {
      changed.push_back(job);
    }
  }
  return changed;
}

double UserShares::WeightOf(const Job& job) const {
  const auto share = shares_.find({job.spec.owner, job.spec.entity});
  if (!Counts(job) || share == shares_.end()) return job.spec.weight;
  return share->second.weight * job.spec.weight / share->second.sum;
}

}  // namespace gavel

namespace gavel::engine {
namespace {

// Removes the rows at these ascending indices.
template <class T>
void EraseRows(const std::vector<std::ptrdiff_t>& gone, std::ptrdiff_t width,
               std::vector<T>& rows) {
  if (gone.empty()) return;
  const auto begin = rows.begin();
  auto end = begin + gone.front() * width;  // of what stays
  for (size_t i = 0; i < gone.size(); ++i) {
    const auto next =
        i + 1 < gone.size() ? begin + gone[i + 1] * width : rows.end();
    end = std::move(begin + (gone[i] + 1) * width, next, end);
  }
  rows.erase(end, rows.end());
}

// Whether problem.rows can be updated: it covers all jobs, and does not hold
// too many rows of jobs that have gone.
bool KeepsRows(const PolicyProblem& problem) {
  constexpr size_t kRowsGoneMax = 1024;
  const size_t n = problem.jobs.size();
  return problem.rows.row_of.size() == n &&
         problem.rows.size() <= 2 * n + kRowsGoneMax;
}

// Groups jobs into kinds that behave alike in pairs, each kind named by the
// index of its first job. Jobs with the same row of the table share a kind;
// if the row is a guess, their throughputs alone must be equal too. Jobs in
// `measured`, of which more is known, are kinds of their own, and so are jobs
// that can't be packed or are restricted to some types.
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
        !job.spec.opaque() && job.spec.types.empty() &&
        !measured.contains(job.id)) {
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

}  // namespace

bool Problems::KeepsProblem() const {
  return !options_.progress && !options_.packing &&
         !options_.placement_sensitive && !changes_.all(Changes::kProblem) &&
         !problem_guesses_ && problem_version_ == throughputs_.version();
}

void Problems::UpdateProblem(Time now) {
  // The solver may still be reading the last problem.
  if (problem_.use_count() > 1)
    problem_ = std::make_shared<PolicyProblem>(*problem_);
  PolicyProblem& problem = *problem_;
  const auto columns = static_cast<std::ptrdiff_t>(problem.columns());
  if (!KeepsRows(problem)) problem.rows = JobRows(problem);
  std::vector<uint32_t>& row_of = problem.rows.row_of;
  std::vector<std::ptrdiff_t> gone;
  bool sound = problem.checked;
  std::vector<double> throughputs;
  for (const JobId id : changes_.Take(Changes::kProblem, jobs_)) {
    const auto row =
        std::ranges::lower_bound(problem.jobs, id, {}, &PolicyJob::id);
    const std::ptrdiff_t index = row - problem.jobs.begin();
    const bool known = row != problem.jobs.end() && row->id == id;
    const Job* job = jobs_.FindLive(id);
    if (job == nullptr || !job->active() || job->pinned()) {
      if (known) gone.push_back(index);
      continue;
    }
    const PolicyJob now_so = ProblemJob(*job, now);
    const bool resized = known && (row->scale_factor != now_so.scale_factor ||
                                   row->weight != now_so.weight);
    if (known) *row = now_so;
    // The job was there before, and none of its throughputs has changed.
    if (known && !resized) {
      sound = sound && IsSoundJob(problem, static_cast<size_t>(index));
      continue;
    }
    throughputs.clear();
    AddThroughputs(now_so, problem, throughputs);
    const uint32_t number = problem.rows.Number(now_so, throughputs);
    const auto at = problem.throughputs.begin() + index * columns;
    if (known) {
      std::ranges::copy(throughputs, at);
      row_of[static_cast<size_t>(index)] = number;
    } else {
      // A new job is nearly always the last one. If not, the indices in `gone`
      // are still right: ids ascend, so those rows lie before it.
      problem.jobs.insert(row, now_so);
      problem.throughputs.insert(at, throughputs.begin(), throughputs.end());
      row_of.insert(row_of.begin() + index, number);
    }
    sound = sound && IsSoundJob(problem, static_cast<size_t>(index));
  }
  EraseRows(gone, 1, problem.jobs);
  EraseRows(gone, columns, problem.throughputs);
  EraseRows(gone, 1, row_of);
  problem.checked = sound;
  if (!sound) problem.checked = CheckProblem(problem).ok();
}

void Problems::BuildProblem(Time now) {
  if (options_.user_shares) {
    for (Job* job : users_.Update(jobs_.live())) changes_.Touch(*job);
  }
  if (problem_ != nullptr && KeepsProblem()) return UpdateProblem(now);
  changes_.Take(Changes::kProblem, jobs_);
  problem_ = std::make_shared<PolicyProblem>();
  PolicyProblem& problem = *problem_;
  problem.types = cluster_.types();
  problem.capacity = cluster_.Capacity();
  for (const auto& [id, job] : jobs_.live()) {
    if (!job->active() || job->pinned()) continue;
    problem.jobs.push_back(ProblemJob(*job, now));
  }
  for (const PolicyEntity& entity : options_.entities) {
    problem.entities.push_back(entity);
  }
  if (!allocation_.prices().empty()) {
    std::map<std::string, double> prices(allocation_.prices().begin(),
                                         allocation_.prices().end());
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

PolicyJob Problems::ProblemJob(const Job& job, Time now) const {
  PolicyJob row;
  row.id = job.id;
  row.scale_factor = job.scale_factor;
  row.weight = options_.user_shares ? users_.WeightOf(job) : job.spec.weight;
  row.arrival_s = job.submitted_at;
  if (options_.progress) {
    row.time_since_start_s = now - job.submitted_at;
    row.time_received_s = ledger_.SecondsReceived(job, now);
    row.isolated_s = isolated_.SumOf(job, now).seconds;
    row.steps_remaining =
        std::max(0.0, static_cast<double>(job.spec.steps_total) -
                          figures_.StepsDone(job, now));
    if (job.spec.deadline_s.has_value()) {
      // A round realises shares only to within its length: a job with exactly
      // the share that its deadline takes could end up to a round late.
      const double left_s = job.submitted_at + *job.spec.deadline_s - now;
      row.deadline_s = left_s - std::min(terms_.round_duration_s(),
                                         std::max(0.0, left_s / 2));
    }
  }
  for (size_t i = 0; i < options_.entities.size(); ++i) {
    if (options_.entities[i].name == job.spec.entity) {
      row.entity = static_cast<int>(i);
    }
  }
  if (!job.assigned.empty()) {
    row.running_on = cluster_.TypeOf(job.assigned.front());
    if (jobs_.Together(job, job.partner)) row.running_with = job.partner;
  }
  return row;
}

// Adds the servers only if some gang has a throughput of its own for several
// servers.
void Problems::AddPlacement(PolicyProblem& problem) const {
  bool matters = false;
  for (const PolicyJob& row : problem.jobs) {
    if (row.scale_factor == 1) continue;
    for (const auto& [type, steps_per_s] : jobs_.at(row.id).spec.throughputs) {
      matters |= type.ends_with(Figures::kUnconsolidated);
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

void Problems::AddThroughputs(PolicyProblem& problem) {
  problem_guesses_ = false;
  for (const PolicyJob& row : problem.jobs) {
    AddThroughputs(row, problem, problem.throughputs);
  }
}

void Problems::AddThroughputs(const PolicyJob& row, PolicyProblem& problem,
                              std::vector<double>& out) {
  const Job& job = jobs_.at(row.id);
  for (size_t type = 0; type < problem.types.size(); ++type) {
    const Throughput known =
        throughputs_.AtSize(row.id, problem.types[type], row.scale_factor);
    problem_guesses_ |= known.source == ThroughputSource::kGuessed;
    out.push_back(figures_.IsKeptOut(job, type) ? 0 : known.steps_per_s);
  }
  if (!problem.placement_sensitive()) return;
  for (size_t type = 0; type < problem.types.size(); ++type) {
    const std::string name =
        figures_.FigureName(row.id, problem.types[type], /*spread=*/true);
    const double steps_per_s =
        throughputs_.AtSize(row.id, name, row.scale_factor).steps_per_s;
    out.push_back(figures_.IsKeptOut(job, type) ? 0 : steps_per_s);
  }
}

// Adds all pairs of kinds with equal scale factors whose throughputs together
// are known. A pair that is to be tried gets the best possible figures, those
// of both jobs alone, so that the policy runs it. From then on its throughputs
// are measured.
void Problems::AddPairs(PolicyProblem& problem) const {
  const ThroughputTable* table = options_.throughputs.get();
  const bool in_table = table != nullptr && table->has_pairs();
  const std::map<ShareUnit, size_t> to_try = trials_.PairsToTry(problem);
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
      // An elastic job is not packed, because a packed job can't grow.
      if (first.spec.elastic() || second.spec.elastic()) continue;
      if (first.spec.opaque() || second.spec.opaque()) continue;
      bool any = false;
      for (size_t c = 0; c < columns; ++c) {
        const size_t type = problem.TypeOfColumn(c);
        std::tie(row[2 * c], row[2 * c + 1]) =
            figures_
                .PairThroughput(first, second, type, type_of[type],
                                /*consolidated=*/c < problem.types.size())
                .value_or(std::pair(0.0, 0.0));
        // The two jobs are equal, so the table can't tell which is which.
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

namespace {

// Adds up consolidated and unconsolidated shares. The mechanism puts a gang on
// one server wherever it can, whatever the policy expected.
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

bool Usable(const PolicyResult& result) {
  return result.outcome == SolveOutcome::kOptimal ||
         result.outcome == SolveOutcome::kIterationLimit ||
         // Not all deadlines can be met; the allocation relaxes them the least.
         (result.outcome == SolveOutcome::kInfeasible &&
          !result.allocation.units().empty());
}

}  // namespace

Time Solver::SolveDue() const {
  const double gap_s = std::max(
      options_.reset_interval_s,
      options_.solve_gap_s_per_job * static_cast<double>(jobs_.live().size()));
  return gap_s > 0 ? solved_at_ + gap_s : -kNever;
}

void Solver::MaybeSolve(Time now, const std::string& policy) {
  if (!agenda_.unsolved() || solving_ || outbox_.replaying() ||
      outbox_.halted())
    return;
  if (now < SolveDue() || outbox_.persisted() < agenda_.unsolved_seq()) return;
  problems_.BuildProblem(now);
  const std::shared_ptr<PolicyProblem>& problem = problems_.problem();
  problem_seq_ = outbox_.seq();
  agenda_.BeginSolve();
  if (problem->jobs.empty() || problem->types.empty()) return;
  solving_ = true;
  solved_at_ = now;
  solved_placement_ = problem->placement_sensitive();
  outbox_.EmitAtOnce(action::SolvePolicy{++solve_epoch_, problem, policy});
}

void Solver::Admit(Time now, event::AllocationReady e) {
  if (e.epoch != solve_epoch_) return;  // of a problem that is no more
  solving_ = false;
  e.problem_seq = problem_seq_;
  e.problem_at = solved_at_;
  if (!Usable(e.result)) {
    solve_retry_at_ = now + options_.round_duration_s;
  }
  // New types are only ever appended, so the problem's are the first ones.
  if (options_.placement_sensitive && e.result.allocation.columns() > 0) {
    const size_t columns = e.result.allocation.columns();
    e.result.allocation = OverTypes(e.result.allocation,
                                    solved_placement_ ? columns / 2 : columns);
  }
  recorder_.Record(now, std::move(e));
}

void Solver::On(Time now, const event::AllocationReady& e) {
  const PolicyResult& result = e.result;
  if (!Usable(result)) {
    return allocation_.NoteFailure(result);
  }
  ledger_.BookAll(now);
  isolated_.CountAll(now);
  TakeAllocation(now, result);
  ledger_.BeginAllocation();
  round_.StartRounds(now);
  agenda_.FillSoon();
}

void Solver::TakeAllocation(Time now, const PolicyResult& result) {
  for (const JobId id : jobs_.TakeUncounted()) {
    Job* job = jobs_.Find(id);  // null: long over
    if (job == nullptr || !job->active()) continue;
    if (job->counted_since == kNever) job->counted_since = now;
  }
  changes_.ForgetTypes();
  if (result.is_assignment && allocation_.result().is_assignment) {
    return TakeAssignment(now, result);
  }
  allocation_.Replace(result);
  for (const auto& [id, job] : jobs_.live()) {
    ledger_.BookTarget(now, *job);
    job->target_share = 0;
  }
  ledger_.SetBookedAt(now);
  changes_.SetAll(Changes::kPlan, true);
  for (const TypeAssignment& entry : allocation_.result().assignment) {
    AddTarget(entry.unit, allocation_.Chosen(entry.unit) == kNoIndex ? 0 : 1);
  }
  const Allocation& allocation = allocation_.result().allocation;
  for (size_t u = 0; u < allocation.units().size(); ++u) {
    const std::span<const double> row = allocation.RowAt(u);
    if (!IsShare(row)) continue;
    AddTarget(allocation.units()[u],
              std::accumulate(row.begin(), row.end(), 0.0));
  }
}

void Solver::AddTarget(const ShareUnit& unit, double share) {
  for (const JobId id : {unit.job, unit.partner}) {
    Job* job = jobs_.FindLive(id);
    if (job == nullptr) continue;
    job->target_share = std::min(1.0, job->target_share + share);
    job->left_out = false;
  }
}

// Applies an assignment that follows another one: visits only entries that
// differ.
void Solver::TakeAssignment(Time now, const PolicyResult& result) {
  std::vector<TypeAssignment> ordered;
  const bool in_order =
      std::ranges::is_sorted(result.assignment, {}, &TypeAssignment::unit);
  if (!in_order) {
    ordered = result.assignment;
    std::ranges::sort(ordered, {}, &TypeAssignment::unit);
  }
  const std::vector<TypeAssignment>& before = allocation_.result().assignment;
  std::vector<ShareUnit> left;
  std::vector<TypeAssignment> came;
  auto old = before.begin();
  for (const TypeAssignment& entry : in_order ? result.assignment : ordered) {
    // Nearly all entries are unchanged, so an equal one is looked for first.
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
  allocation_.Succeed(result, std::move(ordered));
  for (const ShareUnit& unit : left) {
    if (Job* job = jobs_.Find(unit.job)) job->chosen = kNoIndex;
    for (const JobId id : {unit.job, unit.partner}) {
      Job* job = jobs_.FindLive(id);
      if (job == nullptr) continue;
      ledger_.BookTarget(now, *job);
      job->target_share = 0;
      changes_.Touch(*job);
    }
  }
  allocation_.NoteChosen(came);
  for (const TypeAssignment& entry : came) {
    const ShareUnit& unit = entry.unit;
    for (const JobId id : {unit.job, unit.partner}) {
      Job* job = jobs_.FindLive(id);
      if (job == nullptr) continue;
      ledger_.BookTarget(now, *job);
      changes_.Touch(*job);
    }
    AddTarget(unit, allocation_.Chosen(unit) == kNoIndex ? 0 : 1);
  }
}

Time Solver::NextDeadline() const {
  const bool may_ask = agenda_.unsolved() && !solving_ &&
                       outbox_.persisted() >= agenda_.unsolved_seq();
  return may_ask ? std::min(solve_retry_at_, SolveDue()) : solve_retry_at_;
}

void Solver::Retry(Time now) {
  if (now < solve_retry_at_) return;
  solve_retry_at_ = kNever;
  agenda_.SolveSoon();
}

void Solver::Abandon(bool answer) {
  if (answer) ++solve_epoch_;
  solving_ = false;
}

}  // namespace gavel::engine
