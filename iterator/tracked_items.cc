#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/sparse_csr_tensor.h>
#include <c10/util/Type.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include <cstring>
#include <functional>
#include <sstream>
#include <typeinfo>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"
#include "gavel/training.h"
#include "iterator/optimizers.h"
#include "iterator/tracked_state.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/device/device_move.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {

// ---- A tensor as entries of a Snapshot.

namespace {

constexpr char kRemedy[] =
    "; restore with the model that wrote it, or start in an empty checkpoint "
    "directory";

std::string TypeAndShapeOf(const at::Tensor& tensor) {
  std::string shape = StrCat(c10::toString(tensor.scalar_type()), "[");
  for (const int64_t size : tensor.sizes()) StrAppend(&shape, size, ",");
  if (shape.back() == ',') shape.pop_back();
  return shape + "]";
}

// Empty: dense.
std::string LayoutText(const at::Tensor& tensor) {
  std::string text;
  if (tensor.layout() == at::kSparse) {
    text = tensor.is_coalesced() ? "coalesced coo" : "coo";
  } else if (tensor.layout() == at::kSparseCsr) {
    text = "csr";
  } else {
    return text;
  }
  for (const int64_t size : tensor.sizes()) StrAppend(&text, " ", size);
  return text;
}

std::vector<int64_t> SizesOf(const std::string& layout) {
  std::istringstream words(
      layout.substr(layout.find_last_not_of("0123456789 ") + 1));
  std::vector<int64_t> sizes;
  for (int64_t size = 0; words >> size;) sizes.push_back(size);
  return sizes;
}

absl::Status Missing(const std::string& name) {
  return absl::FailedPreconditionError(
      StrCat("the checkpoint has no tensor '", name, "'", kRemedy,
             ", or set SessionOptions::partial_restore "
             "(GAVEL_PARTIAL_RESTORE=1) to keep the program's"));
}

absl::Status CheckSame(const std::string& name, const std::string& here,
                       const std::string& saved) {
  if (here == saved) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("tensor '", name, "' is ", here,
                                              " here and ", saved,
                                              " in the checkpoint", kRemedy));
}

absl::Status RestoreDense(const Snapshot& snapshot, const std::string& name,
                          const std::optional<OwnPart>& part,
                          at::Tensor& tensor) {
  GAVEL_ASSIGN_OR_RETURN(const at::Tensor saved,
                         FindPart(snapshot, name, part ? &*part : nullptr));
  if (!tensor.defined()) {
    if (saved.defined()) tensor = saved.clone();
    return absl::OkStatus();
  }
  if (!saved.defined()) return Missing(name);
  GAVEL_RETURN_IF_ERROR(
      CheckSame(name, TypeAndShapeOf(tensor), TypeAndShapeOf(saved)));
  at::NoGradGuard no_grad;
  // A view made by expand() has each value once in memory.
  at::Tensor to = tensor.detach();
  at::Tensor from = saved;
  bool is_expanded = false;
  for (int64_t dim = 0; dim < to.dim(); ++dim) {
    if (to.stride(dim) != 0 || to.size(dim) < 2) continue;
    is_expanded = true;
    to = to.narrow(dim, 0, 1);
    from = from.narrow(dim, 0, 1);
  }
  // With no tolerance: whether all are equal, NaN too.
  if (is_expanded && !at::allclose(saved, from.expand_as(saved), 0, 0,
                                   /*equal_nan=*/true)) {
    return absl::FailedPreconditionError(
        StrCat("tensor '", name,
               "' was made by expand() here, and its rows differ in the "
               "checkpoint; make it contiguous()",
               kRemedy));
  }
  to.copy_(from);
  return absl::OkStatus();
}

