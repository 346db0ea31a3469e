// TorchScript modules as tracked items: all attributes that scripted code may
// change. Tensors are entries of CollectTensor(), other values are lines of
// text:
//
//   NAME             "attributes 2": of this version; earlier ones saved
//   tensors
//                    and numbers only
//   NAME/ATTRIBUTE   "int 3", "bool 1", "float 0.5", "str a\\n", "none", or
//                    "list 2", "tuple 2", "dict 2" with the entries below
//   .../0            an element of a list or tuple
//   .../0/key, .../0/value   of a dictionary
#include <torch/csrc/jit/api/module.h>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/tracked_state.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {
namespace {

using c10::IValue;

constexpr char kVersion[] = "attributes 2";
constexpr int64_t kElementsMax = 1 << 20;

bool IsNumber(const IValue& value) {
  return value.isInt() || value.isBool() || value.isDouble();
}

std::string TextOf(const IValue& value) {
  if (value.isNone()) return "none";
  if (value.isInt()) return StrCat("int ", value.toInt());
  if (value.isBool()) return StrCat("bool ", value.toBool() ? 1 : 0);
  if (value.isDouble()) return absl::StrFormat("float %.17g", value.toDouble());
  if (value.isString()) {
    return StrCat("str ", absl::CEscape(value.toStringRef()));
  }
  if (value.isList()) return StrCat("list ", value.toListRef().size());
  if (value.isTuple()) {
    return StrCat("tuple ", value.toTupleRef().elements().size());
  }
  if (value.isGenericDict()) {
    return StrCat("dict ", value.toGenericDict().size());
  }
  return StrCat("a ", value.tagKind());
}

// It means another thing in each process.
bool IsOfProcess(const IValue& value) { return value.isDevice(); }

bool IsObject(const IValue& value) {
  return value.isObject() && !value.isCustomClass();
}

template <class Body>
absl::Status ForEachSlot(const std::string& prefix,
                         const c10::intrusive_ptr<c10::ivalue::Object>& object,
                         const Body& body) {
  for (size_t slot = 0; slot < object->slots().size(); ++slot) {
    GAVEL_RETURN_IF_ERROR(body(
        StrCat(prefix, "/", object->type()->getAttributeName(slot)), slot));
  }
  return absl::OkStatus();
}

absl::Status SaveValue(const std::string& entry, const IValue& value,
                       Snapshot* snapshot) {
  if (IsObject(value)) {
    const auto object = value.toObject();
    return ForEachSlot(entry, object, [&](const std::string& name, size_t at) {
      return SaveValue(name, object->getSlot(at), snapshot);
    });
  }
  if (value.isTensor()) {
    return CollectTensor(entry, value.toTensor(), std::nullopt, snapshot);
  }
  if (IsOfProcess(value)) return absl::OkStatus();
  snapshot->bytes[entry] = TextOf(value);
  if (value.isList() || value.isTuple()) {
    const c10::ArrayRef<IValue> elements =
        value.isList() ? value.toListRef()
                       : c10::ArrayRef<IValue>(value.toTupleRef().elements());
    for (size_t i = 0; i < elements.size(); ++i) {
      GAVEL_RETURN_IF_ERROR(
          SaveValue(StrCat(entry, "/", i), elements[i], snapshot));
    }
    return absl::OkStatus();
  }
  if (value.isGenericDict()) {
    size_t i = 0;
    for (const auto& pair : value.toGenericDict()) {
      const std::string at = StrCat(entry, "/", i++);
      GAVEL_RETURN_IF_ERROR(
          SaveValue(StrCat(at, "/key"), pair.key(), snapshot));
      GAVEL_RETURN_IF_ERROR(
          SaveValue(StrCat(at, "/value"), pair.value(), snapshot));
    }
    return absl::OkStatus();
  }
  if (value.isNone() || IsNumber(value) || value.isString()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(StrCat(
      "attribute '", entry, "' is ", TextOf(value),
      ", which can't be saved; keep it outside of the module that is tracked"));
}

// All tensors of a value.
void ForEachTensor(const std::string& entry, const IValue& value,
                   std::vector<NamedTensor>* tensors) {
  if (IsObject(value)) {
    const auto object = value.toObject();
    ForEachSlot(entry, object, [&](const std::string& name, size_t slot) {
      ForEachTensor(name, object->getSlot(slot), tensors);
      return absl::OkStatus();
    }).IgnoreError();
  } else if (value.isTensor()) {
    if (value.toTensor().defined()) {
      tensors->emplace_back(entry, value.toTensor());
    }
  } else if (value.isList()) {
    for (size_t i = 0; i < value.toListRef().size(); ++i) {
      ForEachTensor(StrCat(entry, "/", i), value.toListRef()[i], tensors);
    }
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      ForEachTensor(StrCat(entry, "/", i), elements[i], tensors);
    }
  } else if (value.isGenericDict()) {
    size_t i = 0;
    for (const auto& pair : value.toGenericDict()) {
      ForEachTensor(StrCat(entry, "/", i++, "/value"), pair.value(), tensors);
    }
  }
}

class ScriptItem final : public TrackedItem {
 public:
  ScriptItem(std::string name, const torch::jit::Module& module)
      : TrackedItem(std::move(name)), module_(module) {}

