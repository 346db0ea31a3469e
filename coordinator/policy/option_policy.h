// Policies that are one function of the problem under several names, which
// differ in options. Called by finish_time_fairness.cc, max_sum_throughput.cc
// and min_total_duration.cc. Thread-safe, as all policies.
#ifndef GAVEL_COORDINATOR_POLICY_OPTION_POLICY_H_
#define GAVEL_COORDINATOR_POLICY_OPTION_POLICY_H_

#include <memory>
#include <string_view>

#include "coordinator/policy/policy.h"

namespace gavel {

// `Options` has a member `bool pairs`: the policy packs.
template <class Options>
class OptionPolicy : public Policy {
 public:
  using Solver = absl::StatusOr<PolicyResult> (*)(const PolicyProblem& problem,
                                                  const Options& options);

  // `name` outlives the policy.
  OptionPolicy(std::string_view name, Solver solve, Options options)
      : name_(name), solve_(solve), options_(options) {}
  std::string_view name() const override { return name_; }
  bool packs() const override { return options_.pairs; }
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override {
    return solve_(problem, options_);
  }

 private:
  std::string_view name_;
  Solver solve_;
  Options options_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_OPTION_POLICY_H_
