// "name=number,name=number": lists of figures as options on a command line.
// Thread-safe.
#ifndef GAVEL_COORDINATOR_WORKLOAD_NAMED_NUMBERS_H_
#define GAVEL_COORDINATOR_WORKLOAD_NAMED_NUMBERS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/workload/toml_reader.h"

namespace gavel {

// The parts in their order. INVALID_ARGUMENT quotes the part that is not
// name=number, whose number is out of range or whose name is there twice, and
// gives `example`.
absl::StatusOr<std::vector<std::pair<std::string, double>>> ParseNamedNumbers(
    std::string_view text, const NumberRange& range, std::string_view example);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_WORKLOAD_NAMED_NUMBERS_H_