  std::string kind() const override { return "script module"; }
  const void* object() const override { return module_._ivalue().get(); }
  bool has_tensors() const override { return true; }
  std::optional<bool> training() const override {
    return module_.is_training();
  }
  std::function<void()> Evaluate() override {
    std::vector<std::pair<torch::jit::Module, IValue>> modes;
    for (const torch::jit::Module& part : module_.modules()) {
      if (part.hasattr("training")) {
        modes.emplace_back(part, part.attr("training"));
      }
    }
    module_.eval();
    return [modes] {
      for (auto [part, mode] : modes) part.setattr("training", mode);
    };
  }

  absl::Status Collect(Snapshot* snapshot) override {
    snapshot->bytes[name()] = kVersion;
    return CatchAsStatus(StrCat("saving script module '", name(), "'"), [&] {
      return SaveValue(name(), module_._ivalue(), snapshot);
    });
  }

  absl::Status Restore(const Snapshot& snapshot) override {
    return CatchAsStatus(StrCat("restoring script module '", name(), "'"), [&] {
      return RestoreObject(snapshot, name(), module_._ivalue());
    });
  }

  absl::StatusOr<std::vector<at::Tensor>> Tensors() override {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<NamedTensor> named, Named());
    std::vector<at::Tensor> tensors;
    for (const auto& [entry, tensor] : named) tensors.push_back(tensor);
    return tensors;
  }

  absl::Status Moved(at::Device device) override {
    GAVEL_ASSIGN_OR_RETURN(const std::vector<at::Tensor> tensors, Tensors());
    return CheckNoCsr(name(), tensors, device);
  }

  std::vector<NamedTensor> Parameters() override {
    return Named().value_or(std::vector<NamedTensor>());
  }

 private:
  absl::StatusOr<std::vector<NamedTensor>> Named() const {
    std::vector<NamedTensor> tensors;
    GAVEL_RETURN_IF_ERROR(
        CatchAsStatus(StrCat("script module '", name(), "'"), [&] {
          ForEachTensor(name(), module_._ivalue(), &tensors);
          return absl::OkStatus();
        }));
    return tensors;
  }

  absl::Status RestoreObject(
      const Snapshot& snapshot, const std::string& prefix,
      const c10::intrusive_ptr<c10::ivalue::Object>& object) {
    return ForEachSlot(
        prefix, object,
        [&](const std::string& entry, size_t slot) -> absl::Status {
          const auto type = object->type();
          // Others hold handles to these.
          const bool in_place =
              type->is_module() &&
              (type->is_parameter(slot) || type->is_buffer(slot));
          GAVEL_ASSIGN_OR_RETURN(
              IValue value, RestoreValue(snapshot, entry, object->getSlot(slot),
                                         type->getAttribute(slot), in_place));
          object->setSlot(slot, std::move(value));
          return absl::OkStatus();
        });
  }

