// Jobs whose throughputs and accelerators are the same, as classes: where
// demands are proportional to the level, what a class uses depends on the
// sorted demands only, so a pass over prices costs a few searches per class
// however many jobs there are.
//
// Called by price_levels.h. A value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_CLASSES_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_CLASSES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/share/row_table.h"

namespace gavel::policy {

class PriceClasses {
 public:
  // Of jobs m that demand level a[m] (a: [n], >= 0). nullopt: there are more
  // than `classes_max` classes.
  static std::optional<PriceClasses> Of(const PriceJobs& jobs,
                                        std::span<const double> a,
                                        size_t classes_max);

  size_t size() const { return classes_.size(); }

  // As SumPass over all jobs. For one HighestLevel at a time; borrows this.
  PriceEvaluator Evaluator() const;

 private:
  struct Class {
    std::vector<double> throughputs;  // [J]
    double accelerators = 0;          // of one job
    std::vector<double> demands;      // ascending
    std::vector<double> sums;         // [jobs + 1] of the demands before each
  };
  // An edge of the lower hull; `type` is none (-1) at the origin.
  struct Corner {
    int type = -1;
    double rate = 0;
    double cost = 0;
  };

  explicit PriceClasses(size_t types) : types_(types) {}
  // The index of the class of jobs with these `throughputs` [J]; of a new class
  // where there was none.
  size_t ClassOf(std::span<const double> throughputs, double accelerators);
  Corner Next(const Class& one, const Corner& from,
              std::span<const double> prices) const;
  // `hints` [J]: where each edge of its hull ended the last time, by demand.
  void AddSums(const Class& one, double level, std::span<const double> prices,
               uint32_t* hints, PriceSums* sums) const;

  size_t types_;
  RowTable table_;  // of throughputs and accelerators, by class
  std::vector<Class> classes_;
};

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_CLASSES_H_
