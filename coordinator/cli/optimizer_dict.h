// The state of one optimizer: as a generation has it (iterator/
// optimizers.h), and as Python's optimizer.state_dict() has it, in JSON
// with {"tensor": NAME} in the place of tensors. Called by pytorch_files.cc.
// The functions do no I/O except for scalars in tensor files.
#ifndef GAVEL_COORDINATOR_CLI_OPTIMIZER_DICT_H_
#define GAVEL_COORDINATOR_CLI_OPTIMIZER_DICT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cli/stored_tensors.h"
#include "coordinator/workload/json_fields.h"

namespace gavel {

struct OptimizerField {
  bool is_option = false;  // of a group, else of a parameter's state
  std::string name;
  // tensor, tensors, int64, double, bool or text; number: an int64 or a double,
  // of a generation that does not say.
  std::string type;
};

// The optimizer that is tracked as `name`, as a generation describes it.
struct StoredOptimizer {
  std::string name;
  std::string kind;  // "Adam"
  std::vector<OptimizerField> fields;
  std::vector<size_t> group_sizes;  // in parameters
};

// FAILED_PRECONDITION: an earlier version wrote the generation and left out
// something that is needed. DATA_LOSS: entries are missing.
absl::StatusOr<StoredOptimizer> FindOptimizer(
    const StoredGeneration& generation, const std::string& name);

struct OptimizerDict {
  Json json;  // {"class", "param_groups", "state"}
  std::vector<TensorSource> tensors;
};

absl::StatusOr<OptimizerDict> ToDict(const StoredGeneration& generation,
                                     const StoredOptimizer& optimizer);

// Entries of a generation, below the optimizer's name.
struct OptimizerEntries {
  std::map<std::string, std::string> bytes;
  std::vector<TensorSource> tensors;
  // Notes on state of Python's optimizer that this one has no place for.
  std::vector<std::string> notes;
};

// `json` names tensors of `tensors`. INVALID_ARGUMENT names what does not fit.
absl::StatusOr<OptimizerEntries> FromDict(const ParsedJson& json,
                                          const StoredTensors& tensors,
                                          const StoredOptimizer& optimizer);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_OPTIMIZER_DICT_H_