  // `here`: what is there now, or None. Nothing of another type than `type` is
  // made.
  absl::StatusOr<IValue> RestoreValue(const Snapshot& snapshot,
                                      const std::string& entry, IValue here,
                                      const c10::TypePtr& type, bool in_place) {
    if (IsObject(here)) {
      GAVEL_RETURN_IF_ERROR(RestoreObject(snapshot, entry, here.toObject()));
      return here;
    }
    if (IsOfProcess(here)) return here;
    if (HasTensor(snapshot, entry)) {
      return RestoreTensorValue(snapshot, entry, std::move(here), type,
                                in_place);
    }
    const auto saved = snapshot.bytes.find(entry);
    if (saved == snapshot.bytes.end()) {
      return KeepValue(snapshot, entry, std::move(here));
    }
    const std::string kind = saved->second.substr(0, saved->second.find(' '));
    const std::string rest =
        saved->second.substr(std::min(kind.size() + 1, saved->second.size()));
    const c10::TypePtr inner =
        type->kind() == c10::TypeKind::OptionalType
            ? type->expectRef<c10::OptionalType>().getElementType()
            : type;
    const IValue made = FromText(kind, rest);
    if (!made.isNone() && made.type()->isSubtypeOf(*inner)) return made;
    if (kind == "none" && c10::NoneType::get()->isSubtypeOf(*type)) {
      return IValue();
    }
    int64_t count = 0;
    if (absl::SimpleAtoi(rest, &count) && count >= 0 && count <= kElementsMax) {
      const auto size = static_cast<size_t>(count);
      if (kind == "list" && inner->kind() == c10::TypeKind::ListType) {
        return RestoreList(snapshot, entry, std::move(here), size,
                           inner->expectRef<c10::ListType>().getElementType());
      }
      if (kind == "dict" && inner->kind() == c10::TypeKind::DictType) {
        return RestoreDict(snapshot, entry, std::move(here), size,
                           inner->expectRef<c10::DictType>());
      }
      if (kind == "tuple" && inner->kind() == c10::TypeKind::TupleType &&
          inner->expectRef<c10::TupleType>().elements().size() == size) {
        return RestoreTuple(snapshot, entry, here,
                            inner->expectRef<c10::TupleType>().elements());
      }
    }
    return Differs(entry, here, saved->second);
  }

  // The checkpoint has nothing under this name.
  absl::StatusOr<IValue> KeepValue(const Snapshot& snapshot,
                                   const std::string& entry, IValue here) {
    const bool is_tensor = here.isTensor();
    if (is_tensor && !here.toTensor().defined()) return here;
    // Earlier versions saved these two only.
    if (!is_tensor && !IsNumber(here) && !snapshot.bytes.contains(name())) {
      return here;
    }
    if (rules().partial) {
      AddNote(StrCat("the checkpoint has no '", entry,
                     "', which stays as the program made it"));
      return here;
    }
    if (!is_tensor) return Differs(entry, here, "not");
    at::Tensor tensor = here.toTensor();
    return RestoreTensor(snapshot, entry, std::nullopt, tensor);  // fails
  }

  static absl::Status Differs(const std::string& entry, const IValue& here,
                              std::string_view saved) {
    return absl::FailedPreconditionError(
        StrCat("attribute '", entry, "' is ", TextOf(here), " here and ", saved,
               " in the checkpoint; restore with the module that wrote it, "
               "or start in an empty checkpoint directory"));
  }

  // Returns None if the text is no such value.
  static IValue FromText(const std::string& kind, const std::string& text) {
    int64_t integer = 0;
    double real = 0;
    std::string string;
    if (kind == "int" && absl::SimpleAtoi(text, &integer)) return integer;
    if (kind == "bool" && absl::SimpleAtoi(text, &integer)) return integer != 0;
    if (kind == "float" && absl::SimpleAtod(text, &real)) return real;
    if (kind == "str" && absl::CUnescape(text, &string)) return string;
    return {};
  }

