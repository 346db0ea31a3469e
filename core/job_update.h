// A change to a job after its submission. Messages and the journal carry it.
#ifndef GAVEL_CORE_JOB_UPDATE_H_
#define GAVEL_CORE_JOB_UPDATE_H_

#include <optional>
#include <string>
#include <vector>

namespace gavel {

// The fields have the meaning of the same keys in a job file. A field that is
// not set leaves the job's value as it is.
struct JobUpdate {
  std::optional<double> weight;
  std::optional<double> deadline_s;   // after submission; 0: none
  std::optional<std::string> entity;  // empty: none
  // The accelerator types that the job may run on; empty: all.
  std::optional<std::vector<std::string>> types;
  std::optional<int> scale_factor_min;  // 0: scale_factor
  std::optional<int> scale_factor_max;

  friend bool operator==(const JobUpdate&, const JobUpdate&) = default;
};

}  // namespace gavel

#endif  // GAVEL_CORE_JOB_UPDATE_H_
