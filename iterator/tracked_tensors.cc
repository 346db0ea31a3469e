// Modules, optimizers and tensors as tracked items.
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

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

class ModuleItem final : public TrackedItem {
 public:
  ModuleItem(std::string name, std::shared_ptr<torch::nn::Module> module)
      : TrackedItem(std::move(name)), module_(std::move(module)) {}

  std::string kind() const override { return "module"; }
  const void* object() const override { return module_.get(); }
  std::optional<bool> training() const override {
    return module_->is_training();
  }

  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving module '", name(), "'"), [&] {
      return ForEach([&](const std::string& tensor_name, at::Tensor& tensor) {
        return CollectTensor(tensor_name, tensor, PartOf(tensor), snapshot);
      });
    });
  }

  absl::Status Restore(const Snapshot& snapshot) override {
    return CatchAsStatus(StrCat("restoring module '", name(), "'"), [&] {
      return ForEach([&](const std::string& tensor_name, at::Tensor& tensor) {
        if (!tensor.defined()) return absl::OkStatus();
        return RestoreTensor(snapshot, tensor_name, PartOf(tensor), tensor);
      });
    });
  }

  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    std::vector<at::Tensor> tensors;
    absl::Status status = CatchAsStatus(StrCat("module '", name(), "'"), [&] {
      return ForEach([&](const std::string&, at::Tensor& tensor) {
        tensors.push_back(tensor);
        return absl::OkStatus();
      });
    });
    if (!status.ok()) return status;
    return tensors;
  }

  absl::Status Moved(at::Device device) override {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Tensors());
    GAVEL_RETURN_IF_ERROR(CheckNoCsr(name(), tensors, device));
    return MoveModule(*module_, device);
  }

  std::vector<NamedTensor> Parameters() override {
    std::vector<NamedTensor> parameters;
    for (const auto& item : module_->named_parameters()) {
      parameters.emplace_back(StrCat(name(), "/", item.key()), item.value());
    }
    return parameters;
  }

 private:
  template <class Body>
  absl::Status ForEach(Body body) {
    for (auto& item : module_->named_parameters()) {
      GAVEL_RETURN_IF_ERROR(
          body(StrCat(name(), "/", item.key()), item.value()));
    }
    for (auto& item : module_->named_buffers()) {
      GAVEL_RETURN_IF_ERROR(
          body(StrCat(name(), "/", item.key()), item.value()));
    }
    return absl::OkStatus();
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
  absl::Status Collect(Snapshot* snapshot) override {
    return CollectOptimizerState(optimizer_, kind_, name(), snapshot,
                                 PartOfAny());
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    return RestoreOptimizerState(snapshot, name(), kind_, optimizer_,
                                 PartOfAny());
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

  torch::optim::Optimizer& optimizer_;
  OptimizerKind kind_;
};

class TensorItem final : public TrackedItem {
 public:
  TensorItem(std::string name, at::Tensor& tensor)
      : TrackedItem(std::move(name)), tensor_(tensor) {}

  std::string kind() const override { return "tensor"; }
  const void* object() const override { return &tensor_; }
  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving tensor '", name(), "'"), [&] {
      return CollectTensor(name(), tensor_, PartOf(tensor_), snapshot);
    });
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    return CatchAsStatus(StrCat("restoring tensor '", name(), "'"), [&] {
      return RestoreTensor(snapshot, name(), PartOf(tensor_), tensor_);
    });
  }
  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    return std::vector<at::Tensor>{tensor_};
  }
  std::vector<NamedTensor> Parameters() override { return {{name(), tensor_}}; }

 private:
  at::Tensor& tensor_;
};

// A copy of a model that follows it, a list of parameters, scales.
class TensorListItem final : public TrackedItem {
 public:
  TensorListItem(std::string name, std::vector<at::Tensor>& tensors)
      : TrackedItem(std::move(name)), tensors_(tensors) {}

  std::string kind() const override { return "list of tensors"; }
  const void* object() const override { return &tensors_; }
  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving tensors '", name(), "'"), [&] {
      snapshot->bytes[StrCat(name(), "/count")] = StrCat(tensors_.size());
      for (size_t i = 0; i < tensors_.size(); ++i) {
        GAVEL_RETURN_IF_ERROR(CollectTensor(NameOf(i), tensors_[i],
                                            PartOf(tensors_[i]), snapshot));
      }
      return absl::OkStatus();
    });
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    return CatchAsStatus(StrCat("restoring tensors '", name(), "'"), [&] {
      GAVEL_RETURN_IF_ERROR(RestoreCount(snapshot));
      for (size_t i = 0; i < tensors_.size(); ++i) {
        GAVEL_RETURN_IF_ERROR(RestoreTensor(snapshot, NameOf(i),
                                            PartOf(tensors_[i]), tensors_[i]));
      }
      return absl::OkStatus();
    });
  }
  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    return tensors_;
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
