// The interface of all scheduling policies. A policy takes a problem and
// returns either an allocation (fractions of time, which the mechanism
// realises) or an assignment for one lease. Policies are pure: solvers have
// iteration limits, never time limits. The server calls Solve on its solver
// thread, the simulator inline.
#ifndef GAVEL_COORDINATOR_POLICY_POLICY_H_
#define GAVEL_COORDINATOR_POLICY_POLICY_H_

#include <algorithm>
#include <bit>
#include <cmath>
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
#include "core/bids.h"
#include "core/ids.h"
#include "core/locality.h"

namespace gavel {

struct PolicyProblem;

// One job as a policy sees it. Times are seconds.
struct PolicyJob {
  JobId id;
  int scale_factor = 1;        // s_m >= 1
  double weight = 1;           // w_m > 0
  double arrival_s = 0;        // orders FIFO; ties by id
  double steps_remaining = 0;  // 0: not known
  double steps_done = 0;
  double time_since_start_s = 0;  // since it first waited for accelerators
  double time_received_s = 0;     // that it ran, alone or in a pair
  // The time that an equal part of the cluster (1/n of each type) would have
  // taken for the work done so far: Gavel's cumulative isolated time.
  double isolated_s = 0;
  // Seconds from now; <= 0: missed. The engine subtracts one round, or half of
  // the time left if that is less, because rounds realise shares only to within
  // a round.
  double deadline_s = kNoDeadline;
  int entity = -1;      // index into PolicyProblem::entities; -1: none
  int running_on = -1;  // index into PolicyProblem::types; -1: waits
  JobId running_with;   // the other of its packed pair now; invalid: alone
  int app = -1;  // index into PolicyProblem::apps; -1: it is an app of its own
  // The same of PolicyApp for a job that is an app of its own.
  double apps_average = 1;
  double rho_factor = 1;

  static constexpr double kNoDeadline = std::numeric_limits<double>::infinity();
};

// An organisation that jobs belong to (Gavel section 4.3).
struct PolicyEntity {
  std::string name;
  double weight = 1;                // > 0
  std::string policy = "fairness";  // inside it: "fairness", "fifo", or the
                                    // name of any policy
};

// An app of several jobs with one goal, for finish-time fairness (Themis,
// NSDI'20, section 3).
struct PolicyApp {
  double age_s = 0;  // since its first job was submitted, >= 0
  // The time average of the number of apps present since then, >= 1.
  double apps_average = 1;
  // The app states its rho times this, > 0. Simulations of apps that lie set
  // it; 1: the app states its true rho.
  double rho_factor = 1;
  // The work of its jobs that have ended, as each would have run alone on the
  // type where it is fastest: the longest, in seconds, and the sum, in
  // accelerator-seconds; >= 0.
  double ended_longest_s = 0;
  double ended_area_s = 0;
  // Its own bid for all accelerators of the problem. nullopt: the policy bids
  // for it.
  std::optional<OwnBid> bid = std::nullopt;
  // Its work, as its optimiser says. nullopt: the optimiser says nothing.
  std::optional<AppGoal> goal = std::nullopt;
};

// The usable accelerators of one type on one server.
struct PolicyHost {
  AcceleratorId id;  // the first of them; names the host
  size_t type = 0;   // index into PolicyProblem::types
  int capacity = 0;  // >= 1
  int group = 0;     // the most that are joined in a group, <= capacity
  int rack = -1;     // hosts of one rack have the same number; -1: not known
};

// Accelerators of a host that a job has, or that its parked processes had last.
struct PolicyPlace {
  size_t job = 0;   // index into PolicyProblem::jobs
  size_t host = 0;  // index into PolicyProblem::hosts
  int count = 0;    // >= 1
};

// A loss that a job reported.
struct PolicyLoss {
  size_t job = 0;  // index into PolicyProblem::jobs
  double steps = 0;
  double loss = 0;
};

// The throughputs of an elastic job by its number of workers.
struct PolicySizes {
  size_t job = 0;                   // index into PolicyProblem::jobs
  int least = 1;                    // workers of the first row, >= 1
  std::vector<double> steps_per_s;  // [sizes x J] of least, least + 1, ...
};

// Two kinds of jobs that may share accelerators. Both have the same scale
// factor, and first <= second. If they are equal, the pair is two jobs of that
// kind.
struct PolicyPair {
  size_t first = 0;  // see PolicyProblem::kinds
  size_t second = 0;
};

// A hash table that numbers rows, so that equal rows have the same number. The
// table stores hashes only: rows stay with the caller, which compares those
// with equal hashes. Called by JobRows, job_classes.h and PriceClasses. A value
// without locks.

// Returns the hash of a row that is extended by `value`, given the hash of the
// row so far. -0 and 0 give the same hash.
inline uint64_t AddToHash(uint64_t hash, double value) {
  hash ^= std::bit_cast<uint64_t>(value + 0.0);
  hash *= 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: spreads the bits
  return hash ^ (hash >> 29);
}

inline uint64_t AddToHash(uint64_t hash, std::span<const double> values) {
  for (const double value : values) hash = AddToHash(hash, value);
  return hash;
}

class RowTable {
 public:
  // Returns the number of the row that has this hash and for which
  // is_row(number) is true. If there is none, the row is new and gets the next
  // number, which is size() before the call.
  template <class IsRow>
  uint32_t Number(uint64_t hash, IsRow is_row) {
    if (2 * hashes_.size() >= slots_.size()) Grow();
    size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] != kEmptySlot; slot = Next(slot)) {
      const uint32_t number = slots_[slot];
      if (hashes_[number] == hash && is_row(number)) return number;
    }
    slots_[slot] = static_cast<uint32_t>(hashes_.size());
    hashes_.push_back(hash);
    return slots_[slot];
  }
  size_t size() const { return hashes_.size(); }

 private:
  static constexpr uint32_t kEmptySlot = std::numeric_limits<uint32_t>::max();

  size_t Next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void Grow() {
    constexpr size_t kSlotsMin = 64;
    slots_.assign(slots_.empty() ? kSlotsMin : 4 * slots_.size(), kEmptySlot);
    for (size_t number = 0; number < hashes_.size(); ++number) {
      size_t slot = hashes_[number] & (slots_.size() - 1);
      while (slots_[slot] != kEmptySlot) slot = Next(slot);
      slots_[slot] = static_cast<uint32_t>(number);
    }
  }

  std::vector<uint64_t> hashes_;  // by number
  // Open addressing. The number of slots is a power of two, and at most half of
  // them are used.
  std::vector<uint32_t> slots_;
};

