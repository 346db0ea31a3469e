#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "coordinator/policy/own_bids.h"
#include "coordinator/policy/policies.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

namespace gavel {

using namespace policy;  // all of policies.h is in the list below
namespace {

struct Entry {
  std::string_view name;
  absl::StatusOr<PolicyResult> (*solve)(const PolicyProblem& problem);
  PolicyTraits traits = {};
};

// `solve` with these options behind the problem.
template <auto solve, auto... options>
absl::StatusOr<PolicyResult> Call(const PolicyProblem& problem) {
  return solve(problem, options...);
}

PolicyResult SolveMaxMin(const PolicyProblem& problem, PolicyForm form) {
  return SolveMaxMinFairness(problem, form);
}

absl::StatusOr<PolicyResult> SolveThemisByDefault(
    const PolicyProblem& problem) {
  return SolveThemis(problem, 0.8);
}

constexpr PolicyForm kAgnostic = PolicyForm::kAgnostic;
constexpr PolicyForm kAware = PolicyForm::kAware;
constexpr PolicyForm kPacked = PolicyForm::kPacked;
constexpr PolicyTraits kPacks = {.packs = true};
constexpr PolicyTraits kNoProgress = {.reads_progress = false};
constexpr PolicyTraits kPacksNoProgress = {true, false};
constexpr PolicyTraits kLosses = {.reads_losses = true};

// All policies by the names that users write; CONTRIBUTING.md says what else a
// new one needs.
constexpr Entry kPolicies[] = {
    {"allox", Call<SolveAllox, 1>},
    {"drf", Call<SolveDrf>},
    {"fifo", Call<SolveFifo>, kNoProgress},
    {"fifo_packed", Call<SolveFifoPacked>, kPacksNoProgress},
    {"fifo_perf", Call<SolveFifoPerf>, kNoProgress},
    {"finish_time_fairness", Call<SolveFinishTimeFairness, kAgnostic>},
    {"finish_time_fairness_packed", Call<SolveFinishTimeFairness, kPacked>,
     kPacks},
    {"finish_time_fairness_perf", Call<SolveFinishTimeFairness, kAware>},
    {"gandiva", Call<SolveGandiva>, kPacks},
    {"gandiva_reactive", Call<SolveGandivaReactive>},
    {"isolated", Call<SolveIsolated>, kNoProgress},
    {"max_min_fairness", Call<SolveMaxMin, kAgnostic>, kNoProgress},
    {"max_min_fairness_packed", Call<SolveMaxMin, kPacked>, kPacksNoProgress},
    {"max_min_fairness_perf", Call<SolveMaxMin, kAware>, kNoProgress},
    {"max_min_fairness_strategy_proof", Call<SolveStrategyProof, kAgnostic>},
    {"max_min_fairness_strategy_proof_perf", Call<SolveStrategyProof, kAware>},
    {"max_min_fairness_water_filling", Call<SolveWaterFilling, kAgnostic>},
    {"max_min_fairness_water_filling_packed", Call<SolveWaterFilling, kPacked>,
     kPacks},
    {"max_min_fairness_water_filling_perf", Call<SolveWaterFilling, kAware>},
    {"max_sum_throughput_normalized_by_cost_packed_SLOs",
     Call<SolveMaxSumThroughput, MaxSumOptions{kPacked, true, true}>, kPacks},
    {"max_sum_throughput_normalized_by_cost_perf",
     Call<SolveMaxSumThroughput, MaxSumOptions{.by_cost = true}>},
    {"max_sum_throughput_normalized_by_cost_perf_SLOs",
     Call<SolveMaxSumThroughput, MaxSumOptions{kAware, true, true}>},
    {"max_sum_throughput_perf", Call<SolveMaxSumThroughput, MaxSumOptions{}>},
    {"max_throughput_per_cost", Call<SolveMaxThroughputPerCost>},
    {"min_total_duration", Call<SolveMinTotalDuration, kAgnostic>},
    {"min_total_duration_packed", Call<SolveMinTotalDuration, kPacked>, kPacks},
    {"min_total_duration_perf", Call<SolveMinTotalDuration, kAware>},
    {"optimus", Call<SolveOptimus>, kLosses},
    {"priority", Call<SolvePriority>},
    {"proportional", Call<SolveProportional>, kNoProgress},
    {"sjf", Call<SolveSjf>},
    {"slaq", Call<SolveSlaq>, kLosses},
    {"srtf", Call<SolveSjf>},
    {"strategy_proof", Call<SolveStrategyProof, kAgnostic>},
    {"strategy_proof_perf", Call<SolveStrategyProof, kAware>},
    {"strawman", Call<SolveStrawman>},
    {"themis", SolveThemisByDefault},
    {"tiresias", Call<SolveTiresias, false>},
    {"tiresias_gittins", Call<SolveTiresias, true>},
};

constexpr std::string_view kAlloxAlpha = "allox_alpha=";
constexpr std::string_view kThemisF = "themis_f=";

absl::StatusOr<std::unique_ptr<Policy>> MakeAlloxOf(std::string_view name) {
  double alpha = 0;
  if (!absl::SimpleAtod(ToAbsl(name.substr(kAlloxAlpha.size())), &alpha) ||
      !(alpha > 0 && alpha <= 1)) {
    return absl::NotFoundError(StrCat("policy \"", name,
                                      "\": alpha is above 0 and at most 1, as "
                                      "in allox_alpha=0.2"));
  }
  return std::make_unique<FunctionPolicy>(
      std::string(name),
      [alpha](const PolicyProblem& problem) {
        return SolveAllox(problem, alpha);
      },
      PolicyTraits());
}

absl::StatusOr<std::unique_ptr<Policy>> MakeThemisOf(std::string_view name) {
  double f = 0;
  if (!absl::SimpleAtod(ToAbsl(name.substr(kThemisF.size())), &f) ||
      !(f >= 0 && f <= 1)) {
    return absl::NotFoundError(
        StrCat("policy \"", name,
               "\": f is from 0 (all apps bid) to 1 (the worst-off app alone "
               "does), as in themis_f=0.8"));
  }
  return std::make_unique<FunctionPolicy>(
      std::string(name),
      [f](const PolicyProblem& problem) { return SolveThemis(problem, f); },
      PolicyTraits());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  for (const Entry& entry : kPolicies) {
    if (entry.name != name) continue;
    return std::make_unique<FunctionPolicy>(std::string(name), entry.solve,
                                            entry.traits);
  }
  if (name.starts_with(kAlloxAlpha)) return MakeAlloxOf(name);
  if (name.starts_with(kThemisF)) return MakeThemisOf(name);
  return absl::NotFoundError(StrCat("policy \"", name,
                                    "\" does not exist; choose one of ",
                                    absl::StrJoin(PolicyNames(), ", ")));
}

bool policy::HoldsAuctions(std::string_view policy) {
  return policy == "themis" || policy.starts_with(kThemisF);
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace gavel
