// Curves through the losses that jobs report, for the policies that predict
// training (loss_policies.cc). Pure, thread-safe.
//
//   kReciprocal   1 / (b k + c) + d              Optimus (EuroSys'18), eq. 1
//   kSublinear    1 / (a k^2 + b k + c) + d      SLAQ (SoCC'17):
//   kExponential  exp(-b k - c) + d              first-order methods, and those
//                                                that converge linearly
//
// with a, b, c >= 0 (but c of any sign in kExponential) and k in steps. The
// asymptote d is below all losses; it is at least 0 if they are all above 0,
// and else no further below them than they have fallen.
#ifndef GAVEL_COORDINATOR_POLICY_LOSS_CURVE_H_
#define GAVEL_COORDINATOR_POLICY_LOSS_CURVE_H_

#include <cstdint>
#include <optional>
#include <span>

#include "coordinator/policy/policy.h"

namespace gavel::policy {

enum class CurveFamily : uint8_t { kReciprocal, kSublinear, kExponential };

struct LossCurve {
  CurveFamily family = CurveFamily::kReciprocal;
  double a = 0, b = 0, c = 0, d = 0;
  // The mean of the squared errors by weight, as a part of the squared range
  // of the losses.
  double error = 0;

  double At(double steps) const;
};

// Fewer points than this have no curve.
inline constexpr size_t kLossPointsMin = 4;

// The curve of the family that is nearest to `points`, which ascend by steps:
// non-negative least squares for each asymptote, and a search for the best
// asymptote. The weight of a point is `decay` times that of the next one.
// Nothing if there are too few points, or if the loss does not fall.
std::optional<LossCurve> FitCurve(std::span<const PolicyLoss> points,
                                  CurveFamily family, double decay = 1);

}  // namespace gavel::policy

#endif  // GAVEL_COORDINATOR_POLICY_LOSS_CURVE_H_
