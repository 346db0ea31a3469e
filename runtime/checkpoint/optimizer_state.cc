#include "runtime/checkpoint/optimizer_state.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "core/text.h"
#include "runtime/torch_errors.h"

namespace gavel {
namespace {

namespace optim = torch::optim;
using internal::CatchAsStatus;
using StateMap =
    ska::flat_hash_map<void*, std::unique_ptr<optim::OptimizerParamState>>;

// A visitor is called with the name and a reference of each member. One pair
// of overloads for each kind of optimizer; all else below is common to them.
template <class Visitor>
void Visit(optim::SGDOptions& options, Visitor visit) {
  visit("lr", options.lr());
  visit("momentum", options.momentum());
  visit("dampening", options.dampening());
  visit("weight_decay", options.weight_decay());
  visit("nesterov", options.nesterov());
}
template <class Visitor>
void Visit(optim::SGDParamState& state, Visitor visit) {
  visit("momentum_buffer", state.momentum_buffer());
}

// Adam and AdamW have the same members.
template <class Options, class Visitor>
void VisitAdamOptions(Options& options, Visitor visit) {
  visit("lr", options.lr());
  visit("beta1", std::get<0>(options.betas()));
  visit("beta2", std::get<1>(options.betas()));
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("amsgrad", options.amsgrad());
}
template <class State, class Visitor>
void VisitAdamState(State& state, Visitor visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <class Visitor>
void Visit(optim::AdamOptions& options, Visitor visit) {
  VisitAdamOptions(options, visit);
}
template <class Visitor>
void Visit(optim::AdamParamState& state, Visitor visit) {
  VisitAdamState(state, visit);
}
template <class Visitor>
void Visit(optim::AdamWOptions& options, Visitor visit) {
  VisitAdamOptions(options, visit);
}
template <class Visitor>
void Visit(optim::AdamWParamState& state, Visitor visit) {
  VisitAdamState(state, visit);
}

template <class Visitor>
void Visit(optim::RMSpropOptions& options, Visitor visit) {
  visit("lr", options.lr());
  visit("alpha", options.alpha());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("momentum", options.momentum());
  visit("centered", options.centered());
}
template <class Visitor>
void Visit(optim::RMSpropParamState& state, Visitor visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}

template <class Visitor>
void Visit(optim::AdagradOptions& options, Visitor visit) {
  visit("lr", options.lr());
  visit("lr_decay", options.lr_decay());
  visit("weight_decay", options.weight_decay());
  visit("initial_accumulator_value", options.initial_accumulator_value());
  visit("eps", options.eps());
}
template <class Visitor>
void Visit(optim::AdagradParamState& state, Visitor visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

// Members as text; %.17g gives the same double back.
std::string ToText(double value) { return absl::StrFormat("%.17g", value); }
std::string ToText(int64_t value) { return StrCat(value); }
std::string ToText(bool value) { return value ? "true" : "false"; }
bool FromText(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value);
}
bool FromText(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool FromText(const std::string& text, bool* value) {
  *value = text == "true";
  return text == "true" || text == "false";
}

std::vector<at::Tensor> ParametersOf(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(),
                      group.params().end());
  }
  return parameters;
}

absl::Status Differs(std::string_view prefix, std::string_view what) {
  return absl::FailedPreconditionError(
      StrCat("optimizer '", prefix, "': the checkpoint has ", what,
             "; restore with the program that wrote it, or start anew"));
}

absl::Status Unreadable(std::string_view name) {
  return absl::DataLossError(
      StrCat("checkpoint entry '", name, "' is missing or not readable"));
}

// ---- Collecting ----

template <class Options>
std::string OptionsText(const Options& options) {
  Options copy = options;
  std::string text;
  Visit(copy, [&text](const char* name, auto& value) {
    StrAppend(&text, name, " ", ToText(value), "\n");
  });
  return text;
}

struct StateCollector {
  std::string prefix;
  Snapshot* snapshot;
  void operator()(const char* name, at::Tensor& value) const {
    // Undefined: this optimizer, with these options, has none.
    if (!value.defined()) return;
    snapshot->tensors.emplace_back(StrCat(prefix, name), value);
  }
  void operator()(const char* name, int64_t& value) const {
    snapshot->bytes[StrCat(prefix, name)] = ToText(value);
  }
};

template <class Options, class State>
absl::Status Collect(const optim::Optimizer& optimizer, std::string_view kind,
                     std::string_view prefix, Snapshot* snapshot) {
  snapshot->bytes[StrCat(prefix, "/kind")] = std::string(kind);
  const auto& groups = optimizer.param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    snapshot->bytes[StrCat(prefix, "/group/", i, "/options")] =
        OptionsText(dynamic_cast<const Options&>(groups[i].options()));
  }
  std::vector<at::Tensor> parameters = ParametersOf(optimizer);
  snapshot->bytes[StrCat(prefix, "/parameters")] = StrCat(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto state = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
    if (state == optimizer.state().end()) continue;
    std::string name = StrCat(prefix, "/state/", i, "/");
    snapshot->bytes[StrCat(name, "present")] = "true";
    Visit(dynamic_cast<State&>(*state->second), StateCollector{name, snapshot});
  }
  return absl::OkStatus();
}

// ---- Restoring ----

using TensorIndex = std::map<std::string_view, const at::Tensor*>;

const std::string* FindBytes(const Snapshot& snapshot,
                             const std::string& name) {
  auto entry = snapshot.bytes.find(name);
  return entry == snapshot.bytes.end() ? nullptr : &entry->second;
}

// Every option must be there, on a line of its own, in the order of Visit.
template <class Options>
absl::Status ParseOptions(const std::string& name, const std::string& text,
                          Options* options) {
  std::map<std::string, std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    size_t space = std::min(line.find(' '), line.size() - 1);
    lines[line.substr(0, space)] = line.substr(space + 1);
    begin = end + 1;
  }
  bool good = true;
  Visit(*options, [&](const char* member, auto& value) {
    auto line = lines.find(member);
    good = good && line != lines.end() && FromText(line->second, &value);
  });
  return good ? absl::OkStatus() : Unreadable(name);
}

