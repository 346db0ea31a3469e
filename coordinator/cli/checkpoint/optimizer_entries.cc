// What Python's optimizer.state_dict() says, as entries of a generation.
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/checkpoint/optimizer_dict.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::string_view kGiven = ".given";
constexpr uint64_t kScalarBytesMax = 8;

template <class T>
double As(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return static_cast<double>(value);
}

// A tensor of one element: Python counts steps in one.
absl::StatusOr<double> ReadScalar(const StoredTensor& tensor,
                                  const std::string& what) {
  GAVEL_ASSIGN_OR_RETURN(const std::string bytes,
                         ReadTensorBytes(tensor, kScalarBytesMax));
  if (bytes.size() == SizeOfDtype(tensor.entry.dtype)) {
    switch (tensor.entry.dtype) {
      case Dtype::kF32:
        return As<float>(bytes);
      case Dtype::kF64:
        return As<double>(bytes);
      case Dtype::kI64:
        return As<int64_t>(bytes);
      case Dtype::kI32:
        return As<int32_t>(bytes);
      default:
        break;
    }
  }
  return Refuse(what, " is ", KindOf(tensor.entry),
                "; give one number, or a tensor of one (F32, F64, I64, I32)");
}

std::string TextOf(double value) {
  const bool is_integer = std::trunc(value) == value && std::abs(value) < 1e15;
  return is_integer ? StrCat(static_cast<int64_t>(value))
                    : absl::StrFormat("%.17g", value);
}

class EntryMaker {
 public:
  EntryMaker(const StoredTensors& tensors, const StoredOptimizer& optimizer)
      : tensors_(tensors), optimizer_(optimizer) {}

  absl::StatusOr<OptimizerEntries> Make(const ParsedJson& json) {
    GAVEL_ASSIGN_OR_RETURN(
        const ParsedJson* const groups,
        Field(json, "param_groups", ParsedJson::value_t::array, "a list"));
    GAVEL_ASSIGN_OR_RETURN(
        const ParsedJson* const states,
        Field(json, "state", ParsedJson::value_t::object, "an object"));
    if (groups->size() != optimizer_.group_sizes.size()) {
      return Refuse("it has ", groups->size(), " param_groups, and ",
                    optimizer_.group_sizes.size(), " in the checkpoint");
    }
    size_t first = 0;
    for (size_t i = 0; i < groups->size(); ++i) {
      GAVEL_RETURN_IF_ERROR(AddGroup((*groups)[i], i, first));
      first += optimizer_.group_sizes[i];
    }
    for (const auto& [key, state] : states->items()) {
      size_t parameter = 0;
      if (!absl::SimpleAtoi(key, &parameter) || parameter >= first) {
        return Refuse("state[", key, "] is of none of its ", first,
                      " parameters");
      }
      GAVEL_RETURN_IF_ERROR(AddState(state, parameter));
    }
    return std::move(entries_);
  }

 private:
  absl::Status AddGroup(const ParsedJson& given, size_t i, size_t first) {
    const std::string what = StrCat("param_groups[", i, "]");
    if (!given.is_object()) return Refuse(what, " is no object");
    ParsedJson group = given;
    GAVEL_RETURN_IF_ERROR(CheckParameters(group, what, i, first));
    group.erase("params");
    const ParsedJson* const betas = FindField(group, "betas");
    if (betas != nullptr && betas->is_array() && betas->size() == 2) {
      group["beta1"] = betas->at(0);
      group["beta2"] = betas->at(1);
      group.erase("betas");
    }
    const std::string prefix = StrCat(optimizer_.name, "/group/", i, "/");
    std::string lines;
    GAVEL_RETURN_IF_ERROR(
        AddFields(/*options=*/true, group, what, prefix, &lines));
    entries_.bytes[StrCat(prefix, "options")] = lines;
    entries_.bytes[StrCat(prefix, "parameters")] =
        StrCat(optimizer_.group_sizes[i]);
    return absl::OkStatus();
  }

  absl::Status CheckParameters(const ParsedJson& group, const std::string& what,
                               size_t i, size_t first) const {
    GAVEL_ASSIGN_OR_RETURN(
        const ParsedJson* const parameters,
        Field(group, "params", ParsedJson::value_t::array, "a list"));
    bool good = parameters->size() == optimizer_.group_sizes[i];
    for (size_t j = 0; good && j < parameters->size(); ++j) {
      good = (*parameters)[j] == first + j;
    }
    if (good) return absl::OkStatus();
    return Refuse(what, " has ", parameters->size(),
                  " params, and those of the checkpoint are the ",
                  optimizer_.group_sizes[i], " from ", first, " on");
  }

  absl::Status AddState(const ParsedJson& state, size_t parameter) {
    const std::string what = StrCat("state[", parameter, "]");
    if (!state.is_object()) return Refuse(what, " is no object");
    const std::string prefix =
        StrCat(optimizer_.name, "/state/", parameter, "/");
    entries_.bytes[StrCat(prefix, "present")] = "true";
    return AddFields(/*options=*/false, state, what, prefix, nullptr);
  }

  // `lines`: null: numbers are entries of their own.
  absl::Status AddFields(bool options, const ParsedJson& values,
                         const std::string& what, const std::string& prefix,
                         std::string* lines) {
    std::set<std::string> known;
    for (const OptimizerField& field : optimizer_.fields) {
      if (field.is_option != options) continue;
      known.insert(field.name);
      GAVEL_RETURN_IF_ERROR(Annotate(AddField(field, values, prefix, lines),
                                     StrCat(what, "[\"", field.name, "\"]")));
    }
    for (const auto& [name, value] : values.items()) {
      const bool is_off = value.is_null() || value == false;
      // What makes Python's Adam its AdamW.
      const bool is_adamw =
          name == "decoupled_weight_decay" && optimizer_.kind == "AdamW";
      if (known.contains(name) || is_off || is_adamw) continue;
      entries_.notes.push_back(StrCat(
          what, "[\"", name, "\"] of ", optimizer_.name,
          " has no place in C++'s ", optimizer_.kind, " and is left out"));
    }
    return absl::OkStatus();
  }