// As LibTorch makes one of parts, with its checks.
absl::StatusOr<at::Tensor> MakeSparse(const Snapshot& snapshot,
                                      const std::string& name,
                                      const std::string& layout) {
  const bool is_csr = std::string_view(layout).starts_with("csr");
  std::vector<at::Tensor> parts;
  for (const char* part :
       is_csr
           ? std::vector<const char*>{"crow_indices", "col_indices", "values"}
           : std::vector<const char*>{"indices", "values"}) {
    const at::Tensor* saved = FindTensor(snapshot, StrCat(name, "/", part));
    if (saved == nullptr) return Missing(StrCat(name, "/", part));
    parts.push_back(saved->clone());
  }
  const std::vector<int64_t> sizes = SizesOf(layout);
  const at::TensorOptions options = parts.back().options();
  if (is_csr) {
    return at::sparse_csr_tensor(parts[0], parts[1], parts[2], sizes,
                                 options.layout(at::kSparseCsr));
  }
  at::Tensor made = at::sparse_coo_tensor(parts[0], parts[1], sizes,
                                          options.layout(at::kSparse));
  made._coalesced_(std::string_view(layout).starts_with("coalesced"));
  return made;
}

absl::Status RestoreSparse(const Snapshot& snapshot, const std::string& name,
                           const std::string& layout, at::Tensor& tensor) {
  GAVEL_ASSIGN_OR_RETURN(at::Tensor made, MakeSparse(snapshot, name, layout));
  if (!tensor.defined()) {
    tensor = made;
    return absl::OkStatus();
  }
  const auto kind = [](const at::Tensor& one) {
    return StrCat(c10::str(one.layout()), " ", TypeAndShapeOf(one));
  };
  GAVEL_RETURN_IF_ERROR(CheckSame(name, kind(tensor), kind(made)));
  at::NoGradGuard no_grad;
  made = made.to(tensor.device());
  if (made.layout() == at::kSparse) {
    tensor.set_data(made);
  } else {
    tensor.resize_as_sparse_(made);
    tensor.copy_(made);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CollectTensor(const std::string& name, const at::Tensor& tensor,
                           const std::optional<OwnPart>& part,
                           Snapshot* snapshot) {
  if (!tensor.defined()) return absl::OkStatus();
  const at::Tensor source = tensor.detach();
  const auto add = [&](const char* piece, const at::Tensor& of) {
    snapshot->tensors.emplace_back(StrCat(name, "/", piece), of);
  };
  if (source.layout() == at::kSparse) {
    add("indices", source._indices());
    add("values", source._values());
  } else if (source.layout() == at::kSparseCsr) {
    add("crow_indices", source.crow_indices());
    add("col_indices", source.col_indices());
    add("values", source.values());
  } else if (source.layout() == at::kStrided) {
    snapshot->tensors.emplace_back(name, source);
    if (part) snapshot->partitions[name] = part->partition;
    return absl::OkStatus();
  } else {
    return absl::UnimplementedError(
        StrCat("tensor '", name, "' has the layout ", c10::str(source.layout()),
               ", which is not checkpointed; use a dense, COO or CSR tensor"));
  }
  snapshot->bytes[StrCat(name, "/layout")] = LayoutText(source);
  return absl::OkStatus();
}

bool HasTensor(const Snapshot& snapshot, const std::string& name) {
  return FindTensor(snapshot, name) != nullptr ||
         snapshot.parts.contains(name) ||
         snapshot.bytes.contains(StrCat(name, "/layout"));
}

absl::Status RestoreTensor(const Snapshot& snapshot, const std::string& name,
                           const std::optional<OwnPart>& part,
                           at::Tensor& tensor) {
  const auto layout = snapshot.bytes.find(StrCat(name, "/layout"));
  if (layout != snapshot.bytes.end()) {
    return RestoreSparse(snapshot, name, layout->second, tensor);
  }
  if (tensor.defined() && tensor.layout() != at::kStrided &&
      FindTensor(snapshot, name) != nullptr) {
    return CheckSame(name, c10::str(tensor.layout()), "dense");
  }
  return RestoreDense(snapshot, name, part, tensor);
}

void ReplaceCsr(at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.layout() != at::kSparseCsr) return;
  tensor = tensor.to(device);
}

absl::Status CheckNoCsr(const std::string& name,
                        const std::vector<at::Tensor>& tensors,
                        at::Device device) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kSparseCsr) continue;
    if (tensor.device() == device) continue;
    return absl::UnimplementedError(StrCat(
        "'", name, "' has a CSR tensor, which can't be moved to ", device.str(),
        " in place; keep it in an at::Tensor of its own and track that, "
        "or make it COO"));
  }
  return absl::OkStatus();
}

