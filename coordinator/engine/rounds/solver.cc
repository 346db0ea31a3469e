#include "coordinator/engine/rounds/solver.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gavel::engine {
namespace {

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

bool Usable(const PolicyResult& result) {
  return result.outcome == SolveOutcome::kOptimal ||
         result.outcome == SolveOutcome::kIterationLimit ||
         // Deadlines that can't all be met: it relaxes the least.
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
  // Types only ever come to the end: the problem's are the first ones.
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

// One assignment after another: only what differs is looked at.
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
