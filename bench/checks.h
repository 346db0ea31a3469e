// Checks the results of a benchmark: prints each check, and counts wrong
// results.
#ifndef GAVEL_BENCH_CHECKS_H_
#define GAVEL_BENCH_CHECKS_H_

#include <cmath>
#include <cstdio>
#include <string>

namespace gavel::bench {

class Checks {
 public:
  // An allocation has `value`, and none has more than `bound`, whose demands
  // cost `cost` at its prices. The gap that this proves is at most `gap_max`,
  // as a fraction of the bound.
  void Certified(const std::string& what, double value, double bound,
                 double cost, double gap_max) {
    constexpr double kRounding = 1e-10;
    const double unproved = cost >= 1 ? 0 : 1 - cost;
    const double apart = (bound - value) / std::abs(bound);
    const double gap = apart + unproved;
    // `apart` is negative if an allocation is beyond its bound.
    const bool right = apart >= -kRounding && gap <= gap_max + kRounding;
    std::printf("  %s: %.10g, verified gap %.1e%s\n", what.c_str(), value, gap,
                right ? "" : " WRONG");
    Count(right);
  }
  // Two solvers' values of one problem differ by at most this fraction.
  void Agree(const std::string& what, double value, double other,
             double part_max) {
    const double part = (value - other) / std::abs(other);
    const bool right = std::abs(part) <= part_max;
    std::printf("  %s: %+.1e from the other's%s\n", what.c_str(), part,
                right ? "" : " WRONG");
    Count(right);
  }
  void Holds(const std::string& what, bool holds) {
    if (!holds) std::printf("  %s: WRONG\n", what.c_str());
    Count(holds);
  }

  int wrong() const { return wrong_; }

 private:
  void Count(bool right) { wrong_ += right ? 0 : 1; }

  int wrong_ = 0;
};

}  // namespace gavel::bench

#endif  // GAVEL_BENCH_CHECKS_H_
