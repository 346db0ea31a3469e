// What came of a simulation, for people and for programs. Pure. Stateless,
// thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_SIMULATION_SUMMARY_H_
#define GAVEL_STUDY_SIMULATION_SIMULATION_SUMMARY_H_

#include <string>

#include "coordinator/cli/json.h"
#include "study/simulation/simulation_run.h"
#include "study/simulation/simulation_spec.h"

namespace gavel::study {

// Some 15 lines, and one for each of the first jobs that fit nowhere.
std::string RenderSummary(const SimulationSpec& spec, const SimulationRun& run);

// {"policy", "avg_jct_s", "jobs": [{"id", ...}], ...}: docs/simulator.md has
// them all. What is not known (a JCT when nothing ended) is null.
Json SummaryJson(const SimulationSpec& spec, const SimulationRun& run);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_SIMULATION_SIMULATION_SUMMARY_H_