// Which jobs of a problem are equal in everything that max-min fairness reads:
// throughputs, scale factor and weight. A problem keeps its JobRows from one
// solve to the next (PolicyProblem::rows), so a job that arrives, ends or
// changes costs one look-up in a table. The numbers of rows depend on that
// history, so no result may depend on them. Called by ClassesOf (job_classes.h)
// and the engine. A value; not thread-safe.
class JobRows {
 public:
  JobRows() = default;
  // Stops once there are more than `rows_max` different rows; row_of is then
  // empty.
  explicit JobRows(const PolicyProblem& problem,
                   size_t rows_max = std::numeric_limits<size_t>::max());

  // Returns the number of the row of a job with these `throughputs` [columns],
  // in steps/s. Adds the row if it is new.
  uint32_t Number(const PolicyJob& job, std::span<const double> throughputs);
  // The number of different rows, including those of jobs that have gone.
  size_t size() const { return table_.size(); }

  std::vector<uint32_t> row_of;  // [n] by job; empty: not known

 private:
  // For each row of the table: its job's scale factor, weight and throughputs.
  std::vector<double> values_;  // [rows x (2 + columns)]
  RowTable table_;
};

// Which solver is used for linear programs. kAuto: prices (price_levels.h) if
// the problem has their shape and they prove their answer, else HiGHS.
// kPrices: the answer of prices without a fall-back, if the problem has their
// shape, else HiGHS.
enum class SolverChoice : uint8_t { kAuto, kHighs, kPrices };

