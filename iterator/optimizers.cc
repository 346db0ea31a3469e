#include "iterator/optimizers.h"

#include <ATen/ops/equal.h>
#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/text.h"
#include "iterator/tracked_state.h"
#include "runtime/device/torch_errors.h"

namespace gavel::internal {

// ---- The classes of LibTorch.

namespace {

namespace optim = torch::optim;

// The names are those of torch.optim in Python where it has the same member.

OptimizerKind KindOfSgd() {
  return DescribeOptimizer<optim::SGDOptions, optim::SGDParamState>(
      "SGD",
      [](optim::SGDOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("momentum", options.momentum());
        fields("dampening", options.dampening());
        fields("weight_decay", options.weight_decay());
        fields("nesterov", options.nesterov());
      },
      [](optim::SGDParamState& state, OptimizerFields& fields) {
        fields("momentum_buffer", state.momentum_buffer());
      });
}

// Adam and AdamW have the same members.
template <class Options, class State>
OptimizerKind KindOfAdam(const char* name) {
  return DescribeOptimizer<Options, State>(
      name,
      [](Options& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("beta1", std::get<0>(options.betas()));
        fields("beta2", std::get<1>(options.betas()));
        fields("eps", options.eps());
        fields("weight_decay", options.weight_decay());
        fields("amsgrad", options.amsgrad());
      },
      [](State& state, OptimizerFields& fields) {
        fields("step", state.step());
        fields("exp_avg", state.exp_avg());
        fields("exp_avg_sq", state.exp_avg_sq());
        fields("max_exp_avg_sq", state.max_exp_avg_sq());
      });
}

OptimizerKind KindOfRmsprop() {
  return DescribeOptimizer<optim::RMSpropOptions, optim::RMSpropParamState>(
      "RMSprop",
      [](optim::RMSpropOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("alpha", options.alpha());
        fields("eps", options.eps());
        fields("weight_decay", options.weight_decay());
        fields("momentum", options.momentum());
        fields("centered", options.centered());
      },
      [](optim::RMSpropParamState& state, OptimizerFields& fields) {
        fields("step", state.step());
        fields("square_avg", state.square_avg());
        fields("momentum_buffer", state.momentum_buffer());
        fields("grad_avg", state.grad_avg());
      });
}

OptimizerKind KindOfAdagrad() {
  return DescribeOptimizer<optim::AdagradOptions, optim::AdagradParamState>(
      "Adagrad",
      [](optim::AdagradOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("lr_decay", options.lr_decay());
        fields("weight_decay", options.weight_decay());
        fields("initial_accumulator_value",
               options.initial_accumulator_value());
        fields("eps", options.eps());
      },
      [](optim::AdagradParamState& state, OptimizerFields& fields) {
        fields("step", state.step());
        fields("sum", state.sum());
      });
}

// Its state, of all parameters together, is with the first one.
OptimizerKind KindOfLbfgs() {
  return DescribeOptimizer<optim::LBFGSOptions, optim::LBFGSParamState>(
      "LBFGS",
      [](optim::LBFGSOptions& options, OptimizerFields& fields) {
        fields("lr", options.lr());
        fields("max_iter", options.max_iter());
        fields("max_eval", options.max_eval());
        fields("tolerance_grad", options.tolerance_grad());
        fields("tolerance_change", options.tolerance_change());
        fields("history_size", options.history_size());
        fields("line_search_fn", options.line_search_fn());
      },
      [](optim::LBFGSParamState& state, OptimizerFields& fields) {
        fields("func_evals", state.func_evals());
        fields("n_iter", state.n_iter());
        fields("t", state.t());
        fields("prev_loss", state.prev_loss());
        fields("d", state.d());
        fields("H_diag", state.H_diag());
        fields("prev_flat_grad", state.prev_flat_grad());
        fields("old_dirs", state.old_dirs());
        fields("old_stps", state.old_stps());
        fields("ro", state.ro());
        fields("al", state.al());
      });
}

template <class Class>
bool Is(const optim::Optimizer& optimizer) {
  return dynamic_cast<const Class*>(&optimizer) != nullptr;
}

std::optional<OptimizerKind> KindWithParameterShape(
    const optim::Optimizer& optimizer) {
  if (Is<optim::SGD>(optimizer)) return KindOfSgd();
  if (Is<optim::Adam>(optimizer)) {
    return KindOfAdam<optim::AdamOptions, optim::AdamParamState>("Adam");
  }
  if (Is<optim::AdamW>(optimizer)) {
    return KindOfAdam<optim::AdamWOptions, optim::AdamWParamState>("AdamW");
  }
  if (Is<optim::RMSprop>(optimizer)) return KindOfRmsprop();
  if (Is<optim::Adagrad>(optimizer)) return KindOfAdagrad();
  return std::nullopt;
}

template <class State>
std::optional<int64_t> StepsOf(const optim::OptimizerParamState& state) {
  const auto* const own = dynamic_cast<const State*>(&state);
  return own == nullptr ? std::nullopt : std::optional(own->step());
}

// SGD writes its momentum in place, which raises the version.
std::optional<int64_t> VersionOfMomentum(
    const optim::OptimizerParamState& state) {
  const auto* const own = dynamic_cast<const optim::SGDParamState*>(&state);
  if (own == nullptr || !own->momentum_buffer().defined()) return std::nullopt;
  return own->momentum_buffer()._version();
}

}  // namespace

absl::StatusOr<OptimizerKind> KindOf(const optim::Optimizer& optimizer,
                                     std::string_view name) {
  if (Is<optim::LBFGS>(optimizer)) return KindOfLbfgs();
  if (std::optional<OptimizerKind> kind = KindWithParameterShape(optimizer)) {
    kind->state_has_parameter_shape = true;
    return *std::move(kind);
  }
  return absl::UnimplementedError(
      StrCat("optimizer '", name, "' is of class ",
             c10::demangle(typeid(optimizer).name()),
             ", whose state is not known; describe it with "
             "gavel::DescribeOptimizer (gavel/optimizer_kind.h) and pass that "
             "to Track"));
}

StepCounter StepCounterOf(const optim::Optimizer& optimizer) {
  if (Is<optim::SGD>(optimizer)) return VersionOfMomentum;
  if (Is<optim::Adam>(optimizer)) return StepsOf<optim::AdamParamState>;
  if (Is<optim::AdamW>(optimizer)) return StepsOf<optim::AdamWParamState>;
  if (Is<optim::RMSprop>(optimizer)) return StepsOf<optim::RMSpropParamState>;
  if (Is<optim::Adagrad>(optimizer)) return StepsOf<optim::AdagradParamState>;
  return nullptr;
}

// ---- The visitors.

namespace {

constexpr int64_t kListLengthMax = 1 << 20;
constexpr size_t kOptimizerNameLengthMax = 64;

// %.17g gives the same double back.
std::string TextOf(double value) { return absl::StrFormat("%.17g", value); }
std::string TextOf(int64_t value) { return StrCat(value); }
std::string TextOf(bool value) { return value ? "true" : "false"; }
std::string TextOf(const std::string& value) { return absl::CEscape(value); }

bool Parse(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value);
}
bool Parse(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool Parse(const std::string& text, bool* value) {
  *value = text == "true";
  return text == "true" || text == "false";
}
bool Parse(const std::string& text, std::string* value) {
  return absl::CUnescape(text, value);
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= kOptimizerNameLengthMax &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '_' || c == '.';
         });
}

}  // namespace

