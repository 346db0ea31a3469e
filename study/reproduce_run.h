// The paper's results: a table of the simulations, measures and published
// figures of each; the runs that they need; and tables of our figures beside
// the published ones. To reproduce another result, add rows.
//
// Source: Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for
// Deep Learning Workloads, OSDI 2020 ("the paper"), and the runs that its
// authors published behind its figures.
//
// Values, thread-safe; Compare() borrows a store, which is not.
#ifndef GAVEL_STUDY_REPRODUCE_RUN_H_
#define GAVEL_STUDY_REPRODUCE_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "study/report_page.h"
#include "study/reproduce_analyses.h"
#include "study/simulation_spec.h"
#include "study/simulation_store.h"
#include "study/sweep.h"

namespace gavel::study {

// ---- the table of results

// The measure that is taken of a run. The ratios are to the experiment's first
// case with the same rate and overheads: kCostSaving is its figure over this
// one's, kJctRatio the inverse.
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
  kMaxAppRho,  // of apps (SimulationResult::apps), as the next two
  kMedianAppRho,
  kJainIndex,
  kBusyTime,        // accelerator-hours that jobs held
  kMaxAppRhoRatio,  // of kMaxAppRho, as kJctRatio
  kHonestAppRho,    // median and largest of apps that do not lie
  kMaxHonestAppRho,
  kLyingAppRho,  // median of those that do
  // The work done in an hour, over the first case's: as kCostSaving, from
  // makespans, so all cases have the same jobs.
  kUtilizationRatio,
};
std::string_view MeasureTitle(Measure measure);  // "avg JCT (h)"
// False for kMaxAppRhoRatio: there the first case is better if it is higher.
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
  std::string trace = {};          // text of the cases' trace file; empty: none
  std::function<absl::StatusOr<ExperimentTable>(const ThroughputTable&)>
      analyze = {};
};

// All experiments, in the order of the paper. `quick`: a quarter of the cluster
// and of the rates, a tenth of the jobs: minutes, and no comparison with the
// published figures.
std::vector<Experiment> Experiments(bool quick);

// Those with the name, or whose names begin with it and "-": "gandiva" chooses
// "gandiva-cluster" and all others of that paper. "all": all. NOT_FOUND, with
// the closest name.
absl::StatusOr<std::vector<Experiment>> ChooseExperiments(std::string_view name,
                                                          bool quick);

// The jobs of section 7.3, "Cost": A3C and ResNet-50, of 0.5 to 8 days, with
// deadlines, as a trace in TOML. Deterministic.
std::string CostTrace(bool quick);

// ---- from the table to runs, and from runs to figures

struct Reproduction {
  Experiment experiment;
  ExperimentTable table;
};

// The simulations of all cases, each once.
SweepSpec SweepOf(const std::vector<Experiment>& experiments);

// Finds the run of a case; nothing when it was not made.
using FindRun =
    std::function<std::optional<StoredRun>(const SimulationSpec& spec)>;

// Our figures beside the published ones. `comparable`: the runs are those that
// were published; else the two are not divided.
absl::StatusOr<ExperimentTable> Compare(const Experiment& experiment,
                                        const FindRun& find,
                                        SimulationStore& store,
                                        bool comparable);

// For the terminal; for a document; for a page.
std::string RenderReproduction(const Reproduction& reproduction, size_t width);
std::string RenderMarkdown(const std::vector<Reproduction>& all, bool quick);
ReportPage PageOf(const std::vector<Reproduction>& all);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_REPRODUCE_RUN_H_