// A scheduling problem: n jobs, J accelerator types, P pairs.
//
// Columns: if a gang's placement matters, the J types have 2 J columns: first
// the J consolidated ones (the whole gang on one server), then the J
// unconsolidated ones (Gavel section 3.1). Otherwise columns are types. With
// more levels each column has the throughput of the tightest level on one
// server or beyond it that has room for the gang in an empty cluster.
struct PolicyProblem {
  std::vector<std::string> types;   // J names, in a fixed order
  std::vector<int> capacity;        // N_j, accelerators of each type, >= 0
  std::vector<PolicyJob> jobs;      // n, in the order of ids
  std::vector<double> throughputs;  // [n x columns()] row-major, steps/s, >= 0;
                                    // 0: cannot run there
  // [n x J x kLocalities] the throughputs of gangs at each level, for policies
  // that bid by them (themis); 0 as above. Empty: columns say all that is
  // known.
  std::vector<double> level_throughputs;
  // [n] in [0, n), the kind of each job. Jobs of one kind have the same scale
  // factor and the same throughputs in pairs with other jobs. Empty: each job
  // is its own kind, numbered by its index.
  std::vector<size_t> kinds;
  std::vector<PolicyPair> pairs;  // ascending by (first, second)
  // [P x columns() x 2]: while the two share, the throughputs of a job of the
  // first kind and of one of the second kind; the two are equal in a pair of
  // one kind. If either is 0, they can't share there.
  std::vector<double> pair_throughputs;
  std::vector<double> cost;  // [J] per accelerator and hour; empty: 1 each
  std::vector<PolicyEntity> entities;
  std::vector<PolicyApp> apps;
  // [J] the number of accelerators on each server that has the type. Empty:
  // placement does not matter. Otherwise each inner list sums to capacity[j].
  std::vector<std::vector<int>> servers;
  // The servers and which jobs are there, for policies that choose servers
  // (gandiva_reactive). Hosts of a type together have at most its capacity.
  // Empty: each type is one host. Places ascend by job.
  std::vector<PolicyHost> hosts;
  std::vector<PolicyPlace> places;
  // For policies that predict training (optimus, slaq): the losses of jobs,
  // ascending by job and then by steps, and the sizes of elastic jobs,
  // ascending by job. Jobs may be missing in both.
  std::vector<PolicyLoss> losses;
  std::vector<PolicySizes> sizes;
  double round_s = 0;  // length of a round, >= 0
  uint64_t round = 0;  // how many rounds there were
  SolverChoice solver = SolverChoice::kAuto;
  // True if CheckProblem has accepted the problem and every change since then
  // was checked. For callers that keep a problem from one solve to the next.
  // Policies rely on it.
  bool checked = false;
  // Which jobs are equal, also kept from one solve to the next. If this is
  // empty, policies that need it compute it; the answer is the same to the bit.
  JobRows rows;

  bool placement_sensitive() const { return !servers.empty(); }
  size_t columns() const {
    return placement_sensitive() ? 2 * types.size() : types.size();
  }
  size_t TypeOfColumn(size_t column) const { return column % types.size(); }
  std::span<const double> Row(size_t job) const {
    return {throughputs.data() + job * columns(), columns()};
  }
  // At the level, as far as it is known.
  double ThroughputAt(size_t job, size_t type, Locality level) const {
    if (!level_throughputs.empty()) {
      return level_throughputs[(job * types.size() + type) * kLocalities +
                               static_cast<size_t>(level)];
    }
    const bool spread = placement_sensitive() && level >= Locality::kRack;
    return Row(job)[spread ? types.size() + type : type];
  }
  size_t KindOf(size_t job) const { return kinds.empty() ? job : kinds[job]; }
  // Throughputs of a pair: in column c, element 2 c is that of the first kind
  // and element 2 c + 1 that of the second.
  std::span<const double> PairRow(size_t pair) const {
    return {pair_throughputs.data() + pair * columns() * 2, columns() * 2};
  }
};

// Fractions of time X[unit][column] in [0, 1]. A handle to an immutable,
// shared, compact form in which equal units have one row. Shares are
// bit-identical on every CPU. The rows of all units that hold a job together
// sum to at most 1; the sum over units of s_u X[u][j] is at most N_j.
class Allocation {
 public:
  Allocation() = default;
  // `units` ascending; `shares` [units x columns] row-major.
  static Allocation FromRows(std::vector<ShareUnit> units, size_t columns,
                             std::vector<double> shares);
  // As FromRows, for units of which many have equal shares. `class_of` [units]
  // gives each unit's row in `shares` [classes x columns]; if it is empty, each
  // unit is a class of its own.
  static Allocation FromClasses(std::vector<ShareUnit> units,
                                std::vector<uint32_t> class_of, size_t columns,
                                std::vector<double> shares);

