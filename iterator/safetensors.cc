// Modules from and to safetensors files that other programs share with this
// one; see gavel/training.h.
#include "runtime/checkpoint/safetensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/text.h"
#include "gavel/training.h"
#include "iterator/environment.h"
#include "runtime/device/torch_errors.h"
#include "runtime/generation/safetensors_files.h"

namespace gavel {
namespace {

using internal::CatchAsStatus;

// Names of each kind in an error; the others are counted.
constexpr size_t kNamesMax = 8;

// Defined tensors under their names.
std::map<std::string, at::Tensor> TensorsOf(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) tensors[item.key()] = item.value();
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) tensors[item.key()] = item.value();
  }
  return tensors;
}

// Equal for names of the same tensor.
using Identity = std::tuple<const void*, int64_t, size_t>;
Identity IdentityOf(const at::Tensor& tensor) {
  const bool has_memory = tensor.has_storage() && tensor.nbytes() > 0;
  return has_memory ? Identity(tensor.storage().unsafeGetStorageImpl(),
                               tensor.storage_offset(), tensor.nbytes())
                    : Identity(tensor.unsafeGetTensorImpl(), 0, 0);
}

std::string List(std::string_view what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const size_t shown = std::min(names.size(), kNamesMax);
  return StrCat("; ", what, ": ",
                absl::StrJoin(names.begin(), names.begin() + shown, ", "),
                names.size() == shown
                    ? ""
                    : StrCat(" and ", names.size() - shown, " more"));
}

std::string ShapeText(at::IntArrayRef sizes) {
  return StrCat("[", absl::StrJoin(sizes, ","), "]");
}

struct Pair {
  const TensorEntry* from = nullptr;
  at::Tensor to;
};

// Which tensor of the files goes where; or all that is wrong.
absl::StatusOr<std::vector<Pair>> Match(const torch::nn::Module& module,
                                        const SafetensorsFiles& files,
                                        const std::string& path,
                                        const SafetensorsOptions& options) {
  const std::map<std::string, at::Tensor> places = TensorsOf(module);
  std::map<std::string, const TensorEntry*> sources;
  std::vector<std::string> unexpected, misshapen, missing;
  for (const auto& [stored, entry] : files.tensors()) {
    const std::string name = options.rename ? options.rename(stored) : stored;
    if (name.empty()) continue;
    const auto [other, is_new] = sources.emplace(name, &entry);
    if (!is_new) {
      return absl::InvalidArgumentError(
          StrCat("rename gives '", name, "' for two tensors of ", path, ", '",
                 other->second->name, "' and '", stored,
                 "'; let it return an empty name for one"));
    }
    if (!places.contains(name)) unexpected.push_back(name);
  }
  std::vector<Pair> pairs;
  std::set<Identity> filled;
  for (const auto& [name, tensor] : places) {
    const auto source = sources.find(name);
    if (source == sources.end()) continue;
    filled.insert(IdentityOf(tensor));
    pairs.push_back({source->second, tensor});
    const std::vector<int64_t>& shape = source->second->shape;
    if (tensor.sizes() != at::IntArrayRef(shape)) {
      misshapen.push_back(StrCat(name, " is ", ShapeText(tensor.sizes()),
                                 " here and ", ShapeText(shape), " there"));
    }
  }
  for (const auto& [name, tensor] : places) {
    if (!filled.contains(IdentityOf(tensor))) missing.push_back(name);
  }
  if (!options.strict) {
    missing.clear();
    unexpected.clear();
  }
  if (missing.empty() && unexpected.empty() && misshapen.empty()) return pairs;
  return absl::FailedPreconditionError(
      StrCat(path, " does not fit the module", List("it lacks", missing),
             List("the module has no", unexpected),
             List("of another shape", misshapen),
             "; map the names by SafetensorsOptions::rename, where an empty "
             "name leaves a tensor out",
             options.strict ? ", or set strict to false" : ""));
}

absl::Status Load(torch::nn::Module& module, const std::string& path,
                  const SafetensorsOptions& options) {
  GAVEL_ASSIGN_OR_RETURN(const SafetensorsFiles files,
                         SafetensorsFiles::Open(FileSystem::Posix(), path));
  GAVEL_ASSIGN_OR_RETURN(const std::vector<Pair> pairs,
                         Match(module, files, path, options));
  const at::NoGradGuard no_grad;
  for (const auto& [from, to] : pairs) {
    const at::Tensor read = at::empty(
        from->shape, at::device(at::kCPU).dtype(TorchDtypeOf(from->dtype)));
    GAVEL_RETURN_IF_ERROR(
        files.Read(*from, static_cast<char*>(read.mutable_data_ptr())));
    at::Tensor place = to.detach();
    place.copy_(read);
  }
  return absl::OkStatus();
}

absl::Status Write(FileSystem& disk, const std::string& path,
                   const ShardLayout& layout,
                   const std::map<std::string, at::Tensor>& tensors) {
  GAVEL_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                         disk.CreateFile(path, FileAccess::kBuffered));
  GAVEL_RETURN_IF_ERROR(file->Append(layout.encoded_header));
  for (const TensorEntry& entry : layout.header.tensors) {
    const at::Tensor host = tensors.at(entry.name).detach().cpu().contiguous();
    GAVEL_RETURN_IF_ERROR(file->Append(
        {static_cast<const char*>(host.const_data_ptr()), host.nbytes()}));
  }
  GAVEL_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

absl::Status Save(const torch::nn::Module& module, const std::string& path) {
  const std::map<std::string, at::Tensor> tensors = TensorsOf(module);
  std::vector<TensorEntry> entries;
  std::set<Identity> saved;
  for (const auto& [name, tensor] : tensors) {
    GAVEL_RETURN_IF_ERROR(CheckStorable(name, tensor));
    if (!saved.insert(IdentityOf(tensor)).second) continue;
    TensorEntry& entry = entries.emplace_back();
    entry.name = name;
    entry.dtype = *DtypeOf(tensor.scalar_type());
    entry.shape = tensor.sizes().vec();
  }
  GAVEL_ASSIGN_OR_RETURN(const ShardLayout layout,
                         LayOutShard(std::move(entries), {{"format", "pt"}}));
  FileSystem& disk = FileSystem::Posix();
  // Each process writes a file of its own: the workers of a gang may all save.
  const std::string unfinished = StrCat(path, ".unfinished-", getpid());
  std::error_code none;
  std::filesystem::remove(unfinished, none);  // of a process that was killed
  absl::Status status = Write(disk, unfinished, layout, tensors);
  if (status.ok()) status = disk.Rename(unfinished, path);
  if (!status.ok()) {
    std::filesystem::remove(unfinished, none);
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return disk.SyncDirectory(folder.empty() ? "." : folder);
}

}  // namespace

Status LoadSafetensors(torch::nn::Module& module, const std::string& path,
                       const SafetensorsOptions& options) {
  return internal::ToPublic(CatchAsStatus(
      StrCat("loading ", path), [&] { return Load(module, path, options); }));
}

Status SaveSafetensors(torch::nn::Module& module, const std::string& path) {
  return internal::ToPublic(CatchAsStatus(StrCat("saving ", path),
                                          [&] { return Save(module, path); }));
}

}  // namespace gavel
