// The interface of all scheduling policies: a problem goes in, an allocation
// (fractions of time, which the mechanism realises) or an assignment for one
// lease comes out. Pure: solvers have iteration limits, never time limits.
// The server calls Solve on its solver thread, the simulator inline.
#ifndef GAVEL_COORDINATOR_POLICY_POLICY_H_
#define GAVEL_COORDINATOR_POLICY_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/policy/share/row_table.h"
#include "core/ids.h"
#include "core/share_unit.h"

namespace gavel {

struct PolicyProblem;

// One job as a policy sees it. Times are seconds.
struct PolicyJob {
  JobId id;
  int scale_factor = 1;        // s_m >= 1
  double weight = 1;           // w_m > 0
  double arrival_s = 0;        // orders FIFO; ties by id
  double steps_remaining = 0;  // 0: not known
  double time_since_start_s = 0;
  double time_received_s = 0;  // that it ran, alone or in a pair
  // How long an equal part of the cluster (1/n of each type) would have taken
  // for the work that it has done so far: Gavel's cumulative isolated time.
  double isolated_s = 0;
  // Seconds from now; <= 0: missed. In rounds the engine takes a round off.
  double deadline_s = kNoDeadline;
  int entity = -1;      // index into PolicyProblem::entities; -1: none
  int running_on = -1;  // index into PolicyProblem::types; -1: waits
  JobId running_with;   // the other of its packed pair now; invalid: alone

  static constexpr double kNoDeadline = std::numeric_limits<double>::infinity();
};

// An organisation that jobs belong to (Gavel section 4.3).
struct PolicyEntity {
  std::string name;
  double weight = 1;                // > 0
  std::string policy = "fairness";  // inside it: "fairness", "fifo", or the
                                    // name of any policy
};

// Two kinds of jobs that may share accelerators; both have the same scale
// factor. first <= second; where they are equal, two jobs of that kind.
struct PolicyPair {
  size_t first = 0;  // see PolicyProblem::kinds
  size_t second = 0;
};

// Which jobs of a problem are equal in all that max-min fairness looks at:
// their throughputs, scale factor and weight. A problem keeps it from one solve
// to the next (PolicyProblem::rows), so that a job that comes, goes or changes
// takes one look at a table. The numbers of rows depend on that history, so
// nothing may depend on the numbers. Called by ClassesOf (job_classes.h) and
// the engine. A value without locks.
class JobRows {
 public:
  JobRows() = default;
  // Ends at the first row above `rows_max` different ones: row_of is empty.
  explicit JobRows(const PolicyProblem& problem,
                   size_t rows_max = std::numeric_limits<size_t>::max());

  // The number of the row of a job with these `throughputs` [columns], steps/s.
  uint32_t Number(const PolicyJob& job, std::span<const double> throughputs);
  // How many different ones, those of jobs that have gone included.
  size_t size() const { return table_.size(); }

  std::vector<uint32_t> row_of;  // [n] by job; empty: not known

 private:
  // For each row of the table: its job's scale factor, weight and throughputs.
  std::vector<double> values_;  // [rows x (2 + columns)]
  RowTable table_;
};

// Which solver linear programs go to. kAuto: prices (lp/price_levels.h) where
// the problem has their shape and they prove their answer, else HiGHS. kPrices:
// theirs as it is, where the problem has the shape.
enum class SolverChoice : uint8_t { kAuto, kHighs, kPrices };

// A scheduling problem: n jobs, J accelerator types, P pairs.
//
// Columns: where a gang's placement matters the J types are 2 J columns, first
// the J consolidated ones (all of the gang on one server), then the J
// unconsolidated ones (Gavel section 3.1). Otherwise columns are types.
struct PolicyProblem {
  std::vector<std::string> types;   // J names, in a fixed order
  std::vector<int> capacity;        // N_j, accelerators of each type, >= 0
  std::vector<PolicyJob> jobs;      // n, in the order of ids
  std::vector<double> throughputs;  // [n x columns()] row-major, steps/s, >= 0;
                                    // 0: cannot run there
  // [n] in [0, n): jobs of one kind have one scale factor, and the same
  // throughputs in pairs with others. Empty: each job is of a kind of its own,
  // its index.
  std::vector<size_t> kinds;
  std::vector<PolicyPair> pairs;  // ascending by (first, second)
  // [P x columns() x 2]: of a job of the first and of one of the second kind,
  // when they share; the same for two of one kind. 0 for either: they can't
  // share there.
  std::vector<double> pair_throughputs;
  std::vector<double> cost;  // [J] per accelerator and hour; empty: 1 each
  std::vector<PolicyEntity> entities;
  // [J] accelerators of each server that has the type. Empty: placement does
  // not matter. Else each inner list sums to capacity[j].
  std::vector<std::vector<int>> servers;
  SolverChoice solver = SolverChoice::kAuto;
  // CheckProblem has passed it, and all changes since have been checked. For
  // callers that keep a problem from one solve to the next. Policies rely on
  // it.
  bool checked = false;
  // The same for which jobs are equal. Policies that ask and don't find it here
  // find it out: answers are the same to the bit.
  JobRows rows;

