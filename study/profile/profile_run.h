// `gavel profile`: runs each workload alone and in pairs on the accelerators of
// this machine, one cell after the other, and writes the table after each. One
// call at a time; its programs die with its thread.
#ifndef GAVEL_STUDY_PROFILE_PROFILE_RUN_H_
#define GAVEL_STUDY_PROFILE_PROFILE_RUN_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "study/profile/profile_results.h"
#include "study/profile/profile_spec.h"

namespace gavel::study {

struct ProfileOptions {
  std::string table;     // results, kept after each cell
  std::string output;    // Gavel's JSON of them; empty: none
  std::string folder;    // of the programs' output and checkpoints
  double warm_up_s = 5;  // of training, discarded
  double measure_s = 20;
  // A cell is measured until half of its confidence interval is at most this
  // part of the mean, for at most kLongestFactor times measure_s.
  double precision = 0.02;
  // For the first step, from the start of the program.
  double timeout_s = 120;
  const std::atomic<bool>* stop = nullptr;  // borrowed; true: give up
  // `done` of `all` cells are known, `what` is measured now.
  std::function<void(size_t done, size_t all, const std::string& what)> show;
};
inline constexpr double kLongestFactor = 3;

// Measures the cells that the table lacks. CANCELLED: stopped; the same call
// resumes. ABORTED: some could not be measured; the message says why, and the
// rest is in the table. `figures`: how many the table has in the end.
absl::Status RunProfile(const std::vector<ProfileWorkload>& workloads,
                        const std::vector<ProfileCell>& cells,
                        const ProfileOptions& options, size_t* figures);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_PROFILE_PROFILE_RUN_H_
