// The options of `gavel simulate`, and what they mean together.
#ifndef GAVEL_STUDY_SIMULATION_SIMULATION_FLAGS_H_
#define GAVEL_STUDY_SIMULATION_SIMULATION_FLAGS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "study/simulation/simulation_spec.h"

namespace CLI {
class App;
}

namespace gavel {

struct SimulationFlags {
  SimulationSpec spec;
  bool generate = false;
  bool all_at_zero = false;  // --static
  std::optional<double> rate_per_h;
  std::string window;
};
void AddSimulationFlags(CLI::App& command, SimulationFlags* flags);

// INVALID_ARGUMENT: flags that contradict each other or are missing, or a spec
// that CheckSpec refuses.
absl::StatusOr<SimulationSpec> SpecOf(const SimulationFlags& flags);

}  // namespace gavel

#endif  // GAVEL_STUDY_SIMULATION_SIMULATION_FLAGS_H_
