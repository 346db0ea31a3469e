#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "coordinator/policy/policy.h"
#include "core/text.h"

// All policies: the name that users write, the function that makes it (defined
// in the policy's own file). A new policy is one file and one line here.
#define GAVEL_POLICIES(POLICY)                                               \
  POLICY("allox", MakeAllox)                                                 \
  POLICY("drf", MakeDrf)                                                     \
  POLICY("fifo", MakeFifo)                                                   \
  POLICY("fifo_packed", MakeFifoPacked)                                      \
  POLICY("fifo_perf", MakeFifoPerf)                                          \
  POLICY("finish_time_fairness", MakeFinishTimeFairness)                     \
  POLICY("finish_time_fairness_packed", MakeFinishTimeFairnessPacked)        \
  POLICY("finish_time_fairness_perf", MakeFinishTimeFairnessPerf)            \
  POLICY("gandiva", MakeGandiva)                                             \
  POLICY("isolated", MakeIsolated)                                           \
  POLICY("max_min_fairness", MakeMaxMinFairness)                             \
  POLICY("max_min_fairness_packed", MakeMaxMinFairnessPacked)                \
  POLICY("max_min_fairness_perf", MakeMaxMinFairnessPerf)                    \
  POLICY("max_min_fairness_strategy_proof", MakeMaxMinFairnessStrategyProof) \
  POLICY("max_min_fairness_strategy_proof_perf",                             \
         MakeMaxMinFairnessStrategyProofPerf)                                \
  POLICY("max_min_fairness_water_filling", MakeWaterFilling)                 \
  POLICY("max_min_fairness_water_filling_packed", MakeWaterFillingPacked)    \
  POLICY("max_min_fairness_water_filling_perf", MakeWaterFillingPerf)        \
  POLICY("max_sum_throughput_normalized_by_cost_packed_SLOs",                \
         MakeMaxSumThroughputByCostPackedSlos)                               \
  POLICY("max_sum_throughput_normalized_by_cost_perf",                       \
         MakeMaxSumThroughputByCostPerf)                                     \
  POLICY("max_sum_throughput_normalized_by_cost_perf_SLOs",                  \
         MakeMaxSumThroughputByCostPerfSlos)                                 \
  POLICY("max_sum_throughput_perf", MakeMaxSumThroughputPerf)                \
  POLICY("max_throughput_per_cost", MakeMaxThroughputPerCost)                \
  POLICY("min_total_duration", MakeMinTotalDuration)                         \
  POLICY("min_total_duration_packed", MakeMinTotalDurationPacked)            \
  POLICY("min_total_duration_perf", MakeMinTotalDurationPerf)                \
  POLICY("priority", MakePriority)                                           \
  POLICY("proportional", MakeProportional)                                   \
  POLICY("sjf", MakeSjf)                                                     \
  POLICY("strategy_proof", MakeStrategyProof)                                \
  POLICY("strategy_proof_perf", MakeStrategyProofPerf)

namespace gavel {

#define GAVEL_DECLARE_POLICY(name, make) std::unique_ptr<Policy> make();
GAVEL_POLICIES(GAVEL_DECLARE_POLICY)
#undef GAVEL_DECLARE_POLICY

std::unique_ptr<Policy> MakeAlloxAlpha(std::string name, double alpha);

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

constexpr Entry kPolicies[] = {
#define GAVEL_LIST_POLICY(name, make) {name, &make},
    GAVEL_POLICIES(GAVEL_LIST_POLICY)
#undef GAVEL_LIST_POLICY
};

constexpr std::string_view kAlloxAlpha = "allox_alpha=";

absl::StatusOr<std::unique_ptr<Policy>> MakeAlloxOf(std::string_view name) {
  double alpha = 0;
  if (!absl::SimpleAtod(ToAbsl(name.substr(kAlloxAlpha.size())), &alpha) ||
      !(alpha > 0 && alpha <= 1)) {
    return absl::NotFoundError(StrCat("policy \"", name,
                                      "\": alpha is above 0 and at most 1, as "
                                      "in allox_alpha=0.2"));
  }
  return MakeAlloxAlpha(std::string(name), alpha);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make();
  }
  if (name.starts_with(kAlloxAlpha)) return MakeAlloxOf(name);
  return absl::NotFoundError(StrCat("policy \"", name,
                                    "\" does not exist; choose one of ",
                                    absl::StrJoin(PolicyNames(), ", ")));
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kPolicies) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace gavel
