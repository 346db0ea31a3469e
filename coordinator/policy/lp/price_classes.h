// Jobs whose throughputs and accelerators are the same, as classes: where
// demands are proportional to the level, what a class uses depends on the
// sorted demands only, so a pass over prices costs a few searches per class
// however many jobs there are. Jobs come and go by merging. Shares of a job are
// worked out when they are asked for.
//
// Called by price_levels.h and whoever solves again after a few jobs changed. A
// value without locks: not thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_LP_PRICE_CLASSES_H_
#define GAVEL_COORDINATOR_POLICY_LP_PRICE_CLASSES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/policy/lp/price_jobs.h"
#include "coordinator/policy/lp/price_levels.h"
#include "coordinator/policy/share/row_table.h"

namespace gavel {

class PriceClasses {
 public:
  explicit PriceClasses(size_t types) : types_(types) {}

  // Of jobs m that demand level a[m] (a: [n], >= 0). nullopt: there are more
  // than `classes_max` classes.
  static std::optional<PriceClasses> Of(const PriceJobs& jobs,
                                        std::span<const double> a,
                                        size_t classes_max);

  // A job as its class knows it.
  struct Member {
    size_t index = 0;  // of the class
    double a = 0;      // demand at level 1, steps/s
  };

  // The index of the class of jobs with these `throughputs` [J], for good; of a
  // new class, without jobs, where there was none.
  size_t ClassOf(std::span<const double> throughputs, double accelerators);
  // False, and nothing has changed, when one that is to go was not there. O(n)
  // at most, of the classes that change.
  bool Change(std::vector<Member> gone, std::vector<Member> come);

  size_t size() const { return classes_.size(); }
  size_t jobs() const { return jobs_; }
  // By job of Of(), whoever has come or gone since.
  const std::vector<size_t>& class_of() const { return class_of_; }

  // As SumPass over all jobs.
  PriceSums operator()(double level, std::span<const double> prices) const;
  // [J] the shares of one job in the mixture.
  std::vector<double> Shares(const Member& member,
                             std::span<const PriceColumn> mixture) const;
  // For one HighestLevel at a time; borrows this, of which nothing may change
  // while it is used.
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

  Corner Next(const Class& one, const Corner& from,
              std::span<const double> prices) const;
  // `hints` [J]: where each edge of its hull ended the last time, by demand.
  void AddSums(const Class& one, double level, std::span<const double> prices,
               uint32_t* hints, PriceSums* sums) const;

  size_t types_;
  size_t jobs_ = 0;
  RowTable table_;  // of throughputs and accelerators, by class
  std::vector<Class> classes_;
  std::vector<size_t> class_of_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_POLICY_LP_PRICE_CLASSES_H_
