// The pairs of a problem by kinds of jobs (PolicyProblem::kinds), and how those
// of them that a program needs are listed as units of a ShareProblem: of
// hundreds of thousands of pairs an optimum holds no more than a program has
// rows. Called by MakeShareProblem, ClassifyJobs and lp/pair_columns.h. Values
// and pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_PAIR_TABLE_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_PAIR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/policy/policy.h"
#include "coordinator/policy/share/share_problem.h"

namespace gavel::policy {

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

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_PAIR_TABLE_H_
