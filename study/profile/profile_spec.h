// What `gavel profile` is to measure: a file of workloads, and the cells that
// they make on the accelerators that are there. Values; pure, thread-safe.
#ifndef GAVEL_STUDY_PROFILE_PROFILE_SPEC_H_
#define GAVEL_STUDY_PROFILE_PROFILE_SPEC_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/cluster_spec.h"
#include "core/messages.h"

namespace gavel::study {

struct ProfileWorkload {
  std::string type;  // the row's name: no quote, comma or control character
  std::vector<std::string> argv;
  std::string working_directory;  // as written; empty: that of the file
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<int> scale_factors = {1};
  bool pairs = true;  // also beside others
};

// [[workload]] with `type`, `command`, and if need be `scale_factors`,
// `working_directory`, `pairs`, [workload.environment]. INVALID_ARGUMENT as
// "SOURCE:LINE:COLUMN: what; remedy".
absl::StatusOr<std::vector<ProfileWorkload>> ParseWorkloads(
    std::string_view toml, std::string_view source);

// One thing to be measured.
struct ProfileCell {
  size_t workload = 0;
  std::optional<size_t> beside;  // an index too; it may be the same workload
  int scale_factor = 1;
  std::string accelerator;              // type
  bool spread = false;                  // a gang over several servers
  std::vector<AcceleratorInfo> places;  // by rank
  // On each of these a copy of the workload trains meanwhile, alone.
  std::vector<AcceleratorInfo> neighbours = {};
};

// By type, then scale factor: alone consolidated (on one server), alone spread
// (over at least two), and in pairs (consolidated). What does not fit on
// `servers` is left out, and named in `left_out`.
std::vector<ProfileCell> CellsOf(const std::vector<ProfileWorkload>& workloads,
                                 const std::vector<ServerSpec>& servers,
                                 bool pairs,
                                 std::vector<std::string>* left_out);

// The neighbours of each cell: all accelerators that it does not use itself.
void KeepOthersBusy(const std::vector<ServerSpec>& servers,
                    std::vector<ProfileCell>* cells);

}  // namespace gavel::study

#endif  // GAVEL_STUDY_PROFILE_PROFILE_SPEC_H_