  absl::Status AddField(const OptimizerField& field, const ParsedJson& values,
                        const std::string& prefix, std::string* lines) {
    const auto add_text = [&](const std::string& name,
                              const std::string& text) {
      if (lines != nullptr) {
        StrAppend(lines, name, " ", text, "\n");
      } else {
        entries_.bytes[StrCat(prefix, name)] = text;
      }
    };
    std::string_view name = field.name;
    if (name.ends_with(kGiven)) {
      name.remove_suffix(kGiven.size());
      const bool given = FindField(values, std::string(name)) != nullptr;
      add_text(field.name, given ? "true" : "false");
      return absl::OkStatus();
    }
    const ParsedJson* const value = FindField(values, field.name);
    if (field.type == "tensor") {
      return value == nullptr ? absl::OkStatus()
                              : AddTensor(*value, prefix + field.name);
    }
    if (field.type == "tensors") {
      return AddList(value, prefix, field.name, add_text);
    }
    if (value == nullptr) {
      if (!IsOptional(field)) return Refuse("is not there");
      add_text(field.name, field.type == "text"   ? ""
                           : field.type == "bool" ? "false"
                                                  : "0");
      return absl::OkStatus();
    }
    GAVEL_ASSIGN_OR_RETURN(const std::string text, TextOfValue(field, *value));
    add_text(field.name, text);
    return absl::OkStatus();
  }

  bool IsOptional(const OptimizerField& field) const {
    for (const OptimizerField& other : optimizer_.fields) {
      if (other.is_option == field.is_option &&
          other.name == StrCat(field.name, kGiven)) {
        return true;
      }
    }
    return false;
  }

  absl::StatusOr<std::string> TextOfValue(const OptimizerField& field,
                                          const ParsedJson& value) const {
    if (field.type == "text") {
      if (!value.is_string()) return Refuse("is no text");
      return absl::CEscape(value.get<std::string>());
    }
    if (field.type == "bool") {
      if (!value.is_boolean()) return Refuse("is not true or false");
      return std::string(value.get<bool>() ? "true" : "false");
    }
    GAVEL_ASSIGN_OR_RETURN(const double number, NumberOf(value));
    if (field.type == "int64" && std::trunc(number) != number) {
      return Refuse("is ", number, "; give a whole number");
    }
    return TextOf(number);
  }

  absl::StatusOr<double> NumberOf(const ParsedJson& value) const {
    double number = 0;
    if (value.is_number()) return value.get<double>();
    // As NaN and infinities are written.
    if (value.is_string() &&
        absl::SimpleAtod(value.get<std::string>(), &number)) {
      return number;
    }
    GAVEL_ASSIGN_OR_RETURN(const StoredTensor* const tensor, Find(value));
    return ReadScalar(*tensor, "it");
  }

  absl::StatusOr<const StoredTensor*> Find(const ParsedJson& value) const {
    const auto name = value.is_object() ? value.find("tensor") : value.end();
    if (!value.is_object() || name == value.end() || !name->is_string()) {
      return Refuse("is neither a number nor a tensor");
    }
    const auto tensor = tensors_.find(name->get<std::string>());
    if (tensor == tensors_.end()) {
      return Refuse("is the tensor '", name->get<std::string>(),
                    "', which its file does not have");
    }
    return &tensor->second;
  }

  absl::Status AddTensor(const ParsedJson& value, const std::string& name) {
    TensorSource source;
    if (value.is_number()) {  // where C++ has a tensor of one element
      const float number = value.get<float>();
      std::string bytes(sizeof(number), '\0');
      std::memcpy(bytes.data(), &number, sizeof(number));
      source = {{name, Dtype::kF32, {}, 0, 0}, std::move(bytes)};
    } else {
      GAVEL_ASSIGN_OR_RETURN(const StoredTensor* const tensor, Find(value));
      source = {tensor->entry, *tensor};
      source.entry.name = name;
    }
    entries_.tensors.push_back(std::move(source));
    return absl::OkStatus();
  }

  template <class AddText>
  absl::Status AddList(const ParsedJson* value, const std::string& prefix,
                       const std::string& name, const AddText& add_text) {
    if (value != nullptr && !value->is_array()) return Refuse("is no list");
    const size_t count = value == nullptr ? 0 : value->size();
    add_text(StrCat(name, "/count"), StrCat(count));
    for (size_t i = 0; i < count; ++i) {
      if ((*value)[i].is_null()) continue;
      GAVEL_RETURN_IF_ERROR(
          AddTensor((*value)[i], StrCat(prefix, name, "/", i)));
    }
    return absl::OkStatus();
  }

  const StoredTensors& tensors_;
  const StoredOptimizer& optimizer_;
  OptimizerEntries entries_;
};

}  // namespace

absl::StatusOr<OptimizerEntries> FromDict(const ParsedJson& json,
                                          const StoredTensors& tensors,
                                          const StoredOptimizer& optimizer) {
  const ParsedJson* const kind = FindField(json, "class");
  if (kind != nullptr && *kind != optimizer.kind) {
    return Refuse("it is of class ", kind->dump(), ", and ", optimizer.kind,
                  " in the checkpoint");
  }
  return EntryMaker(tensors, optimizer).Make(json);
}

}  // namespace gavel
