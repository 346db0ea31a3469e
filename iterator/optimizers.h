// Optimizers of LibTorch and of the program: the description of each class, the
// visitors of its options and state, how both get into a Snapshot and back, and
// the search for an optimizer that the program forgot to track.
#ifndef GAVEL_ITERATOR_OPTIMIZERS_H_
#define GAVEL_ITERATOR_OPTIMIZERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gavel/optimizer_kind.h"
#include "iterator/tracked_state.h"
#include "runtime/checkpoint/snapshot.h"

namespace torch::optim {
class Optimizer;
class OptimizerParamState;
}  // namespace torch::optim

namespace gavel::internal {

// ---- The optimizer classes of LibTorch, described as a user describes one of
// his own (gavel/optimizer_kind.h).

// Describes SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS, and classes derived
// from them. UNIMPLEMENTED: another class, which the message names. `name` is
// the name under which the optimizer is tracked.
absl::StatusOr<OptimizerKind> KindOf(const torch::optim::Optimizer& optimizer,
                                     std::string_view name);

// A number in the state of a parameter that is another one after each step of
// the optimizer; nullopt: there is none. Null for a class that keeps none.
using StepCounter =
    std::optional<int64_t> (*)(const torch::optim::OptimizerParamState&);
StepCounter StepCounterOf(const torch::optim::Optimizer& optimizer);

// ---- The visitors of an optimizer's options and state: one that lists names,
// one that lists tensors, one that saves and one that restores.

// A number (or text) of whichever type, and as text that gives the same back.
using NumberRef = std::variant<int64_t*, double*, bool*, std::string*>;
std::string ToText(NumberRef value);
// False, and nothing changes: not of this type.
bool FromText(const std::string& text, NumberRef value);

// The common base of all visitors except for that of names: a list is its
// length and its tensors.
class EachField : public OptimizerFields {
 public:
  // The first error of a field.
  const absl::Status& status() const { return status_; }

  void operator()(const std::string& name, at::Tensor& value) override {
    Tensor(name, value);
  }
  void operator()(const std::string& name,
                  std::vector<at::Tensor>& value) override;
  void operator()(const std::string& name, int64_t& value) override {
    Number(name, &value);
  }
  void operator()(const std::string& name, double& value) override {
    Number(name, &value);
  }
  void operator()(const std::string& name, bool& value) override {
    Number(name, &value);
  }
  void operator()(const std::string& name, std::string& value) override {
    Number(name, &value);
  }

 protected:
  ~EachField() = default;
  void Fail(const absl::Status& status) { status_.Update(status); }

 private:
  virtual void Number(const std::string& name, NumberRef value) = 0;
  virtual void Tensor(const std::string& name, at::Tensor& value) = 0;

  absl::Status status_;
};

// Names and types, as "NAME TYPE" with TYPE one of tensor, tensors, int64,
// double, bool and text.
class ListFieldNames final : public OptimizerFields {
 public:
  void operator()(const std::string& name, at::Tensor&) override {
    Add(name, "tensor");
  }
  void operator()(const std::string& name, std::vector<at::Tensor>&) override {
    Add(name, "tensors");
  }
  void operator()(const std::string& name, int64_t&) override {
    Add(name, "int64");
  }
  void operator()(const std::string& name, double&) override {
    Add(name, "double");
  }
  void operator()(const std::string& name, bool&) override {
    Add(name, "bool");
  }
  void operator()(const std::string& name, std::string&) override {
    Add(name, "text");
  }

  const std::vector<std::string>& fields() const { return fields_; }
  // INVALID_ARGUMENT: the first name that is none, or is there twice.
  const absl::Status& status() const { return status_; }

 private:
  void Add(const std::string& name, const char* type);

  std::set<std::string> names_;
  std::vector<std::string> fields_;
  absl::Status status_;
};

class ListFieldTensors final : public EachField {
 public:
  explicit ListFieldTensors(std::vector<at::Tensor>* tensors)
      : tensors_(tensors) {}

 private:
  void Number(const std::string&, NumberRef) override {}
  void Tensor(const std::string&, at::Tensor& value) override {
    if (value.defined()) tensors_->push_back(value);
  }
  std::vector<at::Tensor>* tensors_;
};

// A parameter of which this rank has a part. Its state has the shape of that
// part, or is a number that is the same on all ranks.
struct PartedParameter {
  OwnPart part;
  at::Tensor parameter;
};

// Names in the snapshot are `prefix` and the field's. With `lines`, numbers are
// appended to that as "NAME NUMBER\n". With `parted`, tensors are parts, too.
class SaveFields final : public EachField {
 public:
  SaveFields(std::string prefix, Snapshot* snapshot,
             std::string* lines = nullptr,
             const PartedParameter* parted = nullptr)
      : prefix_(std::move(prefix)),
        snapshot_(snapshot),
        lines_(lines),
        parted_(parted) {}

 private:
  void Number(const std::string& name, NumberRef value) override;
  void Tensor(const std::string& name, at::Tensor& value) override;

  std::string prefix_;
  Snapshot* snapshot_;
  std::string* lines_;
  const PartedParameter* parted_;
};

using TensorIndex = std::map<std::string_view, const at::Tensor*>;
using FieldLines = std::map<std::string, std::string>;
FieldLines ParseLines(const std::string& text);

struct RestoredFrom {
  const Snapshot& snapshot;
  const TensorIndex& tensors;  // of `snapshot`
  at::Device device;           // where tensors go
  // Null: the tensors have any shape.
  const at::Tensor* like = nullptr;
  // Not null: what is stored in parts gives this one.
  const OwnPart* part = nullptr;
  // Null: every number is an entry of its own. Else they are in these lines of
  // the entry `lines_name`.
  const FieldLines* lines = nullptr;
  std::string_view lines_name = {};
};

class RestoreFields final : public EachField {
 public:
  RestoreFields(std::string prefix, const RestoredFrom& from)
      : prefix_(std::move(prefix)), from_(from) {}

