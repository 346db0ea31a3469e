#include "iterator/optimizer_state.h"

#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/optimizer_fields.h"
#include "runtime/torch_errors.h"

namespace gavel::internal {
namespace {

namespace optim = torch::optim;
using StateMap =
    ska::flat_hash_map<void*, std::unique_ptr<optim::OptimizerParamState>>;

std::string OptionsName(std::string_view prefix, size_t group) {
  return StrCat(prefix, "/group/", group, "/options");
}
std::string GroupPrefix(std::string_view prefix, size_t group) {
  return StrCat(prefix, "/group/", group, "/");
}
std::string GivenName(std::string_view prefix, size_t group) {
  return StrCat(prefix, "/group/", group, "/given");
}
std::string StatePrefix(std::string_view prefix, size_t parameter) {
  return StrCat(prefix, "/state/", parameter, "/");
}

std::vector<at::Tensor> ParametersOf(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(),
                      group.params().end());
  }
  return parameters;
}

std::optional<OwnPart> PartOf(const PartOfParameter& part_of,
                              const at::Tensor& parameter) {
  return part_of ? part_of(parameter) : std::nullopt;
}

absl::Status Differs(std::string_view prefix, std::string_view what) {
  return absl::FailedPreconditionError(
      StrCat("optimizer '", prefix, "': the checkpoint has ", what,
             "; restore with the program that wrote it, or start anew"));
}

template <class Object>
std::string ClassOf(const Object& object) {
  return c10::demangle(typeid(object).name());
}

absl::Status VisitOptions(const OptimizerKind& kind,
                          optim::OptimizerOptions& options,
                          OptimizerFields& fields) {
  if (kind.visit_options(options, fields)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("its options are of class ", ClassOf(options),
             ", which is not the one that its OptimizerKind '", kind.name,
             "' describes; pass the description of this class to Track"));
}

absl::Status VisitState(const OptimizerKind& kind,
                        optim::OptimizerParamState& state,
                        OptimizerFields& fields) {
  if (kind.visit_state(state, fields)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("it has state of class ", ClassOf(state),
             ", which is not the one that its OptimizerKind '", kind.name,
             "' describes; describe this class with gavel::DescribeOptimizer "
             "(gavel/optimizer_kind.h) and pass that to Track"));
}

// All that is visited, in a fixed order.
absl::StatusOr<std::vector<std::string>> FieldsOf(const OptimizerKind& kind,
                                                  optim::Optimizer& optimizer) {
  std::vector<std::string> fields;
  ListFieldNames state;
  if (!optimizer.param_groups().empty()) {
    ListFieldNames options;
    GAVEL_RETURN_IF_ERROR(
        VisitOptions(kind, optimizer.param_groups()[0].options(), options));
    GAVEL_RETURN_IF_ERROR(options.status());
    for (const std::string& field : options.fields()) {
      fields.push_back(StrCat("option ", field));
    }
  }
  GAVEL_RETURN_IF_ERROR(VisitState(kind, *kind.make_state(), state));
  GAVEL_RETURN_IF_ERROR(state.status());
  for (const std::string& field : state.fields()) {
    fields.push_back(StrCat("state ", field));
  }
  std::sort(fields.begin(), fields.end());
  return fields;
}

// Calls `visit` with each parameter that has some state, its number and that.
template <class Visit>
absl::Status ForEachState(optim::Optimizer& optimizer, Visit visit) {
  const std::vector<at::Tensor> parameters = ParametersOf(optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto state =
        optimizer.state().find(parameters[i].unsafeGetTensorImpl());
    if (state == optimizer.state().end()) continue;
    GAVEL_RETURN_IF_ERROR(visit(i, parameters[i], *state->second));
  }
  return absl::OkStatus();
}

// ---- Collecting ----

absl::Status CollectOptions(const OptimizerKind& kind, std::string_view prefix,
                            optim::Optimizer& optimizer, Snapshot* snapshot) {
  auto& groups = optimizer.param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    std::string lines;
    SaveFields save(GroupPrefix(prefix, i), snapshot, &lines);
    GAVEL_RETURN_IF_ERROR(VisitOptions(kind, groups[i].options(), save));
    GAVEL_RETURN_IF_ERROR(save.status());
    snapshot->bytes[OptionsName(prefix, i)] = std::move(lines);
    snapshot->bytes[StrCat(GroupPrefix(prefix, i), "parameters")] =
        StrCat(groups[i].params().size());
  }
  return absl::OkStatus();
}

