// Modules, optimizers and tensors as tracked items.
#include <c10/util/Type.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <typeinfo>

#include "absl/strings/numbers.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/optimizer_state.h"
#include "iterator/tensor_entry.h"
#include "iterator/tracked_item.h"
#include "runtime/device/device_move.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

// LibTorch gives copies of the handles, and none of undefined tensors; a module
// that defines a tensor later has it in these members. An explicit
// instantiation may name them ([temp.spec.general]); another LibTorch, which
// has no such members, does not compile.
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

}  // namespace gavel::internal
