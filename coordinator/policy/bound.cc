#include "coordinator/policy/bound.h"

#include "absl/strings/str_format.h"
#include "core/text.h"

namespace gavel {

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
  const std::string error =
      CheckBound(sense, result->objective, &result->bound);
  result->gap = std::abs(result->bound - result->objective) /
                std::max(1.0, std::abs(result->bound));
  if (error.empty()) return true;
  StrAppend(&result->detail, result->detail.empty() ? "" : "; ", error);
  if (result->outcome == SolveOutcome::kOptimal) {
    result->outcome = SolveOutcome::kIterationLimit;
  }
  return false;
}

}  // namespace gavel
