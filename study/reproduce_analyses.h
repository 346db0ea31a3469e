// Results of the paper that need no simulation: computed from the throughput
// table and the policies. Pure. Stateless, thread-safe.
#ifndef GAVEL_STUDY_REPRODUCE_ANALYSES_H_
#define GAVEL_STUDY_REPRODUCE_ANALYSES_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/throughput_table.h"
#include "study/report_page.h"
#include "study/simulation_spec.h"

namespace gavel::study {

// The accelerator types of the paper's throughputs and prices.
inline constexpr std::array<const char*, 3> kPaperTypes = {"k80", "p100",
                                                           "v100"};
// No such figure.

// The result of an experiment.
struct ExperimentTable : ReportTable {
  std::string drawing;          // for the terminal; may be empty
  std::vector<Figure> figures;  // for a page
};

// The shares of three entities of weights 1, 2 and 3 while their jobs arrive.
absl::StatusOr<ExperimentTable> AnalyzeHierarchy(
    const ThroughputTable& throughputs);
// The throughput of each job type on p100 and v100 relative to k80, also per
// dollar.
absl::StatusOr<ExperimentTable> AnalyzeThroughputRatios(
    const ThroughputTable& throughputs);
// The parts of their throughputs that jobs keep in pairs on the p100.
absl::StatusOr<ExperimentTable> AnalyzeColocation(
    const ThroughputTable& throughputs);
// The same of the pairs that Gandiva's paper measured, beside its figures.
absl::StatusOr<ExperimentTable> AnalyzePacking(
    const ThroughputTable& throughputs);
// The gain of jobs that misreport, over random problems.
absl::StatusOr<ExperimentTable> AnalyzeStrategyProofness(
    const ThroughputTable& throughputs, bool quick);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_ANALYSES_H_
