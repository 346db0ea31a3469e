// Writes a generation as files for Python, and reads such files back. The
// translation is done by gavel_checkpoint.py, which is part of the program and
// is run by python3; it also describes the files. The checksums of a
// generation, its manifest and its place beside other generations are done
// here.
//
// Called by `gavel checkpoint`. No job may write to the directory
// meanwhile.
#ifndef GAVEL_COORDINATOR_CLI_PYTORCH_FILES_H_
#define GAVEL_COORDINATOR_CLI_PYTORCH_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/generation.h"
#include "runtime/generation/manifest.h"

namespace gavel {

struct PyTorchFiles {
  Generation generation;
  std::string folder;              // of the generation
  std::vector<std::string> names;  // of its modules, and of its optimizers
  std::vector<std::string> notes;  // what was left out, or as it was
};

// `from`: a directory of checkpoints, whose newest is taken, or one generation
// in it. All shards are read and compared with the manifest. `to` is made.
// NOT_FOUND: no generation is there. DATA_LOSS: it is damaged. UNIMPLEMENTED:
// it has parts of tensors. FAILED_PRECONDITION: python3 can't be started.
// INVALID_ARGUMENT: what Python refused, such as a directory that is not empty.
absl::StatusOr<PyTorchFiles> ExportToPyTorch(const std::string& from,
                                             const std::string& to);

// Commits the files in `from` as the newest generation of `directory`: the
// content of the newest generation there, with the modules and optimizers of
// `from` in place of its own. As ExportToPyTorch; INVALID_ARGUMENT also: names,
// shapes or types differ, or its step is behind.
absl::StatusOr<PyTorchFiles> ImportFromPyTorch(const std::string& from,
                                               const std::string& directory);

// Reads the manifest of the generation in `folder`, which is verified by its
// own checksum only.
absl::StatusOr<Manifest> ReadManifest(const std::string& folder);

}  // namespace gavel

#endif  // GAVEL_COORDINATOR_CLI_PYTORCH_FILES_H_