std::string ToText(NumberRef value) {
  return std::visit([](const auto* number) { return TextOf(*number); }, value);
}

bool FromText(const std::string& text, NumberRef value) {
  return std::visit(
      [&text](auto* number) {
        auto parsed = *number;
        if (!Parse(text, &parsed)) return false;
        *number = std::move(parsed);
        return true;
      },
      value);
}

void EachField::operator()(const std::string& name,
                           std::vector<at::Tensor>& value) {
  auto count = static_cast<int64_t>(value.size());
  Number(StrCat(name, "/count"), &count);
  if (count < 0 || count > kListLengthMax) {
    return Fail(absl::OutOfRangeError(StrCat("the list '", name, "' has ",
                                             count, " tensors; at most ",
                                             kListLengthMax, " are possible")));
  }
  value.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < value.size(); ++i) {
    Tensor(StrCat(name, "/", i), value[i]);
  }
}

void ListFieldNames::Add(const std::string& name, const char* type) {
  if (!IsName(name)) {
    status_.Update(absl::InvalidArgumentError(StrCat(
        "'", name, "' is no name of a field; use 1 to 64 of A-Z a-z 0-9 _ .")));
  }
  if (!names_.insert(name).second) {
    status_.Update(absl::InvalidArgumentError(StrCat(
        "the field '", name, "' is there twice; give each its own name")));
  }
  fields_.push_back(StrCat(name, " ", type));
}

