// TorchScript modules as tracked items: parameters, buffers and other tensor
// attributes, and numbers and flags that scripted code may change.
#include <torch/csrc/jit/api/module.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/tensor_entry.h"
#include "iterator/tracked_item.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

std::string TextOf(const c10::IValue& value) {
  if (value.isInt()) return StrCat("int ", value.toInt());
  if (value.isBool()) return StrCat("bool ", value.toBool() ? 1 : 0);
  return absl::StrFormat("float %.17g", value.toDouble());
}

bool IsScalar(const c10::IValue& value) {
  return value.isInt() || value.isBool() || value.isDouble();
}

// Of the type of `value` only.
bool FromText(const std::string& text, c10::IValue* value) {
  const std::string type = text.substr(0, text.find(' '));
  const std::string number =
      text.substr(std::min(type.size() + 1, text.size()));
  int64_t integer = 0;
  double real = 0;
  if (value->isDouble()) {
    if (type != "float" || !absl::SimpleAtod(number, &real)) return false;
    *value = real;
    return true;
  }
  if (type != (value->isInt() ? "int" : "bool")) return false;
  if (!absl::SimpleAtoi(number, &integer)) return false;
  *value = value->isInt() ? c10::IValue(integer) : c10::IValue(integer != 0);
  return true;
}

class ScriptItem final : public TrackedItem {
 public:
  ScriptItem(std::string name, const torch::jit::Module& module)
      : TrackedItem(std::move(name)), module_(module) {}

  std::string kind() const override { return "script module"; }
  const void* object() const override { return module_._ivalue().get(); }
  std::optional<bool> training() const override {
    return module_.is_training();
  }

  absl::Status Collect(Snapshot* snapshot) override {
    return Visit([&](const std::string& entry, c10::IValue value, auto&) {
      if (value.isTensor()) {
        return CollectTensor(entry, value.toTensor(), std::nullopt, snapshot);
      }
      snapshot->bytes[entry] = TextOf(value);
      return absl::OkStatus();
    });
  }

  absl::Status Restore(const Snapshot& snapshot) override {
    return Visit([&](const std::string& entry, c10::IValue value, auto& set) {
      if (value.isTensor()) {
        at::Tensor tensor = value.toTensor();
        if (!tensor.defined()) return absl::OkStatus();
        return RestoreTensor(snapshot, entry, std::nullopt, tensor);
      }
      const auto saved = snapshot.bytes.find(entry);
      if (saved == snapshot.bytes.end() || !FromText(saved->second, &value)) {
        return absl::FailedPreconditionError(
            StrCat("attribute '", entry, "' is ", TextOf(value), " here and ",
                   saved == snapshot.bytes.end() ? "not" : saved->second,
                   " in the checkpoint; restore with the module that wrote it, "
                   "or start in an empty checkpoint directory"));
      }
      set(std::move(value));
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    std::vector<at::Tensor> tensors;
    GAVEL_RETURN_IF_ERROR(
        Visit([&](const std::string&, const c10::IValue& value, auto&) {
          if (value.isTensor()) tensors.push_back(value.toTensor());
          return absl::OkStatus();
        }));
    return tensors;
  }

  absl::Status Moved(at::Device device) override {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Tensors());
    return CheckNoCsr(name(), tensors, device);
  }

  std::vector<NamedTensor> Parameters() override {
    std::vector<NamedTensor> parameters;
    Visit([&](const std::string& entry, const c10::IValue& value, auto&) {
      if (value.isTensor()) parameters.emplace_back(entry, value.toTensor());
      return absl::OkStatus();
    }).IgnoreError();
    return parameters;
  }

 private:
  // Calls body(name, value, set) for each tensor, number and flag.
  template <class Body>
  absl::Status Visit(Body body) {
    return CatchAsStatus(StrCat("script module '", name(), "'"), [&] {
      return VisitObject(name(), module_._ivalue(), body);
    });
  }

  template <class Body>
  static absl::Status VisitObject(const std::string& prefix,
                                  const torch::jit::ObjectPtr& object,
                                  Body& body) {
    for (size_t slot = 0; slot < object->slots().size(); ++slot) {
      const c10::IValue value = object->getSlot(slot);
      const std::string entry =
          StrCat(prefix, "/", object->type()->getAttributeName(slot));
      auto set = [&](c10::IValue to) { object->setSlot(slot, std::move(to)); };
      if (value.isModule()) {
        GAVEL_RETURN_IF_ERROR(VisitObject(entry, value.toObject(), body));
      } else if (value.isTensor() || IsScalar(value)) {
        GAVEL_RETURN_IF_ERROR(body(entry, value, set));
      }
    }
    return absl::OkStatus();
  }

  torch::jit::Module module_;  // a handle
};

}  // namespace

std::unique_ptr<TrackedItem> TrackScriptModule(
    std::string name, const torch::jit::Module& module) {
  return std::make_unique<ScriptItem>(std::move(name), module);
}

}  // namespace gavel::internal