  size_t columns() const;
  std::span<const ShareUnit> units() const;  // ascending
  // The unit's position in units(); nullopt if it is not there. O(log units).
  std::optional<size_t> Find(const ShareUnit& unit) const;
  // [columns] the shares of units()[position]. Valid while this object or a
  // copy of it exists.
  std::span<const double> RowAt(size_t position) const;
  // Whether a unit that holds the job is there, with whatever share.
  bool Contains(JobId job) const;
  // The unit's shares by column; all zero if the unit is not there.
  std::vector<double> Row(const ShareUnit& unit) const;
  // The job's shares by column, alone and in all of its pairs together.
  std::vector<double> Row(JobId job) const;

 private:
  class Form;
  std::shared_ptr<const Form> form_;
};

// One unit's accelerators for one lease, by type. Returned by policies that
// choose accelerators themselves (FIFO, Gandiva, Themis).
struct TypeAssignment {
  ShareUnit unit;
  size_t type = 0;  // index into PolicyProblem::types; all s_u on this type
  // The host that it is meant for (PolicyHost::id); invalid: any of the type.
  AcceleratorId host = {};
  // The number of workers that an elastic job shall have; 0: as it is planned.
  int workers = 0;
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
// it to assign the accelerators that shares leave over.
enum class TypeWorth : uint8_t {
  // Types are worth the same: for agnostic policies, for those that give each
  // job its part of each type, and for those that keep deadlines.
  kAlike,
  // A type is worth more to a job that is faster on it.
  kSpeed,
  // A type is worth the steps/s that it adds to the sum over all jobs, or those
  // steps per cost: for policies that maximise this sum. Leftovers go where
  // they are worth most, not to the unit that received least.
  kThroughput,
  kThroughputPerCost,
};

// An app in the auction of a round (themis.cc).
struct AppBid {
  JobId app;             // the first of its jobs that can run
  double rho = 0;        // finish-time fairness before the round
  bool offered = false;  // it was among the worst-off, and bid
  // The bundle that it won first: accelerators (0: it won nothing), an index
  // into PolicyProblem::types, and the fraction of it that it may keep.
  int bid = 0;
  int type = 0;
  double kept = 1;
  int given = 0;     // accelerators that its bids brought in all
  bool own = false;  // it made its bid itself
};

// How a solve ended.
struct SolveReport {
  SolveOutcome outcome = SolveOutcome::kFailed;
  std::string detail;  // when it is not kOptimal
  std::string solver;  // e.g. "prices", "highs-simplex"
  // Passes over jobs or pairs for prices, iterations for HiGHS, 0 for other
  // solvers.
  int iterations = 0;
};

// A policy's decision with its certificate. Whatever the outcome, the
// allocation or assignment is feasible, and `objective`, `bound` and `gap` hold
// for it.
struct PolicyResult : SolveReport {
  bool is_assignment = false;
  // The assignment must be computed again for each round, not only when jobs
  // come and go (Gandiva's time slices).
  bool each_round = false;
  Allocation allocation;                   // when !is_assignment
  std::vector<TypeAssignment> assignment;  // when is_assignment
  std::vector<JobId> left_out;             // usable on no type of the cluster
  // The jobs, ascending by id, that GuardedSolve left out because the solvers
  // gave no answer with their figures.
  std::vector<JobId> too_extreme;
  double objective = 0;  // recomputed from the allocation itself
  double bound = 0;      // no feasible allocation does better than this
  double gap = 0;        // |bound - objective| / max(1, |bound|)
  TypeWorth worth = TypeWorth::kAlike;
  std::vector<AppBid> bids;  // of apps, the largest rho first
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // Whether the policy uses PolicyProblem::pairs.
  virtual bool packs() const { return false; }
  // Whether the policy reads what jobs have done and received and when they
  // must end: steps_remaining, time_since_start_s, time_received_s, isolated_s
  // and deadline_s of PolicyJob. If not, a problem may leave them at their
  // defaults.
  virtual bool reads_progress() const { return true; }
  // Whether the policy reads PolicyProblem::losses. If not, nobody needs to
  // report losses for it.
  virtual bool reads_losses() const { return false; }
  // Stateless: the same problem gives the same bits. Returns INVALID_ARGUMENT,
  // naming the job, if the problem is malformed.
  virtual absl::StatusOr<PolicyResult> Solve(
      const PolicyProblem& problem) const = 0;
};

// Returns the policy called `name`, one of PolicyNames(), "allox_alpha=A"
// (AlloX with A in (0, 1]) or "themis_f=F" (Themis with F in [0, 1]). NOT_FOUND
// lists the names that exist.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name);

// Names that MakePolicy knows, sorted.
std::vector<std::string> PolicyNames();

// Checks a problem. Every policy calls it first, so that nothing after it has
// to check sizes or look for values that are not numbers. A pure function,
// thread-safe. INVALID_ARGUMENT names the job, pair, type or entity and says
// what to give. It is returned for: sizes that do not match; jobs or pairs not
// in ascending order; a scale factor < 1; a weight that is not finite and > 0;
// times, steps, costs or throughputs that are not finite and >= 0; a deadline
// that is not a number; an entity, or a kind in a pair, that does not exist;
// kinds of jobs with different scale factors, or with different throughputs in
// pairs; a pair of different scale factors; negative capacities; servers that
// do not add up to the capacities. PolicyJob::running_on may name a type that
// is gone. A problem marked `checked` is accepted at once.
absl::Status CheckProblem(const PolicyProblem& problem);

// Returns whether CheckProblem accepts this job, its row of throughputs and its
// place in the order of jobs.
bool IsSoundJob(const PolicyProblem& problem, size_t job);

// Returns the index of the pair of the two jobs' kinds; nullopt if they can't
// share. O(log P).
std::optional<size_t> FindPair(const PolicyProblem& problem, size_t job,
                               size_t other);

}  // namespace gavel

