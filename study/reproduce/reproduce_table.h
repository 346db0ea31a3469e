// The paper's results as a table: what to simulate for each, what to measure,
// and what was published. A new result is new rows. Values, thread-safe.
//
// Source: Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for
// Deep Learning Workloads, OSDI 2020 ("the paper"), and the runs that its
// authors published behind its figures.
#ifndef GAVEL_STUDY_REPRODUCE_REPRODUCE_TABLE_H_
#define GAVEL_STUDY_REPRODUCE_REPRODUCE_TABLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "study/reproduce/reproduce_analyses.h"
#include "study/simulation/simulation_spec.h"

namespace gavel::study {

// What is read off a run. The ratios are to the experiment's first case with
// the same rate: its figure / this one's (kCostSaving), or the other way round.
enum class Measure : uint8_t {
  kAvgJct,
  kHighPriorityJct,  // jobs of weight 5
  kLowPriorityJct,   // jobs of weight 1
  kMakespan,
  kCostSaving,
  kJctRatio,
  kSloViolations,  // part of the jobs with a deadline
  kPreemptions,
  kMoves,
  kLostTime,
  kWorstShare,
  kMaxRho,
  kProfilingTime,
};
std::string_view MeasureTitle(Measure measure);  // "avg JCT (h)"
// Lower is better.
bool IsLowerBetter(Measure measure);

struct PaperCase {
  std::string label;
  SimulationSpec spec;  // without throughputs
  Measure measure = Measure::kAvgJct;
  std::optional<double> published;  // in the measure's unit
};

// The cases are simulated, or `analyze` computes the result from the throughput
// table and the policies (reproduce_analyses.h).
struct Experiment {
  std::string name;  // "las-single"
  std::string title;
  std::string source;  // "the paper, Figure 8"
  std::string note;    // what to look for
  std::vector<PaperCase> cases = {};
  std::vector<Measure> more = {};  // shown beside, without published figures
  // The jobs are those of CostTrace(), in a file.
  bool cost_trace = false;
  std::function<absl::StatusOr<ExperimentTable>(const ThroughputTable&)>
      analyze = {};
};

// All experiments, in the order of the paper. `quick`: a quarter of the cluster
// and of the rates, a tenth of the jobs: minutes, and no comparison with the
// published figures.
std::vector<Experiment> Experiments(bool quick);

// The jobs of section 7.3, "Cost": A3C and ResNet-50, of 0.5 to 8 days, with
// deadlines, as a trace in TOML. Deterministic.
std::string CostTrace(bool quick);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_REPRODUCE_TABLE_H_
