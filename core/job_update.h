// What is changed of a job after its submission: a value of the wire and of the
// journal.
#ifndef GAVEL_CORE_JOB_UPDATE_H_
#define GAVEL_CORE_JOB_UPDATE_H_

#include <optional>
#include <string>
#include <vector>

namespace gavel {

// As the keys of a job file; what is not set stays as it is.
struct JobUpdate {
  std::optional<double> weight;
  std::optional<double> deadline_s;   // after submission; 0: none
  std::optional<std::string> entity;  // empty: none
  // That it may run on; empty: all.
  std::optional<std::vector<std::string>> types;
  std::optional<int> scale_factor_min;  // 0: scale_factor
  std::optional<int> scale_factor_max;

  friend bool operator==(const JobUpdate&, const JobUpdate&) = default;
};

}  // namespace gavel

#endif  // GAVEL_CORE_JOB_UPDATE_H_