namespace gavel::policy {

// Asks a policy and returns a result for every problem, never an error: a job
// with figures that the solvers can't handle does not keep the others from
// being scheduled. A live coordinator calls a policy only through this
// function, on its solver thread; replays and the what-if study call it too.
// Stateless, thread-safe.
//
// Returns the policy's answer. If that is an error, an exception or kFailed,
// jobs are left out, those with the most extreme figures first and twice as
// many each time, until there is an answer or the attempts are used up.
// PolicyResult::too_extreme names the jobs left out. Jobs with a weight or a
// positive throughput outside [1e-15, 1e15] are left out from the start.
// kFailed: all attempts failed, and `detail` says why the first one did.
PolicyResult GuardedSolve(const Policy& policy, const PolicyProblem& problem);

// Checks that the bound of a solve certifies its objective. A bound proves that
// no allocation is better, so a valid one is never worse than the achieved
// objective by more than rounding. Called by all policies that prove their
// results. Pure functions, thread-safe.

// The direction in which objectives improve.
enum class Sense : uint8_t { kMaximum, kMinimum };

// Relative difference that rounding can make, in either direction, between an
// exact optimum and its bound.
inline constexpr double kBoundRounding = 1e-9;

// Largest gap of a kOptimal result to its bound, relative to the larger of the
// two.
inline constexpr double kOptimalGapMax = 1e-6;

// Checks `bound` against the achieved `value`. If `bound` is worse than `value`
// by rounding only, that is by at most kBoundRounding * `scale`, it is set to
// `value`; `scale` is the size of the terms that both are sums of. If it is
// worse by more, it proves nothing: it stays as it is, and the error is
// returned as a text. Returns "" if the bound is valid.
std::string CheckBound(Sense sense, double value, double scale, double* bound);
inline std::string CheckBound(Sense sense, double value, double* bound) {
  return CheckBound(sense, value, std::max(std::abs(value), std::abs(*bound)),
                    bound);
}

// Applies CheckBound to the objective and bound of a complete result, and sets
// its gap. If the bound proves nothing, or the result is kOptimal but its gap
// exceeds kOptimalGapMax, Certify adds this to `detail`, turns kOptimal into
// kIterationLimit and returns false.
bool Certify(Sense sense, PolicyResult* result);

// Copies `report` into `result`, applies Certify and returns the result.
PolicyResult Certified(Sense sense, const SolveReport& report,
                       PolicyResult result);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_POLICY_H_