// ---- What all items have in common, and those of bytes.

namespace {

// `load` may throw, or return an error.
class BytesItem final : public TrackedItem {
 public:
  using Save = std::function<absl::StatusOr<std::string>()>;
  using Load = std::function<absl::Status(const std::string&)>;
  BytesItem(std::string name, std::string kind, const void* object, Save save,
            Load load)
      : TrackedItem(std::move(name)),
        kind_(std::move(kind)),
        object_(object),
        save_(std::move(save)),
        load_(std::move(load)) {}

  std::string kind() const override { return kind_; }
  const void* object() const override { return object_; }

  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving '", name(), "'"), [&] {
      GAVEL_ASSIGN_OR_RETURN(snapshot->bytes[name()], save_());
      return absl::OkStatus();
    });
  }

  absl::Status Restore(const Snapshot& snapshot) override {
    const auto found = snapshot.bytes.find(name());
    if (found == snapshot.bytes.end()) {
      return absl::DataLossError(
          StrCat("the checkpoint lost its entry '", name(), "'"));
    }
    return CatchAsStatus(StrCat("loading '", name(), "'"),
                         [&] { return load_(found->second); });
  }

 private:
  std::string kind_;
  const void* object_;
  Save save_;
  Load load_;
};

}  // namespace

std::optional<OwnPart> TrackedItem::PartOf(const at::Tensor& tensor) const {
  if (partitions_ == nullptr || !tensor.defined()) return std::nullopt;
  if (auto marked = partitions_->Find(tensor)) return marked;
  return sharded_ ? partitions_->Of(tensor, *sharded_) : std::nullopt;
}

absl::StatusOr<std::optional<std::vector<NamedTensor>>> TrackedItem::Places() {
  return std::nullopt;
}

absl::Status TrackedItem::RestoreAt(const Snapshot& snapshot,
                                    const std::string& entry,
                                    at::Tensor& tensor) {
  if (rules_.partial && tensor.defined() && !HasTensor(snapshot, entry)) {
    AddNote(StrCat("the checkpoint has no tensor '", entry,
                   "', which stays as the program made it"));
    return absl::OkStatus();
  }
  return RestoreTensor(snapshot, entry, PartOf(tensor), tensor);
}

absl::StatusOr<std::vector<at::Tensor>> TrackedItem::Tensors() {
  return std::vector<at::Tensor>();
}

absl::Status TrackedItem::Moved(at::Device) { return absl::OkStatus(); }

std::unique_ptr<TrackedItem> TrackText(std::string name, std::string& text) {
  return std::make_unique<BytesItem>(
      std::move(name), "text", &text, [&text] { return text; },
      [&text](const std::string& bytes) {
        text = bytes;
        return absl::OkStatus();
      });
}

std::unique_ptr<TrackedItem> TrackNumber(std::string name,
                                         std::string_view kind, void* number,
                                         size_t size) {
  // With both, a checkpoint with another type is refused.
  return std::make_unique<BytesItem>(
      std::move(name), StrCat(kind, " number of ", size, " bytes"), number,
      [number, size] {
        return std::string(static_cast<const char*>(number), size);
      },
      [number, size](const std::string& bytes) {
        if (bytes.size() == size) std::memcpy(number, bytes.data(), size);
        return absl::OkStatus();
      });
}

std::unique_ptr<TrackedItem> TrackBytes(
    std::string name, std::function<std::string()> save,
    std::function<void(const std::string&)> load) {
  return std::make_unique<BytesItem>(
      std::move(name), "bytes", nullptr, std::move(save),
      [load = std::move(load)](const std::string& bytes) {
        load(bytes);
        return absl::OkStatus();
      });
}

std::unique_ptr<TrackedItem> TrackEngine(
    std::string name, std::function<std::string()> save,
    std::function<bool(const std::string&)> load) {
  const std::string wrong =
      StrCat("random engine '", name,
             "' is of another type in the checkpoint; restore with the type "
             "that wrote it, or give it another name");
  return std::make_unique<BytesItem>(
      std::move(name), "random engine", nullptr, std::move(save),
      [load = std::move(load), wrong](const std::string& text) {
        return load(text) ? absl::OkStatus()
                          : absl::FailedPreconditionError(wrong);
      });
}

