// The clusters and preemption costs of simulations, as written on a command
// line or in a file. Given text, not files. Values, thread-safe.
#ifndef GAVEL_SIMULATOR_SIMULATION_INPUT_H_
#define GAVEL_SIMULATOR_SIMULATION_INPUT_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gavel {

// Accelerators of one type: `count` of them on servers of `per_server` each.
struct ClusterPart {
  std::string type;
  int count = 0;
  int per_server = 1;  // divides count; of "v100:36": all on one
  friend bool operator==(const ClusterPart&, const ClusterPart&) = default;
};

inline constexpr int kSimulatedAcceleratorsMax = 1'000'000;  // of a type

// "v100:36,p100:36,k80:36", or with the size of the servers "v100:36x4". A part
// without that size is one server, so no gang is spread. Gavel's "36:36:36" is
// read as v100, p100 and k80, where 0 leaves a type out.
// INVALID_ARGUMENT says what is wrong.
absl::StatusOr<std::vector<ClusterPart>> ParseCluster(std::string_view text);

// Seconds that a job loses: `start_s` once, before its first step and after its
// last one; `pause_s` when it gives an accelerator up, `resume_s` when it
// starts on one again, `move_s` in place of resume_s when that is not the
// accelerator it had last. All 0: preemption is free.
struct Overhead {
  double pause_s = 0;
  double resume_s = 0;
  double move_s = 0;
  double start_s = 0;
  friend bool operator==(const Overhead&, const Overhead&) = default;
};

struct Overheads {
  Overhead all;                             // of job types that are not named
  std::map<std::string, Overhead> by_type;  // job type
  friend bool operator==(const Overheads&, const Overheads&) = default;
};

// "none"; or "start=8,pause=2,resume=5,move=9" (what is missing is 0, but move
// is resume). INVALID_ARGUMENT says what is wrong.
absl::StatusOr<Overheads> ParseOverheads(std::string_view text);
// A file of them: a table for each job type, "*" for the others:
//   ["ResNet-18 (batch size 64)"]
//   pause_s = 2
// INVALID_ARGUMENT as "SOURCE:LINE:COLUMN: what; remedy".
absl::StatusOr<Overheads> ParseOverheadsFile(std::string_view toml,
                                             std::string_view source);

}  // namespace gavel

#endif  // GAVEL_SIMULATOR_SIMULATION_INPUT_H_