  bool placement_sensitive() const { return !servers.empty(); }
  size_t columns() const {
    return placement_sensitive() ? 2 * types.size() : types.size();
  }
  size_t TypeOfColumn(size_t column) const { return column % types.size(); }
  std::span<const double> Row(size_t job) const {
    return {throughputs.data() + job * columns(), columns()};
  }
  size_t KindOf(size_t job) const { return kinds.empty() ? job : kinds[job]; }
  // Throughputs of a pair: element 2 c of the first, 2 c + 1 of the second kind
  // in column c.
  std::span<const double> PairRow(size_t pair) const {
    return {pair_throughputs.data() + pair * columns() * 2, columns() * 2};
  }
};

// Fractions of time X[unit][column] in [0, 1]. A handle to a compact form that
// is shared and never changed: units that are equal have one row. Shares are
// bit-identical on every CPU. The rows that hold one job sum to at most 1
// together; the sum over units of s_u X[u][j] is at most N_j.
class Allocation {
 public:
  Allocation() = default;
  // `units` ascending; `shares` [units x columns] row-major.
  static Allocation FromRows(std::vector<ShareUnit> units, size_t columns,
                             std::vector<double> shares);
  // The same of units of which many have equal shares: `class_of` [units] into
  // `shares` [classes x columns], or empty: each is a class of its own.
  static Allocation FromClasses(std::vector<ShareUnit> units,
                                std::vector<uint32_t> class_of, size_t columns,
                                std::vector<double> shares);

  size_t columns() const;
  std::span<const ShareUnit> units() const;  // ascending
  // The unit's position in units(); nullopt: it is not there. O(log units).
  std::optional<size_t> Find(const ShareUnit& unit) const;
  // [columns] the shares of units()[position]; as long as this or a copy lives.
  std::span<const double> RowAt(size_t position) const;
  // A unit that holds the job is there (with whatever share).
  bool Contains(JobId job) const;
  // The unit's shares by column. All zero for one that is not there.
  std::vector<double> Row(const ShareUnit& unit) const;
  // The job's shares by column, alone and in all of its pairs together.
  std::vector<double> Row(JobId job) const;