struct StateRestorer {
  std::string prefix;
  const Snapshot& snapshot;
  const TensorIndex& tensors;
  const at::Tensor& parameter;
  absl::Status* status;

  void operator()(const char* name, at::Tensor& value) const {
    std::string full_name = StrCat(prefix, name);
    auto entry = tensors.find(full_name);
    if (entry == tensors.end()) return;
    const at::Tensor& saved = *entry->second;
    if (saved.sizes() != parameter.sizes()) {
      status->Update(absl::FailedPreconditionError(StrCat(
          "'", full_name, "' has ", saved.numel(),
          " elements or another shape than its parameter, which has ",
          parameter.numel(), "; restore into the model that was saved")));
      return;
    }
    value = saved.to(parameter.device(), saved.scalar_type(),
                     /*non_blocking=*/false, /*copy=*/true);
  }
  void operator()(const char* name, int64_t& value) const {
    std::string full_name = StrCat(prefix, name);
    const std::string* text = FindBytes(snapshot, full_name);
    if (text == nullptr || !FromText(*text, &value)) {
      status->Update(Unreadable(full_name));
    }
  }
};

template <class Options, class State>
class Restorer {
 public:
  Restorer(const Snapshot& snapshot, std::string_view prefix,
           optim::Optimizer& optimizer)
      : snapshot_(snapshot), prefix_(prefix), optimizer_(optimizer) {
    for (const auto& [name, tensor] : snapshot.tensors) {
      tensors_.emplace(name, &tensor);
    }
  }

  absl::Status Run() {
    std::vector<Options> options;
    StateMap state;
    GAVEL_RETURN_IF_ERROR(CheckCounts());
    GAVEL_RETURN_IF_ERROR(BuildOptions(&options));
    GAVEL_RETURN_IF_ERROR(BuildState(&state));
    // Nothing fails from here on. Options are assigned, not replaced: a
    // learning-rate scheduler may hold references to them.
    for (size_t i = 0; i < options.size(); ++i) {
      dynamic_cast<Options&>(optimizer_.param_groups()[i].options()) =
          options[i];
    }
    optimizer_.state() = std::move(state);
    return absl::OkStatus();
  }

 private:
  absl::Status CheckCounts() const {
    std::string name = StrCat(prefix_, "/parameters");
    const std::string* text = FindBytes(snapshot_, name);
    int64_t saved = 0;
    if (text == nullptr || !FromText(*text, &saved)) return Unreadable(name);
    size_t own = ParametersOf(optimizer_).size();
    if (static_cast<size_t>(saved) != own) {
      return Differs(prefix_, StrCat(saved, " parameters, this program ", own));
    }
    size_t groups = optimizer_.param_groups().size();
    if (snapshot_.bytes.contains(
            StrCat(prefix_, "/group/", groups, "/options"))) {
      return Differs(prefix_, StrCat("more groups of parameters than the ",
                                     groups, " of this program"));
    }
    return absl::OkStatus();
  }

