// Runs of the original Gavel, and how to simulate the same here: the traces and
// figures of GAVEL_REFERENCE_DIR, a folder that may be missing.
#ifndef GAVEL_TESTS_SIMULATOR_REFERENCE_DATA_H_
#define GAVEL_TESTS_SIMULATOR_REFERENCE_DATA_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "gavel_paths.h"
#include "simulator/trace_simulation.h"

namespace gavel::testing {

// Empty: the reference runs are not here.
std::filesystem::path ReferenceDir();
std::string ReadAll(const std::filesystem::path& path);

// The original's table of throughputs.
const ThroughputTable& ReferenceTable();

// `cluster` as in "8:8:8": v100, p100 and k80.
SimulationResult SimulateReference(const std::filesystem::path& trace,
                                   std::string_view cluster, std::string policy,
                                   SimulationOptions options = {});

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_SIMULATOR_REFERENCE_DATA_H_