 private:
  class Form;
  std::shared_ptr<const Form> form_;
};

// One unit's accelerators for one lease, by type: what policies return that
// choose accelerators themselves (FIFO, Gandiva, Themis).
struct TypeAssignment {
  ShareUnit unit;
  size_t type = 0;  // index into PolicyProblem::types; all s_u on this type
  friend bool operator==(const TypeAssignment&,
                         const TypeAssignment&) = default;
};

enum class SolveOutcome : uint8_t {
  kOptimal,
  kIterationLimit,  // feasible, within `gap` of the bound
  kInfeasible,
  kFailed,  // the solver broke down; `detail` says how
};
// "optimal", "iteration_limit", "infeasible", "failed".
std::string_view OutcomeName(SolveOutcome outcome);

// Why an accelerator of one type is worth more than one of another. Rounds use
// it to give out what shares leave over.
enum class TypeWorth : uint8_t {
  // Nothing: agnostic policies, those that give each job its part of each type,
  // and those that keep deadlines.
  kAlike,
  // That the job is faster there.
  kSpeed,
  // Steps/s of all jobs, and steps per cost: of policies that maximise their
  // sum. Leftovers go where they are worth most, not to the unit that received
  // least.
  kThroughput,
  kThroughputPerCost,
};

// How a solve ended.
struct SolveReport {
  SolveOutcome outcome = SolveOutcome::kFailed;
  std::string detail;  // when it is not kOptimal
  std::string solver;  // e.g. "prices", "highs-simplex"
  // Passes of prices over jobs or pairs, or HiGHS' iterations; 0: others.
  int iterations = 0;
};

// A policy's decision with its certificate. Whatever the outcome, the
// allocation or assignment is feasible, and `objective`, `bound` and `gap` are
// true of it.
struct PolicyResult : SolveReport {
  bool is_assignment = false;
  // An assignment that is asked for again for each round, not only when jobs
  // come and go (Gandiva's time slices).
  bool each_round = false;
  Allocation allocation;                   // when !is_assignment
  std::vector<TypeAssignment> assignment;  // when is_assignment
  std::vector<JobId> left_out;             // usable on no type of the cluster
  // In ascending order: the jobs that GuardedSolve left out, as there was no
  // answer with their figures.
  std::vector<JobId> too_extreme;
  double objective = 0;  // recomputed from the allocation itself
  double bound = 0;      // no feasible allocation does better than this
  double gap = 0;        // |bound - objective| / max(1, |bound|)
  TypeWorth worth = TypeWorth::kAlike;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // It wants PolicyProblem::pairs filled in.
  virtual bool packs() const { return false; }
  // It reads what jobs have done and received, and by when they are to end: of
  // PolicyJob steps_remaining, time_since_start_s, time_received_s, isolated_s
  // and deadline_s. Problems for one that does not may leave them at 0.
  virtual bool reads_progress() const { return true; }
  // Const and free of state: the same problem gives the same bits.
  // INVALID_ARGUMENT when the problem is malformed (names the job).
  virtual absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const = 0;
};

// The policy called `name`; PolicyNames() lists them, and "allox_alpha=A" is
// AlloX for A in (0, 1]. NOT_FOUND names the ones that exist.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name);

// Names that MakePolicy knows, sorted.
std::vector<std::string> PolicyNames();

// Every policy checks its problem first, so that nothing after this has to look
// at sizes or for values that are not numbers. A pure function, thread-safe.
// INVALID_ARGUMENT names the job, pair, type or entity and says what to give:
// sizes that do not match, jobs or pairs not in ascending order, scale factor
// < 1, a weight that is not finite and > 0, times, steps, costs and throughputs
// that are not finite and >= 0, a deadline that is not a number, an entity or a
// kind of a pair that is not there, kinds of jobs with different scale factors
// or throughputs beside each other, a pair of different scale factors, negative
// capacities, servers that do not add up to them. PolicyJob::running_on may
// name a type that is gone. OK at once when it has been `checked`.
absl::Status CheckProblem(const PolicyProblem& problem);

// True if CheckProblem finds nothing wrong with this job, its row of
// throughputs and its place behind the job before it.
bool IsSoundJob(const PolicyProblem& problem, size_t job);

// The index of the pair of the kinds of two jobs. nullopt: they don't share.
// O(log P).
std::optional<size_t> FindPair(const PolicyProblem& problem, size_t job,
                               size_t other);

}  // namespace gavel

namespace gavel::policy {

// The one way in which a live coordinator asks a policy: whatever a problem is
// like, there is an answer, and a job whose figures the solvers can't take does
// not keep the others from theirs. The solver thread and replays call it.
// Stateless, thread-safe.
//
// It returns the policy's answer. Where that is an error, an exception or
// kFailed, jobs are left out, those with the most extreme figures first, until
// it is none; PolicyResult::too_extreme names them. Jobs with a weight or a
// throughput outside of [1e-15, 1e15] are left out from the start. kFailed: it
// fails without them, too, and `detail` says why.
PolicyResult GuardedSolve(const Policy& policy, const PolicyProblem& problem);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_POLICY_H_
