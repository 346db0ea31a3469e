// From the table of the paper's results to runs, and from runs to tables of our
// figures beside the published ones. Not thread-safe; borrows the store.
#ifndef GAVEL_COORDINATOR_CLI_REPRODUCE_RUN_H_
#define GAVEL_COORDINATOR_CLI_REPRODUCE_RUN_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/cli/report_page.h"
#include "coordinator/cli/reproduce_analyses.h"
#include "coordinator/cli/reproduce_table.h"
#include "coordinator/cli/simulation_store.h"
#include "coordinator/cli/sweep_spec.h"

namespace gavel {

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

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_REPRODUCE_RUN_H_
