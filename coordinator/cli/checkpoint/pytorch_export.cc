#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "coordinator/cli/checkpoint/optimizer_dict.h"
#include "coordinator/cli/checkpoint/pytorch_files.h"
#include "coordinator/cli/checkpoint/stored_tensors.h"
#include "coordinator/cli/files.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrackedPrefix = "gavel/tracked/";

std::string TensorPath(const std::string& folder, const std::string& name) {
  return StrCat(folder, "/", name, ".safetensors");
}

absl::Status MakeEmptyDirectory(const std::string& path) {
  GAVEL_RETURN_IF_ERROR(MakeDirectory(path));
  std::error_code error;
  const bool empty = fs::is_empty(path, error);
  if (empty && !error) return absl::OkStatus();
  return absl::AlreadyExistsError(
      StrCat(path,
             " is not an empty directory; give another one, or remove "
             "what is in it"));
}

// Names in the generation begin with that of the module.
absl::StatusOr<std::vector<TensorSource>> ModuleTensors(
    const StoredGeneration& generation, const std::string& module) {
  const std::string prefix = module + "/";
  for (const auto& [entry, text] : generation.bytes) {
    const std::string_view name = entry;
    if (!name.starts_with(prefix) || !name.ends_with("/layout")) continue;
    return absl::UnimplementedError(
        StrCat("module '", module, "' has the sparse tensor '",
               name.substr(0, name.size() - std::string_view("/layout").size()),
               "', which is not exported; make it dense"));
  }
  std::vector<TensorSource> tensors;
  for (const auto& [name, tensor] : generation.tensors) {
    if (!std::string_view(name).starts_with(prefix)) continue;
    TensorSource source{tensor.entry, tensor};
    source.entry.name = name.substr(prefix.size());
    tensors.push_back(std::move(source));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<PyTorchFiles> ExportToPyTorch(const std::string& from,
                                             const std::string& to) {
  GAVEL_ASSIGN_OR_RETURN(const StoredGeneration generation,
                         OpenGeneration(from));
  GAVEL_RETURN_IF_ERROR(MakeEmptyDirectory(to));
  PyTorchFiles files;
  files.generation = generation.attempt.generation;
  files.folder = generation.folder();
  Json optimizers = Json::object();
  for (const auto& [entry, kind] : generation.bytes) {
    if (!std::string_view(entry).starts_with(kTrackedPrefix)) continue;
    const std::string name = entry.substr(kTrackedPrefix.size());
    std::vector<TensorSource> tensors;
    if (kind == "module" || kind == "script module") {
      GAVEL_ASSIGN_OR_RETURN(tensors, ModuleTensors(generation, name));
      files.modules.push_back(name);
    } else if (kind == "optimizer") {
      GAVEL_ASSIGN_OR_RETURN(const StoredOptimizer optimizer,
                             FindOptimizer(generation, name));
      GAVEL_ASSIGN_OR_RETURN(OptimizerDict dict, ToDict(generation, optimizer));
      optimizers[name] = std::move(dict.json);
      tensors = std::move(dict.tensors);
      files.optimizers.push_back(name);
    } else {
      files.notes.push_back(
          StrCat("'", name, "' (", kind, ") has no place in Python's files"));
      continue;
    }
    GAVEL_RETURN_IF_ERROR(
        WriteTensorFile(TensorPath(to, name), tensors).status());
  }
  const Json index = {{"format_version", 1},
                      {"epoch", files.generation.epoch},
                      {"step", files.generation.step},
                      {"modules", files.modules},
                      {"optimizers", std::move(optimizers)}};
  GAVEL_RETURN_IF_ERROR(WriteFile(StrCat(to, "/gavel_checkpoint.py"),
                                  std::string(PythonHelper())));
  GAVEL_RETURN_IF_ERROR(
      WriteFile(StrCat(to, "/", kPyTorchIndex), index.dump(1) + "\n"));
  return files;
}

}  // namespace gavel