absl::Status Collect(optim::Optimizer& optimizer, const OptimizerKind& kind,
                     std::string_view prefix, const PartOfParameter& part_of,
                     const std::vector<std::string>& given,
                     Snapshot* snapshot) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> fields,
                         FieldsOf(kind, optimizer));
  std::string& field_lines = snapshot->bytes[StrCat(prefix, "/fields")];
  for (const std::string& field : fields) StrAppend(&field_lines, field, "\n");
  snapshot->bytes[StrCat(prefix, "/kind")] = kind.name;
  snapshot->bytes[StrCat(prefix, "/parameters")] =
      StrCat(ParametersOf(optimizer).size());
  GAVEL_RETURN_IF_ERROR(CollectOptions(kind, prefix, optimizer, snapshot));
  for (size_t i = 0; i < given.size(); ++i) {
    snapshot->bytes[GivenName(prefix, i)] = given[i];
  }
  size_t found = 0;
  const auto save_state = [&](size_t i, const at::Tensor& parameter,
                              optim::OptimizerParamState& state) {
    ++found;
    const std::string name = StatePrefix(prefix, i);
    snapshot->bytes[StrCat(name, "present")] = "true";
    std::optional<PartedParameter> parted;
    if (const auto part = PartOf(part_of, parameter)) {
      parted = {*part, parameter};
    }
    SaveFields save(name, snapshot, /*lines=*/nullptr,
                    parted ? &*parted : nullptr);
    GAVEL_RETURN_IF_ERROR(VisitState(kind, state, save));
    return save.status();
  };
  GAVEL_RETURN_IF_ERROR(ForEachState(optimizer, save_state));
  // LibTorch's own keep some for parameters that were taken out of a group.
  if (kind.state_has_parameter_shape || found == optimizer.state().size()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "it has state that is not of one of its parameters, and would be lost; "
      "keep it with a parameter, or in a member that is tracked by itself");
}

// ---- Restoring ----

// For messages: 0.05, not 0.050000000000000003.
std::string Short(const std::string& value) {
  double number = 0;
  return absl::SimpleAtod(value, &number) ? StrCat(number) : value;
}

const std::string* FindBytes(const Snapshot& snapshot,
                             const std::string& name) {
  const auto entry = snapshot.bytes.find(name);
  return entry == snapshot.bytes.end() ? nullptr : &entry->second;
}

class Restorer {
 public:
  Restorer(const Snapshot& snapshot, std::string_view prefix,
           const OptimizerKind& kind, const PartOfParameter& part_of,
           optim::Optimizer& optimizer)
      : snapshot_(snapshot),
        prefix_(prefix),
        kind_(kind),
        part_of_(part_of),
        optimizer_(optimizer) {
    for (const auto& [name, tensor] : snapshot.tensors) {
      tensors_.emplace(name, &tensor);
    }
  }

  absl::Status Run() {
    StateMap state;
    GAVEL_RETURN_IF_ERROR(CheckKind());
    GAVEL_RETURN_IF_ERROR(CheckFields());
    GAVEL_RETURN_IF_ERROR(CheckCounts());
    GAVEL_RETURN_IF_ERROR(BuildState(&state));
    GAVEL_RETURN_IF_ERROR(RestoreOptionsOrNone());
    optimizer_.state() = std::move(state);
    return absl::OkStatus();
  }

