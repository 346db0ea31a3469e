// Strategy-proof shares: the Nash product, with a discount (the partial
// allocation mechanism of Cole, Gkatzelis and Goel, EC 2013; Gavel's
// max_min_fairness_strategy_proof).
//
// x* maximises the geometric mean over jobs of v_m = s_m / (w_m prop_m) T_m(X).
// What job i takes from the others is
//   discount_i = prod_{k != i} T_k(x*) / T_k(x* without i),
// with "x* without i" the same optimum without job i; it keeps this part of its
// row of x*, and loses by claiming other throughputs than its own. A job alone
// keeps all. What the discount takes is left idle.
//
// `objective` is the geometric mean of v at x*, before the discount, and
// `bound` the most that any allocation has. Weights scale v; they do not change
// x*, as the weights of a product are constant factors.
#include <cmath>
#include <optional>
#include <vector>

#include "coordinator/policy/policies/nash_product.h"
#include "coordinator/policy/policies/policies.h"
#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/bound.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {
namespace {

// [k] logarithms of v_m at the job's largest throughput.
std::vector<double> LogsOfLargest(const ShareProblem& shares) {
  const std::vector<double> normalizers = Normalizers(shares);
  std::vector<double> logs = LargestThroughputs(shares);
  for (size_t m = 0; m < logs.size(); ++m) {
    logs[m] = std::log(logs[m] * normalizers[m] / shares.weight[m]);
  }
  return logs;
}

// [k] discounts. In logarithms: what the others have at x* less what they have
// without the job; at most 0, up to the solver's precision.
std::vector<double> Discounts(const ShareProblem& shares, NashProduct& nash) {
  const std::vector<double> largest = LargestThroughputs(shares);
  std::vector<double> discounts;
  for (size_t m = 0; m < shares.size(); ++m) {
    const double own =
        std::log(Throughput(shares, m, nash.shares) / largest[m]);
    const NashProduct others = MaximizeNashProduct(shares, m);
    if (others.outcome != SolveOutcome::kOptimal) {
      nash.outcome = others.outcome;
      nash.detail = others.detail;
    }
    const double log = nash.log_product - own - others.log_product;
    discounts.push_back(std::exp(std::min(0.0, log)));
  }
  return discounts;
}

}  // namespace

PolicyResult SolveStrategyProof(const PolicyProblem& problem, PolicyForm form) {
  const ShareProblem shares =
      MakeShareProblem(problem, {.agnostic = form == PolicyForm::kAgnostic});
  if (shares.size() == 0) return ToResult(shares, {}, 0, 0, "none");
  double constant = 0;  // of the logarithm of the product
  for (const double log : LogsOfLargest(shares)) constant += log;

  const auto jobs = static_cast<double>(shares.size());
  const auto mean = [&](double log_product) {
    return std::exp((log_product + constant) / jobs);
  };
  // No job takes anything from another: all discounts are 1.
  if (const std::optional<std::vector<double>> best = EveryoneAtBest(shares)) {
    return ToResult(shares, *best, mean(0), mean(0), "all-at-best");
  }
  NashProduct nash = MaximizeNashProduct(shares);
  const std::vector<double> discounts = Discounts(shares, nash);
  std::vector<double> kept = nash.shares;
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto unit = shares.cells[i].unit;
    kept[i] *= discounts[shares.units[unit].first];
  }
  return Certified(
      Sense::kMaximum, nash,
      ToResult(shares, kept, mean(nash.log_product), mean(nash.bound)));
}

}  // namespace gavel::policy
