// Checks that the bound of a solve certifies its objective. A bound proves that
// no allocation is better, so a valid one is never worse than the achieved
// objective by more than rounding. Called by all policies that prove their
// results. Pure functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_BOUND_H_
#define GAVEL_COORDINATOR_POLICY_BOUND_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "coordinator/policy/policy.h"

namespace gavel::policy {

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

#endif  // GAVEL_COORDINATOR_POLICY_BOUND_H_
