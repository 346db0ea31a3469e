// What makes objective and bound of a solve a certificate: a bound proves that
// nothing is better, so none is ever on the wrong side of what was achieved by
// more than rounding. Called by all policies that prove what they give. Pure
// functions, thread-safe.
#ifndef GAVEL_COORDINATOR_POLICY_SHARE_BOUND_H_
#define GAVEL_COORDINATOR_POLICY_SHARE_BOUND_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "coordinator/policy/policy.h"

namespace gavel::policy {

// Which way objectives get better.
enum class Sense : uint8_t { kMaximum, kMinimum };

// Relative: an exact optimum and its bound may differ by so much either way.
inline constexpr double kBoundRounding = 1e-9;

// What is kOptimal is this close to its bound, relative to the larger one.
inline constexpr double kOptimalGapMax = 1e-6;

// Moves `bound` to `value`, which was achieved, where it is on the wrong side
// of it by rounding: up to kBoundRounding of `scale`, the size of the terms
// that both are sums of. Further away it proves nothing, stays as it is, and
// the text says so. Empty: it can be a bound.
std::string CheckBound(Sense sense, double value, double scale, double* bound);
inline std::string CheckBound(Sense sense, double value, double* bound) {
  return CheckBound(sense, value, std::max(std::abs(value), std::abs(*bound)),
                    bound);
}

// The same of the objective and bound of a result, which are set, as all else
// of it is. A bound that proves nothing, and one that is further away from what
// was called kOptimal than kOptimalGapMax, is told in `detail`, and what was
// kOptimal is kIterationLimit. False: it is so.
bool Certify(Sense sense, PolicyResult* result);

// The result of a solve that ended so, after Certify.
PolicyResult Certified(Sense sense, const SolveReport& report,
                       PolicyResult result);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_SHARE_BOUND_H_
