// Writes a generation as files for Python, and reads such files back:
//
//   DIR/checkpoint.json        a list of the content, and the optimizers
//                              without their tensors
//   DIR/NAME.safetensors       the state_dict() of each module; the tensors of
//                              each optimizer that the JSON names
//   DIR/gavel_checkpoint.py    load() and save() for both
//
// Called by checkpoint_commands.cc. No job may write to the directory
// meanwhile.
#ifndef GAVEL_COORDINATOR_CLI_PYTORCH_FILES_H_
#define GAVEL_COORDINATOR_CLI_PYTORCH_FILES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/generation.h"

namespace gavel {

inline constexpr std::string_view kPyTorchIndex = "checkpoint.json";

struct PyTorchFiles {
  Generation generation;
  std::string folder;                // of the generation
  std::vector<std::string> modules;  // by the names that they are tracked as
  std::vector<std::string> optimizers;
  std::vector<std::string> notes;  // what was left out, or as it was
};

// `from`: as OpenGeneration. `to` is made; ALREADY_EXISTS: it is not empty.
// UNIMPLEMENTED: sparse tensors.
absl::StatusOr<PyTorchFiles> ExportToPyTorch(const std::string& from,
                                             const std::string& to);

// Commits the files in `from` as the newest generation of `directory`: the
// content of the newest generation there, with the modules and optimizers of
// `from` in place of its own. INVALID_ARGUMENT: names, shapes or types differ,
// or its step is behind.
absl::StatusOr<PyTorchFiles> ImportFromPyTorch(const std::string& from,
                                               const std::string& directory);

// The text of gavel_checkpoint.py.
std::string_view PythonHelper();

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PYTORCH_FILES_H_
