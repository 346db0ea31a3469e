#include "coordinator/policy/bound.h"

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel::policy {

std::string CheckBound(Sense sense, double value, double scale, double* bound) {
  const double beyond =
      sense == Sense::kMaximum ? value - *bound : *bound - value;
  if (beyond <= 0) return "";
  if (beyond <= kBoundRounding * scale) {
    *bound = value;
    return "";
  }
  return absl::StrFormat("the bound %.12g is refused: %.12g was achieved",
                         *bound, value);
}

bool Certify(Sense sense, PolicyResult* result) {
  std::string error = CheckBound(sense, result->objective, &result->bound);
  const double distance = std::abs(result->bound - result->objective);
  const double size = std::abs(result->bound);
  result->gap = distance / std::max(1.0, size);
  const bool optimal = result->outcome == SolveOutcome::kOptimal;
  if (error.empty() && optimal &&
      distance > kOptimalGapMax * std::max(size, std::abs(result->objective))) {
    error = absl::StrFormat("the bound %.12g is not met: %.12g was achieved",
                            result->bound, result->objective);
  }
  if (error.empty()) return true;
  StrAppend(&result->detail, result->detail.empty() ? "" : "; ", error);
  if (optimal) result->outcome = SolveOutcome::kIterationLimit;
  return false;
}

PolicyResult Certified(Sense sense, const SolveReport& report,
                       PolicyResult result) {
  static_cast<SolveReport&>(result) = report;
  Certify(sense, &result);
  return result;
}

}  // namespace gavel::policy
