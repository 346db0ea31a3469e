// Finds the highest rate of arrivals that can be sustained by bisection over
// rate_min, rate_min + precision, and so on. Pure: rates out, answers in. Not
// thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_RATE_SEARCH_H_
#define GAVEL_STUDY_SIMULATION_RATE_SEARCH_H_

#include <cstdint>
#include <optional>

#include "study/simulation/sweep_spec.h"

namespace gavel {

class RateSearch {
 public:
  explicit RateSearch(const SweepSearch& search);

  // The rate to try; nothing when the answer is known.
  std::optional<double> Next() const;
  void Answer(bool sustainable);

  // 0: not even rate_min. Final when Next() is nothing.
  double highest() const { return low_ < 0 ? 0 : RateOf(low_); }
  // All of the range can be sustained; the true answer may lie above.
  bool at_upper_end() const { return low_ == last_; }
  // How many rates are tried at most.
  int tries_max() const;

 private:
  double RateOf(int64_t index) const;
  int64_t Candidate() const;

  SweepSearch search_;
  int64_t last_;      // index of the highest rate
  int64_t low_ = -1;  // sustained
  int64_t high_;      // not sustained, or beyond the last
};

}  // namespace gavel

#endif  // GAVEL_STUDY_SIMULATION_RATE_SEARCH_H_