 private:
  void Number(const std::string& name, NumberRef value) override;
  void Tensor(const std::string& name, at::Tensor& value) override;
  const std::string* FindText(const std::string& name) const;

  std::string prefix_;
  RestoredFrom from_;
};

// DATA_LOSS.
absl::Status UnreadableEntry(std::string_view name);

// ---- The functions that collect the state of a LibTorch optimizer into a
// Snapshot and restore it, with parameters named by their number over all
// groups: neither pointers nor devices are stored, so it restores into another
// process, device and world size. Called for every tracked optimizer.
//
//   PREFIX/kind                 bytes   "Adam"
//   PREFIX/fields               bytes   "option lr double\nstate step int64\n"
//   PREFIX/parameters           bytes   "4"
//   PREFIX/group/0/parameters   bytes   "4"
//   PREFIX/group/0/options      bytes   "lr 0.001\nbeta1 0.9\n..."
//   PREFIX/group/0/given        bytes   the same as the program had given it
//   PREFIX/state/3/present      bytes   "true"
//   PREFIX/state/3/exp_avg      tensor  none: it is undefined
//   PREFIX/state/3/step         bytes   "1200"
//   PREFIX/state/0/ro/count     bytes   "2": of a list, PREFIX/state/0/ro/0,
//   ...
//
// The state of a parameter that is this rank's part of a larger one is such a
// part, too, and is cut alike.
//
// `fields`, sorted, the groups' sizes and `given` are not in the checkpoints of
// earlier versions. Training thread only, no step may run meanwhile. What
// functions of the user throw is INTERNAL.

// Whether `kind` describes `optimizer`. INVALID_ARGUMENT: its options have
// another class, or a field's name is invalid or is there twice.
absl::Status CheckOptimizerKind(torch::optim::Optimizer& optimizer,
                                const OptimizerKind& kind,
                                std::string_view prefix);

// nullopt: all ranks have the same parameter. Empty: they have all.
using PartOfParameter =
    std::function<std::optional<OwnPart>(const at::Tensor& parameter)>;

// Adds the entries; the tensors are the optimizer's own, not copies. `given`:
// OptionLines of when it was tracked.
// FAILED_PRECONDITION: state of another class than `kind` describes, or of
// something that is not a parameter, or of another shape than a parameter that
// is a part.
absl::Status CollectOptimizerState(torch::optim::Optimizer& optimizer,
                                   const OptimizerKind& kind,
                                   std::string_view prefix, Snapshot* snapshot,
                                   const PartOfParameter& part_of = {},
                                   const std::vector<std::string>& given = {});

// Replaces options and state; all or nothing. State tensors are copies on the
// device of their parameter. NOT_FOUND: the snapshot has no optimizer of this
// name. FAILED_PRECONDITION: its kind, groups, parameters, fields or shapes
// differ. DATA_LOSS: not readable.
absl::Status RestoreOptimizerState(const Snapshot& snapshot,
                                   std::string_view prefix,
                                   const OptimizerKind& kind,
                                   torch::optim::Optimizer& optimizer,
                                   const PartOfParameter& part_of = {});

// The numbers of the options, as text, of each group.
absl::StatusOr<std::vector<std::string>> OptionLines(
    torch::optim::Optimizer& optimizer, const OptimizerKind& kind,
    std::string_view prefix);

// After RestoreOptimizerState: options that the program gives (`*given`)
// otherwise than it did when the checkpoint was written. With `keep_program`
// these are used, else the checkpoint's stay, and are `*given` from here on.
// Returns a line for each.
absl::StatusOr<std::vector<std::string>> SettleOptions(
    const Snapshot& snapshot, std::string_view prefix,
    const OptimizerKind& kind, bool keep_program,
    torch::optim::Optimizer& optimizer, std::vector<std::string>* given);

// Handles to the defined tensors of options and state, in the order of the
// parameters: what moves with the lease.
absl::StatusOr<std::vector<at::Tensor>> OptimizerTensors(
    torch::optim::Optimizer& optimizer, const OptimizerKind& kind);

// Finds an optimizer that the user forgot to track. LibTorch tells nobody which
// optimizers there are; but a tracked parameter that changes from
// step to step, is trained (has a gradient) and belongs to no tracked optimizer
// gives it away. Looks at the first steps only, at a bounded number of bytes.
// Training thread only.
class OptimizerCheck {
 public:
  // Boundaries after which it is no longer asked.
  static constexpr int kStepsMax = 3;

  // Before the first step: remembers the values of such parameters.
  absl::Status Begin(const TrackedState& tracked);
  // After a step. FAILED_PRECONDITION: the message names the parameter and the
  // remedy.
  absl::Status Check();
  bool done() const { return watched_.empty() || checks_ >= kStepsMax; }

 private:
  struct Watched {
    std::string name;
    at::Tensor parameter;
    at::Tensor before;
  };
  std::vector<Watched> watched_;
  bool has_optimizer_ = false;
  int checks_ = 0;
};

}  // namespace gavel::internal

#endif  // GAVEL_ITERATOR_OPTIMIZERS_H_
