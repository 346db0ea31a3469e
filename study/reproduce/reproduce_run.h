// From the table of the paper's results to runs, and from runs to tables of our
// figures beside the published ones. Not thread-safe; borrows the store.
#ifndef GAVEL_STUDY_REPRODUCE_REPRODUCE_RUN_H_
#define GAVEL_STUDY_REPRODUCE_REPRODUCE_RUN_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "study/report/report_page.h"
#include "study/reproduce/reproduce_analyses.h"
#include "study/reproduce/reproduce_table.h"
#include "study/simulation/simulation_store.h"
#include "study/simulation/sweep_spec.h"

namespace gavel::study {

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

#endif  // GAVEL_STUDY_REPRODUCE_REPRODUCE_RUN_H_
