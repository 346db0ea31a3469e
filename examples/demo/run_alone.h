// Runs a job's program by itself, without a coordinator. check_demo.cc calls
// it.
#ifndef GAVEL_EXAMPLES_DEMO_RUN_ALONE_H_
#define GAVEL_EXAMPLES_DEMO_RUN_ALONE_H_

#include <string>

#include "absl/status/status.h"
#include "coordinator/workload/job_spec.h"

namespace gavel::demo {

struct AloneOptions {
  std::string checkpoint_directory;
  std::string output;  // file that gets what the program prints
  int threads = 1;
};

// Runs `job` in this process's working directory and environment, and waits for
// it. NOT_FOUND: no such program. INTERNAL: it did not exit with 0.
absl::Status RunAlone(const JobSpec& job, const AloneOptions& options);

}  // namespace gavel::demo

#endif  // GAVEL_EXAMPLES_DEMO_RUN_ALONE_H_
