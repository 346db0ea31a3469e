// A scheduling problem as the policies solve it that give out shares of time:
// the jobs that can run, the units (a job alone, or a pair) and where each can
// run, the limits of a feasible allocation, and what to do with plain shares
// before they become an Allocation. Called by the policies. Values and pure
// functions, thread-safe.
//
// Everywhere k usable jobs, J types, C columns (J, or 2 J with placement).
// "Job m" below is an index in [0, k) into ShareProblem::jobs. Shares are a
// vector X with one element per cell.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_PROBLEM_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/policy/policy.h"

namespace gavel::policy {

struct PairTable;

// A job alone, or two that share accelerators.
struct UsableUnit {
  ShareUnit id;
  uint32_t first = 0;  // job m
  int second = -1;     // job m of the partner; -1: alone
};

inline constexpr uint32_t kNoPlacement = std::numeric_limits<uint32_t>::max();

// One share X[unit][column] that may be above zero: the unit can run there.
struct ShareCell {
  uint32_t unit = 0;    // index into ShareProblem::units
  uint32_t column = 0;  // in [0, C)
  uint32_t type = 0;    // in [0, J)
  // Index into ShareProblem::limits of a second limit on it, beside that of
  // the type: its gangs' places on single servers.
  uint32_t placement = kNoPlacement;
  double scale_factor = 1;  // accelerators that it holds

  // Calls visit(limit) for its one or two limits.
  template <class Visit>
  void ForEachLimit(Visit visit) const {
    visit(type);
    if (placement != kNoPlacement) visit(placement);
  }
};

// A cell that holds the job, and the job's rate if it spends all of its time
// there.
struct JobCell {
  uint32_t cell = 0;
  double throughput = 0;  // steps/s, > 0
  // The largest part of the job's time there, in (0, 1]; below 1 for a class of
  // jobs (job_classes.h) that cannot all be in the cell at a time.
  double time = 1;
};

struct ShareOptions {
  // With the problem's pairs (policies that pack).
  bool pairs = false;
  // These are not listed as units, but left in ShareProblem::pairs.
  bool pairs_unlisted = false;
  // T = 1 wherever a job alone can run. Not together with `pairs`.
  bool agnostic = false;
};

// Gavel section 3.1. X is feasible when X >= 0, each job's cells sum to at most
// 1, and each limit r holds: the sum over its cells of scale_factor X is at
// most limits[r].
//
// A unit cannot run on a type with fewer accelerators than its scale factor
// (the original forgets this), on a consolidated column without a server that
// large, or where a throughput is 0. Pairs are also left out of columns where
// time slicing is as good: T_a'/T_a + T_b'/T_b <= 1, which loses nothing.
struct ShareProblem {
  size_t types = 0;             // J
  size_t columns = 0;           // C
  std::vector<size_t> jobs;     // k indices into PolicyProblem::jobs, ascending
  std::vector<JobId> left_out;  // jobs that alone can run nowhere, ascending
  std::vector<double> scale_factor;  // [k], s_m
  std::vector<double> weight;        // [k], w_m
  std::vector<double> throughputs;   // [k x C] alone; 0 where it can't run
  // Ascending by id; each job alone is there. Pairs that are listed later (see
  // PairTable) come last, as their cells do.
  std::vector<UsableUnit> units;
  std::vector<ShareCell> cells;    // by unit, then column
  std::vector<JobCell> job_cells;  // of job m: [job_start[m], job_start[m+1])
  std::vector<size_t> job_start;   // [k + 1]
  std::vector<double> capacity;    // [J], N_j
  // First the J capacities; then, where gangs of s do not fill the servers of a
  // type, the accelerators that they can use: sum over servers of
  // floor(size / s) s, for the consolidated cells of units with that s.
  std::vector<double> limits;
  // Pairs that may not be listed as units; null: all are.
  std::shared_ptr<const PairTable> pairs;
  // The last cells, which were listed from it: indices of its cells.
  std::vector<size_t> listed;