  static absl::StatusOr<IValue> RestoreTensorValue(const Snapshot& snapshot,
                                                   const std::string& entry,
                                                   IValue here,
                                                   const c10::TypePtr& type,
                                                   bool in_place) {
    if (!c10::TensorType::get()->isSubtypeOf(*type)) {
      return Differs(entry, here, "a tensor");
    }
    if (here.isTensor() && here.toTensor().defined()) {
      at::Tensor tensor = here.toTensor();
      const absl::Status status =
          RestoreTensor(snapshot, entry, std::nullopt, tensor);
      if (status.ok()) return here;
      // An attribute may have got another shape by an assignment.
      if (in_place) return status;
    }
    at::Tensor made;
    GAVEL_RETURN_IF_ERROR(RestoreTensor(snapshot, entry, std::nullopt, made));
    return IValue(made);
  }

  // Restores in place, so that other references to the list stay valid.
  absl::StatusOr<IValue> RestoreList(const Snapshot& snapshot,
                                     const std::string& entry, IValue here,
                                     size_t count,
                                     const c10::TypePtr& element) {
    c10::impl::GenericList list =
        here.isList() ? here.toList() : c10::impl::GenericList(element);
    std::vector<IValue> values;
    for (size_t i = 0; i < count; ++i) {
      GAVEL_ASSIGN_OR_RETURN(
          IValue value,
          RestoreValue(snapshot, StrCat(entry, "/", i),
                       i < list.size() ? list.get(i) : IValue(), element,
                       /*in_place=*/false));
      values.push_back(std::move(value));
    }
    list.clear();
    for (IValue& value : values) list.push_back(std::move(value));
    return IValue(list);
  }

  absl::StatusOr<IValue> RestoreTuple(const Snapshot& snapshot,
                                      const std::string& entry,
                                      const IValue& here,
                                      at::ArrayRef<c10::TypePtr> types) {
    std::vector<IValue> values;
    for (size_t i = 0; i < types.size(); ++i) {
      GAVEL_ASSIGN_OR_RETURN(
          IValue value,
          RestoreValue(
              snapshot, StrCat(entry, "/", i),
              here.isTuple() ? here.toTupleRef().elements()[i] : IValue(),
              types[i], /*in_place=*/false));
      values.push_back(std::move(value));
    }
    return IValue(c10::ivalue::Tuple::create(std::move(values)));
  }

  absl::StatusOr<IValue> RestoreDict(const Snapshot& snapshot,
                                     const std::string& entry, IValue here,
                                     size_t count, const c10::DictType& type) {
    c10::impl::GenericDict dict =
        here.isGenericDict()
            ? here.toGenericDict()
            : c10::impl::GenericDict(type.getKeyType(), type.getValueType());
    std::vector<std::pair<IValue, IValue>> pairs;
    for (size_t i = 0; i < count; ++i) {
      const std::string at = StrCat(entry, "/", i);
      GAVEL_ASSIGN_OR_RETURN(
          IValue key, RestoreValue(snapshot, StrCat(at, "/key"), IValue(),
                                   type.getKeyType(), /*in_place=*/false));
      const auto before = dict.find(key);
      GAVEL_ASSIGN_OR_RETURN(
          IValue value,
          RestoreValue(snapshot, StrCat(at, "/value"),
                       before == dict.end() ? IValue() : before->value(),
                       type.getValueType(), /*in_place=*/false));
      pairs.emplace_back(std::move(key), std::move(value));
    }
    dict.clear();
    for (auto& [key, value] : pairs) {
      dict.insert(std::move(key), std::move(value));
    }
    return IValue(dict);
  }

  torch::jit::Module module_;  // a handle
};

}  // namespace

std::unique_ptr<TrackedItem> TrackScriptModule(
    std::string name, const torch::jit::Module& module) {
  return std::make_unique<ScriptItem>(std::move(name), module);
}

}  // namespace gavel::internal