std::unique_ptr<TrackedItem> TrackGenerator(std::string name,
                                            const at::Generator& generator) {
  const std::string kind =
      generator.defined() ? StrCat("generator on ", generator.device().str())
                          : "undefined generator";
  return std::make_unique<BytesItem>(
      std::move(name), kind, generator.unsafeGetGeneratorImpl(),
      [generator] { return GetGeneratorState(generator); },
      [generator](const std::string& state) {
        return SetGeneratorState(generator, state);
      });
}

// ---- Modules, optimizers and tensors as tracked items.

namespace {

// LibTorch gives copies of the handles, and none of undefined tensors; a module
// that defines a tensor later has it in these members. An explicit
// instantiation may name them ([temp.spec.general]); another LibTorch, which
// has no such members, does not compile. Each instantiation of Reach defines
// the function that its Tag declares.
template <class Tag, auto member>
struct Reach {
  friend auto MemberOf(Tag) { return member; }
};
struct Buffers {
  friend auto MemberOf(Buffers);
};
struct ModuleParameters {
  friend auto MemberOf(ModuleParameters);
};
template struct Reach<Buffers, &torch::nn::Module::buffers_>;
template struct Reach<ModuleParameters, &torch::nn::Module::parameters_>;

// Tensors that have places of their own, in which they are restored.
class PlacedItem : public TrackedItem {
 public:
  using TrackedItem::TrackedItem;

  bool has_tensors() const override { return true; }
  absl::Status Collect(Snapshot* snapshot) override {
    return Visit("saving", [&](const std::string& entry, at::Tensor& tensor) {
      return CollectTensor(entry, tensor, PartOf(tensor), snapshot);
    });
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    return Visit("restoring",
                 [&](const std::string& entry, at::Tensor& tensor) {
                   return RestoreAt(snapshot, entry, tensor);
                 });
  }
  absl::StatusOr<std::optional<std::vector<NamedTensor>>> Places() override {
    std::vector<NamedTensor> places;
    GAVEL_RETURN_IF_ERROR(
        Visit("looking at", [&](const std::string& entry, at::Tensor& tensor) {
          places.emplace_back(entry, tensor);
          return absl::OkStatus();
        }));
    return places;
  }
  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    std::vector<at::Tensor> tensors;
    GAVEL_RETURN_IF_ERROR(
        Visit("looking at", [&](const std::string&, at::Tensor& tensor) {
          if (tensor.defined()) tensors.push_back(tensor);
          return absl::OkStatus();
        }));
    return tensors;
  }

 protected:
  using Body = std::function<absl::Status(const std::string&, at::Tensor&)>;
  // Undefined ones, too.
  virtual absl::Status ForEach(const Body& body) = 0;

  absl::Status Visit(std::string_view doing, const Body& body) {
    return CatchAsStatus(StrCat(doing, " ", kind(), " '", name(), "'"),
                         [&] { return ForEach(body); });
  }
};

class ModuleItem final : public PlacedItem {
 public:
  ModuleItem(std::string name, std::shared_ptr<torch::nn::Module> module)
      : PlacedItem(std::move(name)), module_(std::move(module)) {}

  std::string kind() const override { return "module"; }
  const void* object() const override { return module_.get(); }
  std::optional<bool> training() const override {
    return module_->is_training();
  }
  // A part that the program has frozen stays so.
  std::function<void()> Evaluate() override {
    std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes;
    for (const auto& part : module_->modules()) {
      modes.emplace_back(part, part->is_training());
    }
    module_->eval();
    return [modes] {
      // A module comes before its parts, since it sets their modes, too.
      for (const auto& [part, mode] : modes) part->train(mode);
    };
  }

