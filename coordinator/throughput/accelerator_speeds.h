// Which accelerators are slower than others of their type: a failing fan, a
// throttled clock, another user's process. Told by jobs that ran alone on
// several of them, whatever their own speed. The engine owns one. Not
// thread-safe.
#ifndef GAVEL_COORDINATOR_THROUGHPUT_ACCELERATOR_SPEEDS_H_
#define GAVEL_COORDINATOR_THROUGHPUT_ACCELERATOR_SPEEDS_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace gavel {

class AcceleratorSpeeds {
 public:
  // So much slower than the others makes a straggler, and so many jobs must say
  // so: one alone may have changed itself.
  static constexpr double kSlowMax = 0.85;
  static constexpr size_t kJobsMin = 2;

  // `job` made so many steps/s alone on one accelerator of that type, over
  // window_s > 0. Ignored unless finite and > 0.
  void Measure(JobId job, std::string_view type, AcceleratorId accelerator,
               double steps_per_s, double window_s);
  // What it said of accelerators stays, for the last kJobsKept jobs of each.
  void RemoveJob(JobId job);
  // Its agent began anew: what was known of it no longer counts.
  void Forget(AcceleratorId accelerator);

  // (0, kSlowMax]: a straggler's part of its type's speed, the median over the
  // jobs of their steps/s there by the median of those on others; else 1.
  double Of(AcceleratorId accelerator) const;
  bool any() const { return !slow_.empty(); }
  // All stragglers, as Of.
  const std::map<AcceleratorId, double>& slow() const { return slow_; }

  // All state, for snapshots.
  struct Rate {
    double steps_per_s = 0;  // mean over about the last minute there
    double weight_s = 0;
  };
  template <class S>
  static auto State(S& s) {
    return std::tie(s.rates_, s.ratios_, s.slow_);
  }

 private:
  static constexpr size_t kJobsKept = 16;
  using Rates = std::map<AcceleratorId, Rate>;
  // Of each job the latest, the latest last.
  using Ratios = std::vector<std::pair<JobId, double>>;

  void Compare(JobId job, const Rates& rates, AcceleratorId accelerator);

  std::map<std::pair<JobId, std::string>, Rates> rates_;
  std::map<AcceleratorId, Ratios> ratios_;
  std::map<AcceleratorId, double> slow_;
};

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_THROUGHPUT_ACCELERATOR_SPEEDS_H_
