// The problem for the policy, kept from one solve to the next: only the rows of
// jobs that have changed are made anew, and checked, where the others can't
// have become different.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/policy/problem.h"

namespace gavel {
namespace {

// Without the rows at these ascending indices.
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

// Which jobs are equal is known, and what is known of jobs that have gone does
// not outgrow it.
bool KeepsRows(const PolicyProblem& problem) {
  constexpr size_t kRowsGoneMax = 1024;
  const size_t n = problem.jobs.size();
  return problem.rows.row_of.size() == n &&
         problem.rows.size() <= 2 * n + kRowsGoneMax;
}

}  // namespace

bool Engine::KeepsProblem() const {
  return !options_.progress && !options_.packing &&
         !options_.placement_sensitive && !changes_[kProblem].all &&
         !problem_guesses_ && problem_version_ == throughputs_.version();
}

void Engine::UpdateProblem(Time now) {
  // Whoever solves the last one may still have it.
  if (problem_.use_count() > 1)
    problem_ = std::make_shared<PolicyProblem>(*problem_);
  PolicyProblem& problem = *problem_;
  const auto columns = static_cast<std::ptrdiff_t>(problem.columns());
  if (!KeepsRows(problem)) problem.rows = JobRows(problem);
  std::vector<uint32_t>& row_of = problem.rows.row_of;
  std::vector<std::ptrdiff_t> gone;
  bool sound = problem.checked;
  std::vector<double> throughputs;
  for (const JobId id : TakeChanges(kProblem)) {
    const auto row =
        std::ranges::lower_bound(problem.jobs, id, {}, &PolicyJob::id);
    const std::ptrdiff_t index = row - problem.jobs.begin();
    const bool known = row != problem.jobs.end() && row->id == id;
    const Job* job = FindLive(id);
    if (job == nullptr || !job->active()) {
      if (known) gone.push_back(index);
      continue;
    }
    const PolicyJob now_so = ProblemJob(*job, now);
    const bool resized = known && (row->scale_factor != now_so.scale_factor ||
                                   row->weight != now_so.weight);
    if (known) *row = now_so;
    // No figure of a job that was there has changed.
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
      // Nearly always the last one; else what has gone is further ahead.
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

}  // namespace gavel