  absl::Status Moved(at::Device device) override {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Tensors());
    GAVEL_RETURN_IF_ERROR(CheckNoCsr(name(), tensors, device));
    return MoveModule(*module_, device);
  }

  // LibTorch's own classes have such buffers where an option is off.
  void LookForLosses() override {
    module_->apply([&](const std::string& path, torch::nn::Module& module) {
      if (c10::demangle(typeid(module).name()).starts_with("torch::nn::")) {
        return;
      }
      for (const auto& item : module.*MemberOf(Buffers())) {
        if (item.value().defined()) continue;
        AddNote(StrCat("buffer '", name(), "/", path, path.empty() ? "" : ".",
                       item.key(),
                       "' is registered and has no value after the first step; "
                       "if forward() has given it one, its member is a copy of "
                       "the handle, which is not saved: declare the member as "
                       "Tensor&, of what register_buffer() returns"));
      }
    });
  }

  std::vector<NamedTensor> Parameters() override {
    std::vector<NamedTensor> parameters;
    for (const auto& item : module_->named_parameters()) {
      parameters.emplace_back(StrCat(name(), "/", item.key()), item.value());
    }
    return parameters;
  }

 private:
  absl::Status ForEach(const Body& body) override {
    const auto visit = [&](auto member, bool is_parameter) {
      absl::Status status;
      module_->apply([&](const std::string& path, torch::nn::Module& module) {
        const std::string prefix =
            StrCat(name(), "/", path, path.empty() ? "" : ".");
        for (auto& item : module.*member) {
          at::Tensor& tensor = item.value();
          const bool was_defined = tensor.defined();
          if (status.ok()) status = body(StrCat(prefix, item.key()), tensor);
          if (is_parameter && !was_defined && tensor.defined()) {
            tensor.set_requires_grad(true);
          }
        }
      });
      return status;
    };
    GAVEL_RETURN_IF_ERROR(visit(MemberOf(ModuleParameters()), true));
    return visit(MemberOf(Buffers()), false);
  }

  std::shared_ptr<torch::nn::Module> module_;
};

class OptimizerItem final : public TrackedItem {
 public:
  OptimizerItem(std::string name, torch::optim::Optimizer& optimizer,
                OptimizerKind kind)
      : TrackedItem(std::move(name)),
        optimizer_(optimizer),
        kind_(std::move(kind)) {}

  std::string kind() const override { return "optimizer"; }
  const void* object() const override { return &optimizer_; }
  bool has_tensors() const override { return true; }
  absl::Status Collect(Snapshot* snapshot) override {
    GAVEL_RETURN_IF_ERROR(NoteGiven());
    return CollectOptimizerState(optimizer_, kind_, name(), snapshot,
                                 PartOfAny(), given_);
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    GAVEL_RETURN_IF_ERROR(NoteGiven());
    GAVEL_RETURN_IF_ERROR(RestoreOptimizerState(snapshot, name(), kind_,
                                                optimizer_, PartOfAny()));
    GAVEL_ASSIGN_OR_RETURN(
        const std::vector<std::string> notes,
        SettleOptions(snapshot, name(), kind_, rules().keep_program_options,
                      optimizer_, &given_));
    for (const std::string& note : notes) AddNote(note);
    return absl::OkStatus();
  }
  // An optimizer has no fixed places. This is called before a scheduler or the
  // checkpoint changes its options, so they are noted here.
  absl::StatusOr<std::optional<std::vector<NamedTensor>>> Places() override {
    GAVEL_RETURN_IF_ERROR(NoteGiven());
    return std::nullopt;
  }
  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    GAVEL_ASSIGN_OR_RETURN(std::vector<at::Tensor> tensors,
                           OptimizerTensors(optimizer_, kind_));
    for (const auto& group : optimizer_.param_groups()) {
      tensors.insert(tensors.end(), group.params().begin(),
                     group.params().end());
    }
    return tensors;
  }

  torch::optim::Optimizer& optimizer() { return optimizer_; }

 private:
  PartOfParameter PartOfAny() const {
    return [this](const at::Tensor& parameter) { return PartOf(parameter); };
  }

  // Before anything is restored, and again for groups that are added later.
  absl::Status NoteGiven() {
    if (given_.size() == optimizer_.param_groups().size()) {
      return absl::OkStatus();
    }
    GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> options,
                           OptionLines(optimizer_, kind_, name()));
    for (size_t i = given_.size(); i < options.size(); ++i) {
      given_.push_back(options[i]);
    }
    return absl::OkStatus();
  }

  torch::optim::Optimizer& optimizer_;
  OptimizerKind kind_;
  std::vector<std::string> given_;  // the options as the program has given them
};

