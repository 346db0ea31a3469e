// The use of accelerators over time, with fewer samples. Pure. Stateless,
// thread-safe.
#ifndef GAVEL_STUDY_SIMULATION_USAGE_SAMPLES_H_
#define GAVEL_STUDY_SIMULATION_USAGE_SAMPLES_H_

#include <cstddef>
#include <vector>

#include "simulator/trace_simulation.h"

namespace gavel {

// At most `samples_max` samples over the same time, each the mean of those it
// stands for, weighted by their time.
std::vector<UsageSample> ThinUsage(const std::vector<UsageSample>& usage,
                                   size_t samples_max);

}  // namespace gavel

#endif  // GAVEL_STUDY_SIMULATION_USAGE_SAMPLES_H_