void SaveFields::Number(const std::string& name, NumberRef value) {
  if (lines_ != nullptr) {
    StrAppend(lines_, name, " ", ToText(value), "\n");
  } else {
    snapshot_->bytes[StrCat(prefix_, name)] = ToText(value);
  }
}

void SaveFields::Tensor(const std::string& name, at::Tensor& value) {
  if (!value.defined()) return;
  const std::string full_name = StrCat(prefix_, name);
  if (value.layout() != at::kStrided) {
    return Fail(CollectTensor(full_name, value, std::nullopt, snapshot_));
  }
  if (parted_ != nullptr && value.numel() != 1) {
    if (value.sizes() != parted_->parameter.sizes()) {
      return Fail(absl::FailedPreconditionError(StrCat(
          "'", full_name, "' has another shape than its parameter, which is ",
          "sharded over workers; state of such a parameter is of its shape")));
    }
    snapshot_->partitions[full_name] = parted_->part.partition;
  }
  snapshot_->tensors.emplace_back(full_name, value);
}

FieldLines ParseLines(const std::string& text) {
  FieldLines lines;
  for (const auto line : absl::StrSplit(text, '\n')) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    lines.insert(words);
  }
  return lines;
}

const std::string* RestoreFields::FindText(const std::string& name) const {
  if (from_.lines != nullptr) {
    const auto line = from_.lines->find(name);
    return line == from_.lines->end() ? nullptr : &line->second;
  }
  const auto entry = from_.snapshot.bytes.find(StrCat(prefix_, name));
  return entry == from_.snapshot.bytes.end() ? nullptr : &entry->second;
}

void RestoreFields::Number(const std::string& name, NumberRef value) {
  const std::string* const text = FindText(name);
  if (text != nullptr && FromText(*text, value)) return;
  Fail(UnreadableEntry(from_.lines == nullptr ? StrCat(prefix_, name)
                                              : std::string(from_.lines_name)));
}

void RestoreFields::Tensor(const std::string& name, at::Tensor& value) {
  const std::string full_name = StrCat(prefix_, name);
  if (from_.snapshot.bytes.contains(StrCat(full_name, "/layout"))) {
    at::Tensor made;
    Fail(RestoreTensor(from_.snapshot, full_name, std::nullopt, made));
    if (made.defined()) value = made.to(from_.device);
    return;
  }
  const auto whole = from_.tensors.find(full_name);
  const auto parts = from_.snapshot.parts.find(full_name);
  const bool is_number =
      whole != from_.tensors.end() && whole->second->numel() == 1;
  const absl::StatusOr<at::Tensor> found = TakePart(
      full_name, whole == from_.tensors.end() ? nullptr : whole->second,
      parts == from_.snapshot.parts.end() ? nullptr : &parts->second,
      is_number ? nullptr : from_.part);
  if (!found.ok()) return Fail(found.status());
  const at::Tensor& saved = *found;
  if (!saved.defined()) {
    value = at::Tensor();
    return;
  }
  if (from_.like != nullptr && saved.sizes() != from_.like->sizes()) {
    return Fail(absl::FailedPreconditionError(StrCat(
        "'", full_name, "' has ", saved.numel(),
        " elements or another shape than its parameter, which has ",
        from_.like->numel(),
        "; restore into the model that was saved, and track what is sharded "
        "over workers before its optimizer")));
  }
  value = saved.to(from_.device, saved.scalar_type(), /*non_blocking=*/false,
                   /*copy=*/true);
}