class TensorItem final : public PlacedItem {
 public:
  TensorItem(std::string name, at::Tensor& tensor)
      : PlacedItem(std::move(name)), tensor_(tensor) {}

  std::string kind() const override { return "tensor"; }
  const void* object() const override { return &tensor_; }
  std::vector<NamedTensor> Parameters() override { return {{name(), tensor_}}; }
  absl::Status Moved(at::Device device) override {
    return CatchAsStatus(StrCat("moving tensor '", name(), "'"), [&] {
      ReplaceCsr(tensor_, device);
      return absl::OkStatus();
    });
  }

 private:
  absl::Status ForEach(const Body& body) override {
    return body(name(), tensor_);
  }

  at::Tensor& tensor_;
};

// A copy of a model that follows it, a list of parameters, scales.
class TensorListItem final : public PlacedItem {
 public:
  TensorListItem(std::string name, std::vector<at::Tensor>& tensors)
      : PlacedItem(std::move(name)), tensors_(tensors) {}

  std::string kind() const override { return "list of tensors"; }
  const void* object() const override { return &tensors_; }
  absl::Status Collect(Snapshot* snapshot) override {
    snapshot->bytes[StrCat(name(), "/count")] = StrCat(tensors_.size());
    return PlacedItem::Collect(snapshot);
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    GAVEL_RETURN_IF_ERROR(RestoreCount(snapshot));
    return PlacedItem::Restore(snapshot);
  }
  absl::StatusOr<std::optional<std::vector<NamedTensor>>> Places() override {
    if (tensors_.empty()) return std::nullopt;  // gets as many as there are
    return PlacedItem::Places();
  }
  std::vector<NamedTensor> Parameters() override {
    std::vector<NamedTensor> parameters;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      parameters.emplace_back(NameOf(i), tensors_[i]);
    }
    return parameters;
  }
  absl::Status Moved(at::Device device) override {
    return CatchAsStatus(StrCat("moving tensors '", name(), "'"), [&] {
      for (at::Tensor& tensor : tensors_) ReplaceCsr(tensor, device);
      return absl::OkStatus();
    });
  }

 private:
  absl::Status ForEach(const Body& body) override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      GAVEL_RETURN_IF_ERROR(body(NameOf(i), tensors_[i]));
    }
    return absl::OkStatus();
  }

  std::string NameOf(size_t i) const { return StrCat(name(), "/", i); }

  absl::Status RestoreCount(const Snapshot& snapshot) {
    const auto entry = snapshot.bytes.find(StrCat(name(), "/count"));
    size_t count = 0;
    if (entry == snapshot.bytes.end() ||
        !absl::SimpleAtoi(entry->second, &count)) {
      return absl::DataLossError(
          StrCat("the checkpoint lost its entry '", name(), "/count'"));
    }
    if (tensors_.empty()) tensors_.resize(count);
    if (tensors_.size() == count) return absl::OkStatus();
    return absl::FailedPreconditionError(StrCat(
        "'", name(), "' has ", tensors_.size(), " tensors here and ", count,
        " in the checkpoint; restore with the program that wrote it, or start "
        "in an empty checkpoint directory"));
  }

  std::vector<at::Tensor>& tensors_;
};

}  // namespace

std::unique_ptr<TrackedItem> TrackModule(
    std::string name, std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<ModuleItem>(std::move(name), std::move(module));
}

std::unique_ptr<TrackedItem> TrackOptimizer(std::string name,
                                            torch::optim::Optimizer& optimizer,
                                            OptimizerKind kind) {
  return std::make_unique<OptimizerItem>(std::move(name), optimizer,
                                         std::move(kind));
}

std::unique_ptr<TrackedItem> TrackTensor(std::string name, at::Tensor& tensor) {
  return std::make_unique<TensorItem>(std::move(name), tensor);
}

std::unique_ptr<TrackedItem> TrackTensors(std::string name,
                                          std::vector<at::Tensor>& tensors) {
  return std::make_unique<TensorListItem>(std::move(name), tensors);
}

