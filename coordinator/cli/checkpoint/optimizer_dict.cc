#include "coordinator/cli/checkpoint/optimizer_dict.h"

#include <algorithm>
#include <cmath>
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
      // What is undefined is not there in Python.
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

}  // namespace gavel
