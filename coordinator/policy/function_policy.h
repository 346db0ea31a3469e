// A policy that is a function of the problem. Called by registry.cc, and by
// tests and benchmarks that set a solver's options. Thread-safe, as all
// policies.
#ifndef GAVEL_COORDINATOR_POLICY_FUNCTION_POLICY_H_
#define GAVEL_COORDINATOR_POLICY_FUNCTION_POLICY_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/problem.h"
#include "core/status.h"

namespace gavel {

// See Policy for both.
struct PolicyTraits {
  bool packs = false;
  bool reads_progress = true;
};

class FunctionPolicy : public Policy {
 public:
  using Function =
      std::function<absl::StatusOr<PolicyResult>(const PolicyProblem& problem)>;

  // `solve` gets problems that have passed CheckProblem.
  FunctionPolicy(std::string name, Function solve, PolicyTraits traits)
      : name_(std::move(name)), solve_(std::move(solve)), traits_(traits) {}

  std::string_view name() const override { return name_; }
  bool packs() const override { return traits_.packs; }
  bool reads_progress() const override { return traits_.reads_progress; }
  absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const override {
    GAVEL_RETURN_IF_ERROR(CheckProblem(problem));
    return solve_(problem);
  }

 private:
  std::string name_;
  Function solve_;
  PolicyTraits traits_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_FUNCTION_POLICY_H_