torch::optim::Optimizer* OptimizerOf(TrackedItem& item) {
  auto* optimizer = dynamic_cast<OptimizerItem*>(&item);
  return optimizer == nullptr ? nullptr : &optimizer->optimizer();
}

// ---- Learning-rate schedulers as tracked items. LibTorch's C++ classes can
// neither be saved nor asked for their state, so it is reached by pointers to
// members: the one of LRScheduler as a derived class may, those of
// ReduceLROnPlateau by an explicit instantiation, where access is not checked
// ([temp.spec.general]). Both are plain C++: a LibTorch that names them
// otherwise does not compile.

using Plateau = torch::optim::ReduceLROnPlateauScheduler;

namespace {

struct StepCount : torch::optim::LRScheduler {
  static unsigned LRScheduler::*Member() { return &StepCount::step_count_; }
};

// See Reach.
struct Best {
  friend auto MemberOf(Best);
};
struct BadEpochs {
  friend auto MemberOf(BadEpochs);
};
struct Cooldown {
  friend auto MemberOf(Cooldown);
};
struct LastEpoch {
  friend auto MemberOf(LastEpoch);
};
template struct Reach<Best, &Plateau::best>;
template struct Reach<BadEpochs, &Plateau::num_bad_epochs>;
template struct Reach<Cooldown, &Plateau::cooldown_counter>;
template struct Reach<LastEpoch, &Plateau::last_epoch>;

absl::Status NotSaved(const std::string& name) {
  return absl::DataLossError(StrCat("the checkpoint entry of scheduler '", name,
                                    "' is missing or not readable"));
}

const std::string* EntryOf(const Snapshot& snapshot, const std::string& name) {
  const auto found = snapshot.bytes.find(name);
  return found == snapshot.bytes.end() ? nullptr : &found->second;
}

// The member that refers to the optimizer is a reference, to which no pointer
// can be made; but it lies in the object as an address.
template <class Scheduler>
bool RefersTo(const Scheduler& scheduler, const torch::optim::Optimizer& to) {
  const void* const wanted = &to;
  const auto* const bytes = reinterpret_cast<const char*>(&scheduler);
  for (size_t at = 0; at + sizeof(wanted) <= sizeof(Scheduler);
       at += alignof(void*)) {
    if (std::memcmp(bytes + at, &wanted, sizeof(wanted)) == 0) return true;
  }
  return false;
}

class SchedulerItem final : public TrackedItem {
 public:
  SchedulerItem(std::string name, torch::optim::LRScheduler& scheduler)
      : TrackedItem(std::move(name)),
        scheduler_(scheduler),
        schedule_(dynamic_cast<Schedule*>(&scheduler)) {}

  bool IsOf(const torch::optim::Optimizer& optimizer) const {
    return RefersTo(scheduler_, optimizer);
  }
  std::string kind() const override {
    return schedule_ != nullptr ? "schedule" : "learning-rate scheduler";
  }
  const void* object() const override { return &scheduler_; }
  // Called before all else.
  absl::StatusOr<std::optional<std::vector<NamedTensor>>> Places() override {
    if (schedule_ == nullptr || schedule_->status().ok()) return std::nullopt;
    return absl::InvalidArgumentError(
        StrCat("'", name(), "' is ", schedule_->status().message()));
  }
  absl::Status Collect(Snapshot* snapshot) override {
    std::string& text = snapshot->bytes[name()];
    text = StrCat(scheduler_.*StepCount::Member());
    if (schedule_ == nullptr) return absl::OkStatus();
    for (const double rate : schedule_->base_rates()) {
      StrAppend(&text, " ", absl::StrFormat("%.17g", rate));
    }
    return absl::OkStatus();
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    const std::string* text = EntryOf(snapshot, name());
    if (text == nullptr) return NotSaved(name());
    const std::vector<std::string> words = absl::StrSplit(*text, ' ');
    unsigned step_count = 0;
    if (!absl::SimpleAtoi(words[0], &step_count)) return NotSaved(name());
    if (schedule_ == nullptr) {
      if (words.size() > 1) return NotSaved(name());
    } else {
      std::vector<double> rates(words.size() - 1);
      for (size_t i = 0; i < rates.size(); ++i) {
        if (!absl::SimpleAtod(words[i + 1], &rates[i])) return NotSaved(name());
      }
      if (rates.size() != schedule_->base_rates().size()) {
        return absl::FailedPreconditionError(
            StrCat("schedule '", name(), "' has an optimizer with ",
                   schedule_->base_rates().size(), " groups here and ",
                   rates.size(), " in the checkpoint; restore with the ",
                   "optimizer that wrote it"));
      }
      const bool differs = rates != schedule_->base_rates();
      if (differs && !rules().keep_program_options) {
        AddNote(StrCat(
            "schedule '", name(),
            "' was made with other learning rates than "
            "those of the checkpoint, which are used: either the program gives "
            "others now (GAVEL_KEEP_PROGRAM_OPTIONS=1 takes them), or it makes "
            "the schedule after its optimizer is tracked; make it before"));
        schedule_->SetBaseRates(rates);
      }
    }
    scheduler_.*StepCount::Member() = step_count;
    return absl::OkStatus();
  }
  void Apply() {
    if (schedule_ != nullptr) schedule_->Apply();
  }

