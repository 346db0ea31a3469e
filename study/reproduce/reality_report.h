// A live trace beside its simulation, as text. Pure. Stateless, thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_REALITY_REPORT_H_
#define GAVEL_STUDY_REPRODUCE_REALITY_REPORT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "study/reproduce/reality_run.h"

namespace gavel::study {

// Simulated over live - 1: the median of the runs, and their range.
struct Difference {
  double median = 0;
  double least = 0;
  double most = 0;
};
Difference DifferenceIn(double LiveFigures::*figure,
                        const std::vector<RealityRun>& runs);

std::string RenderReality(const RealityOptions& options, const Reality& reality,
                          size_t width);
std::string RenderRealityMarkdown(const RealityOptions& options,
                                  const Reality& reality);

// ABORTED: the median of a difference is beyond `limit` (0.1: 10 %).
absl::Status CheckReality(const Reality& reality, double limit);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_REALITY_REPORT_H_
