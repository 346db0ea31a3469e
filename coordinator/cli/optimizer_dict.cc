#include "coordinator/cli/optimizer_dict.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"

namespace gavel {
namespace {

constexpr std::string_view kGiven = ".given";
constexpr char kTensor[] = "tensor";

// ---- What a generation says ----

std::string OptionsName(const std::string& name, size_t group) {
  return StrCat(name, "/group/", group, "/options");
}

// "lr 0.001\nbeta1 0.9\n".
std::map<std::string, std::string> Lines(const std::string& text) {
  std::map<std::string, std::string> lines;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    lines.insert(words);
  }
  return lines;
}

std::string TypeOfText(const std::string& text) {
  return text == "true" || text == "false" ? "bool" : "number";
}

// The names below NAME/state/: of earlier versions, whose optimizers have no
// lists and no numbers but integers in their state.
std::set<std::string> StateNames(const StoredGeneration& generation,
                                 const std::string& name) {
  const std::string prefix = StrCat(name, "/state/");
  std::set<std::string> names;
  const auto add = [&](const std::string& entry) {
    if (!std::string_view(entry).starts_with(prefix)) return;
    names.insert(entry.substr(entry.find('/', prefix.size()) + 1));
  };
  for (const auto& [entry, tensor] : generation.tensors) add(entry);
  for (const auto& [entry, text] : generation.bytes) add(entry);
  names.erase("present");
  return names;
}

std::vector<OptimizerField> GuessFields(const StoredGeneration& generation,
                                        const std::string& name) {
  std::vector<OptimizerField> fields;
  const std::string* const options = generation.FindBytes(OptionsName(name, 0));
  if (options != nullptr) {
    for (const auto& [option, text] : Lines(*options)) {
      fields.push_back({true, option, TypeOfText(text)});
    }
  }
  const std::string prefix = StrCat(name, "/state/");
  for (const std::string& field : StateNames(generation, name)) {
    const bool is_tensor =
        std::ranges::any_of(generation.tensors, [&](const auto& entry) {
          return std::string_view(entry.first).starts_with(prefix) &&
                 std::string_view(entry.first).ends_with("/" + field);
        });
    fields.push_back({false, field, is_tensor ? "tensor" : "number"});
  }
  return fields;
}

absl::Status Unreadable(const std::string& entry) {
  return absl::DataLossError(
      StrCat("checkpoint entry '", entry, "' is missing or not readable"));
}

absl::Status FindGroups(const StoredGeneration& generation,
                        StoredOptimizer* optimizer) {
  const std::string& name = optimizer->name;
  size_t groups = 0;
  while (generation.FindBytes(OptionsName(name, groups)) != nullptr) ++groups;
  for (size_t i = 0; i < groups; ++i) {
    const std::string entry = StrCat(name, "/group/", i, "/parameters");
    const std::string* text = generation.FindBytes(entry);
    if (text == nullptr && groups == 1) {
      text = generation.FindBytes(StrCat(name, "/parameters"));
    } else if (text == nullptr) {
      return absl::FailedPreconditionError(
          StrCat("optimizer '", name, "' has ", groups, " groups, and an ",
                 "earlier version of Gavel wrote this checkpoint without their "
                 "sizes; let the job write one with this version first"));
    }
    size_t size = 0;
    if (text == nullptr || !absl::SimpleAtoi(*text, &size)) {
      return Unreadable(entry);
    }
    optimizer->group_sizes.push_back(size);
  }
  return absl::OkStatus();
}

// ---- To Python ----

Json JsonOfDouble(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

absl::StatusOr<Json> JsonOfText(const std::string& text,
                                const std::string& type,
                                const std::string& entry) {
  int64_t integer = 0;
  double number = 0;
  std::string plain;
  if (type == "bool" && (text == "true" || text == "false")) {
    return Json(text == "true");
  }
  if (type == "text" && absl::CUnescape(text, &plain)) return Json(plain);
  if ((type == "int64" || type == "number") &&
      absl::SimpleAtoi(text, &integer)) {
    return Json(integer);
  }
  if ((type == "double" || type == "number") &&
      absl::SimpleAtod(text, &number)) {
    return JsonOfDouble(number);
  }
  return Unreadable(entry);
}

class DictMaker {
 public:
  DictMaker(const StoredGeneration& generation,
            const StoredOptimizer& optimizer)
      : generation_(generation), optimizer_(optimizer) {}

  absl::StatusOr<OptimizerDict> Make() {
    Json groups = Json::array();
    size_t first = 0;
    for (size_t i = 0; i < optimizer_.group_sizes.size(); ++i) {
      GAVEL_ASSIGN_OR_RETURN(Json group, Group(i));
      group["params"] = Json::array();
      for (size_t j = 0; j < optimizer_.group_sizes[i]; ++j) {
        group["params"].push_back(first + j);
      }
      first += optimizer_.group_sizes[i];
      groups.push_back(std::move(group));
    }
    Json states = Json::object();
    for (size_t i = 0; i < first; ++i) {
      const std::string prefix = StrCat(optimizer_.name, "/state/", i, "/");
      if (generation_.FindBytes(StrCat(prefix, "present")) == nullptr) continue;
      GAVEL_ASSIGN_OR_RETURN(
          states[StrCat(i)],
          Fields(/*options=*/false, prefix, nullptr, StrCat(i, ".")));
    }
    dict_.json = {{"class", optimizer_.kind},
                  {"param_groups", std::move(groups)},
                  {"state", std::move(states)}};
    return std::move(dict_);
  }

 private:
  using TextLines = std::map<std::string, std::string>;

  absl::StatusOr<Json> Group(size_t i) {
    const std::string entry = OptionsName(optimizer_.name, i);
    const std::string* const text = generation_.FindBytes(entry);
    if (text == nullptr) return Unreadable(entry);
    const TextLines lines = Lines(*text);
    GAVEL_ASSIGN_OR_RETURN(
        Json group,
        Fields(/*options=*/true, StrCat(optimizer_.name, "/group/", i, "/"),
               &lines, StrCat("group.", i, ".")));
    // Python has a pair of them.
    if (group.contains("beta1") && group.contains("beta2")) {
      Json betas = Json::array({group["beta1"], group["beta2"]});
      group["betas"] = std::move(betas);
      group.erase("beta1");
      group.erase("beta2");
    }
    return group;
  }

  // `lines`: of options. `tensor_prefix`: of names in the file for Python.
  absl::StatusOr<Json> Fields(bool options, const std::string& prefix,
                              const TextLines* lines,
                              const std::string& tensor_prefix) {
    Json json = Json::object();
    for (const OptimizerField& field : optimizer_.fields) {
      if (field.is_option != options) continue;
      GAVEL_ASSIGN_OR_RETURN(Json value,
                             Value(field, prefix, lines, tensor_prefix));
      // Python leaves out a tensor that is undefined.
      if (field.type == "tensor" && value.is_null()) continue;
      json[field.name] = std::move(value);
    }
    return WithoutGiven(json, options);
  }

  // {"x.given": false, "x": 0} is {"x": null}, and none at all in a state.
  static Json WithoutGiven(const Json& json, bool options) {
    Json result = Json::object();
    for (const auto& [name, value] : json.items()) {
      if (std::string_view(name).ends_with(kGiven)) continue;
      const auto given = json.find(StrCat(name, kGiven));
      const bool absent = given != json.end() && *given == false;
      if (absent && !options) continue;
      result[name] = absent ? Json() : value;
    }
    return result;
  }

  absl::StatusOr<Json> Value(const OptimizerField& field,
                             const std::string& prefix, const TextLines* lines,
                             const std::string& tensor_prefix) {
    const std::string entry = StrCat(prefix, field.name);
    if (field.type == "tensor")
      return Tensor(entry, tensor_prefix + field.name);
    if (field.type == "tensors") {
      return List(field.name, entry, lines, tensor_prefix);
    }
    GAVEL_ASSIGN_OR_RETURN(const std::string text,
                           Text(field.name, entry, lines));
    return JsonOfText(text, field.type, entry);
  }

  absl::StatusOr<std::string> Text(const std::string& name,
                                   const std::string& entry,
                                   const TextLines* lines) const {
    if (lines != nullptr) {
      const auto line = lines->find(name);
      if (line != lines->end()) return line->second;
    } else if (const std::string* text = generation_.FindBytes(entry)) {
      return *text;
    }
    return Unreadable(entry);
  }

  // Null: it is undefined.
  Json Tensor(const std::string& entry, const std::string& name) {
    const auto tensor = generation_.tensors.find(entry);
    if (tensor == generation_.tensors.end()) return Json();
    TensorSource source{tensor->second.entry, tensor->second};
    source.entry.name = name;
    dict_.tensors.push_back(std::move(source));
    return {{kTensor, name}};
  }

  absl::StatusOr<Json> List(const std::string& name, const std::string& entry,
                            const TextLines* lines,
                            const std::string& tensor_prefix) {
    GAVEL_ASSIGN_OR_RETURN(
        const std::string text,
        Text(StrCat(name, "/count"), StrCat(entry, "/count"), lines));
    size_t count = 0;
    if (!absl::SimpleAtoi(text, &count)) return Unreadable(entry);
    Json list = Json::array();
    for (size_t i = 0; i < count; ++i) {
      list.push_back(
          Tensor(StrCat(entry, "/", i), StrCat(tensor_prefix, name, ".", i)));
    }
    return list;
  }

  const StoredGeneration& generation_;
  const StoredOptimizer& optimizer_;
  OptimizerDict dict_;
};

}  // namespace

absl::StatusOr<StoredOptimizer> FindOptimizer(
    const StoredGeneration& generation, const std::string& name) {
  StoredOptimizer optimizer;
  optimizer.name = name;
  const std::string* const kind = generation.FindBytes(StrCat(name, "/kind"));
  if (kind == nullptr) return Unreadable(StrCat(name, "/kind"));
  optimizer.kind = *kind;
  GAVEL_RETURN_IF_ERROR(FindGroups(generation, &optimizer));
  const std::string* const fields =
      generation.FindBytes(StrCat(name, "/fields"));
  if (fields == nullptr) {
    optimizer.fields = GuessFields(generation, name);
    return optimizer;
  }
  for (const auto line : absl::StrSplit(*fields, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() != 3) return Unreadable(StrCat(name, "/fields"));
    optimizer.fields.push_back({words[0] == "option", words[1], words[2]});
  }
  return optimizer;
}

absl::StatusOr<OptimizerDict> ToDict(const StoredGeneration& generation,
                                     const StoredOptimizer& optimizer) {
  return DictMaker(generation, optimizer).Make();
}

// ---- From Python: optimizer.state_dict() as entries of a generation ----

namespace {

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
      // This option makes an Adam of Python an AdamW.
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