  size_t size() const { return jobs.size(); }
  double accelerators() const {
    return std::accumulate(capacity.begin(), capacity.end(), 0.0);
  }
  // Throughputs of job m alone, by column.
  std::span<const double> Row(size_t m) const {
    return {throughputs.data() + m * columns, columns};
  }
  // The cells that hold job m, alone or in a pair, ascending.
  std::span<const JobCell> Cells(size_t m) const {
    return {job_cells.data() + job_start[m], job_start[m + 1] - job_start[m]};
  }
};

// `problem` has passed CheckProblem. O(throughputs + pair throughputs).
ShareProblem MakeShareProblem(const PolicyProblem& problem,
                              ShareOptions options = {});

// `problem` as agnostic policies see it that need real durations: T[m][j] :=
// the throughput of job m on "v100" (the original Gavel's choice) wherever it
// can run, its highest one where it can't run on that type or there is none.
PolicyProblem WithReferenceType(PolicyProblem problem);

// [J] costs per accelerator and hour; 1 each where the problem has none. Its
// caller divides by them: INVALID_ARGUMENT names a type that costs nothing.
absl::StatusOr<std::vector<double>> Costs(const PolicyProblem& problem);

// Each job is equally fast in all of its cells: to agnostic policies, or where
// it really is.
bool AllTypesAlike(const ShareProblem& problem);

// T_m(X), steps/s.
double Throughput(const ShareProblem& problem, size_t m,
                  std::span<const double> shares);
// [k] the same of all jobs.
std::vector<double> Throughputs(const ShareProblem& problem,
                                std::span<const double> shares);
// [k] throughput(m, X^equal), Gavel section 4.1: prop_m = sum_j T[m][j] N_j /
// sum_j N_j, the throughput of the job alone with equal time on all
// accelerators. With placement T of a type is that of its consolidated column,
// where the job can run there, else of the unconsolidated one.
std::vector<double> ProportionalThroughputs(const ShareProblem& problem);
// [k] the most that job m can have, all the time in its best cell, whether
// that is listed or not.
std::vector<double> LargestThroughputs(const ShareProblem& problem);
// [k] s_m / prop_m, which makes throughputs of different models and gangs
// comparable (Gavel section 4.1).
std::vector<double> Normalizers(const ShareProblem& problem);
// [k] the same times w_m.
std::vector<double> WeightedNormalizers(const ShareProblem& problem);

// Brings a solver's X, right only to its tolerance, into its limits: what is
// below 1e-13 (or not a number) becomes 0, then jobs and then limits are scaled
// down. Feasible to rounding after.
void RepairShares(const ShareProblem& problem, std::span<double> shares);

// Gives jobs that are short of `wanted` ([k] steps/s) by more than 1e-9,
// relative, the missing rate in their best cells, if that takes less than 1e-9
// of the cluster from the others: a job of little weight may need less time
// than the solver's tolerance. Feasible shares stay feasible, and so do empty
// ones.
void TopUpShares(const ShareProblem& problem, std::span<const double> wanted,
                 std::span<double> shares);

// Each type split evenly over the accelerators asked for by jobs that can use
// it alone: feasible, and a throughput above zero for every job.
std::vector<double> EvenShares(const ShareProblem& problem);

// Every job in its best cell, alone, all the time: optimal for whatever rises
// with throughputs. nullopt when they don't all fit, or a job is faster in a
// pair (never an error: then there is a linear program to solve).
std::optional<std::vector<double>> EveryoneAtBest(const ShareProblem& problem);

// False: EveryoneAtBest is nullopt, of this or of whatever jobs these are the
// classes of (job_classes.h). Without pairs.
bool MayAllBeAtBest(const ShareProblem& problem);

// For policies to which all types are alike: the same time for each job, spread
// equally over the types that it can use, as far as their accelerators go. In
// proportion to their numbers a job would spend most of its time on the type of
// which there are most, the slowest as a rule. A vertex of a linear program
// would leave one job on the fastest type and another on the slowest for good.
//
// Moves each job's shares among its cells: their sum stays as it is, to
// rounding, and limits are kept. Leaves `shares` alone when some job is not
// equally fast in all of its cells, when there are pairs, or when a spread that
// keeps every sum is not found (an iteration that has not converged).
void SpreadEvenly(const ShareProblem& problem, std::span<double> shares);

// Where no accelerator is scarce: there are no jobs, or every job can have its
// best cell all the time (EveryoneAtBest), spread evenly. `objective` of these
// shares is also the bound. nullopt: there is something to solve.
std::optional<PolicyResult> ResultIfNoneScarce(
    const ShareProblem& problem,
    const std::function<double(std::span<const double> shares)>& objective);

// All jobs alone, and the pairs that have a share.
Allocation ToAllocation(const ShareProblem& problem,
                        std::span<const double> shares);

// A feasible allocation with its certificate. outcome is kOptimal: what calls
// it sets it where it is not. worth is kSpeed, or kAlike where all types are.
PolicyResult ToResult(const ShareProblem& problem,
                      std::span<const double> shares, double objective,
                      double bound, std::string_view solver = "");

// The pairs of a problem by kinds of jobs (PolicyProblem::kinds), and how those
// of them that a program needs are listed as units of a ShareProblem: of
// hundreds of thousands of pairs an optimum holds no more than a program has
// rows. Called by MakeShareProblem, ClassifyJobs and PairColumns. Values
// and pure functions, thread-safe.

// A job of the first kind beside one of the second, in a column.
struct PairCell {
  uint32_t first = 0;  // kinds, first <= second
  uint32_t second = 0;
  uint32_t column = 0;                // in [0, C)
  uint32_t placement = kNoPlacement;  // as in ShareCell
  double first_throughput = 0;        // steps/s, > 0
  double second_throughput = 0;
};

struct PairTable {
  std::vector<std::vector<uint32_t>> jobs;  // by kind: jobs m, ascending
  std::vector<PairCell> cells;              // by first, second kind, column
  std::vector<size_t> kind;                 // [k]
  std::vector<double> members;  // [k] jobs of the class m; 1: no classes
  std::vector<double> fastest;  // [k] in a pair; 0: it is in none

  // There is more than one job of the class: it makes pairs with itself.
  bool PairsWithItself(size_t m) const { return members[m] > 1; }
  // How many pairs of the classes a and b can run at a time, at most.
  double PairsAtATime(size_t a, size_t b) const;
};

// Fills in `fastest` from the rest.
void SetFastest(PairTable* table);

// A cell of a pair that is to be listed: of the class `first` (of the first
// kind of the cell) and the class `second`.
struct ListedCell {
  uint32_t first = 0;  // jobs m
  uint32_t second = 0;
  size_t cell = 0;  // index into PairTable::cells
};

// Lists cells of problem->pairs, in the order given, behind those that there
// are. None of them is there yet. A share of 1 is as many pairs as can run at a
// time: all of the smaller class.
void ListCells(std::span<const ListedCell> listed, ShareProblem* problem);

double Dot(std::span<const double> a, std::span<const double> b);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_PROBLEM_H_
