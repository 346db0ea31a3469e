#include "coordinator/policy/loss_curve.h"

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace gavel::policy {
namespace {

// A curve has the form f(q(k)) + d, with q(k) the sum of coefficients times
// these powers of k.
constexpr unsigned kTermsMax = 3;
using Terms = Eigen::Vector3d;  // of 1, k, k^2

unsigned TermsOf(CurveFamily family) {
  return family == CurveFamily::kSublinear ? 3 : 2;
}

// One point in units of the fit: steps and loss from 0 to 1.
struct Point {
  double steps = 0;
  double loss = 0;
  double weight = 1;
};

struct Candidate {
  Terms q = Terms::Zero();
  double d = 0;
  double error = std::numeric_limits<double>::infinity();
};

double Value(CurveFamily family, const Terms& q, double steps) {
  const double inner = q[0] + steps * (q[1] + steps * q[2]);
  return family == CurveFamily::kExponential ? std::exp(-inner) : 1 / inner;
}

// The coefficients that solve the normal equations with the terms in `mask`
// alone; the others are 0.
Terms SolveTerms(Eigen::Matrix3d matrix, Terms right, unsigned mask) {
  for (Eigen::Index i = 0; i < kTermsMax; ++i) {
    if ((mask >> i & 1) != 0) continue;
    matrix.row(i).setZero();
    matrix.col(i).setZero();
    matrix(i, i) = 1;
    right(i) = 0;
  }
  return matrix.ldlt().solve(right);
}

double ErrorOf(std::span<const Point> points, CurveFamily family,
               const Terms& q, double d) {
  double error = 0;
  double weights = 0;
  for (const Point& point : points) {
    const double off = Value(family, q, point.steps) + d - point.loss;
    error += point.weight * off * off;
    weights += point.weight;
  }
  error /= weights;
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

// The best coefficients for the asymptote `d`. They are linear in the inverse
// (or the logarithm) of the loss above `d`; weights turn errors there into
// errors of the loss. There are at most seven sets of terms, so all are tried.
Candidate FitAt(std::span<const Point> points, CurveFamily family, double d) {
  const bool exponential = family == CurveFamily::kExponential;
  // Element (i, j) of the normal equations is the sum of weight * k^(i + j).
  std::array<double, 2 * kTermsMax - 1> moments = {};
  Terms right = Terms::Zero();
  for (const Point& point : points) {
    const double above = point.loss - d;
    const double slope = exponential ? above : above * above;
    const double weight = point.weight * slope * slope;
    const double target = exponential ? -std::log(above) : 1 / above;
    double power = weight;
    for (double& moment : moments) {
      moment += power;
      power *= point.steps;
    }
    const double first = weight * target;
    right += first * Terms(1, point.steps, point.steps * point.steps);
  }
  Eigen::Matrix3d matrix;
  matrix << moments[0], moments[1], moments[2],  //
      moments[1], moments[2], moments[3],        //
      moments[2], moments[3], moments[4];
  // The terms of non-negative least squares are among those of some mask.
  Candidate best;
  best.d = d;
  double least = std::numeric_limits<double>::infinity();
  for (unsigned mask = (1U << TermsOf(family)) - 1; mask > 0; --mask) {
    const Terms q = SolveTerms(matrix, right, mask);
    if (q[1] < 0 || q[2] < 0 || (q[0] < 0 && !exponential)) continue;
    const double objective = q.dot(matrix * q) - 2 * q.dot(right);
    if (!(objective < least)) continue;
    least = objective;
    best.q = q;
  }
  if (std::isfinite(least)) best.error = ErrorOf(points, family, best.q, d);
  return best;
}

// Searches the distance from the least loss down to the asymptote: a grid of
// its logarithm, then golden sections around the best of the grid.
Candidate FitBest(std::span<const Point> points, CurveFamily family,
                  double distance_max) {
  constexpr double kDistanceMin = 1e-3;
  constexpr int kGrid = 16;
  constexpr int kSections = 20;
  constexpr double kGolden = 0.6180339887498949;
  const double low = std::log(std::min(kDistanceMin, distance_max / 2));
  const double step = (std::log(distance_max) - low) / (kGrid - 1);
  const auto at = [&](double logarithm) {
    return FitAt(points, family, -std::exp(logarithm));
  };
  Candidate best;
  int nearest = 0;
  for (int i = 0; i < kGrid; ++i) {
    const Candidate candidate = at(low + i * step);
    if (!(candidate.error < best.error)) continue;
    best = candidate;
    nearest = i;
  }
  double from = low + std::max(0, nearest - 1) * step;
  double to = low + std::min(kGrid - 1, nearest + 1) * step;
  Candidate left = at(to - kGolden * (to - from));
  Candidate right = at(from + kGolden * (to - from));
  for (int i = 0; i < kSections; ++i) {
    if (left.error <= right.error) {
      to = from + kGolden * (to - from);
      right = left;
      left = at(to - kGolden * (to - from));
    } else {
      from = to - kGolden * (to - from);
      left = right;
      right = at(from + kGolden * (to - from));
    }
  }
  for (const Candidate& candidate : {left, right}) {
    if (candidate.error < best.error) best = candidate;
  }
  return best;
}

}  // namespace

double LossCurve::At(double steps) const {
  return Value(family, {c, b, a}, steps) + d;
}

std::optional<LossCurve> FitCurve(std::span<const PolicyLoss> points,
                                  CurveFamily family, double decay) {
  if (points.size() < kLossPointsMin) return std::nullopt;
  const auto [least, most] = std::ranges::minmax(points, {}, &PolicyLoss::loss);
  const double range = most.loss - least.loss;
  const double last = points.back().steps;
  if (!(range > 0) || !(last > 0) ||
      !(points.back().loss < points.front().loss)) {
    return std::nullopt;
  }
  std::vector<Point> scaled;
  double weight = 1;
  for (size_t i = points.size(); i-- > 0; weight *= decay) {
    scaled.push_back({points[i].steps / last,
                      (points[i].loss - least.loss) / range, weight});
  }
  const double distance_max = least.loss > 0 ? least.loss / range : 1;
  const Candidate best = FitBest(scaled, family, distance_max);
  // A curve that does not fall predicts nothing.
  if (!std::isfinite(best.error) || (best.q[1] <= 0 && best.q[2] <= 0)) {
    return std::nullopt;
  }
  LossCurve curve{.family = family,
                  .a = best.q[2] / (last * last),
                  .b = best.q[1] / last,
                  .c = best.q[0],
                  .d = least.loss + best.d * range,
                  .error = best.error};
  if (family == CurveFamily::kExponential) {
    curve.c -= std::log(range);
  } else {
    curve.a /= range;
    curve.b /= range;
    curve.c /= range;
  }
  return curve;
}

}  // namespace gavel::policy