  // In place: a learning-rate scheduler may hold references to them.
  absl::Status RestoreOptions() {
    auto& groups = optimizer_.param_groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      const std::string name = OptionsName(prefix_, i);
      const std::string* const text = FindBytes(snapshot_, name);
      if (text == nullptr) {
        return Differs(prefix_, StrCat("only ", i, " groups of parameters"));
      }
      const FieldLines lines = ParseLines(*text);
      const std::vector<at::Tensor>& of = groups[i].params();
      RestoreFields restore(
          GroupPrefix(prefix_, i),
          {.snapshot = snapshot_,
           .tensors = tensors_,
           .device = of.empty() ? at::Device(at::kCPU) : of[0].device(),
           .lines = &lines,
           .lines_name = name});
      GAVEL_RETURN_IF_ERROR(VisitOptions(kind_, groups[i].options(), restore));
      GAVEL_RETURN_IF_ERROR(restore.status());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckKind() const {
    const std::string* const saved =
        FindBytes(snapshot_, StrCat(prefix_, "/kind"));
    if (saved == nullptr) {
      return absl::NotFoundError(
          StrCat("the checkpoint has no optimizer '", prefix_,
                 "'; track it under the name it was saved with"));
    }
    if (*saved == kind_.name) return absl::OkStatus();
    return Differs(prefix_, StrCat("the state of ", *saved,
                                   ", this program uses ", kind_.name));
  }

  absl::Status CheckFields() const {
    const std::string* const text =
        FindBytes(snapshot_, StrCat(prefix_, "/fields"));
    if (text == nullptr) return absl::OkStatus();  // of an earlier version
    GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> own,
                           FieldsOf(kind_, optimizer_));
    const std::vector<std::string> saved =
        absl::StrSplit(*text, '\n', absl::SkipEmpty());
    for (const std::string& field : own) {
      if (std::ranges::count(saved, field) == 0) return Missing(field, saved);
    }
    for (const std::string& field : saved) {
      if (std::ranges::count(own, field) == 0) {
        return Differs(prefix_, StrCat("the ", field, " of ", kind_.name,
                                       ", which this program does not name"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Missing(const std::string& field,
                       const std::vector<std::string>& saved) const {
    return Differs(prefix_,
                   StrCat("no ", field, " of ", kind_.name, " (it has ",
                          absl::StrJoin(saved, ", "), ")"));
  }

  absl::Status CheckCounts() const {
    const std::string name = StrCat(prefix_, "/parameters");
    const std::string* const text = FindBytes(snapshot_, name);
    int64_t saved = 0;
    if (text == nullptr || !absl::SimpleAtoi(*text, &saved)) {
      return UnreadableEntry(name);
    }
    const size_t own = ParametersOf(optimizer_).size();
    if (static_cast<size_t>(saved) != own) {
      return Differs(prefix_, StrCat(saved, " parameters, this program ", own));
    }
    const size_t groups = optimizer_.param_groups().size();
    if (snapshot_.bytes.contains(OptionsName(prefix_, groups))) {
      return Differs(prefix_, StrCat("more groups of parameters than the ",
                                     groups, " of this program"));
    }
    for (size_t i = 0; i < groups; ++i) {
      const std::string* const in_group =
          FindBytes(snapshot_, StrCat(GroupPrefix(prefix_, i), "parameters"));
      const size_t here = optimizer_.param_groups()[i].params().size();
      // Earlier versions did not write it.
      if (in_group == nullptr || *in_group == StrCat(here)) continue;
      return Differs(prefix_, StrCat(*in_group, " parameters in group ", i,
                                     ", this program ", here));
    }
    return absl::OkStatus();
  }

  absl::Status BuildState(StateMap* state) const {
    const std::vector<at::Tensor> parameters = ParametersOf(optimizer_);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string name = StatePrefix(prefix_, i);
      if (!snapshot_.bytes.contains(StrCat(name, "present"))) continue;
      std::unique_ptr<optim::OptimizerParamState> made = kind_.make_state();
      const std::optional<OwnPart> part = PartOf(part_of_, parameters[i]);
      RestoreFields restore(
          name,
          {.snapshot = snapshot_,
           .tensors = tensors_,
           .device = parameters[i].device(),
           .like = kind_.state_has_parameter_shape ? &parameters[i] : nullptr,
           .part = part ? &*part : nullptr});
      GAVEL_RETURN_IF_ERROR(VisitState(kind_, *made, restore));
      GAVEL_RETURN_IF_ERROR(restore.status());
      (*state)[parameters[i].unsafeGetTensorImpl()] = std::move(made);
    }
    return absl::OkStatus();
  }

  absl::Status RestoreOptionsOrNone() {
    Snapshot before;
    GAVEL_RETURN_IF_ERROR(CollectOptions(kind_, prefix_, optimizer_, &before));
    absl::Status status = RestoreOptions();
    if (status.ok()) return status;
    Restorer(before, prefix_, kind_, part_of_, optimizer_)
        .RestoreOptions()
        .IgnoreError();
    return status;
  }

  const Snapshot& snapshot_;
  std::string prefix_;
  const OptimizerKind& kind_;
  const PartOfParameter& part_of_;
  optim::Optimizer& optimizer_;
  TensorIndex tensors_;
};

}  // namespace

absl::Status CheckOptimizerKind(optim::Optimizer& optimizer,
                                const OptimizerKind& kind,
                                std::string_view prefix) {
  return Annotate(
      CatchAsStatus("naming its fields",
                    [&] { return FieldsOf(kind, optimizer).status(); }),
      StrCat("optimizer '", prefix, "'"));
}

absl::Status CollectOptimizerState(optim::Optimizer& optimizer,
                                   const OptimizerKind& kind,
                                   std::string_view prefix, Snapshot* snapshot,
                                   const PartOfParameter& part_of,
                                   const std::vector<std::string>& given) {
  return Annotate(CatchAsStatus("saving",
                                [&] {
                                  return Collect(optimizer, kind, prefix,
                                                 part_of, given, snapshot);
                                }),
                  StrCat("optimizer '", prefix, "'"));
}

absl::StatusOr<std::vector<std::string>> OptionLines(
    optim::Optimizer& optimizer, const OptimizerKind& kind,
    std::string_view prefix) {
  Snapshot snapshot;
  GAVEL_RETURN_IF_ERROR(CatchAsStatus(
      StrCat("options of optimizer '", prefix, "'"),
      [&] { return CollectOptions(kind, prefix, optimizer, &snapshot); }));
  std::vector<std::string> lines;
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    lines.push_back(snapshot.bytes[OptionsName(prefix, i)]);
  }
  return lines;
}

absl::StatusOr<std::vector<std::string>> SettleOptions(
    const Snapshot& snapshot, std::string_view prefix,
    const OptimizerKind& kind, bool keep_program, optim::Optimizer& optimizer,
    std::vector<std::string>* given) {
  GAVEL_ASSIGN_OR_RETURN(const std::vector<std::string> options,
                         OptionLines(optimizer, kind, prefix));
  std::vector<std::string> notes;
  Snapshot chosen;
  chosen.tensors = snapshot.tensors;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string* before = FindBytes(snapshot, GivenName(prefix, i));
    if (before == nullptr) before = FindBytes(snapshot, OptionsName(prefix, i));
    if (before == nullptr) continue;
    const FieldLines old = ParseLines(*before);
    FieldLines used = ParseLines(options[i]);
    for (const auto& [name, value] : ParseLines((*given)[i])) {
      const auto it = old.find(name);
      if (it == old.end() || it->second == value) continue;
      notes.push_back(
          StrCat("optimizer '", prefix, "': the program gives ", name, " ",
                 Short(value), ", and gave ", Short(it->second),
                 " when the checkpoint was written; ",
                 keep_program
                     ? StrCat(Short(value), " is used")
                     : StrCat("the checkpoint's ", Short(used[name]),
                              " is used (SessionOptions::keep_program_options "
                              "or GAVEL_KEEP_PROGRAM_OPTIONS=1: the "
                              "program's)")));
      used[name] = value;
    }
    std::string& lines = chosen.bytes[OptionsName(prefix, i)];
    for (const auto& [name, value] : used) {
      StrAppend(&lines, name, " ", value, "\n");
    }
    if (!keep_program) (*given)[i] = *before;
  }
  if (!keep_program || notes.empty()) return notes;
  GAVEL_RETURN_IF_ERROR(
      CatchAsStatus(StrCat("options of optimizer '", prefix, "'"), [&] {
        return Restorer(chosen, prefix, kind, {}, optimizer).RestoreOptions();
      }));
  return notes;
}

absl::Status RestoreOptimizerState(const Snapshot& snapshot,
                                   std::string_view prefix,
                                   const OptimizerKind& kind,
                                   optim::Optimizer& optimizer,
                                   const PartOfParameter& part_of) {
  return CatchAsStatus(StrCat("optimizer '", prefix, "'"), [&] {
    return Restorer(snapshot, prefix, kind, part_of, optimizer).Run();
  });
}

absl::StatusOr<std::vector<at::Tensor>> OptimizerTensors(
    optim::Optimizer& optimizer, const OptimizerKind& kind) {
  std::vector<at::Tensor> tensors;
  ListFieldTensors list(&tensors);
  const auto visit_all = [&] {
    for (optim::OptimizerParamGroup& group : optimizer.param_groups()) {
      GAVEL_RETURN_IF_ERROR(VisitOptions(kind, group.options(), list));
    }
    return ForEachState(optimizer, [&](size_t, const at::Tensor&,
                                       optim::OptimizerParamState& state) {
      return VisitState(kind, state, list);
    });
  };
  GAVEL_RETURN_IF_ERROR(CatchAsStatus("tensors of an optimizer", visit_all));
  return tensors;
}

}  // namespace gavel::internal
