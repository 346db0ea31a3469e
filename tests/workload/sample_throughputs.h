// A throughput table that knows all that a TraceGenerator asks for.
#ifndef GAVEL_TESTS_WORKLOAD_SAMPLE_THROUGHPUTS_H_
#define GAVEL_TESTS_WORKLOAD_SAMPLE_THROUGHPUTS_H_

#include <string>

#include "coordinator/workload/trace_generator.h"

namespace gavel::testing {

// 10 steps/s per accelerator on a v100, for all job types.
inline std::string SampleThroughputs() {
  std::string rows;
  for (const JobTemplate& of : GavelJobTable()) {
    for (const int scale_factor : {1, 2, 4, 8}) {
      if (scale_factor > 1 && !of.distributed) continue;
      rows += (rows.empty() ? "" : ",\n") + ("\"('" + of.type + "', ") +
              std::to_string(scale_factor) +
              ")\": {\"null\": " + std::to_string(10 * scale_factor) + "}";
    }
  }
  return "{\"v100\": {" + rows + "}}";
}

}  // namespace gavel::testing

#endif  // GAVEL_TESTS_WORKLOAD_SAMPLE_THROUGHPUTS_H_