  absl::Status BuildOptions(std::vector<Options>* options) const {
    for (size_t i = 0; i < optimizer_.param_groups().size(); ++i) {
      std::string name = StrCat(prefix_, "/group/", i, "/options");
      const std::string* text = FindBytes(snapshot_, name);
      if (text == nullptr) {
        return Differs(prefix_, StrCat("only ", i, " groups of parameters"));
      }
      options->push_back(
          dynamic_cast<const Options&>(optimizer_.param_groups()[i].options()));
      GAVEL_RETURN_IF_ERROR(ParseOptions(name, *text, &options->back()));
    }
    return absl::OkStatus();
  }

  absl::Status BuildState(StateMap* state) const {
    std::vector<at::Tensor> parameters = ParametersOf(optimizer_);
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::string name = StrCat(prefix_, "/state/", i, "/");
      if (!snapshot_.bytes.contains(StrCat(name, "present"))) continue;
      auto entry = std::make_unique<State>();
      absl::Status status;
      Visit(*entry,
            StateRestorer{name, snapshot_, tensors_, parameters[i], &status});
      GAVEL_RETURN_IF_ERROR(status);
      (*state)[parameters[i].unsafeGetTensorImpl()] = std::move(entry);
    }
    return absl::OkStatus();
  }

  const Snapshot& snapshot_;
  std::string prefix_;
  optim::Optimizer& optimizer_;
  TensorIndex tensors_;
};

// ---- The kinds ----

template <class OptionsType, class StateType>
struct Kind {
  std::string_view name;
  using Options = OptionsType;
  using State = StateType;
};

// Calls `use` with the Kind of `optimizer`.
template <class Use>
absl::Status WithKind(const optim::Optimizer& optimizer,
                      std::string_view prefix, Use use) {
  if (dynamic_cast<const optim::SGD*>(&optimizer)) {
    return use(Kind<optim::SGDOptions, optim::SGDParamState>{"SGD"});
  }
  if (dynamic_cast<const optim::Adam*>(&optimizer)) {
    return use(Kind<optim::AdamOptions, optim::AdamParamState>{"Adam"});
  }
  if (dynamic_cast<const optim::AdamW*>(&optimizer)) {
    return use(Kind<optim::AdamWOptions, optim::AdamWParamState>{"AdamW"});
  }
  if (dynamic_cast<const optim::RMSprop*>(&optimizer)) {
    return use(
        Kind<optim::RMSpropOptions, optim::RMSpropParamState>{"RMSprop"});
  }
  if (dynamic_cast<const optim::Adagrad*>(&optimizer)) {
    return use(
        Kind<optim::AdagradOptions, optim::AdagradParamState>{"Adagrad"});
  }
  bool lbfgs = dynamic_cast<const optim::LBFGS*>(&optimizer) != nullptr;
  return absl::UnimplementedError(
      StrCat("optimizer '", prefix, "' is ", lbfgs ? "LBFGS" : "of a kind",
             lbfgs ? ", which is" : " that is", " not checkpointed; use SGD, ",
             "Adam, AdamW, RMSprop or Adagrad, or track its state by save and "
             "load callbacks"));
}

}  // namespace

absl::Status CollectOptimizerState(const optim::Optimizer& optimizer,
                                   std::string_view prefix,
                                   Snapshot* snapshot) {
  return CatchAsStatus(StrCat("optimizer '", prefix, "'"), [&] {
    return WithKind(optimizer, prefix, [&](auto kind) {
      using K = decltype(kind);
      return Collect<typename K::Options, typename K::State>(
          optimizer, kind.name, prefix, snapshot);
    });
  });
}

absl::Status RestoreOptimizerState(const Snapshot& snapshot,
                                   std::string_view prefix,
                                   optim::Optimizer& optimizer) {
  return CatchAsStatus(StrCat("optimizer '", prefix, "'"), [&] {
    return WithKind(optimizer, prefix, [&](auto kind) -> absl::Status {
      const std::string* saved = FindBytes(snapshot, StrCat(prefix, "/kind"));
      if (saved == nullptr) {
        return absl::NotFoundError(
            StrCat("the checkpoint has no optimizer '", prefix,
                   "'; track it under the name it was saved with"));
      }
      if (*saved != kind.name) {
        return Differs(prefix, StrCat("the state of ", *saved,
                                      ", this program uses ", kind.name));
      }
      using K = decltype(kind);
      return Restorer<typename K::Options, typename K::State>(snapshot, prefix,
                                                              optimizer)
          .Run();
    });
  });
}

}  // namespace gavel
