// Optimizers of LibTorch and of the program: the description of each class, the
// visitors of its options and state, saving to and restoring from a Snapshot,
// and the search for an optimizer that the program forgot to track.
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

// ---- The optimizer classes of LibTorch, described as users describe their own
// (gavel/optimizer_kind.h).

// Describes SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS, and classes derived
// from them. UNIMPLEMENTED: the optimizer has another class, which the message
// names. `name` is the name under which the optimizer is tracked.
absl::StatusOr<OptimizerKind> KindOf(const torch::optim::Optimizer& optimizer,
                                     std::string_view name);

// Reads a number in the state of a parameter that changes with each step of the
// optimizer; nullopt: the state has none. StepCounterOf returns null for a
// class that keeps no such number.
using StepCounter =
    std::optional<int64_t> (*)(const torch::optim::OptimizerParamState&);
StepCounter StepCounterOf(const torch::optim::Optimizer& optimizer);

// ---- The visitors of an optimizer's options and state. One lists names, one
// lists tensors, one saves and one restores.

// A field that is a number or text. ToText writes it so that FromText reads the
// same value back.
using NumberRef = std::variant<int64_t*, double*, bool*, std::string*>;
std::string ToText(NumberRef value);
// Returns false and changes nothing if `text` is not of the type of `value`.
bool FromText(const std::string& text, NumberRef value);

// The base of all visitors except ListFieldNames. It visits a list of tensors
// as its length followed by its tensors.
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

// Lists names and types as "NAME TYPE", where TYPE is tensor, tensors, int64,
// double, bool or text.
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
  // INVALID_ARGUMENT: names the first field whose name is invalid or duplicate.
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

// A parameter of which this rank has a part. The state of the parameter has the
// shape of that part, or is a number that is the same on all ranks.
struct PartedParameter {
  OwnPart part;
  at::Tensor parameter;
};

// Entries of the snapshot are named `prefix` followed by the field's name. With
// `lines`, numbers are appended to it as "NAME NUMBER\n" instead. With
// `parted`, tensors are saved as this rank's parts.
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
  // The shape that tensors must have; null: any shape.
  const at::Tensor* like = nullptr;
  // This rank's part, which is taken from tensors that are stored whole or in
  // other parts; null: tensors are whole.
  const OwnPart* part = nullptr;
  // The numbers, which are lines of the entry `lines_name`; null: each number
  // is an entry of its own.
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

// Returns DATA_LOSS for an entry that is missing or not readable.
absl::Status UnreadableEntry(std::string_view name);

// ---- Saving the state of a LibTorch optimizer to a Snapshot and restoring it.
// Called for every tracked optimizer. Parameters are named by their number over
// all groups, and neither pointers nor devices are stored, so that the state
// can be restored in another process, on another device and in another world
// size.
//
//   PREFIX/kind                 bytes   "Adam"
//   PREFIX/fields               bytes   "option lr double\nstate step int64\n"
//   PREFIX/parameters           bytes   "4"
//   PREFIX/group/0/parameters   bytes   "4"
//   PREFIX/group/0/options      bytes   "lr 0.001\nbeta1 0.9\n..."
//   PREFIX/group/0/given        bytes   the options as the program gave them
//   PREFIX/state/3/present      bytes   "true"
//   PREFIX/state/3/exp_avg      tensor  absent if it is undefined
//   PREFIX/state/3/step         bytes   "1200"
//   PREFIX/state/0/ro/count     bytes   "2": the length of the list that has
//   PREFIX/state/0/ro/0, ...    tensor  these elements
//
// If a parameter is this rank's part of a larger one, its state is a part, too,
// and is divided in the same way.
//
// Checkpoints of earlier versions lack `fields` (which is sorted), the sizes of
// the groups and `given`. The functions run on the training thread only, while
// no step runs. An exception of the user's functions becomes INTERNAL.

// Checks that `kind` describes `optimizer`. INVALID_ARGUMENT: the optimizer's
// options have another class, or the name of a field is invalid or duplicate.
absl::Status CheckOptimizerKind(torch::optim::Optimizer& optimizer,
                                const OptimizerKind& kind,
                                std::string_view prefix);

// Returns this rank's part of a parameter; nullopt: all ranks have the same
// whole parameter. An empty function says so of all parameters.
using PartOfParameter =
    std::function<std::optional<OwnPart>(const at::Tensor& parameter)>;

// Adds the entries of the optimizer. The tensors are the optimizer's own, not
// copies. `given` has the OptionLines from when the optimizer was tracked.
// FAILED_PRECONDITION: state of another class than `kind` describes, state of
// something that is not a parameter, or state whose shape differs from that of
// its parameter, which is a part.
absl::Status CollectOptimizerState(torch::optim::Optimizer& optimizer,
                                   const OptimizerKind& kind,
                                   std::string_view prefix, Snapshot* snapshot,
                                   const PartOfParameter& part_of = {},
                                   const std::vector<std::string>& given = {});

// Replaces options and state, or changes nothing if it fails. State tensors are
// copies on the device of their parameter. NOT_FOUND: the snapshot has no
// optimizer of this name. FAILED_PRECONDITION: its kind, groups, parameters,
// fields or shapes differ. DATA_LOSS: an entry is not readable.
absl::Status RestoreOptimizerState(const Snapshot& snapshot,
                                   std::string_view prefix,
                                   const OptimizerKind& kind,
                                   torch::optim::Optimizer& optimizer,
                                   const PartOfParameter& part_of = {});

// Returns, for each group, the numbers of its options as text.
absl::StatusOr<std::vector<std::string>> OptionLines(
    torch::optim::Optimizer& optimizer, const OptimizerKind& kind,
    std::string_view prefix);

// Called after RestoreOptimizerState. Finds the options that the program now
// gives (`*given`) with other values than when the checkpoint was written. With
// `keep_program` the program's values are used. Otherwise the checkpoint's
// values stay, and `*given` becomes what the program gave when the checkpoint
// was written. Returns a line for each such option.
absl::StatusOr<std::vector<std::string>> SettleOptions(
    const Snapshot& snapshot, std::string_view prefix,
    const OptimizerKind& kind, bool keep_program,
    torch::optim::Optimizer& optimizer, std::vector<std::string>* given);

// Handles to the defined tensors of options and state, in the order of the
// parameters. These tensors move with the lease.
absl::StatusOr<std::vector<at::Tensor>> OptimizerTensors(
    torch::optim::Optimizer& optimizer, const OptimizerKind& kind);

// Finds an optimizer that the user forgot to track. LibTorch keeps no list of
// optimizers. But a tracked parameter that changes from step to step, has a
// gradient and belongs to no tracked optimizer shows that there is another one.
// Checks only the first steps, and a bounded number of bytes. Training thread
// only.
class OptimizerCheck {
 public:
  // After this many boundaries the check is over.
  static constexpr int kStepsMax = 3;

  // Remembers the values of such parameters, before the first step.
  absl::Status Begin(const TrackedState& tracked);
  // Called after a step. FAILED_PRECONDITION: an untracked optimizer was found;
  // the message names the parameter and the remedy.
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
