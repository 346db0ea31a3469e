#include "coordinator/policy/share/guarded_solve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"

namespace gavel::policy {
namespace {

constexpr double kFigureMin = 1e-15;
constexpr double kFigureMax = 1e15;
// Jobs that are left out double with each try.
constexpr int kTriesMax = 6;

PolicyResult Failed(std::string detail) {
  PolicyResult result;
  result.outcome = SolveOutcome::kFailed;
  result.detail = std::move(detail);
  return result;
}

// The one wrapper around a solver's exceptions.
PolicyResult Ask(const Policy& policy, const PolicyProblem& problem) {
  try {
    absl::StatusOr<PolicyResult> result = policy.Solve(problem);
    if (result.ok()) return *std::move(result);
    return Failed(result.status().ToString());
  } catch (const std::exception& error) {
    return Failed(StrCat("the solver threw: ", error.what()));
  }
}

// By job: by how many powers of ten a figure of it is off the median's. Figures
// are all that makes a program's coefficients differ; 0: not known, no figure.
std::vector<double> Extremes(const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  const auto figure = [&](size_t f, size_t m) {
    const PolicyJob& job = problem.jobs[m];
    if (f >= 3) return problem.Row(m)[f - 3];
    return f == 0 ? job.weight : f == 1 ? job.steps_remaining : job.isolated_s;
  };
  std::vector<double> extremes(n, 0);
  for (size_t f = 0; f < 3 + problem.columns(); ++f) {
    std::vector<double> known;
    for (size_t m = 0; m < n; ++m) {
      const double value = figure(f, m);
      if (value > 0 && std::isfinite(value)) known.push_back(std::log10(value));
    }
    if (known.empty()) continue;
    const auto middle =
        known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
    std::nth_element(known.begin(), middle, known.end());
    for (size_t m = 0; m < n; ++m) {
      if (!(figure(f, m) > 0)) continue;
      extremes[m] =
          std::max(extremes[m], std::abs(std::log10(figure(f, m)) - *middle));
    }
  }
  return extremes;
}

bool IsTractable(const PolicyProblem& problem, size_t m) {
  const auto tractable = [](double value) {
    return value == 0 || (value >= kFigureMin && value <= kFigureMax);
  };
  return problem.jobs[m].weight > 0 && tractable(problem.jobs[m].weight) &&
         std::ranges::all_of(problem.Row(m), tractable);
}

// Ascending by id without `out`. Kinds are numbered anew.
PolicyProblem Without(const PolicyProblem& problem,
                      const std::vector<bool>& out) {
  const size_t n = problem.jobs.size();
  const size_t columns = problem.columns();
  PolicyProblem kept = problem;
  kept.jobs.clear();
  kept.throughputs.clear();
  kept.kinds.clear();
  kept.pairs.clear();
  kept.pair_throughputs.clear();
  kept.checked = false;
  kept.rows = JobRows();
  constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<size_t> kind_of(n, kNone);  // as they are numbered now
  for (size_t m = 0; m < n; ++m) {
    if (!out[m]) kind_of[problem.KindOf(m)] = 0;
  }
  size_t kinds = 0;
  for (size_t& kind : kind_of) {
    if (kind != kNone) kind = kinds++;
  }
  for (size_t m = 0; m < n; ++m) {
    if (out[m]) continue;
    kept.jobs.push_back(problem.jobs[m]);
    const auto row = problem.Row(m);
    kept.throughputs.insert(kept.throughputs.end(), row.begin(), row.end());
    if (!problem.kinds.empty()) {
      kept.kinds.push_back(kind_of[problem.KindOf(m)]);
    }
  }
  for (size_t p = 0; p < problem.pairs.size(); ++p) {
    const PolicyPair pair{kind_of[problem.pairs[p].first],
                          kind_of[problem.pairs[p].second]};
    if (pair.first == kNone || pair.second == kNone) continue;
    kept.pairs.push_back(pair);
    const auto row = problem.pair_throughputs.begin() +
                     static_cast<std::ptrdiff_t>(p * columns * 2);
    kept.pair_throughputs.insert(
        kept.pair_throughputs.end(), row,
        row + static_cast<std::ptrdiff_t>(columns * 2));
  }
  return kept;
}

PolicyResult AskWithout(const Policy& policy, const PolicyProblem& problem,
                        const std::vector<bool>& out) {
  PolicyResult result = Ask(policy, Without(problem, out));
  for (size_t m = 0; m < out.size(); ++m) {
    if (out[m]) result.too_extreme.push_back(problem.jobs[m].id);
  }
  return result;
}

}  // namespace

PolicyResult GuardedSolve(const Policy& policy, const PolicyProblem& problem) {
  const size_t n = problem.jobs.size();
  if (problem.throughputs.size() != n * problem.columns()) {
    return Ask(policy, problem);  // it is malformed, and says so
  }
  std::vector<bool> out(n);
  for (size_t m = 0; m < n; ++m) out[m] = !IsTractable(problem, m);
  const auto gone = static_cast<size_t>(std::ranges::count(out, true));
  PolicyResult result =
      gone == 0 ? Ask(policy, problem) : AskWithout(policy, problem, out);
  if (result.outcome != SolveOutcome::kFailed) return result;
  const std::vector<double> extremes = Extremes(problem);
  std::vector<size_t> order;
  for (size_t m = 0; m < n; ++m) {
    if (!out[m]) order.push_back(m);
  }
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](size_t m) { return extremes[m]; });
  size_t next = 0;
  for (size_t more = 1, tries = 0;
       tries < kTriesMax && next + more < order.size(); more *= 2, ++tries) {
    for (size_t i = 0; i < more; ++i) out[order[next++]] = true;
    PolicyResult without = AskWithout(policy, problem, out);
    if (without.outcome != SolveOutcome::kFailed) return without;
  }
  return result;
}

}  // namespace gavel::policy
