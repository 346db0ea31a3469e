// The weights and entities that a submitter's jobs may have. The coordinator
// checks submissions and updates. Pure, thread-safe.
#ifndef GAVEL_COORDINATOR_SERVER_ACCESS_ALLOWANCE_H_
#define GAVEL_COORDINATOR_SERVER_ACCESS_ALLOWANCE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace gavel {

// Of job weights, whoever submits. 0 < min <= max, finite.
struct WeightBounds {
  double min = 0.001;
  double max = 1000;
};

// What the file of principals says of one.
struct Allowance {
  // That its jobs may count for; a job that names none counts for the first.
  std::vector<std::string> entities = {};
  double weight = 1;         // its own, which its active jobs divide
  double weight_max = 1000;  // of one of its jobs
  friend bool operator==(const Allowance&, const Allowance&) = default;
};

// INVALID_ARGUMENT: the weight is out of bounds. `what`: "job \"x\"".
absl::Status CheckWeight(std::string_view what, double weight,
                         const WeightBounds& bounds);

// Of a user. PERMISSION_DENIED: a larger weight, or another entity than it may
// have. Fills in an entity that is empty.
absl::Status CheckAllowance(std::string_view what, const Allowance& allowance,
                            double weight, std::string* entity);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_SERVER_ACCESS_ALLOWANCE_H_
