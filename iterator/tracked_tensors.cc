// Modules, optimizers and tensors as tracked items.
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "core/status.h"
#include "core/text.h"
#include "iterator/tracked_item.h"
#include "runtime/checkpoint/optimizer_state.h"
#include "runtime/device/device_move.h"
#include "runtime/device/optimizer_tensors.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

std::string ShapeOf(const at::Tensor& tensor) {
  std::string shape = StrCat(c10::toString(tensor.scalar_type()), "[");
  for (const int64_t size : tensor.sizes()) StrAppend(&shape, size, ",");
  if (shape.back() == ',') shape.pop_back();
  return shape + "]";
}

// Copies into the memory that is there, so that all who share it see it.
absl::Status CopyFrom(const Snapshot& snapshot, const std::string& name,
                      at::Tensor& tensor) {
  const at::Tensor* saved = FindTensor(snapshot, name);
  if (saved == nullptr) {
    return absl::FailedPreconditionError(
        StrCat("the checkpoint has no tensor '", name,
               "'; restore with the model that wrote it, or start in an empty "
               "checkpoint directory"));
  }
  if (saved->sizes() != tensor.sizes() ||
      saved->scalar_type() != tensor.scalar_type()) {
    return absl::FailedPreconditionError(
        StrCat("tensor '", name, "' is ", ShapeOf(tensor), " here and ",
               ShapeOf(*saved),
               " in the checkpoint; restore with the model that wrote it, or "
               "start in an empty checkpoint directory"));
  }
  at::NoGradGuard no_grad;
  tensor.detach().copy_(*saved);
  return absl::OkStatus();
}

class ModuleItem final : public TrackedItem {
 public:
  ModuleItem(std::string name, std::shared_ptr<torch::nn::Module> module)
      : TrackedItem(std::move(name)), module_(std::move(module)) {}

  std::string kind() const override { return "module"; }

  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving module '", name(), "'"), [&] {
      ForEach([&](const std::string& tensor_name, at::Tensor& tensor) {
        if (tensor.defined()) {
          snapshot->tensors.emplace_back(tensor_name, tensor.detach());
        }
        return absl::OkStatus();
      }).IgnoreError();
      return absl::OkStatus();
    });
  }

  absl::Status Restore(const Snapshot& snapshot) override {
    return CatchAsStatus(StrCat("restoring module '", name(), "'"), [&] {
      return ForEach([&](const std::string& tensor_name, at::Tensor& tensor) {
        if (!tensor.defined()) return absl::OkStatus();
        return CopyFrom(snapshot, tensor_name, tensor);
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
    return MoveModule(*module_, device);
  }

  torch::nn::Module& module() { return *module_; }

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
  OptimizerItem(std::string name, torch::optim::Optimizer& optimizer)
      : TrackedItem(std::move(name)), optimizer_(optimizer) {}

  std::string kind() const override { return "optimizer"; }
  absl::Status Collect(Snapshot* snapshot) override {
    return CollectOptimizerState(optimizer_, name(), snapshot);
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    return RestoreOptimizerState(snapshot, name(), optimizer_);
  }
  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    GAVEL_ASSIGN_OR_RETURN(std::vector<at::Tensor> tensors,
                           OptimizerTensors(optimizer_));
    for (const auto& group : optimizer_.param_groups()) {
      tensors.insert(tensors.end(), group.params().begin(),
                     group.params().end());
    }
    return tensors;
  }

  torch::optim::Optimizer& optimizer() { return optimizer_; }

 private:
  torch::optim::Optimizer& optimizer_;
};

class TensorItem final : public TrackedItem {
 public:
  TensorItem(std::string name, at::Tensor& tensor)
      : TrackedItem(std::move(name)), tensor_(tensor) {}

  std::string kind() const override { return "tensor"; }
  absl::Status Collect(Snapshot* snapshot) override {
    return CatchAsStatus(StrCat("saving tensor '", name(), "'"), [&] {
      if (tensor_.defined()) {
        snapshot->tensors.emplace_back(name(), tensor_.detach());
      }
      return absl::OkStatus();
    });
  }
  absl::Status Restore(const Snapshot& snapshot) override {
    return CatchAsStatus(StrCat("restoring tensor '", name(), "'"), [&] {
      if (tensor_.defined()) return CopyFrom(snapshot, name(), tensor_);
      const at::Tensor* saved = FindTensor(snapshot, name());
      if (saved != nullptr) tensor_ = saved->clone();
      return absl::OkStatus();
    });
  }
  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    return std::vector<at::Tensor>{tensor_};
  }

 private:
  at::Tensor& tensor_;
};

}  // namespace

std::unique_ptr<TrackedItem> TrackModule(
    std::string name, std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<ModuleItem>(std::move(name), std::move(module));
}

std::unique_ptr<TrackedItem> TrackOptimizer(
    std::string name, torch::optim::Optimizer& optimizer) {
  return std::make_unique<OptimizerItem>(std::move(name), optimizer);
}

std::unique_ptr<TrackedItem> TrackTensor(std::string name, at::Tensor& tensor) {
  return std::make_unique<TensorItem>(std::move(name), tensor);
}

torch::nn::Module* ModuleOf(TrackedItem& item) {
  auto* module = dynamic_cast<ModuleItem*>(&item);
  return module == nullptr ? nullptr : &module->module();
}

torch::optim::Optimizer* OptimizerOf(TrackedItem& item) {
  auto* optimizer = dynamic_cast<OptimizerItem*>(&item);
  return optimizer == nullptr ? nullptr : &optimizer->optimizer();
}

}  // namespace gavel::internal