absl::Status UnreadableEntry(std::string_view name) {
  return absl::DataLossError(
      StrCat("checkpoint entry '", name, "' is missing or not readable"));
}

// ---- Into a Snapshot and back.

namespace {

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

// Collecting.

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

// Restoring.

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

// ---- The search for a forgotten optimizer.

namespace {

// Parameters that are remembered, smallest first: an optimizer changes all of
// them, so that some are enough.
constexpr size_t kWatchedBytesMax = size_t{4} << 20;

std::set<c10::TensorImpl*> OptimizedParameters(const TrackedState& tracked,
                                               bool* has_optimizer) {
  std::set<c10::TensorImpl*> optimized;
  for (const auto& item : tracked.items()) {
    const torch::optim::Optimizer* optimizer = OptimizerOf(*item);
    if (optimizer == nullptr) continue;
    *has_optimizer = true;
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        optimized.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  return optimized;
}

}  // namespace

absl::Status OptimizerCheck::Begin(const TrackedState& tracked) {
  return CatchAsStatus("looking for an optimizer that is not tracked", [&] {
    const auto optimized = OptimizedParameters(tracked, &has_optimizer_);
    for (const auto& item : tracked.items()) {
      for (auto& [name, parameter] : item->Parameters()) {
        if (!parameter.defined() || !parameter.requires_grad()) continue;
        if (!parameter.is_leaf() || parameter.layout() != at::kStrided)
          continue;
        if (optimized.count(parameter.unsafeGetTensorImpl()) > 0) continue;
        watched_.push_back({std::move(name), parameter, {}});
      }
    }
    std::stable_sort(watched_.begin(), watched_.end(),
                     [](const Watched& a, const Watched& b) {
                       return a.parameter.nbytes() < b.parameter.nbytes();
                     });
    size_t bytes = 0;
    size_t count = 0;
    for (; count < watched_.size(); ++count) {
      bytes += watched_[count].parameter.nbytes();
      if (bytes > kWatchedBytesMax && count > 0) break;
      watched_[count].before = watched_[count].parameter.detach().cpu().clone();
    }
    watched_.resize(count);
    return absl::OkStatus();
  });
}

absl::Status OptimizerCheck::Check() {
  ++checks_;
  absl::Status status =
      CatchAsStatus("looking for an optimizer that is not tracked", [&] {
        for (const Watched& watched : watched_) {
          // A copy that follows another model has no gradient: state of that
          // kind is complete without an optimizer.
          if (has_optimizer_ && !watched.parameter.grad().defined()) continue;
          if (at::equal(watched.parameter.detach().cpu(), watched.before)) {
            continue;
          }
          return absl::FailedPreconditionError(
              StrCat("parameter '", watched.name,
                     "' is trained, but no tracked optimizer has it, so its "
                     "optimizer's state would be lost at a restart; call "
                     "session->Track(\"optimizer\", optimizer) before the "
                     "loop, or set SessionOptions::require_tracked_optimizer "
                     "to false if there is none"));
        }
        return absl::OkStatus();
      });
  if (done()) watched_.clear();
  return status;
}

}  // namespace gavel::internal
