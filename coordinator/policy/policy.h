// The interface of all scheduling policies: a problem goes in, an allocation
// (fractions of time, which the mechanism realises) or an assignment for one
// lease comes out. Pure: solvers have iteration limits, never time limits.
// The server calls Solve on its solver thread, the simulator inline.
#ifndef GAVEL_COORDINATOR_POLICY_POLICY_H_
#define GAVEL_COORDINATOR_POLICY_POLICY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"

namespace gavel {

// One job as a policy sees it.
struct PolicyJob {
  JobId id;
  int scale_factor = 1;        // s_m >= 1
  double weight = 1;           // w_m > 0
  double arrival_s = 0;        // orders FIFO; ties by id
  double steps_remaining = 0;  // 0: not known
  double time_since_start_s = 0;
  int running_on = -1;  // index into PolicyProblem::types; -1: waits
};

// A scheduling problem: n jobs, J accelerator types.
struct PolicyProblem {
  std::vector<std::string> types;   // J names, in a fixed order
  std::vector<int> capacity;        // N_j, accelerators of each type, >= 0
  std::vector<PolicyJob> jobs;      // n, in the order of ids
  std::vector<double> throughputs;  // [n x J] row-major, steps/s, >= 0;
                                    // 0: cannot run there
  std::span<const double> Row(size_t job) const {
    return {throughputs.data() + job * types.size(), types.size()};
  }
};

// Fractions of time X[job][type] in [0, 1]. A handle to a compact form that is
// shared and never changed; Row() is bit-identical on every CPU. Rows sum to at
// most 1; sum over jobs of s_m X[m][j] is at most N_j.
class Allocation {
 public:
  Allocation() = default;
  // `jobs` ascending; `shares` [jobs x types] row-major.
  static Allocation FromRows(std::vector<JobId> jobs, size_t types,
                             std::vector<double> shares);

  size_t types() const;
  std::span<const JobId> jobs() const;
  bool Contains(JobId job) const;
  // The job's shares by type. All zero for a job that is not contained.
  std::vector<double> Row(JobId job) const;

 private:
  class Form;  // dense rows today; prices and a mixture later
  std::shared_ptr<const Form> form_;
};

// One job's accelerators for one lease, by type: what policies return that
// choose accelerators themselves (FIFO, Gandiva, Themis).
struct TypeAssignment {
  JobId job;
  size_t type = 0;  // index into PolicyProblem::types; all s_m on this type
};

enum class SolveOutcome : uint8_t {
  kOptimal,
  kIterationLimit,  // feasible, within `gap` of the bound
  kInfeasible,
  kFailed,  // the solver broke down; `detail` says how
};

// What a policy decided, with its certificate. Whatever the outcome, what is
// given is feasible, and `objective`, `bound` and `gap` are true of it.
struct PolicyResult {
  SolveOutcome outcome = SolveOutcome::kFailed;
  std::string detail;
  bool is_assignment = false;
  Allocation allocation;                   // when !is_assignment
  std::vector<TypeAssignment> assignment;  // when is_assignment
  std::vector<JobId> left_out;             // usable on no type of the cluster
  double objective = 0;  // recomputed from the allocation itself
  double bound = 0;      // no feasible allocation does better than this
  double gap = 0;        // |bound - objective| / max(1, |bound|)
  std::string solver;    // e.g. "highs-simplex"
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // Const and free of state: the same problem gives the same bits.
  // INVALID_ARGUMENT when the problem is malformed (names the job).
  virtual absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const = 0;
};

// The policy called `name`: "max_min_fairness", "max_min_fairness_perf",
// "fifo". NOT_FOUND names the ones that exist.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name);

// Names that MakePolicy knows, sorted.
std::vector<std::string> PolicyNames();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_POLICY_H_