 private:
  torch::optim::LRScheduler& scheduler_;
  Schedule* schedule_;  // null: of another class
};

class PlateauItem final : public TrackedItem {
 public:
  PlateauItem(std::string name, Plateau& scheduler)
      : TrackedItem(std::move(name)), scheduler_(scheduler) {}

  bool IsOf(const torch::optim::Optimizer& optimizer) const {
    return RefersTo(scheduler_, optimizer);
  }
  std::string kind() const override { return "plateau scheduler"; }
  const void* object() const override { return &scheduler_; }
  absl::Status Collect(Snapshot* snapshot) override {
    snapshot->bytes[name()] = absl::StrFormat(
        "%.9g %d %d %d", scheduler_.*MemberOf(Best()),
        scheduler_.*MemberOf(BadEpochs()), scheduler_.*MemberOf(Cooldown()),
        scheduler_.*MemberOf(LastEpoch()));
    return absl::OkStatus();
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    const std::string* text = EntryOf(snapshot, name());
    if (text == nullptr) return NotSaved(name());
    std::istringstream words(*text);
    std::string best_text;  // "inf" is none for operator>>
    float best = 0;
    int bad_epochs = 0;
    int cooldown = 0;
    int last_epoch = 0;
    if (!(words >> best_text >> bad_epochs >> cooldown >> last_epoch) ||
        !absl::SimpleAtof(best_text, &best)) {
      return NotSaved(name());
    }
    scheduler_.*MemberOf(Best()) = best;
    scheduler_.*MemberOf(BadEpochs()) = bad_epochs;
    scheduler_.*MemberOf(Cooldown()) = cooldown;
    scheduler_.*MemberOf(LastEpoch()) = last_epoch;
    return absl::OkStatus();
  }

 private:
  Plateau& scheduler_;
};

}  // namespace

std::unique_ptr<TrackedItem> TrackScheduler(
    std::string name, torch::optim::LRScheduler& scheduler) {
  return std::make_unique<SchedulerItem>(std::move(name), scheduler);
}

std::unique_ptr<TrackedItem> TrackScheduler(std::string name,
                                            Plateau& scheduler) {
  return std::make_unique<PlateauItem>(std::move(name), scheduler);
}

void ApplySchedule(TrackedItem& item) {
  if (auto* const scheduler = dynamic_cast<SchedulerItem*>(&item)) {
    scheduler->Apply();
  }
}

bool IsScheduler(const TrackedItem& item) {
  return dynamic_cast<const SchedulerItem*>(&item) != nullptr ||
         dynamic_cast<const PlateauItem*>(&item) != nullptr;
}

bool IsSchedulerOf(const TrackedItem& item,
                   const torch::optim::Optimizer& optimizer) {
  if (const auto* by_step = dynamic_cast<const SchedulerItem*>(&item)) {
    return by_step->IsOf(optimizer);
  }
  const auto* const plateau = dynamic_cast<const PlateauItem*>(&item);
  return plateau != nullptr && plateau->IsOf(optimizer);
}

}  // namespace gavel::internal
