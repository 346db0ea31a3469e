// The file that `gavel local --summary FILE` writes, as structs. Used by
// check_demo.cc. Plain values, thread-safe.
#ifndef GAVEL_EXAMPLES_DEMO_SUMMARY_H_
#define GAVEL_EXAMPLES_DEMO_SUMMARY_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/generation.h"
#include "core/messages.h"

namespace gavel::demo {

struct UsedAccelerator {
  std::string uuid;
  std::string type;
  int threads = 0;  // by FillThreads; the last bits of sums depend on it
};

struct JobSummary {
  std::string name;
  std::string state;
  uint64_t steps = 0;
  std::map<std::string, double> scalars;
  uint64_t pauses = 0;
  uint64_t moves = 0;
  double pausing_s = 0;
  std::vector<UsedAccelerator> accelerators_used;
  Generation final_generation;
  std::string checkpoint_directory;
};

struct Summary {
  uint64_t rounds = 0;
  std::vector<JobSummary> jobs;
};

// INVALID_ARGUMENT: not a summary.
absl::StatusOr<Summary> ParseSummary(std::string_view json);

// Gives every accelerator used the threads that it is declared with.
// NOT_FOUND: one is not among `declared`.
absl::Status FillThreads(const std::vector<AcceleratorInfo>& declared,
                         Summary* summary);

// Whether the job was paused and was moved between accelerators of the same
// type and thread count.
bool WasPausedAndMoved(const JobSummary& job);

// A table of the jobs, and the number of rounds.
std::string Render(const Summary& summary);

}  // namespace gavel::demo

#endif  // GAVEL_EXAMPLES_DEMO_SUMMARY_H_
