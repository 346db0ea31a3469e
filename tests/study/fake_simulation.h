// A simulation that simulates nothing: jobs take as long as a formula says. For
// tests of what drives simulations. Deterministic.
#ifndef GAVEL_TESTS_STUDY_FAKE_SIMULATION_H_
#define GAVEL_TESTS_STUDY_FAKE_SIMULATION_H_

#include <memory>
#include <string>

#include "study/simulation_run.h"

namespace gavel::testing {

// A cluster that serves `capacity_per_h` jobs in the order in which they come:
// below it each job waits for nobody for long, above it the queue grows for
// ever. A step of simulated time is an hour.
struct FakeSimulationOptions {
  double capacity_per_h = 4;
  std::string error;          // of Create; empty: none
  double time_step_s = 3600;  // for each call of Run
};
study::MakeSimulation FakeSimulations(FakeSimulationOptions options);

// Throughputs of all of Gavel's job types on a v100, as a file in `folder`.
std::string WriteSampleThroughputs(const std::string& folder);

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_STUDY_FAKE_SIMULATION_H_
